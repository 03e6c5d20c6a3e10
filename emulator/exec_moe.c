// SPDX-License-Identifier: MIT
/*
 * ROUTER_TOPK, MOE_FFN, EXPERT_PREFETCH.
 *
 * MOE_FFN works expert by expert, so that an expert's weights are read once
 * for all rows that chose it, but keeps what every (row, choice) pair got
 * apart and adds up a row's choices in their order at the end. So the result
 * doesn't know how rows were grouped.
 */
#include <math.h>
#include <string.h>

#include "exec_priv.h"

#define WEIGHT_ROWS		16u
/* What a pass may occupy; more rows go in several passes. */
#define PASS_BYTES		(32ull << 20)

/* ROUTER_TOPK */

struct router {
	struct m6_mat ids, weights, logits;
	const float *bias;		/* NULL: none */
	uint32_t experts, k;
	bool sigmoid, renormalize;
	float scale;
};

/* A NaN logit is one that nobody wants, an infinite one a very large one. */
static float tame(float logit)
{
	if (isnan(logit))
		return -INFINITY;
	return logit < 3.4e38f ? logit : 3.4e38f;
}

static void softmax(float *p, uint32_t n)
{
	float max = -INFINITY;
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		max = p[i] > max ? p[i] : max;
	for (uint32_t i = 0; i < n; i++) {
		p[i] = p[i] == -INFINITY ? 0 : expf(p[i] - max);
		sum += p[i];
	}
	for (uint32_t i = 0; i < n && sum > 0; i++)
		p[i] = (float)(p[i] / sum);
}

static void probabilities(const struct router *r, const float *logits,
			  float *p)
{
	for (uint32_t i = 0; i < r->experts; i++) {
		p[i] = tame(logits[i]);
		if (r->sigmoid)
			p[i] = 1.0f / (1.0f + expf(-p[i]));
	}
	if (!r->sigmoid)
		softmax(p, r->experts);
}

/* The best one that is not yet taken. There is one: k <= experts. */
static uint32_t pick(const float *score, const bool *taken, uint32_t n)
{
	uint32_t best = n;

	for (uint32_t i = 0; i < n; i++) {
		if (!taken[i] && (best == n || score[i] > score[best]))
			best = i;
	}
	return best;
}

static void route_row(const struct router *r, uint32_t row)
{
	float p[M6_MAX_EXPERTS], score[M6_MAX_EXPERTS];
	bool taken[M6_MAX_EXPERTS] = { false };
	__le32 *ids = (__le32 *)m6_row(&r->ids, row);
	float *weights = m6_row(&r->weights, row);
	float sum = 0;

	probabilities(r, m6_row(&r->logits, row), p);
	for (uint32_t i = 0; i < r->experts; i++)
		score[i] = r->bias ? tame(p[i] + r->bias[i]) : p[i];
	for (uint32_t i = 0; i < r->k; i++) {
		uint32_t id = pick(score, taken, r->experts);

		taken[id] = true;
		ids[i] = htole32(id);
		weights[i] = p[id];
		sum += p[id];
	}
	for (uint32_t i = 0; i < r->k; i++) {
		if (r->renormalize && sum > 0)
			weights[i] /= sum;
		weights[i] *= r->scale;
	}
}

static uint32_t router_map(struct m6_run *run, struct router *r)
{
	uint64_t bias_bytes = r->experts * sizeof(float);
	void *bias = NULL;
	uint32_t code;

	code = m6_map_mat(run, 2, run->rows, r->experts, r->experts, false,
			  &r->logits);
	if (!code && m6_has(run, 3))
		code = m6_map(run, 3, bias_bytes, false, &bias);
	if (!code)
		code = m6_map_mat(run, 0, run->rows, r->k, r->k, true,
				  &r->ids);
	if (!code)
		code = m6_map_mat(run, 1, run->rows, r->k, r->k, true,
				  &r->weights);
	if (code)
		return code;
	if (m6_mat_overlap(&r->ids, &r->logits) ||
	    m6_mat_overlap(&r->weights, &r->logits) ||
	    m6_mat_overlap(&r->ids, &r->weights))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	if (bias && (m6_mat_overlaps(&r->ids, bias, bias_bytes) ||
		     m6_mat_overlaps(&r->weights, bias, bias_bytes)))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	r->bias = bias;
	return 0;
}

