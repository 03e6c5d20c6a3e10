// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where blocks lie in a pool and how it is made compact (driver/m6npu_arena.c,
 * m6npu_plan.c), on the kernel's own allocator: cases of which the result is
 * known, then random ones against an account (arena_model.h).
 *
 * SEED=NUMBER in the environment adds random runs from there on, ROUNDS of
 * them.
 */
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "arena_model.h"

#define KIB		(1ull << 10)
#define MIB		(1ull << 20)
#define GIB		(1ull << 30)
#define PAGE		M6NPU_ALIGN_PAGE
#define LARGE		M6NPU_ALIGN_LARGE
#define WINDOW		M6NPU_ALIGN_WINDOW
#define BASE		(4 * GIB)

#define ARRAY_LENGTH(array)	(sizeof(array) / sizeof(*(array)))

static u64 random_state = 1;

static u64 random_below(u64 limit)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % limit;
}

static u64 all_free(const struct model *m)
{
	return m->arena.total - m->arena.used;
}

/* ---- Blocks ---- */

static void test_classes(void)
{
	static const struct {
		const char *name;
		u64 size, align, expected;
	} cases[] = {
		{ "a page", PAGE, 0, PAGE },
		{ "almost a large page", LARGE - PAGE, 0, PAGE },
		{ "a large page", LARGE, 0, LARGE },
		{ "odd, and not much larger", LARGE + PAGE, 0, PAGE },
		{ "three large pages", 3 * LARGE, 0, LARGE },
		{ "odd, but large", 16 * LARGE + PAGE, 0, LARGE },
		{ "a large page by pages", LARGE, PAGE, PAGE },
		{ "a page by large pages", PAGE, LARGE, LARGE },
		{ "a page for a window", PAGE, WINDOW, WINDOW },
	};
	struct piece *piece;
	struct model m;

	model_init(&m, PAGE);
	model_add(&m, 0, BASE + PAGE, 1 * GIB);
	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		int err = model_insert(&m, cases[i].size, cases[i].align,
				       &piece);

		ok(!err && piece->align == cases[i].expected,
		   "class of %s", cases[i].name);
		if (!err)
			model_remove(&m, piece);
	}
	model_fini(&m);
}

static void test_full(void)
{
	struct piece *piece;
	struct model m;

	model_init(&m, PAGE);
	model_add(&m, 3, BASE + PAGE, LARGE + PAGE);
	ok(!model_insert(&m, LARGE, 0, &piece) && piece->align == PAGE,
	   "small pages, if the block fits by those only");
	ok(model_insert(&m, PAGE, LARGE, &piece) == -ENOBUFS,
	   "-ENOBUFS if enough is free, but not aligned");
	ok(model_insert(&m, 2 * PAGE, LARGE, &piece) == -ENOSPC,
	   "-ENOSPC if less is free");
	model_add(&m, 1, 2 * BASE, 2 * PAGE);
	ok(model_insert(&m, 3 * PAGE, 0, &piece) == -ENOBUFS,
	   "-ENOBUFS if enough is free, but not in one segment");
	ok(!model_insert(&m, PAGE, 0, &piece) && piece->segment == 1,
	   "lower segments first");
	ok(!m6npu_arena_is_empty(&m.arena, 1) &&
	   m6npu_arena_is_empty(&m.arena, 2), "which segments are empty");
	model_verify(&m);
	model_fini(&m);
}

/* ---- Moves ---- */

static void test_many_small(void)
{
	struct model m;

	model_init(&m, 64 * KIB);
	model_add(&m, 0, BASE, 24 * GIB);
	for (u64 i = 1; i <= 1536; i++)
		model_place(&m, 0, BASE + i * 16 * MIB - 64 * KIB, 64 * KIB,
			    PAGE);
	model_compact(&m);
	model_verify(&m);
	ok(m6npu_arena_largest(&m.arena) == all_free(&m) &&
	   m.moved <= 96 * MIB,
	   "24 GiB, cut into pieces: %llu bytes moved",
	   (unsigned long long)m.moved);
	model_compact(&m);
	ok(!m.moves, "nothing is left to be moved then");
	model_fini(&m);
}

