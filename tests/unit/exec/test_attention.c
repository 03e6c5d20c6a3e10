// SPDX-License-Identifier: MIT
/* ROPE and ATTENTION against the header's words, in double. */
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

/* ROPE */

struct rope_case {
	uint32_t heads, head_dim, rot_dim, stride;
	bool interleaved, divisors;
};

static bool rope_right(const struct rope_case *c, const float *x,
		       const float *before, const float *divisors,
		       uint32_t position)
{
	uint32_t half = c->rot_dim / 2;

	for (uint32_t i = 0; i < c->heads * c->head_dim; i++) {
		const float *head = before + i / c->head_dim * c->head_dim;
		uint32_t at = i % c->head_dim;
		uint32_t pair = c->interleaved ? at / 2 : at % half;
		bool second = c->interleaved ? at % 2 : at >= half;
		uint32_t a = c->interleaved ? 2 * pair : pair;
		uint32_t b = c->interleaved ? a + 1 : pair + half;
		double angle = position * 0.5 *
			       pow(10000, -2.0 * pair / c->rot_dim);
		double want = head[at];

		if (at < c->rot_dim) {
			angle /= c->divisors ? divisors[pair] : 1;
			want = second ?
			       head[a] * sin(angle) + head[b] * cos(angle) :
			       head[a] * cos(angle) - head[b] * sin(angle);
		}
		if (fabs(x[i] - want) > 1e-6)
			return false;
	}
	return true;
}

static void test_rope(const struct rope_case *c)
{
	struct m6npu_cmd cmd = fake_command(M6NPU_OP_ROPE);
	uint32_t count = 2 * c->stride + c->heads * c->head_dim;
	float *x = fake_region(job, 0, count * 4);
	float *divisors = fake_region(job, 1, c->rot_dim / 2 * 4);
	float *before = malloc(count * 4);
	bool right = true;

	random_floats(x, count);
	memcpy(before, x, count * 4);
	for (uint32_t i = 0; i < c->rot_dim / 2; i++)
		divisors[i] = 1 + i % 7;
	fake_step(job, 3, 1000);
	cmd.operand[0] = M6NPU_OPERAND(0, 0);
	if (c->divisors)
		cmd.operand[1] = M6NPU_OPERAND(1, 0);
	cmd.args.rope.rows = 3;
	cmd.args.rope.heads = c->heads;
	cmd.args.rope.head_dim = c->head_dim;
	cmd.args.rope.stride = c->stride;
	cmd.args.rope.theta = float_bits(10000);
	cmd.args.rope.scale = float_bits(0.5f);
	cmd.args.rope.rot_dim = c->rot_dim;
	cmd.args.rope.flags = c->interleaved ? M6NPU_ROPE_INTERLEAVED : 0;
	ok(!run(&cmd), "ROPE runs");
	for (uint32_t row = 0; row < 3; row++)
		right &= rope_right(c, x + row * c->stride,
				    before + row * c->stride, divisors,
				    1000 + row);
	ok(right, "ROPE %ux%u of %u%s%s", c->heads, c->rot_dim, c->head_dim,
	   c->interleaved ? " interleaved" : "", c->divisors ? " divided" : "");
	cmd.args.rope.rot_dim = c->head_dim + 2;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "ROPE of too much");
	cmd.args.rope.rot_dim = 3;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "ROPE of an odd number");
	free(before);
}

/* ATTENTION */

enum { DST, SRC, CACHE };

struct model {
	uint32_t heads, kv_heads, head_dim, window, layer, capacity, slots;
	uint8_t type;
};

static uint64_t row_bytes(const struct model *m)
{
	return weight_bytes(m->type, m->kv_heads * m->head_dim);
}

static uint64_t slot_bytes(const struct model *m)
{
	return ((m->layer + 1) * 2 * m->capacity * row_bytes(m) + 67) & ~63ull;
}

static uint32_t src_width(const struct model *m)
{
	return (m->heads + 2 * m->kv_heads) * m->head_dim;
}

static const uint8_t *cache_row(const struct model *m, uint32_t slot,
				uint32_t is_v, uint32_t position)
{
	return (uint8_t *)job->region[CACHE] + slot * slot_bytes(m) +
	       ((m->layer * 2 + is_v) * m->capacity + position) * row_bytes(m);
}

