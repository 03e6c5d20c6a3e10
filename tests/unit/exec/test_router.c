// SPDX-License-Identifier: MIT
/* ROUTER_TOPK. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "fake.h"

static struct m6_exec *exec;
static struct m6_job *job;

static uint32_t run(const struct m6npu_cmd *cmd)
{
	struct m6_cost cost;

	return m6_exec_command(exec, job, cmd, false, &cost);
}

struct routing {
	uint32_t experts, k, flags;
	float scale;
	bool bias;
	uint32_t levels;		/* of logits, 0: all differ */
};

static double probability(const struct routing *r, const float *logits,
			  uint32_t i)
{
	double sum = 0;

	if (r->flags & M6NPU_ROUTER_SIGMOID)
		return 1 / (1 + exp(-logits[i]));
	for (uint32_t j = 0; j < r->experts; j++)
		sum += exp(logits[j]);
	return exp(logits[i]) / sum;
}

static bool routed(const struct routing *r, const float *logits,
		   const float *bias, const int32_t *ids, const float *weights)
{
	double total = 0, factor = r->scale != 0 ? r->scale : 1;
	bool taken[512] = { false };

	for (uint32_t i = 0; i < r->k; i++) {
		uint32_t best = r->experts;
		double top = 0;

		for (uint32_t j = 0; j < r->experts; j++) {
			double p = probability(r, logits, j) +
				   (r->bias ? bias[j] : 0);

			/* Ties within rounding are ties: logits are few. */
			if (!taken[j] && (best == r->experts ||
					  p > top + 1e-9)) {
				best = j;
				top = p;
			}
		}
		taken[best] = true;
		total += probability(r, logits, best);
		if (ids[i] != (int32_t)best)
			return false;
	}
	if (r->flags & M6NPU_ROUTER_RENORMALIZE)
		factor /= total;
	for (uint32_t i = 0; i < r->k; i++) {
		if (fabs(weights[i] - probability(r, logits, ids[i]) *
			 factor) > 1e-5)
			return false;
	}
	return true;
}

static struct m6npu_cmd router_command(const struct routing *r, uint32_t rows)
{
	struct m6npu_cmd cmd = fake_command(M6NPU_OP_ROUTER_TOPK);

	for (unsigned int i = 0; i < (r->bias ? 4 : 3); i++)
		cmd.operand[i] = M6NPU_OPERAND(i, 0);
	cmd.args.router.rows = rows;
	cmd.args.router.experts = r->experts;
	cmd.args.router.k = r->k;
	cmd.args.router.flags = r->flags;
	cmd.args.router.scale = float_bits(r->scale);
	return cmd;
}

static void test_router(const struct routing *r)
{
	const uint32_t rows = 5;
	struct m6npu_cmd cmd = router_command(r, rows);
	int32_t *ids = fake_region(job, 0, rows * r->k * 4);
	float *weights = fake_region(job, 1, rows * r->k * 4);
	float *logits = fake_region(job, 2, rows * r->experts * 4);
	float *bias = fake_region(job, 3, r->experts * 4);
	bool right = true;

	random_floats(logits, rows * r->experts);
	for (uint32_t i = 0; i < rows * r->experts; i++)
		logits[i] = r->levels ? fake_random() % r->levels :
					logits[i] * 4;
	for (uint32_t i = 0; i < r->experts; i++)
		bias[i] = (fake_random() % 8) / 16.0f;
	ok(!run(&cmd), "ROUTER_TOPK runs");
	for (uint32_t i = 0; i < rows; i++)
		right &= routed(r, logits + i * r->experts, bias,
				ids + i * r->k, weights + i * r->k);
	ok(right, "%u of %u, flags %u, scale %g, %s, %u levels", r->k,
	   r->experts, r->flags, r->scale, r->bias ? "biased" : "unbiased",
	   r->levels);
}

static void test_router_garbage(uint32_t flags)
{
	const struct routing r = { 6, 3, flags, 0, false, 0 };
	struct m6npu_cmd cmd = router_command(&r, 3);
	int32_t *ids = fake_region(job, 0, 3 * 3 * 4);
	float *weights = fake_region(job, 1, 3 * 3 * 4);
	float *logits = fake_region(job, 2, 3 * 6 * 4);

	for (uint32_t i = 0; i < 6; i++) {
		logits[i] = NAN;
		logits[6 + i] = i == 4 ? 1 : i == 5 ? 0 : NAN;
		logits[12 + i] = i == 3 ? INFINITY : -INFINITY;
	}
	ok(!run(&cmd), "ROUTER_TOPK of NaN runs");
	ok(ids[0] == 0 && ids[1] == 1 && ids[2] == 2, "all NaN: the first");
	ok(ids[3] == 4 && ids[4] == 5 && ids[5] == 0 && weights[5] == 0,
	   "some NaN: last");
	ok(ids[6] == 3 && weights[6] == 1 && weights[7] == 0, "infinity: all");
	cmd.args.router.k = 7;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "more than there are");
	cmd.args.router.k = 3;
	cmd.args.router.flags = 8;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "an unknown flag");
	cmd.args.router.flags = flags;
	cmd.args.router.among = 3;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "among, and no guess");
}

