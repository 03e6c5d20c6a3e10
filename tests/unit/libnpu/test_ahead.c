// SPDX-License-Identifier: MIT
/*
 * Experts that are read before a job needs them, and what a step's own account
 * of its experts is used for.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <npu/npu.h>
#include "../tap.h"
#include "experts_trial.h"
#include "fake_drm.h"

static int each(void *user, uint64_t bytes)
{
	return 0;
}

static void begin(uint64_t budget)
{
	const struct trial_options options = {
		.budget = budget,
		.threshold = 850,
	};

	trial_begin(&options);
	npu_experts_load(&t.e, false, each, NULL);
}

/* The first expert of @layer that is not there. */
static uint32_t absent(uint32_t layer)
{
	uint32_t k = 0;

	while (k < EXPERTS - 1 && trial_state(layer, k))
		k++;
	return k;
}

/* ---- Hints ---- */

static void test_hint(void)
{
	unsigned int turns;
	uint32_t x;

	begin(24 * PLACE);
	ok(!npu_experts_want_hints(&t.e), "no hints before there is spare room");
	trial_step(1);
	ok(npu_experts_want_hints(&t.e) && t.e.places.free_count == TOP &&
	   trial_resident() == 22, "a step begins with spare places");
	x = absent(3);
	trial_hint(3, 1u << x);
	trial_arrive();
	ok(trial_state(3, x) == DRM_M6NPU_EXPERT_RESIDENT &&
	   trial_table_right() && t.always_right,
	   "what is hinted is there before it is missed");
	ok(t.e.places.uses[3 * EXPERTS + x].guessed == t.e.places.step,
	   "and expected, so that nobody takes its place");
	trial_hint(3, 1u << x);
	ok(t.e.figures.hints == 1 && t.e.figures.prefetches == 1,
	   "late hints change nothing");
	ok(trial_command(3, 1u << x, &turns) == 0 && !turns &&
	   !t.e.figures.faults, "so nothing is missed");
	trial_route(3, 0, (int32_t)x, (int32_t)x);
	npu_experts_end(&t.e);
	ok(t.e.figures.prefetches_used == 1 && t.e.figures.uses == 1 &&
	   t.e.figures.hits == 1, "and it counts as used");
	trial_step(1);
	ok(t.e.places.free_count == TOP && trial_state(3, x),
	   "the next step has spare places again");
	trial_end();
}

static void test_bogus(void)
{
	begin(24 * PLACE);
	trial_step(1);
	trial_hint(LAYERS, 1);
	trial_hint(UINT32_MAX, ~0ull);
	trial_hint(1, ~0ull << EXPERTS);
	t.job--;
	trial_hint(2, 0xfff);
	t.job++;
	ok(!t.e.figures.hints && t.e.places.free_count == TOP,
	   "hints of others, and of what is not there, are passed over");
	trial_hint(3, 0xfff);
	trial_hint(3, 0xfff);
	ok(t.e.figures.prefetches == TOP && t.e.figures.hints > 2 * TOP &&
	   !t.e.places.free_count, "no more are read than there is room for");
	trial_end();
	ok(true, "and a model may go while they are");
}

static void test_off(void)
{
	const struct trial_options options = { .budget = 24 * PLACE };

	trial_begin(&options);
	npu_experts_load(&t.e, false, each, NULL);
	trial_step(1);
	trial_hint(3, 0xfff);
	ok(!npu_experts_want_hints(&t.e) && !t.e.figures.prefetches &&
	   trial_resident() == 24 &&
	   npu_experts_threshold(&t.e) == NPU_PREFETCH_OFF,
	   "switched off: no spare places, and no reads");
	trial_end();
}

static void test_least(void)
{
	uint32_t rows;
	bool good = true;

	/* A token's experts have room, and no others. */
	begin(TOP * PLACE);
	trial_step(1);
	ok(!npu_experts_want_hints(&t.e) && trial_resident() == TOP,
	   "the least budget: all of it is for what is needed");
	trial_end();
	begin(16 * PLACE);
	for (rows = 1; rows <= 4; rows++) {
		trial_step(rows);
		good &= t.e.places.free_count == TOP;
	}
	ok(good, "more: whatever a step needs has room beside the spare ones");
	trial_end();
	begin(8 * PLACE);
	trial_step(3);
	ok(t.e.places.free_count == 1, "one of eight is spared");
	trial_end();
	begin(8 * PLACE);
	trial_step(4);
	ok(!t.e.places.free_count && !npu_experts_want_hints(&t.e),
	   "but not when the step may need all");
	trial_end();
}

