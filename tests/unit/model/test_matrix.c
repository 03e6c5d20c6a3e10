// SPDX-License-Identifier: MIT
/*
 * Whatever is done about experts, the tokens are the same and the logits, too,
 * bit by bit: with any router cache, pins, budget, threshold, way through a
 * layer and order in which experts come. What is compared is a run with all
 * experts there, token by token, without guesses; and that one with the
 * reference.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yyjson.h>

#include "../tap.h"
#include "trial.h"

#define DEMO_PROMPTS	3
#define DEMO_LENGTH	40
/*
 * Rounding of activations, in deviations of the logits; as in test_golden.c
 * for two layers. Those of more layers add up like steps of a random walk.
 */
#define FP16_LIMIT	0.01
#define FP16_LAYERS	2
#define INT8_LIMIT	0.2
#define PLAIN		{ .board.router_policy = M6NPU_ROUTER_LRU }

/* How it is compiled. */
static const struct stream {
	const char *name;
	const char *options[8];
} streams[] = {
	/* The first is the plain one. */
	{ "token", { "--moe", "token", "--guess", "0" } },
	{ "token, guesses", { "--moe", "token" } },
	{ "grouped", { "--moe", "grouped", "--guess", "0" } },
	{ "grouped, guesses", { "--moe", "grouped" } },
	{ "per expert, 3 guesses",
	  { "--moe", "per-expert", "--guess", "3" } },
};

#define STREAMS		(sizeof(streams) / sizeof(streams[0]))

/* Of all experts; what a step needs at least, if that is more. */
enum budget { LEAST, QUARTER, HALF, ALL };

/* How it is run. Every setting meets each of the others at least once. */
static const struct way {
	const char *name;
	enum budget budget;
	uint32_t tile;
	uint32_t pinned;	/* permille of all experts */
	bool mixed;
	struct runner_options options;
} ways[] = {
	{ "no cache, least, one by one", LEAST, 1, 0, false,
	  { .poison = true, .experts = {
		.order = RESIDENCY_ONE_BY_ONE, .seed = 1, .hints = true,
		.prefetch_permille = 300, .storage_mb_s = 20 } } },
	{ "LRU, least, tile 4", LEAST, 4, 0, true,
	  { .board.router_policy = M6NPU_ROUTER_LRU, .poison = true,
	    .experts = { .order = RESIDENCY_SHUFFLED, .seed = 2,
			 .prefetch_permille = 1001, .storage_mb_s = 2000 } } },
	{ "priority, quarter, 0.3, tile 1", QUARTER, 1, 100, false,
	  { .board.router_policy = M6NPU_ROUTER_PRIORITY_LRU,
	    .experts = { .order = RESIDENCY_SHUFFLED, .seed = 3, .hints = true,
			 .prefetch_permille = 300, .storage_mb_s = 2000 } } },
	{ "LRU, quarter, 0.85, tile 16", QUARTER, 16, 0, false,
	  { .board.router_policy = M6NPU_ROUTER_LRU, .poison = true,
	    .experts = { .order = RESIDENCY_ONE_BY_ONE, .seed = 4,
			 .hints = true, .prefetch_permille = 850,
			 .storage_mb_s = 200 } } },
	{ "no cache, half, 0.95, tile 4, scattered", HALF, 4, 0, true,
	  { .board.scatter = true,
	    .experts = { .order = RESIDENCY_SHUFFLED, .seed = 5,
			 .on_demand = true, .hints = true,
			 .prefetch_permille = 950, .storage_mb_s = 20 } } },
	{ "priority, half, all pinned, tile 16", HALF, 16, 1000, true,
	  { .board.router_policy = M6NPU_ROUTER_PRIORITY_LRU, .poison = true,
	    .experts = { .order = RESIDENCY_ONE_BY_ONE, .seed = 6,
			 .hints = true, .prefetch_permille = 300 } } },
	{ "LRU, all, pins, quota 8, 0.3, tile 64", ALL, 64, 100, false,
	  { .board = { .router_policy = M6NPU_ROUTER_LRU, .router_quota = 8 },
	    .poison = true,
	    .experts = { .prefetch_permille = 300 } } },
	{ "priority, all on demand, adaptive, tile 4", ALL, 4, 0, false,
	  { .board.router_policy = M6NPU_ROUTER_PRIORITY_LRU,
	    .experts = { .on_demand = true, .order = RESIDENCY_ONE_BY_ONE,
			 .seed = 7, .hints = true, .prefetch_permille = 700,
			 .prefetch_low = 300, .prefetch_high = 700,
			 .storage_mb_s = 20 } } },
	{ "LRU, half, forgotten after each step, tile 1", HALF, 1, 0, true,
	  { .board.router_policy = M6NPU_ROUTER_LRU,
	    .experts = { .forget = true, .hints = true,
			 .prefetch_permille = 300, .storage_mb_s = 2000 } } },
};

