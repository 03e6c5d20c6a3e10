/* SPDX-License-Identifier: MIT */
/*
 * How long tokens take on the device when a model has experts: in device time,
 * in process, the same figures wherever it runs.
 */
#ifndef BENCH_MOE_H
#define BENCH_MOE_H

#include "runner.h"

/* Sequences: a prompt each, and what is said after it. */
struct feed_sequence {
	uint32_t *prompt, *tokens;
	uint32_t prompt_count, token_count;
};

struct feed {
	struct feed_sequence *sequences;
	uint32_t count;
};

/* Those of a file as tests/golden/demo-tokens.json; ends the program. */
void feed_read(struct feed *feed, const char *path);
/* One that nobody computes, for dry runs. */
void feed_make(struct feed *feed, uint32_t prompt, uint32_t tokens);
/* In all. */
uint32_t feed_tokens(const struct feed *feed);
void feed_free(struct feed *feed);

/* A sum of samples, and of their squares. */
struct moments {
	double sum, squares;
	uint32_t count;
};

void moments_add(struct moments *moments, double value);
double moments_mean(const struct moments *moments);
double moments_deviation(const struct moments *moments);

#define MOE_PROMPTS	2
extern const uint32_t moe_prompts[MOE_PROMPTS];	/* tokens of each */

/* What is tried, on a model. */
struct moe_setup {
	const char *path;
	const struct feed *feed;
	bool dry;
	uint32_t places;	/* 0: all experts have one */
	uint32_t policy;	/* M6NPU_ROUTER_* */
	const uint16_t *permille;	/* priorities, or NULL */
	/* Of prefetching; MOE_OFF: none. Between low and high, if not 0. */
	uint32_t threshold, low, high;
};

#define MOE_OFF		1001

/* Sums over all tokens; the prompts' are not in it. */
struct moe_result {
	struct moments token;		/* ms */
	double first[MOE_PROMPTS];	/* ms */
	double hits, misses;		/* of the router cache */
	double faults, stall_ms;
	double ahead, ahead_used;	/* experts read ahead */
	double copies, copies_used;	/* to SRAM */
};

/* Ends the program when it can't. */
void moe_run(const struct moe_setup *setup, struct moe_result *result);
/* Only the prompts, ms. */
void moe_run_prompts(const struct moe_setup *setup,
		     double first[MOE_PROMPTS]);
/* Tokens that each expert worked on, [layers, experts], for free(). */
uint64_t *moe_uses(const struct moe_setup *setup);
/* Priorities by popularity, for free(). */
uint16_t *moe_popularity(const struct moe_setup *setup);
/* Layers that have experts, and how many each has. */
uint32_t moe_layers(const char *path, uint32_t *experts);

#endif
