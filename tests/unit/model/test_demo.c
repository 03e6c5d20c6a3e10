// SPDX-License-Identifier: MIT
/*
 * The demo model says, token by token, what the network it was trained with
 * says in float32: tests/golden/demo-tokens.json. Skipped where the model has
 * not been made.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <yyjson.h>

#include "../tap.h"
#include "trial.h"

#define MAX_TOKENS	1024
/*
 * F16 activations against F32 ones, in logits that spread over some 20. Where
 * two experts are level, rounding decides which one runs, and a prompt of this
 * many layers and tokens may hold such a place: then a little more.
 */
#define LOGIT_LIMIT	0.1
#define FLIPPED_LIMIT	2.0

static const struct way {
	const char *name;
	struct runner_options options;
	uint32_t chunk;		/* tokens of the prompt a step */
} ways[] = {
	{ "experts resident",
	  { .board.router_policy = M6NPU_ROUTER_LRU }, 64 },
	{ "experts on demand, priority cache",
	  { .board.router_policy = M6NPU_ROUTER_PRIORITY_LRU,
	    .experts.on_demand = true }, 16 },
	{ "no cache, scattered pages",
	  { .board.scatter = true }, 5 },
};

struct sequence {
	int32_t tokens[MAX_TOKENS];
	uint32_t count;
};

static void read_tokens(yyjson_val *array, struct sequence *sequence)
{
	yyjson_val *value;
	size_t i, count;

	sequence->count = 0;
	yyjson_arr_foreach(array, i, count, value)
		if (sequence->count < MAX_TOKENS)
			sequence->tokens[sequence->count++] =
				yyjson_get_int(value);
}

static struct runner_result run_tokens(struct runner *runner,
				       const int32_t *tokens, uint32_t count,
				       uint32_t position)
{
	struct m6npu_step_token step[MAX_TOKENS];
	uint32_t i;

	for (i = 0; i < count; i++)
		step[i] = (struct m6npu_step_token){
			.token = tokens[i],
			.position = position + i,
			.flags = i + 1 == count ? M6NPU_TOKEN_OUT : 0,
		};
	return trial_step(runner, runner_tile(runner, count), step, count);
}

static struct runner_result run_prompt(struct runner *runner,
				       const struct sequence *prompt,
				       uint32_t chunk)
{
	struct runner_result result = { 0 };
	uint32_t at, count;

	for (at = 0; at < prompt->count; at += count) {
		count = prompt->count - at < chunk ? prompt->count - at : chunk;
		result = run_tokens(runner, prompt->tokens + at, count, at);
	}
	return result;
}

/* Number of tokens that are as expected. */
static uint32_t follow(struct runner *runner, const struct sequence *prompt,
		       const struct sequence *expected, uint32_t chunk)
{
	struct runner_result result = run_prompt(runner, prompt, chunk);
	uint32_t i;

	for (i = 0; i < expected->count; i++) {
		if (result.topk_ids[0] != expected->tokens[i])
			break;
		if (i + 1 < expected->count)
			result = run_tokens(runner, &expected->tokens[i], 1,
					    prompt->count + i);
	}
	return i;
}

static void check_way(const char *path, yyjson_val *entries,
		      const struct way *way)
{
	struct runner_options options = way->options;
	struct sequence prompt, expected;
	struct runner *runner;
	yyjson_val *entry;
	size_t i, count;
	uint32_t same;

	options.slots = 1;
	options.capacity = MAX_TOKENS;
	runner = trial_runner(path, &options);
	yyjson_arr_foreach(entries, i, count, entry) {
		read_tokens(yyjson_obj_get(entry, "prompt_ids"), &prompt);
		read_tokens(yyjson_obj_get(entry, "tokens"), &expected);
		same = follow(runner, &prompt, &expected, way->chunk);
		ok(expected.count && same == expected.count,
		   "%s: %u of %u tokens: %.40s", way->name, same,
		   expected.count, yyjson_get_str(yyjson_obj_get(
			yyjson_arr_get_first(yyjson_obj_get(entry,
							    "messages")),
			"content")));
	}
	runner_destroy(runner);
}

static double largest_difference(yyjson_val *expected, const float *logits)
{
	double most = 0;
	yyjson_val *value;
	size_t i, vocab;

	yyjson_arr_foreach(expected, i, vocab, value)
		most = fmax(most, fabs(logits[i] - yyjson_get_num(value)));
	return most;
}

static void check_logits(const char *path, yyjson_val *prompts)
{
	struct runner_options options = ways[0].options;
	size_t i, count, close = 0;
	struct runner_result result;
	struct sequence sequence;
	struct runner *runner;
	yyjson_val *prompt;
	double most;

	options.slots = 1;
	options.capacity = MAX_TOKENS;
	runner = trial_runner(path, &options);
	yyjson_arr_foreach(prompts, i, count, prompt) {
		read_tokens(yyjson_obj_get(prompt, "prompt_ids"), &sequence);
		result = run_prompt(runner, &sequence, 64);
		most = largest_difference(yyjson_obj_get(prompt, "logits"),
					  result.logits);
		close += most <= LOGIT_LIMIT;
		ok(most <= FLIPPED_LIMIT, "logits differ by at most %.4f",
		   most);
	}
	ok(close * 2 >= count, "%zu of %zu by at most %.2f", close, count,
	   LOGIT_LIMIT);
	runner_destroy(runner);
}

static yyjson_doc *read_golden(const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", getenv("GOLDEN"), name);
	return yyjson_read_file(path, 0, NULL, NULL);
}

int main(void)
{
	yyjson_doc *tokens = read_golden("demo-tokens.json");
	yyjson_doc *logits = read_golden("demo-logits.json");
	const char *folder = getenv("DEMO"), *path;
	char weights[4096];
	size_t i;

	snprintf(weights, sizeof(weights), "%s/model.safetensors",
		 folder ? folder : "");
	if (!tokens || !logits || access(weights, R_OK)) {
		printf("1..0 # SKIP models/demo has not been made\n");
		return 0;
	}
	path = trial_compile(folder, "fp16");
	for (i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		check_way(path, yyjson_obj_get(yyjson_doc_get_root(tokens),
					       "entries"), &ways[i]);
	check_logits(path, yyjson_obj_get(yyjson_doc_get_root(logits),
					  "prompts"));
	yyjson_doc_free(tokens);
	yyjson_doc_free(logits);
	return done();
}