/* A hole at the bottom, much that is taken, and the rest free. */
static void test_fills(void)
{
	struct model m;
	u64 at = BASE + 256 * MIB;

	model_init(&m, MIB);
	model_add(&m, 0, BASE, 16 * GIB);
	for (unsigned int i = 0; i < 40; i++, at += 256 * MIB)
		model_place(&m, 0, at, 256 * MIB, PAGE);
	model_compact(&m);
	ok(m6npu_arena_largest(&m.arena) == all_free(&m) &&
	   m.moved == 256 * MIB, "one block fills the hole, 39 stay");
	model_remove(&m, m.pieces[10]);
	model_remove(&m, m.pieces[30]);
	model_compact(&m);
	ok(m6npu_arena_largest(&m.arena) == all_free(&m) &&
	   m.moved == 512 * MIB, "two blocks fill two holes");
	model_fini(&m);
}

static void test_slides(void)
{
	struct model m;

	model_init(&m, MIB);
	model_add(&m, 0, BASE, 2 * GIB);
	model_place(&m, 0, BASE + 10 * MIB, 500 * MIB, PAGE);
	model_place(&m, 0, BASE + 510 * MIB, 300 * MIB, PAGE);
	model_compact(&m);
	ok(m6npu_arena_largest(&m.arena) == all_free(&m) &&
	   m.moved == 800 * MIB && m.moves == 2,
	   "blocks larger than the hole are slid over themselves");
	model_verify(&m);
	model_fini(&m);

	model_init(&m, MIB);
	model_add(&m, 0, BASE, 1 * GIB);
	model_place(&m, 0, BASE + 100 * MIB, 924 * MIB, PAGE);
	model_compact(&m);
	ok(!m.moves, "what nothing is free above stays");
	model_fini(&m);

	/* 40 and 4 MiB free around it would become 8 and 36. */
	model_init(&m, MIB);
	model_add(&m, 0, BASE, 1 * GIB);
	model_pin(&m, model_place(&m, 0, BASE, 24 * MIB, PAGE));
	model_place(&m, 0, BASE + 64 * MIB, 33 * MIB, LARGE);
	model_pin(&m, model_place(&m, 0, BASE + 101 * MIB, 99 * MIB, PAGE));
	model_compact(&m);
	ok(!m.moves, "what alignment would make worse stays");
	model_fini(&m);

	/* 20 and 4 MiB free would become 18 and 6; the largest is beyond. */
	model_init(&m, MIB);
	model_add(&m, 0, BASE, 200 * MIB);
	model_pin(&m, model_place(&m, 0, BASE + 20 * MIB, 1 * MIB, PAGE));
	model_place(&m, 0, BASE + 25 * MIB, 2 * MIB, PAGE);
	model_pin(&m, model_place(&m, 0, BASE + 27 * MIB, 1 * MIB, PAGE));
	model_compact(&m);
	ok(!m.moves, "what would cut a larger hole for a smaller one stays");
	model_fini(&m);

	/* 40 MiB would become 8 and 32 on their way to 8 and 52. */
	model_init(&m, MIB);
	model_add(&m, 0, BASE, 200 * MIB);
	model_pin(&m, model_place(&m, 0, BASE, 24 * MIB, PAGE));
	model_place(&m, 0, BASE + 64 * MIB, 32 * MIB, PAGE);
	model_place(&m, 0, BASE + 96 * MIB, 33 * MIB, LARGE);
	model_place(&m, 0, BASE + 129 * MIB, 1 * MIB, PAGE);
	model_pin(&m, model_place(&m, 0, BASE + 150 * MIB, 50 * MIB, PAGE));
	m.pieces[3]->stuck = true;
	model_compact(&m);
	ok(!m.moves, "what cannot move all the way does not begin to");
	m.pieces[3]->stuck = false;
	model_compact(&m);
	model_verify(&m);
	ok(!m.moves,
	   "nor does what would cut the largest block on its way");
	model_fini(&m);
}