uint32_t m6_op_router(struct m6_run *run)
{
	const typeof(run->cmd->args.router) *a = &run->cmd->args.router;
	uint32_t flags = le32toh(a->flags);
	struct router r = {
		.experts = le32toh(a->experts),
		.k = le32toh(a->k),
		.sigmoid = flags & M6NPU_ROUTER_SIGMOID,
		.renormalize = flags & M6NPU_ROUTER_RENORMALIZE,
		.scale = a->scale ? m6_float(a->scale) : 1.0f,
	};
	uint32_t code;

	if (!m6_dim(r.experts, M6_MAX_EXPERTS) || !m6_dim(r.k, r.experts) ||
	    r.k > M6_MAX_ROUTED || a->among ||
	    flags & ~(M6NPU_ROUTER_SIGMOID | M6NPU_ROUTER_RENORMALIZE))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = router_map(run, &r);
	if (code)
		return code;
	m6_charge_f32(run, (uint64_t)run->rows * r.experts * 2);
	if (m6_run_idle(run))
		return 0;
	for (uint32_t row = 0; row < run->rows; row++)
		route_row(&r, row);
	return 0;
}

/* MOE_FFN */

/* One of the distinct experts of the command. */
struct expert {
	const uint8_t *host;
	uint32_t first;			/* its pairs in `order`, of this pass */
	uint32_t pairs;
};

struct moe {
	struct m6_run *run;
	struct m6_mat dst, src, ids, weights;
	const struct m6_type *gate, *up, *down;
	uint32_t k, hidden, ffn, act;
	uint64_t gate_row, up_row, down_row;	/* bytes */
	uint64_t up_at, down_at, bytes;		/* within an expert */
	bool accumulate;

	uint32_t expert_limit;			/* args.moe.experts */
	uint32_t id[M6_MAX_EXPERTS];		/* distinct, as they came */
	uint16_t index[M6_MAX_EXPERTS];		/* id -> expert[] */
	struct expert expert[M6_MAX_EXPERTS];
	uint32_t experts;
	uint16_t *choice;			/* [rows * k] -> expert[] */

	/* Of a pass; a pair is row * k + choice. */
	uint32_t first, rows;
	uint32_t *order;			/* pairs by expert */
	uint64_t gate_packed, up_packed, down_packed;	/* bytes of a row */
	uint8_t *packed_gate, *packed_up;	/* [rows] */
	uint8_t *packed_down;			/* [pairs] */
	bool *valid_gate, *valid_up, *valid_down;
	float *inner;				/* [pairs][ffn] */
	float *outer;				/* [pairs][hidden] */
	float *clean;				/* [threads][widest] */
};

static uint64_t expert_align(uint64_t bytes)
{
	return (bytes + M6NPU_EXPERT_ALIGN - 1) &
	       ~(uint64_t)(M6NPU_EXPERT_ALIGN - 1);
}

/* Sizes, or false if the dimensions don't suit the types. */
static bool moe_layout(struct moe *m)
{
	if (!m->gate || !m->up || !m->down ||
	    !m6_dim(m->hidden, M6_MAX_EXPERT_DIM) ||
	    !m6_dim(m->ffn, M6_MAX_EXPERT_DIM) ||
	    m->hidden % m6_type_block(m->gate) ||
	    m->hidden % m6_type_block(m->up) ||
	    m->ffn % m6_type_block(m->down))
		return false;
	m->gate_row = m6_type_bytes(m->gate, m->hidden);
	m->up_row = m6_type_bytes(m->up, m->hidden);
	m->down_row = m6_type_bytes(m->down, m->ffn);
	m->up_at = expert_align(m->ffn * m->gate_row);
	m->down_at = expert_align(m->up_at + m->ffn * m->up_row);
	m->bytes = m->down_at + m->hidden * m->down_row;
	m->gate_packed = m6_type_packed_bytes(m->gate, m->hidden);
	m->up_packed = m6_type_packed_bytes(m->up, m->hidden);
	m->down_packed = m6_type_packed_bytes(m->down, m->ffn);
	return true;
}