static void test_on_demand(void)
{
	const struct trial_options options = {
		.on_demand = true,
		.threshold = 850,
	};
	uint32_t k;

	trial_begin(&options);
	trial_step(1);
	ok(npu_experts_want_hints(&t.e), "on demand there is always room");
	trial_hint(2, 0xfff);
	for (k = 0; trial_resident() < EXPERTS && k < EXPERTS; k++)
		trial_arrive();
	ok(trial_resident() == EXPERTS && t.always_right, "and all come");
	trial_end();
}

/* How many of a layer are there, or on their way. */
static unsigned int placed(uint32_t layer)
{
	unsigned int count = 0, k;

	for (k = 0; k < EXPERTS; k++)
		count += t.e.places.uses[layer * EXPERTS + k].place !=
			 NPU_NOWHERE;
	return count;
}

/* Threads hold some, and the others wait for a thread. */
static void test_passed(void)
{
	const struct trial_options options = {
		.on_demand = true,
		.threshold = 850,
	};

	trial_begin(&options);
	trial_step(1);
	gates_close();
	trial_hint(1, 0xfff);
	gates_wait(2);
	trial_hint(2, 0xfff);
	ok(placed(1) == EXPERTS && placed(2) == EXPERTS,
	   "guesses wait while the layer before may need experts");
	trial_hint(3, 1);
	ok(placed(1) < EXPERTS && placed(2) == EXPERTS,
	   "those of a layer that has passed are not begun");
	gates_open_on_await();
	ok(trial_fault(3, 1) == 0 && placed(2) < EXPERTS && t.always_right,
	   "nor when a job waits further on");
	trial_end();
}

/* ---- Faults meanwhile ---- */

static void test_fault_joins(void)
{
	uint32_t x;

	begin(24 * PLACE);
	trial_step(1);
	x = absent(3);
	gates_close();
	trial_hint(3, 1u << x);
	gates_wait(1);
	gates_open_on_await();
	trial_route(3, 0, (int32_t)x, (int32_t)x);
	ok(trial_fault(3, 1u << x) == 0 && trial_state(3, x) &&
	   t.always_right && t.e.figures.loads == 24 + 1,
	   "a fault waits for what is on its way, and reads it once");
	npu_experts_end(&t.e);
	ok(t.e.figures.prefetches_used == 1 && t.e.figures.uses == 1 &&
	   !t.e.figures.hits, "it was of use, if not in time");
	trial_end();
}

static void test_fault_needs_places(void)
{
	unsigned int turns;

	/* All places are being filled for others. */
	begin(9 * PLACE);
	trial_step(1);
	t.e.needed = 0;
	while (npu_places_drop(&t.e.places) != NPU_NOWHERE)
		continue;
	memset(fake.experts, 0, sizeof(fake.experts));
	gates_close();
	trial_hint(3, 0xfff);
	ok(t.e.figures.prefetches == 9, "all places are taken ahead");
	gates_wait(2);
	gates_open_on_await();
	ok(trial_command(1, 0x3, &turns) == 0 && turns == 1 &&
	   trial_state(1, 0) && trial_state(1, 1) && t.always_right,
	   "what is needed gets them back");
	trial_end();
}

static void test_order(void)
{
	struct npu_shard list[8] = { 0 };
	uint32_t n, busy = 0, later = 0, urgent = 0;

	/* As many as there may be threads, then one of each kind. */
	begin(24 * PLACE);
	for (n = 0; n < 8; n++) {
		list[n].section = trial_section(n);
		list[n].cap = t.b.sections[list[n].section].loaded_bytes;
		list[n].dst = malloc(list[n].cap);
	}
	gates_close();
	for (n = 0; n < 6; n++)
		npu_shards_ask(t.e.shards, &list[n], false);
	gates_wait(2);
	npu_shards_ask(t.e.shards, &list[6], false);
	npu_shards_ask(t.e.shards, &list[7], true);
	gates_open();
	for (n = 0; n < 8; n++)
		npu_shards_await(t.e.shards, &list[n]);
	for (n = 0; n < 8; n++) {
		busy += gates_begun[n] == list[0].section;
		later = gates_begun[n] == list[6].section ? n : later;
		urgent = gates_begun[n] == list[7].section ? n : urgent;
		free(list[n].dst);
	}
	ok(busy == 1 && urgent < later && urgent <= 4,
	   "what a job waits for is read before what is only guessed");
	ok(!npu_shards_drop(t.e.shards, &list[0]), "what is done cannot be dropped");
	trial_end();
}

/* ---- Failures ---- */

