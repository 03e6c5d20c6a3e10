/* SPDX-License-Identifier: MIT */
/* What the tests of whole models share: compiling, running, comparing. */
#ifndef MODEL_TRIAL_H
#define MODEL_TRIAL_H

#include <stdbool.h>

#include "npy.h"
#include "runner.h"

/*
 * Compiles @folder with npu_compiler (the program named by the environment
 * variable NPU_COMPILER) into a file that goes when the test ends. Its path is
 * good until the next call; ends the test when it can't.
 */
const char *trial_compile(const char *folder, const char *quantize);
/* The same with more options, NULL at their end. */
const char *trial_compile_with(const char *folder, const char *quantize,
			       const char *const *options);

/*
 * A folder that tests/golden/make.py (the environment variable GOLDEN names its
 * folder) makes, for as long as the test runs. One at a time.
 */
const char *trial_make(const char *model);

/*
 * What tests/golden/reference.py (the environment variable REFERENCE) computes
 * for the folder's sequences with the weights rounded to a format.
 */
struct npy trial_reference(const char *folder, const char *quantize);

/* As runner_create() and runner_step(), but end the test when they can't. */
struct runner *trial_runner(const char *path,
			    const struct runner_options *options);
struct runner_result trial_step(struct runner *runner, uint32_t tile,
				const struct m6npu_step_token *tokens,
				uint32_t count);

/* How the tokens of all sequences are cut into steps. */
struct trial_plan {
	uint32_t tile;		/* tokens a step */
	bool mixed;		/* sequences share steps, else one by one */
	uint32_t first_slot;	/* sequence i runs in slot first_slot + i */
};

/* What the device counted. */
struct trial_counts {
	uint64_t router_hits, router_misses, expert_faults;
	struct residency_stats experts;
};

/*
 * Runs @tokens ([sequences, length]) through the model at @path and stores the
 * logits of all positions, [sequences, length, vocab]. For free(). @counts may
 * be NULL.
 */
float *trial_logits(const char *path, const struct runner_options *options,
		    const struct trial_plan *plan, const struct npy *tokens,
		    struct trial_counts *counts);

struct npu_runtime trial_runtime(const char *path);

struct trial_difference {
	float max_abs;
	/* Kullback-Leibler divergence of @got from @expected, by position. */
	double kl;		/* mean */
	double median_kl;
	unsigned int positions;
	/* Other best token although the expected one leads by over @margin. */
	unsigned int flips;
};

struct trial_difference trial_compare(const float *got, const float *expected,
				      unsigned int positions, uint32_t vocab,
				      float margin);

#endif