static struct m6npu_cmd attention_command(const struct model *m, uint32_t rows)
{
	struct m6npu_cmd cmd = fake_command(M6NPU_OP_ATTENTION);

	for (unsigned int i = 0; i < 3; i++)
		cmd.operand[i] = M6NPU_OPERAND(i, 0);
	cmd.layer = m->layer;
	cmd.args.attention.rows = rows;
	cmd.args.attention.heads = m->heads;
	cmd.args.attention.kv_heads = m->kv_heads;
	cmd.args.attention.head_dim = m->head_dim;
	cmd.args.attention.window = m->window;
	cmd.args.attention.scale = float_bits(0.7f);
	return cmd;
}

static void make_cache(const struct model *m)
{
	uint64_t bytes = m->slots * slot_bytes(m);
	float *plain = malloc(m->kv_heads * m->head_dim * sizeof(float));

	fake_region(job, CACHE, bytes);
	for (uint32_t i = 0; i < m->slots * 2 * m->capacity; i++) {
		random_floats(plain, m->kv_heads * m->head_dim);
		weight_encode(m->type, plain,
			      (void *)cache_row(m, i / m->capacity / 2,
						i / m->capacity % 2,
						i % m->capacity),
			      1, m->kv_heads * m->head_dim);
	}
	free(plain);
	job->step.kv_type = m->type;
	job->step.kv_capacity = m->capacity;
	job->step.kv_slot_stride = slot_bytes(m);
}

/* The row's K and V are in the cache, but for the format's rounding. */
static bool stored(const struct model *m, uint32_t row)
{
	const struct m6npu_step_token *t = &job->tokens[row];
	const float *src = (float *)job->region[SRC] +
			   (uint64_t)row * src_width(m) +
			   m->heads * m->head_dim;
	uint32_t width = m->kv_heads * m->head_dim;

	for (uint32_t i = 0; i < 2 * width; i++) {
		double value = weight_at(m->type, cache_row(m, t->slot,
					 i / width, t->position), i % width);

		if (fabs(value - src[i]) > 0.005)
			return false;
	}
	return true;
}

static double score(const struct model *m, const float *q, uint32_t slot,
		    uint32_t kv_head, uint32_t position)
{
	const uint8_t *k = cache_row(m, slot, 0, position);
	double sum = 0;

	for (uint32_t i = 0; i < m->head_dim; i++)
		sum += q[i] * weight_at(m->type, k, kv_head * m->head_dim + i);
	return sum * 0.7f;
}

/* What one head of one row should be. */
static void attend(const struct model *m, uint32_t row, uint32_t head,
		   double *out)
{
	const struct m6npu_step_token *t = &job->tokens[row];
	const float *q = (float *)job->region[SRC] +
			 (uint64_t)row * src_width(m) + head * m->head_dim;
	uint32_t kv_head = head / (m->heads / m->kv_heads);
	double total = 0;

	memset(out, 0, m->head_dim * sizeof(*out));
	for (uint32_t p = 0; p <= t->position; p++) {
		double weight;

		if (m->window && p + m->window <= t->position)
			continue;
		weight = exp(score(m, q, t->slot, kv_head, p));
		total += weight;
		for (uint32_t i = 0; i < m->head_dim; i++)
			out[i] += weight *
				  weight_at(m->type, cache_row(m, t->slot, 1, p),
					    kv_head * m->head_dim + i);
	}
	for (uint32_t i = 0; i < m->head_dim; i++)
		out[i] /= total;
}

static double worst(const struct model *m, uint32_t rows)
{
	double *want = malloc(m->head_dim * sizeof(*want));
	double worst = 0;

	for (uint32_t i = 0; i < rows * m->heads; i++) {
		const float *dst = (float *)job->region[DST] +
				   (uint64_t)i * m->head_dim;

		attend(m, i / m->heads, i % m->heads, want);
		for (uint32_t j = 0; j < m->head_dim; j++) {
			double error = fabs(dst[j] - want[j]);

			worst = error > worst || isnan(error) ? error : worst;
		}
	}
	free(want);
	return worst;
}

