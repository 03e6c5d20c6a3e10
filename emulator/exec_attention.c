// SPDX-License-Identifier: MIT
/*
 * ROPE, ATTENTION and the KV cache.
 *
 * Attention reads the cache once per block of rows: a chunk of positions is
 * decoded to F32 for one KV head and all rows of the block, all query heads
 * of the group, take what they may see of it. The softmax is the streaming
 * one: per row and head a running maximum, a sum and a weighted sum of
 * values, in F32. Chunks begin at multiples of CHUNK, so that how a row's
 * positions fall into chunks depends on the row alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec_priv.h"

#define CHUNK			64u
#define BLOCK_ROWS		8u

/* ROPE */

struct rope {
	struct m6_mat rows;
	uint32_t heads, head_dim, pairs;
	bool interleaved;
	float theta, scale;
	const float *divisors;		/* NULL: none */
	double *frequency;		/* [pairs] */
	float *cosine, *sine;		/* [pairs], of the row at hand */
};

static void rope_frequencies(struct rope *r)
{
	for (uint32_t i = 0; i < r->pairs; i++) {
		double f = pow(r->theta, -(double)i / r->pairs) * r->scale;

		r->frequency[i] = r->divisors ? f / r->divisors[i] : f;
	}
}

static void rope_row(struct rope *r, uint32_t row, uint32_t position)
{
	uint32_t step = r->interleaved ? 2 : 1;
	uint32_t far = r->interleaved ? 1 : r->pairs;

	for (uint32_t i = 0; i < r->pairs; i++) {
		double angle = position * r->frequency[i];

		r->cosine[i] = (float)cos(angle);
		r->sine[i] = (float)sin(angle);
	}
	for (uint32_t head = 0; head < r->heads; head++) {
		float *x = m6_row(&r->rows, row) + head * r->head_dim;

		for (uint32_t i = 0; i < r->pairs; i++) {
			float a = x[i * step], b = x[i * step + far];

			x[i * step] = a * r->cosine[i] - b * r->sine[i];
			x[i * step + far] = a * r->sine[i] + b * r->cosine[i];
		}
	}
}

static uint32_t rope_compute(struct m6_run *run, struct rope *r)
{
	r->frequency = m6_scratch(run->exec, M6_SCRATCH_CLEAN,
				  r->pairs * (sizeof(double) +
					      2 * sizeof(float)));
	if (!r->frequency)
		return M6_NO_MEMORY;
	r->cosine = (float *)(r->frequency + r->pairs);
	r->sine = r->cosine + r->pairs;
	rope_frequencies(r);
	for (uint32_t row = 0; row < run->rows; row++)
		rope_row(r, row, m6_token(run, row)->position);
	return 0;
}

uint32_t m6_op_rope(struct m6_run *run)
{
	const typeof(run->cmd->args.rope) *a = &run->cmd->args.rope;
	uint32_t rot_dim = le16toh(a->rot_dim);
	struct rope r = {
		.heads = le16toh(a->heads),
		.head_dim = le16toh(a->head_dim),
		.pairs = rot_dim / 2,
		.interleaved = le16toh(a->flags) & M6NPU_ROPE_INTERLEAVED,
		.theta = m6_float(a->theta),
		.scale = m6_float(a->scale),
	};
	uint64_t divisor_bytes = r.pairs * sizeof(float);
	void *divisors = NULL;
	uint32_t code;

	if (!m6_dim(r.heads, M6_MAX_HEADS) ||
	    !m6_dim(r.head_dim, M6_MAX_HEAD_DIM) ||
	    !m6_dim(rot_dim, r.head_dim) || rot_dim % 2 ||
	    le16toh(a->flags) & ~M6NPU_ROPE_INTERLEAVED)
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_map_mat(run, 0, run->rows, r.heads * r.head_dim,
			  le32toh(a->stride), true, &r.rows);
	if (!code && m6_has(run, 1))
		code = m6_map(run, 1, divisor_bytes, false, &divisors);
	if (code)
		return code;
	if (divisors && m6_mat_overlaps(&r.rows, divisors, divisor_bytes))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	r.divisors = divisors;
	run->cost->dram_bytes += (uint64_t)run->rows * r.heads * r.head_dim *
				 sizeof(float);
	m6_charge_f32(run, (uint64_t)run->rows * r.heads * rot_dim * 2);
	return m6_run_idle(run) ? 0 : rope_compute(run, &r);
}

