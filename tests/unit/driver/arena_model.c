// SPDX-License-Identifier: GPL-2.0-only
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/align.h>

#include "arena_model.h"

#define PAGE	M6NPU_ALIGN_PAGE
#define LARGE	M6NPU_ALIGN_LARGE

unsigned long shim_list_steps;

void model_fail(const char *format, ...)
{
	va_list args;

	printf("Bail out! ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	abort();
}

#define check(condition, ...) do {					\
	if (!(condition))						\
		model_fail(__VA_ARGS__);				\
} while (0)

static void *must(void *memory)
{
	check(memory, "out of memory");
	return memory;
}

void model_init(struct model *m, u64 unit)
{
	memset(m, 0, sizeof(*m));
	m->unit = unit;
	m6npu_arena_init(&m->arena);
}

void model_fini(struct model *m)
{
	while (m->count)
		model_remove(m, m->pieces[m->count - 1]);
	for (unsigned int i = 0; i < M6NPU_ARENA_SEGMENTS; i++)
		if (m->size[i])
			model_drop(m, i);
	free(m->pieces);
}

void model_add(struct model *m, unsigned int segment, u64 start, u64 size)
{
	m->start[segment] = start;
	m->size[segment] = size;
	m->memory[segment] = must(calloc(size / m->unit, sizeof(u32)));
	m6npu_arena_add(&m->arena, segment, start, size);
}

void model_drop(struct model *m, unsigned int segment)
{
	m6npu_arena_drop(&m->arena, segment);
	m->size[segment] = 0;
	free(m->memory[segment]);
	m->memory[segment] = NULL;
}

static u32 *memory_at(const struct model *m, unsigned int segment, u64 at)
{
	return m->memory[segment] + (at - m->start[segment]) / m->unit;
}

/* ---- The account ---- */

