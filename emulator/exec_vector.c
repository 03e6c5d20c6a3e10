// SPDX-License-Identifier: MIT
/*
 * Row-wise operations in F32: EMBED, GATHER, NORM, GLU, ADD, SCALE,
 * GATED_ADD, TOPK.
 */
#include <math.h>
#include <string.h>

#include "exec_priv.h"

struct embed {
	const struct m6_type *type;
	struct m6_mat dst;
	uint32_t vocab;
	uint64_t row_bytes;
	void **src;			/* [rows] */
};

/*
 * The table may be larger than all else together and only a few rows of it
 * are wanted: it is checked as a whole and mapped row by row.
 */
static uint32_t embed_map(struct m6_run *run, struct embed *e)
{
	uint32_t code = 0;

	e->src = m6_scratch(run->exec, M6_SCRATCH_ROWS,
			    run->rows * sizeof(*e->src));
	if (!e->src)
		return M6_NO_MEMORY;
	for (uint32_t i = 0; i < run->rows; i++) {
		if (m6_token(run, i)->token >= e->vocab)
			return M6NPU_EXC_ILLEGAL_COMMAND;
	}
	for (uint32_t i = 0; i < run->rows && !code; i++) {
		code = m6_map_at(run, 1, m6_token(run, i)->token * e->row_bytes,
				 e->row_bytes, false, &e->src[i]);
		if (!code && m6_mat_overlaps(&e->dst, e->src[i], e->row_bytes))
			code = M6NPU_EXC_ILLEGAL_COMMAND;
	}
	return code;
}

uint32_t m6_op_embed(struct m6_run *run)
{
	const typeof(run->cmd->args.embed) *a = &run->cmd->args.embed;
	uint32_t width = le32toh(a->width);
	struct embed e = {
		.type = m6_type(run->cmd->type[1]),
		.vocab = le32toh(a->vocab),
	};
	uint32_t code;

	if (!e.type || !m6_dim(width, M6_MAX_DIM) || !m6_zero(a->pad, 3) ||
	    !m6_dim(e.vocab, M6_MAX_DIM) || width % m6_type_block(e.type))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	e.row_bytes = m6_type_bytes(e.type, width);
	if (m6_job_operand_room(run->job, le64toh(run->cmd->operand[1])) <
	    e.vocab * e.row_bytes)
		return M6NPU_EXC_BOUNDS;
	code = m6_map_mat(run, 0, run->rows, width, width, true, &e.dst);
	if (!code)
		code = embed_map(run, &e);
	if (code)
		return code;
	run->cost->dram_bytes += run->rows * e.row_bytes;
	if (m6_run_idle(run))
		return 0;
	for (uint32_t i = 0; i < run->rows; i++)
		m6_type_decode(e.type, e.src[i], m6_row(&e.dst, i), width);
	return 0;
}

static bool out_rows_within(const struct m6_run *run, uint32_t rows)
{
	for (uint32_t i = 0; i < run->step->out_count; i++) {
		if (run->step->out_rows[i] >= rows)
			return false;
	}
	return true;
}

/* Live rows are the source's here: args.rows is the size of the tile. */
uint32_t m6_op_gather(struct m6_run *run)
{
	const typeof(run->cmd->args.embed) *a = &run->cmd->args.embed;
	uint32_t width = le32toh(a->width);
	uint32_t count = run->step->out_count;
	struct m6_mat dst, src;
	uint32_t code;

	if (!m6_dim(width, M6_MAX_DIM) || a->vocab || !m6_zero(a->pad, 3) ||
	    !out_rows_within(run, run->rows))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_map_mat(run, 1, run->rows, width, width, false, &src);
	if (!code)
		code = m6_map_mat(run, 0, count, width, width, true, &dst);
	if (code)
		return code;
	if (m6_mat_overlap(&dst, &src))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	if (run->dry)
		return 0;
	for (uint32_t i = 0; i < count; i++)
		memcpy(m6_row(&dst, i), m6_row(&src, run->step->out_rows[i]),
		       width * sizeof(float));
	return 0;
}

/* The mean in double: a row of large values must not overflow. */
static void norm_vector(float *dst, const float *src, const float *weight,
			uint32_t width, float eps)
{
	double sum = 0;
	float scale;

	for (uint32_t i = 0; i < width; i++)
		sum += (double)src[i] * src[i];
	scale = (float)(1.0 / sqrt(sum / width + eps));
	for (uint32_t i = 0; i < width; i++)
		dst[i] = src[i] * scale * weight[i];
}

