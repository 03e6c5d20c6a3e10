/* SPDX-License-Identifier: MIT */
/* Shared by npu_file*.c only. */
#ifndef NPU_FILE_PRIV_H
#define NPU_FILE_PRIV_H

#include <assert.h>
#include <stdbool.h>
#include "npu_file.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the structures of a .npu file are used as they are: little-endian only"
#endif

static_assert(sizeof(struct npu_section) == 64, "section table entry");
static_assert(sizeof(struct npu_runtime) == 184, "runtime block");
static_assert(sizeof(struct npu_file_header) == 256, "header");

struct npu_file {
	int fd;
	char *path;
	/* Copies, checked; sections has header.section_count entries. */
	struct npu_file_header header;
	struct npu_section *sections;
	/* Section of each (layer, expert), and of their low copies or NULL. */
	uint32_t *experts, *low_experts;
	/* A piece of the file, reused. */
	void *buffer;
	size_t buffer_bytes;
};

/* Reads exactly @size bytes; a file that ended gives -EBADMSG. */
int npu_file_pread(const struct npu_file *file, void *dst, size_t size,
		   uint64_t offset);
/* -EBADMSG with "<path>: <what>" as message. */
int npu_file_refuse(const struct npu_file *file, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The same, with the section's name. */
int npu_file_refuse_section(const struct npu_file *file, uint32_t i,
			    const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* @page is page 0; fills file->header. */
int npu_file_check_header(struct npu_file *file, const uint8_t *page,
			  uint64_t file_bytes);
/* file->sections as read; fills file->experts and file->low_experts. */
int npu_file_check_table(struct npu_file *file);
/* Does [offset, offset + size) lie in [0, total)? */
bool npu_file_within(uint64_t offset, uint64_t size, uint64_t total);
/* Indices of all sections by offset, for free(3). */
uint32_t *npu_file_by_offset(const struct npu_file *file);

#endif