/* ATTENTION */

/* What one command sees of one slot: positions low..high of one layer. */
struct view {
	uint32_t slot;
	uint32_t low, high;
	uint8_t *k, *v;			/* row `low` */
};

/* A live row. Sorted by slot, then position. */
struct query {
	uint32_t slot;
	uint32_t position;
	uint32_t low;			/* first position it attends to */
	uint32_t row;
	uint32_t view;
};

/* Rows begin..end - 1 of the sorted ones, all of one slot. */
struct block {
	uint32_t begin, end;
};

struct attention {
	struct m6_run *run;
	const struct m6_type *type;	/* of the cache */
	struct m6_mat dst, src;
	uint32_t heads, kv_heads, head_dim, group;
	uint32_t window;
	float scale;
	uint64_t row_bytes, head_bytes;	/* of the cache */
	struct query *query;
	struct view *view;
	uint32_t views;
	struct block *block;
	uint32_t blocks;
	char *threads;
	uint64_t thread_bytes;
};

/* A thread's part of the scratch memory. */
struct bench {
	float *k, *v;			/* [CHUNK][head_dim] */
	float *q;			/* [head_dim] */
	float *score;			/* [CHUNK] */
	float *sum;			/* [BLOCK_ROWS][group][head_dim] */
	float *max, *total;		/* [BLOCK_ROWS][group] */
};

static uint64_t bench_floats(const struct attention *a)
{
	uint64_t states = BLOCK_ROWS * a->group;

	return (2 * CHUNK + 1 + states) * (uint64_t)a->head_dim + CHUNK +
	       2 * states;
}

static struct bench bench_of(const struct attention *a, unsigned int thread)
{
	uint64_t states = BLOCK_ROWS * a->group;
	struct bench b;

	b.k = (float *)(a->threads + thread * a->thread_bytes);
	b.v = b.k + CHUNK * a->head_dim;
	b.q = b.v + CHUNK * a->head_dim;
	b.sum = b.q + a->head_dim;
	b.score = b.sum + states * a->head_dim;
	b.max = b.score + CHUNK;
	b.total = b.max + states;
	return b;
}

static int compare_queries(const void *a, const void *b)
{
	const struct query *x = a, *y = b;

	if (x->slot != y->slot)
		return x->slot < y->slot ? -1 : 1;
	if (x->position != y->position)
		return x->position < y->position ? -1 : 1;
	return 0;
}

static uint32_t collect_queries(struct attention *a)
{
	uint32_t rows = a->run->rows;

	for (uint32_t i = 0; i < rows; i++) {
		const struct m6npu_step_token *token = m6_token(a->run, i);
		struct query *q = &a->query[i];

		if (token->position >= a->run->step->kv_capacity)
			return M6NPU_EXC_BOUNDS;
		*q = (struct query){ .slot = token->slot,
				     .position = token->position, .row = i };
		if (a->window && q->position >= a->window)
			q->low = q->position - a->window + 1;
	}
	qsort(a->query, rows, sizeof(*a->query), compare_queries);
	for (uint32_t i = 1; i < rows; i++) {
		if (!compare_queries(&a->query[i - 1], &a->query[i]))
			return M6NPU_EXC_ILLEGAL_COMMAND;
	}
	return 0;
}

/* Positions ascend within a slot, and so do the queries' lows. */
static void collect_views(struct attention *a)
{
	for (uint32_t i = 0; i < a->run->rows; i++) {
		struct query *q = &a->query[i];

		if (!i || q->slot != a->query[i - 1].slot)
			a->view[a->views++] = (struct view){
				.slot = q->slot, .low = q->low };
		q->view = a->views - 1;
		a->view[q->view].high = q->position;
	}
}

static void collect_blocks(struct attention *a)
{
	struct block *block = NULL;

	for (uint32_t i = 0; i < a->run->rows; i++) {
		if (!block || i - block->begin == BLOCK_ROWS ||
		    a->query[i].view != a->query[block->begin].view) {
			block = &a->block[a->blocks++];
			block->begin = i;
		}
		block->end = i + 1;
	}
}

