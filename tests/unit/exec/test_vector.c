// SPDX-License-Identifier: MIT
/* EMBED, GATHER, NORM, GLU, ADD, SCALE, GATED_ADD, TOPK. */
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

	return m6_exec_command(exec, job, cmd, false, &cost);
}

static struct m6npu_cmd command(uint8_t opcode, unsigned int operands)
{
	struct m6npu_cmd cmd = fake_command(opcode);

	for (unsigned int i = 0; i < operands; i++)
		cmd.operand[i] = M6NPU_OPERAND(i, 0);
	return cmd;
}

static float *region(unsigned int index, uint64_t count)
{
	float *values = fake_region(job, index, count * sizeof(float));

	random_floats(values, count);
	return values;
}

static bool near(double value, double expected, double tolerance)
{
	return fabs(value - expected) <= tolerance * (1 + fabs(expected));
}

static void test_embed(uint8_t type)
{
	const uint32_t vocab = 50, width = 512;
	float *plain = malloc(vocab * width * sizeof(float));
	struct m6npu_cmd cmd = command(M6NPU_OP_EMBED, 2);
	uint8_t *table = fake_region(job, 1, vocab * weight_bytes(type, width));
	float *dst = region(0, 4 * width);
	bool same = true;

	random_floats(plain, vocab * width);
	weight_encode(type, plain, table, vocab, width);
	cmd.type[1] = type;
	cmd.args.embed.rows = 4;
	cmd.args.embed.width = width;
	cmd.args.embed.vocab = vocab;
	fake_step(job, 3, 0);
	job->tokens[0].token = 49;
	job->tokens[1].token = 0;
	job->tokens[2].token = 17;
	ok(!run(&cmd), "EMBED %s", weight_name(type));
	for (uint32_t i = 0; i < 3 * width; i++)
		same &= near(dst[i], weight_at(type,
			     table + job->tokens[i / width].token *
			     weight_bytes(type, width), i % width), 1e-6);
	ok(same, "EMBED %s values", weight_name(type));
	job->tokens[1].token = vocab;
	memset(dst, 0, 4);
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND && !dst[0],
	   "EMBED %s of a token beyond the vocabulary", weight_name(type));
	job->tokens[1].token = 0;
	cmd.args.embed.vocab = vocab + 1;
	ok(run(&cmd) == M6NPU_EXC_BOUNDS, "EMBED %s, table too small",
	   weight_name(type));
	free(plain);
}

static void test_gather(void)
{
	struct m6npu_cmd cmd = command(M6NPU_OP_GATHER, 2);
	float *dst = region(0, 2 * 10), *src = region(1, 8 * 10);

	cmd.args.embed.rows = 8;
	cmd.args.embed.width = 10;
	fake_step(job, 6, 0);
	job->step.out_count = 2;
	job->out_rows[0] = 1;
	job->out_rows[1] = 5;
	ok(!run(&cmd) && !memcmp(dst, src + 10, 40) &&
	   !memcmp(dst + 10, src + 50, 40), "GATHER");
	cmd.args.embed.rows = 5;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND,
	   "GATHER of a row beyond the tile");
	fake_no_step(job);
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "GATHER without a step");
}

static bool norm_right(const float *dst, const float *src,
		       const float *weight, uint32_t width, double eps)
{
	double sum = 0;

	for (uint32_t i = 0; i < width; i++)
		sum += (double)src[i] * src[i];
	for (uint32_t i = 0; i < width; i++) {
		if (!near(dst[i], src[i] / sqrt(sum / width + eps) * weight[i],
			  1e-6))
			return false;
	}
	return true;
}

