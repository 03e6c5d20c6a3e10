/* SPDX-License-Identifier: MIT */
/* Command lists of golden models, compiled on the spot. */
#ifndef COMPILER_LISTS_H
#define COMPILER_LISTS_H

#include "list_check.h"
#include "npu_file.h"

struct list {
	struct m6npu_cmd *cmds;
	size_t count;
	uint32_t tile;
	struct npu_runtime runtime;
};

/* Compiles $GOLDEN/MODEL to @path, which is there already; false: failed. */
bool lists_compile_to(const char *model, const char *options, char *path);
/*
 * Compiles $GOLDEN/MODEL with the options in @options, parted by spaces, and
 * opens it; NULL, and says why, if it can't. For npu_file_close().
 */
struct npu_file *lists_compile(const char *model, const char *options);

/* Section @index of @file; for free(list->cmds). */
bool lists_load(struct npu_file *file, int64_t index, struct list *list);
/* The one of a tile. */
bool lists_of_tile(struct npu_file *file, uint32_t tile, struct list *list);

#endif
