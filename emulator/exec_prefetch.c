// SPDX-License-Identifier: MIT
/*
 * EXPERT_PREFETCH. Which experts are worth it is decided here, and what comes
 * of that by the device side. Nothing that is computed depends on it.
 */
#include <stdlib.h>

#include "exec_priv.h"

struct likely {
	float chance;
	uint32_t id;
};

/* Most likely first, ties by lower id. */
static int compare_likely(const void *a, const void *b)
{
	const struct likely *x = a, *y = b;

	if (x->chance != y->chance)
		return x->chance > y->chance ? -1 : 1;
	return x->id < y->id ? -1 : 1;
}

/* The best chance of each expert in any row. A NaN is no chance. */
static uint32_t collect(const struct m6_run *run, const struct m6_mat *ids,
			const struct m6_mat *chances, uint32_t experts,
			float *best)
{
	const volatile __le32 *id = (const __le32 *)ids->data;
	uint64_t pairs = (uint64_t)run->rows * ids->width;

	for (uint32_t i = 0; i < experts; i++)
		best[i] = -1;
	for (uint64_t i = 0; i < pairs; i++) {
		float chance = *(const volatile float *)&chances->data[i];
		uint32_t expert = le32toh(id[i]);

		if (expert >= experts)
			return M6NPU_EXC_ILLEGAL_COMMAND;
		if (chance > best[expert])
			best[expert] = chance;
	}
	return 0;
}

static void prefetch(const struct m6_run *run, const float *best,
		     uint32_t experts)
{
	float threshold = m6_job_threshold(run->job) / 1000.0f;
	struct likely likely[M6_MAX_EXPERTS];
	uint32_t ids[M6_MAX_EXPERTS], count = 0;

	if (threshold > 1)
		return;
	for (uint32_t i = 0; i < experts; i++) {
		if (best[i] >= threshold)
			likely[count++] = (struct likely){ best[i], i };
	}
	qsort(likely, count, sizeof(*likely), compare_likely);
	for (uint32_t i = 0; i < count; i++)
		ids[i] = likely[i].id;
	m6_job_prefetch(run->job, le16toh(run->cmd->layer), ids, count);
}

uint32_t m6_op_prefetch(struct m6_run *run)
{
	const typeof(run->cmd->args.moe) *a = &run->cmd->args.moe;
	uint32_t k = le16toh(a->k), experts = le16toh(a->experts);
	struct m6_mat ids, chances;
	float best[M6_MAX_EXPERTS];
	uint32_t code;

	if (!m6_dim(experts, M6_MAX_EXPERTS) || !m6_dim(k, experts) ||
	    a->hidden || a->ffn || a->act || a->capacity || a->members)
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_map_mat(run, 0, run->rows, k, k, false, &ids);
	if (!code)
		code = m6_map_mat(run, 1, run->rows, k, k, false, &chances);
	if (!code)
		code = collect(run, &ids, &chances, experts, best);
	if (!code)
		prefetch(run, best, experts);
	return code;
}
