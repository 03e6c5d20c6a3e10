// SPDX-License-Identifier: MIT
/*
 * Places for experts, and whose is taken when there is none left.
 *
 * That is the one whose next use is likely to be furthest away, counted in
 * layers: as many as lie between the layer that waits and its own, plus all of
 * them once more for each step that is likely to pass without it. The chance of
 * use comes from how often it was missed while it was not there, as priorities
 * have it before that is known, and again after a while in which nothing was
 * learnt; and it is higher at first, since tokens tend to take what the one before
 * took. Pinned experts go when there are no others.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "places.h"

#define NORMAL_PERMILLE	500.0
/* A guess weighs as much as so many steps. */
#define PRIOR_STEPS	4.0
/* What was learnt in more steps than this fades. */
#define MEMORY_STEPS	256.0
/* So many steps after it was learnt it counts for half. */
#define STALE_STEPS	128.0
#define LEAST_CHANCE	1e-4
/* What was used in the last step is that much likelier to be used again. */
#define RECENT_CHANCE	0.25

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
			.prior = mean * r->permille[k] / NORMAL_PERMILLE,
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
}

void npu_places_wait(struct npu_places *p, uint32_t layer)
{
	if (p->layer == layer)
		return;
	p->layer = layer;
	p->waiter++;
}

void npu_places_hold(struct npu_places *p, uint32_t expert)
{
	p->uses[expert].waiter = p->waiter;
}

static double chance(const struct npu_places *p, const struct npu_use *use)
{
	double age = (double)(p->step - use->since);
	double trust = STALE_STEPS / (STALE_STEPS + age);
	double c = (use->faults * trust + use->prior * PRIOR_STEPS) /
		   (use->absent * trust + PRIOR_STEPS);

	c = c > 1 ? 1 : c < LEAST_CHANCE ? LEAST_CHANCE : c;
	return c + (1 - c) * RECENT_CHANCE / (1 + age);
}

/* Layers until @expert is likely to be used. */
static double distance(const struct npu_places *p, uint32_t expert)
{
	const struct npu_use *use = &p->uses[expert];
	uint32_t layer = expert / p->experts;
	uint32_t ahead = (layer + p->layers - p->layer) % p->layers;
	double c = chance(p, use);

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

		if (x == NPU_NOWHERE || p->uses[x].waiter == p->waiter)
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

uint32_t npu_places_take(struct npu_places *p, uint32_t expert,
			 uint32_t *victim)
{
	uint32_t place;

	*victim = NPU_NOWHERE;
	if (!p->bytes) {
		place = expert;
	} else if (p->free_count) {
		place = p->free[--p->free_count];
	} else {
		*victim = find_victim(p);
		if (*victim == NPU_NOWHERE)
			return NPU_NOWHERE;
		place = p->uses[*victim].place;
		p->uses[*victim].place = NPU_NOWHERE;
		p->uses[*victim].since = p->step;
	}
	settle(p, expert, place);
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
	p->uses[expert].since = p->step;
}

void npu_places_missed(struct npu_places *p, uint32_t expert)
{
	struct npu_use *use = &p->uses[expert];

	use->absent += (double)(p->step - use->since);
	use->faults += 1;
	if (use->absent > MEMORY_STEPS) {
		use->faults /= 2;
		use->absent /= 2;
	}
	use->since = p->step;
}