/* M6NPU_ROUTER_CHANCE */

struct guess {
	uint32_t experts, k, among;
	float scale;
	uint32_t levels;		/* of logits, 0: all differ */
};

static struct m6npu_cmd guess_command(const struct guess *g, uint32_t rows)
{
	const struct routing r = { g->experts, g->k, M6NPU_ROUTER_CHANCE,
				   g->scale, false, 0 };
	struct m6npu_cmd cmd = router_command(&r, rows);

	cmd.layer = 7;
	cmd.args.router.among = g->among;
	return cmd;
}

/* The id that is ranked @rank, from 0. */
static uint32_t ranked(const float *logits, uint32_t count, uint32_t rank)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t before = 0;

		for (uint32_t j = 0; j < count; j++)
			before += logits[j] > logits[i] ||
				  (logits[j] == logits[i] && j < i);
		if (before == rank)
			return i;
	}
	return count;
}

static double chance(const struct guess *g, const float *logits, uint32_t id)
{
	double last, next;

	if (g->among == g->experts)
		return 1;
	last = logits[ranked(logits, g->experts, g->among - 1)];
	next = logits[ranked(logits, g->experts, g->among)];
	return 1 / (1 + exp(-(logits[id] - (last + next) / 2) / g->scale));
}

static bool guessed(const struct guess *g, const float *logits,
		    const int32_t *ids, const float *chances, double *worst)
{
	bool right = true;

	for (uint32_t i = 0; i < g->k; i++) {
		uint32_t id = ranked(logits, g->experts, i);
		double error = fabs(chances[i] - chance(g, logits, id));

		right &= ids[i] == (int32_t)id;
		if (!(error <= *worst))
			*worst = error;
	}
	return right;
}

static void test_guess(const struct guess *g)
{
	const uint32_t rows = 3;
	struct m6npu_cmd cmd = guess_command(g, rows);
	int32_t *ids = fake_region(job, 0, rows * g->k * 4);
	float *chances = fake_region(job, 1, rows * g->k * 4);
	float *logits = fake_region(job, 2, rows * g->experts * 4);
	double worst = 0;
	bool right = true;

	random_floats(logits, rows * g->experts);
	for (uint32_t i = 0; i < rows * g->experts; i++)
		logits[i] = g->levels ? fake_random() % g->levels :
					logits[i] * 4;
	ok(!run(&cmd), "a guess runs");
	for (uint32_t i = 0; i < rows; i++)
		right &= guessed(g, logits + i * g->experts, ids + i * g->k,
				 chances + i * g->k, &worst);
	ok(right, "%u of %u in the order of their logits", g->k, g->experts);
	ok(worst < 1e-6, "among %u, scale %g: chances off by %g", g->among,
	   g->scale, worst);
}

static bool chances_are(const float *chances, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (!(chances[i] >= 0 && chances[i] <= 1))
			return false;
	}
	return true;
}

static void test_guess_garbage(float scale)
{
	const struct guess g = { 6, 6, 2, scale, 0 };
	struct m6npu_cmd cmd = guess_command(&g, 4);
	int32_t *ids = fake_region(job, 0, 4 * 6 * 4);
	float *chances = fake_region(job, 1, 4 * 6 * 4);
	float *logits = fake_region(job, 2, 4 * 6 * 4);

	for (uint32_t i = 0; i < 6; i++) {
		logits[i] = NAN;
		logits[6 + i] = i == 4 ? 1 : i == 5 ? 0 : NAN;
		logits[12 + i] = i == 3 ? INFINITY : -INFINITY;
		logits[18 + i] = i < 3 ? 3.4e38f : -3.4e38f;
	}
	ok(!run(&cmd) && chances_are(chances, 24),
	   "a guess from NaN, scale %g: chances are chances", scale);
	ok(ids[0] == 0 && ids[5] == 5, "all NaN: in order");
	ok(ids[6] == 4 && ids[7] == 5 && ids[8] == 0 && chances[6] == 1 &&
	   chances[7] == 1 && chances[8] == 0, "some NaN: no chance");
	ok(ids[12] == 3 && chances[12] == 1, "infinity: sure");
	ok(chances[18] == 0.5f && chances[20] == 0.5f && chances[21] == 0,
	   "a tie at the edge: even");
}

