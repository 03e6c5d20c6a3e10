// SPDX-License-Identifier: MIT
/* Routing in a dry run: who is chosen, how well guesses do, and who notices. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "moe.h"

#define K		8u
#define EXPERTS		64u
#define ROWS		1000u
#define BINS		10u

static struct m6_exec *exec;
static struct m6_job *job;
static int32_t *ids;
static float *weights;

static uint32_t run(const struct m6npu_cmd *cmd)
{
	struct m6_cost cost;

	return m6_exec_command(exec, job, cmd, true, &cost);
}

static struct m6npu_cmd router(uint32_t rows, uint32_t k, uint32_t layer)
{
	struct m6npu_cmd cmd = fake_command(M6NPU_OP_ROUTER_TOPK);

	for (unsigned int i = 0; i < 3; i++)
		cmd.operand[i] = M6NPU_OPERAND(i, 0);
	ids = fake_region(job, 0, rows * k * 4);
	weights = fake_region(job, 1, rows * k * 4);
	fake_region(job, 2, rows * EXPERTS * 4);
	cmd.layer = layer;
	cmd.args.router.rows = rows;
	cmd.args.router.experts = EXPERTS;
	cmd.args.router.k = k;
	return cmd;
}

static struct m6npu_cmd guess(uint32_t rows, uint32_t k, uint32_t layer)
{
	struct m6npu_cmd cmd = router(rows, k, layer);

	cmd.args.router.flags = M6NPU_ROUTER_CHANCE;
	cmd.args.router.scale = float_bits(1);
	cmd.args.router.among = K;
	return cmd;
}

/* What tokens at @position and up choose, in memory of its own. */
static int32_t *choices(uint32_t rows, uint32_t position, uint32_t slot,
			uint32_t layer)
{
	struct m6npu_cmd cmd = router(rows, K, layer);
	int32_t *copy = malloc(rows * K * 4);

	fake_step(job, rows, position);
	for (uint32_t i = 0; i < rows; i++)
		job->tokens[i].slot = slot;
	if (run(&cmd))
		abort();
	memcpy(copy, ids, rows * K * 4);
	fake_no_step(job);
	return copy;
}

static bool same_choices(uint32_t position, uint32_t slot, uint32_t layer,
			 const int32_t *expected)
{
	int32_t *found = choices(20, position, slot, layer);
	bool same = !memcmp(found, expected, 20 * K * 4);

	free(found);
	return same;
}

static bool distinct(const int32_t *row, uint32_t count)
{
	bool taken[EXPERTS] = { false };

	for (uint32_t i = 0; i < count; i++) {
		if (row[i] < 0 || row[i] >= (int32_t)EXPERTS || taken[row[i]])
			return false;
		taken[row[i]] = true;
	}
	return true;
}

static void test_function(void)
{
	int32_t *first = choices(20, 100, 3, 5), *late = choices(10, 105, 3, 5);
	bool good = true;

	for (uint32_t i = 0; i < 20; i++)
		good &= distinct(first + i * K, K);
	ok(good, "a row's choices are experts, all different");
	ok(same_choices(100, 3, 5, first), "the same again");
	ok(!memcmp(late, first + 5 * K, 10 * K * 4), "in any tile");
	ok(!same_choices(100, 4, 5, first), "another slot, others");
	ok(!same_choices(101, 3, 5, first), "another position, others");
	ok(!same_choices(100, 3, 6, first), "another layer, others");
	job->dry.seed = 2;
	ok(!same_choices(100, 3, 5, first), "another seed, others");
	job->dry.seed = 1;
	free(first);
	free(late);
}

/* Without a step a row is a position. */
static void test_no_step(void)
{
	int32_t *expected = choices(20, 0, 0, 2);
	struct m6npu_cmd cmd = router(20, K, 2);

	ok(!run(&cmd) && !memcmp(ids, expected, 20 * K * 4),
	   "without a step, rows are positions");
	free(expected);
}

static void count_uses(uint32_t layer, double *uses)
{
	int32_t *chosen = choices(ROWS, 0, 0, layer);

	memset(uses, 0, EXPERTS * sizeof(*uses));
	for (uint32_t i = 0; i < ROWS * K; i++)
		uses[chosen[i]]++;
	free(chosen);
}

static uint32_t most_used(const double *uses)
{
	uint32_t best = 0;

	for (uint32_t i = 0; i < EXPERTS; i++)
		best = uses[i] > uses[best] ? i : best;
	return best;
}

