// SPDX-License-Identifier: MIT
/* Expert slots: whom they hold, and from when on. */
#include <string.h>

#include "../tap.h"
#include "sram.h"

#define ROOM	(4u << 20)
#define BYTES	1900000u	/* two fit, as they do on the board */
#define LAUNCH	1000u
#define COPY	8261u		/* BYTES at 230 GB/s */

static struct m6_profile profile;
static struct m6_clock clk;
static struct m6_sram sram;
static uint64_t ready;

/* Within a step of the ledger transfers do not see each other. */
static bool about(uint64_t ns, uint64_t wanted)
{
	return ns <= wanted && ns + M6_LEDGER_BUCKET_NS > wanted;
}

static void setup(void)
{
	m6_profile_default(&profile);
	profile.idle_permille = 0;
	m6_clock_init(&clk, &profile);
	m6_sram_init(&sram, ROOM);
	for (unsigned int ring = 0; ring < 2; ring++)
		m6_clock_start(&clk, ring, 0);
}

static void cleanup(void)
{
	m6_sram_destroy(&sram);
	m6_clock_destroy(&clk);
}

static bool fetch(struct m6_router_key key, uint32_t bytes)
{
	return m6_sram_fetch(&sram, &key, bytes, &clk, 0);
}

static bool holds(struct m6_router_key key)
{
	return m6_sram_find(&sram, &key, UINT64_MAX, &ready);
}

static const struct m6_router_key a = { 1, 0, 0 }, b = { 1, 0, 1 },
				  c = { 2, 0, 0 };

static void test_room(void)
{
	struct m6_router_key key = a;

	setup();
	ok(fetch(a, BYTES) && fetch(b, BYTES) && !fetch(a, BYTES),
	   "two experts in SRAM");
	ok(!fetch(c, ROOM + 1) && !fetch(c, 0), "what can't be");
	ok(!fetch(c, BYTES), "of one batch the first have priority");
	m6_sram_next_batch(&sram);
	ok(!fetch(c, BYTES), "who is waited for is not driven out");
	holds(b);
	ok(fetch(c, BYTES) && !holds(b) && holds(a),
	   "who was used makes room");
	holds(c);
	holds(a);
	ok(fetch(b, BYTES) && !holds(c) && holds(a),
	   "of two, the one used longer ago");
	m6_sram_next_batch(&sram);
	fetch(a, BYTES);
	ok(!fetch(c, BYTES), "who is guessed again is waited for again");
	m6_sram_next_batch(&sram);
	m6_sram_next_batch(&sram);
	ok(fetch(c, BYTES), "wrong guesses are not waited for for long");
	holds(c);
	m6_sram_next_batch(&sram);
	fetch(a, BYTES);
	ok(!fetch(b, ROOM - BYTES + 1) && holds(c),
	   "nobody makes room that is not enough");
	m6_sram_resize(&sram, BYTES - 1);
	ok(!holds(c) && !fetch(a, BYTES), "less room");
	for (uint16_t i = 0; i < 1000; i++) {
		key.expert = i;
		m6_sram_next_batch(&sram);
		fetch(key, 64);
	}
	ok(holds(key) && sram.used == M6_SRAM_SLOTS * 64,
	   "no more than there are slots");
	cleanup();
}

static void test_forget(void)
{
	struct m6_sram_state state;

	setup();
	fetch(a, BYTES);
	fetch(c, BYTES);
	m6_sram_invalidate(&sram, 2);
	ok(holds(a) && !holds(c), "an address space is forgotten");
	fetch(b, BYTES);
	m6_sram_forget(&sram, &a);
	ok(!holds(a) && holds(b), "one expert is");
	m6_sram_read(&sram, &state);
	ok(state.used == BYTES && state.fetches == 3 && state.hits == 2,
	   "counted: %llu, %llu", (unsigned long long)state.fetches,
	   (unsigned long long)state.hits);
	m6_sram_reset(&sram, ROOM);
	m6_sram_read(&sram, &state);
	ok(!state.used && !state.fetches && !state.hits && state.room == ROOM,
	   "reset");
	cleanup();
}

/* A command after another: when it ends. */
static uint64_t end_of(unsigned int ring, struct m6_charge charge)
{
	uint64_t cycles = 0;

	m6_clock_charge(&clk, ring, &charge, &cycles);
	return clk.ring_ns[ring];
}

static struct m6_charge compute(uint64_t us)
{
	return (struct m6_charge) { .macs = 4096 * 1200 * us };
}

