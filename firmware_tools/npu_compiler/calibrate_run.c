// SPDX-License-Identifier: MIT
/*
 * The device's arithmetic is the emulator's, so what a board would route this
 * program can see without one.
 */
#include "calibrate_run.h"

#include <npu/npu.h>
#include <stdlib.h>

#include "calibrate_text.h"
#include "progress.h"
#include "runner.h"

/* Of an answer: enough to see how tokens one by one are routed. */
#define ANSWER_TOKENS	64
/* Around each piece of memory, for its alignment and page tables. */
#define PIECE_BYTES	(4ull << 20)

/* Prompts as tokens, one behind the other. */
struct encoded {
	struct npu_ids ids;
	size_t *end;	/* of each prompt */
	size_t count;
};

struct talk {
	const struct calibrate_run *run;
	const struct npu_runtime *runtime;
	struct prompt_text *text;
	struct encoded prompts;
	struct runner *runner;
	struct tally *tally;
	struct m6npu_step_token step[M6NPU_STEP_MAX_TOKENS];
	uint32_t capacity;	/* positions */
};

static int encode_one(struct talk *talk, const struct prompt *prompt)
{
	struct encoded *encoded = &talk->prompts;
	size_t begin = encoded->ids.count, length;

	if (prompt_text_encode(talk->text, prompt->text, &encoded->ids))
		return -1;
	length = encoded->ids.count - begin;
	if (!length)
		return fail("%s, line %u: the model has no tokens for this text",
			    talk->run->prompts_path, prompt->line);
	if (length > talk->runtime->context_length)
		return fail("%s, line %u: %zu tokens, and the model is compiled for %u positions: split the line",
			    talk->run->prompts_path, prompt->line, length,
			    talk->runtime->context_length);
	encoded->end[encoded->count++] = encoded->ids.count;
	return 0;
}

static int encode_prompts(struct talk *talk, const struct prompts *prompts)
{
	size_t i;

	talk->prompts.end = xcalloc(prompts->count, sizeof(size_t));
	for (i = 0; i < prompts->count; i++)
		if (encode_one(talk, &prompts->list[i]))
			return -1;
	return 0;
}

static uint64_t kv_bytes(const struct talk *talk)
{
	const struct npu_runtime *r = talk->runtime;

	return 4ull * r->kv_layers * r->kv_heads * r->head_dim *
	       talk->capacity;
}

static uint64_t memory_bytes(const struct talk *talk, uint64_t sections)
{
	const struct npu_runtime *r = talk->runtime;

	return r->weights_bytes + r->scratch_bytes + r->io_bytes +
	       kv_bytes(talk) +
	       (uint64_t)r->expert_layers * r->experts * r->expert_bytes +
	       (sections + 16) * PIECE_BYTES;
}

static int start_runner(struct talk *talk, uint64_t sections)
{
	struct runner_options options = {
		.board = {
			.ram_bytes = memory_bytes(talk, sections),
			.router_policy = M6NPU_ROUTER_LRU,
			.threads = talk->run->threads,
		},
		.slots = 1,
		.capacity = talk->capacity,
	};

	if (runner_create(talk->run->path, &options, &talk->runner))
		return fail("%s", npu_error());
	return 0;
}

/* Rows lie packed in each layer's part of IO. */
static int watch_layer(struct talk *talk, const struct runner_result *result,
		       uint32_t layer, uint32_t rows)
{
	const struct npu_runtime *r = talk->runtime;
	size_t at = (size_t)layer * r->max_tile;
	struct tally_choice choice = {
		.ids = result->routed + at * r->experts_per_token,
	};
	uint32_t i;

	/* Nobody is there to guess about the first. */
	if (layer && r->guesses) {
		choice.guess_ids = result->guess_ids + at * r->guesses;
		choice.guess_chances = result->guess_chances + at * r->guesses;
	}
	for (i = 0; i < rows; i++) {
		if (tally_add(talk->tally, layer, &choice))
			return -1;
		choice.ids += r->experts_per_token;
		if (choice.guess_ids) {
			choice.guess_ids += r->guesses;
			choice.guess_chances += r->guesses;
		}
	}
	return 0;
}

