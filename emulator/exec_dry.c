// SPDX-License-Identifier: MIT
/*
 * Routing that is made up, for dry runs. A row's choices depend on the profile,
 * the layer, and the row's slot and position only, so that a guess can be
 * right: it knows what the later router will say.
 */
#include <math.h>
#include <stdlib.h>

#include "exec_priv.h"

/* Confidence of guesses lies between these two, so far as the mean allows. */
#define LOW_CHANCE	0.3
#define HIGH_CHANCE	0.99
/* A topic has so many experts for each that a row chooses. */
#define TOPIC_SPARE	2u
/* Draws of an expert that was not drawn yet, before a simpler way. */
#define DRAWS		32u

/* What a sequence of random numbers is for. */
enum purpose { POPULARITY, TOPIC, CHOICE, GUESS };

/* splitmix64 */
static uint64_t scramble(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static uint64_t next_random(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15ull;
	return scramble(*state);
}

/* 0 <= result < 1 */
static double next_unit(uint64_t *state)
{
	return (double)(next_random(state) >> 11) * 0x1p-53;
}

static uint64_t start_random(const struct m6_dry *dry, enum purpose purpose,
			     uint32_t slot, uint32_t position)
{
	uint64_t state = (uint64_t)dry->how->seed << 32 | dry->layer << 4 |
			 purpose;

	return scramble(scramble(state) ^ ((uint64_t)slot << 32 | position));
}

/* A layer's own order of experts, and how often each is chosen. */
static void make_popularity(struct m6_dry *dry)
{
	uint64_t random = start_random(dry, POPULARITY, 0, 0);
	double exponent = dry->how->zipf_permille / 1000.0, sum = 0;

	for (uint32_t i = 0; i < dry->experts; i++) {
		uint32_t other = next_random(&random) % (i + 1);

		dry->by_rank[i] = dry->by_rank[other];
		dry->by_rank[other] = i;
		sum += pow(i + 1, -exponent);
		dry->up_to[i] = sum;
	}
}

void m6_dry_begin(const struct m6_run *run, uint32_t experts,
		  struct m6_dry *dry)
{
	dry->run = run;
	dry->how = m6_job_dry(run->job);
	dry->layer = le16toh(run->cmd->layer);
	dry->experts = experts;
	make_popularity(dry);
}

/* The first rank whose share of the sum reaches that far. */
static uint32_t draw_any(const struct m6_dry *dry, uint64_t *random)
{
	double at = next_unit(random) * dry->up_to[dry->experts - 1];
	uint32_t low = 0, high = dry->experts - 1;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (dry->up_to[middle] > at)
			high = middle;
		else
			low = middle + 1;
	}
	return dry->by_rank[low];
}

/* By popularity, one that is not taken; @experts if all are. */
static uint32_t draw(const struct m6_dry *dry, uint64_t *random,
		     const bool *taken)
{
	for (uint32_t i = 0; i < DRAWS; i++) {
		uint32_t id = draw_any(dry, random);

		if (!taken[id])
			return id;
	}
	for (uint32_t i = 0; i < dry->experts; i++) {
		if (!taken[dry->by_rank[i]])
			return dry->by_rank[i];
	}
	return dry->experts;
}

static void draw_many(const struct m6_dry *dry, uint64_t *random,
		      uint32_t count, uint32_t *ids)
{
	bool taken[M6_MAX_EXPERTS] = { false };

	for (uint32_t i = 0; i < count; i++) {
		ids[i] = draw(dry, random, taken);
		taken[ids[i]] = true;
	}
}

/* There are more of them than a row chooses, or they are all experts. */
static uint32_t draw_topical(uint64_t *random, const uint32_t *topic,
			     uint32_t count, const bool *taken)
{
	uint32_t at = next_random(random) % count;

	while (taken[topic[at]])
		at = (at + 1) % count;
	return topic[at];
}

static struct m6npu_step_token where(const struct m6_dry *dry, uint32_t row)
{
	if (dry->run->step)
		return *m6_token(dry->run, row);
	return (struct m6npu_step_token){ .position = row };
}

