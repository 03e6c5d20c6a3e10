/* SPDX-License-Identifier: MIT */
/*
 * Places the activations of a command list in the scratch region. Lists are
 * static, so a buffer's lifetime is known when they are written: what is freed
 * is taken again by what comes later.
 */
#ifndef NPU_COMPILER_ARENA_H
#define NPU_COMPILER_ARENA_H

#include "util.h"

#define ARENA_MAX_BLOCKS	32
#define ARENA_ALIGN		64

struct arena {
	struct arena_block {
		uint64_t offset, bytes;
	} blocks[ARENA_MAX_BLOCKS];	/* in use, by offset */
	unsigned int count;
	uint64_t peak;
};

/* The lowest place that is free. */
uint64_t arena_take(struct arena *arena, uint64_t bytes);
void arena_give(struct arena *arena, uint64_t offset);

#endif
