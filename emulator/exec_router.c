// SPDX-License-Identifier: MIT
/*
 * ROUTER_TOPK: which experts a row goes to, or, with M6NPU_ROUTER_CHANCE,
 * where it will probably go later.
 */
#include <math.h>
#include <stdlib.h>

#include "exec_priv.h"

#define ROUTER_KINDS	(M6NPU_ROUTER_SIGMOID | M6NPU_ROUTER_RENORMALIZE)
/* What an infinite logit counts as. */
#define HUGE_LOGIT	3.4e38f

struct router {
	struct m6_mat ids, weights, logits;
	const float *bias;		/* NULL: none */
	uint32_t experts, k, flags;
	float scale;
	uint32_t among;			/* 0: no guess */
};

struct ranked {
	float score;
	uint32_t id;
};

/* A NaN logit is one that nobody wants, an infinite one a very large one. */
static float tame(float logit)
{
	if (isnan(logit))
		return -INFINITY;
	return logit < HUGE_LOGIT ? logit : HUGE_LOGIT;
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
	bool sigmoid = r->flags & M6NPU_ROUTER_SIGMOID;

	for (uint32_t i = 0; i < r->experts; i++) {
		p[i] = tame(logits[i]);
		if (sigmoid)
			p[i] = 1.0f / (1.0f + expf(-p[i]));
	}
	if (!sigmoid)
		softmax(p, r->experts);
}

/* Best first, ties by lower id. Scores are no NaN. */
static int compare_ranked(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->score != y->score)
		return x->score > y->score ? -1 : 1;
	return x->id < y->id ? -1 : 1;
}

static void rank(const struct router *r, struct ranked *ranked,
		 __le32 *ids)
{
	qsort(ranked, r->experts, sizeof(*ranked), compare_ranked);
	for (uint32_t i = 0; i < r->k; i++)
		ids[i] = htole32(ranked[i].id);
}

static void route_row(const struct router *r, uint32_t row)
{
	float *weights = m6_row(&r->weights, row), p[M6_MAX_EXPERTS];
	struct ranked ranked[M6_MAX_EXPERTS];
	float sum = 0;

	probabilities(r, m6_row(&r->logits, row), p);
	for (uint32_t i = 0; i < r->experts; i++)
		ranked[i] = (struct ranked){
			.score = r->bias ? tame(p[i] + r->bias[i]) : p[i],
			.id = i,
		};
	rank(r, ranked, (__le32 *)m6_row(&r->ids, row));
	for (uint32_t i = 0; i < r->k; i++) {
		weights[i] = p[ranked[i].id];
		sum += weights[i];
	}
	for (uint32_t i = 0; i < r->k; i++) {
		if (r->flags & M6NPU_ROUTER_RENORMALIZE && sum > 0)
			weights[i] /= sum;
		weights[i] *= r->scale;
	}
}

/* Above it an expert is more likely chosen than not. */
static double between(const struct router *r, const struct ranked *ranked)
{
	if (r->among == r->experts)
		return -INFINITY;
	return ((double)ranked[r->among - 1].score +
		(double)ranked[r->among].score) / 2;
}

static void guess_row(const struct router *r, uint32_t row)
{
	const float *logits = m6_row(&r->logits, row);
	float *chances = m6_row(&r->weights, row);
	struct ranked ranked[M6_MAX_EXPERTS];
	double middle;

	/* Finite, so that differences are numbers. */
	for (uint32_t i = 0; i < r->experts; i++)
		ranked[i] = (struct ranked){
			.score = fmaxf(tame(logits[i]), -HUGE_LOGIT),
			.id = i,
		};
	rank(r, ranked, (__le32 *)m6_row(&r->ids, row));
	middle = between(r, ranked);
	for (uint32_t i = 0; i < r->k; i++)
		chances[i] = (float)(1 / (1 + exp((middle - ranked[i].score) /
						  r->scale)));
}

/* Nobody computed logits. */
static void make_up_row(const struct router *r, const struct m6_dry *dry,
			uint32_t row)
{
	__le32 *ids = (__le32 *)m6_row(&r->ids, row);
	float *weights = m6_row(&r->weights, row);
	uint32_t choice[M6_MAX_EXPERTS];

	if (r->among)
		m6_dry_guess(dry, row, r->among, r->k, choice, weights);
	else
		m6_dry_choose(dry, row, r->k, choice);
	for (uint32_t i = 0; i < r->k; i++) {
		ids[i] = htole32(choice[i]);
		if (!r->among)
			weights[i] = r->scale / (float)r->k;
	}
}

static uint32_t route(struct m6_run *run, const struct router *r)
{
	struct m6_dry dry;

	if (run->dry)
		m6_dry_begin(run, r->experts, &dry);
	for (uint32_t row = 0; row < run->rows; row++) {
		if (m6_job_cancelled(run->job))
			return M6NPU_EXC_ABORTED;
		if (run->dry)
			make_up_row(r, &dry, row);
		else if (r->among)
			guess_row(r, row);
		else
			route_row(r, row);
	}
	return 0;
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

static bool guess_valid(const struct m6_run *run, const struct router *r)
{
	return r->flags == M6NPU_ROUTER_CHANCE && !m6_has(run, 3) &&
	       m6_dim(r->among, r->experts) && r->scale > 0 &&
	       r->scale < INFINITY;
}

static bool router_valid(const struct m6_run *run, const struct router *r)
{
	if (!m6_dim(r->experts, M6_MAX_EXPERTS) || !m6_dim(r->k, r->experts))
		return false;
	if (r->flags & M6NPU_ROUTER_CHANCE)
		return guess_valid(run, r);
	return r->k <= M6_MAX_ROUTED && !r->among &&
	       !(r->flags & ~ROUTER_KINDS);
}

uint32_t m6_op_router(struct m6_run *run)
{
	const typeof(run->cmd->args.router) *a = &run->cmd->args.router;
	struct router r = {
		.experts = le32toh(a->experts),
		.k = le32toh(a->k),
		.flags = le32toh(a->flags),
		.scale = m6_float(a->scale),
		.among = le32toh(a->among),
	};
	uint32_t code;

	if (!router_valid(run, &r))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	if (!a->scale)
		r.scale = 1;
	code = router_map(run, &r);
	if (code)
		return code;
	m6_charge_f32(run, (uint64_t)run->rows * r.experts * 2);
	return route(run, &r);
}