void m6_dry_choose(const struct m6_dry *dry, uint32_t row, uint32_t k,
		   uint32_t *ids)
{
	struct m6npu_step_token token = where(dry, row);
	uint32_t count = k * TOPIC_SPARE < dry->experts ? k * TOPIC_SPARE :
							  dry->experts;
	uint32_t topic[M6_MAX_EXPERTS];
	bool taken[M6_MAX_EXPERTS] = { false };
	double repeat = dry->how->repeat_permille / 1000.0;
	uint64_t random;

	random = start_random(dry, TOPIC, token.slot,
			      token.position / dry->how->topic_length);
	draw_many(dry, &random, count, topic);
	random = start_random(dry, CHOICE, token.slot, token.position);
	for (uint32_t i = 0; i < k; i++) {
		ids[i] = next_unit(&random) < repeat ?
			 draw_topical(&random, topic, count, taken) :
			 draw(dry, &random, taken);
		taken[ids[i]] = true;
	}
}

/* Spread as far as a mean of @mean lets it. */
static double confidence(uint64_t *random, double mean)
{
	double part = (mean - LOW_CHANCE) / (HIGH_CHANCE - LOW_CHANCE);

	if (part <= 0 || part >= 1)
		return mean;
	/* The mean of unit^x is 1 / (x + 1). */
	return LOW_CHANCE + (HIGH_CHANCE - LOW_CHANCE) *
	       pow(next_unit(random), 1 / part - 1);
}

struct guess {
	uint32_t id;
	float chance;
};

static int compare_guesses(const void *a, const void *b)
{
	const struct guess *x = a, *y = b;

	if (x->chance != y->chance)
		return x->chance > y->chance ? -1 : 1;
	return x->id < y->id ? -1 : 1;
}

/* A row's guesses on their way. */
struct guesses {
	const struct m6_dry *dry;
	uint64_t random;
	double right;			/* mean */
	uint32_t among, k, count;
	uint32_t actual[M6_MAX_EXPERTS];
	uint32_t missed[M6_MAX_EXPERTS];
	uint32_t misses, found;		/* and those of them that came late */
	bool taken[M6_MAX_EXPERTS];	/* actual ones, and wrong guesses */
	struct guess guess[M6_MAX_EXPERTS];
};

static void add_guess(struct guesses *g, uint32_t id, double chance)
{
	g->taken[id] = true;
	g->guess[g->count++] = (struct guess){ id, (float)chance };
}

/* False: all that are left are right. */
static bool add_wrong(struct guesses *g, double chance)
{
	uint32_t id = draw(g->dry, &g->random, g->taken);

	if (id == g->dry->experts)
		return false;
	add_guess(g, id, chance);
	return true;
}

/* In place of an actual choice: that one, or not, as likely as it says. */
static void guess_choice(struct guesses *g, uint32_t choice)
{
	double chance = confidence(&g->random, g->right);

	if (next_unit(&g->random) >= chance && add_wrong(g, chance))
		g->missed[g->misses++] = choice;
	else
		add_guess(g, choice, chance);
}

/*
 * More guesses than a row has choices: half of the missed ones are among
 * them, and none stands out.
 */
static void guess_more(struct guesses *g, uint32_t number)
{
	double chance = (1 - g->right) * g->among / (g->k - g->among) / 2;
	bool late = number < g->misses && next_unit(&g->random) < 0.5;

	if (chance > LOW_CHANCE)
		chance = LOW_CHANCE;
	if (late || !add_wrong(g, chance))
		add_guess(g, g->missed[g->found++], chance);
}

void m6_dry_guess(const struct m6_dry *dry, uint32_t row, uint32_t among,
		  uint32_t k, uint32_t *ids, float *chances)
{
	struct m6npu_step_token token = where(dry, row);
	struct guesses g = {
		.dry = dry,
		.random = start_random(dry, GUESS, token.slot, token.position),
		.right = dry->how->predict_permille / 1000.0,
		.among = among,
		.k = k,
	};

	m6_dry_choose(dry, row, among, g.actual);
	for (uint32_t i = 0; i < among; i++)
		g.taken[g.actual[i]] = true;
	for (uint32_t i = 0; i < among && i < k; i++)
		guess_choice(&g, g.actual[i]);
	for (uint32_t i = among; i < k; i++)
		guess_more(&g, i - among);
	qsort(g.guess, k, sizeof(*g.guess), compare_guesses);
	for (uint32_t i = 0; i < k; i++) {
		ids[i] = g.guess[i].id;
		chances[i] = g.guess[i].chance;
	}
}
