/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An arena (driver/m6npu_arena.h) beside a plain account of what must be in
 * it: an array of ranges in order, and memory of which each unit says whose it
 * is. What the arena does is checked against the account; what is wrong ends
 * the test with a line that says it.
 */
#ifndef ARENA_MODEL_H
#define ARENA_MODEL_H

#include "m6npu_arena.h"

/* A buffer: the driver's block, and where the account has it. */
struct piece {
	struct m6npu_block block;
	unsigned int segment;
	u64 start, size, align;
	unsigned int pins;
	bool stuck;		/* can_move() says no */
	u32 tag;
};

struct model {
	struct m6npu_arena arena;
	u64 unit;		/* all sizes are multiples of it */
	u64 start[M6NPU_ARENA_SEGMENTS], size[M6NPU_ARENA_SEGMENTS];
	u32 *memory[M6NPU_ARENA_SEGMENTS];
	struct piece **pieces;	/* by segment and address */
	unsigned int count, room;
	u32 last_tag;
	/* Sums over moves. */
	u64 moves, moved;
	/* Questions the plan asked. */
	u64 asked;
};

void model_init(struct model *m, u64 unit);
void model_fini(struct model *m);
void model_add(struct model *m, unsigned int segment, u64 start, u64 size);
void model_drop(struct model *m, unsigned int segment);

/* Returns what the arena did, checked; the piece is freed if it failed. */
int model_insert(struct model *m, u64 size, u64 align, struct piece **piece);
/* Puts a block where the test wants it. */
struct piece *model_place(struct model *m, unsigned int segment, u64 start,
			  u64 size, u64 align);
void model_remove(struct model *m, struct piece *piece);
void model_pin(struct model *m, struct piece *piece);
void model_unpin(struct model *m, struct piece *piece);

void model_plan(struct model *m, struct m6npu_plan *plan);
void model_move(struct model *m, const struct m6npu_move *move);
/* Moves all that a plan wants. Nothing may become worse on the way. */
void model_compact(struct model *m);

/* All of the arena and the memory against the account. */
void model_verify(const struct model *m);
u64 model_free(const struct model *m, unsigned int segment);
u64 model_largest(const struct model *m, unsigned int segment);

__attribute__((noreturn, format(printf, 1, 2)))
void model_fail(const char *format, ...);

#endif
