// SPDX-License-Identifier: MIT
/*
 * Files whose hashes are right, and whose parts do not suit each other: what
 * nobody but --verify could tell before a job fails.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "../tap.h"
#include "lists.h"
#include "verify.h"

static char path[] = "/tmp/m6-verify-XXXXXX";

/* A .npu file, as it lies in memory. */
struct image {
	uint8_t *bytes;
	size_t size;
};

static struct npu_file_header *header_of(struct image *image)
{
	return (struct npu_file_header *)image->bytes;
}

static struct npu_section *table_of(struct image *image)
{
	return (struct npu_section *)(image->bytes +
				      header_of(image)->table_offset);
}

static struct npu_section *last_of(struct image *image,
				   enum npu_section_type type)
{
	struct npu_section *section = table_of(image) +
				      header_of(image)->section_count;

	do
		section--;
	while (section->type != type);
	return section;
}

static void shorten(struct image *image, struct npu_section *section)
{
	section->stored_bytes -= 64;
	section->loaded_bytes -= 64;
	memset(image->bytes + section->offset + section->stored_bytes, 0, 64);
}

static void shorten_expert(struct image *image)
{
	shorten(image, last_of(image, NPU_SECTION_EXPERT));
}

static void shorten_copy(struct image *image)
{
	shorten(image, last_of(image, NPU_SECTION_EXPERT_LOW));
}

static void rename_copy(struct image *image)
{
	last_of(image, NPU_SECTION_EXPERT_LOW)->format = M6NPU_TYPE_Q8_0;
}

/* Blocks of 256, and rows are shorter. */
static void rename_oddly(struct image *image)
{
	last_of(image, NPU_SECTION_EXPERT_LOW)->format = M6NPU_TYPE_Q4_K;
}

static void seal(struct image *image)
{
	struct npu_file_header *header = header_of(image);
	struct npu_section *section = table_of(image);
	uint32_t i;

	for (i = 0; i < header->section_count; i++, section++)
		section->stored_xxh3 = section->loaded_xxh3 =
			XXH3_64bits(image->bytes + section->offset,
				    section->stored_bytes);
	header->table_xxh3 = XXH3_64bits(table_of(image),
		header->section_count * sizeof(*section));
	header->header_xxh3 = 0;
	header->header_xxh3 = XXH3_64bits(header, NPU_FILE_ALIGN);
}

/* All sections are raw. */
static bool spoil(void (*apply)(struct image *image))
{
	int fd = open(path, O_RDWR);
	struct image image;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return false;
	image.size = st.st_size;
	image.bytes = mmap(NULL, image.size, PROT_READ | PROT_WRITE,
			   MAP_SHARED, fd, 0);
	close(fd);
	if (image.bytes == MAP_FAILED)
		return false;
	apply(&image);
	seal(&image);
	return !munmap(image.bytes, image.size);
}

static const struct {
	const char *name;
	void (*apply)(struct image *image);
	const char *text;
} faults[] = {
	{ "an expert that is too short", shorten_expert, "expert 1.3 has" },
	{ "a copy that is too short", shorten_copy, "low expert 1.3 has" },
	{ "a copy in another format", rename_copy, "low expert 1.3 has" },
	{ "a copy in no format that it can have", rename_oddly,
	  "low expert 1.3 has" },
};

int main(void)
{
	size_t i;
	int fd = mkstemp(path);

	if (!ok(fd >= 0, "a file"))
		return done();
	close(fd);
	for (i = 0; i < ARRAY_SIZE(faults); i++) {
		if (!ok(lists_compile_to("qwen2moe",
					 "--expert-fallback int4", path) &&
			spoil(faults[i].apply), "a file to spoil"))
			break;
		ok(verify(path, false) &&
		   strstr(fail_message(), faults[i].text), "%s: %s",
		   faults[i].name, fail_message());
	}
	unlink(path);
	return done();
}
