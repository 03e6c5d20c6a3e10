// SPDX-License-Identifier: MIT
/* MOE_FFN, token by token. */
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

/* 0: all is F32 and nothing is rounded. */
static unsigned int type_sum(const struct moe *m)
{
	return m->type[0] + m->type[1] + m->type[2];
}

static bool row_by_row(const struct moe *m, const float *tile)
{
	struct m6npu_cmd cmd = moe_command(m);
	bool same = true;

	cmd.args.moe.rows = 1;
	for (uint32_t row = 0; row < m->rows; row++) {
		cmd.operand[DST] = M6NPU_OPERAND(DST, row * m->hidden * 4);
		cmd.operand[SRC] = M6NPU_OPERAND(SRC, row * m->hidden * 4);
		cmd.operand[IDS] = M6NPU_OPERAND(IDS, row * m->k * 4);
		cmd.operand[WEIGHTS] = M6NPU_OPERAND(WEIGHTS, row * m->k * 4);
		same &= !run(&cmd);
	}
	return same && !memcmp(tile, job->region[DST],
			       m->rows * m->hidden * 4);
}

static void test_moe(const struct moe *m)
{
	struct m6npu_cmd cmd = moe_command(m);
	uint64_t bytes = m->rows * m->hidden * 4;
	float *before = malloc(bytes), *tile = malloc(bytes);
	double error;

	moe_experts(job, m);
	moe_rows(job, m);
	memcpy(before, job->region[DST], bytes);
	ok(!run(&cmd), "MOE_FFN runs");
	error = moe_error(job, m, before);
	ok(error < (type_sum(m) ? 0.03 : 1e-5),
	   "%u rows, %u of %u experts, %s/%s/%s%s, off by %g", m->rows, m->k,
	   m->experts, weight_name(m->type[0]), weight_name(m->type[1]),
	   weight_name(m->type[2]), m->accumulate ? ", accumulates" : "",
	   error);
	memcpy(tile, job->region[DST], bytes);
	memcpy(job->region[DST], before, bytes);
	ok(!run_on(many, &cmd) && !memcmp(tile, job->region[DST], bytes),
	   "same on three threads");
	memcpy(job->region[DST], before, bytes);
	ok(row_by_row(m, tile), "same row by row");
	free(before);
	free(tile);
}

/* So many rows that they go in several passes. */
static void test_passes(void)
{
	const struct moe m = { 2000, 8, 8, 256, 256, M6NPU_ACT_SILU,
			       { M6NPU_TYPE_Q4_0, M6NPU_TYPE_Q4_0,
				 M6NPU_TYPE_Q4_0 }, false };
	struct m6npu_cmd cmd = moe_command(&m);
	uint32_t last = m.rows - 1;
	float *dst, row[256];

	moe_experts(job, &m);
	moe_rows(job, &m);
	dst = job->region[DST];
	ok(!run_on(many, &cmd), "many rows");
	memcpy(row, dst + last * m.hidden, sizeof(row));
	memset(dst + last * m.hidden, 0, sizeof(row));
	cmd.args.moe.rows = 1;
	cmd.operand[DST] = M6NPU_OPERAND(DST, last * m.hidden * 4);
	cmd.operand[SRC] = M6NPU_OPERAND(SRC, last * m.hidden * 4);
	cmd.operand[IDS] = M6NPU_OPERAND(IDS, last * m.k * 4);
	cmd.operand[WEIGHTS] = M6NPU_OPERAND(WEIGHTS, last * m.k * 4);
	ok(!run(&cmd) && !memcmp(row, dst + last * m.hidden, sizeof(row)),
	   "same for the last of many rows");
}

static void test_refused(void)
{
	const struct moe m = { 4, 2, 8, 64, 32, M6NPU_ACT_GELU,
			       { M6NPU_TYPE_Q8_0, M6NPU_TYPE_Q8_0,
				 M6NPU_TYPE_Q8_0 }, false };
	struct m6npu_cmd cmd = moe_command(&m);
	uint64_t bytes = m.rows * m.hidden * 4;
	float before[4 * 64];
	int32_t *ids;

	moe_experts(job, &m);
	moe_rows(job, &m);
	memcpy(before, job->region[DST], bytes);
	ids = job->region[IDS];
	ids[0] = 3;
	ids[1] = 3;
	job->expert_code = M6NPU_EXC_EXPERT_FAULT;
	ok(run(&cmd) == M6NPU_EXC_EXPERT_FAULT, "a missing expert");
	job->expert_code = 0;
	job->experts[3].size = moe_expert_bytes(&m) - 1;
	ok(run(&cmd) == M6NPU_EXC_BOUNDS, "an expert too small");
	job->experts[3].size = moe_expert_bytes(&m);
	job->experts[3].addr = job->expert_size;
	ok(run(&cmd) == M6NPU_EXC_MMU_PAGE_FAULT, "an expert not mapped");
	moe_experts(job, &m);
	ids[7] = 8;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "an id too large");
	ids[7] = -1;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "a negative id");
	ok(!memcmp(before, job->region[DST], bytes), "nothing was written");
	fake_step(job, 2, 0);
	ids[0] = ids[1] = ids[2] = 5;
	ids[3] = 1;
	job->looked_up = 0;
	ok(!run(&cmd) && job->looked_up == 2,
	   "only experts of live rows are looked up");
	ok(!memcmp(before + 2 * m.hidden,
		   (float *)job->region[DST] + 2 * m.hidden, bytes / 2),
	   "only live rows are written");
	job->polls_left = 3;
	ok(run(&cmd) == M6NPU_EXC_ABORTED, "a cancelled job");
	job->polls_left = UINT64_MAX;
	fake_no_step(job);
}

