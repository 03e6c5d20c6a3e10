/* SPDX-License-Identifier: MIT */
/*
 * How many rows to make room for in a command that works expert by expert. An
 * expert with more tokens than its capacity takes several passes, each of which
 * reads its weights again; one with fewer computes rows for nobody.
 */
#ifndef NPU_COMPILER_TIERS_H
#define NPU_COMPILER_TIERS_H

#include "util.h"

#define TIERS_MAX	4

/* A run of experts that have one command. */
struct tier {
	uint32_t first, count;
	uint32_t capacity;	/* a power of two, or the tile */
};

struct tier_cost {
	double weights_ns;	/* reading an expert, */
	double row_ns;		/* computing a row with it, */
	double command_ns;	/* launching a command */
};

/*
 * @chance says how likely a token is to choose each expert; the order stays.
 * Stores the tiers that take the least time to be expected, and returns how
 * many they are.
 */
size_t tiers_choose(const double *chance, uint32_t experts, uint32_t tile,
		    const struct tier_cost *cost,
		    struct tier tiers[TIERS_MAX]);

/* Passes to be expected if each of @tile tokens comes with @chance. */
double tiers_passes(double chance, uint32_t tile, uint32_t capacity);

#endif
