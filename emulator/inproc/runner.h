/* SPDX-License-Identifier: MIT */
/* Runs a .npu file on a board, as libnpu does on a real one. */
#ifndef M6_INPROC_RUNNER_H
#define M6_INPROC_RUNNER_H

#include <npu/npu_format.h>

#include "board.h"

struct runner;

struct runner_options {
	struct board_options board;
	uint32_t slots;
	uint32_t capacity;	/* positions a slot */
	bool kv_q8_0;
	bool on_demand;		/* experts come when they fault */
	bool forget;		/* and all go again after each step */
};

struct runner_result {
	const float *logits;	/* [out_count, vocab] */
	const float *hidden;
	const int32_t *topk_ids;
	const float *topk_values;
	uint32_t out_count;
	struct m6npu_job_status status;
};

/* Ends the test with a message when it can't. */
struct runner *runner_create(const char *path,
			     const struct runner_options *options);
void runner_destroy(struct runner *runner);

const struct npu_runtime *runner_runtime(const struct runner *runner);
/* The smallest tile that takes @count tokens, or 0. */
uint32_t runner_tile(const struct runner *runner, uint32_t count);
/*
 * Runs tokens with the list of @tile. Result's pointers are good until the
 * next step. status.code tells whether it went well.
 */
struct runner_result runner_step(struct runner *runner, uint32_t tile,
				 const struct m6npu_step_token *tokens,
				 uint32_t count);

#endif
