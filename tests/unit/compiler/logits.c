// SPDX-License-Identifier: MIT
/*
 * Runs tokens through a .npu file on the emulator's device core, TILE a step,
 * and writes the logits after each step as raw F32.
 *
 * Usage: logits FILE.npu TILE TOKEN...
 */
#include <npu/npu.h>
#include <stdio.h>
#include <stdlib.h>

#include "runner.h"

#define MAX_TOKENS	64

static int fail(const char *what)
{
	fprintf(stderr, "logits: %s\n", what);
	return 1;
}

static int run_steps(struct runner *runner, uint32_t tile,
		     struct m6npu_step_token *tokens, uint32_t count)
{
	uint32_t vocab = runner_runtime(runner)->vocab, part, at;
	struct runner_result result;

	for (at = 0; at < count; at += part) {
		part = count - at < tile ? count - at : tile;
		tokens[at + part - 1].flags = M6NPU_TOKEN_OUT;
		if (runner_step(runner, tile, tokens + at, part, &result))
			return fail(npu_error());
		if (fwrite(result.logits, sizeof(float), vocab, stdout) !=
		    vocab)
			return fail("cannot write");
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct m6npu_step_token tokens[MAX_TOKENS] = { 0 };
	const struct runner_options options = {
		.board.router_policy = M6NPU_ROUTER_LRU,
		.slots = 1,
		.capacity = MAX_TOKENS,
	};
	struct runner *runner;
	uint32_t i, count = argc - 3;
	int ret;

	if (argc < 4 || count > MAX_TOKENS)
		return fail("usage: logits FILE.npu TILE TOKEN...");
	for (i = 0; i < count; i++) {
		tokens[i].token = atoi(argv[3 + i]);
		tokens[i].position = i;
	}
	if (runner_create(argv[1], &options, &runner))
		return fail(npu_error());
	ret = run_steps(runner, atoi(argv[2]), tokens, count);
	runner_destroy(runner);
	return ret;
}