#define WAYS		(sizeof(ways) / sizeof(ways[0]))

struct subject {
	const char *name;
	const char *folder;
	struct npy tokens;
	/* Tokens that ought to be best, or -1; or logits of the reference. */
	int32_t *next;
	struct npy reference;
	/* One of so many combinations is tried, with these streams. */
	size_t step;
	uint32_t streams;	/* a bit each */
};

#define ALL_STREAMS	((1u << STREAMS) - 1)
#define GROUPED_STREAM	(1u << 3)	/* with guesses */

/* What all ways together have seen. */
static struct trial_counts seen;

static void count(const struct trial_counts *counts)
{
	seen.router_hits += counts->router_hits;
	seen.experts.faults += counts->experts.faults;
	seen.experts.evictions += counts->experts.evictions;
	seen.experts.hints += counts->experts.hints;
	seen.experts.ahead += counts->experts.ahead;
	seen.experts.ahead_used += counts->experts.ahead_used;
}

static uint32_t places_of(const struct way *way,
			  const struct npu_runtime *runtime)
{
	static const uint32_t parts[] = {
		[LEAST] = UINT32_MAX, [QUARTER] = 4, [HALF] = 2,
	};
	uint32_t total = runtime->expert_layers * runtime->experts;
	uint32_t need = way->tile * runtime->experts_per_token, places;

	if (way->budget == ALL)
		return 0;
	if (need > runtime->experts)
		need = runtime->experts;
	places = total / parts[way->budget];
	return places > need ? places : need;
}

static float *run_way(const char *path, const struct way *way,
		      const struct npy *tokens)
{
	const struct trial_plan plan = { .tile = way->tile,
					 .mixed = way->mixed };
	struct npu_runtime runtime = trial_runtime(path);
	struct runner_options options = way->options;
	struct trial_counts counts;
	struct m6_profile profile;
	float *logits;

	m6_profile_default(&profile);
	profile.idle_permille = 0;
	options.board.profile = &profile;
	options.experts.places = places_of(way, &runtime);
	options.experts.pinned = (uint64_t)runtime.expert_layers *
				 runtime.experts * way->pinned / 1000;
	logits = trial_logits(path, &options, &plan, tokens, &counts);
	count(&counts);
	return logits;
}

static void check_next(const struct subject *subject, const float *logits,
		       uint32_t vocab)
{
	uint32_t right = 0, wanted = 0, i, best;
	const float *at = logits;
	size_t row;

	for (row = 0; row < subject->tokens.count; row++, at += vocab) {
		if (subject->next[row] < 0)
			continue;
		for (i = 1, best = 0; i < vocab; i++)
			if (at[i] > at[best])
				best = i;
		right += best == (uint32_t)subject->next[row];
		wanted++;
	}
	ok(wanted && right == wanted, "%s: %u of %u tokens are the expected",
	   subject->name, right, wanted);
}