/* Rows of several slots, not in order. */
static void make_tokens(const struct model *m, uint32_t rows)
{
	uint32_t next[8];

	fake_step(job, rows, 0);
	for (uint32_t i = 0; i < m->slots; i++)
		next[i] = i * 70 % (m->capacity - rows);
	for (uint32_t i = 0; i < rows; i++) {
		uint32_t slot = fake_random() % m->slots;

		job->tokens[i].slot = slot;
		job->tokens[i].position = next[slot]++;
	}
	/* A later position first must make no difference. */
	for (uint32_t i = 1; i < rows; i += 3) {
		struct m6npu_step_token t = job->tokens[i];

		job->tokens[i] = job->tokens[i - 1];
		job->tokens[i - 1] = t;
	}
}

/* One command a row, in order of position, on the cache as it was. */
static bool row_by_row(const struct model *m, uint32_t rows,
		       const float *tile)
{
	struct m6npu_cmd cmd = attention_command(m, 1);
	uint32_t dst_bytes = m->heads * m->head_dim * 4;
	struct m6npu_step_token tokens[64];
	bool same = true;

	memcpy(tokens, job->tokens, rows * sizeof(*tokens));
	job->step.token_count = 1;
	for (uint32_t p = 0; p < m->capacity; p++) {
		for (uint32_t i = 0; i < rows; i++) {
			if (tokens[i].position != p)
				continue;
			job->tokens[0] = tokens[i];
			cmd.operand[0] = M6NPU_OPERAND(DST, i * dst_bytes);
			cmd.operand[1] = M6NPU_OPERAND(SRC, i * src_width(m) *
							    4);
			same &= !run(&cmd);
		}
	}
	memcpy(job->tokens, tokens, rows * sizeof(*tokens));
	job->step.token_count = rows;
	return same && !memcmp(tile, job->region[DST], rows * dst_bytes);
}

static void test_attention(const struct model *m, uint32_t rows)
{
	struct m6npu_cmd cmd = attention_command(m, rows);
	uint64_t dst_bytes = (uint64_t)rows * m->heads * m->head_dim * 4;
	float *dst = fake_region(job, DST, dst_bytes);
	float *src = fake_region(job, SRC, (uint64_t)rows * src_width(m) * 4);
	float *tile = malloc(dst_bytes);
	bool right = true;
	double error;

	random_floats(src, (uint64_t)rows * src_width(m));
	make_tokens(m, rows);
	make_cache(m);
	ok(!run(&cmd), "ATTENTION runs");
	for (uint32_t i = 0; i < rows; i++)
		right &= stored(m, i);
	ok(right, "K and V are stored");
	error = worst(m, rows);
	ok(error < 2e-5, "%u rows, %u heads of %u on %u, window %u, %s: %g",
	   rows, m->heads, m->head_dim, m->kv_heads, m->window,
	   weight_name(m->type), error);
	memcpy(tile, dst, dst_bytes);
	memset(dst, 0, dst_bytes);
	ok(!run_on(many, &cmd) && !memcmp(tile, dst, dst_bytes),
	   "same on three threads");
	memset(dst, 0, dst_bytes);
	ok(row_by_row(m, rows, tile), "same row by row");
	free(tile);
}

