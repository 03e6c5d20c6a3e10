// SPDX-License-Identifier: MIT
#include "writer.h"

#include <errno.h>
#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include "temporary.h"

#define ZSTD_LEVEL	3

struct writer {
	const char *path;
	char *temporary;
	int fd;
	struct npu_section *table;
	uint32_t count, room;
	uint64_t end;		/* where the next section goes */
	uint64_t chunk_bytes;	/* largest loaded_bytes so far */
};

/* What is there gets replaced, which a device or a pipe must not be. */
int writer_check(const char *path)
{
	struct stat st;

	if (!*path || (!stat(path, &st) && !S_ISREG(st.st_mode)))
		return fail("--output %s is not a file", path);
	return 0;
}

struct writer *writer_open(const char *path, uint32_t max_sections)
{
	struct writer *writer;

	if (max_sections > NPU_FILE_MAX_SECTIONS) {
		fail("the model makes %u sections, and a file holds %u: use a larger --max-chunk-kb",
		     max_sections, NPU_FILE_MAX_SECTIONS);
		return NULL;
	}
	if (writer_check(path))
		return NULL;
	writer = xcalloc(1, sizeof(*writer));
	writer->path = path;
	writer->room = max_sections;
	writer->table = xcalloc(max_sections, sizeof(*writer->table));
	writer->end = align_up(NPU_FILE_ALIGN + (uint64_t)max_sections *
			       sizeof(struct npu_section), NPU_FILE_ALIGN);
	writer->fd = temporary_open(path, &writer->temporary);
	if (writer->fd < 0) {
		writer_abort(writer);
		return NULL;
	}
	return writer;
}

void writer_abort(struct writer *writer)
{
	if (!writer)
		return;
	temporary_remove(writer->temporary);
	if (writer->fd >= 0)
		close(writer->fd);
	free(writer->table);
	free(writer);
}

static int put(struct writer *writer, const void *data, uint64_t bytes,
	       uint64_t offset)
{
	const uint8_t *from = data;
	ssize_t done;

	while (bytes) {
		done = pwrite(writer->fd, from, bytes, offset);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return fail("cannot write %s: %s", writer->path,
				    strerror(done ? errno : ENOSPC));
		from += done;
		bytes -= done;
		offset += done;
	}
	return 0;
}

/* Bytes after compression into @out, 0 if it does not work out. */
static uint64_t compress_into(const void *data, uint64_t bytes, void *out,
			      uint64_t room, enum npu_encoding encoding)
{
	size_t done;
	int packed;

	if (encoding == NPU_ENCODING_LZ4) {
		if (bytes > LZ4_MAX_INPUT_SIZE)
			return 0;
		packed = LZ4_compress_default(data, out, bytes, room);
		return packed > 0 ? packed : 0;
	}
	done = ZSTD_compress(out, room, data, bytes, ZSTD_LEVEL);
	return ZSTD_isError(done) ? 0 : done;
}

static uint64_t pages(uint64_t bytes)
{
	return align_up(bytes, NPU_FILE_ALIGN) / NPU_FILE_ALIGN;
}

int writer_add(struct writer *writer, const struct npu_section *entry,
	       const void *data, uint64_t bytes, enum npu_encoding encoding)
{
	struct npu_section *section = &writer->table[writer->count];
	uint64_t packed = 0;
	void *out = NULL;
	int ret;

	if (writer->count == writer->room || !bytes)
		return fail("internal error: section %u of %u has %llu bytes",
			    writer->count, writer->room,
			    (unsigned long long)bytes);
	if (encoding != NPU_ENCODING_RAW) {
		/* No more room than what would still be a gain. */
		out = xcalloc(1, bytes);
		packed = compress_into(data, bytes, out, bytes, encoding);
	}
	*section = *entry;
	section->encoding = NPU_ENCODING_RAW;
	section->offset = writer->end;
	section->loaded_bytes = section->stored_bytes = bytes;
	section->loaded_xxh3 = section->stored_xxh3 = XXH3_64bits(data, bytes);
	if (packed && pages(packed) < pages(bytes)) {
		section->encoding = encoding;
		section->stored_bytes = packed;
		section->stored_xxh3 = XXH3_64bits(out, packed);
		data = out;
	}
	ret = put(writer, data, section->stored_bytes, section->offset);
	free(out);
	writer->end += align_up(section->stored_bytes, NPU_FILE_ALIGN);
	if (bytes > writer->chunk_bytes)
		writer->chunk_bytes = bytes;
	writer->count++;
	return ret;
}

static int put_header(struct writer *writer, const char *target,
		      const struct npu_runtime *runtime)
{
	union {
		struct npu_file_header header;
		uint8_t bytes[NPU_FILE_ALIGN];
	} page;
	struct npu_file_header *header = &page.header;

	memset(&page, 0, sizeof(page));
	memcpy(header->magic, NPU_FILE_MAGIC, sizeof(header->magic));
	header->version_major = NPU_FILE_MAJOR;
	header->version_minor = NPU_FILE_MINOR;
	header->header_bytes = NPU_FILE_ALIGN;
	header->file_bytes = writer->end;
	header->table_offset = NPU_FILE_ALIGN;
	header->section_count = writer->count;
	header->section_bytes = sizeof(*writer->table);
	header->table_xxh3 = XXH3_64bits(writer->table, writer->count *
					 sizeof(*writer->table));
	strncpy(header->target, target, sizeof(header->target) - 1);
	header->runtime = *runtime;
	header->runtime.chunk_bytes = writer->chunk_bytes;
	header->header_xxh3 = XXH3_64bits(&page, sizeof(page));
	return put(writer, &page, sizeof(page), 0);
}

int writer_finish(struct writer *writer, const char *target,
		  const struct npu_runtime *runtime)
{
	int ret;

	ret = put(writer, writer->table, writer->count *
		  sizeof(*writer->table), NPU_FILE_ALIGN);
	if (!ret)
		ret = put_header(writer, target, runtime);
	/* The last page may end early; the header says whole pages. */
	if (!ret && ftruncate(writer->fd, writer->end))
		ret = fail("cannot write %s: %s", writer->path,
			   strerror(errno));
	if (!ret && fsync(writer->fd))
		ret = fail("cannot write %s: %s", writer->path,
			   strerror(errno));
	if (!ret)
		ret = temporary_keep(writer->temporary, writer->path);
	if (!ret)
		writer->temporary = NULL;
	writer_abort(writer);
	return ret;
}
