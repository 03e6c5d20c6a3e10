// SPDX-License-Identifier: MIT
/*
 * MOE_FFN by expert, and MOE_COMBINE. What they compute is measured by what
 * goes token by token, which test_moe.c looks after.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "moe.h"

static struct m6_exec *exec, *many;
static struct m6_job *job;

static uint32_t run_on(struct m6_exec *where, const struct m6npu_cmd *cmd)
{
	struct m6_cost cost;

	return m6_exec_command(where, job, cmd, false, &cost);
}

static uint32_t run(const struct m6npu_cmd *cmd)
{
	return run_on(exec, cmd);
}

static void shuffled_ids(int32_t *ids, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t other = fake_random() % (i + 1);

		ids[i] = ids[other];
		ids[other] = (int32_t)i;
	}
}

/* All experts, in groups of any size, each with any capacity. */
static bool run_groups(struct m6_exec *where, const struct moe *m,
		       uint32_t *groups)
{
	struct m6npu_cmd cmd;
	int32_t ids[FAKE_EXPERTS];

	shuffled_ids(ids, m->experts);
	*groups = 0;
	for (uint32_t first = 0; first < m->experts; ++*groups) {
		uint32_t count = 1 + fake_random() % (m->experts - first);

		cmd = moe_grouped(job, m, first, ids + first, count,
				  1 + fake_random() % (m->rows + 1));
		if (run_on(where, &cmd))
			return false;
		first += count;
	}
	cmd = moe_combine(m);
	return !run_on(where, &cmd);
}

static void test_same(const struct moe *m)
{
	struct m6npu_cmd cmd = moe_command(m);
	uint64_t bytes = m->rows * m->hidden * 4;
	float *before = malloc(bytes), *plain = malloc(bytes);
	uint32_t groups;

	moe_experts(job, m);
	moe_rows(job, m);
	((float *)job->region[SRC])[m->hidden - 1] = NAN;
	memcpy(before, job->region[DST], bytes);
	ok(!run(&cmd), "token by token");
	memcpy(plain, job->region[DST], bytes);
	for (unsigned int i = 0; i < 6; i++) {
		memcpy(job->region[DST], before, bytes);
		ok(run_groups(i % 2 ? many : exec, m, &groups) &&
		   !memcmp(plain, job->region[DST], bytes),
		   "%u rows, %u of %u experts, %s%s: %u groups, the same",
		   m->rows, m->k, m->experts, weight_name(m->type[0]),
		   m->accumulate ? ", accumulates" : "", groups);
	}
	free(before);
	free(plain);
}

/* In several passes, with rows of nobody in between. */
static void test_passes(void)
{
	const struct moe m = { 3000, 8, 16, 256, 256, M6NPU_ACT_SILU,
			       { M6NPU_TYPE_Q4_0, M6NPU_TYPE_Q4_0,
				 M6NPU_TYPE_Q4_0 }, false };
	struct m6npu_cmd cmd = moe_command(&m);
	uint64_t bytes = m.rows * m.hidden * 4;
	float *plain = malloc(bytes);
	uint32_t groups;

	moe_experts(job, &m);
	moe_rows(job, &m);
	ok(!run_on(many, &cmd), "many rows");
	memcpy(plain, job->region[DST], bytes);
	ok(run_groups(many, &m, &groups) &&
	   !memcmp(plain, job->region[DST], bytes), "many rows: the same");
	free(plain);
}

/* Pairs of others stay what they were. */
static void test_members_only(void)
{
	const struct moe m = { 6, 2, 8, 64, 32, M6NPU_ACT_SILU, { 0, 0, 0 },
			       false };
	static const int32_t members[] = { 6, 3 };
	static const int32_t chosen[] = { 3, 1, 0, 6, 1, 2, 6, 3, 7, 7, 5, 4 };
	struct m6npu_cmd cmd;
	const float *pairs;
	float before[12 * 64];
	bool kept = true, written = true;

	moe_experts(job, &m);
	moe_rows(job, &m);
	memcpy(job->region[IDS], chosen, sizeof(chosen));
	pairs = job->region[PAIRS];
	memcpy(before, pairs, sizeof(before));
	cmd = moe_grouped(job, &m, 0, members, 2, 4);
	job->looked_up = 0;
	ok(!run(&cmd) && job->looked_up == 2, "two members");
	for (uint32_t i = 0; i < 12; i++) {
		bool same = !memcmp(before + i * 64, pairs + i * 64, 256);

		if (chosen[i] == 3 || chosen[i] == 6)
			written &= !same;
		else
			kept &= same;
	}
	ok(written, "their pairs are written");
	ok(kept, "and no others");
	cmd = moe_grouped(job, &m, 0, (int32_t[]){ 6, 4, 0 }, 3, 4);
	fake_step(job, 1, 0);
	memcpy(before, pairs, sizeof(before));
	job->looked_up = 0;
	ok(!run(&cmd) && !job->looked_up &&
	   !memcmp(before, pairs, sizeof(before)),
	   "members that nobody chose are not looked up");
	fake_no_step(job);
}

