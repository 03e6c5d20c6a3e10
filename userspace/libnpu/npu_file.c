// SPDX-License-Identifier: MIT
/*
 * A .npu file as an object: opening, its parts, their names. What makes it
 * valid is in npu_file_header.c and npu_file_check.c, the contents of sections
 * in npu_file_read.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "npu_file_priv.h"

int npu_file_refuse(const struct npu_file *file, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return npu_fail(-EBADMSG, "%s: %s", file->path, text);
}

int npu_file_refuse_section(const struct npu_file *file, uint32_t i,
			    const char *format, ...)
{
	char name[NPU_FILE_NAME_BYTES], text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return npu_fail(-EBADMSG, "%s: section %" PRIu32 " (%s): %s",
			file->path, i, npu_file_section_name(file, i, name),
			text);
}

int npu_file_pread(const struct npu_file *file, void *dst, size_t size,
		   uint64_t offset)
{
	size_t done = 0;
	ssize_t n;

	while (done < size) {
		n = pread(file->fd, (char *)dst + done, size - done,
			  (off_t)(offset + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return npu_fail(-errno, "%s: read error: %s; check the disk",
					file->path, strerror(errno));
		if (n == 0)
			return npu_file_refuse(file,
					       "truncated; copy the file again");
		done += (size_t)n;
	}
	return 0;
}

/* O_NONBLOCK: a FIFO of that name must not hang us before fstat() says so. */
static int open_regular(struct npu_file *file, uint64_t *size)
{
	struct stat st;

	file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (file->fd < 0)
		return npu_fail(-errno, "%s: cannot open: %s", file->path,
				strerror(errno));
	if (fstat(file->fd, &st) < 0)
		return npu_fail(-errno, "%s: %s", file->path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return npu_file_refuse(file, "not a regular file");
	*size = (uint64_t)st.st_size;
	return 0;
}

static int read_header(struct npu_file *file, uint64_t size)
{
	uint8_t *page;
	int ret;

	if (size < NPU_FILE_ALIGN)
		return npu_file_refuse(file,
				       "not a .npu file: only %" PRIu64 " bytes",
				       size);
	page = malloc(NPU_FILE_ALIGN);
	if (!page)
		return npu_fail_memory();
	ret = npu_file_pread(file, page, NPU_FILE_ALIGN, 0);
	if (!ret)
		ret = npu_file_check_header(file, page, size);
	free(page);
	return ret;
}

static int read_table(struct npu_file *file)
{
	uint32_t count = file->header.section_count;
	int ret;

	file->sections = calloc(count, sizeof(*file->sections));
	if (!file->sections)
		return npu_fail_memory();
	ret = npu_file_pread(file, file->sections,
			     count * sizeof(*file->sections),
			     file->header.table_offset);
	return ret ? ret : npu_file_check_table(file);
}

int npu_file_open(const char *path, struct npu_file **out)
{
	struct npu_file *file;
	uint64_t size = 0;
	int ret;

	file = calloc(1, sizeof(*file));
	if (!file)
		return npu_fail_memory();
	file->fd = -1;
	file->path = strdup(path);
	if (!file->path) {
		ret = npu_fail_memory();
		goto fail;
	}
	ret = open_regular(file, &size);
	if (!ret)
		ret = read_header(file, size);
	if (!ret)
		ret = read_table(file);
	if (ret)
		goto fail;
	*out = file;
	return 0;
fail:
	npu_file_close(file);
	return ret;
}

void npu_file_close(struct npu_file *file)
{
	if (!file)
		return;
	if (file->fd >= 0)
		close(file->fd);
	free(file->buffer);
	free(file->experts);
	free(file->low_experts);
	free(file->sections);
	free(file->path);
	free(file);
}

int npu_file_fd(const struct npu_file *file)
{
	return file->fd;
}

const char *npu_file_path(const struct npu_file *file)
{
	return file->path;
}

const struct npu_file_header *npu_file_header(const struct npu_file *file)
{
	return &file->header;
}

uint32_t npu_file_section_count(const struct npu_file *file)
{
	return file->header.section_count;
}

const struct npu_section *npu_file_section(const struct npu_file *file,
					   uint32_t i)
{
	return &file->sections[i];
}

int64_t npu_file_find(const struct npu_file *file, enum npu_section_type type,
		      uint32_t start)
{
	uint32_t i;

	for (i = start; i < file->header.section_count; i++)
		if (file->sections[i].type == type)
			return i;
	return -1;
}

uint32_t npu_file_expert(const struct npu_file *file, uint32_t layer,
			 uint32_t expert)
{
	return file->experts[layer * file->header.runtime.experts + expert];
}

uint32_t npu_file_expert_low(const struct npu_file *file, uint32_t layer,
			     uint32_t expert)
{
	return file->low_experts[layer * file->header.runtime.experts + expert];
}

const char *npu_file_section_name(const struct npu_file *file, uint32_t i,
				  char buf[NPU_FILE_NAME_BYTES])
{
	const struct npu_section *s = &file->sections[i];

	switch (s->type) {
	case NPU_SECTION_METADATA:
		return "metadata";
	case NPU_SECTION_TOKENIZER:
		return "tokenizer";
	case NPU_SECTION_CALIBRATION:
		return "calibration";
	case NPU_SECTION_COMMANDS:
		snprintf(buf, NPU_FILE_NAME_BYTES, "commands tile %" PRIu32,
			 s->tile);
		return buf;
	case NPU_SECTION_STATIC:
		snprintf(buf, NPU_FILE_NAME_BYTES, "static at %#" PRIx64,
			 s->dest);
		return buf;
	case NPU_SECTION_EXPERT:
		snprintf(buf, NPU_FILE_NAME_BYTES, "expert %u.%u", s->layer,
			 s->expert);
		return buf;
	case NPU_SECTION_EXPERT_LOW:
		snprintf(buf, NPU_FILE_NAME_BYTES, "low expert %u.%u",
			 s->layer, s->expert);
		return buf;
	default:
		snprintf(buf, NPU_FILE_NAME_BYTES, "type %u", s->type);
		return buf;
	}
}

const char *npu_file_encoding_name(unsigned int encoding)
{
	static const char *const names[] = {
		[NPU_ENCODING_RAW] = "raw",
		[NPU_ENCODING_LZ4] = "lz4",
		[NPU_ENCODING_ZSTD] = "zstd",
	};

	return encoding < sizeof(names) / sizeof(names[0]) ? names[encoding] :
							     "?";
}