static void test_pinned(void)
{
	struct piece *pinned, *stuck;
	struct model m;

	model_init(&m, MIB);
	model_add(&m, 0, BASE, 1 * GIB);
	for (u64 i = 0; i < 32; i++)
		model_place(&m, 0, BASE + (32 * i + 8) * MIB, 8 * MIB, PAGE);
	pinned = m.pieces[10];
	stuck = m.pieces[20];
	model_pin(&m, pinned);
	model_pin(&m, pinned);
	model_unpin(&m, pinned);
	stuck->stuck = true;
	model_compact(&m);
	model_verify(&m);
	ok(pinned->start == BASE + 328 * MIB && stuck->start == BASE + 648 * MIB,
	   "pinned blocks, and those that cannot be moved, stay");
	ok(m6npu_arena_largest(&m.arena) >= 328 * MIB,
	   "all between two of them is free: %llu",
	   (unsigned long long)m6npu_arena_largest(&m.arena));
	model_unpin(&m, pinned);
	stuck->stuck = false;
	model_compact(&m);
	ok(m6npu_arena_largest(&m.arena) == all_free(&m),
	   "all is one block when nothing is pinned any more");
	model_fini(&m);
}

/* Blocks of a class, 1.0 to 2.0 times its size, between small ones. */
static void fill_mix(struct model *m, u64 align, unsigned int percent)
{
	unsigned int fails = 0;
	struct piece *piece;

	while (fails < 20) {
		u64 size = (1 + random_below(16)) * m->unit, class = PAGE;

		if (random_below(100) < percent) {
			class = align;
			size += align + random_below(align / m->unit - 16) *
				m->unit;
		}
		fails += !!model_insert(m, size, class, &piece);
	}
	for (unsigned int i = m->count; i--;)
		if (random_below(3) == 0)
			model_remove(m, m->pieces[i]);
}

/*
 * What can be free in one block, but that an aligned block cannot move by less
 * than its class: all but what is larger in the gaps than all small blocks.
 */
static u64 mix_reachable(const struct model *m)
{
	u64 gaps = 0, small = 0;

	for (unsigned int i = 0; i < m->count; i++) {
		const struct piece *piece = m->pieces[i];

		if (piece->align == PAGE)
			small += piece->size;
		else
			gaps += -piece->size & (piece->align - 1);
	}
	return all_free(m) - (gaps > small ? gaps - small : 0);
}

static void test_mixes(void)
{
	static const struct {
		const char *name;
		u64 size, align, unit;
		unsigned int percent;
	} mixes[] = {
		{ "few of 32 MiB", 4 * GIB, LARGE, 64 * KIB, 1 },
		{ "many of 32 MiB", 4 * GIB, LARGE, 64 * KIB, 2 },
		{ "few of 256 MiB", 32 * GIB, WINDOW, 512 * KIB, 1 },
		{ "mostly of 32 MiB", 4 * GIB, LARGE, 64 * KIB, 30 },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(mixes); i++) {
		u64 most = 0;

		for (unsigned int run = 1; run <= 4; run++) {
			struct model m;
			u64 reachable, now;

			random_state = 1000 * run + i;
			model_init(&m, mixes[i].unit);
			model_add(&m, 0, BASE, mixes[i].size);
			fill_mix(&m, mixes[i].align, mixes[i].percent);
			reachable = mix_reachable(&m);
			model_compact(&m);
			model_verify(&m);
			now = m6npu_arena_largest(&m.arena);
			if (now * 100 < reachable * 99 &&
			    reachable - now > most)
				most = reachable - now;
			model_fini(&m);
		}
		ok(most < 2 * mixes[i].align,
		   "aligned blocks, %s: 99%% of what can be, or but for %llu bytes",
		   mixes[i].name, (unsigned long long)most);
	}
}