static uint32_t moe_map(struct moe *m)
{
	struct m6_run *run = m->run;
	uint32_t code;

	code = m6_map_mat(run, 1, run->rows, m->hidden, m->hidden, false,
			  &m->src);
	if (!code)
		code = m6_map_mat(run, 2, run->rows, m->k, m->k, false,
				  &m->ids);
	if (!code)
		code = m6_map_mat(run, 3, run->rows, m->k, m->k, false,
				  &m->weights);
	if (!code)
		code = m6_map_mat(run, 0, run->rows, m->hidden, m->hidden,
				  true, &m->dst);
	if (code)
		return code;
	if (m6_mat_overlap(&m->dst, &m->src) ||
	    m6_mat_overlap(&m->dst, &m->ids) ||
	    m6_mat_overlap(&m->dst, &m->weights))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	if (m->accumulate)
		run->cost->dram_bytes += (uint64_t)run->rows * m->hidden *
					 sizeof(float);
	return 0;
}

static void moe_price(struct moe *m, uint32_t distinct)
{
	struct m6_run *run = m->run;
	uint64_t matrix = (uint64_t)m->hidden * m->ffn * run->rows * m->k;

	run->cost->dram_bytes += distinct * m->bytes;
	m6_type_charge(run, m->gate, matrix);
	m6_type_charge(run, m->up, matrix);
	m6_type_charge(run, m->down, matrix);
}

/* Reads the ids, once: the guest can't change them after the check. */
static uint32_t collect_experts(struct moe *m)
{
	uint32_t pairs = m->run->rows * m->k;
	const volatile __le32 *ids = (const __le32 *)m->ids.data;

	m->choice = m6_scratch(m->run->exec, M6_SCRATCH_VIEWS,
			       pairs * sizeof(*m->choice));
	if (!m->choice)
		return M6_NO_MEMORY;
	memset(m->index, 0xff, sizeof(m->index));
	for (uint32_t i = 0; i < pairs; i++) {
		uint32_t id = le32toh(ids[i]);

		if (id >= m->expert_limit)
			return M6NPU_EXC_ILLEGAL_COMMAND;
		if (m->index[id] == 0xffff) {
			m->index[id] = m->experts;
			m->id[m->experts++] = id;
		}
		m->choice[i] = m->index[id];
	}
	return 0;
}

static uint32_t map_expert(struct moe *m, const struct m6npu_expert *entry,
			   struct expert *expert)
{
	struct m6_span span;
	uint32_t code;

	if (entry->size < m->bytes)
		return M6NPU_EXC_BOUNDS;
	if (entry->addr % 4)
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_job_map_address(m->run->job, entry->addr, m->bytes, &span);
	if (code)
		return code;
	if (m6_mat_overlaps(&m->dst, span.host, m->bytes))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	expert->host = span.host;
	return 0;
}

static uint32_t find_experts(struct moe *m)
{
	struct m6npu_expert entries[M6_MAX_EXPERTS];
	uint32_t code;

	code = m6_job_experts(m->run->job, le16toh(m->run->cmd->layer), m->id,
			      m->experts, entries);
	for (uint32_t i = 0; i < m->experts && !code; i++)
		code = map_expert(m, &entries[i], &m->expert[i]);
	return code;
}

static uint64_t row_cost(const struct moe *m)
{
	uint64_t pair = m->ffn * sizeof(float) + m->hidden * sizeof(float) +
			m->down_packed + sizeof(uint32_t) + 1;

	return m->k * pair + m->gate_packed + m->up_packed + 2;
}

/* One allocation, cut up: large alignments first. */
static bool pass_scratch(struct moe *m, uint32_t rows)
{
	uint32_t pairs = rows * m->k;
	uint32_t widest = m->hidden > m->ffn ? m->hidden : m->ffn;
	uint8_t *at = m6_scratch(m->run->exec, M6_SCRATCH_BLOCK,
				 rows * row_cost(m));

	m->clean = m6_scratch(m->run->exec, M6_SCRATCH_THREADS,
			      m6_pool_threads(m->run->exec->pool) *
			      (uint64_t)widest * sizeof(float));
	if (!at || !m->clean)
		return false;
	m->packed_gate = at;
	at += rows * m->gate_packed;
	m->packed_up = at;
	at += rows * m->up_packed;
	m->packed_down = at;
	at += pairs * m->down_packed;
	m->inner = (float *)at;
	m->outer = m->inner + (uint64_t)pairs * m->ffn;
	m->order = (uint32_t *)(m->outer + (uint64_t)pairs * m->hidden);
	m->valid_down = (bool *)(m->order + pairs);
	m->valid_gate = m->valid_down + pairs;
	m->valid_up = m->valid_gate + rows;
	return true;
}