uint32_t m6_op_norm(struct m6_run *run)
{
	const typeof(run->cmd->args.norm) *a = &run->cmd->args.norm;
	uint32_t groups = le32toh(a->groups), width = le32toh(a->width);
	uint64_t row = (uint64_t)groups * width;
	struct m6_mat dst, src;
	void *weight;
	uint32_t code;

	if (!m6_dim(groups, M6_MAX_DIM) || !m6_dim(width, M6_MAX_DIM) ||
	    row > M6_MAX_DIM)
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_map_mat(run, 1, run->rows, row, le32toh(a->src_stride), false,
			  &src);
	if (!code)
		code = m6_map_mat(run, 0, run->rows, row,
				  le32toh(a->dst_stride), true, &dst);
	if (!code)
		code = m6_map(run, 2, width * sizeof(float), false, &weight);
	if (code)
		return code;
	if (m6_mat_clash(&dst, &src) ||
	    m6_mat_overlaps(&dst, weight, width * sizeof(float)))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	m6_charge_f32(run, run->rows * row * 2);
	if (m6_run_idle(run))
		return 0;
	for (uint32_t i = 0; i < run->rows; i++) {
		for (uint32_t j = 0; j < row; j += width)
			norm_vector(m6_row(&dst, i) + j, m6_row(&src, i) + j,
				    weight, width, m6_float(a->eps));
	}
	return 0;
}

float m6_activate(uint32_t act, float x)
{
	if (act == M6NPU_ACT_SILU)
		return x / (1.0f + expf(-x));
	return 0.5f * x *
	       (1.0f + tanhf(0.797884561f * x * (1.0f + 0.044715f * x * x)));
}

uint32_t m6_op_glu(struct m6_run *run)
{
	const typeof(run->cmd->args.glu) *a = &run->cmd->args.glu;
	uint32_t n = le32toh(a->n), act = le32toh(a->act);
	struct m6_mat dst, gate, up;
	uint32_t code;

	if (!m6_dim(n, M6_MAX_DIM) || act > M6NPU_ACT_GELU)
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_map_mat(run, 1, run->rows, n, le32toh(a->gate_stride), false,
			  &gate);
	if (!code)
		code = m6_map_mat(run, 2, run->rows, n, le32toh(a->up_stride),
				  false, &up);
	if (!code)
		code = m6_map_mat(run, 0, run->rows, n, le32toh(a->dst_stride),
				  true, &dst);
	if (code)
		return code;
	if (m6_mat_clash(&dst, &gate) || m6_mat_clash(&dst, &up))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	m6_charge_f32(run, (uint64_t)run->rows * n * 2);
	if (m6_run_idle(run))
		return 0;
	for (uint32_t i = 0; i < run->rows; i++) {
		const float *g = m6_row(&gate, i), *u = m6_row(&up, i);
		float *d = m6_row(&dst, i);

		for (uint32_t j = 0; j < n; j++)
			d[j] = m6_activate(act, g[j]) * u[j];
	}
	return 0;
}

/* Packed rows are one long row. */
static uint64_t packed_count(const struct m6_run *run, uint32_t n)
{
	return (uint64_t)run->rows * n;
}

uint32_t m6_op_add(struct m6_run *run)
{
	const typeof(run->cmd->args.add) *args = &run->cmd->args.add;
	uint32_t n = le32toh(args->n);
	struct m6_mat dst, a, b;
	uint32_t code;

	if (!m6_dim(n, M6_MAX_DIM) || args->factor || !m6_zero(args->pad, 3))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_map_mat(run, 1, run->rows, n, n, false, &a);
	if (!code)
		code = m6_map_mat(run, 2, run->rows, n, n, false, &b);
	if (!code)
		code = m6_map_mat(run, 0, run->rows, n, n, true, &dst);
	if (code)
		return code;
	if (m6_mat_clash(&dst, &a) || m6_mat_clash(&dst, &b))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	m6_charge_f32(run, packed_count(run, n));
	if (m6_run_idle(run))
		return 0;
	for (uint64_t i = 0; i < packed_count(run, n); i++)
		dst.data[i] = a.data[i] + b.data[i];
	return 0;
}