/* Offset of the first row of K or V, or false if it is beyond any region. */
static bool cache_offset(const struct attention *a, const struct view *view,
			 uint32_t is_v, uint64_t *offset)
{
	const struct m6_step *step = a->run->step;
	uint64_t plane = le16toh(a->run->cmd->layer) * 2ull + is_v;
	uint64_t slot, row;

	if (__builtin_mul_overflow(view->slot, step->kv_slot_stride, &slot) ||
	    __builtin_mul_overflow(plane, step->kv_capacity, &row) ||
	    __builtin_add_overflow(row, view->low, &row) ||
	    __builtin_mul_overflow(row, a->row_bytes, &row))
		return false;
	return !__builtin_add_overflow(slot, row, offset);
}

static uint32_t map_plane(struct attention *a, const struct view *view,
			  uint32_t is_v, uint8_t **host)
{
	uint64_t count = (uint64_t)view->high - view->low + 1;
	uint64_t offset, bytes;
	void *address;
	uint32_t code;

	if (!cache_offset(a, view, is_v, &offset) ||
	    __builtin_mul_overflow(count, a->row_bytes, &bytes))
		return M6NPU_EXC_BOUNDS;
	code = m6_map_at(a->run, 2, offset, bytes, true, &address);
	if (code)
		return code;
	if (m6_mat_overlaps(&a->dst, address, bytes) ||
	    m6_mat_overlaps(&a->src, address, bytes))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	*host = address;
	a->run->cost->dram_bytes += bytes;
	return 0;
}

/*
 * A slot other than the first must not reach into its neighbour. And planes
 * begin at multiples of 4, so that what is mapped of one never takes bytes of
 * another along.
 */
static bool stride_valid(const struct attention *a)
{
	const struct m6_step *step = a->run->step;
	uint64_t used;

	if (step->kv_slot_stride % 4 || step->kv_capacity * a->row_bytes % 4)
		return false;
	if (!a->run->rows || !a->query[a->run->rows - 1].slot)
		return true;
	if (__builtin_mul_overflow((le16toh(a->run->cmd->layer) + 1ull) * 2 *
				   step->kv_capacity, a->row_bytes, &used))
		return false;
	return used <= step->kv_slot_stride;
}

static uint32_t map_cache(struct attention *a)
{
	uint32_t code = 0;

	if (!stride_valid(a))
		return M6NPU_EXC_BOUNDS;
	for (uint32_t i = 0; i < a->views && !code; i++) {
		code = map_plane(a, &a->view[i], 0, &a->view[i].k);
		if (!code)
			code = map_plane(a, &a->view[i], 1, &a->view[i].v);
	}
	return code;
}

static void store_rows(const struct attention *a, float *clean)
{
	uint32_t width = a->kv_heads * a->head_dim;

	for (uint32_t i = 0; i < a->run->rows; i++) {
		const struct query *q = &a->query[i];
		const struct view *view = &a->view[q->view];
		const float *k = m6_row(&a->src, q->row) +
				 a->heads * a->head_dim;
		uint64_t at = (q->position - view->low) * a->row_bytes;

		m6_type_encode(a->type, k, view->k + at, width, clean);
		m6_type_encode(a->type, k + width, view->v + at, width, clean);
	}
}

static void decode_chunk(const struct attention *a, const struct view *view,
			 uint32_t kv_head, uint32_t begin, uint32_t end,
			 struct bench *b)
{
	for (uint32_t p = begin; p < end; p++) {
		uint64_t at = (p - view->low) * a->row_bytes +
			      kv_head * a->head_bytes;
		uint32_t i = (p % CHUNK) * a->head_dim;

		m6_type_decode(a->type, view->k + at, b->k + i, a->head_dim);
		m6_type_decode(a->type, view->v + at, b->v + i, a->head_dim);
	}
}

/* Scores of positions begin..end - 1 of a chunk; returns their maximum. */
static float score_chunk(const struct attention *a, struct bench *b,
			 const float *q, uint32_t begin, uint32_t end)
{
	float max = -INFINITY;

	memcpy(b->q, q, a->head_dim * sizeof(*q));
	for (uint32_t i = begin; i < end; i++) {
		b->score[i] = a->scale * m6_dot_f32(b->q,
						    b->k + i * a->head_dim,
						    a->head_dim);
		if (b->score[i] > max)
			max = b->score[i];
	}
	return max;
}

/*
 * sum += weights * values of four positions. In vectors, as compilers don't
 * find them by themselves at -O2; of four, as every machine has those.
 */
