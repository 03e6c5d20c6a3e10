// SPDX-License-Identifier: MIT
/*
 * Tiers: the passes they count on, against a distribution built up token by
 * token; what is chosen, against all there is to choose from.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "tiers.h"

#define MAX_TILE	256

/* Reading costs what 22 rows do, as with F16 and Q8_0. */
static const struct tier_cost usual = { 22000, 1000, 1000 };

/* tiers_passes(), the long way. */
static double passes(double chance, uint32_t tile, uint32_t capacity)
{
	double p[MAX_TILE + 1] = { 1 }, sum = 0;
	uint32_t token, n;

	for (token = 0; token < tile; token++)
		for (n = token + 1; n <= token + 1; n--)
			p[n] = p[n] * (1 - chance) +
			       (n ? p[n - 1] * chance : 0);
	for (n = 1; n <= tile; n++)
		sum += p[n] * ((n + capacity - 1) / capacity);
	return sum;
}

static void test_passes(void)
{
	static const double chances[] = { 0, 1e-6, 0.01, 0.0625, 0.5, 0.97, 1 };
	static const uint32_t tiles[] = { 1, 4, 10, 64, MAX_TILE };
	double worst = 0, expected;
	size_t i, j;
	uint32_t c;

	for (i = 0; i < ARRAY_SIZE(chances); i++)
		for (j = 0; j < ARRAY_SIZE(tiles); j++)
			for (c = 1; c <= tiles[j]; c = c * 2 + c / 3) {
				expected = passes(chances[i], tiles[j], c);
				worst = fmax(worst, fabs(tiers_passes(
					chances[i], tiles[j], c) - expected) /
					(expected + 1));
			}
	ok(worst < 1e-9, "passes are those of a binomial (off by %g)", worst);
}

static double cost_of(const double *chance, uint32_t tile,
		      const struct tier_cost *cost, const struct tier *tier)
{
	double pass = fmax(cost->weights_ns, tier->capacity * cost->row_ns);
	double ns = cost->command_ns;
	uint32_t i;

	for (i = tier->first; i < tier->first + tier->count; i++)
		ns += pass * passes(chance[i], tile, tier->capacity);
	return ns;
}

static double total(const double *chance, uint32_t tile,
		    const struct tier_cost *cost, const struct tier *tiers,
		    size_t count)
{
	double ns = 0;
	size_t i;

	for (i = 0; i < count; i++)
		ns += cost_of(chance, tile, cost, &tiers[i]);
	return ns;
}

static double best_single(const double *chance, uint32_t tile,
			  const struct tier_cost *cost, uint32_t first,
			  uint32_t count)
{
	struct tier tier = { first, count, 1 };
	double best = INFINITY;

	for (;; tier.capacity *= 2) {
		if (tier.capacity > tile)
			tier.capacity = tile;
		best = fmin(best, cost_of(chance, tile, cost, &tier));
		if (tier.capacity == tile)
			return best;
	}
}

/* Every way to cut @experts in up to four; a set bit cuts behind an expert. */
static double best_of_all(const double *chance, uint32_t experts,
			  uint32_t tile, const struct tier_cost *cost)
{
	double best = INFINITY, ns;
	uint32_t cuts, i, first;

	for (cuts = 0; cuts < 1u << (experts - 1); cuts++) {
		if (__builtin_popcount(cuts) >= TIERS_MAX)
			continue;
		ns = 0;
		for (i = first = 0; i < experts; i++) {
			if (i + 1 < experts && !(cuts & 1u << i))
				continue;
			ns += best_single(chance, tile, cost, first,
					  i + 1 - first);
			first = i + 1;
		}
		best = fmin(best, ns);
	}
	return best;
}

/* One behind the other over all experts, with capacities that can be. */
static bool well_formed(const struct tier *tiers, size_t count,
			uint32_t experts, uint32_t tile)
{
	uint32_t at = 0;
	size_t i;

	for (i = 0; i < count; i++) {
		if (tiers[i].first != at || !tiers[i].count ||
		    !tiers[i].capacity || tiers[i].capacity > tile ||
		    (tiers[i].capacity & (tiers[i].capacity - 1) &&
		     tiers[i].capacity != tile))
			return false;
		at += tiers[i].count;
	}
	return at == experts && count <= TIERS_MAX;
}

static void test_best(void)
{
	static const uint32_t tiles[] = { 1, 3, 16, 100, MAX_TILE };
	unsigned int round, bad = 0, dear = 0, several = 0;
	struct tier tiers[TIERS_MAX];
	struct tier_cost cost;
	double chance[7], ns;
	uint32_t tile, i;
	size_t count;

	srand(1);
	for (round = 0; round < 60; round++) {
		tile = tiles[round % ARRAY_SIZE(tiles)];
		cost = usual;
		cost.command_ns = rand() % 20000;
		for (i = 0; i < ARRAY_SIZE(chance); i++)
			chance[i] = pow(rand() / (RAND_MAX + 1.0), 3);
		count = tiers_choose(chance, ARRAY_SIZE(chance), tile, &cost,
				     tiers);
		ns = total(chance, tile, &cost, tiers, count);
		bad += !well_formed(tiers, count, ARRAY_SIZE(chance), tile);
		dear += ns > best_of_all(chance, ARRAY_SIZE(chance), tile,
					 &cost) * (1 + 1e-6);
		several += count > 1;
	}
	ok(!bad, "every expert is in one tier");
	ok(!dear, "no other tiers take less time");
	ok(several > 10, "and there are several (%u times)", several);
}

static void test_alike(void)
{
	struct tier tiers[TIERS_MAX];
	double chance[128];
	size_t count;
	uint32_t i;

	for (i = 0; i < ARRAY_SIZE(chance); i++)
		chance[i] = 8.0 / ARRAY_SIZE(chance);
	count = tiers_choose(chance, ARRAY_SIZE(chance), 256, &usual, tiers);
	ok(count == 1 && tiers[0].count == 128 && tiers[0].capacity >= 16 &&
	   tiers[0].capacity <= 32,
	   "experts that are alike share a tier of %u rows",
	   tiers[0].capacity);
}

/* As in models that were not trained to use all experts alike. */
static void test_skewed(void)
{
	struct tier tiers[TIERS_MAX];
	double chance[64];
	uint32_t i;
	size_t count;

	for (i = 0; i < ARRAY_SIZE(chance); i++)
		chance[i] = fmin(1, 2.0 / (i + 1));
	count = tiers_choose(chance, ARRAY_SIZE(chance), 64, &usual, tiers);
	ok(count > 1 && tiers[0].capacity > tiers[count - 1].capacity,
	   "favourites have more room: %u, others %u", tiers[0].capacity,
	   tiers[count - 1].capacity);
	ok(total(chance, 64, &usual, tiers, count) <
	   0.95 * best_single(chance, 64, &usual, 0, ARRAY_SIZE(chance)),
	   "which saves time");
}

static void test_unused(void)
{
	struct tier tiers[TIERS_MAX];
	double chance[3] = { 0 };

	ok(tiers_choose(chance, 3, 16, &usual, tiers) == 1 &&
	   tiers[0].count == 3 && tiers[0].capacity == 1,
	   "experts that nobody chooses are there all the same");
}

int main(void)
{
	test_passes();
	test_best();
	test_alike();
	test_skewed();
	test_unused();
	return done();
}
