// SPDX-License-Identifier: MIT
/*
 * Places for experts, and whose is taken when there is none left.
 *
 * That is the one whose next use is likely to be furthest away, counted in
 * layers: as many as lie between where the step is and its own, plus all of
 * them once more for each step that is likely to pass without it.
 *
 * The chance of use is the share of steps that used it, those long ago counting
 * less; before much is known, what priorities or calibration have. But tokens
 * tend to take what those before took. How much so differs, and is learnt: of
 * all experts that were last used some steps ago, how many were used, and how
 * many should have been by their shares. The chance is corrected by that.
 *
 * Of files that do not tell who is used, misses are all that is known.
 *
 * Pinned experts go when there are no others.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "places.h"

#define NORMAL_PERMILLE	500.0
/* A prior weighs as much as so many steps. */
#define PRIOR_STEPS	4.0
/* What was so many steps ago counts for a third. */
#define MEMORY_STEPS	128.0
/* Uses that are taken as seen at each age, as foretold. */
#define AGE_PRIOR	2.0
#define LEAST_CHANCE	1e-4
/* What was missed in the last step, if nothing else is known. */
#define MISSED_CHANCE	0.25
/* Who is expected in this very step. */
#define GUESS_CHANCE	0.9
/* Places kept free for what is read ahead: one of so many, at most. */
#define SPARE_SHARE	8

int npu_places_init(struct npu_places *p, const struct npu_places_request *r)
{
	uint32_t n = r->layers * r->experts, k;
	double mean = (double)r->experts_per_token / r->experts;

	*p = (struct npu_places){
		.layers = r->layers,
		.experts = r->experts,
		.count = r->count,
		.bytes = r->bytes,
		.holders = calloc(r->count, sizeof(*p->holders)),
		.free = calloc(r->count, sizeof(*p->free)),
		.uses = calloc(n, sizeof(*p->uses)),
		.free_count = r->count,
		.layer = NPU_NOWHERE,
		/* Who was never used is of the oldest. */
		.step = NPU_PLACES_AGES,
	};
	if (!p->holders || !p->free || !p->uses) {
		npu_places_clear(p);
		return npu_fail_memory();
	}
	/* The lowest is given first. */
	for (k = 0; k < r->count; k++) {
		p->holders[k] = NPU_NOWHERE;
		p->free[k] = r->count - 1 - k;
	}
	for (k = 0; k < n; k++)
		p->uses[k] = (struct npu_use){
			.place = NPU_NOWHERE,
			.prior = r->chances ? r->chances[k] :
				 mean * r->permille[k] / NORMAL_PERMILLE,
		};
	return 0;
}

void npu_places_clear(struct npu_places *p)
{
	free(p->holders);
	free(p->free);
	free(p->uses);
	memset(p, 0, sizeof(*p));
}

void npu_places_begin(struct npu_places *p)
{
	p->step++;
	p->layer = NPU_NOWHERE;
	p->at = 0;
	/* Nobody is held for a command of the step before. */
	p->waiter++;
}

void npu_places_wait(struct npu_places *p, uint32_t layer)
{
	if (p->layer == layer)
		return;
	p->layer = p->at = layer;
	p->waiter++;
}

void npu_places_hold(struct npu_places *p, uint32_t expert)
{
	p->uses[expert].waiter = p->waiter;
}

static uint32_t age_index(uint64_t age)
{
	return age < NPU_PLACES_AGES ? (uint32_t)age : NPU_PLACES_AGES - 1;
}

/* The share of steps that use an expert. */
static double share(const struct npu_places *p, const struct npu_use *use)
{
	return (use->often + use->prior * PRIOR_STEPS) /
	       (p->observed + PRIOR_STEPS);
}

static double correction(const struct npu_places *p, uint64_t age)
{
	uint32_t i = age_index(age);

	return (p->were[i] + AGE_PRIOR) / (p->foretold[i] + AGE_PRIOR);
}

/* That the next step that comes to it uses it, @age steps after the last. */
static double chance(const struct npu_places *p, const struct npu_use *use,
		     uint64_t age)
{
	double c = share(p, use);

	if (p->observed > 0)
		c *= correction(p, age);
	else if (use->last)
		c += (1 - c) * MISSED_CHANCE / (double)(1 + age);
	return c > 1 ? 1 : c < LEAST_CHANCE ? LEAST_CHANCE : c;
}

/* Layers until @expert is likely to be used. */
static double distance(const struct npu_places *p, uint32_t expert)
{
	const struct npu_use *use = &p->uses[expert];
	uint32_t layer = expert / p->experts;
	bool passed = layer < p->at;
	uint32_t ahead = passed ? layer + p->layers - p->at : layer - p->at;
	double c = chance(p, use, p->step - use->last + passed);

	if (use->guessed == p->step && !passed && c < GUESS_CHANCE)
		c = GUESS_CHANCE;
	return ahead + p->layers * (1 - c) / c;
}

