// SPDX-License-Identifier: MIT
/* GEMM against sums in double, and that a row's result is its own affair. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "fake.h"

enum { DST, SRC, WEIGHT, BIAS };

struct shape {
	uint32_t rows, n, k, src_stride, dst_stride;
	bool bias, accumulate;
};

struct fixture {
	struct m6_job *job;
	struct m6npu_cmd cmd;
	float *dst, *src, *before;
	uint8_t *weight;
	float *bias;
	struct shape s;
	uint8_t type;
};

static void setup(struct fixture *f, uint8_t type, const struct shape *s)
{
	float *plain = calloc((uint64_t)s->n * s->k, sizeof(float));
	uint64_t dst_count = (s->rows - 1ull) * s->dst_stride + s->n;
	uint64_t src_count = (s->rows - 1ull) * s->src_stride + s->k;

	f->s = *s;
	f->type = type;
	f->job = fake_create();
	random_floats(plain, (uint64_t)s->n * s->k);
	f->dst = fake_region(f->job, DST, dst_count * 4);
	f->before = malloc(dst_count * 4);
	random_floats(f->dst, dst_count);
	memcpy(f->before, f->dst, dst_count * 4);
	f->src = fake_region(f->job, SRC, src_count * 4);
	random_floats(f->src, src_count);
	f->weight = fake_region(f->job, WEIGHT,
				s->n * weight_bytes(type, s->k));
	weight_encode(type, plain, f->weight, s->n, s->k);
	f->bias = fake_region(f->job, BIAS, s->n * 4);
	random_floats(f->bias, s->n);
	free(plain);

	f->cmd = fake_command(M6NPU_OP_GEMM);
	f->cmd.type[2] = type;
	f->cmd.flags = s->accumulate ? M6NPU_CMD_ACCUMULATE : 0;
	for (unsigned int i = 0; i < (s->bias ? 4 : 3); i++)
		f->cmd.operand[i] = M6NPU_OPERAND(i, 0);
	f->cmd.args.gemm.rows = s->rows;
	f->cmd.args.gemm.n = s->n;
	f->cmd.args.gemm.k = s->k;
	f->cmd.args.gemm.src_stride = s->src_stride;
	f->cmd.args.gemm.dst_stride = s->dst_stride;
}

static void teardown(struct fixture *f)
{
	fake_destroy(f->job);
	free(f->before);
}

static uint32_t run(struct fixture *f, struct m6_exec *exec)
{
	struct m6_cost cost;

	return m6_exec_command(exec, f->job, &f->cmd, false, &cost);
}

/*
 * How far rounding of the activations may take a sum: some standard
 * deviations of k errors that are uniform within half a step.
 */
static double tolerance(uint8_t type, uint32_t k)
{
	static const double step[M6NPU_TYPE_COUNT] = {
		[M6NPU_TYPE_F32] = 1e-7, [M6NPU_TYPE_F16] = 1.0 / 1024,
		[M6NPU_TYPE_BF16] = 1.0 / 128, [M6NPU_TYPE_Q4_0] = 1.0 / 127,
		[M6NPU_TYPE_Q4_1] = 1.0 / 127, [M6NPU_TYPE_Q8_0] = 1.0 / 127,
		[M6NPU_TYPE_Q4_K] = 1.0 / 127, [M6NPU_TYPE_Q6_K] = 1.0 / 127,
	};

	return 6 * step[type] * 0.29 * 0.6 * sqrt(k) + 1e-5;
}

static double expected(const struct fixture *f, uint32_t row, uint32_t column)
{
	const struct shape *s = &f->s;
	const uint8_t *weight = f->weight +
				column * weight_bytes(f->type, s->k);
	double sum = s->bias ? f->bias[column] : 0;

	if (s->accumulate)
		sum += f->before[row * s->dst_stride + column];
	for (uint32_t i = 0; i < s->k; i++)
		sum += weight_at(f->type, weight, i) *
		       f->src[row * s->src_stride + i];
	return sum;
}

static double worst(const struct fixture *f)
{
	double worst = 0;

	for (uint32_t row = 0; row < f->s.rows; row++) {
		for (uint32_t i = 0; i < f->s.n; i++) {
			double error = fabs(f->dst[row * f->s.dst_stride + i] -
					    expected(f, row, i));

			worst = error > worst || isnan(error) ? error : worst;
		}
	}
	return worst;
}

/* Columns between n and the stride are somebody else's. */
static bool gaps_untouched(const struct fixture *f)
{
	for (uint32_t row = 0; row + 1 < f->s.rows; row++) {
		uint64_t at = (uint64_t)row * f->s.dst_stride + f->s.n;

		if (memcmp(f->dst + at, f->before + at,
			   (f->s.dst_stride - f->s.n) * sizeof(float)))
			return false;
	}
	return true;
}

