/* SPDX-License-Identifier: MIT */
/* A part of a file's weights region, in memory. */
#ifndef NPU_COMPILER_STATIC_PART_H
#define NPU_COMPILER_STATIC_PART_H

#include "npu_file.h"
#include "util.h"

struct static_part {
	uint64_t begin, end;	/* offsets in the region */
	uint8_t *data;
};

/* Replaces what is in @part, unless it has these bytes already. */
int static_part_load(struct static_part *part, struct npu_file *file,
		     uint64_t begin, uint64_t end);
void static_part_free(struct static_part *part);
/* NULL: it has not got all of them. */
const void *static_part_at(const struct static_part *part, uint64_t offset,
			   uint64_t bytes);

#endif