/* Three pairs of expert 5, two of expert 1, one of expert 2. */
static const int32_t priced_ids[] = { 5, 1, 5, 2, 1, 5 };

struct price {
	uint32_t capacity;
	uint32_t passes5, passes1;
};

static void test_price(const struct price *p)
{
	const struct moe m = { 3, 2, 8, 64, 32, M6NPU_ACT_GELU,
			       { M6NPU_TYPE_Q8_0, M6NPU_TYPE_F16,
				 M6NPU_TYPE_F32 }, false };
	const uint64_t experts = moe_expert_bytes(&m);
	/* Source and destination of five pairs, ids, members. */
	const uint64_t rows = 5 * 64 * 4 * 2 + 6 * 4 + 3 * 4;
	struct m6npu_cmd cmd;
	struct m6_cost cost, dry;
	float before[6 * 64];

	moe_experts(job, &m);
	moe_rows(job, &m);
	memcpy(job->region[IDS], priced_ids, sizeof(priced_ids));
	cmd = moe_grouped(job, &m, 0, (int32_t[]){ 7, 1, 5 }, 3, p->capacity);
	job->in_sram[5] = true;
	job->sram_asked = 0;
	job->looked_up = 0;
	ok(!m6_exec_command(exec, job, &cmd, false, &cost) &&
	   job->sram_asked == 2 && job->looked_up == 2,
	   "capacity %u: experts with pairs only", p->capacity);
	ok(cost.sram_bytes == p->passes5 * experts &&
	   cost.dram_bytes == p->passes1 * experts + rows,
	   "weights are read once a pass");
	ok(cost.macs == (uint64_t)(p->passes5 + p->passes1) * p->capacity *
	   (1 + 2 + 4) * 64 * 32, "rows that are not there are computed, too");
	memcpy(before, job->region[PAIRS], sizeof(before));
	memset(job->region[SRC], 0, 3 * 64 * 4);
	ok(!m6_exec_command(exec, job, &cmd, true, &dry) &&
	   !memcmp(&cost, &dry, sizeof(cost)) && job->looked_up == 4 &&
	   !memcmp(before, job->region[PAIRS], sizeof(before)),
	   "a dry run costs the same and computes nothing");
	job->in_sram[5] = false;
}

static const struct moe refused = { 4, 2, 8, 64, 32, M6NPU_ACT_SILU,
				    { M6NPU_TYPE_Q8_0, M6NPU_TYPE_Q8_0,
				      M6NPU_TYPE_Q8_0 }, false };

static void refuse_members(const char *what, const int32_t *ids,
			   uint32_t count)
{
	struct m6npu_cmd cmd = moe_grouped(job, &refused, 0, ids, count, 4);

	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "%s", what);
}

static void test_refused_members(void)
{
	refuse_members("no members", (int32_t[]){ 0 }, 0);
	refuse_members("a member twice", (int32_t[]){ 1, 2, 1 }, 3);
	refuse_members("a member too large", (int32_t[]){ 1, 8 }, 2);
	refuse_members("a negative member", (int32_t[]){ -1 }, 1);
}

