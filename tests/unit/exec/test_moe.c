// SPDX-License-Identifier: MIT
/* ROUTER_TOPK, MOE_FFN, EXPERT_PREFETCH. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "fake.h"

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

/* ROUTER_TOPK */

struct routing {
	uint32_t experts, k, flags;
	float scale;
	bool bias;
	uint32_t levels;		/* of logits, 0: all differ */
};

static double probability(const struct routing *r, const float *logits,
			  uint32_t i)
{
	double sum = 0;

	if (r->flags & M6NPU_ROUTER_SIGMOID)
		return 1 / (1 + exp(-logits[i]));
	for (uint32_t j = 0; j < r->experts; j++)
		sum += exp(logits[j]);
	return exp(logits[i]) / sum;
}

static bool routed(const struct routing *r, const float *logits,
		   const float *bias, const int32_t *ids, const float *weights)
{
	double total = 0, factor = r->scale != 0 ? r->scale : 1;
	bool taken[512] = { false };

	for (uint32_t i = 0; i < r->k; i++) {
		uint32_t best = r->experts;
		double top = 0;

		for (uint32_t j = 0; j < r->experts; j++) {
			double p = probability(r, logits, j) +
				   (r->bias ? bias[j] : 0);

			/* Ties within rounding are ties: logits are few. */
			if (!taken[j] && (best == r->experts ||
					  p > top + 1e-9)) {
				best = j;
				top = p;
			}
		}
		taken[best] = true;
		total += probability(r, logits, best);
		if (ids[i] != (int32_t)best)
			return false;
	}
	if (r->flags & M6NPU_ROUTER_RENORMALIZE)
		factor /= total;
	for (uint32_t i = 0; i < r->k; i++) {
		if (fabs(weights[i] - probability(r, logits, ids[i]) *
			 factor) > 1e-5)
			return false;
	}
	return true;
}

static struct m6npu_cmd router_command(const struct routing *r, uint32_t rows)
{
	struct m6npu_cmd cmd = fake_command(M6NPU_OP_ROUTER_TOPK);

	for (unsigned int i = 0; i < (r->bias ? 4 : 3); i++)
		cmd.operand[i] = M6NPU_OPERAND(i, 0);
	cmd.args.router.rows = rows;
	cmd.args.router.experts = r->experts;
	cmd.args.router.k = r->k;
	cmd.args.router.flags = r->flags;
	cmd.args.router.scale = float_bits(r->scale);
	return cmd;
}

static void test_router(const struct routing *r)
{
	const uint32_t rows = 5;
	struct m6npu_cmd cmd = router_command(r, rows);
	int32_t *ids = fake_region(job, 0, rows * r->k * 4);
	float *weights = fake_region(job, 1, rows * r->k * 4);
	float *logits = fake_region(job, 2, rows * r->experts * 4);
	float *bias = fake_region(job, 3, r->experts * 4);
	bool right = true;

	random_floats(logits, rows * r->experts);
	for (uint32_t i = 0; i < rows * r->experts; i++)
		logits[i] = r->levels ? fake_random() % r->levels :
					logits[i] * 4;
	for (uint32_t i = 0; i < r->experts; i++)
		bias[i] = (fake_random() % 8) / 16.0f;
	ok(!run(&cmd), "ROUTER_TOPK runs");
	for (uint32_t i = 0; i < rows; i++)
		right &= routed(r, logits + i * r->experts, bias,
				ids + i * r->k, weights + i * r->k);
	ok(right, "%u of %u, flags %u, scale %g, %s, %u levels", r->k,
	   r->experts, r->flags, r->scale, r->bias ? "biased" : "unbiased",
	   r->levels);
}

static void test_router_garbage(uint32_t flags)
{
	const struct routing r = { 6, 3, flags, 0, false, 0 };
	struct m6npu_cmd cmd = router_command(&r, 3);
	int32_t *ids = fake_region(job, 0, 3 * 3 * 4);
	float *weights = fake_region(job, 1, 3 * 3 * 4);
	float *logits = fake_region(job, 2, 3 * 6 * 4);

	for (uint32_t i = 0; i < 6; i++) {
		logits[i] = NAN;
		logits[6 + i] = i == 4 ? 1 : i == 5 ? 0 : NAN;
		logits[12 + i] = i == 3 ? INFINITY : -INFINITY;
	}
	ok(!run(&cmd), "ROUTER_TOPK of NaN runs");
	ok(ids[0] == 0 && ids[1] == 1 && ids[2] == 2, "all NaN: the first");
	ok(ids[3] == 4 && ids[4] == 5 && ids[5] == 0 && weights[5] == 0,
	   "some NaN: last");
	ok(ids[6] == 3 && weights[6] == 1 && weights[7] == 0, "infinity: all");
	cmd.args.router.k = 7;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "more than there are");
	cmd.args.router.k = 3;
	cmd.args.router.flags = 4;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "an unknown flag");
}

/* MOE_FFN */

enum { DST, SRC, IDS, WEIGHTS };