static void test_segments(void)
{
	struct model m;
	u64 i;

	model_init(&m, MIB);
	for (i = 0; i < 4; i++)
		model_add(&m, 5 * i, (i + 1) * BASE, 1 * GIB);
	for (i = 0; i < 60; i++)
		model_place(&m, i % 4 * 5, (i % 4 + 1) * BASE + i / 4 * 60 * MIB,
			    16 * MIB, PAGE);
	model_compact(&m);
	model_verify(&m);
	ok(m6npu_arena_is_empty(&m.arena, 5) &&
	   m6npu_arena_is_empty(&m.arena, 10) &&
	   m6npu_arena_is_empty(&m.arena, 15),
	   "higher segments become empty");
	ok(m.moved <= 2 * 60 * 16 * MIB, "for that, %llu bytes of %llu move",
	   (unsigned long long)m.moved, 60 * 16 * MIB);
	model_fini(&m);

	model_init(&m, MIB);
	model_add(&m, 0, BASE, 1 * GIB);
	model_add(&m, 1, 2 * BASE, 64 * MIB);
	model_place(&m, 1, 2 * BASE, 16 * MIB, PAGE);
	model_compact(&m);
	ok(!m.moves, "but not by cutting the largest block");
	model_fini(&m);

	model_init(&m, MIB);
	model_add(&m, 0, BASE, 216 * MIB);
	model_add(&m, 1, 2 * BASE, 64 * MIB);
	model_pin(&m, model_place(&m, 0, BASE + 100 * MIB, 16 * MIB, PAGE));
	for (i = 0; i < 4; i++)
		model_place(&m, 1, 2 * BASE + 16 * i * MIB, 16 * MIB, PAGE);
	model_pin(&m, m.pieces[2]);
	model_compact(&m);
	ok(!m.moves, "nothing is moved if they cannot, and nothing gains");
	model_unpin(&m, m.pieces[2]);
	model_compact(&m);
	ok(m6npu_arena_is_empty(&m.arena, 1) && m.moves == 4,
	   "nor is anything but its emptiness needed to gain");
	model_fini(&m);
}

/* Others act between two moves, and a segment goes. */
static void test_interrupted(void)
{
	struct m6npu_plan plan;
	struct m6npu_move move;
	struct model m;
	bool more = true;

	model_init(&m, MIB);
	model_add(&m, 0, BASE, 1 * GIB);
	model_add(&m, 1, 2 * BASE, 1 * GIB);
	for (u64 i = 0; i < 60; i++)
		model_place(&m, i / 30, (i / 30 + 1) * BASE + i % 30 * 30 * MIB,
			    16 * MIB, PAGE);
	model_plan(&m, &plan);
	for (unsigned int i = 0; i < 20 && more; i++) {
		more = m6npu_plan_next(&plan, &move);
		if (more)
			model_move(&m, &move);
	}
	while (m.count && m.pieces[m.count - 1]->segment == 1)
		model_remove(&m, m.pieces[m.count - 1]);
	model_drop(&m, 1);
	while (m6npu_plan_next(&plan, &move))
		model_move(&m, &move);
	model_verify(&m);
	ok(m6npu_arena_largest(&m.arena) == all_free(&m),
	   "a plan goes on when a segment was dropped");

	model_fini(&m);
}

static void test_unmade(void)
{
	struct m6npu_plan plan;
	struct m6npu_move move;
	struct model m;
	bool more;

	model_init(&m, MIB);
	model_add(&m, 1, BASE, 64 * MIB);
	model_add(&m, 2, 2 * BASE, 1 * GIB);
	model_place(&m, 2, 2 * BASE, 16 * MIB, PAGE);
	model_place(&m, 2, 2 * BASE + 16 * MIB, 16 * MIB, PAGE);
	model_plan(&m, &plan);
	more = m6npu_plan_next(&plan, &move);
	ok(more && move.segment == 1, "blocks are to go to a lower segment");
	model_drop(&m, 1);
	ok(!m6npu_plan_next(&plan, &move), "but not if it was dropped");
	model_fini(&m);

	model_init(&m, MIB);
	model_add(&m, 0, BASE, 1 * GIB);
	for (u64 i = 0; i < 30; i++)
		model_place(&m, 0, BASE + (30 * i + 8) * MIB, 16 * MIB, PAGE);
	model_plan(&m, &plan);
	more = true;
	for (unsigned int i = 0; i < 10000 && more; i++)
		more = m6npu_plan_next(&plan, &move);
	ok(!more, "a plan ends if nobody makes its moves");
	model_fini(&m);
}

/* ---- Work ---- */