static void test_refused_fields(void)
{
	const struct m6npu_cmd good = moe_grouped(job, &refused, 0,
						  (int32_t[]){ 1, 5, 7 }, 3, 4);
	struct m6npu_cmd cmd = good;

	cmd.args.moe.members = 513;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "513 members");
	cmd = good;
	cmd.args.moe.capacity = 0;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "no capacity");
	cmd = good;
	cmd.flags |= M6NPU_CMD_ACCUMULATE;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "groups don't accumulate");
	cmd = moe_command(&refused);
	cmd.args.moe.capacity = 4;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "capacity without groups");
	cmd.args.moe.capacity = 0;
	cmd.args.moe.members = 1;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "members without groups");
	cmd = good;
	cmd.operand[3] = M6NPU_OPERAND(MEMBERS, 8 * 4 - 8);
	ok(run(&cmd) == M6NPU_EXC_BOUNDS, "members beyond their region");
	cmd = good;
	cmd.operand[0] = M6NPU_OPERAND(PAIRS, 4);
	ok(run(&cmd) == M6NPU_EXC_BOUNDS, "pairs beyond their region");
}

/* The destination is as large as its pairs, whoever's they are. */
static void test_refused_overlaps(void)
{
	const struct m6npu_cmd good = moe_grouped(job, &refused, 0,
						  (int32_t[]){ 1, 5, 7 }, 3, 4);
	const uint64_t last = (refused.rows * refused.k - 1) *
			      refused.hidden * 4;
	struct m6npu_cmd cmd = good;
	int32_t *inside = (int32_t *)((char *)job->region[PAIRS] + last);

	inside[0] = 1;
	cmd.args.moe.members = 1;
	cmd.operand[3] = M6NPU_OPERAND(PAIRS, last);
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "members among the pairs");
	memset(inside, 0, 32);
	cmd = good;
	cmd.operand[2] = M6NPU_OPERAND(PAIRS, last);
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "ids among the pairs");
	cmd = good;
	cmd.operand[1] = M6NPU_OPERAND(PAIRS, 0);
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "a source among the pairs");
	cmd = good;
	job->expert_code = M6NPU_EXC_EXPERT_FAULT;
	ok(run(&cmd) == M6NPU_EXC_EXPERT_FAULT, "a missing expert");
	job->expert_code = 0;
}

static void test_refused(void)
{
	uint64_t bytes = refused.rows * refused.k * refused.hidden * 4;
	float *before = malloc(bytes);

	moe_experts(job, &refused);
	moe_rows(job, &refused);
	for (uint32_t i = 0; i < refused.rows * refused.k; i++)
		((int32_t *)job->region[IDS])[i] = 5;
	memcpy(before, job->region[PAIRS], bytes);
	test_refused_members();
	test_refused_fields();
	ok(!memcmp(before, job->region[PAIRS], bytes), "nothing was written");
	test_refused_overlaps();
	free(before);
}

/* MOE_COMBINE on its own. */

static double combined(const struct moe *m, const float *before, uint32_t row,
		       uint32_t column)
{
	const float *pairs = job->region[PAIRS];
	const float *weights = job->region[WEIGHTS];
	double sum = m->accumulate ? before[row * m->hidden + column] : 0;

	for (uint32_t j = row * m->k; j < (row + 1) * m->k; j++)
		sum += (double)weights[j] * pairs[j * m->hidden + column];
	return sum;
}

static void test_combine(bool accumulate)
{
	const struct moe m = { 5, 3, 8, 48, 32, 0, { 0, 0, 0 }, accumulate };
	const uint64_t row = 48 * 4;
	struct m6npu_cmd cmd = moe_combine(&m);
	struct m6_cost cost, dry;
	const float *dst;
	float before[5 * 48];
	double worst = 0;

	moe_rows(job, &m);
	dst = job->region[DST];
	memcpy(before, dst, sizeof(before));
	ok(!m6_exec_command(exec, job, &cmd, true, &dry) &&
	   !memcmp(before, dst, sizeof(before)), "dry: nothing is written");
	ok(!m6_exec_command(exec, job, &cmd, false, &cost) &&
	   !memcmp(&cost, &dry, sizeof(cost)), "dry: the same price");
	for (uint32_t i = 0; i < 5 * 48; i++)
		worst = fmax(worst, fabs(dst[i] - combined(&m, before, i / 48,
							   i % 48)));
	ok(worst < 1e-6, "MOE_COMBINE%s is off by %g",
	   accumulate ? ", accumulating," : "", worst);
	ok(cost.dram_bytes == 5 * row * (accumulate ? 5 : 4) + 5 * 3 * 4 &&
	   cost.macs == 4 * 5 * 3 * 48, "MOE_COMBINE's price");
}

