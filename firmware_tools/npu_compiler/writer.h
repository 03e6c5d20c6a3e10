/* SPDX-License-Identifier: MIT */
/* Writes a .npu file, whole or not at all. */
#ifndef NPU_COMPILER_WRITER_H
#define NPU_COMPILER_WRITER_H

#include <npu/npu_format.h>

#include "util.h"

struct writer;

/* Whether @path can be replaced by a file. */
int writer_check(const char *path);
/*
 * Starts a temporary file beside @path, with room for @max_sections. NULL:
 * failed. Whatever ends the program before writer_finish() removes it.
 */
struct writer *writer_open(const char *path, uint32_t max_sections);
/*
 * Adds a section; @entry gives type, layer, expert, tile and dest. Stored as
 * @encoding if that saves at least a page.
 */
int writer_add(struct writer *writer, const struct npu_section *entry,
	       const void *data, uint64_t bytes, enum npu_encoding encoding);
/* Header and table, then the file takes its name. Frees @writer. */
int writer_finish(struct writer *writer, const char *target,
		  const struct npu_runtime *runtime);
/* Gives up: removes the temporary file. Takes NULL. */
void writer_abort(struct writer *writer);

#endif
