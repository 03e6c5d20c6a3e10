// SPDX-License-Identifier: MIT
#include "tiers.h"

#include <math.h>
#include <stdlib.h>

/* 1, 2, 4, ... 1024, and a tile between two of them. */
#define MAX_CAPACITIES	12
/* What is cheaper by less than this costs the same. */
#define TOLERANCE	1e-9

struct choice {
	const double *chance;
	uint32_t experts, tile;
	const struct tier_cost *cost;
	uint32_t capacity[MAX_CAPACITIES];
	size_t capacities;
	/* [capacities, experts + 1]: of all experts before one. */
	double *sum;
};

double tiers_passes(double chance, uint32_t tile, uint32_t capacity)
{
	double log_yes = log(chance), log_no = log1p(-chance);
	double all = lgamma(tile + 1.0), passes = 0, probability;
	uint32_t n;

	if (chance <= 0)
		return 0;
	if (chance >= 1)
		return ceil((double)tile / capacity);
	for (n = 1; n <= tile; n++) {
		probability = exp(all - lgamma(n + 1.0) -
				  lgamma(tile - n + 1.0) + n * log_yes +
				  (tile - n) * log_no);
		passes += probability * ((n + capacity - 1) / capacity);
	}
	return passes;
}

static void list_capacities(struct choice *choice)
{
	uint32_t capacity;

	for (capacity = 1; capacity < choice->tile; capacity *= 2)
		choice->capacity[choice->capacities++] = capacity;
	choice->capacity[choice->capacities++] = choice->tile;
}

static double *sums_of(const struct choice *choice, size_t capacity)
{
	return choice->sum + capacity * (choice->experts + 1);
}

/* A command takes the longer of its arithmetic and its reads. */
static void sum_up(struct choice *choice, size_t index)
{
	uint32_t capacity = choice->capacity[index], i;
	double pass = fmax(choice->cost->weights_ns,
			   capacity * choice->cost->row_ns);
	double *sum = sums_of(choice, index), passes = 0;

	for (i = 0; i < choice->experts; i++) {
		if (!i || choice->chance[i] != choice->chance[i - 1])
			passes = tiers_passes(choice->chance[i], choice->tile,
					      capacity);
		sum[i + 1] = sum[i] + pass * passes;
	}
}

/* The best capacity for experts [first, end). */
static double best_tier(const struct choice *choice, uint32_t first,
			uint32_t end, struct tier *tier)
{
	double best = INFINITY, ns;
	size_t i;

	for (i = 0; i < choice->capacities; i++) {
		ns = sums_of(choice, i)[end] - sums_of(choice, i)[first];
		if (ns < best * (1 - TOLERANCE)) {
			best = ns;
			tier->capacity = choice->capacity[i];
		}
	}
	tier->first = first;
	tier->count = end - first;
	return best + choice->cost->command_ns;
}

/* The best way to cut experts [0, end) into some number of tiers. */
struct cut {
	double ns;
	struct tier last;
};

static void cut_again(const struct choice *choice, const struct cut *fewer,
		      struct cut *cuts)
{
	uint32_t first, end;
	struct tier tier;
	double ns;

	for (end = 1; end <= choice->experts; end++) {
		cuts[end].ns = INFINITY;
		for (first = 0; first < end; first++) {
			if (!(fewer[first].ns < INFINITY))
				continue;
			ns = fewer[first].ns +
			     best_tier(choice, first, end, &tier);
			if (ns < cuts[end].ns * (1 - TOLERANCE)) {
				cuts[end].ns = ns;
				cuts[end].last = tier;
			}
		}
	}
	cuts[0].ns = INFINITY;
}

static size_t cut_best(const struct choice *choice, struct tier *tiers)
{
	size_t width = choice->experts + 1, count, best = 0, i;
	struct cut *cuts = xcalloc((TIERS_MAX + 1) * width, sizeof(*cuts));
	uint32_t end = choice->experts;

	for (i = 1; i < width; i++)
		cuts[i].ns = INFINITY;
	for (count = 1; count <= TIERS_MAX; count++) {
		cut_again(choice, cuts + (count - 1) * width,
			  cuts + count * width);
		if (!best || cuts[count * width + end].ns <
			     cuts[best * width + end].ns * (1 - TOLERANCE))
			best = count;
	}
	for (i = best; i; i--) {
		tiers[i - 1] = cuts[i * width + end].last;
		end = tiers[i - 1].first;
	}
	free(cuts);
	return best;
}

size_t tiers_choose(const double *chance, uint32_t experts, uint32_t tile,
		    const struct tier_cost *cost, struct tier tiers[TIERS_MAX])
{
	struct choice choice = {
		.chance = chance,
		.experts = experts,
		.tile = tile,
		.cost = cost,
	};
	size_t count, i;

	list_capacities(&choice);
	choice.sum = xcalloc(choice.capacities * (experts + 1ull),
			     sizeof(*choice.sum));
	for (i = 0; i < choice.capacities; i++)
		sum_up(&choice, i);
	count = cut_best(&choice, tiers);
	free(choice.sum);
	return count;
}