/* Every pair reads the weights of its expert. */
static void test_price(void)
{
	const struct moe m = { 3, 2, 8, 64, 32, M6NPU_ACT_GELU,
			       { M6NPU_TYPE_Q8_0, M6NPU_TYPE_F16,
				 M6NPU_TYPE_F32 }, false };
	static const int32_t ids[] = { 5, 1, 5, 2, 1, 5 };
	const uint64_t rows = 3 * 64 * 4, choices = 3 * 2 * 4;
	struct m6npu_cmd cmd = moe_command(&m);
	struct m6_cost cost, dry;

	moe_experts(job, &m);
	moe_rows(job, &m);
	memcpy(job->region[IDS], ids, sizeof(ids));
	job->sram_asked = 0;
	ok(!m6_exec_command(exec, job, &cmd, false, &cost) &&
	   cost.dram_bytes == 6 * moe_expert_bytes(&m) + 2 * rows +
	   2 * choices && !cost.sram_bytes, "price in bytes");
	ok(cost.macs == 6 * (1 + 2 + 4) * 64 * 32,
	   "price in multiply-accumulates");
	ok(job->sram_asked == 3, "asks for SRAM once an expert");
	ok(!m6_exec_command(exec, job, &cmd, true, &dry) &&
	   !memcmp(&cost, &dry, sizeof(cost)), "a dry run costs the same");
	cmd.flags = M6NPU_CMD_ACCUMULATE;
	ok(!m6_exec_command(exec, job, &cmd, false, &dry) &&
	   dry.dram_bytes == cost.dram_bytes + rows, "accumulating reads more");
	cmd.flags = 0;
	job->in_sram[5] = true;
	ok(!m6_exec_command(exec, job, &cmd, false, &cost) &&
	   cost.sram_bytes == 3 * moe_expert_bytes(&m) &&
	   cost.dram_bytes == 3 * moe_expert_bytes(&m) + 2 * rows +
	   2 * choices, "what lies in SRAM is read there");
	job->in_sram[5] = false;
}

static bool all_nan(const float *row, uint32_t count, bool nan)
{
	for (uint32_t i = 0; i < count; i++) {
		if (!!isnan(row[i]) != nan)
			return false;
	}
	return true;
}

/* What the kernels can't hold is not lost on the way, nor shared with others. */
static void test_garbage(uint8_t type, float factor, const char *what)
{
	const struct moe m = { 3, 2, 4, 256, 256, M6NPU_ACT_SILU,
			       { type, type, type }, false };
	struct m6npu_cmd cmd = moe_command(&m);
	float *src, *dst;

	moe_experts(job, &m);
	moe_rows(job, &m);
	src = job->region[SRC];
	dst = job->region[DST];
	for (uint32_t i = 0; i < m.hidden; i++)
		src[m.hidden + i] *= isfinite(factor) || !i ? factor : 1;
	ok(!run(&cmd) && all_nan(dst, m.hidden, false) &&
	   all_nan(dst + m.hidden, m.hidden, true) &&
	   all_nan(dst + 2 * m.hidden, m.hidden, false),
	   "%s: %s makes its row NaN, and no other", weight_name(type), what);
}

int main(void)
{
	static const struct moe moes[] = {
		{ 1, 2, 8, 256, 256, 0, { 0, 0, 0 }, false },
		{ 9, 4, 8, 64, 96, 1, { 0, 0, 0 }, true },
	};

	exec = m6_exec_create(1);
	many = m6_exec_create(3);
	job = fake_create();
	if (!ok(exec && many, "created"))
		return done();
	for (unsigned int i = 0; i < 2; i++)
		test_moe(&moes[i]);
	for (unsigned int i = 0; i < weight_type_count; i++) {
		uint8_t a = weight_types[i];
		uint8_t b = weight_types[(i + 1) % weight_type_count];
		struct moe m = { 7, 3, 5, 256, 256, i % 2, { a, a, b },
				 i % 2 };

		test_moe(&m);
		m.type[1] = b;
		test_moe(&m);
	}
	for (unsigned int i = 0; i < weight_type_count; i++) {
		/* Floats have no need of it. */
		if (weight_types[i] < M6NPU_TYPE_Q4_0)
			continue;
		test_garbage(weight_types[i], NAN, "a NaN");
		test_garbage(weight_types[i], INFINITY, "an infinity");
		test_garbage(weight_types[i], 1e30f, "an overflow within");
	}
	test_passes();
	test_refused();
	test_price();
	fake_destroy(job);
	m6_exec_destroy(exec);
	m6_exec_destroy(many);
	return done();
}
