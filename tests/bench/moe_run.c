// SPDX-License-Identifier: MIT
#include <errno.h>
#include <npu/npu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "moe.h"

/* Said before anything is measured: caches and places fill. */
#define WARM_TOKENS	128
/* The second is for prompts. */
#define SLOTS		2
#define CAPACITY	1024

const uint32_t moe_prompts[MOE_PROMPTS] = { 128, 512 };

struct trial {
	const struct moe_setup *setup;
	struct runner *runner;
	struct m6npu_job_status status;	/* of the last step */
};

static void must(int ret)
{
	if (!ret)
		return;
	fprintf(stderr, "bench_moe: %s\n", npu_error());
	exit(1);
}

static struct runner *make_runner(const struct moe_setup *setup)
{
	struct runner_options options = {
		.board = {
			.router_policy = setup->policy,
			.dry = setup->dry,
		},
		.slots = SLOTS,
		.capacity = CAPACITY,
		.experts = {
			.places = setup->places,
			.permille = setup->permille,
			.hints = setup->places && setup->threshold != MOE_OFF,
			.prefetch_permille = setup->threshold,
			.prefetch_low = setup->low,
			.prefetch_high = setup->high,
		},
	};
	struct m6_profile profile;
	struct runner *runner;

	m6_profile_default(&profile);
	/* Only what the device does takes time. */
	profile.idle_permille = 0;
	options.board.profile = &profile;
	options.experts.storage_mb_s = profile.nvme_mb_s;
	must(runner_create(setup->path, &options, &runner));
	return runner;
}

/* Device time of one step, ms. */
static double step(struct trial *trial, uint32_t slot, uint32_t position,
		   const uint32_t *tokens, uint32_t count)
{
	struct m6npu_step_token row[CAPACITY];
	struct runner_result result;
	uint32_t i;

	for (i = 0; i < count; i++)
		row[i] = (struct m6npu_step_token){
			.token = tokens[i],
			.position = position + i,
			.slot = slot,
			.flags = i + 1 == count ? M6NPU_TOKEN_OUT : 0,
		};
	must(runner_step(trial->runner, runner_tile(trial->runner, count), row,
			 count, &result));
	trial->status = result.status;
	return (double)(result.status.end_ns - result.status.begin_ns) / 1e6;
}

/* In steps as large as there are. */
static double run_prompt(struct trial *trial, uint32_t slot,
			 const uint32_t *tokens, uint32_t count)
{
	uint32_t most = runner_runtime(trial->runner)->max_tile, at, part;
	double ms = 0;

	for (at = 0; at < count; at += part) {
		part = count - at < most ? count - at : most;
		ms += step(trial, slot, at, tokens + at, part);
	}
	return ms;
}

/* What is counted all along, put into @result with @sign. */
static void add_counts(const struct trial *trial, struct moe_result *result,
		       double sign)
{
	const struct m6npu_layer_stats *layer =
		board_layer_stats(runner_board(trial->runner));
	struct residency_stats stats =
		residency_stats(runner_experts(trial->runner));
	uint32_t i;

	result->faults += sign * (double)stats.faults;
	result->stall_ms += sign * (double)stats.stall_ns / 1e6;
	result->ahead += sign * (double)stats.ahead;
	result->ahead_used += sign * (double)stats.ahead_used;
	for (i = 0; i < runner_runtime(trial->runner)->expert_layers; i++) {
		result->copies += sign * (double)layer[i].prefetches;
		result->copies_used += sign * (double)layer[i].sram_hits;
	}
}

static void say_token(struct trial *trial, struct moe_result *result,
		      uint32_t position, uint32_t token)
{
	add_counts(trial, result, -1);
	moments_add(&result->token, step(trial, 0, position, &token, 1));
	add_counts(trial, result, 1);
	result->hits += trial->status.router_hits;
	result->misses += trial->status.router_misses;
}

static void say_all(struct trial *trial, struct moe_result *result)
{
	const struct feed *feed = trial->setup->feed;
	const struct feed_sequence *sequence;
	uint32_t i, j, said = 0, position;

	for (i = 0; i < feed->count; i++) {
		sequence = &feed->sequences[i];
		position = sequence->prompt_count;
		run_prompt(trial, 0, sequence->prompt, position);
		for (j = 0; j < sequence->token_count; j++, position++) {
			if (said++ < WARM_TOKENS)
				step(trial, 0, position, &sequence->tokens[j],
				     1);
			else
				say_token(trial, result, position,
					  sequence->tokens[j]);
		}
	}
}

/* So many tokens of all prompts, one behind the other. */
static void join_prompts(const struct feed *feed, uint32_t *tokens,
			 uint32_t count)
{
	uint32_t i = 0, j = 0, at;

	for (at = 0; at < count; at++) {
		tokens[at] = feed->sequences[i].prompt[j++];
		if (j < feed->sequences[i].prompt_count)
			continue;
		j = 0;
		i = (i + 1) % feed->count;
	}
}

static void run_prompts(struct trial *trial, double first[MOE_PROMPTS])
{
	uint32_t tokens[CAPACITY], i;

	for (i = 0; i < MOE_PROMPTS; i++) {
		join_prompts(trial->setup->feed, tokens, moe_prompts[i]);
		first[i] = run_prompt(trial, 1, tokens, moe_prompts[i]);
	}
}

void moe_run(const struct moe_setup *setup, struct moe_result *result)
{
	struct trial trial = { .setup = setup, .runner = make_runner(setup) };

	memset(result, 0, sizeof(*result));
	say_all(&trial, result);
	run_prompts(&trial, result->first);
	runner_destroy(trial.runner);
}

void moe_run_prompts(const struct moe_setup *setup, double first[MOE_PROMPTS])
{
	struct trial trial = { .setup = setup, .runner = make_runner(setup) };

	run_prompts(&trial, first);
	runner_destroy(trial.runner);
}

static void *take(size_t count, size_t bytes)
{
	void *memory = calloc(count, bytes);

	must(memory ? 0 : npu_fail_memory());
	return memory;
}

uint64_t *moe_uses(const struct moe_setup *setup)
{
	struct trial trial = { .setup = setup, .runner = make_runner(setup) };
	uint32_t experts, layers = moe_layers(setup->path, &experts);
	uint64_t *uses = take(layers * experts, sizeof(*uses));
	struct moe_result ignored = { 0 };

	say_all(&trial, &ignored);
	memcpy(uses, residency_uses(runner_experts(trial.runner)),
	       layers * experts * sizeof(*uses));
	runner_destroy(trial.runner);
	return uses;
}

uint16_t *moe_popularity(const struct moe_setup *setup)
{
	uint32_t experts, layers = moe_layers(setup->path, &experts), i;
	uint16_t *permille = take(layers * experts, sizeof(*permille));
	uint64_t *uses = moe_uses(setup), most = 1;

	for (i = 0; i < layers * experts; i++)
		most = uses[i] > most ? uses[i] : most;
	for (i = 0; i < layers * experts; i++)
		permille[i] = (uint16_t)(uses[i] * 1000 / most);
	free(uses);
	return permille;
}

uint32_t moe_layers(const char *path, uint32_t *experts)
{
	struct npu_file *file;
	uint32_t layers;

	must(npu_file_open(path, &file));
	layers = npu_file_header(file)->runtime.expert_layers;
	*experts = npu_file_header(file)->runtime.experts;
	npu_file_close(file);
	if (!layers)
		must(npu_fail(-EINVAL, "%s has no experts", path));
	return layers;
}