static void test_values(struct m6_exec *exec, uint8_t type)
{
	static const struct shape shapes[] = {
		{ 1, 1, 256, 256, 1, false, false },
		{ 1, 96, 512, 512, 96, false, false },
		{ 5, 33, 256, 300, 40, true, false },
		{ 19, 70, 768, 768, 70, true, true },
	};

	for (unsigned int i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
		struct fixture f;
		double error;

		setup(&f, type, &shapes[i]);
		ok(!run(&f, exec), "%s shape %u runs", weight_name(type), i);
		error = worst(&f);
		ok(error <= tolerance(type, f.s.k), "%s shape %u, off by %g",
		   weight_name(type), i, error);
		ok(gaps_untouched(&f), "%s shape %u leaves gaps alone",
		   weight_name(type), i);
		teardown(&f);
	}
}

/* Row by row must give what the tile gave, to the bit. */
static void test_batch(struct m6_exec *exec, struct m6_exec *many,
		       uint8_t type)
{
	const struct shape s = { 67, 130, 768, 768, 130, true, false };
	struct fixture f;
	float *tile;
	uint64_t bytes = (uint64_t)s.rows * s.n * sizeof(float);
	bool same = true;

	setup(&f, type, &s);
	tile = malloc(bytes);
	run(&f, exec);
	memcpy(tile, f.dst, bytes);
	memset(f.dst, 0, bytes);
	ok(!run(&f, many) && !memcmp(tile, f.dst, bytes),
	   "%s same on three threads", weight_name(type));
	memset(f.dst, 0, bytes);
	f.cmd.args.gemm.rows = 1;
	for (uint32_t row = 0; row < s.rows; row++) {
		f.cmd.operand[0] = M6NPU_OPERAND(DST, row * s.n * 4);
		f.cmd.operand[1] = M6NPU_OPERAND(SRC, row * s.k * 4);
		same &= !run(&f, exec);
	}
	ok(same && !memcmp(tile, f.dst, bytes), "%s same row by row",
	   weight_name(type));
	free(tile);
	teardown(&f);
}

/* One row's garbage stays in its row. */
static void test_garbage(struct m6_exec *exec, uint8_t type, float bad,
			 const char *name, bool spoils)
{
	const struct shape s = { 3, 32, 512, 512, 32, false, false };
	struct fixture f;
	float *good;
	bool spoiled = true;

	setup(&f, type, &s);
	run(&f, exec);
	good = malloc(s.rows * s.n * sizeof(float));
	memcpy(good, f.dst, s.rows * s.n * sizeof(float));
	f.src[s.k + 100] = bad;
	ok(!run(&f, exec), "%s with %s runs", weight_name(type), name);
	ok(!memcmp(good, f.dst, s.n * 4) &&
	   !memcmp(good + 2 * s.n, f.dst + 2 * s.n, s.n * 4),
	   "%s with %s: other rows same", weight_name(type), name);
	for (uint32_t i = 0; i < s.n; i++)
		spoiled &= !isfinite(f.dst[s.n + i]);
	ok(spoiled == spoils, "%s with %s: row %s", weight_name(type), name,
	   spoils ? "not finite" : "finite");
	free(good);
	teardown(&f);
}

static void test_tiny(struct m6_exec *exec, uint8_t type)
{
	const struct shape s = { 2, 16, 256, 256, 16, false, false };
	struct fixture f;
	bool finite = true;

	setup(&f, type, &s);
	for (uint32_t i = 0; i < s.k; i++) {
		f.src[i] = i % 2 ? 1e-42f : -3e-39f;
		f.src[s.k + i] = i % 3 ? 0 : 1e-33f;
	}
	ok(!run(&f, exec), "%s with denormals runs", weight_name(type));
	for (uint32_t i = 0; i < s.rows * s.n; i++)
		finite &= fabsf(f.dst[i]) < 1e-20f;
	ok(finite, "%s with denormals gives about 0", weight_name(type));
	teardown(&f);
}

static void test_rows(struct m6_exec *exec)
{
	const struct shape s = { 4, 8, 32, 32, 8, false, false };
	struct fixture f;

	setup(&f, M6NPU_TYPE_F32, &s);
	fake_step(f.job, 2, 0);
	ok(!run(&f, exec), "runs with a step");
	ok(f.dst[s.n] != f.before[s.n] &&
	   !memcmp(f.dst + 2 * s.n, f.before + 2 * s.n, 2 * s.n * 4),
	   "only live rows are written");
	memcpy(f.dst, f.before, s.rows * s.n * 4);
	f.job->step.out_count = 1;
	f.cmd.flags |= M6NPU_CMD_OUT_ROWS;
	ok(!run(&f, exec) && f.dst[0] != f.before[0] &&
	   !memcmp(f.dst + s.n, f.before + s.n, 3 * s.n * 4),
	   "OUT_ROWS: only out_count rows are written");
	f.job->step.out_count = 0;
	memcpy(f.dst, f.before, s.rows * s.n * 4);
	ok(!run(&f, exec) && !memcmp(f.dst, f.before, s.rows * s.n * 4),
	   "no row, no work");
	f.job->step.out_count = 9;
	ok(!run(&f, exec), "never more rows than the command has");
	teardown(&f);
}