static void refuse_guess(const struct m6npu_cmd *good, const char *what,
			 uint32_t flags, float scale, uint32_t among)
{
	struct m6npu_cmd cmd = *good;

	cmd.args.router.flags = flags;
	cmd.args.router.scale = float_bits(scale);
	cmd.args.router.among = among;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "%s", what);
}

/* A job that is aborted does not wait for 65536 rows. */
static void test_cancelled(bool dry)
{
	static const struct routing kinds[] = {
		{ 16, 4, 0, 1, false, 0 },
		{ 16, 4, M6NPU_ROUTER_CHANCE, 1, false, 0 },
	};
	struct m6_cost cost;

	for (unsigned int i = 0; i < 2; i++) {
		struct m6npu_cmd cmd = router_command(&kinds[i], 8);
		float *weights = fake_region(job, 1, 8 * 4 * 4);

		fake_region(job, 0, 8 * 4 * 4);
		fake_region(job, 2, 8 * 16 * 4);
		cmd.args.router.among = i ? 2 : 0;
		job->polls_left = 3;
		ok(m6_exec_command(exec, job, &cmd, dry, &cost) ==
		   M6NPU_EXC_ABORTED && weights[2 * 4] != 0 &&
		   weights[3 * 4] == 0, "cancelled in the middle: %s%s",
		   i ? "a guess" : "a choice", dry ? ", dry" : "");
		job->polls_left = UINT64_MAX;
	}
}

static void test_guess_refused(void)
{
	const struct guess g = { 16, 4, 2, 1, 0 };
	struct m6npu_cmd cmd = guess_command(&g, 1);
	const uint32_t flag = M6NPU_ROUTER_CHANCE;

	for (unsigned int i = 0; i < 4; i++)
		fake_region(job, i, 64);
	ok(!run(&cmd), "a good guess");
	refuse_guess(&cmd, "no scale", flag, 0, 2);
	refuse_guess(&cmd, "a negative scale", flag, -1, 2);
	refuse_guess(&cmd, "an infinite scale", flag, INFINITY, 2);
	refuse_guess(&cmd, "a scale that is no number", flag, NAN, 2);
	refuse_guess(&cmd, "among none", flag, 1, 0);
	refuse_guess(&cmd, "among more than there are", flag, 1, 17);
	refuse_guess(&cmd, "a sigmoid guess",
		     flag | M6NPU_ROUTER_SIGMOID, 1, 2);
	refuse_guess(&cmd, "a renormalized guess",
		     flag | M6NPU_ROUTER_RENORMALIZE, 1, 2);
	cmd.operand[3] = M6NPU_OPERAND(3, 0);
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "a biased guess");
}

int main(void)
{
	static const struct routing routings[] = {
		{ 8, 2, 0, 0, false, 0 },
		{ 64, 8, M6NPU_ROUTER_RENORMALIZE, 0, false, 0 },
		{ 64, 6, M6NPU_ROUTER_SIGMOID, 2.5f, true, 0 },
		{ 256, 8, M6NPU_ROUTER_SIGMOID | M6NPU_ROUTER_RENORMALIZE,
		  2.5f, true, 5 },
		{ 16, 16, M6NPU_ROUTER_RENORMALIZE, 0, true, 3 },
		{ 512, 64, 0, 0, false, 2 },
		{ 1, 1, 0, 0, false, 0 },
	};
	static const struct guess guesses[] = {
		{ 8, 2, 2, 1, 0 },
		{ 60, 8, 4, 0.37f, 0 },
		{ 64, 16, 8, 2.5f, 5 },
		{ 512, 512, 64, 0.1f, 0 },
		{ 512, 3, 511, 1e-3f, 0 },
		{ 8, 8, 8, 1, 0 },
		{ 1, 1, 1, 1, 0 },
	};

	exec = m6_exec_create(1);
	job = fake_create();
	if (!ok(exec, "created"))
		return done();
	for (unsigned int i = 0; i < sizeof(routings) / sizeof(*routings); i++)
		test_router(&routings[i]);
	test_router_garbage(0);
	test_router_garbage(M6NPU_ROUTER_RENORMALIZE);
	for (unsigned int i = 0; i < sizeof(guesses) / sizeof(*guesses); i++)
		test_guess(&guesses[i]);
	test_guess_garbage(1);
	test_guess_garbage(1e-45f);
	test_guess_garbage(1e30f);
	test_guess_refused();
	test_cancelled(false);
	test_cancelled(true);
	fake_destroy(job);
	m6_exec_destroy(exec);
	return done();
}
