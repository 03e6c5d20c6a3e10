// SPDX-License-Identifier: MIT
/*
 * GEMM: dst = src * weight^T + bias.
 *
 * Each element is one row product, whatever the tile; the order in which
 * elements are made is free, and is such that a few rows of weights and a few
 * of activations stay in the cache. Bias and accumulation come last, in this
 * order.
 */
#include <math.h>

#include "exec_priv.h"

/* Rows of weights that one item does, and bytes of activations at a time. */
#define WEIGHT_ROWS		32u
#define TILE_BYTES		(24u << 10)
/* What packed activations may occupy; more rows go in several passes. */
#define PACKED_BYTES		(16ull << 20)

struct gemm {
	const struct m6_type *type;
	struct m6_mat dst, src;
	const uint8_t *weight;
	const float *bias;		/* NULL: none */
	uint32_t n, k;
	uint64_t weight_bytes;		/* of a row */
	uint64_t packed_bytes;		/* of a row */
	uint8_t *packed;
	uint8_t *valid;
	bool accumulate;
	uint32_t first, rows;		/* of this pass */
	uint32_t tile;			/* rows at a time */
};

static void store(const struct gemm *g, uint32_t row, uint32_t column,
		  float value)
{
	float *dst = m6_row(&g->dst, g->first + row) + column;

	if (g->bias)
		value += g->bias[column];
	*dst = g->accumulate ? *dst + value : value;
}

static void product(const struct gemm *g, uint32_t row, uint32_t column)
{
	float value = NAN;

	if (g->valid[row])
		value = m6_type_dot(g->type,
				    g->weight + column * g->weight_bytes,
				    g->packed + row * g->packed_bytes, g->k);
	store(g, row, column, value);
}

static void gemm_item(void *arg, uint32_t item, unsigned int thread)
{
	const struct gemm *g = arg;
	uint32_t begin = item * WEIGHT_ROWS;
	uint32_t end = begin + WEIGHT_ROWS < g->n ? begin + WEIGHT_ROWS : g->n;

	(void)thread;
	for (uint32_t tile = 0; tile < g->rows; tile += g->tile) {
		for (uint32_t column = begin; column < end; column++) {
			for (uint32_t row = tile;
			     row < g->rows && row < tile + g->tile; row++)
				product(g, row, column);
		}
	}
}

static void pack_rows(struct gemm *g, float *clean)
{
	for (uint32_t i = 0; i < g->rows; i++)
		g->valid[i] = m6_type_pack(g->type,
					   m6_row(&g->src, g->first + i),
					   g->packed + i * g->packed_bytes,
					   g->k, clean);
}

static uint32_t compute(struct m6_run *run, struct gemm *g)
{
	uint32_t pass = PACKED_BYTES / g->packed_bytes;
	uint32_t items = (g->n + WEIGHT_ROWS - 1) / WEIGHT_ROWS;
	uint32_t code = 0;
	float *clean;

	pass = pass ? pass : 1;
	pass = pass < run->rows ? pass : run->rows;
	g->tile = TILE_BYTES / g->packed_bytes;
	g->tile = g->tile > 2 ? g->tile : 2;
	g->packed = m6_scratch(run->exec, M6_SCRATCH_PACKED,
			       pass * g->packed_bytes);
	g->valid = m6_scratch(run->exec, M6_SCRATCH_VALID, pass);
	clean = m6_scratch(run->exec, M6_SCRATCH_CLEAN,
			   g->k * sizeof(*clean));
	if (!g->packed || !g->valid || !clean)
		return M6_NO_MEMORY;
	for (g->first = 0; g->first < run->rows && !code; g->first += pass) {
		uint32_t left = run->rows - g->first;

		g->rows = left < pass ? left : pass;
		pack_rows(g, clean);
		code = m6_parallel(run, items, (uint64_t)g->rows * g->n * g->k,
				   gemm_item, g);
	}
	return code;
}

static uint32_t map_operands(struct m6_run *run, struct gemm *g)
{
	const typeof(run->cmd->args.gemm) *a = &run->cmd->args.gemm;
	void *weight, *bias = NULL;
	uint32_t code;

	code = m6_map_mat(run, 1, run->rows, g->k, le32toh(a->src_stride),
			  false, &g->src);
	if (!code)
		code = m6_map(run, 2, g->n * g->weight_bytes, false, &weight);
	if (!code && m6_has(run, 3))
		code = m6_map(run, 3, g->n * sizeof(float), false, &bias);
	if (!code)
		code = m6_map_mat(run, 0, run->rows, g->n,
				  le32toh(a->dst_stride), true, &g->dst);
	if (code)
		return code;
	if (m6_mat_overlap(&g->dst, &g->src) ||
	    m6_mat_overlaps(&g->dst, weight, g->n * g->weight_bytes) ||
	    (bias && m6_mat_overlaps(&g->dst, bias, g->n * sizeof(float))))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	g->weight = weight;
	g->bias = bias;
	return 0;
}

uint32_t m6_op_gemm(struct m6_run *run)
{
	const typeof(run->cmd->args.gemm) *a = &run->cmd->args.gemm;
	struct gemm g = {
		.type = m6_type(run->cmd->type[2]),
		.n = le32toh(a->n),
		.k = le32toh(a->k),
		.accumulate = run->cmd->flags & M6NPU_CMD_ACCUMULATE,
	};
	uint32_t code;

	if (!g.type || a->pad || !m6_dim(g.n, M6_MAX_DIM) ||
	    !m6_dim(g.k, M6_MAX_DIM) || g.k % m6_type_block(g.type))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	g.weight_bytes = m6_type_bytes(g.type, g.k);
	g.packed_bytes = m6_type_packed_bytes(g.type, g.k);
	code = map_operands(run, &g);
	if (code)
		return code;
	if (g.accumulate)
		run->cost->dram_bytes += (uint64_t)run->rows * g.n *
					 sizeof(float);
	m6_type_charge(run, g.type, (uint64_t)run->rows * g.n * g.k);
	return m6_run_idle(run) ? 0 : compute(run, &g);
}