static void check_reference(const struct subject *subject, const float *logits,
			    uint32_t vocab, double deviations)
{
	double limit = deviations * npy_deviation(&subject->reference);
	struct trial_difference d;

	d = trial_compare(logits, subject->reference.data,
			  subject->tokens.count, vocab, 2 * limit);
	ok(d.max_abs <= limit && !d.flips,
	   "%s: differs from the reference by at most %.4f of %.4f, %u tokens",
	   subject->name, d.max_abs, limit, d.flips);
}

static void compare(const char *name, const float *plain, const float *logits,
		    size_t values)
{
	size_t at = 0;

	while (at < values && !memcmp(&plain[at], &logits[at], sizeof(float)))
		at++;
	if (!ok(at == values, "%s", name))
		printf("# value %zu of %zu: %.9g, not %.9g\n", at, values,
		       logits[at], plain[at]);
}

static void check_stream(const struct subject *subject, size_t stream,
			 const float *plain, size_t values)
{
	const char *path = trial_compile_with(subject->folder, "fp16",
					      streams[stream].options);
	char name[256];
	float *logits;
	size_t i;

	for (i = 0; i < WAYS; i++) {
		if ((i + stream) % subject->step)
			continue;
		snprintf(name, sizeof(name), "%s: %s: %s", subject->name,
			 streams[stream].name, ways[i].name);
		logits = run_way(path, &ways[i], &subject->tokens);
		compare(name, plain, logits, values);
		free(logits);
	}
}

static void check_subject(const struct subject *subject)
{
	static const struct way plain_way = { "plain", ALL, 4, 0, false,
					      PLAIN };
	const char *path = trial_compile_with(subject->folder, "fp16",
					      streams[0].options);
	struct npu_runtime runtime = trial_runtime(path);
	uint32_t vocab = runtime.vocab;
	float *plain = run_way(path, &plain_way, &subject->tokens);
	size_t i;

	if (subject->next)
		check_next(subject, plain, vocab);
	else
		check_reference(subject, plain, vocab, FP16_LIMIT *
				sqrt(1.0 * runtime.kv_layers / FP16_LAYERS));
	for (i = 0; i < STREAMS; i++)
		if (subject->streams >> i & 1)
			check_stream(subject, i, plain,
				     subject->tokens.count * vocab);
	free(plain);
}

static bool read_tokens(struct subject *subject)
{
	char path[4400];

	snprintf(path, sizeof(path), "%s/tokens.npy", subject->folder);
	return ok(npy_read(path, &subject->tokens), "%s is there",
		  subject->name);
}

/* A folder with tokens, of which the reference computes the logits. */
static void check_folder(struct subject subject)
{
	if (!read_tokens(&subject))
		return;
	subject.reference = trial_reference(subject.folder, "fp16");
	check_subject(&subject);
	free(subject.reference.data);
	free(subject.tokens.data);
}

/* The beginnings of some golden prompts with what is to follow them. */
static void take_demo(struct subject *subject, yyjson_val *entries)
{
	int32_t *tokens = calloc(DEMO_PROMPTS * DEMO_LENGTH, sizeof(*tokens));
	size_t row, prompt, i, at;

	subject->next = calloc(DEMO_PROMPTS * DEMO_LENGTH, sizeof(*tokens));
	for (row = 0; row < DEMO_PROMPTS; row++) {
		yyjson_val *entry = yyjson_arr_get(entries, row);
		yyjson_val *ids = yyjson_obj_get(entry, "prompt_ids");
		yyjson_val *said = yyjson_obj_get(entry, "tokens");

		prompt = yyjson_arr_size(ids);
		for (i = 0; i < DEMO_LENGTH; i++) {
			at = row * DEMO_LENGTH + i;
			tokens[at] = yyjson_get_int(i < prompt ?
				yyjson_arr_get(ids, i) :
				yyjson_arr_get(said, i - prompt));
			subject->next[at] = i + 1 < prompt ? -1 :
				yyjson_get_int(yyjson_arr_get(said, i + 1 -
							      prompt));
		}
	}
	subject->tokens = (struct npy){
		'i', { DEMO_PROMPTS, DEMO_LENGTH }, 2,
		DEMO_PROMPTS * DEMO_LENGTH, tokens,
	};
}

