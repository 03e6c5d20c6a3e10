// SPDX-License-Identifier: MIT
/*
 * Any bytes as a .npu file: opening, verifying and laying out must refuse them
 * or succeed, within bounds.
 *
 * Hashes would keep a fuzzer out, so they are made right first, except for
 * those of decoded bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "input.h"
#include "layout.h"
#include "npu_file.h"

static void mend_sections(uint8_t *image, size_t size,
			  const struct npu_file_header *h)
{
	struct npu_section *s = (struct npu_section *)(image + h->table_offset);
	uint32_t i;

	/* Not aligned: refused anyhow. */
	if (h->table_offset % 8)
		return;
	for (i = 0; i < h->section_count; i++, s++) {
		if (s->offset > size || s->stored_bytes > size - s->offset)
			continue;
		s->stored_xxh3 = XXH3_64bits(image + s->offset,
					     s->stored_bytes);
		if (s->encoding == NPU_ENCODING_RAW)
			s->loaded_xxh3 = s->stored_xxh3;
	}
}

static void mend(uint8_t *image, size_t size)
{
	struct npu_file_header *h = (struct npu_file_header *)image;
	uint64_t table;

	if (size < NPU_FILE_ALIGN)
		return;
	memcpy(h->magic, NPU_FILE_MAGIC, sizeof(h->magic));
	h->file_bytes = size;
	table = (uint64_t)h->section_count * sizeof(struct npu_section);
	if (h->table_offset <= size && table <= size - h->table_offset) {
		mend_sections(image, size, h);
		h->table_xxh3 = XXH3_64bits(image + h->table_offset, table);
	}
	h->header_xxh3 = 0;
	h->header_xxh3 = XXH3_64bits(image, NPU_FILE_ALIGN);
}

/* What was accepted is found. */
static void find_last_expert(const struct npu_file *file)
{
	const struct npu_runtime *r = &npu_file_header(file)->runtime;
	char name[NPU_FILE_NAME_BYTES];

	if (!r->expert_layers)
		return;
	npu_file_section_name(file, npu_file_expert(file, r->expert_layers - 1,
						    r->experts - 1), name);
	if (r->low_expert_bytes)
		npu_file_section_name(file, npu_file_expert_low(file,
			r->expert_layers - 1, r->experts - 1), name);
}

static void use(const char *path)
{
	const struct npu_layout_request request = { .slots = 2 };
	struct npu_layout layout;
	struct npu_file *file;

	if (npu_file_open(path, &file))
		return;
	find_last_expert(file);
	npu_file_verify(file, NULL, NULL);
	npu_layout_plan(&layout, file, &request);
	npu_file_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	uint8_t *image;
	char path[32];

	if (fd < 0)
		fd = memfd_create("fuzz.npu", 0);
	image = malloc(size + 1);
	if (!image)
		return 0;
	memcpy(image, data, size);
	mend(image, size);
	if (ftruncate(fd, 0) || pwrite(fd, image, size, 0) != (ssize_t)size)
		abort();
	free(image);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	use(path);
	return 0;
}