static int run_step(struct talk *talk, const int32_t *ids, uint32_t count,
		    uint32_t position, int32_t *answer)
{
	struct runner_result result;
	uint32_t i, layer;

	for (i = 0; i < count; i++)
		talk->step[i] = (struct m6npu_step_token){
			.token = ids[i],
			.position = position + i,
			.flags = i + 1 == count ? M6NPU_TOKEN_OUT : 0,
		};
	if (runner_step(talk->runner, runner_tile(talk->runner, count),
			talk->step, count, &result))
		return fail("%s", npu_error());
	for (layer = 0; layer < talk->runtime->expert_layers; layer++)
		if (watch_layer(talk, &result, layer, count))
			return -1;
	talk->tally->tokens += count;
	progress_add(count);
	*answer = result.topk_ids[0];
	return 0;
}

static uint32_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t tokens_left(const struct talk *talk)
{
	return talk->run->max_tokens - talk->tally->tokens;
}

static int run_prompt(struct talk *talk, const int32_t *ids, size_t length)
{
	uint32_t count, position = 0, end;
	int32_t answer = 0;

	for (; length && tokens_left(talk); length -= count) {
		count = least(least(length, talk->runtime->max_tile),
			      tokens_left(talk));
		if (run_step(talk, ids, count, position, &answer))
			return -1;
		position += count;
		ids += count;
	}
	end = least(talk->capacity, position + ANSWER_TOKENS);
	while (position < end && tokens_left(talk) &&
	       !prompt_text_ends(talk->text, answer)) {
		if (run_step(talk, &answer, 1, position, &answer))
			return -1;
		position++;
	}
	return 0;
}

static int run_prompts(struct talk *talk)
{
	const struct encoded *prompts = &talk->prompts;
	uint64_t total = prompts->ids.count + prompts->count * ANSWER_TOKENS;
	size_t i, begin = 0;
	int ret = 0;

	progress_begin("calibrating", total < talk->run->max_tokens ? total :
		       talk->run->max_tokens, talk->run->progress);
	for (i = 0; i < prompts->count && tokens_left(talk) && !ret; i++) {
		ret = run_prompt(talk, prompts->ids.ids + begin,
				 prompts->end[i] - begin);
		begin = prompts->end[i];
	}
	/* Answers may be shorter. */
	progress_add(total);
	progress_end();
	if (!ret && i < prompts->count)
		note("note: %zu of %zu prompts make the %llu tokens of --calibrate-tokens; the rest is not used",
		     i, prompts->count,
		     (unsigned long long)talk->run->max_tokens);
	return ret;
}

static int prepare(struct talk *talk, struct npu_file *file,
		   const struct prompts *prompts)
{
	const struct npu_runtime *r = talk->runtime;

	if (!r->expert_layers)
		return fail("the model has no experts: leave --calibrate out");
	talk->capacity = least(r->context_length, talk->run->max_tokens);
	tally_init(talk->tally, r->expert_layers, r->experts,
		     r->experts_per_token, r->guesses);
	talk->text = prompt_text_open(file);
	if (!talk->text || encode_prompts(talk, prompts))
		return -1;
	return start_runner(talk, npu_file_section_count(file));
}

static void finish(struct talk *talk)
{
	runner_destroy(talk->runner);
	prompt_text_close(talk->text);
	free(talk->prompts.ids.ids);
	free(talk->prompts.end);
	free(talk);
}

int calibrate_run(const struct calibrate_run *run,
		  const struct prompts *prompts, struct tally *tally)
{
	struct npu_file *file;
	struct talk *talk;
	int ret;

	*tally = (struct tally){ 0 };
	if (npu_file_open(run->path, &file))
		return fail("%s", npu_error());
	talk = xcalloc(1, sizeof(*talk));
	talk->run = run;
	talk->tally = tally;
	talk->runtime = &npu_file_header(file)->runtime;
	ret = prepare(talk, file, prompts) || run_prompts(talk);
	finish(talk);
	npu_file_close(file);
	return ret ? -1 : 0;
}
