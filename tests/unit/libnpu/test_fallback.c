// SPDX-License-Identifier: MIT
/* Copies of lower precision that stand in for experts. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <m6npu_regs.h>
#include <npu/npu.h>
#include "../tap.h"
#include "experts_trial.h"
#include "fake_drm.h"

static int each(void *user, uint64_t bytes)
{
	return 0;
}

static void begin_guessing(uint64_t budget, uint32_t threshold)
{
	const struct trial_options options = {
		.budget = budget,
		.threshold = threshold,
		.fallback = true,
	};

	trial_begin(&options);
	npu_experts_load(&t.e, false, each, NULL);
}

static void begin(uint64_t budget)
{
	begin_guessing(budget, 0);
}

static const struct drm_m6npu_expert *entry(uint32_t layer, uint32_t expert)
{
	return &fake.experts[layer * EXPERTS + expert];
}

static bool is_low(uint32_t layer, uint32_t expert)
{
	const struct drm_m6npu_expert *x = entry(layer, expert);

	return x->state && x->type == M6NPU_TYPE_Q4_0;
}

static bool is_full(uint32_t layer, uint32_t expert)
{
	return entry(layer, expert)->state && !entry(layer, expert)->type;
}

static void test_layout(void)
{
	struct npu_layout_request request = { .expert_fallback = true };
	struct trial_options options = { 0 };
	struct npu_layout with, without;

	begin(8 * PLACE);
	with = t.layout;
	request.expert_budget = 8 * PLACE;
	request.expert_fallback = false;
	npu_layout_plan(&without, t.file, &request);
	ok(with.low >= LAYERS * EXPERTS * 1900ull && !without.low &&
	   with.pool > without.pool, "copies take room in the pool");
	request = (struct npu_layout_request){ .expert_fallback = true };
	ok(npu_layout_plan(&with, t.file, &request) == 0 && !with.low,
	   "not when all experts are there, to stay");
	trial_end();
	trial_begin(&options);
	ok(npu_layout_plan(&with, t.file, &request) == -ENOTSUP &&
	   says("--expert-fallback"), "a model without: %s", npu_error());
	trial_end();
}

static void test_stands_in(void)
{
	begin(8 * PLACE);
	trial_step(1);
	gates_close();
	ok(trial_fault(3, 0x3) == 0 && is_low(3, 0) && is_low(3, 1) &&
	   t.e.figures.fallbacks == 2 && t.e.figures.faults == 2,
	   "copies stand in at once");
	gates_wait(2);
	gates_open();
	while (t.e.ripe_count < 2)
		trial_arrive();
	ok(is_low(3, 0) && is_low(3, 1), "and stay while the job runs");
	trial_step(1);
	ok(is_full(3, 0) && is_full(3, 1) && t.always_right &&
	   t.e.figures.resident == 8, "the next step has the experts themselves");
	trial_end();
}

static void test_while_waiting(void)
{
	begin(8 * PLACE);
	trial_step(1);
	trial_fault(3, 0x1);
	while (!t.e.ripe_count)
		trial_arrive();
	ok(trial_fault(2, 0x1) == 0 && is_full(3, 0) && is_low(2, 0) &&
	   t.always_right, "so does a job that waits for another");
	trial_end();
}

static void test_fails(void)
{
	begin(8 * PLACE);
	trial_step(1);
	gates_fail(trial_section(3 * EXPERTS), 1);
	ok(trial_fault(3, 0x1) == 0 && is_low(3, 0), "a copy stands in");
	trial_arrive();
	ok(is_low(3, 0), "what cannot be read changes nothing");
	trial_step(1);
	ok(!trial_state(3, 0) && t.always_right,
	   "the step after it is told that it is absent");
	ok(trial_fault(3, 0x1) == 0 && is_low(3, 0), "and it is read once more");
	trial_arrive();
	trial_step(1);
	ok(is_full(3, 0), "with success");
	trial_end();
}

static void test_no_room(void)
{
	bool good = true;
	uint32_t layer;

	begin(TOP * PLACE);
	trial_step(1);
	gates_close();
	for (layer = 0; layer < LAYERS; layer++)
		good &= trial_fault(layer, 0xf0) == 0;
	for (layer = 0; layer < LAYERS; layer++)
		good &= is_low(layer, 4) && is_low(layer, 7);
	ok(good && t.e.figures.fallbacks == 4 * LAYERS,
	   "more than there are places for: copies for all");
	gates_open();
	trial_end();
	ok(true, "a model may go while they are read");
}

static void test_random(uint32_t places, uint32_t threshold, unsigned int seed)
{
	unsigned int turns, step;
	bool good = true;

	srand(seed);
	begin_guessing(places * PLACE, threshold);
	for (step = 0; step < 80 && good; step++) {
		trial_step(1);
		for (uint32_t layer = 0; layer < LAYERS && good; layer++) {
			uint64_t needed = trial_random(layer, 9);

			good = trial_command(layer, needed, &turns) == 0 &&
			       turns <= 1 && trial_table_right() &&
			       t.e.figures.resident <= places;
		}
		npu_experts_end(&t.e);
	}
	ok(good && t.always_right,
	   "%u places: the table names the right bytes (%u fallbacks, %u loads, %u ahead)",
	   places, (unsigned int)t.e.figures.fallbacks,
	   (unsigned int)t.e.figures.loads,
	   (unsigned int)t.e.figures.prefetches);
	trial_end();
}

int main(void)
{
	static const uint32_t places[] = { 2, 9, 24 };
	unsigned int i;

	test_layout();
	test_stands_in();
	test_while_waiting();
	test_fails();
	test_no_room();
	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		test_random(places[i], 0, i);
	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		test_random(places[i], 850, i);
	return done();
}