static void test_norm(void)
{
	const uint32_t rows = 3, groups = 4, width = 48, row = 192;
	struct m6npu_cmd cmd = command(M6NPU_OP_NORM, 3);
	float *dst = region(0, rows * 200), *src = region(1, rows * 210);
	float *weight = region(2, width), copy[3 * 210];
	bool right = true;

	cmd.args.norm.rows = rows;
	cmd.args.norm.groups = groups;
	cmd.args.norm.width = width;
	cmd.args.norm.src_stride = 210;
	cmd.args.norm.dst_stride = 200;
	cmd.args.norm.eps = float_bits(1e-5f);
	ok(!run(&cmd), "NORM");
	for (uint32_t i = 0; i < rows * groups; i++)
		right &= norm_right(dst + i / groups * 200 + i % groups * width,
				    src + i / groups * 210 + i % groups * width,
				    weight, width, 1e-5);
	ok(right, "NORM values");
	memcpy(copy, src, sizeof(copy));
	cmd.operand[0] = cmd.operand[1];
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND,
	   "NORM in place with another stride");
	cmd.args.norm.dst_stride = 210;
	ok(!run(&cmd) && !memcmp(src, dst, row * 4) &&
	   !memcmp(src + row, copy + row, 18 * 4), "NORM in place");
	cmd.operand[0] += 4;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND ||
	   run(&cmd) == M6NPU_EXC_BOUNDS, "NORM shifted onto itself");
	cmd.args.norm.groups = 0;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "NORM of nothing");
}

static double act(uint32_t kind, double x)
{
	if (kind == M6NPU_ACT_SILU)
		return x / (1 + exp(-x));
	return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) *
				   (x + 0.044715 * x * x * x)));
}

/* Gate and up side by side in one buffer, as one GEMM leaves them. */
static void test_glu(uint32_t kind)
{
	const uint32_t rows = 3, n = 70;
	struct m6npu_cmd cmd = command(M6NPU_OP_GLU, 3);
	float *dst = region(0, rows * n), *both = region(1, rows * 2 * n);
	bool right = true;

	for (uint32_t i = 0; i < rows * 2 * n; i++)
		both[i] *= 8;
	cmd.operand[2] = M6NPU_OPERAND(1, n * 4);
	cmd.args.glu.rows = rows;
	cmd.args.glu.n = n;
	cmd.args.glu.gate_stride = 2 * n;
	cmd.args.glu.up_stride = 2 * n;
	cmd.args.glu.dst_stride = n;
	cmd.args.glu.act = kind;
	ok(!run(&cmd), "GLU %u", kind);
	for (uint32_t i = 0; i < rows * n; i++) {
		const float *gate = both + i / n * 2 * n + i % n;

		right &= near(dst[i], act(kind, gate[0]) * gate[n], 2e-6);
	}
	ok(right, "GLU %u values", kind);
	cmd.operand[0] = cmd.operand[2];
	cmd.args.glu.dst_stride = 2 * n;
	ok(!run(&cmd) && !memcmp(both + n, dst, n * 4) &&
	   !memcmp(both + 3 * n, dst + n, n * 4), "GLU %u onto up", kind);
	cmd.operand[0] = M6NPU_OPERAND(1, 4);
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "GLU %u across both", kind);
	cmd.args.glu.act = 2;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "GLU of no such kind");
}

static void test_add(void)
{
	struct m6npu_cmd cmd = command(M6NPU_OP_ADD, 3);
	float *dst = region(0, 24), *a = region(1, 24), *b = region(2, 24);
	bool right = true;

	cmd.args.add.rows = 3;
	cmd.args.add.n = 8;
	ok(!run(&cmd), "ADD");
	for (uint32_t i = 0; i < 24; i++)
		right &= dst[i] == a[i] + b[i];
	ok(right, "ADD values");
	cmd.operand[0] = cmd.operand[2];
	ok(!run(&cmd) && !memcmp(b, dst, 96), "ADD in place");
	cmd.operand[0] = M6NPU_OPERAND(2, 4);
	cmd.args.add.rows = 2;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "ADD askew");
	cmd.args.add.factor = 1;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "ADD with a factor");
}