/* A counting sort of the pass's pairs by expert. */
static void group_pairs(struct moe *m)
{
	const uint16_t *choice = m->choice + m->first * m->k;
	uint32_t pairs = m->rows * m->k, first = 0;

	for (uint32_t i = 0; i < m->experts; i++)
		m->expert[i].pairs = 0;
	for (uint32_t i = 0; i < pairs; i++)
		m->expert[choice[i]].pairs++;
	for (uint32_t i = 0; i < m->experts; i++) {
		m->expert[i].first = first;
		first += m->expert[i].pairs;
		m->expert[i].pairs = 0;
	}
	for (uint32_t i = 0; i < pairs; i++) {
		struct expert *expert = &m->expert[choice[i]];

		m->order[expert->first + expert->pairs++] = i;
	}
}

static void pack_sources(struct moe *m)
{
	for (uint32_t i = 0; i < m->rows; i++) {
		const float *src = m6_row(&m->src, m->first + i);

		m->valid_gate[i] =
			m6_type_pack(m->gate, src,
				     m->packed_gate + i * m->gate_packed,
				     m->hidden, m->clean);
		m->valid_up[i] =
			m6_type_pack(m->up, src,
				     m->packed_up + i * m->up_packed,
				     m->hidden, m->clean);
	}
}

static uint32_t chunks(uint32_t weight_rows)
{
	return (weight_rows + WEIGHT_ROWS - 1) / WEIGHT_ROWS;
}

static uint32_t chunk_end(uint32_t begin, uint32_t weight_rows)
{
	return weight_rows - begin < WEIGHT_ROWS ? weight_rows :
						   begin + WEIGHT_ROWS;
}

static float inner_value(const struct moe *m, const uint8_t *expert,
			 uint32_t pair, uint32_t i)
{
	uint32_t row = pair / m->k;
	float gate, up;

	if (!m->valid_gate[row] || !m->valid_up[row])
		return NAN;
	gate = m6_type_dot(m->gate, expert + i * m->gate_row,
			   m->packed_gate + row * m->gate_packed, m->hidden);
	up = m6_type_dot(m->up, expert + m->up_at + i * m->up_row,
			 m->packed_up + row * m->up_packed, m->hidden);
	return m6_activate(m->act, gate) * up;
}

/* An item is one expert and some rows of its matrices. */
static void inner_item(void *arg, uint32_t item, unsigned int thread)
{
	const struct moe *m = arg;
	const struct expert *expert = &m->expert[item / chunks(m->ffn)];
	uint32_t begin = item % chunks(m->ffn) * WEIGHT_ROWS;

	(void)thread;
	for (uint32_t i = begin; i < chunk_end(begin, m->ffn); i++) {
		for (uint32_t j = 0; j < expert->pairs; j++) {
			uint32_t pair = m->order[expert->first + j];

			m->inner[(uint64_t)pair * m->ffn + i] =
				inner_value(m, expert->host, pair, i);
		}
	}
}

static void pack_item(void *arg, uint32_t pair, unsigned int thread)
{
	const struct moe *m = arg;
	uint32_t widest = m->hidden > m->ffn ? m->hidden : m->ffn;

	m->valid_down[pair] =
		m6_type_pack(m->down, m->inner + (uint64_t)pair * m->ffn,
			     m->packed_down + pair * m->down_packed, m->ffn,
			     m->clean + (uint64_t)thread * widest);
}

static float outer_value(const struct moe *m, const uint8_t *expert,
			 uint32_t pair, uint32_t i)
{
	if (!m->valid_down[pair])
		return NAN;
	return m6_type_dot(m->down, expert + m->down_at + i * m->down_row,
			   m->packed_down + pair * m->down_packed, m->ffn);
}

static void outer_item(void *arg, uint32_t item, unsigned int thread)
{
	const struct moe *m = arg;
	const struct expert *expert = &m->expert[item / chunks(m->hidden)];
	uint32_t begin = item % chunks(m->hidden) * WEIGHT_ROWS;

	(void)thread;
	for (uint32_t i = begin; i < chunk_end(begin, m->hidden); i++) {
		for (uint32_t j = 0; j < expert->pairs; j++) {
			uint32_t pair = m->order[expert->first + j];

			m->outer[(uint64_t)pair * m->hidden + i] =
				outer_value(m, expert->host, pair, i);
		}
	}
}

