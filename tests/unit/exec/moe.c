// SPDX-License-Identifier: MIT
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "moe.h"

uint64_t moe_align(uint64_t bytes)
{
	return (bytes + 63) & ~63ull;
}

uint64_t moe_matrix_at(const struct moe *m, unsigned int matrix)
{
	uint64_t at = 0;

	for (unsigned int i = 0; i < matrix; i++)
		at = moe_align(at + m->ffn * weight_bytes(m->type[i],
							  m->hidden));
	return at;
}

uint64_t moe_expert_bytes(const struct moe *m)
{
	return moe_matrix_at(m, 2) +
	       m->hidden * weight_bytes(m->type[2], m->ffn);
}

uint64_t moe_stride(const struct moe *m)
{
	return moe_align(moe_expert_bytes(m));
}

void moe_fill_expert(const struct moe *m, uint8_t *memory)
{
	uint64_t count = (uint64_t)m->ffn * m->hidden;
	float *plain = malloc(count * sizeof(float));

	for (uint32_t i = 0; i < 3; i++) {
		random_floats(plain, count);
		for (uint64_t j = 0; j < count; j++)
			plain[j] /= 16;
		weight_encode(m->type[i], plain, memory + moe_matrix_at(m, i),
			      i == 2 ? m->hidden : m->ffn,
			      i == 2 ? m->ffn : m->hidden);
	}
	free(plain);
}

void moe_experts(struct m6_job *job, const struct moe *m)
{
	uint8_t *memory = fake_experts(job, m->experts, moe_stride(m));

	for (uint32_t i = 0; i < m->experts; i++)
		moe_fill_expert(m, memory + i * moe_stride(m));
}

void moe_rows(struct m6_job *job, const struct moe *m)
{
	uint64_t pairs = m->rows * m->k;
	float *dst = fake_region(job, DST, m->rows * m->hidden * 4);
	float *src = fake_region(job, SRC, m->rows * m->hidden * 4);
	int32_t *ids = fake_region(job, IDS, pairs * 4);
	float *weights = fake_region(job, WEIGHTS, pairs * 4);
	float *outer = fake_region(job, PAIRS, pairs * m->hidden * 4);

	fake_region(job, MEMBERS, m->experts * 4);
	random_floats(dst, m->rows * m->hidden);
	random_floats(src, m->rows * m->hidden);
	random_floats(weights, pairs);
	random_floats(outer, pairs * m->hidden);
	for (uint64_t i = 0; i < pairs; i++)
		ids[i] = fake_random() % m->experts;
}

static struct m6npu_cmd any_command(const struct moe *m)
{
	struct m6npu_cmd cmd = fake_command(M6NPU_OP_MOE_FFN);

	memcpy(cmd.type + 1, m->type, 3);
	cmd.operand[1] = M6NPU_OPERAND(SRC, 0);
	cmd.operand[2] = M6NPU_OPERAND(IDS, 0);
	cmd.layer = 3;
	cmd.args.moe.rows = m->rows;
	cmd.args.moe.k = m->k;
	cmd.args.moe.experts = m->experts;
	cmd.args.moe.hidden = m->hidden;
	cmd.args.moe.ffn = m->ffn;
	cmd.args.moe.act = m->act;
	return cmd;
}

struct m6npu_cmd moe_command(const struct moe *m)
{
	struct m6npu_cmd cmd = any_command(m);

	cmd.flags = m->accumulate ? M6NPU_CMD_ACCUMULATE : 0;
	cmd.operand[0] = M6NPU_OPERAND(DST, 0);
	cmd.operand[3] = M6NPU_OPERAND(WEIGHTS, 0);
	return cmd;
}

struct m6npu_cmd moe_grouped(struct m6_job *job, const struct moe *m,
			     uint32_t first, const int32_t *ids,
			     uint32_t count, uint32_t capacity)
{
	struct m6npu_cmd cmd = any_command(m);

	memcpy((int32_t *)job->region[MEMBERS] + first, ids,
	       count * sizeof(*ids));
	cmd.flags = M6NPU_CMD_GROUPED;
	cmd.operand[0] = M6NPU_OPERAND(PAIRS, 0);
	cmd.operand[3] = M6NPU_OPERAND(MEMBERS, first * 4);
	cmd.args.moe.members = count;
	cmd.args.moe.capacity = capacity;
	return cmd;
}

struct m6npu_cmd moe_combine(const struct moe *m)
{
	struct m6npu_cmd cmd = fake_command(M6NPU_OP_MOE_COMBINE);

	cmd.flags = m->accumulate ? M6NPU_CMD_ACCUMULATE : 0;
	cmd.operand[0] = M6NPU_OPERAND(DST, 0);
	cmd.operand[1] = M6NPU_OPERAND(PAIRS, 0);
	cmd.operand[2] = M6NPU_OPERAND(WEIGHTS, 0);
	cmd.args.moe.rows = m->rows;
	cmd.args.moe.k = m->k;
	cmd.args.moe.hidden = m->hidden;
	return cmd;
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
static void add_expert(const struct moe *m, const uint8_t *expert,
		       double weight, const double *x, double *out)
{
	double *inner = malloc(m->ffn * sizeof(*inner));

	for (uint32_t i = 0; i < m->ffn; i++) {
		double gate = dot(m->type[0], expert + i *
				  weight_bytes(m->type[0], m->hidden), x,
				  m->hidden);

		inner[i] = activate(m->act, gate) *
			   dot(m->type[1], expert + moe_matrix_at(m, 1) + i *
			       weight_bytes(m->type[1], m->hidden), x,
			       m->hidden);
	}
	for (uint32_t i = 0; i < m->hidden; i++)
		out[i] += weight * dot(m->type[2],
				       expert + moe_matrix_at(m, 2) + i *
				       weight_bytes(m->type[2], m->ffn),
				       inner, m->ffn);
	free(inner);
}

static void expected_row(const struct m6_job *job, const struct moe *m,
			 uint32_t row, const float *before, double *out)
{
	const float *src = (float *)job->region[SRC] + row * m->hidden;
	const int32_t *ids = (int32_t *)job->region[IDS] + row * m->k;
	const float *weights = (float *)job->region[WEIGHTS] + row * m->k;
	const uint8_t *experts = job->expert_memory;
	double *x = malloc(m->hidden * sizeof(*x));

	for (uint32_t i = 0; i < m->hidden; i++) {
		x[i] = src[i];
		out[i] = m->accumulate ? before[row * m->hidden + i] : 0;
	}
	for (uint32_t j = 0; j < m->k; j++)
		add_expert(m, experts + ids[j] * moe_stride(m), weights[j], x,
			   out);
	free(x);
}

double moe_error(const struct m6_job *job, const struct moe *m,
		 const float *before)
{
	const float *dst = job->region[DST];
	double *out = malloc(m->hidden * sizeof(*out));
	double worst = 0, size = 0;

	for (uint32_t row = 0; row < m->rows; row++) {
		expected_row(job, m, row, before, out);
		for (uint32_t i = 0; i < m->hidden; i++) {
			double error = fabs(dst[row * m->hidden + i] - out[i]);

			worst = error > worst || isnan(error) ? error : worst;
			size = fabs(out[i]) > size ? fabs(out[i]) : size;
		}
	}
	free(out);
	return worst / size;
}