static void test_scale(void)
{
	struct m6npu_cmd cmd = command(M6NPU_OP_SCALE, 2);
	float *dst = region(0, 24), *src = region(1, 24);
	bool right = true;

	cmd.args.add.rows = 3;
	cmd.args.add.n = 8;
	cmd.args.add.factor = float_bits(-0.3f);
	ok(!run(&cmd), "SCALE");
	for (uint32_t i = 0; i < 24; i++)
		right &= dst[i] == src[i] * -0.3f;
	ok(right, "SCALE values");
	cmd.operand[1] = cmd.operand[0];
	src[0] = dst[0];
	ok(!run(&cmd) && dst[0] == src[0] * -0.3f, "SCALE in place");
}

static void test_gated_add(void)
{
	struct m6npu_cmd cmd = command(M6NPU_OP_GATED_ADD, 3);
	float *dst = region(0, 24), *src = region(1, 24);
	float *gate = region(2, 3), before[24];
	bool right = true;

	gate[1] = -1000;
	memcpy(before, dst, sizeof(before));
	cmd.args.add.rows = 3;
	cmd.args.add.n = 8;
	ok(!run(&cmd), "GATED_ADD");
	for (uint32_t i = 0; i < 24; i++)
		right &= near(dst[i], before[i] + src[i] /
			      (1 + exp(-gate[i / 8])), 1e-6);
	ok(right, "GATED_ADD values");
}

/* Repeatedly the largest, of equals the first. */
static bool topk_right(const int32_t *ids, const float *values,
		       const float *src, uint32_t n, uint32_t k)
{
	bool *taken = calloc(n, 1);
	bool right = true;

	for (uint32_t i = 0; i < k; i++) {
		uint32_t best = n;

		for (uint32_t j = 0; j < n; j++) {
			double x = isnan(src[j]) ? -INFINITY : src[j];

			if (!taken[j] && (best == n || x >
			    (isnan(src[best]) ? -INFINITY : src[best])))
				best = j;
		}
		taken[best] = true;
		right &= ids[i] == (int32_t)best &&
			 values[i] == (isnan(src[best]) ? -INFINITY :
							  src[best]);
	}
	free(taken);
	return right;
}

static void test_topk(uint32_t n, uint32_t k, uint32_t levels)
{
	struct m6npu_cmd cmd = command(M6NPU_OP_TOPK, 3);
	int32_t *ids = fake_region(job, 0, 2 * k * 4);
	float *values = region(1, 2 * k), *src = region(2, 2 * n);

	for (uint32_t i = 0; i < 2 * n && levels; i++)
		src[i] = fake_random() % levels;
	src[n / 2] = NAN;
	src[n / 3] = -INFINITY;
	cmd.type[0] = M6NPU_TYPE_I32;
	cmd.args.topk.rows = 2;
	cmd.args.topk.n = n;
	cmd.args.topk.k = k;
	ok(!run(&cmd), "TOPK %u of %u", k, n);
	ok(topk_right(ids, values, src, n, k) &&
	   topk_right(ids + k, values + k, src + n, n, k),
	   "TOPK %u of %u, %u levels", k, n, levels);
}

int main(void)
{
	struct m6npu_cmd cmd = command(M6NPU_OP_TOPK, 3);

	exec = m6_exec_create(2);
	job = fake_create();
	if (!ok(exec, "created"))
		return done();
	for (unsigned int i = 0; i < weight_type_count; i++)
		test_embed(weight_types[i]);
	test_gather();
	test_norm();
	test_glu(M6NPU_ACT_SILU);
	test_glu(M6NPU_ACT_GELU);
	test_add();
	test_scale();
	test_gated_add();
	test_topk(1000, 40, 0);
	test_topk(1000, 40, 9);
	test_topk(5, 5, 2);
	test_topk(30000, 1, 0);
	test_topk(300, 256, 50);
	cmd.args.topk.rows = 1;
	cmd.args.topk.n = 4;
	cmd.args.topk.k = 5;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "TOPK of more than all");
	fake_destroy(job);
	m6_exec_destroy(exec);
	return done();
}
