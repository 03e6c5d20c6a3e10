// SPDX-License-Identifier: MIT
#include "trial.h"

#include <math.h>
#include <npu/npu.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "npu_file.h"

extern char **environ;

#define MAX_OPTIONS	16

/* One folder for all that a test writes. */
static char workshop[] = "/tmp/m6-model-XXXXXX";
static char compiled[sizeof(workshop) + 16], computed[sizeof(workshop) + 16];
static char made[sizeof(workshop) + 16];

static void remove_made(void)
{
	static const char *const names[] = {
		"config.json", "generation_config.json", "model.safetensors",
		"tokenizer.json", "tokenizer_config.json", "tokens.npy",
	};
	char path[sizeof(made) + 64];
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", made, names[i]);
		unlink(path);
	}
	rmdir(made);
}

static void remove_workshop(void)
{
	unlink(compiled);
	unlink(computed);
	remove_made();
	rmdir(workshop);
}

static void give_up(const char *what)
{
	printf("Bail out! %s\n", what);
	exit(1);
}

static void open_workshop(void)
{
	if (compiled[0])
		return;
	if (!mkdtemp(workshop))
		give_up("no temporary folder");
	snprintf(compiled, sizeof(compiled), "%s/model.npu", workshop);
	snprintf(computed, sizeof(computed), "%s/logits.npy", workshop);
	snprintf(made, sizeof(made), "%s/made", workshop);
	atexit(remove_workshop);
}

static const char *program(const char *variable)
{
	const char *path = getenv(variable);

	if (path)
		return path;
	printf("Bail out! %s is not set\n", variable);
	exit(1);
}

static void run(const char *const *argv)
{
	int status;
	pid_t pid;

	if (!posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv,
			  environ) &&
	    waitpid(pid, &status, 0) == pid && !status)
		return;
	printf("Bail out! %s %s failed\n", argv[0], argv[1]);
	exit(1);
}

const char *trial_compile_with(const char *folder, const char *quantize,
			       const char *const *options)
{
	const char *argv[MAX_OPTIONS + 10] = {
		program("NPU_COMPILER"), "--input", folder, "--output",
		compiled, "--quantize", quantize, "--tiles", "1,4,16,64",
	};
	size_t i;

	for (i = 0; i < MAX_OPTIONS && options[i]; i++)
		argv[9 + i] = options[i];
	open_workshop();
	run(argv);
	return compiled;
}

const char *trial_compile(const char *folder, const char *quantize)
{
	static const char *const none[] = { NULL };

	return trial_compile_with(folder, quantize, none);
}

const char *trial_make(const char *model)
{
	char script[4096];
	const char *const argv[] = {
		"python3", script, "--into", made, model, NULL,
	};

	open_workshop();
	snprintf(script, sizeof(script), "%s/make.py", program("GOLDEN"));
	run(argv);
	return made;
}

struct npy trial_reference(const char *folder, const char *quantize)
{
	const char *const argv[] = {
		"python3", program("REFERENCE"), "logits", folder, quantize,
		computed, NULL,
	};
	struct npy npy;

	open_workshop();
	run(argv);
	if (!npy_read(computed, &npy))
		give_up("the reference left no logits");
	return npy;
}

struct runner *trial_runner(const char *path,
			    const struct runner_options *options)
{
	struct runner *runner;

	if (runner_create(path, options, &runner))
		give_up(npu_error());
	return runner;
}

struct runner_result trial_step(struct runner *runner, uint32_t tile,
				const struct m6npu_step_token *tokens,
				uint32_t count)
{
	struct runner_result result;

	if (runner_step(runner, tile, tokens, count, &result))
		give_up(npu_error());
	return result;
}

/* Where the next tokens come from and their logits go. */
struct feed {
	const struct npy *tokens;
	const struct trial_plan *plan;
	uint32_t vocab;
	float *logits;
	struct trial_counts counts;
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
		result = trial_step(runner, feed->plan->tile, feed->step,
				    feed->count);
		feed->counts.router_hits += result.status.router_hits;
		feed->counts.router_misses += result.status.router_misses;
		feed->counts.expert_faults += result.status.expert_faults;
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
		    const struct trial_plan *plan, const struct npy *tokens,
		    struct trial_counts *counts)
{
	struct runner_options own = *options;
	struct feed *feed = calloc(1, sizeof(*feed));
	struct runner *runner;
	float *logits;

	own.slots = plan->first_slot + tokens->shape[0];
	own.capacity = tokens->shape[1];
	runner = trial_runner(path, &own);
	feed->tokens = tokens;
	feed->plan = plan;
	feed->vocab = runner_runtime(runner)->vocab;
	feed->logits = logits = calloc(tokens->count, feed->vocab *
				       sizeof(float));
	if (plan->mixed)
		feed_mixed(feed, runner);
	else
		feed_one_by_one(feed, runner);
	if (runner_experts(runner))
		feed->counts.experts = residency_stats(runner_experts(runner));
	runner_destroy(runner);
	if (counts)
		*counts = feed->counts;
	free(feed);
	return logits;
}

struct npu_runtime trial_runtime(const char *path)
{
	struct npu_runtime runtime;
	struct npu_file *file;

	if (npu_file_open(path, &file))
		give_up(npu_error());
	runtime = npu_file_header(file)->runtime;
	npu_file_close(file);
	return runtime;
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
	uint32_t i;

	for (i = 0; i < vocab; i++) {
		/* A NaN is as bad as it gets. */
		if (!(fabsf(got[i] - expected[i]) <= difference->max_abs))
			difference->max_abs = fabsf(got[i] - expected[i]);
	}
	if (mine != theirs && expected[theirs] - expected[mine] > margin)
		difference->flips++;
}

static int compare_doubles(const void *a, const void *b)
{
	double first = *(const double *)a, second = *(const double *)b;

	return (first > second) - (first < second);
}

struct trial_difference trial_compare(const float *got, const float *expected,
				      unsigned int positions, uint32_t vocab,
				      float margin)
{
	struct trial_difference difference = { .positions = positions };
	double *kl = calloc(positions, sizeof(*kl));
	unsigned int i;

	for (i = 0; i < positions; i++) {
		compare_row(got, expected, vocab, margin, &difference);
		kl[i] = divergence(got, expected, vocab);
		difference.kl += kl[i] / positions;
		got += vocab;
		expected += vocab;
	}
	qsort(kl, positions, sizeof(*kl), compare_doubles);
	difference.median_kl = kl[positions / 2];
	free(kl);
	return difference;
}
