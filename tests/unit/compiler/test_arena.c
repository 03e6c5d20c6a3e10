// SPDX-License-Identifier: MIT
/* Places in the scratch region: never two at once, and taken again. */
#include <stdlib.h>

#include "../tap.h"
#include "arena.h"

#define BUFFERS		24
#define ROUNDS		20000

struct buffer {
	uint64_t offset, bytes;
};

static bool overlaps(const struct buffer *buffers, unsigned int count,
		     const struct buffer *other)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (buffers[i].bytes &&
		    other->offset < buffers[i].offset + buffers[i].bytes &&
		    buffers[i].offset < other->offset + other->bytes)
			return true;
	return false;
}

static void test_random(void)
{
	struct buffer buffers[BUFFERS] = { 0 }, taken;
	struct arena arena = { 0 };
	bool apart = true, aligned = true, within = true;
	unsigned int i, slot;

	srand(1);
	for (i = 0; i < ROUNDS; i++) {
		slot = rand() % BUFFERS;
		if (buffers[slot].bytes) {
			arena_give(&arena, buffers[slot].offset);
			buffers[slot].bytes = 0;
			continue;
		}
		taken.bytes = 1 + rand() % 5000;
		taken.offset = arena_take(&arena, taken.bytes);
		apart &= !overlaps(buffers, BUFFERS, &taken);
		aligned &= taken.offset % ARENA_ALIGN == 0;
		within &= taken.offset + taken.bytes <= arena.peak;
		buffers[slot] = taken;
	}
	ok(apart, "no two buffers overlap");
	ok(aligned, "all are aligned");
	ok(within, "none lies above the peak");
	ok(arena.peak <= BUFFERS * 5056ull * 2, "space is used again");
}

static void test_reuse(void)
{
	struct arena arena = { 0 };
	uint64_t a = arena_take(&arena, 100), b = arena_take(&arena, 100);
	uint64_t c;

	ok(a == 0 && b == 128, "from the bottom up");
	arena_give(&arena, a);
	c = arena_take(&arena, 128);
	ok(c == 0, "a gap that fits is taken");
	arena_give(&arena, c);
	c = arena_take(&arena, 129);
	ok(c == 256 && arena.peak == 448, "one that does not is not");
	arena_give(&arena, b);
	arena_give(&arena, c);
	ok(arena.count == 0 && arena_take(&arena, 0) == 0, "empty again");
}

int main(void)
{
	test_random();
	test_reuse();
	return done();
}
