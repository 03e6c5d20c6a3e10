/* SPDX-License-Identifier: MIT */
/*
 * Runs a .npu file on a board, as libnpu does on a real one.
 *
 * Functions return 0 or a negative errno and set npu_error().
 */
#ifndef M6_INPROC_RUNNER_H
#define M6_INPROC_RUNNER_H

#include <npu/npu_format.h>

#include "board.h"
#include "residency.h"

struct runner;

struct runner_options {
	/* dry: no experts are read; ram_bytes 0: as much as it takes. */
	struct board_options board;
	uint32_t slots;
	uint32_t capacity;	/* positions a slot */
	bool kv_q8_0;
	struct residency_options experts;
	bool poison;		/* NaNs in scratch and IO before a step */
};

struct runner_result {
	const float *logits;	/* [out_count, vocab] */
	const float *hidden;
	const int32_t *topk_ids;
	const float *topk_values;
	uint32_t out_count;
	/* As in struct npu_runtime; NULL if the model has none. */
	const int32_t *routed;		/* [layers, max_tile, per token] */
	const int32_t *guess_ids;	/* [layers, max_tile, guesses] */
	const float *guess_chances;
	struct m6npu_job_status status;
};

int runner_create(const char *path, const struct runner_options *options,
		  struct runner **runner);
/* Takes NULL. */
void runner_destroy(struct runner *runner);

const struct npu_runtime *runner_runtime(const struct runner *runner);
/* NULL: the model has no experts. */
const struct residency *runner_experts(const struct runner *runner);
struct board *runner_board(const struct runner *runner);
/* For what else is in it. Lives as long as @runner. */
struct npu_file *runner_file(const struct runner *runner);
/* The smallest tile that takes @count tokens, or 0. */
uint32_t runner_tile(const struct runner *runner, uint32_t count);
/*
 * Runs tokens with the list of @tile. Result's pointers are good until the
 * next step. -EINVAL: no such tile, or more tokens than it takes; -EIO: the
 * device ended the job with an exception.
 */
int runner_step(struct runner *runner, uint32_t tile,
		const struct m6npu_step_token *tokens, uint32_t count,
		struct runner_result *result);

#endif
