// SPDX-License-Identifier: MIT
#include "arena.h"

#include <assert.h>
#include <string.h>

uint64_t arena_take(struct arena *arena, uint64_t bytes)
{
	struct arena_block *blocks = arena->blocks;
	uint64_t offset = 0;
	unsigned int i;

	assert(arena->count < ARENA_MAX_BLOCKS);
	bytes = align_up(bytes ? bytes : 1, ARENA_ALIGN);
	for (i = 0; i < arena->count; i++) {
		if (blocks[i].offset - offset >= bytes)
			break;
		offset = blocks[i].offset + blocks[i].bytes;
	}
	memmove(&blocks[i + 1], &blocks[i],
		(arena->count - i) * sizeof(*blocks));
	blocks[i].offset = offset;
	blocks[i].bytes = bytes;
	arena->count++;
	if (offset + bytes > arena->peak)
		arena->peak = offset + bytes;
	return offset;
}

void arena_give(struct arena *arena, uint64_t offset)
{
	struct arena_block *blocks = arena->blocks;
	unsigned int i;

	for (i = 0; i < arena->count && blocks[i].offset != offset; i++)
		;
	assert(i < arena->count);
	arena->count--;
	memmove(&blocks[i], &blocks[i + 1],
		(arena->count - i) * sizeof(*blocks));
}