struct moe {
	uint32_t rows, k, experts, hidden, ffn, act;
	uint8_t type[3];		/* gate, up, down */
	bool accumulate;
};

static uint64_t align64(uint64_t bytes)
{
	return (bytes + 63) & ~63ull;
}

static uint64_t matrix_at(const struct moe *m, unsigned int matrix)
{
	uint64_t at = 0;

	for (unsigned int i = 0; i < matrix; i++)
		at = align64(at + m->ffn * weight_bytes(m->type[i],
							m->hidden));
	return at;
}

static uint64_t expert_bytes(const struct moe *m)
{
	return matrix_at(m, 2) + m->hidden * weight_bytes(m->type[2], m->ffn);
}

static void make_experts(const struct moe *m)
{
	uint64_t count = (uint64_t)m->ffn * m->hidden;
	uint64_t bytes = align64(expert_bytes(m));
	uint8_t *memory = fake_experts(job, m->experts, bytes);
	float *plain = malloc(count * sizeof(float));

	for (uint32_t i = 0; i < m->experts * 3; i++) {
		random_floats(plain, count);
		for (uint64_t j = 0; j < count; j++)
			plain[j] /= 16;
		weight_encode(m->type[i % 3], plain,
			      memory + i / 3 * bytes + matrix_at(m, i % 3),
			      i % 3 == 2 ? m->hidden : m->ffn,
			      i % 3 == 2 ? m->ffn : m->hidden);
	}
	free(plain);
}

static struct m6npu_cmd moe_command(const struct moe *m)
{
	struct m6npu_cmd cmd = fake_command(M6NPU_OP_MOE_FFN);

	for (unsigned int i = 0; i < 4; i++)
		cmd.operand[i] = M6NPU_OPERAND(i, 0);
	memcpy(cmd.type + 1, m->type, 3);
	cmd.flags = m->accumulate ? M6NPU_CMD_ACCUMULATE : 0;
	cmd.layer = 3;
	cmd.args.moe.rows = m->rows;
	cmd.args.moe.k = m->k;
	cmd.args.moe.experts = m->experts;
	cmd.args.moe.hidden = m->hidden;
	cmd.args.moe.ffn = m->ffn;
	cmd.args.moe.act = m->act;
	return cmd;
}

static void make_rows(const struct moe *m)
{
	float *dst = fake_region(job, DST, m->rows * m->hidden * 4);
	float *src = fake_region(job, SRC, m->rows * m->hidden * 4);
	int32_t *ids = fake_region(job, IDS, m->rows * m->k * 4);
	float *weights = fake_region(job, WEIGHTS, m->rows * m->k * 4);

	random_floats(dst, m->rows * m->hidden);
	random_floats(src, m->rows * m->hidden);
	random_floats(weights, m->rows * m->k);
	for (uint32_t i = 0; i < m->rows * m->k; i++)
		ids[i] = fake_random() % m->experts;
}

static double activate(uint32_t kind, double x)
{
	if (kind == M6NPU_ACT_SILU)
		return x / (1 + exp(-x));
	return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) *
				   (x + 0.044715 * x * x * x)));
}

static double dot(uint8_t type, const uint8_t *row, const double *x,
		  uint32_t n)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += weight_at(type, row, i) * x[i];
	return sum;
}

/* out += weight * expert(x) */
static void add_expert(const struct moe *m, uint32_t id, double weight,
		       const double *x, double *out)
{
	const uint8_t *expert = (uint8_t *)job->expert_memory +
				id * align64(expert_bytes(m));
	double *inner = malloc(m->ffn * sizeof(*inner));

	for (uint32_t i = 0; i < m->ffn; i++) {
		double gate = dot(m->type[0], expert + i *
				  weight_bytes(m->type[0], m->hidden), x,
				  m->hidden);

		inner[i] = activate(m->act, gate) *
			   dot(m->type[1], expert + matrix_at(m, 1) + i *
			       weight_bytes(m->type[1], m->hidden), x,
			       m->hidden);
	}
	for (uint32_t i = 0; i < m->hidden; i++)
		out[i] += weight * dot(m->type[2], expert + matrix_at(m, 2) +
				       i * weight_bytes(m->type[2], m->ffn),
				       inner, m->ffn);
	free(inner);
}