static void test_combine_refused(void)
{
	const struct moe m = { 5, 3, 8, 48, 32, 0, { 0, 0, 0 }, false };
	const struct m6npu_cmd good = moe_combine(&m);
	struct m6npu_cmd cmd = good;

	cmd.args.moe.experts = 8;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "combine: a field not its own");
	cmd = good;
	cmd.args.moe.k = 0;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "combine: of no choice");
	cmd = good;
	cmd.operand[0] = M6NPU_OPERAND(PAIRS, 0);
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "combine: in place");
	cmd = good;
	cmd.args.moe.rows = 6;
	ok(run(&cmd) == M6NPU_EXC_BOUNDS, "combine: rows beyond the region");
}

static void test_combine_rows(void)
{
	const struct moe m = { 5, 3, 8, 48, 32, 0, { 0, 0, 0 }, false };
	struct m6npu_cmd cmd = moe_combine(&m);
	const float *dst = job->region[DST];
	float before[5 * 48];

	memcpy(before, dst, sizeof(before));
	random_floats(job->region[WEIGHTS], 5 * 3);
	fake_step(job, 2, 0);
	ok(!run(&cmd) && memcmp(before + 48, dst + 48, 48 * 4) &&
	   !memcmp(before + 2 * 48, dst + 2 * 48, 3 * 48 * 4),
	   "combine: live rows only");
	fake_no_step(job);
	memcpy(before, dst, sizeof(before));
	random_floats(job->region[WEIGHTS], 5 * 3);
	job->polls_left = 3;
	ok(run(&cmd) == M6NPU_EXC_ABORTED &&
	   memcmp(before + 2 * 48, dst + 2 * 48, 48 * 4) &&
	   !memcmp(before + 3 * 48, dst + 3 * 48, 2 * 48 * 4),
	   "combine: cancelled in the middle");
	job->polls_left = UINT64_MAX;
}

/* 1 is lost beside 1e8, unless 1e8 has gone before it comes. */
static void test_combine_order(void)
{
	static const float pairs[] = { 1, 1e8f, -1e8f, 1e8f, -1e8f, 1 };
	const struct moe m = { 2, 3, 8, 1, 32, 0, { 0, 0, 0 }, false };
	struct m6npu_cmd cmd = moe_combine(&m);
	const float *dst;

	moe_rows(job, &m);
	dst = job->region[DST];
	memcpy(job->region[PAIRS], pairs, sizeof(pairs));
	for (uint32_t i = 0; i < 6; i++)
		((float *)job->region[WEIGHTS])[i] = 1;
	ok(!run(&cmd) && dst[0] == 0 && dst[1] == 1, "combine: by rising j");
}

int main(void)
{
	static const struct moe moes[] = {
		{ 1, 2, 8, 256, 256, 0, { 0, 0, 0 }, false },
		{ 33, 4, 8, 64, 96, 1, { 0, 0, 0 }, true },
		{ 64, 8, 60, 64, 32, 0, { M6NPU_TYPE_Q4_0, M6NPU_TYPE_Q4_0,
					  M6NPU_TYPE_Q8_0 }, false },
		{ 17, 6, 13, 256, 256, 0, { M6NPU_TYPE_Q4_K, M6NPU_TYPE_Q4_K,
					    M6NPU_TYPE_Q6_K }, true },
	};
	static const struct price prices[] = {
		{ 1, 3, 2 }, { 2, 2, 1 }, { 3, 1, 1 }, { 65535, 1, 1 },
	};

	exec = m6_exec_create(1);
	many = m6_exec_create(3);
	job = fake_create();
	if (!ok(exec && many, "created"))
		return done();
	for (unsigned int i = 0; i < sizeof(moes) / sizeof(*moes); i++)
		test_same(&moes[i]);
	test_passes();
	test_members_only();
	for (unsigned int i = 0; i < sizeof(prices) / sizeof(*prices); i++)
		test_price(&prices[i]);
	test_refused();
	test_combine(false);
	test_combine(true);
	test_combine_refused();
	test_combine_rows();
	test_combine_order();
	fake_destroy(job);
	m6_exec_destroy(exec);
	m6_exec_destroy(many);
	return done();
}