/* Index of the first piece that begins at or above an address. */
static unsigned int model_find(const struct model *m, unsigned int segment,
			       u64 at)
{
	unsigned int low = 0, high = m->count;

	while (low < high) {
		unsigned int middle = (low + high) / 2;
		const struct piece *piece = m->pieces[middle];

		if (piece->segment < segment ||
		    (piece->segment == segment && piece->start < at))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void account_add(struct model *m, struct piece *piece)
{
	unsigned int at = model_find(m, piece->segment, piece->start);

	if (m->count == m->room) {
		m->room = 2 * m->room + 16;
		m->pieces = must(realloc(m->pieces,
					 m->room * sizeof(*m->pieces)));
	}
	memmove(m->pieces + at + 1, m->pieces + at,
		(m->count - at) * sizeof(*m->pieces));
	m->pieces[at] = piece;
	m->count++;
}

static void account_remove(struct model *m, struct piece *piece)
{
	unsigned int at = model_find(m, piece->segment, piece->start);

	m->count--;
	memmove(m->pieces + at, m->pieces + at + 1,
		(m->count - at) * sizeof(*m->pieces));
}

static u64 piece_end(const struct piece *piece)
{
	return piece->start + piece->size;
}

struct hole {
	u64 start, end;
};

/*
 * Holes of a segment one by one: *@next is the index of the next piece, first
 * that of the segment's first. Returns false after the last.
 */
static bool next_hole(const struct model *m, unsigned int segment,
		      unsigned int *next, struct hole *hole)
{
	u64 end = m->start[segment] + m->size[segment];
	unsigned int i = *next;

	for (;;) {
		bool last = i >= m->count || m->pieces[i]->segment != segment;
		bool first = !i || m->pieces[i - 1]->segment != segment;

		if (*next == UINT_MAX)
			return false;
		hole->start = first ? m->start[segment] :
			      piece_end(m->pieces[i - 1]);
		hole->end = last ? end : m->pieces[i]->start;
		*next = last ? UINT_MAX : ++i;
		if (hole->end > hole->start)
			return true;
	}
}

static unsigned int first_of(const struct model *m, unsigned int segment)
{
	return m->size[segment] ? model_find(m, segment, 0) : UINT_MAX;
}

u64 model_free(const struct model *m, unsigned int segment)
{
	unsigned int at = first_of(m, segment);
	struct hole hole;
	u64 sum = 0;

	while (at != UINT_MAX && next_hole(m, segment, &at, &hole))
		sum += hole.end - hole.start;
	return sum;
}

u64 model_largest(const struct model *m, unsigned int segment)
{
	unsigned int at = first_of(m, segment);
	struct hole hole;
	u64 largest = 0;

	while (at != UINT_MAX && next_hole(m, segment, &at, &hole))
		if (hole.end - hole.start > largest)
			largest = hole.end - hole.start;
	return largest;
}

/* Size of the smallest hole that holds an aligned block, 0 if there is none. */
static u64 best_hole(const struct model *m, unsigned int segment, u64 size,
		     u64 align)
{
	unsigned int at = first_of(m, segment);
	struct hole hole;
	u64 best = 0;

	while (at != UINT_MAX && next_hole(m, segment, &at, &hole)) {
		u64 start = ALIGN(hole.start, align);
		u64 bytes = hole.end - hole.start;

		if (start < hole.end && hole.end - start >= size &&
		    (!best || bytes < best))
			best = bytes;
	}
	return best;
}

/* ---- Blocks ---- */

static void fill_memory(struct model *m, struct piece *piece)
{
	u32 *memory = memory_at(m, piece->segment, piece->start);

	piece->tag = ++m->last_tag;
	for (u64 i = 0; i < piece->size / m->unit; i++)
		memory[i] = piece->tag;
}

static void check_memory(const struct model *m, const struct piece *piece)
{
	const u32 *memory = memory_at(m, piece->segment, piece->start);

	for (u64 i = 0; i < piece->size / m->unit; i++)
		check(memory[i] == piece->tag,
		      "block %u at %u:%#llx has lost what was in it at %#llx",
		      piece->tag, piece->segment,
		      (unsigned long long)piece->start,
		      (unsigned long long)(i * m->unit));
}

/* What the header promises for a range that is free and is to be taken. */
static void check_free(const struct model *m, unsigned int segment, u64 start,
		       u64 size, const struct piece *except)
{
	unsigned int at;

	check(segment < M6NPU_ARENA_SEGMENTS && m->size[segment],
	      "segment %u is not there", segment);
	check(start >= m->start[segment] &&
	      start + size <= m->start[segment] + m->size[segment],
	      "%#llx is outside segment %u", (unsigned long long)start,
	      segment);
	at = model_find(m, segment, start);
	if (at && m->pieces[at - 1]->segment == segment)
		at--;
	for (; at < m->count && m->pieces[at]->segment == segment &&
	     m->pieces[at]->start < start + size; at++)
		check(m->pieces[at] == except ||
		      piece_end(m->pieces[at]) <= start,
		      "a block is put on block %u", m->pieces[at]->tag);
}

struct expected {
	int result;
	unsigned int segment;
	u64 align, hole;
};

static bool expect_fit(const struct model *m, u64 size, u64 align,
		       struct expected *expected)
{
	for (unsigned int i = 0; i < M6NPU_ARENA_SEGMENTS; i++) {
		u64 hole = best_hole(m, i, size, align);

		if (!hole)
			continue;
		*expected = (struct expected){ 0, i, align, hole };
		return true;
	}
	return false;
}

static void expect(const struct model *m, u64 size, u64 align,
		   struct expected *expected)
{
	u64 left = 0;

	for (unsigned int i = 0; i < M6NPU_ARENA_SEGMENTS; i++)
		left += model_free(m, i);
	if (size > left) {
		expected->result = -ENOSPC;
		return;
	}
	if (!align && (size >= 16 * LARGE || size % LARGE == 0) &&
	    expect_fit(m, size, LARGE, expected))
		return;
	if (!expect_fit(m, size, align ? align : PAGE, expected))
		expected->result = -ENOBUFS;
}

int model_insert(struct model *m, u64 size, u64 align, struct piece **out)
{
	struct piece *piece = must(calloc(1, sizeof(*piece)));
	struct expected expected = {};
	int result;

	expect(m, size, align, &expected);
	result = m6npu_arena_insert(&m->arena, &piece->block, size, align);
	check(result == expected.result,
	      "a block of %#llx, class %#llx: %d, expected %d",
	      (unsigned long long)size, (unsigned long long)align, result,
	      expected.result);
	*out = NULL;
	if (result) {
		free(piece);
		return result;
	}
	piece->segment = piece->block.segment;
	piece->start = piece->block.node.start;
	piece->size = size;
	piece->align = piece->block.align;
	check(piece->segment == expected.segment, "in segment %u, expected %u",
	      piece->segment, expected.segment);
	check(piece->align == expected.align, "class %#llx, expected %#llx",
	      (unsigned long long)piece->align,
	      (unsigned long long)expected.align);
	check(piece->start % piece->align == 0, "%#llx is not aligned",
	      (unsigned long long)piece->start);
	check_free(m, piece->segment, piece->start, size, NULL);
	account_add(m, piece);
	fill_memory(m, piece);
	*out = piece;
	return 0;
}

struct piece *model_place(struct model *m, unsigned int segment, u64 start,
			  u64 size, u64 align)
{
	struct piece *piece = must(calloc(1, sizeof(*piece)));

	piece->segment = segment;
	piece->start = start;
	piece->size = size;
	piece->align = align;
	piece->block.segment = segment;
	piece->block.align = align;
	piece->block.node.start = start;
	piece->block.node.size = size;
	check_free(m, segment, start, size, NULL);
	check(!drm_mm_reserve_node(&m->arena.mm[segment], &piece->block.node),
	      "%#llx is taken", (unsigned long long)start);
	m->arena.used += size;
	m->arena.blocks++;
	account_add(m, piece);
	fill_memory(m, piece);
	return piece;
}

void model_remove(struct model *m, struct piece *piece)
{
	check_memory(m, piece);
	m6npu_arena_remove(&m->arena, &piece->block);
	account_remove(m, piece);
	free(piece);
}

void model_pin(struct model *m, struct piece *piece)
{
	m6npu_arena_pin(&m->arena, &piece->block);
	piece->pins++;
}

void model_unpin(struct model *m, struct piece *piece)
{
	m6npu_arena_unpin(&m->arena, &piece->block);
	piece->pins--;
}

/* ---- Moves ---- */

static bool can_move(const struct m6npu_block *block, void *data)
{
	struct model *m = data;

	m->asked++;
	return !container_of(block, struct piece, block)->stuck;
}

void model_plan(struct model *m, struct m6npu_plan *plan)
{
	m6npu_plan_init(plan, &m->arena, can_move, m);
}

/* Copies upwards, as the driver does. */
static void copy_memory(struct model *m, const struct piece *piece,
			const struct m6npu_move *move)
{
	u32 *from = memory_at(m, piece->segment, piece->start);
	u32 *to = memory_at(m, move->segment, move->start);

	for (u64 i = 0; i < piece->size / m->unit; i++)
		to[i] = from[i];
}

void model_move(struct model *m, const struct m6npu_move *move)
{
	struct piece *piece = container_of(move->block, struct piece, block);
	bool same = move->segment == piece->segment;

	check(!piece->pins && !piece->stuck, "block %u must not be moved",
	      piece->tag);
	check(move->start % piece->align == 0,
	      "block %u would go to %#llx, not aligned to %#llx", piece->tag,
	      (unsigned long long)move->start,
	      (unsigned long long)piece->align);
	check(!same || move->start != piece->start, "block %u is there already",
	      piece->tag);
	check_free(m, move->segment, move->start, piece->size, piece);
	copy_memory(m, piece, move);
	m6npu_arena_move(&m->arena, move);
	account_remove(m, piece);
	piece->segment = move->segment;
	piece->start = move->start;
	account_add(m, piece);
	check_memory(m, piece);
	m->moves++;
	m->moved += piece->size;
}

void model_compact(struct model *m)
{
	u64 largest = m6npu_arena_largest(&m->arena), now;
	struct m6npu_plan plan, copy;
	struct m6npu_move move, again;

	m->moves = 0;
	m->moved = 0;
	m->asked = 0;
	model_plan(m, &plan);
	for (copy = plan; m6npu_plan_next(&plan, &move); copy = plan) {
		check(m6npu_plan_next(&copy, &again) &&
		      again.block == move.block,
		      "asked twice, a plan answers with another block");
		model_move(m, &move);
		now = m6npu_arena_largest(&m->arena);
		check(now >= largest,
		      "the largest hole fell from %#llx to %#llx",
		      (unsigned long long)largest, (unsigned long long)now);
		largest = now;
		check(m->moves <= 20ull * m->count + 20, "there is no end");
	}
	check(!m6npu_plan_next(&plan, &move), "more moves after the last");
}

/* ---- Verification ---- */

static void verify_piece(const struct model *m, const struct piece *piece)
{
	const struct m6npu_block *block = &piece->block;

	check(block->segment == piece->segment &&
	      block->node.start == piece->start &&
	      block->node.size == piece->size &&
	      block->align == piece->align && block->pins == piece->pins,
	      "block %u is not as it was left", piece->tag);
	check_memory(m, piece);
}

void model_verify(const struct model *m)
{
	const struct m6npu_arena *arena = &m->arena;
	u64 total = 0, used = 0, pinned = 0, largest = 0;

	for (unsigned int i = 0; i < m->count; i++) {
		const struct piece *piece = m->pieces[i];

		verify_piece(m, piece);
		used += piece->size;
		pinned += piece->pins ? piece->size : 0;
	}
	for (unsigned int i = 0; i < M6NPU_ARENA_SEGMENTS; i++) {
		u64 here = model_largest(m, i);

		total += m->size[i];
		largest = here > largest ? here : largest;
		check(m6npu_arena_segment_largest(arena, i) == here,
		      "largest hole of segment %u is %#llx, expected %#llx", i,
		      (unsigned long long)m6npu_arena_segment_largest(arena, i),
		      (unsigned long long)here);
		check(m6npu_arena_is_empty(arena, i) ==
		      (model_free(m, i) == m->size[i]),
		      "segment %u is not as empty as it says", i);
	}
	check(arena->total == total && arena->used == used &&
	      arena->pinned == pinned && arena->blocks == m->count &&
	      m6npu_arena_largest(arena) == largest,
	      "the arena counted wrong");
}