static void check_demo(void)
{
	struct subject subject = { "demo", getenv("DEMO"), .step = 3,
				   .streams = ALL_STREAMS };
	char path[4400];
	yyjson_doc *doc;

	snprintf(path, sizeof(path), "%s/model.safetensors", subject.folder);
	if (access(path, R_OK)) {
		printf("# models/demo has not been made\n");
		return;
	}
	snprintf(path, sizeof(path), "%s/demo-tokens.json", getenv("GOLDEN"));
	doc = yyjson_read_file(path, 0, NULL, NULL);
	if (!ok(doc, "demo-tokens.json"))
		return;
	take_demo(&subject, yyjson_obj_get(yyjson_doc_get_root(doc),
					   "entries"));
	check_subject(&subject);
	free(subject.next);
	free(subject.tokens.data);
	yyjson_doc_free(doc);
}

/* Copies of lower precision: those of all experts, then of some. */
static void check_low(const char *name)
{
	static const char *const options[] = { "--expert-fallback", "int8",
					       NULL };
	struct subject subject = { name, trial_make(name) };
	const struct trial_plan plan = { .tile = 16 };
	struct runner_options run = PLAIN;
	struct way way = ways[2];
	float *logits, *other;
	const char *path;
	uint32_t every;

	if (!read_tokens(&subject))
		return;
	subject.reference = trial_reference(subject.folder, "fp16/int8");
	path = trial_compile_with(subject.folder, "fp16", options);
	for (every = 1; every <= 3; every += 2) {
		run.experts.low_every = every;
		way.options.experts.low_every = every;
		logits = trial_logits(path, &run, &plan, &subject.tokens, NULL);
		other = run_way(path, &way, &subject.tokens);
		compare("experts of lower precision, however run", logits,
			other, subject.reference.count);
		if (every == 1)
			check_reference(&subject, logits, trial_runtime(path).vocab,
					INT8_LIMIT);
		free(logits);
		free(other);
	}
	free(subject.reference.data);
	free(subject.tokens.data);
}

/* Each of the ways has to have been one. */
static void check_seen(void)
{
	const struct residency_stats *e = &seen.experts;

	ok(seen.router_hits && e->faults && e->evictions && e->hints &&
	   e->ahead && e->ahead_used,
	   "%llu hits, %llu faults, %llu evictions, %llu hints, %llu read ahead, %llu of them used",
	   (unsigned long long)seen.router_hits, (unsigned long long)e->faults,
	   (unsigned long long)e->evictions, (unsigned long long)e->hints,
	   (unsigned long long)e->ahead, (unsigned long long)e->ahead_used);
}

static void check_golden(const char *name)
{
	char folder[4096];

	snprintf(folder, sizeof(folder), "%s/%s", getenv("GOLDEN"), name);
	check_folder((struct subject){ name, folder, .step = 1,
				       .streams = ALL_STREAMS });
}

/* The larger, the fewer combinations. */
static void check_made(const char *name, size_t step, uint32_t streams)
{
	check_folder((struct subject){ name, trial_make(name), .step = step,
				       .streams = streams });
}

int main(void)
{
	if (!getenv("GOLDEN"))
		return ok(false, "GOLDEN names the folder of models"), done();
	check_golden("qwen3moe");
	check_golden("qwen2moe");
	check_golden("mixtral");
	check_made("top8of128", 2, ALL_STREAMS);
	check_made("top1of16", 1, ALL_STREAMS);
	check_made("deep", 4, GROUPED_STREAM);
	check_demo();
	check_seen();
	check_low("top8of128");
	return done();
}
