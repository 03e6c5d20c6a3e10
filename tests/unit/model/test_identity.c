// SPDX-License-Identifier: MIT
/*
 * However a model is run, its logits are the same, bit by bit: in small or
 * large tiles, sequences one by one or sharing steps, in whatever slots, with
 * experts there or brought in when they fault, with or without the router
 * cache, on memory in one piece or in scattered pages, on any unit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "trial.h"

#define RESIDENT	.board.router_policy = M6NPU_ROUTER_LRU

static const struct way {
	const char *name;
	struct runner_options options;
	struct trial_plan plan;
} ways[] = {
	/* The first is what the others are compared with. */
	{ "tile 16", { RESIDENT }, { .tile = 16 } },
	{ "tile 1", { RESIDENT }, { .tile = 1 } },
	{ "tile 4", { RESIDENT }, { .tile = 4 } },
	{ "tile 64", { RESIDENT }, { .tile = 64 } },
	{ "mixed slots", { RESIDENT }, { .tile = 16, .mixed = true } },
	{ "mixed slots, tile 4, from slot 3", { RESIDENT },
	  { .tile = 4, .mixed = true, .first_slot = 3 } },
	{ "no router cache", { .board.router_policy = M6NPU_ROUTER_OFF },
	  { .tile = 16 } },
	{ "priority router cache",
	  { .board.router_policy = M6NPU_ROUTER_PRIORITY_LRU },
	  { .tile = 16 } },
	{ "experts on demand", { RESIDENT, .experts.on_demand = true },
	  { .tile = 16 } },
	{ "experts on demand, tile 1", { RESIDENT, .experts.on_demand = true },
	  { .tile = 1 } },
	{ "experts forgotten after each step",
	  { RESIDENT, .experts = { .on_demand = true, .forget = true } },
	  { .tile = 4 } },
	{ "experts forgotten, no router cache",
	  { .experts = { .on_demand = true, .forget = true } },
	  { .tile = 1 } },
	{ "scattered pages", { RESIDENT, .board.scatter = true },
	  { .tile = 16 } },
	{ "scattered pages, experts on demand",
	  { RESIDENT, .board.scatter = true, .experts.on_demand = true },
	  { .tile = 4, .mixed = true } },
	{ "unit 3, one thread",
	  { RESIDENT, .board.ring = 3, .board.threads = 1 }, { .tile = 16 } },
};

/* The same with a KV cache of 8 bits, compared among themselves. */
static const struct way q8_ways[] = {
	{ "KV q8_0, tile 16", { RESIDENT, .kv_q8_0 = true }, { .tile = 16 } },
	{ "KV q8_0, tile 1, mixed", { RESIDENT, .kv_q8_0 = true },
	  { .tile = 1, .mixed = true, .first_slot = 1 } },
	{ "KV q8_0, scattered",
	  { RESIDENT, .kv_q8_0 = true, .board.scatter = true },
	  { .tile = 4 } },
};

static size_t first_difference(const float *a, const float *b, size_t count)
{
	size_t i;

	for (i = 0; i < count && !memcmp(&a[i], &b[i], sizeof(*a)); i++)
		;
	return i;
}

/* Is the way really the one that its options ask for? */
static void check_counts(const char *model, const struct way *way,
			 const struct trial_counts *counts)
{
	bool cached = way->options.board.router_policy != M6NPU_ROUTER_OFF &&
		      !way->options.experts.forget;

	ok(way->options.experts.on_demand == (counts->expert_faults > 0) &&
	   cached == (counts->router_hits > 0) && counts->router_misses,
	   "%s: %s: %llu hits, %llu misses, %llu faults", model, way->name,
	   (unsigned long long)counts->router_hits,
	   (unsigned long long)counts->router_misses,
	   (unsigned long long)counts->expert_faults);
}

static void compare_ways(const char *model, const char *path,
			 const struct npy *tokens, const struct way *ways,
			 size_t count)
{
	bool sparse = strstr(model, "moe");
	float *first = NULL, *logits;
	struct trial_counts counts;
	size_t i, at, values;

	values = tokens->count * trial_runtime(path).vocab;
	for (i = 0; i < count; i++) {
		logits = trial_logits(path, &ways[i].options, &ways[i].plan,
				      tokens, &counts);
		if (sparse)
			check_counts(model, &ways[i], &counts);
		if (!first) {
			first = logits;
			continue;
		}
		at = first_difference(first, logits, values);
		if (!ok(at == values, "%s: %s", model, ways[i].name))
			printf("# value %zu of %zu: %.9g, not %.9g\n", at,
			       values, logits[at], first[at]);
		free(logits);
	}
	free(first);
}

static void check_model(const char *model, const char *quantize)
{
	struct npy tokens;
	const char *path;
	char folder[4096], name[4200];

	snprintf(folder, sizeof(folder), "%s/%s", getenv("GOLDEN"), model);
	snprintf(name, sizeof(name), "%s/tokens.npy", folder);
	if (!ok(npy_read(name, &tokens), "%s %s", model, quantize))
		return;
	path = trial_compile(folder, quantize);
	compare_ways(model, path, &tokens, ways,
		     sizeof(ways) / sizeof(ways[0]));
	compare_ways(model, path, &tokens, q8_ways,
		     sizeof(q8_ways) / sizeof(q8_ways[0]));
	free(tokens.data);
}

int main(void)
{
	if (!getenv("GOLDEN"))
		return ok(false, "GOLDEN names the folder of models"), done();
	check_model("qwen3moe", "int4");
	check_model("qwen2moe", "fp16");
	check_model("llama", "int8");
	return done();
}