static void test_refused(struct m6_exec *exec)
{
	const struct shape s = { 4, 8, 64, 64, 8, true, false };
	struct m6npu_cmd good;
	struct fixture f;

	setup(&f, M6NPU_TYPE_Q4_0, &s);
	good = f.cmd;
#define REFUSED(change, code, text)					\
	do {								\
		f.cmd = good;						\
		change;							\
		ok(run(&f, exec) == (code) &&				\
		   !memcmp(f.dst, f.before, s.rows * s.n * 4), text);	\
	} while (0)
	REFUSED(f.cmd.args.gemm.k = 40, M6NPU_EXC_ILLEGAL_COMMAND,
		"k that is no multiple of the block");
	REFUSED(f.cmd.args.gemm.k = 0, M6NPU_EXC_ILLEGAL_COMMAND, "k of 0");
	REFUSED(f.cmd.args.gemm.rows = 0, M6NPU_EXC_ILLEGAL_COMMAND,
		"rows of 0");
	REFUSED(f.cmd.args.gemm.dst_stride = 7, M6NPU_EXC_ILLEGAL_COMMAND,
		"stride below n");
	REFUSED(f.cmd.args.gemm.rows = 5, M6NPU_EXC_BOUNDS, "a row too many");
	REFUSED(f.cmd.args.gemm.pad = 1, M6NPU_EXC_ILLEGAL_COMMAND, "a pad");
	REFUSED(f.cmd.type[2] = M6NPU_TYPE_I32, M6NPU_EXC_ILLEGAL_COMMAND,
		"weights of I32");
	REFUSED(f.cmd.type[2] = 200, M6NPU_EXC_ILLEGAL_COMMAND,
		"an unknown type");
	REFUSED(f.cmd.type[0] = M6NPU_TYPE_F16, M6NPU_EXC_ILLEGAL_COMMAND,
		"F16 activations");
	REFUSED(f.cmd.flags = 0x80, M6NPU_EXC_ILLEGAL_COMMAND,
		"an unknown flag");
	REFUSED(f.cmd.operand[1] = M6NPU_OPERAND_NONE,
		M6NPU_EXC_ILLEGAL_COMMAND, "no source");
	REFUSED(f.cmd.operand[1] = f.cmd.operand[0];
		f.cmd.args.gemm.k = 32; f.cmd.args.gemm.src_stride = 32,
		M6NPU_EXC_BOUNDS, "source within a smaller region");
	REFUSED(f.cmd.operand[3] = M6NPU_OPERAND(DST, 0),
		M6NPU_EXC_ILLEGAL_COMMAND, "bias within dst");
	REFUSED(f.cmd.operand[2] = M6NPU_OPERAND(WEIGHT, 2),
		M6NPU_EXC_ILLEGAL_COMMAND, "an odd offset");
	REFUSED(f.cmd.operand[2] = M6NPU_OPERAND(WEIGHT, 4), M6NPU_EXC_BOUNDS,
		"weights beyond the region");
	f.cmd = good;
	f.job->polls_left = 0;
	ok(run(&f, exec) == M6NPU_EXC_ABORTED, "a cancelled job");
	teardown(&f);
}

/* Prices, and that a dry run has the same one and touches nothing. */
static void test_cost(struct m6_exec *exec)
{
	const struct shape s = { 4, 8, 64, 64, 8, true, false };
	struct m6_cost real, dry;
	struct fixture f;

	setup(&f, M6NPU_TYPE_Q4_0, &s);
	ok(!m6_exec_command(exec, f.job, &f.cmd, true, &dry), "dry run");
	ok(!memcmp(f.dst, f.before, s.rows * s.n * 4), "dry run is dry");
	m6_exec_command(exec, f.job, &f.cmd, false, &real);
	ok(!memcmp(&real, &dry, sizeof(real)), "dry run costs the same");
	ok(real.macs == 4 * 8 * 64 / 2, "INT4 costs half");
	ok(real.dram_bytes == 8 * 36 + (4 * 64 + 4 * 8 + 8) * 4,
	   "bytes: weights, source, destination, bias");
	teardown(&f);
}

int main(void)
{
	struct m6_exec *exec = m6_exec_create(1);
	struct m6_exec *many = m6_exec_create(3);

	if (!ok(exec && many, "created"))
		return done();
	for (unsigned int i = 0; i < weight_type_count; i++) {
		uint8_t type = weight_types[i];

		test_values(exec, type);
		test_values(many, type);
		test_batch(exec, many, type);
		test_garbage(exec, type, NAN, "a NaN", true);
		test_garbage(exec, type, INFINITY, "an infinity", true);
		test_garbage(exec, type, -2.5f, "another number", false);
		test_tiny(exec, type);
	}
	test_rows(exec);
	test_refused(exec);
	test_cost(exec);
	m6_exec_destroy(exec);
	m6_exec_destroy(many);
	return done();
}