/* Of many blocks in a row, every so many is removed before the plan. */
struct pattern {
	const char *name;
	unsigned int period;
	unsigned int sizes;	/* how many there are, in multiples of 16 KiB */
};

/* One, and its place fits nothing else. */
#define FIRST_ONLY	~0u

static u64 pattern_size(const struct pattern *pattern, unsigned int i)
{
	if (pattern->period == FIRST_ONLY)
		return i ? 32 * KIB : 16 * KIB;
	return (1 + i * 5 % pattern->sizes) * 16 * KIB;
}

/* Makes all moves; returns how many there were. */
static unsigned int work(struct m6npu_arena *arena)
{
	struct m6npu_plan plan;
	struct m6npu_move move;
	unsigned int moves = 0;

	m6npu_plan_init(&plan, arena, NULL, NULL);
	for (; m6npu_plan_next(&plan, &move); moves++)
		m6npu_arena_move(arena, &move);
	return moves;
}

/* Steps on lists that a plan takes for each of so many blocks. */
static unsigned long work_per_block(const struct pattern *pattern,
				    unsigned int count)
{
	struct m6npu_block *blocks = calloc(count, sizeof(*blocks));
	struct m6npu_arena *arena = calloc(1, sizeof(*arena));
	unsigned long steps;
	unsigned int moves;

	if (!blocks || !arena)
		exit(1);
	m6npu_arena_init(arena);
	m6npu_arena_add(arena, 0, BASE, count * 1 * MIB);
	for (unsigned int i = 0; i < count; i++)
		if (m6npu_arena_insert(arena, &blocks[i],
				       pattern_size(pattern, i), 0))
			model_fail("no room for block %u", i);
	for (unsigned int i = 0; i < count; i += pattern->period) {
		m6npu_arena_remove(arena, &blocks[i]);
		if (pattern->period == FIRST_ONLY)
			break;
	}
	shim_list_steps = 0;
	moves = work(arena);
	steps = shim_list_steps / count;
	ok(m6npu_arena_largest(arena) == arena->total - arena->used &&
	   moves <= arena->blocks, "%s of %u blocks: %u moves", pattern->name,
	   count, moves);
	free(arena);
	free(blocks);
	return steps;
}

static void test_work(void)
{
	static const struct pattern patterns[] = {
		{ "every other", 2, 7 },
		{ "every third, all of a size", 3, 1 },
		{ "every fiftieth", 50, 7 },
		{ "the first", FIRST_ONLY, 2 },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(patterns); i++) {
		unsigned long few = work_per_block(&patterns[i], 2000);
		unsigned long many = work_per_block(&patterns[i], 100000);

		ok(few < 50 && many <= few + few / 4 + 2,
		   "%lu steps a block for 2000, %lu for 100000", few, many);
	}
}

/* ---- Random ---- */

struct profile {
	const char *name;
	u64 unit, segment;
	unsigned int segments, steps;
	u64 aligns[4];
	u64 sizes;	/* in units */
};

static const struct profile profiles[] = {
	{ "pages, one segment", PAGE, 8 * MIB, 1, 20000,
	  { 0, PAGE, 0, PAGE }, 64 },
	{ "pages, three segments", PAGE, 2 * MIB, 3, 20000,
	  { 0, PAGE, 0, PAGE }, 40 },
	{ "32 MiB, one segment", MIB, 2 * GIB, 1, 20000,
	  { 0, PAGE, LARGE, PAGE }, 70 },
	{ "all classes, four segments", 4 * MIB, 2 * GIB, 4, 20000,
	  { 0, PAGE, LARGE, WINDOW }, 40 },
};

static void random_segment(struct model *m, const struct profile *profile)
{
	unsigned int i = random_below(M6NPU_ARENA_SEGMENTS);
	unsigned int present = 0;

	for (unsigned int k = 0; k < M6NPU_ARENA_SEGMENTS; k++)
		present += !!m->size[k];
	if (m->size[i] && present > 1 && m6npu_arena_is_empty(&m->arena, i))
		model_drop(m, i);
	else if (!m->size[i] && present < profile->segments)
		model_add(m, i, (i + 1) * BASE +
			  random_below(100) * profile->unit,
			  profile->segment -
			  random_below(profile->segment / profile->unit / 2) *
			  profile->unit);
}