uint32_t m6_op_scale(struct m6_run *run)
{
	const typeof(run->cmd->args.add) *a = &run->cmd->args.add;
	uint32_t n = le32toh(a->n);
	float factor = m6_float(a->factor);
	struct m6_mat dst, src;
	uint32_t code;

	if (!m6_dim(n, M6_MAX_DIM) || !m6_zero(a->pad, 3))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_map_mat(run, 1, run->rows, n, n, false, &src);
	if (!code)
		code = m6_map_mat(run, 0, run->rows, n, n, true, &dst);
	if (code)
		return code;
	if (m6_mat_clash(&dst, &src))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	m6_charge_f32(run, packed_count(run, n));
	if (m6_run_idle(run))
		return 0;
	for (uint64_t i = 0; i < packed_count(run, n); i++)
		dst.data[i] = src.data[i] * factor;
	return 0;
}

uint32_t m6_op_gated_add(struct m6_run *run)
{
	const typeof(run->cmd->args.add) *a = &run->cmd->args.add;
	uint32_t n = le32toh(a->n);
	struct m6_mat dst, src, gate;
	uint32_t code;

	if (!m6_dim(n, M6_MAX_DIM) || a->factor || !m6_zero(a->pad, 3))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_map_mat(run, 1, run->rows, n, n, false, &src);
	if (!code)
		code = m6_map_mat(run, 2, run->rows, 1, 1, false, &gate);
	if (!code)
		code = m6_map_mat(run, 0, run->rows, n, n, true, &dst);
	if (code)
		return code;
	if (m6_mat_clash(&dst, &src) || m6_mat_overlap(&dst, &gate))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	run->cost->dram_bytes += packed_count(run, n) * sizeof(float);
	m6_charge_f32(run, packed_count(run, n));
	if (m6_run_idle(run))
		return 0;
	for (uint32_t i = 0; i < run->rows; i++) {
		float weight = 1.0f / (1.0f + expf(-gate.data[i]));

		for (uint32_t j = 0; j < n; j++)
			m6_row(&dst, i)[j] += weight * m6_row(&src, i)[j];
	}
	return 0;
}

/* Keeps the k largest so far in order; later equals stay behind. */
static void topk_row(const float *src, uint32_t n, uint32_t k, __le32 *ids,
		     float *values)
{
	uint32_t id[M6_MAX_TOPK];
	float best[M6_MAX_TOPK];
	uint32_t count = 0;

	for (uint32_t i = 0; i < n; i++) {
		float x = isnan(src[i]) ? -INFINITY : src[i];
		uint32_t at;

		if (count == k && !(x > best[k - 1]))
			continue;
		at = count < k ? count++ : k - 1;
		for (; at && x > best[at - 1]; at--) {
			best[at] = best[at - 1];
			id[at] = id[at - 1];
		}
		best[at] = x;
		id[at] = i;
	}
	memcpy(values, best, k * sizeof(*values));
	for (uint32_t i = 0; i < k; i++)
		ids[i] = htole32(id[i]);
}

uint32_t m6_op_topk(struct m6_run *run)
{
	const typeof(run->cmd->args.topk) *a = &run->cmd->args.topk;
	uint32_t n = le32toh(a->n), k = le32toh(a->k);
	struct m6_mat ids, values, src;
	uint32_t code;

	if (!m6_dim(n, M6_MAX_DIM) || !m6_dim(k, M6_MAX_TOPK) || k > n ||
	    !m6_zero(a->pad, 3))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_map_mat(run, 2, run->rows, n, n, false, &src);
	if (!code)
		code = m6_map_mat(run, 0, run->rows, k, k, true, &ids);
	if (!code)
		code = m6_map_mat(run, 1, run->rows, k, k, true, &values);
	if (code)
		return code;
	if (m6_mat_overlap(&ids, &src) || m6_mat_overlap(&values, &src) ||
	    m6_mat_overlap(&ids, &values))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	m6_charge_f32(run, packed_count(run, n));
	if (m6_run_idle(run))
		return 0;
	for (uint32_t i = 0; i < run->rows; i++) {
		if (m6_job_cancelled(run->job))
			return M6NPU_EXC_ABORTED;
		topk_row(m6_row(&src, i), n, k, (__le32 *)m6_row(&ids, i),
			 m6_row(&values, i));
	}
	return 0;
}
