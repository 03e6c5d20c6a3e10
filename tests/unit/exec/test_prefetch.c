// SPDX-License-Identifier: MIT
/* EXPERT_PREFETCH: whom it asks for, and when it doesn't. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "fake.h"

static struct m6_exec *exec;
static struct m6_job *job;

static uint32_t run(const struct m6npu_cmd *cmd)
{
	struct m6_cost cost;

	job->prefetched_count = 0;
	return m6_exec_command(exec, job, cmd, false, &cost);
}

static struct m6npu_cmd prefetch_command(uint32_t rows, uint32_t k)
{
	struct m6npu_cmd cmd = fake_command(M6NPU_OP_EXPERT_PREFETCH);

	cmd.operand[0] = M6NPU_OPERAND(0, 0);
	cmd.operand[1] = M6NPU_OPERAND(1, 0);
	cmd.type[0] = M6NPU_TYPE_I32;
	cmd.layer = 11;
	cmd.args.moe.rows = rows;
	cmd.args.moe.k = k;
	cmd.args.moe.experts = 60;
	return cmd;
}

/* Expects exactly these, in this order. */
static bool prefetched(uint32_t count, const uint32_t *ids)
{
	return job->prefetched_count == count &&
	       !memcmp(job->prefetched, ids, count * sizeof(*ids));
}

static const int32_t some_ids[] = { 5, 9, 40, 9, 59, 5 };
static const float some_chances[] = { 0.6f, 0.5f, 0.95f, 0.7f, NAN, 0.2f };

static void test_chosen(void)
{
	struct m6npu_cmd cmd = prefetch_command(3, 2);

	job->threshold = 500;
	ok(!run(&cmd) && prefetched(3, (uint32_t[]){ 40, 9, 5 }),
	   "each once, by its best chance");
	ok(job->prefetched_layer == 11, "of the layer it names");
	job->threshold = 700;
	ok(!run(&cmd) && prefetched(2, (uint32_t[]){ 40, 9 }),
	   "a chance that is just as good");
	job->threshold = 950;
	ok(!run(&cmd) && prefetched(1, (uint32_t[]){ 40 }), "0.95 is 0.95");
	job->threshold = 1000;
	ok(!run(&cmd) && prefetched(0, job->prefetched), "nothing is sure");
	job->threshold = 0;
	ok(!run(&cmd) && prefetched(3, (uint32_t[]){ 40, 9, 5 }),
	   "NaN is no chance at all");
	fake_step(job, 1, 0);
	ok(!run(&cmd) && prefetched(2, (uint32_t[]){ 5, 9 }),
	   "of live rows only");
	fake_step(job, 0, 0);
	ok(!run(&cmd) && prefetched(0, job->prefetched), "of no row at all");
	fake_no_step(job);
}

static void test_not_a_number(void)
{
	struct m6npu_cmd cmd = prefetch_command(2, 2);

	fake_data(job, 0, (int32_t[]){ 5, 9, 5, 9 }, 16);
	fake_data(job, 1, (float[]){ 0.75f, NAN, NAN, 0.5f }, 16);
	job->threshold = 500;
	ok(!run(&cmd) && prefetched(2, (uint32_t[]){ 5, 9 }),
	   "nor does it take others' chances away");
}

static void test_off(void)
{
	struct m6npu_cmd cmd = prefetch_command(3, 2);
	float *chances = job->region[1];

	job->threshold = 1001;
	job->prefetches = 0;
	chances[0] = INFINITY;
	ok(!run(&cmd) && !job->prefetches, "above 1000 nothing is likely");
	job->threshold = 500;
}

/* Ties by number, like a router's. */
static void test_many(void)
{
	struct m6npu_cmd cmd = prefetch_command(4, 512);
	int32_t *ids = fake_region(job, 0, 4 * 512 * 4);
	float *chances = fake_region(job, 1, 4 * 512 * 4);
	bool right = true;

	for (uint32_t i = 0; i < 4 * 512; i++) {
		ids[i] = 511 - i % 512;
		chances[i] = i / 512 == 2 ? 0.75f : 0.25f;
	}
	cmd.args.moe.experts = 512;
	ok(!run(&cmd) && job->prefetched_count == 512, "all that there are");
	for (uint32_t i = 0; i < 512; i++)
		right &= job->prefetched[i] == i;
	ok(right, "in order");
}

static void test_refused(void)
{
	const struct m6npu_cmd good = prefetch_command(3, 2);
	struct m6npu_cmd cmd = good;
	int32_t *ids = job->region[0];

	job->prefetches = 0;
	ids[5] = 60;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "no such expert");
	ids[5] = 5;
	cmd.args.moe.experts = 0;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "no experts");
	cmd = good;
	cmd.args.moe.k = 61;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "more than there are");
	cmd = good;
	cmd.args.moe.capacity = 1;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "a field not its own");
	ok(!job->prefetches, "and nobody was asked for");
}

int main(void)
{
	exec = m6_exec_create(1);
	job = fake_create();
	if (!ok(exec, "created"))
		return done();
	fake_data(job, 0, some_ids, sizeof(some_ids));
	fake_data(job, 1, some_chances, sizeof(some_chances));
	test_chosen();
	test_off();
	fake_data(job, 1, some_chances, sizeof(some_chances));
	test_refused();
	test_not_a_number();
	test_many();
	fake_destroy(job);
	m6_exec_destroy(exec);
	return done();
}