static void test_popularity(void)
{
	double uses[EXPERTS], others[EXPERTS], least = ROWS;

	job->dry.repeat_permille = 0;
	job->dry.zipf_permille = 0;
	count_uses(0, uses);
	for (uint32_t i = 0; i < EXPERTS; i++)
		least = uses[i] < least ? uses[i] : least;
	ok(uses[most_used(uses)] < 1.6 * ROWS * K / EXPERTS &&
	   least > 0.4 * ROWS * K / EXPERTS, "exponent 0: all alike");
	job->dry.zipf_permille = 1000;
	count_uses(0, uses);
	count_uses(1, others);
	/* With K draws of 64, each row has the first of them very often. */
	ok(uses[most_used(uses)] > 4.0 * ROWS * K / EXPERTS,
	   "exponent 1: some are popular (%g of %u)", uses[most_used(uses)],
	   ROWS);
	ok(most_used(uses) != most_used(others), "not the same in all layers");
	job->dry.zipf_permille = 800;
	job->dry.repeat_permille = 500;
}

/* The first choice of a row is a draw like from an urn. */
static void test_exponent(void)
{
	struct m6npu_cmd cmd = router(ROWS, 1, 0);
	double uses[EXPERTS] = { 0 }, sum = 0;

	job->dry.repeat_permille = 0;
	job->dry.zipf_permille = 1000;
	for (uint32_t i = 1; i <= EXPERTS; i++)
		sum += 1.0 / i;
	run(&cmd);
	for (uint32_t i = 0; i < ROWS; i++)
		uses[ids[i]]++;
	ok(fabs(uses[most_used(uses)] / ROWS - 1 / sum) < 0.05,
	   "the most popular one has its share (%g of %g)",
	   uses[most_used(uses)] / ROWS, 1 / sum);
	job->dry.zipf_permille = 800;
	job->dry.repeat_permille = 500;
}

static uint32_t count_distinct(const int32_t *list, uint32_t count)
{
	bool taken[EXPERTS] = { false };
	uint32_t result = 0;

	for (uint32_t i = 0; i < count; i++) {
		result += !taken[list[i]];
		taken[list[i]] = true;
	}
	return result;
}

static void test_topic(void)
{
	int32_t *chosen;

	job->dry.repeat_permille = 1000;
	job->dry.topic_length = 50;
	chosen = choices(100, 200, 0, 0);
	ok(count_distinct(chosen, 50 * K) == 2 * K,
	   "a topic is a few experts");
	ok(count_distinct(chosen, 100 * K) > 2 * K, "and the next is another");
	free(chosen);
	job->dry.repeat_permille = 500;
	job->dry.topic_length = 16;
}

struct bin {
	double guesses, right, sum;
};

/* Guesses of ROWS rows by what they say of themselves. */
static void sort_guesses(uint32_t k, struct bin *bins)
{
	int32_t *actual = choices(ROWS, 0, 0, 9);
	struct m6npu_cmd cmd = guess(ROWS, k, 9);

	run(&cmd);
	memset(bins, 0, BINS * sizeof(*bins));
	for (uint32_t i = 0; i < ROWS * k; i++) {
		struct bin *bin = &bins[(uint32_t)(weights[i] * BINS) % BINS];
		const int32_t *row = actual + i / k * K;

		bin->guesses++;
		bin->sum += weights[i];
		for (uint32_t j = 0; j < K; j++)
			bin->right += row[j] == ids[i];
	}
	free(actual);
}

static void test_calibrated(uint32_t k, uint32_t permille)
{
	struct bin bins[BINS], all = { 0 };
	double worst = 0;

	job->dry.predict_permille = permille;
	sort_guesses(k, bins);
	for (uint32_t i = 0; i < BINS; i++) {
		double off = fabs(bins[i].right - bins[i].sum) /
			     bins[i].guesses;

		if (bins[i].guesses >= 200 && off > worst)
			worst = off;
		all.right += bins[i].right;
		all.guesses += bins[i].guesses;
	}
	ok(worst < 0.07, "%u guesses, %u/1000: chances are off by %g", k,
	   permille, worst);
	if (k == K) {
		ok(fabs(all.right / all.guesses - permille / 1000.0) < 0.03,
		   "and %g are right", all.right / all.guesses);
		ok(bins[4].guesses > 100 && bins[6].guesses > 100 &&
		   bins[9].guesses > 200, "some are sure, some are not");
	}
	job->dry.predict_permille = 800;
}

