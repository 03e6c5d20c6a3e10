/* SPDX-License-Identifier: MIT */
/* Runs prompts through a compiled model and watches the tally. */
#ifndef NPU_COMPILER_CALIBRATE_RUN_H
#define NPU_COMPILER_CALIBRATE_RUN_H

#include "calibrate_prompts.h"
#include "calibrate_tally.h"

struct calibrate_run {
	const char *path;	/* the .npu file */
	const char *prompts_path;
	uint64_t max_tokens;	/* prompts and answers together */
	unsigned int threads;
	bool progress;
};

/*
 * Prompts in their order, each with the beginning of its answer, until there
 * are @max_tokens. Fills @tally, for tally_free() also when it fails.
 */
int calibrate_run(const struct calibrate_run *run,
		  const struct prompts *prompts, struct tally *tally);

#endif
