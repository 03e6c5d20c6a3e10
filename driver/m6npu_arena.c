// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Arenas
 *
 * Where the blocks of a pool lie. Each segment has an allocator of its own, in
 * bus addresses, so that "aligned" means what the device's page tables mean by
 * it. A block goes into the first segment that has room for it, so that higher
 * segments stay empty, and there into the smallest hole that holds it.
 *
 * Blocks are kept at the alignment they were given, also when they are moved:
 * what was mapped by large pages, or by a window, can be again.
 */

#include <linux/align.h>
#include <linux/bug.h>
#include <linux/errno.h>
#include <linux/minmax.h>
#include <linux/string.h>

#include "m6npu_arena.h"

void m6npu_arena_init(struct m6npu_arena *arena)
{
	memset(arena, 0, sizeof(*arena));
}

void m6npu_arena_add(struct m6npu_arena *arena, unsigned int index, u64 start,
		     u64 size)
{
	memset(&arena->mm[index], 0, sizeof(arena->mm[index]));
	drm_mm_init(&arena->mm[index], start, size);
	arena->start[index] = start;
	arena->size[index] = size;
	arena->total += size;
}

void m6npu_arena_drop(struct m6npu_arena *arena, unsigned int index)
{
	drm_mm_takedown(&arena->mm[index]);
	arena->total -= arena->size[index];
	arena->start[index] = 0;
	arena->size[index] = 0;
}

bool m6npu_arena_is_empty(const struct m6npu_arena *arena, unsigned int index)
{
	return !arena->size[index] || drm_mm_clean(&arena->mm[index]);
}

/*
 * The device's large pages want aligned memory. Where a block does not fill
 * them, alignment leaves holes; they must stay small against the block.
 */
static bool block_wants_large(u64 size)
{
	return size >= 16 * M6NPU_ALIGN_LARGE ||
	       IS_ALIGNED(size, M6NPU_ALIGN_LARGE);
}

static bool arena_try_insert(struct m6npu_arena *arena,
			     struct m6npu_block *block, u64 size, u64 align)
{
	unsigned int i;

	for (i = 0; i < M6NPU_ARENA_SEGMENTS; i++) {
		if (!arena->size[i] ||
		    drm_mm_insert_node_generic(&arena->mm[i], &block->node,
					       size, align, 0,
					       DRM_MM_INSERT_BEST))
			continue;
		block->segment = i;
		block->align = align;
		return true;
	}
	return false;
}

int m6npu_arena_insert(struct m6npu_arena *arena, struct m6npu_block *block,
		       u64 size, u64 align)
{
	bool done;

	if (size > arena->total - arena->used)
		return -ENOSPC;
	done = !align && block_wants_large(size) &&
	       arena_try_insert(arena, block, size, M6NPU_ALIGN_LARGE);
	if (!done)
		done = arena_try_insert(arena, block, size,
					align ?: M6NPU_ALIGN_PAGE);
	if (!done)
		return -ENOBUFS;
	arena->used += size;
	arena->blocks++;
	return 0;
}

void m6npu_arena_remove(struct m6npu_arena *arena, struct m6npu_block *block)
{
	arena->used -= block->node.size;
	if (block->pins)
		arena->pinned -= block->node.size;
	arena->blocks--;
	drm_mm_remove_node(&block->node);
}

void m6npu_arena_pin(struct m6npu_arena *arena, struct m6npu_block *block)
{
	if (!block->pins++)
		arena->pinned += block->node.size;
}

void m6npu_arena_unpin(struct m6npu_arena *arena, struct m6npu_block *block)
{
	if (!WARN_ON(!block->pins) && !--block->pins)
		arena->pinned -= block->node.size;
}

u64 m6npu_arena_segment_largest(const struct m6npu_arena *arena,
				unsigned int index)
{
	const struct drm_mm *mm = &arena->mm[index];
	struct rb_node *first;

	if (!arena->size[index])
		return 0;
	/* Largest first. Walking all holes would be slow where it matters. */
	first = rb_first_cached(&mm->holes_size);
	return first ? rb_entry(first, struct drm_mm_node,
				rb_hole_size)->hole_size : 0;
}

u64 m6npu_arena_largest(const struct m6npu_arena *arena)
{
	u64 largest = 0;
	unsigned int i;

	for (i = 0; i < M6NPU_ARENA_SEGMENTS; i++)
		largest = max(largest, m6npu_arena_segment_largest(arena, i));
	return largest;
}