static void test_guess_rows(uint32_t k)
{
	struct m6npu_cmd cmd = guess(200, k, 4);
	bool good = true, falling = true;

	ok(!run(&cmd), "%u guesses", k);
	for (uint32_t i = 0; i < 200; i++) {
		good &= distinct(ids + i * k, k);
		for (uint32_t j = 1; j < k; j++)
			falling &= weights[i * k + j] <=
				   weights[i * k + j - 1];
	}
	ok(good, "are experts, all different");
	ok(falling, "likely ones first");
}

static void test_perfect(void)
{
	int32_t *actual = choices(100, 0, 0, 4);
	struct m6npu_cmd cmd = guess(100, K, 4);
	bool right = true;

	job->dry.predict_permille = 1000;
	run(&cmd);
	for (uint32_t i = 0; i < 100 * K; i++) {
		bool found = false;

		for (uint32_t j = 0; j < K; j++)
			found |= actual[i / K * K + j] == ids[i];
		right &= found && weights[i] == 1;
	}
	ok(right, "an oracle knows all, and knows it");
	job->dry.predict_permille = 0;
	cmd = guess(100, K, 4);
	run(&cmd);
	right = false;
	for (uint32_t i = 0; i < 100 * K; i++) {
		for (uint32_t j = 0; j < K; j++)
			right |= actual[i / K * K + j] == ids[i];
		right |= weights[i] != 0;
	}
	ok(!right, "a fool knows nothing, and knows it");
	job->dry.predict_permille = 800;
	free(actual);
}

/* All else is as if a router had chosen so. */
static void test_rest(void)
{
	const struct moe m = { 6, 2, 8, 64, 32, M6NPU_ACT_SILU, { 0, 0, 0 },
			       false };
	struct m6npu_cmd cmd, moe = moe_command(&m);
	struct m6_cost real, dry;
	float before[6 * 64];
	uint32_t looked_up;

	moe_experts(job, &m);
	moe_rows(job, &m);
	memset(job->region[IDS], 0xff, 6 * 2 * 4);
	memcpy(before, job->region[DST], sizeof(before));
	ok(run(&moe) == M6NPU_EXC_ILLEGAL_COMMAND, "bad ids are noticed");
	cmd = fake_command(M6NPU_OP_ROUTER_TOPK);
	cmd.operand[0] = M6NPU_OPERAND(IDS, 0);
	cmd.operand[1] = M6NPU_OPERAND(WEIGHTS, 0);
	cmd.operand[2] = M6NPU_OPERAND(SRC, 0);
	cmd.args.router.rows = 6;
	cmd.args.router.experts = 8;
	cmd.args.router.k = 2;
	ok(!run(&cmd), "choices are made");
	job->expert_code = M6NPU_EXC_EXPERT_FAULT;
	ok(run(&moe) == M6NPU_EXC_EXPERT_FAULT, "a missing expert is missed");
	job->expert_code = 0;
	job->looked_up = 0;
	ok(!m6_exec_command(exec, job, &moe, true, &dry) &&
	   !memcmp(before, job->region[DST], sizeof(before)),
	   "nothing is computed");
	looked_up = job->looked_up;
	job->looked_up = 0;
	ok(!m6_exec_command(exec, job, &moe, false, &real) &&
	   job->looked_up == looked_up && looked_up > 1,
	   "as many experts are looked up as in earnest");
	ok(!memcmp(&real, &dry, sizeof(real)), "and the price is the same");
}

static void test_prefetch(void)
{
	struct m6npu_cmd cmd = guess(4, K, 4);
	struct m6npu_cmd prefetch = fake_command(M6NPU_OP_EXPERT_PREFETCH);

	prefetch.operand[0] = M6NPU_OPERAND(0, 0);
	prefetch.operand[1] = M6NPU_OPERAND(1, 0);
	prefetch.args.moe.rows = 4;
	prefetch.args.moe.k = K;
	prefetch.args.moe.experts = EXPERTS;
	job->threshold = 500;
	ok(!run(&cmd) && !run(&prefetch) && job->prefetched_count >= K &&
	   (int32_t)job->prefetched[0] < (int32_t)EXPERTS,
	   "guesses are acted on");
}

int main(void)
{
	exec = m6_exec_create(1);
	job = fake_create();
	if (!ok(exec, "created"))
		return done();
	test_function();
	test_no_step();
	test_popularity();
	test_exponent();
	test_topic();
	test_calibrated(K, 800);
	test_calibrated(K, 600);
	test_calibrated(2 * K, 800);
	test_guess_rows(3);
	test_guess_rows(K);
	test_guess_rows(2 * K);
	test_guess_rows(EXPERTS);
	test_perfect();
	test_rest();
	test_prefetch();
	fake_destroy(job);
	m6_exec_destroy(exec);
	return done();
}