static void test_prefetch_fails(void)
{
	uint32_t x, section;

	begin(24 * PLACE);
	trial_step(1);
	x = absent(3);
	section = trial_section(3 * EXPERTS + x);
	gates_fail(section, 1);
	trial_hint(3, 1u << x);
	trial_arrive();
	ok(!trial_state(3, x) && t.e.places.free_count == TOP,
	   "a read ahead that fails is nobody's error");
	ok(trial_fault(3, 1u << x) == 0 && trial_state(3, x) && t.always_right,
	   "who needs it has it read again");
	trial_end();

	begin(24 * PLACE);
	trial_step(1);
	gates_close();
	gates_fail(section, 1);
	trial_hint(3, 1u << x);
	gates_wait(1);
	gates_open_on_await();
	ok(trial_fault(3, 1u << x) == 0 && trial_state(3, x) && t.always_right,
	   "also while it is on its way");
	trial_end();

	begin(24 * PLACE);
	trial_step(1);
	gates_close();
	gates_fail(section, 2);
	trial_hint(3, 1u << x);
	gates_wait(1);
	gates_open_on_await();
	ok(trial_fault(3, 1u << x) == -EIO && says("made to fail") &&
	   !trial_state(3, x), "and fails if that does: %s", npu_error());
	trial_end();
}

static void test_bind_fails(void)
{
	uint32_t x;

	begin(24 * PLACE);
	fake.fail_request = DRM_IOCTL_M6NPU_EXPERT_BIND;
	fake.fail_error = -ENODEV;
	trial_step(1);
	ok(trial_resident() == 24 && t.e.figures.resident == 24 &&
	   !t.e.places.free_count && trial_table_right(),
	   "making spare places fails: all stay where they are");
	trial_step(1);
	x = absent(3);
	fake.fail_request = DRM_IOCTL_M6NPU_EXPERT_BIND;
	fake.fail_after = 0;
	trial_hint(3, 1u << x);
	trial_arrive();
	ok(!trial_state(3, x) && t.e.places.free_count == TOP &&
	   t.e.figures.resident == trial_resident(),
	   "binding what was read ahead fails: its place is free");
	trial_end();
}

/* ---- What a step tells of itself ---- */

static void test_use(void)
{
	uint64_t total = 0, k;

	begin(24 * PLACE);
	trial_step(2);
	trial_route(0, 0, 4, 5);
	trial_route(0, 1, 5, 6);
	trial_route(2, 0, 11, 0);
	/* Not a row of this step, not an expert. */
	trial_route(0, 2, 7, 8);
	trial_route(3, 0, EXPERTS, -7);
	npu_experts_end(&t.e);
	for (k = 0; k < LAYERS * EXPERTS; k++)
		total += t.e.list[k].uses;
	ok(t.e.list[4].uses == 1 && t.e.list[5].uses == 2 &&
	   t.e.list[6].uses == 1 && t.e.list[2 * EXPERTS + 11].uses == 1 &&
	   t.e.list[2 * EXPERTS].uses == 1 && total == 6,
	   "tokens are counted for each expert");
	ok(t.e.figures.uses == 5 && t.e.figures.hits == 5,
	   "and experts for each step");
	trial_end();
}

static void test_layer_stats(void)
{
	struct npu_layer_stats stats[3] = { [2] = { .hits = 7 } };

	begin(24 * PLACE);
	ok(npu_layer_stats(t.device, stats, 2) == LAYERS &&
	   stats[0].hits == 100 && stats[1].hits == 101 &&
	   stats[1].hints == 201 && stats[2].hits == 7,
	   "the device's figures, layer by layer");
	ok(npu_layer_stats(t.device, NULL, 0) == LAYERS, "or how many there are");
	fake.fail_request = DRM_IOCTL_M6NPU_LAYER_STATS;
	fake.fail_error = -ENODEV;
	ok(npu_layer_stats(t.device, stats, 2) == -ENODEV && *npu_error(),
	   "or why not: %s", npu_error());
	npu_experts_clear(&t.e);
	ok(npu_layer_stats(t.device, stats, 2) == 0, "none without experts");
	trial_end();
}

static void test_popular(void)
{
	static const char calibration[] =
		"{\"version\":1,\"tokens\":100,\"layers\":["
		"{\"use\":[0,0,0,90,0,0,0,0,0,0,0,10]},"
		"{\"use\":[50,50,0,0,0,0,0,0,0,0,0,0]},"
		"{\"use\":[0,0,0,0,0,0,0,0,0,0,0,0]},"
		"{\"use\":[0,0,0,0,0,0,0,0,0,99,0,1]}]}";
	const struct trial_options options = {
		.budget = 4 * PLACE,
		.calibration = calibration,
	};

	trial_begin(&options);
	npu_experts_load(&t.e, false, each, NULL);
	ok(trial_state(0, 3) == DRM_M6NPU_EXPERT_RESIDENT &&
	   trial_state(1, 0) && trial_state(1, 1) && trial_state(3, 9),
	   "the popular ones are loaded first");
	trial_step(1);
	trial_fault(2, 1);
	ok(trial_state(0, 3) && trial_state(3, 9) &&
	   trial_state(1, 0) + trial_state(1, 1) == 1,
	   "and leave last");
	trial_end();
}

