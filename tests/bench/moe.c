// SPDX-License-Identifier: MIT
/*
 * Prints a line of JSON for each row of the tables "experts" and "prefill";
 * tests/bench/run makes the models, and tables of the lines.
 *
 * Usage: bench_moe experts NAME FILE [PROMPTS]
 *        bench_moe prefill NAME FILE WAY [PROMPTS]
 *        bench_moe use NAME FILE [PROMPTS]
 *
 * The last one prints how many tokens each expert worked on, as npu_server
 * does. Without golden prompts the device runs dry: nobody computes, and which
 * experts tokens choose is made up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe.h"

/* Of the sequence that is made up. */
#define PROMPT_TOKENS	128
#define SAID_TOKENS	512

static const struct variant {
	const char *cache;
	uint32_t policy;
	bool popular;		/* priorities go by popularity */
	const char *prefetch;
	uint32_t threshold, low, high;
} variants[] = {
	/* The first is what others are compared with. */
	{ "off", M6NPU_ROUTER_OFF, false, "off", MOE_OFF, 0, 0 },
	{ "LRU", M6NPU_ROUTER_LRU, false, "off", MOE_OFF, 0, 0 },
	{ "priority", M6NPU_ROUTER_PRIORITY_LRU, true, "off", MOE_OFF, 0, 0 },
	{ "LRU", M6NPU_ROUTER_LRU, false, "0.95", 950, 0, 0 },
	{ "LRU", M6NPU_ROUTER_LRU, false, "0.85", 850, 0, 0 },
	{ "LRU", M6NPU_ROUTER_LRU, false, "0.5", 500, 0, 0 },
	{ "LRU", M6NPU_ROUTER_LRU, false, "adaptive", 700, 300, 700 },
};

static const struct share {
	const char *name;
	uint32_t part;		/* of so many, 0: no budget */
} shares[] = {
	{ "all", 0 },
	{ "quarter", 4 },
};

static void show(const char *model, const char *budget,
		 const struct variant *variant, const struct moe_result *result)
{
	double tokens = result->token.count;

	printf("{\"table\": \"experts\", \"model\": \"%s\", \"budget\": \"%s\", \"cache\": \"%s\", \"prefetch\": \"%s\"",
	       model, budget, variant->cache, variant->prefetch);
	printf(", \"tokens\": %u, \"mean_ms\": %.6f, \"deviation_ms\": %.6f",
	       result->token.count, moments_mean(&result->token),
	       moments_deviation(&result->token));
	printf(", \"first_128_ms\": %.6f, \"first_512_ms\": %.6f",
	       result->first[0], result->first[1]);
	printf(", \"hit_ratio\": %.6f",
	       result->hits / (result->hits + result->misses));
	printf(", \"faults\": %.6f, \"stall_ms\": %.6f, \"ahead\": %.6f, \"ahead_used\": %.6f",
	       result->faults / tokens, result->stall_ms / tokens,
	       result->ahead / tokens, result->ahead_used / tokens);
	printf(", \"copies\": %.6f, \"copies_used\": %.6f}\n",
	       result->copies / tokens, result->copies_used / tokens);
	fflush(stdout);
}

static void run_experts(const char *name, struct moe_setup *setup)
{
	uint32_t experts, layers = moe_layers(setup->path, &experts);
	struct moe_result result;
	uint16_t *popularity;
	size_t i, j;

	setup->threshold = MOE_OFF;
	popularity = moe_popularity(setup);
	for (i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
		for (j = 0; j < sizeof(variants) / sizeof(variants[0]); j++) {
			const struct variant *v = &variants[j];

			setup->places = shares[i].part ?
					layers * experts / shares[i].part :
					0;
			setup->policy = v->policy;
			setup->permille = v->popular ? popularity : NULL;
			setup->threshold = v->threshold;
			setup->low = v->low;
			setup->high = v->high;
			moe_run(setup, &result);
			show(name, shares[i].name, v, &result);
		}
	free(popularity);
}

static void run_use(const char *name, struct moe_setup *setup)
{
	uint32_t experts, layers = moe_layers(setup->path, &experts), i;
	uint64_t *uses;

	setup->policy = M6NPU_ROUTER_LRU;
	setup->threshold = MOE_OFF;
	uses = moe_uses(setup);
	printf("{\"model\": \"%s\", \"tokens\": %u, \"layers\": [", name,
	       feed_tokens(setup->feed));
	for (i = 0; i < layers * experts; i++)
		printf("%s%llu%s",
		       i % experts ? ", " : i ? ", {\"use\": [" : "{\"use\": [",
		       (unsigned long long)uses[i],
		       i % experts == experts - 1 ? "]}" : "");
	printf("]}\n");
	free(uses);
}

static void run_prefill(const char *name, const char *way,
			struct moe_setup *setup)
{
	double first[MOE_PROMPTS];
	int i;

	setup->policy = M6NPU_ROUTER_LRU;
	setup->threshold = MOE_OFF;
	moe_run_prompts(setup, first);
	for (i = 0; i < MOE_PROMPTS; i++)
		printf("{\"table\": \"prefill\", \"model\": \"%s\", \"way\": \"%s\", \"tokens\": %u, \"ms\": %.6f}\n",
		       name, way, moe_prompts[i], first[i]);
}

static int usage(void)
{
	fprintf(stderr, "Usage: bench_moe experts NAME FILE [PROMPTS]\n"
			"       bench_moe prefill NAME FILE WAY [PROMPTS]\n"
			"       bench_moe use NAME FILE [PROMPTS]\n");
	return 2;
}

int main(int argc, char **argv)
{
	bool prefill = argc > 1 && !strcmp(argv[1], "prefill");
	int given = prefill ? 5 : 4;
	struct moe_setup setup = { 0 };
	struct feed feed;

	if (argc < given || argc > given + 1)
		return usage();
	setup.path = argv[3];
	setup.dry = argc == given;
	setup.feed = &feed;
	if (setup.dry)
		feed_make(&feed, PROMPT_TOKENS, SAID_TOKENS);
	else
		feed_read(&feed, argv[given]);
	if (prefill)
		run_prefill(argv[2], argv[4], &setup);
	else if (!strcmp(argv[1], "use"))
		run_use(argv[2], &setup);
	else
		run_experts(argv[2], &setup);
	feed_free(&feed);
	return 0;
}
