/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where blocks lie in a pool: ranges, alignment, and which moves make free
 * memory contiguous. No device, no locks and no memory behind the addresses
 * here, so that it also runs in a test program, on the kernel's own drm_mm.c.
 */
#ifndef M6NPU_ARENA_H
#define M6NPU_ARENA_H

#include <linux/list.h>
#include <linux/types.h>

#include <drm/drm_mm.h>

#define M6NPU_ARENA_SEGMENTS	16

/* Alignment classes: small and large pages of the device, its windows. */
#define M6NPU_ALIGN_PAGE	0x1000ull
#define M6NPU_ALIGN_LARGE	0x2000000ull
#define M6NPU_ALIGN_WINDOW	0x10000000ull

/**
 * struct m6npu_block - a buffer's part of a pool
 */
struct m6npu_block {
	/** @node: range of bus addresses; valid while inserted */
	struct drm_mm_node node;
	/** @segment: index of the segment it is in */
	unsigned int segment;
	/** @pins: reasons why it must not be moved */
	unsigned int pins;
	/** @align: what @node.start is a multiple of, wherever it is moved */
	u64 align;
	/** @dying: in &m6npu_pool.dying_list; the pool's, as the next */
	struct list_head dying;
	/** @retired: its number among all that ever were in that list */
	u64 retired;
};

/**
 * struct m6npu_arena - the segments of a pool, and what is taken of them
 *
 * The caller serializes everything.
 */
struct m6npu_arena {
	/** @mm: allocator of each segment that is there, in bus addresses */
	struct drm_mm mm[M6NPU_ARENA_SEGMENTS];
	/** @start: first address of each */
	u64 start[M6NPU_ARENA_SEGMENTS];
	/** @size: bytes of each, 0 if there is none of this index */
	u64 size[M6NPU_ARENA_SEGMENTS];
	/** @total: bytes in all segments */
	u64 total;
	/** @used: bytes in blocks */
	u64 used;
	/** @pinned: bytes in blocks with pins */
	u64 pinned;
	/** @blocks: number of blocks */
	u32 blocks;
};

void m6npu_arena_init(struct m6npu_arena *arena);
/* Adds a segment as @index, which was free. Addresses are page-aligned. */
void m6npu_arena_add(struct m6npu_arena *arena, unsigned int index, u64 start,
		     u64 size);
/* Takes away a segment that holds no block. */
void m6npu_arena_drop(struct m6npu_arena *arena, unsigned int index);
/* No block is in the segment. */
bool m6npu_arena_is_empty(const struct m6npu_arena *arena, unsigned int index);

/*
 * Inserts a zeroed block of @size bytes, page-aligned, by best fit. @align is a
 * class, or 0: large if the block is large enough for alignment to leave small
 * holes only and if it fits so, else a page.
 *
 * Return: 0; -ENOSPC fewer bytes are free; -ENOBUFS enough are free, but not in
 * one block that is aligned.
 */
int m6npu_arena_insert(struct m6npu_arena *arena, struct m6npu_block *block,
		       u64 size, u64 align);
void m6npu_arena_remove(struct m6npu_arena *arena, struct m6npu_block *block);

void m6npu_arena_pin(struct m6npu_arena *arena, struct m6npu_block *block);
void m6npu_arena_unpin(struct m6npu_arena *arena, struct m6npu_block *block);

/* Bytes of the largest free block of a segment, of all segments. */
u64 m6npu_arena_segment_largest(const struct m6npu_arena *arena,
				unsigned int index);
u64 m6npu_arena_largest(const struct m6npu_arena *arena);

/* ---- Moves, m6npu_plan.c ---- */

/**
 * struct m6npu_move - a block and where it should go
 */
struct m6npu_move {
	/** @block: to move */
	struct m6npu_block *block;
	/** @segment: where to */
	unsigned int segment;
	/** @start: address there; the ranges may overlap, then it is below */
	u64 start;
};

/**
 * struct m6npu_plan - how far compacting an arena got
 *
 * Moves are asked for one by one, and the arena may change in between: blocks
 * come, go, are pinned. A plan holds no pointers into it.
 */
struct m6npu_plan {
	/** @arena: what is compacted */
	struct m6npu_arena *arena;
	/** @can_move: beside its pins; e.g. false if its jobs do not end */
	bool (*can_move)(const struct m6npu_block *block, void *data);
	/** @data: for @can_move */
	void *data;
	/** @pass: how often the whole arena was gone through */
	unsigned int pass;
	/** @segment: which is being made compact */
	unsigned int segment;
	/** @step: what is being tried for it, see m6npu_plan.c */
	unsigned int step;
	/** @source: segment that blocks are taken from */
	unsigned int source;
	/** @emptying: all of @source can move, and may find room */
	bool emptying;
	/** @at: address up to which, or down to which, this step got */
	u64 at;
	/** @approved: blocks from @at up to here are worth moving */
	u64 approved;
	/** @room: bytes that have to leave the approved blocks */
	u64 room;
	/** @left: moves that this step may still make */
	u64 left;
	/** @moves: moves handed out in this pass */
	u64 moves;
};

void m6npu_plan_init(struct m6npu_plan *plan, struct m6npu_arena *arena,
		     bool (*can_move)(const struct m6npu_block *block,
				      void *data), void *data);
/*
 * The next move that is worth it, or false if there is none: the arena is as
 * compact as it gets. Ask again after m6npu_arena_move(), or after the answer of
 * @can_move changed. A copy of the plan answers with the same block, as long as
 * the arena stays as it is; so it can be asked beforehand.
 */
bool m6npu_plan_next(struct m6npu_plan *plan, struct m6npu_move *move);
/* Notes that the block is where the plan wanted it. */
void m6npu_arena_move(struct m6npu_arena *arena, const struct m6npu_move *move);

#endif