static void add_four(float *sum, const float *v, const float *weight,
		     uint32_t n)
{
	typedef float four __attribute__((vector_size(16), aligned(4),
					  may_alias));
	uint32_t i = 0;

	for (; i + 4 <= n; i += 4)
		*(four *)(sum + i) +=
			(weight[0] * *(const four *)(v + i) +
			 weight[1] * *(const four *)(v + n + i)) +
			(weight[2] * *(const four *)(v + 2 * n + i) +
			 weight[3] * *(const four *)(v + 3 * n + i));
	for (; i < n; i++)
		sum[i] += (weight[0] * v[i] + weight[1] * v[n + i]) +
			  (weight[2] * v[2 * n + i] + weight[3] * v[3 * n + i]);
}

static void add_one(float *sum, const float *v, float weight, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		sum[i] += weight * v[i];
}

static void rescale(float *sum, float *total, float factor, uint32_t n)
{
	*total *= factor;
	for (uint32_t i = 0; i < n; i++)
		sum[i] *= factor;
}

static void attend_chunk(const struct attention *a, struct bench *b,
			 uint32_t state, const float *q, uint32_t begin,
			 uint32_t end)
{
	float *sum = b->sum + state * a->head_dim;
	float max = score_chunk(a, b, q, begin, end);
	uint32_t i;

	if (max > b->max[state]) {
		rescale(sum, &b->total[state], expf(b->max[state] - max),
			a->head_dim);
		b->max[state] = max;
	}
	for (i = begin; i < end; i++) {
		b->score[i] = expf(b->score[i] - b->max[state]);
		b->total[state] += b->score[i];
	}
	for (i = begin; i + 4 <= end; i += 4)
		add_four(sum, b->v + i * a->head_dim, b->score + i,
			 a->head_dim);
	for (; i < end; i++)
		add_one(sum, b->v + i * a->head_dim, b->score[i], a->head_dim);
}

/* One row of the block against one chunk, all heads of the group. */
static void attend_row(const struct attention *a, struct bench *b,
		       const struct query *query, uint32_t state,
		       uint32_t kv_head, uint32_t chunk)
{
	uint32_t begin = query->low > chunk ? query->low - chunk : 0;
	uint32_t end = query->position - chunk < CHUNK ?
		       query->position - chunk + 1 : CHUNK;
	const float *q = m6_row(&a->src, query->row) +
			 kv_head * a->group * a->head_dim;

	if (query->position < chunk || begin >= CHUNK)
		return;
	for (uint32_t i = 0; i < a->group; i++)
		attend_chunk(a, b, state + i, q + i * a->head_dim, begin, end);
}

static void store_row(const struct attention *a, const struct bench *b,
		      const struct query *query, uint32_t state,
		      uint32_t kv_head)
{
	float *dst = m6_row(&a->dst, query->row) +
		     kv_head * a->group * a->head_dim;

	for (uint32_t i = 0; i < a->group; i++, state++) {
		const float *sum = b->sum + state * a->head_dim;

		for (uint32_t j = 0; j < a->head_dim; j++)
			*dst++ = sum[j] / b->total[state];
	}
}

static void reset_states(const struct attention *a, struct bench *b)
{
	uint32_t states = BLOCK_ROWS * a->group;

	memset(b->sum, 0, (uint64_t)states * a->head_dim * sizeof(float));
	memset(b->total, 0, states * sizeof(float));
	for (uint32_t i = 0; i < states; i++)
		b->max[i] = -INFINITY;
}

static uint32_t block_low(const struct attention *a, const struct block *block)
{
	return a->query[block->begin].low;
}

static uint32_t block_high(const struct attention *a,
			   const struct block *block)
{
	return a->query[block->end - 1].position;
}

/* An item is one block of rows and one KV head. */
static void attention_item(void *arg, uint32_t item, unsigned int thread)
{
	const struct attention *a = arg;
	const struct block *block = &a->block[item / a->kv_heads];
	const struct view *view = &a->view[a->query[block->begin].view];
	uint32_t kv_head = item % a->kv_heads;
	uint32_t low = block_low(a, block), high = block_high(a, block);
	struct bench b = bench_of(a, thread);

	reset_states(a, &b);
	for (uint64_t chunk = low - low % CHUNK; chunk <= high;
	     chunk += CHUNK) {
		uint32_t begin = chunk > low ? chunk : low;
		uint32_t end = chunk + CHUNK <= high ? chunk + CHUNK : high + 1;

		decode_chunk(a, view, kv_head, begin, end, &b);
		for (uint32_t i = block->begin; i < block->end; i++)
			attend_row(a, &b, &a->query[i],
				   (i - block->begin) * a->group, kv_head,
				   chunk);
	}
	for (uint32_t i = block->begin; i < block->end; i++)
		store_row(a, &b, &a->query[i], (i - block->begin) * a->group,
			  kv_head);
}