static void test_refused(void)
{
	static const struct model m = { 4, 2, 32, 0, 1, 64, 2,
					M6NPU_TYPE_Q8_0 };
	struct m6npu_cmd cmd = attention_command(&m, 3);
	float *dst = fake_region(job, DST, 3 * 4 * 32 * 4);

	fake_region(job, SRC, 3 * src_width(&m) * 4);
	fake_step(job, 3, 20);
	make_cache(&m);
	ok(!run(&cmd), "ATTENTION runs");
	dst[0] = 77;
	job->tokens[2].position = 21;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "one position twice");
	job->tokens[2].slot = 1;
	ok(!run(&cmd), "but in two slots");
	dst[0] = 77;
	job->tokens[2].slot = 2;
	ok(run(&cmd) == M6NPU_EXC_BOUNDS, "a slot that there isn't");
	job->tokens[2].slot = 0xffffffff;
	ok(run(&cmd) == M6NPU_EXC_BOUNDS, "a slot far away");
	job->tokens[2].slot = 1;
	job->step.kv_slot_stride = 1ull << 62;
	ok(run(&cmd) == M6NPU_EXC_BOUNDS, "a stride beyond everything");
	job->step.kv_slot_stride = 64;
	ok(run(&cmd) == M6NPU_EXC_BOUNDS, "slots within each other");
	job->step.kv_slot_stride = slot_bytes(&m);
	job->tokens[2].position = 64;
	ok(run(&cmd) == M6NPU_EXC_BOUNDS, "a position beyond the capacity");
	job->tokens[2].position = 0xffffffff;
	job->step.kv_capacity = 0xffffffff;
	ok(run(&cmd) == M6NPU_EXC_BOUNDS, "a position far beyond");
	job->tokens[2].position = 5;
	job->step.kv_capacity = 64;
	cmd.layer = 2;
	ok(run(&cmd) == M6NPU_EXC_BOUNDS, "a layer too many");
	cmd.layer = 1;
	cmd.args.attention.kv_heads = 3;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "heads in no groups");
	cmd.args.attention.kv_heads = 2;
	cmd.args.attention.head_dim = 24;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "part of a block");
	cmd.args.attention.head_dim = 32;
	cmd.operand[0] = M6NPU_OPERAND(CACHE, 2 * 2 * 64 * 34 * 2);
	job->step.kv_type = M6NPU_TYPE_Q4_0;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "a cache of Q4_0");
	ok(dst[0] == 77, "nothing was written");
}

/* One garbage row spoils itself and who sees it, no one else. */
static void test_garbage(uint8_t type)
{
	const struct model m = { 2, 2, 64, 0, 0, 64, 2, type };
	struct m6npu_cmd cmd = attention_command(&m, 3);
	float *dst = fake_region(job, DST, 3 * 2 * 64 * 4);
	float *src = fake_region(job, SRC, 3 * src_width(&m) * 4);

	fake_step(job, 3, 5);
	make_cache(&m);
	job->tokens[2].slot = 1;
	random_floats(src, 3 * src_width(&m));
	src[src_width(&m) + 2 * 64 + 3] = NAN;
	src[src_width(&m) + 4 * 64 + 3] = INFINITY;
	ok(!run(&cmd), "ATTENTION with garbage runs");
	ok(isfinite(dst[0]) && isfinite(dst[127]) && !isfinite(dst[128]) &&
	   isfinite(dst[256]) && isfinite(dst[383]), "garbage stays apart");
}

int main(void)
{
	static const struct rope_case ropes[] = {
		{ 3, 64, 64, 192, false, false },
		{ 2, 32, 32, 100, true, false },
		{ 2, 80, 32, 160, false, true },
		{ 1, 96, 48, 96, true, true },
	};
	static const struct model models[] = {
		{ 4, 4, 32, 0, 0, 100, 1, M6NPU_TYPE_F16 },
		{ 8, 2, 64, 0, 2, 300, 3, M6NPU_TYPE_F16 },
		{ 6, 2, 80, 5, 1, 300, 3, M6NPU_TYPE_F16 },
		{ 4, 1, 64, 0, 1, 300, 3, M6NPU_TYPE_Q8_0 },
		{ 6, 3, 32, 66, 3, 300, 4, M6NPU_TYPE_Q8_0 },
		{ 2, 1, 1, 1, 0, 100, 1, M6NPU_TYPE_F16 },
	};

	exec = m6_exec_create(1);
	many = m6_exec_create(3);
	job = fake_create();
	if (!ok(exec && many, "created"))
		return done();
	for (unsigned int i = 0; i < sizeof(ropes) / sizeof(*ropes); i++)
		test_rope(&ropes[i]);
	for (unsigned int i = 0; i < sizeof(models) / sizeof(*models); i++) {
		test_attention(&models[i], 1);
		test_attention(&models[i], 29);
	}
	test_refused();
	test_garbage(M6NPU_TYPE_F16);
	test_garbage(M6NPU_TYPE_Q8_0);
	fake_destroy(job);
	m6_exec_destroy(exec);
	m6_exec_destroy(many);
	return done();
}
