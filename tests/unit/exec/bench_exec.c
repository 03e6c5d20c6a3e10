// SPDX-License-Identifier: MIT
/*
 * How fast the execution side is here. Not a test: prints microseconds.
 *
 * Usage: bench_exec [THREADS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake.h"

static struct m6_exec *exec;
static struct m6_job *job;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* The best of some runs within about half a second. */
static double best(const struct m6npu_cmd *cmd)
{
	struct m6_cost cost;
	double start = now(), best = 1e30;

	while (now() - start < 5e5) {
		double begin = now(), took;
		uint32_t code = m6_exec_command(exec, job, cmd, false, &cost);

		took = now() - begin;
		best = took < best ? took : best;
		if (code) {
			printf("%s\n", m6_exception_name(code));
			exit(1);
		}
	}
	return best;
}

static void fill_weights(uint8_t type, void *dst, uint32_t n, uint32_t k)
{
	float *plain = malloc((uint64_t)n * k * sizeof(float));

	random_floats(plain, (uint64_t)n * k);
	weight_encode(type, plain, dst, n, k);
	free(plain);
}

static void bench_gemm(uint8_t type, uint32_t rows, uint32_t n, uint32_t k)
{
	struct m6npu_cmd cmd = fake_command(M6NPU_OP_GEMM);
	double us;

	fake_region(job, 0, rows * n * 4);
	random_floats(fake_region(job, 1, rows * k * 4), rows * k);
	fill_weights(type, fake_region(job, 2, n * weight_bytes(type, k)), n,
		     k);
	for (unsigned int i = 0; i < 3; i++)
		cmd.operand[i] = M6NPU_OPERAND(i, 0);
	cmd.type[2] = type;
	cmd.args.gemm.rows = rows;
	cmd.args.gemm.n = cmd.args.gemm.dst_stride = n;
	cmd.args.gemm.k = cmd.args.gemm.src_stride = k;
	us = best(&cmd);
	printf("GEMM %3u x %u x %u %-5s %9.1f us %7.1f GFLOP/s\n", rows, n, k,
	       weight_name(type), us, 2e-3 * rows * n * k / us);
}

static void bench_attention(uint8_t type, uint32_t rows, uint32_t position)
{
	struct m6npu_cmd cmd = fake_command(M6NPU_OP_ATTENTION);
	const uint32_t heads = 16, kv_heads = 4, head_dim = 128;

	fake_step(job, rows, position);
	job->step.kv_capacity = 4096;
	job->step.kv_type = type;
	fake_region(job, 0, rows * heads * head_dim * 4);
	random_floats(fake_region(job, 1, rows * (heads + 2 * kv_heads) *
				  head_dim * 4),
		      rows * (heads + 2 * kv_heads) * head_dim);
	fake_region(job, 2, 2 * 4096 * weight_bytes(type,
						    kv_heads * head_dim));
	for (unsigned int i = 0; i < 3; i++)
		cmd.operand[i] = M6NPU_OPERAND(i, 0);
	cmd.args.attention.rows = rows;
	cmd.args.attention.heads = heads;
	cmd.args.attention.kv_heads = kv_heads;
	cmd.args.attention.head_dim = head_dim;
	cmd.args.attention.scale = float_bits(0.08f);
	printf("ATTENTION %3u rows at %u, %u heads of %u on %u, %-5s %9.1f us\n",
	       rows, position, heads, head_dim, kv_heads, weight_name(type),
	       best(&cmd));
	fake_no_step(job);
}

static void bench_moe(uint8_t type, uint32_t rows)
{
	struct m6npu_cmd cmd = fake_command(M6NPU_OP_MOE_FFN);
	const uint32_t experts = 32, k = 4, hidden = 1024, ffn = 512;
	uint64_t matrix = ffn * weight_bytes(type, hidden);
	uint8_t *memory = fake_experts(job, experts, 3 * matrix);
	int32_t *ids = fake_region(job, 2, rows * k * 4);

	for (uint32_t i = 0; i < experts * 3; i++)
		fill_weights(type, memory + i * matrix, i % 3 == 2 ? hidden :
			     ffn, i % 3 == 2 ? ffn : hidden);
	fake_region(job, 0, rows * hidden * 4);
	random_floats(fake_region(job, 1, rows * hidden * 4), rows * hidden);
	random_floats(fake_region(job, 3, rows * k * 4), rows * k);
	for (uint32_t i = 0; i < rows * k; i++)
		ids[i] = i * 7 % experts;
	for (unsigned int i = 0; i < 4; i++)
		cmd.operand[i] = M6NPU_OPERAND(i, 0);
	memset(cmd.type + 1, type, 3);
	cmd.args.moe.rows = rows;
	cmd.args.moe.k = k;
	cmd.args.moe.experts = experts;
	cmd.args.moe.hidden = hidden;
	cmd.args.moe.ffn = ffn;
	printf("MOE_FFN %3u rows, %u of %u, %u x %u %-5s %9.1f us\n", rows, k,
	       experts, hidden, ffn, weight_name(type), best(&cmd));
}

static void bench_small(void)
{
	struct m6npu_cmd cmd = fake_command(M6NPU_OP_NORM);

	random_floats(fake_region(job, 0, 2048 * 4), 2048);
	random_floats(fake_region(job, 1, 2048 * 4), 2048);
	fake_region(job, 2, 2048 * 4);
	for (unsigned int i = 0; i < 3; i++)
		cmd.operand[i] = M6NPU_OPERAND(i, 0);
	cmd.args.norm.rows = cmd.args.norm.groups = 1;
	cmd.args.norm.width = 2048;
	cmd.args.norm.src_stride = cmd.args.norm.dst_stride = 2048;
	printf("NORM 2048 %.1f us\n", best(&cmd));
	cmd.opcode = M6NPU_OP_GLU;
	cmd.args.glu.n = cmd.args.glu.gate_stride = 2048;
	cmd.args.glu.up_stride = cmd.args.glu.dst_stride = 2048;
	cmd.args.glu.act = 0;
	printf("GLU 2048 %.1f us\n", best(&cmd));
}

int main(int argc, char **argv)
{
	static const uint32_t rows[] = { 1, 16, 256 };

	exec = m6_exec_create(argc > 1 ? atoi(argv[1]) : 1);
	job = fake_create();
	if (!exec)
		return 1;
	for (unsigned int i = 0; i < 3; i++) {
		for (unsigned int j = 0; j < weight_type_count; j++)
			bench_gemm(weight_types[j], rows[i], 2048, 2048);
	}
	bench_attention(M6NPU_TYPE_F16, 1, 1000);
	bench_attention(M6NPU_TYPE_Q8_0, 1, 1000);
	bench_attention(M6NPU_TYPE_F16, 64, 1000);
	bench_attention(M6NPU_TYPE_Q8_0, 64, 1000);
	bench_moe(M6NPU_TYPE_Q4_0, 1);
	bench_moe(M6NPU_TYPE_F16, 1);
	bench_moe(M6NPU_TYPE_Q4_0, 64);
	bench_small();
	fake_destroy(job);
	m6_exec_destroy(exec);
	return 0;
}