static void combine_row(const struct moe *m, uint32_t row)
{
	const float *weights = m6_row(&m->weights, m->first + row);
	float *dst = m6_row(&m->dst, m->first + row);

	for (uint32_t i = 0; i < m->hidden; i++) {
		const float *value = m->outer + (uint64_t)row * m->k *
				     m->hidden + i;
		float sum = 0;

		for (uint32_t j = 0; j < m->k; j++)
			sum += weights[j] * value[(uint64_t)j * m->hidden];
		dst[i] = m->accumulate ? dst[i] + sum : sum;
	}
}

static uint32_t moe_pass(struct moe *m)
{
	uint32_t pairs = m->rows * m->k;
	uint64_t macs = (uint64_t)pairs * m->hidden * m->ffn;
	uint32_t code;

	group_pairs(m);
	pack_sources(m);
	code = m6_parallel(m->run, m->experts * chunks(m->ffn), 2 * macs,
			   inner_item, m);
	if (!code)
		code = m6_parallel(m->run, pairs, (uint64_t)pairs * m->ffn,
				   pack_item, m);
	if (!code)
		code = m6_parallel(m->run, m->experts * chunks(m->hidden),
				   macs, outer_item, m);
	for (uint32_t i = 0; i < m->rows && !code; i++)
		combine_row(m, i);
	return code;
}

static uint32_t moe_compute(struct moe *m)
{
	uint32_t pass = PASS_BYTES / row_cost(m);
	uint32_t rows = m->run->rows;
	uint32_t code = 0;

	pass = pass ? pass : 1;
	pass = pass < rows ? pass : rows;
	if (!pass_scratch(m, pass))
		return M6_NO_MEMORY;
	for (m->first = 0; m->first < rows && !code; m->first += pass) {
		m->rows = rows - m->first < pass ? rows - m->first : pass;
		code = moe_pass(m);
	}
	m6_scratch_trim(m->run->exec, M6_SCRATCH_BLOCK);
	return code;
}

/* Dry, nobody knows the ids: every pair names another expert, if it can. */
static uint32_t dry_experts(const struct moe *m)
{
	uint32_t pairs = m->run->rows * m->k;

	return pairs < m->expert_limit ? pairs : m->expert_limit;
}

static bool routed_valid(uint32_t k, uint32_t experts)
{
	return m6_dim(experts, M6_MAX_EXPERTS) && m6_dim(k, M6_MAX_ROUTED) &&
	       k <= experts;
}

uint32_t m6_op_moe(struct m6_run *run)
{
	const typeof(run->cmd->args.moe) *a = &run->cmd->args.moe;
	struct moe m = {
		.run = run,
		.gate = m6_type(run->cmd->type[1]),
		.up = m6_type(run->cmd->type[2]),
		.down = m6_type(run->cmd->type[3]),
		.k = le16toh(a->k),
		.hidden = le32toh(a->hidden),
		.ffn = le32toh(a->ffn),
		.act = le32toh(a->act),
		.accumulate = run->cmd->flags & M6NPU_CMD_ACCUMULATE,
		.expert_limit = le16toh(a->experts),
	};
	uint32_t code;

	if (!routed_valid(m.k, m.expert_limit) || m.act > M6NPU_ACT_GELU ||
	    a->capacity || a->members || !moe_layout(&m))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = moe_map(&m);
	if (code || m6_run_idle(run)) {
		moe_price(&m, dry_experts(&m));
		return code;
	}
	code = collect_experts(&m);
	if (!code)
		code = find_experts(&m);
	if (code)
		return code;
	moe_price(&m, m.experts);
	return moe_compute(&m);
}

/* EXPERT_PREFETCH: a hint. Its ids are checked; residency changes nothing. */

uint32_t m6_op_prefetch(struct m6_run *run)
{
	const typeof(run->cmd->args.moe) *a = &run->cmd->args.moe;
	uint32_t k = le16toh(a->k), experts = le16toh(a->experts);
	struct m6_mat ids, probabilities;
	uint32_t code;

	experts = experts ? experts : M6_MAX_EXPERTS;
	if (!routed_valid(k, experts) || a->hidden || a->ffn || a->act ||
	    a->capacity || a->members)
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_map_mat(run, 0, run->rows, k, k, false, &ids);
	if (!code)
		code = m6_map_mat(run, 1, run->rows, k, k, false,
				  &probabilities);
	if (code || m6_run_idle(run))
		return code;
	for (uint32_t i = 0; i < run->rows * k; i++) {
		if (le32toh(((const __le32 *)ids.data)[i]) >= experts)
			return M6NPU_EXC_ILLEGAL_COMMAND;
	}
	return 0;
}