/* Multiply-accumulates of one kind (q.k or p.v). */
static uint64_t count_macs(const struct attention *a)
{
	uint64_t positions = 0;

	for (uint32_t i = 0; i < a->run->rows; i++)
		positions += a->query[i].position - a->query[i].low + 1;
	return positions * a->heads * a->head_dim;
}

static uint32_t attention_compute(struct attention *a)
{
	uint32_t width = a->kv_heads * a->head_dim;
	struct m6_exec *exec = a->run->exec;
	float *clean;

	a->thread_bytes = (bench_floats(a) * sizeof(float) + 63) & ~63ull;
	a->threads = m6_scratch(exec, M6_SCRATCH_THREADS,
				m6_pool_threads(exec->pool) * a->thread_bytes);
	clean = m6_scratch(exec, M6_SCRATCH_CLEAN, width * sizeof(*clean));
	if (!a->threads || !clean)
		return M6_NO_MEMORY;
	store_rows(a, clean);
	return m6_parallel(a->run, a->blocks * a->kv_heads, 2 * count_macs(a),
			   attention_item, a);
}

static uint32_t map_rows(struct attention *a)
{
	struct m6_run *run = a->run;
	uint32_t width = (a->heads + 2 * a->kv_heads) * a->head_dim;
	uint32_t code;

	code = m6_map_mat(run, 1, run->rows, width, width, false, &a->src);
	if (!code)
		code = m6_map_mat(run, 0, run->rows, a->heads * a->head_dim,
				  a->heads * a->head_dim, true, &a->dst);
	if (!code && m6_mat_overlap(&a->dst, &a->src))
		code = M6NPU_EXC_ILLEGAL_COMMAND;
	return code;
}

static bool collect_scratch(struct attention *a)
{
	uint32_t rows = a->run->rows;
	char *space = m6_scratch(a->run->exec, M6_SCRATCH_ROWS,
				 rows * (sizeof(*a->query) +
					 sizeof(*a->block)));

	a->view = m6_scratch(a->run->exec, M6_SCRATCH_VIEWS,
			     rows * sizeof(*a->view));
	if (!space || !a->view)
		return false;
	a->query = (struct query *)space;
	a->block = (struct block *)(a->query + rows);
	return true;
}

static uint32_t prepare(struct attention *a)
{
	uint32_t code = map_rows(a);

	if (code)
		return code;
	if (!collect_scratch(a))
		return M6_NO_MEMORY;
	code = collect_queries(a);
	if (code)
		return code;
	collect_views(a);
	collect_blocks(a);
	return map_cache(a);
}

static bool attention_valid(const struct attention *a)
{
	const typeof(a->run->cmd->args.attention) *args =
		&a->run->cmd->args.attention;
	uint32_t kv_type = a->run->step->kv_type;

	if (args->pad0 || args->pad1 ||
	    (kv_type != M6NPU_TYPE_F16 && kv_type != M6NPU_TYPE_Q8_0))
		return false;
	return m6_dim(a->heads, M6_MAX_HEADS) &&
	       m6_dim(a->kv_heads, a->heads) && a->heads % a->kv_heads == 0 &&
	       m6_dim(a->head_dim, M6_MAX_HEAD_DIM) &&
	       a->head_dim % m6_type_block(a->type) == 0;
}

uint32_t m6_op_attention(struct m6_run *run)
{
	const typeof(run->cmd->args.attention) *args =
		&run->cmd->args.attention;
	struct attention a = {
		.run = run,
		.type = m6_type((uint8_t)run->step->kv_type),
		.heads = le16toh(args->heads),
		.kv_heads = le16toh(args->kv_heads),
		.head_dim = le16toh(args->head_dim),
		.window = le32toh(args->window),
		.scale = m6_float(args->scale),
	};
	uint64_t macs;
	uint32_t code;

	if (!attention_valid(&a))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	a.group = a.heads / a.kv_heads;
	a.head_bytes = m6_type_bytes(a.type, a.head_dim);
	a.row_bytes = a.head_bytes * a.kv_heads;
	code = prepare(&a);
	if (code)
		return code;
	macs = count_macs(&a);
	m6_type_charge(run, a.type, 2 * macs);
	return m6_run_idle(run) ? 0 : attention_compute(&a);
}