/* Would rather lose @a than @b. */
static bool rather(const struct npu_places *p, uint32_t a, uint32_t b)
{
	if (p->uses[a].pinned != p->uses[b].pinned)
		return p->uses[b].pinned;
	return distance(p, a) > distance(p, b);
}

static uint32_t find_victim(const struct npu_places *p)
{
	uint32_t k, victim = NPU_NOWHERE;

	for (k = 0; k < p->count; k++) {
		uint32_t x = p->holders[k];

		if (x == NPU_NOWHERE || p->uses[x].coming ||
		    p->uses[x].waiter == p->waiter)
			continue;
		if (victim == NPU_NOWHERE || rather(p, x, victim))
			victim = x;
	}
	return victim;
}

static void settle(struct npu_places *p, uint32_t expert, uint32_t place)
{
	p->holders[place] = expert;
	p->uses[expert].place = place;
}

uint32_t npu_places_take_free(struct npu_places *p, uint32_t expert)
{
	uint32_t place;

	if (!p->bytes)
		place = expert;
	else if (p->free_count)
		place = p->free[--p->free_count];
	else
		return NPU_NOWHERE;
	settle(p, expert, place);
	return place;
}

uint32_t npu_places_take(struct npu_places *p, uint32_t expert,
			 uint32_t *victim)
{
	uint32_t place = npu_places_take_free(p, expert);

	*victim = NPU_NOWHERE;
	if (place == NPU_NOWHERE) {
		*victim = find_victim(p);
		if (*victim == NPU_NOWHERE)
			return NPU_NOWHERE;
		place = p->uses[*victim].place;
		p->uses[*victim].place = NPU_NOWHERE;
		settle(p, expert, place);
	}
	p->uses[expert].waiter = p->waiter;
	return place;
}

static void release(struct npu_places *p, uint32_t expert)
{
	uint32_t place = p->uses[expert].place;

	p->holders[place] = NPU_NOWHERE;
	p->uses[expert].place = NPU_NOWHERE;
	if (p->bytes)
		p->free[p->free_count++] = place;
}

void npu_places_untake(struct npu_places *p, uint32_t expert, uint32_t victim)
{
	uint32_t place = p->uses[expert].place;

	if (victim == NPU_NOWHERE) {
		release(p, expert);
		return;
	}
	p->uses[expert].place = NPU_NOWHERE;
	settle(p, victim, place);
}

void npu_places_give(struct npu_places *p, uint32_t expert)
{
	release(p, expert);
	p->uses[expert].coming = false;
}

uint32_t npu_places_drop(struct npu_places *p)
{
	uint32_t victim = find_victim(p);

	if (victim != NPU_NOWHERE)
		release(p, victim);
	return victim;
}

uint32_t npu_places_spare(const struct npu_places *p, uint32_t needed,
			  uint32_t experts_per_token)
{
	uint32_t spare = p->count / SPARE_SHARE;

	if (!p->bytes || needed >= p->count)
		return 0;
	if (spare > experts_per_token)
		spare = experts_per_token;
	return spare < p->count - needed ? spare : p->count - needed;
}

/* ---- What becomes known ---- */

void npu_places_missed(struct npu_places *p, uint32_t expert)
{
	p->uses[expert].missed = p->step;
	if (!(p->observed > 0))
		p->uses[expert].last = p->step;
}

void npu_places_guess(struct npu_places *p, uint32_t expert)
{
	uint32_t layer = expert / p->experts;

	p->uses[expert].guessed = p->step;
	if (layer)
		npu_places_at(p, layer - 1);
}

void npu_places_used(struct npu_places *p, uint32_t expert)
{
	struct npu_use *use = &p->uses[expert];

	if (use->used == p->step)
		return;
	use->used = p->step;
	use->before = use->last;
	use->last = p->step;
}

void npu_places_at(struct npu_places *p, uint32_t layer)
{
	p->at = layer > p->at ? layer : p->at;
}

static void learn(struct npu_places *p, struct npu_use *use)
{
	bool used = use->used == p->step;
	uint64_t last = used ? use->before : use->last;
	uint32_t age = age_index(p->step - last);

	p->foretold[age] += share(p, use);
	p->were[age] += used;
	use->often = (use->often + used) * (1 - 1 / MEMORY_STEPS);
}

void npu_places_learn(struct npu_places *p)
{
	uint32_t k;

	for (k = 0; k < NPU_PLACES_AGES; k++) {
		p->were[k] *= 1 - 1 / MEMORY_STEPS;
		p->foretold[k] *= 1 - 1 / MEMORY_STEPS;
	}
	for (k = 0; k < p->layers * p->experts; k++)
		learn(p, &p->uses[k]);
	p->observed = (p->observed + 1) * (1 - 1 / MEMORY_STEPS);
}