static struct m6_charge use(struct m6_router_key key)
{
	m6_sram_find(&sram, &key, clk.ring_ns[0], &ready);
	return (struct m6_charge) { .ready_ns = ready };
}

static void test_ready(void)
{
	setup();
	fetch(a, BYTES);
	ok(!clk.ring_ns[0], "a fetch takes no time of its ring");
	ok(!m6_sram_find(&sram, &a, LAUNCH - 1, &ready),
	   "before it begins nobody can know of it");
	end_of(0, (struct m6_charge) { 0 });
	ok(m6_sram_find(&sram, &a, clk.ring_ns[0], &ready) &&
	   ready == LAUNCH + COPY, "ready when it is through");
	ok(end_of(0, use(a)) == LAUNCH + COPY, "who comes early waits");
	ok(end_of(0, use(a)) == 2 * LAUNCH + COPY, "who comes late does not");
	cleanup();
	setup();
	fetch(a, BYTES);
	fetch(b, BYTES);
	end_of(0, (struct m6_charge) { 0 });
	use(b);
	ok(about(ready, LAUNCH + 2 * COPY), "one after the other: %llu ns",
	   (unsigned long long)ready);
	ok(clk.dram_bytes == 2 * BYTES, "counted as traffic once");
	cleanup();
}

/*
 * A token with something to compute and an expert to use, or something to read
 * and an expert; with a fetch before and without.
 */
static uint64_t token(struct m6_charge before, bool fetched)
{
	uint64_t ns;

	setup();
	if (fetched)
		fetch(a, BYTES);
	end_of(0, (struct m6_charge) { 0 });
	end_of(0, before);
	ns = end_of(0, fetched ? use(a) :
		    (struct m6_charge) { .dram_bytes = BYTES });
	ok(clk.dram_bytes == BYTES + before.dram_bytes, "%llu bytes moved",
	   (unsigned long long)clk.dram_bytes);
	cleanup();
	return ns;
}

static void test_overlap(void)
{
	const struct m6_charge read = { .dram_bytes = 23000000 };
	uint64_t with, without;

	with = token(compute(50), true);
	without = token(compute(50), false);
	ok(without - with == COPY, "behind arithmetic it is for free: %llu ns",
	   (unsigned long long)(without - with));
	with = token(compute(4), true);
	without = token(compute(4), false);
	ok(without - with > 4000 && without - with < 4000 + 3 * LAUNCH,
	   "or as much of it as there is time for: %llu ns",
	   (unsigned long long)(without - with));
	with = token(read, true);
	without = token(read, false);
	ok(with + 3 * LAUNCH >= without && with <= without,
	   "what is read meanwhile takes longer: only launches are gained, %llu ns",
	   (unsigned long long)(without - with));
}

/* However much is fetched, nothing moves faster than DRAM does. */
static void test_conservation(void)
{
	struct m6_router_key key = { 1, 0, 0 };
	uint64_t ns, least;

	setup();
	for (uint16_t i = 0; i < 500; i++) {
		key.expert = i;
		m6_sram_next_batch(&sram);
		fetch(key, BYTES / 8);
		end_of(i % 2, (struct m6_charge) { .dram_bytes = BYTES });
		end_of(0, use(key));
	}
	ns = clk.ring_ns[0] > clk.ring_ns[1] ? clk.ring_ns[0] : clk.ring_ns[1];
	least = clk.dram_bytes * 1000 / profile.dram_mb_s;
	ok(clk.dram_bytes == 500ull * (BYTES / 8 + BYTES) && ns >= least,
	   "%llu ns for what takes %llu at least", (unsigned long long)ns,
	   (unsigned long long)least);
	ok(ns < least + least / 20, "and not much more");
	cleanup();
	setup();
	for (uint16_t i = 0; i < 500; i++) {
		key.expert = i;
		m6_sram_next_batch(&sram);
		m6_sram_next_batch(&sram);
		fetch(key, BYTES);
		end_of(0, (struct m6_charge) { 0 });
	}
	ok(clk.ring_ns[0] == 500 * LAUNCH,
	   "guesses never used hold up nothing by themselves");
	end_of(0, (struct m6_charge) { .dram_bytes = 230 });
	least = 500ull * BYTES * 1000 / profile.dram_mb_s;
	ok(clk.ring_ns[0] + M6_LEDGER_BUCKET_NS > least,
	   "but what is read next waits for them");
	cleanup();
}

int main(void)
{
	test_room();
	test_forget();
	test_ready();
	test_overlap();
	test_conservation();
	return done();
}
