// SPDX-License-Identifier: MIT
/* MOE_COMBINE, which is the last part of a MOE_FFN that goes token by token. */
#include "exec_priv.h"

/* Never inlined: compiled once, it rounds in the same way for both. */
__attribute__((noinline))
void m6_combine_row(const struct m6_combine *c, float *dst, const float *pairs,
		    const float *weights)
{
	for (uint32_t i = 0; i < c->hidden; i++) {
		float sum = 0;

		for (uint32_t j = 0; j < c->k; j++)
			sum += weights[j] * pairs[(uint64_t)j * c->hidden + i];
		dst[i] = c->accumulate ? dst[i] + sum : sum;
	}
}

struct operands {
	struct m6_mat dst, pairs, weights;
};

static uint32_t map_operands(struct m6_run *run, const struct m6_combine *c,
			     struct operands *o)
{
	uint32_t code;

	code = m6_map_mat(run, 1, run->rows * c->k, c->hidden, c->hidden,
			  false, &o->pairs);
	if (!code)
		code = m6_map_mat(run, 2, run->rows, c->k, c->k, false,
				  &o->weights);
	if (!code)
		code = m6_map_mat(run, 0, run->rows, c->hidden, c->hidden,
				  true, &o->dst);
	if (code)
		return code;
	if (m6_mat_overlap(&o->dst, &o->pairs) ||
	    m6_mat_overlap(&o->dst, &o->weights))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	return 0;
}

uint32_t m6_op_combine(struct m6_run *run)
{
	const typeof(run->cmd->args.moe) *a = &run->cmd->args.moe;
	const struct m6_combine c = {
		.k = le16toh(a->k),
		.hidden = le32toh(a->hidden),
		.accumulate = run->cmd->flags & M6NPU_CMD_ACCUMULATE,
	};
	struct operands o;
	uint32_t code;

	if (!m6_dim(c.k, M6_MAX_ROUTED) ||
	    !m6_dim(c.hidden, M6_MAX_EXPERT_DIM) || a->experts || a->ffn ||
	    a->act || a->capacity || a->members)
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = map_operands(run, &c, &o);
	if (code)
		return code;
	if (c.accumulate)
		run->cost->dram_bytes += (uint64_t)run->rows * c.hidden *
					 sizeof(float);
	m6_charge_f32(run, (uint64_t)run->rows * c.k * c.hidden);
	if (m6_run_idle(run))
		return 0;
	for (uint32_t i = 0; i < run->rows; i++) {
		if (m6_job_cancelled(run->job))
			return M6NPU_EXC_ABORTED;
		m6_combine_row(&c, m6_row(&o.dst, i),
			       m6_row(&o.pairs, i * c.k),
			       m6_row(&o.weights, i));
	}
	return 0;
}
