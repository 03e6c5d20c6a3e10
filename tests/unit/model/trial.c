// SPDX-License-Identifier: MIT
#include "trial.h"

#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char compiled[] = "/tmp/m6-model-XXXXXX";

static void remove_compiled(void)
{
	unlink(compiled);
}

static void give_up(const char *what)
{
	printf("Bail out! %s\n", what);
	exit(1);
}

const char *trial_compile(const char *folder, const char *quantize)
{
	const char *compiler = getenv("NPU_COMPILER");
	const char *const argv[] = {
		"npu_compiler", "--input", folder, "--output", compiled,
		"--quantize", quantize, "--tiles", "1,4,16,64", NULL,
	};
	static bool named;
	int status, fd;
	pid_t pid;

	if (!compiler)
		give_up("NPU_COMPILER does not name the compiler");
	if (!named) {
		fd = mkstemp(compiled);
		if (fd < 0)
			give_up("no temporary file");
		close(fd);
		atexit(remove_compiled);
		named = true;
	}
	if (posix_spawn(&pid, compiler, NULL, NULL, (char *const *)argv,
			environ) ||
	    waitpid(pid, &status, 0) != pid || status)
		give_up("the model could not be compiled");
	return compiled;
}

/* Where the next tokens come from and their logits go. */
struct feed {
	const struct npy *tokens;
	const struct trial_plan *plan;
	uint32_t vocab;
	float *logits;
	struct m6npu_step_token step[M6NPU_STEP_MAX_TOKENS];
	uint32_t count;
	size_t origin[M6NPU_STEP_MAX_TOKENS];	/* row of tokens */
};

static void feed_token(struct feed *feed, size_t sequence, size_t position)
{
	size_t row = sequence * feed->tokens->shape[1] + position;
	struct m6npu_step_token *token = &feed->step[feed->count];

	token->token = ((const int32_t *)feed->tokens->data)[row];
	token->position = position;
	token->slot = feed->plan->first_slot + sequence;
	feed->origin[feed->count++] = row;
}

/*
 * A step gives at most max_out results: the same step again, which changes
 * nothing in the cache, gives the next ones.
 */
static void feed_flush(struct feed *feed, struct runner *runner)
{
	uint32_t most = runner_runtime(runner)->max_out, first, i, out;
	struct runner_result result;

	if (most > runner_tile(runner, feed->plan->tile))
		most = feed->plan->tile;
	for (first = 0; first < feed->count; first += most) {
		for (i = 0; i < feed->count; i++)
			feed->step[i].flags = i >= first && i < first + most ?
					      M6NPU_TOKEN_OUT : 0;
		result = runner_step(runner, feed->plan->tile, feed->step,
				     feed->count);
		if (result.status.code) {
			printf("# code %#x at command %u\n",
			       result.status.code, result.status.cmd_index);
			give_up("the job failed");
		}
		for (out = 0; out < result.out_count; out++)
			memcpy(feed->logits + feed->origin[first + out] *
			       feed->vocab,
			       result.logits + (size_t)out * feed->vocab,
			       feed->vocab * sizeof(float));
	}
	feed->count = 0;
}

static void feed_mixed(struct feed *feed, struct runner *runner)
{
	size_t i, j;

	for (j = 0; j < feed->tokens->shape[1]; j++)
		for (i = 0; i < feed->tokens->shape[0]; i++) {
			feed_token(feed, i, j);
			if (feed->count == feed->plan->tile)
				feed_flush(feed, runner);
		}
	if (feed->count)
		feed_flush(feed, runner);
}

static void feed_one_by_one(struct feed *feed, struct runner *runner)
{
	size_t i, j;

	for (i = 0; i < feed->tokens->shape[0]; i++) {
		for (j = 0; j < feed->tokens->shape[1]; j++) {
			feed_token(feed, i, j);
			if (feed->count == feed->plan->tile)
				feed_flush(feed, runner);
		}
		if (feed->count)
			feed_flush(feed, runner);
	}
}

float *trial_logits(const char *path, const struct runner_options *options,
		    const struct trial_plan *plan, const struct npy *tokens)
{
	struct runner_options own = *options;
	struct feed *feed = calloc(1, sizeof(*feed));
	struct runner *runner;
	float *logits;

	own.slots = plan->first_slot + tokens->shape[0];
	own.capacity = tokens->shape[1];
	runner = runner_create(path, &own);
	feed->tokens = tokens;
	feed->plan = plan;
	feed->vocab = runner_runtime(runner)->vocab;
	feed->logits = logits = calloc(tokens->count, feed->vocab *
				       sizeof(float));
	if (plan->mixed)
		feed_mixed(feed, runner);
	else
		feed_one_by_one(feed, runner);
	runner_destroy(runner);
	free(feed);
	return logits;
}

static uint32_t best_of(const float *row, uint32_t vocab)
{
	uint32_t i, best = 0;

	for (i = 1; i < vocab; i++)
		if (row[i] > row[best])
			best = i;
	return best;
}

static double log_sum(const float *row, uint32_t vocab)
{
	float most = row[best_of(row, vocab)];
	double sum = 0;
	uint32_t i;

	for (i = 0; i < vocab; i++)
		sum += exp(row[i] - most);
	return most + log(sum);
}

static double divergence(const float *got, const float *expected,
			 uint32_t vocab)
{
	double got_sum = log_sum(got, vocab), kl = 0, p;
	double expected_sum = log_sum(expected, vocab);
	uint32_t i;

	for (i = 0; i < vocab; i++) {
		p = expected[i] - expected_sum;
		kl += exp(p) * (p - (got[i] - got_sum));
	}
	return kl;
}

static void compare_row(const float *got, const float *expected,
			uint32_t vocab, float margin,
			struct trial_difference *difference)
{
	uint32_t mine = best_of(got, vocab), theirs = best_of(expected, vocab);
	double kl = divergence(got, expected, vocab);
	uint32_t i;

	for (i = 0; i < vocab; i++) {
		/* A NaN is as bad as it gets. */
		if (!(fabsf(got[i] - expected[i]) <= difference->max_abs))
			difference->max_abs = fabsf(got[i] - expected[i]);
	}
	if (mine != theirs && expected[theirs] - expected[mine] > margin)
		difference->flips++;
	difference->kl += kl;
	if (kl > difference->worst_kl)
		difference->worst_kl = kl;
}

struct trial_difference trial_compare(const float *got, const float *expected,
				      unsigned int positions, uint32_t vocab,
				      float margin)
{
	struct trial_difference difference = { .positions = positions };
	unsigned int i;

	for (i = 0; i < positions; i++)
		compare_row(got + (size_t)i * vocab,
			    expected + (size_t)i * vocab, vocab, margin,
			    &difference);
	difference.kl /= positions;
	return difference;
}