static void test_held(void)
{
	uint32_t x, k, step;
	unsigned int turns, most = 0;
	bool good = true;

	/* With room for two, one does not drive out the other. */
	begin(TOP * PLACE);
	for (step = 0; step < 40; step++) {
		trial_step(1);
		x = step % EXPERTS;
		k = (step + 1) % EXPERTS;
		trial_route(1, 0, (int32_t)x, (int32_t)k);
		good &= trial_command(1, 1u << x | 1u << k, &turns) == 0;
		most = turns > most ? turns : most;
		npu_experts_end(&t.e);
	}
	ok(good && most == 1 && t.e.figures.faults == 41 &&
	   t.e.figures.hits == 39 && t.always_right,
	   "who is there for a command stays for it (%u turns, %u faults)",
	   most, (unsigned int)t.e.figures.faults);
	trial_end();
}

static void test_silent(void)
{
	const struct trial_options options = {
		.budget = 24 * PLACE,
		.threshold = 850,
		.silent = true,
	};
	unsigned int turns;

	trial_begin(&options);
	trial_step(1);
	ok(trial_command(1, 0x3, &turns) == 0 && t.always_right &&
	   !npu_experts_want_hints(&t.e), "files of before work");
	npu_experts_end(&t.e);
	ok(!t.e.figures.uses && !t.e.figures.hits, "without an account of uses");
	trial_end();
}

static void test_adapts(void)
{
	const struct trial_options options = {
		.budget = 24 * PLACE,
		.threshold = 500,
		.low = 300,
		.high = 700,
	};
	uint32_t x, before;

	trial_begin(&options);
	npu_experts_load(&t.e, false, each, NULL);
	trial_step(1);
	ok(npu_experts_threshold(&t.e) == 500, "the threshold has a beginning");
	x = absent(3);
	trial_hint(3, 1u << x);
	trial_arrive();
	npu_experts_end(&t.e);
	before = npu_experts_threshold(&t.e);
	ok(before > 500, "rises when nobody needs what was read");
	trial_step(1);
	x = absent(3);
	trial_route(3, 0, (int32_t)x, (int32_t)x);
	trial_fault(3, 1u << x);
	npu_experts_end(&t.e);
	ok(npu_experts_threshold(&t.e) == before, "a surprise leaves it alone");
	trial_step(1);
	x = absent(2);
	trial_guess(2, 0, 1, (int32_t)x, 0.4f);
	trial_guess(2, 0, 2, -1, 0.4f);
	trial_guess(2, 0, 3, (int32_t)x, 0.3f);
	trial_route(2, 0, (int32_t)x, (int32_t)x);
	trial_fault(2, 1u << x);
	npu_experts_end(&t.e);
	ok(npu_experts_threshold(&t.e) < before &&
	   t.e.figures.threshold == npu_experts_threshold(&t.e),
	   "falls when something guessed was waited for");
	trial_end();
}

/* Steps with hints that are right, wrong, late or missing. */
static void test_random(uint32_t places, unsigned int seed)
{
	unsigned int turns, step;
	bool good = true;

	srand(seed);
	begin(places * PLACE);
	for (step = 0; step < 80 && good; step++) {
		trial_step(1);
		for (uint32_t layer = 0; layer < LAYERS && good; layer++) {
			uint64_t needed = trial_random(layer, 20);

			/* An error is one of those. */
			trial_command(layer, needed, &turns);
			gates_fail(0, 0);
			good = trial_command(layer, needed, &turns) == 0 &&
			       trial_table_right() &&
			       trial_resident() <= places &&
			       t.e.figures.resident == trial_resident();
		}
		npu_experts_end(&t.e);
	}
	ok(good && t.always_right,
	   "%u places: the table names the right bytes (%u faults, %u of %u prefetches used)",
	   places, (unsigned int)t.e.figures.faults,
	   (unsigned int)t.e.figures.prefetches_used,
	   (unsigned int)t.e.figures.prefetches);
	trial_end();
}

int main(void)
{
	static const uint32_t places[] = { 2, 8, 9, 13, 24, 40 };
	unsigned int i;

	test_hint();
	test_bogus();
	test_off();
	test_least();
	test_on_demand();
	test_passed();
	test_fault_joins();
	test_fault_needs_places();
	test_order();
	test_prefetch_fails();
	test_bind_fails();
	test_use();
	test_layer_stats();
	test_popular();
	test_held();
	test_silent();
	test_adapts();
	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		test_random(places[i], i);
	return done();
}