static void random_insert(struct model *m, const struct profile *profile)
{
	u64 size = 1 + random_below(1 + random_below(profile->sizes));
	struct piece *piece;

	if (!model_insert(m, size * m->unit, profile->aligns[random_below(4)],
			  &piece) && !random_below(50))
		piece->stuck = true;
}

static struct piece *random_piece(struct model *m)
{
	return m->pieces[random_below(m->count)];
}

static void random_pin(struct model *m)
{
	struct piece *piece = random_piece(m);

	if (piece->pins && random_below(4))
		model_unpin(m, piece);
	else if (!random_below(4))
		model_pin(m, piece);
}

static void random_change(struct model *m, const struct profile *profile)
{
	switch (random_below(8)) {
	case 0 ... 3:
		random_insert(m, profile);
		break;
	case 4 ... 6:
		if (m->count)
			model_remove(m, random_piece(m));
		break;
	default:
		if (m->count)
			random_pin(m);
		if (!random_below(20))
			random_segment(m, profile);
	}
}

/* What a plan does if the arena changes under it, is nothing wrong. */
static void random_disturbed_plan(struct model *m,
				  const struct profile *profile)
{
	unsigned int asked = 0;
	struct m6npu_plan plan;
	struct m6npu_move move;

	model_plan(m, &plan);
	while (m6npu_plan_next(&plan, &move)) {
		if (asked++ > 200000)
			model_fail("a plan does not end");
		if (random_below(8))
			model_move(m, &move);
		if (!random_below(4))
			random_change(m, profile);
	}
}

static bool all_pages(const struct model *m)
{
	for (unsigned int i = 0; i < m->count; i++)
		if (m->pieces[i]->align != PAGE || m->pieces[i]->pins ||
		    m->pieces[i]->stuck)
			return false;
	return true;
}

static void random_compact(struct model *m)
{
	if (random_below(2))
		for (unsigned int i = 0; i < m->count; i++) {
			m->pieces[i]->stuck = false;
			while (m->pieces[i]->pins)
				model_unpin(m, m->pieces[i]);
		}
	model_compact(m);
	if (!all_pages(m))
		return;
	for (unsigned int i = 0; i < M6NPU_ARENA_SEGMENTS; i++)
		if (model_largest(m, i) != model_free(m, i))
			model_fail("segment %u is not compact", i);
	if (m->moved > 2 * m->arena.used)
		model_fail("%#llx bytes moved of %#llx",
			   (unsigned long long)m->moved,
			   (unsigned long long)m->arena.used);
	model_compact(m);
	if (m->moves)
		model_fail("a compact arena was compacted");
}

static void random_run(const struct profile *profile, u64 seed)
{
	struct model m;

	random_state = seed * 0x9e3779b97f4a7c15ull + 1;
	model_init(&m, profile->unit);
	model_add(&m, 0, BASE, profile->segment);
	for (unsigned int i = 0; i < profile->steps; i++) {
		random_change(&m, profile);
		if (!random_below(300))
			random_compact(&m);
		if (!random_below(600))
			random_disturbed_plan(&m, profile);
		if (!(i % 64))
			model_verify(&m);
	}
	model_fini(&m);
}

static void test_random(u64 seed, unsigned int rounds)
{
	for (size_t i = 0; i < ARRAY_LENGTH(profiles); i++) {
		for (u64 k = seed; k < seed + rounds; k++) {
			printf("# seed %llu\n", (unsigned long long)k);
			random_run(&profiles[i], k);
		}
		ok(true, "random, %s, seeds from %llu", profiles[i].name,
		   (unsigned long long)seed);
	}
}

int main(void)
{
	const char *seed = getenv("SEED"), *rounds = getenv("ROUNDS");

	test_classes();
	test_full();
	test_many_small();
	test_fills();
	test_slides();
	test_pinned();
	test_mixes();
	test_segments();
	test_interrupted();
	test_unmade();
	test_work();
	test_random(1, 5);
	if (seed)
		test_random(strtoull(seed, NULL, 0),
			    rounds ? atoi(rounds) : 20);
	return done();
}