/* Relative to the size of the values. */
static double worst(const struct moe *m, const float *before)
{
	const float *src = job->region[SRC], *dst = job->region[DST];
	const int32_t *ids = job->region[IDS];
	const float *weights = job->region[WEIGHTS];
	double *x = malloc(m->hidden * sizeof(*x));
	double *out = malloc(m->hidden * sizeof(*out));
	double worst = 0, size = 0;

	for (uint32_t row = 0; row < m->rows; row++) {
		for (uint32_t i = 0; i < m->hidden; i++) {
			x[i] = src[row * m->hidden + i];
			out[i] = m->accumulate ?
				 before[row * m->hidden + i] : 0;
		}
		for (uint32_t j = 0; j < m->k; j++)
			add_expert(m, ids[row * m->k + j],
				   weights[row * m->k + j], x, out);
		for (uint32_t i = 0; i < m->hidden; i++) {
			double error = fabs(dst[row * m->hidden + i] - out[i]);

			worst = error > worst || isnan(error) ? error : worst;
			size = fabs(out[i]) > size ? fabs(out[i]) : size;
		}
	}
	free(x);
	free(out);
	return worst / size;
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

	make_experts(m);
	make_rows(m);
	memcpy(before, job->region[DST], bytes);
	ok(!run(&cmd), "MOE_FFN runs");
	error = worst(m, before);
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

	make_experts(&m);
	make_rows(&m);
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
	struct m6_cost cost;
	uint64_t bytes = m.rows * m.hidden * 4;
	float before[4 * 64];
	int32_t *ids;

	make_experts(&m);
	make_rows(&m);
	memcpy(before, job->region[DST], bytes);
	ids = job->region[IDS];
	ids[0] = 3;
	ids[1] = 3;
	job->expert_code = M6NPU_EXC_EXPERT_FAULT;
	ok(run(&cmd) == M6NPU_EXC_EXPERT_FAULT, "a missing expert");
	job->expert_code = 0;
	job->experts[3].size = expert_bytes(&m) - 1;
	ok(run(&cmd) == M6NPU_EXC_BOUNDS, "an expert too small");
	job->experts[3].size = expert_bytes(&m);
	job->experts[3].addr = job->expert_size;
	ok(run(&cmd) == M6NPU_EXC_MMU_PAGE_FAULT, "an expert not mapped");
	make_experts(&m);
	ids[7] = 8;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "an id too large");
	ids[7] = -1;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "a negative id");
	ok(!memcmp(before, job->region[DST], bytes), "nothing was written");
	fake_step(job, 2, 0);
	ids[0] = ids[1] = ids[2] = 5;
	ids[3] = 1;
	job->looked_up = 0;
	ok(!m6_exec_command(exec, job, &cmd, false, &cost) &&
	   job->looked_up == 2, "only experts of live rows are looked up");
	ok(cost.macs == 2 * 2 * 3 * 64 * 32, "price in multiply-accumulates");
	ok(cost.dram_bytes == 2 * expert_bytes(&m) + 2 * 64 * 4 * 2 +
	   2 * 2 * 4 * 2, "price in bytes");
	ok(!memcmp(before + 2 * m.hidden,
		   (float *)job->region[DST] + 2 * m.hidden, bytes / 2),
	   "only live rows are written");
	ok(!m6_exec_command(exec, job, &cmd, true, &cost) &&
	   cost.dram_bytes == 4 * expert_bytes(&m) + 2 * 64 * 4 * 2 +
	   2 * 2 * 4 * 2 && job->looked_up == 2, "dry: every pair another");
	job->polls_left = 3;
	ok(run(&cmd) == M6NPU_EXC_ABORTED, "a cancelled job");
	job->polls_left = UINT64_MAX;
	fake_no_step(job);
}

static void test_prefetch(void)
{
	struct m6npu_cmd cmd = fake_command(M6NPU_OP_EXPERT_PREFETCH);
	int32_t *ids = fake_region(job, 0, 24);

	fake_region(job, 1, 24);
	cmd.operand[0] = M6NPU_OPERAND(0, 0);
	cmd.operand[1] = M6NPU_OPERAND(1, 0);
	cmd.type[0] = M6NPU_TYPE_I32;
	cmd.args.moe.rows = 3;
	cmd.args.moe.k = 2;
	ok(!run(&cmd), "EXPERT_PREFETCH");
	ids[5] = 512;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND,
	   "EXPERT_PREFETCH of no such expert");
}

int main(void)
{
	static const struct routing routings[] = {
		{ 8, 2, 0, 0, false, 0 },
		{ 64, 8, M6NPU_ROUTER_RENORMALIZE, 0, false, 0 },
		{ 64, 6, M6NPU_ROUTER_SIGMOID, 2.5f, true, 0 },
		{ 256, 8, M6NPU_ROUTER_SIGMOID | M6NPU_ROUTER_RENORMALIZE,
		  2.5f, true, 5 },
		{ 16, 16, M6NPU_ROUTER_RENORMALIZE, 0, true, 3 },
		{ 512, 64, 0, 0, false, 2 },
		{ 1, 1, 0, 0, false, 0 },
	};
	static const struct moe moes[] = {
		{ 1, 2, 8, 256, 256, 0, { 0, 0, 0 }, false },
		{ 9, 4, 8, 64, 96, 1, { 0, 0, 0 }, true },
	};

	exec = m6_exec_create(1);
	many = m6_exec_create(3);
	job = fake_create();
	if (!ok(exec && many, "created"))
		return done();
	for (unsigned int i = 0; i < sizeof(routings) / sizeof(*routings); i++)
		test_router(&routings[i]);
	test_router_garbage(0);
	test_router_garbage(M6NPU_ROUTER_RENORMALIZE);
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
	test_passes();
	test_refused();
	test_prefetch();
	fake_destroy(job);
	m6_exec_destroy(exec);
	m6_exec_destroy(many);
	return done();
}
