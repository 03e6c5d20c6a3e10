// SPDX-License-Identifier: MIT
/*
 * Who has to go when there is no place left: rules one by one, then misses on
 * made-up traces, beside first-in-first-out and least-recently-used.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "places.h"

#define LAYERS	4
#define EXPERTS	12
#define TOP	2
#define PLACE	4096

static void start(struct npu_places *p, uint32_t count, const double *chances)
{
	static uint16_t permille[LAYERS * EXPERTS];
	const struct npu_places_request request = {
		.layers = LAYERS,
		.experts = EXPERTS,
		.experts_per_token = TOP,
		.count = count,
		.bytes = PLACE,
		.permille = permille,
		.chances = chances,
	};
	uint32_t k;

	for (k = 0; k < LAYERS * EXPERTS; k++)
		permille[k] = 500;
	if (npu_places_init(p, &request))
		exit(1);
}

static void init_places(struct npu_places *p, uint32_t count)
{
	start(p, count, NULL);
}

/* Makes the command of @layer that waits take places for @count experts. */
static uint32_t enter(struct npu_places *p, uint32_t layer, uint32_t first,
		      uint32_t count)
{
	uint32_t k, victim = NPU_NOWHERE;

	npu_places_wait(p, layer);
	for (k = 0; k < count; k++) {
		npu_places_missed(p, layer * EXPERTS + first + k);
		if (npu_places_take(p, layer * EXPERTS + first + k, &victim) ==
		    NPU_NOWHERE)
			return NPU_NOWHERE;
	}
	return victim;
}

static void test_layers(void)
{
	uint32_t at, layer, victim;
	struct npu_places p;
	bool good = true;

	for (at = 0; at < LAYERS; at++) {
		init_places(&p, LAYERS * 2);
		npu_places_begin(&p);
		for (layer = 0; layer < LAYERS; layer++)
			enter(&p, layer, 0, 2);
		npu_places_begin(&p);
		victim = enter(&p, at, 5, 1);
		good &= victim / EXPERTS == (at + LAYERS - 1) % LAYERS;
		npu_places_clear(&p);
	}
	ok(good, "of equals, the layer just done goes first");
}

static void test_pins(void)
{
	struct npu_places p;
	uint32_t k, victim, pinned = 0;

	init_places(&p, 4);
	for (k = 0; k < 3; k++)
		p.uses[k].pinned = true;
	npu_places_begin(&p);
	enter(&p, 0, 0, 4);
	for (k = 1; k < 9; k++) {
		npu_places_begin(&p);
		victim = enter(&p, 1 + k % 3, k, 1);
		pinned += p.uses[victim].pinned;
	}
	ok(!pinned, "pinned ones stay as long as there are others");
	npu_places_begin(&p);
	victim = enter(&p, 3, 9, 2);
	ok(victim < 3, "and go when there are none");
	npu_places_clear(&p);
}

/* A step that used the experts of @mask, of layer 0. */
static void use(struct npu_places *p, uint64_t mask)
{
	uint32_t k;

	npu_places_begin(p);
	for (k = 0; k < EXPERTS; k++)
		if (mask >> k & 1)
			npu_places_used(p, k);
	npu_places_learn(p);
}

static void test_habits(void)
{
	struct npu_places p;
	uint32_t k, victim;

	init_places(&p, 3);
	npu_places_begin(&p);
	enter(&p, 0, 0, 3);
	for (k = 0; k < 60; k++)
		use(&p, k % 6 ? 1 : 6);
	use(&p, 6);
	npu_places_begin(&p);
	victim = enter(&p, 0, 5, 1);
	ok(victim == 1 || victim == 2, "what is often used stays (%u goes)",
	   victim);
	npu_places_clear(&p);
}

static void test_recency(void)
{
	struct npu_places p;
	uint32_t k;

	init_places(&p, 3);
	npu_places_begin(&p);
	enter(&p, 0, 0, 3);
	for (k = 0; k < 3; k++)
		use(&p, 2);
	for (k = 0; k < 3; k++)
		use(&p, 5);
	npu_places_begin(&p);
	ok(enter(&p, 0, 5, 1) == 1,
	   "of those used as often, what was used long ago goes first");
	npu_places_clear(&p);
	/* A file that does not tell uses: misses are all there is. */
	init_places(&p, 3);
	for (k = 0; k < 3; k++) {
		npu_places_begin(&p);
		enter(&p, 0, (k + 1) % 3, 1);
	}
	npu_places_begin(&p);
	ok(enter(&p, 0, 5, 1) == 1, "with misses alone as well");
	npu_places_clear(&p);
}

static void test_priors(void)
{
	static double chances[LAYERS * EXPERTS];
	struct npu_places p;
	uint32_t k;

	init_places(&p, 3);
	for (k = 0; k < 3; k++)
		p.uses[k].prior *= k == 2 ? 0.2 : 1.8;
	npu_places_begin(&p);
	enter(&p, 0, 0, 3);
	npu_places_begin(&p);
	ok(enter(&p, 0, 5, 1) == 2, "what has the lowest priority goes first");
	npu_places_clear(&p);
	for (k = 0; k < LAYERS * EXPERTS; k++)
		chances[k] = k == 1 ? 0.01 : 0.3;
	start(&p, 3, chances);
	npu_places_begin(&p);
	enter(&p, 0, 0, 3);
	npu_places_begin(&p);
	ok(enter(&p, 0, 5, 1) == 1, "or what calibration saw least of");
	npu_places_clear(&p);
}

static void test_guesses(void)
{
	const uint32_t guess = 3 * EXPERTS + 4;
	struct npu_places p;

	init_places(&p, 3);
	npu_places_begin(&p);
	enter(&p, 0, 0, 2);
	npu_places_begin(&p);
	npu_places_guess(&p, guess);
	ok(npu_places_take_free(&p, guess) != NPU_NOWHERE &&
	   npu_places_take_free(&p, 7) == NPU_NOWHERE, "free places, and no others");
	p.uses[guess].coming = true;
	ok(enter(&p, 2, 0, 2) < 2 && enter(&p, 2, 2, 1) == NPU_NOWHERE,
	   "who is coming is not driven out");
	p.uses[guess].coming = false;
	ok(enter(&p, 1, 0, 1) / EXPERTS == 2,
	   "nor who is expected, before its layer has passed");
	npu_places_begin(&p);
	ok(enter(&p, 0, 0, 1) == guess, "but in the step after");
	npu_places_clear(&p);
}

static void test_spare(void)
{
	struct npu_places p;
	uint32_t victim;

	init_places(&p, 40);
	ok(npu_places_spare(&p, 12, 2) == 2 && npu_places_spare(&p, 12, 8) == 5 &&
	   npu_places_spare(&p, 39, 2) == 1 && !npu_places_spare(&p, 40, 2) &&
	   !npu_places_spare(&p, 99, 2), "places to keep free");
	npu_places_clear(&p);
	init_places(&p, 2);
	npu_places_begin(&p);
	enter(&p, 0, 0, 2);
	ok(npu_places_drop(&p) == NPU_NOWHERE, "not those of who waits");
	npu_places_begin(&p);
	victim = npu_places_drop(&p);
	ok(victim < 2 && p.uses[victim].place == NPU_NOWHERE &&
	   p.free_count == 1, "but of the step before");
	npu_places_clear(&p);
}

static void test_same_command(void)
{
	struct npu_places p;
	uint32_t victim;

	init_places(&p, 3);
	npu_places_begin(&p);
	ok(enter(&p, 0, 0, 3) == NPU_NOWHERE && p.free_count == 0 &&
	   npu_places_take(&p, 5, &victim) == NPU_NOWHERE,
	   "nobody goes for the command they came for");
	ok(enter(&p, 1, 0, 1) < EXPERTS, "but for the next");
	npu_places_clear(&p);
}

/* ---- Traces ---- */

#define TRACE_LAYERS	6
#define TRACE_EXPERTS	24
#define TRACE_TOP	4
#define TRACE_STEPS	1500
#define TRACE_ALL	(TRACE_LAYERS * TRACE_EXPERTS)

static uint32_t trace[TRACE_STEPS][TRACE_LAYERS][TRACE_TOP];

static uint64_t state;

static double uniform(void)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (double)(state >> 11) / (double)(1ull << 53);
}

/* By popularity 1 / rank ^ @zipf; who is popular differs by layer. */
static uint32_t draw(double zipf, uint32_t layer)
{
	double sum = 0, at;
	uint32_t k;

	for (k = 0; k < TRACE_EXPERTS; k++)
		sum += pow(k + 1, -zipf);
	at = uniform() * sum;
	for (k = 0; k < TRACE_EXPERTS - 1; k++) {
		at -= pow(k + 1, -zipf);
		if (at < 0)
			break;
	}
	return (k * 7 + layer * 5) % TRACE_EXPERTS;
}

static bool has(const uint32_t *list, uint32_t count, uint32_t x)
{
	while (count)
		if (list[--count] == x)
			return true;
	return false;
}

/* A choice is with the chance @repeat one of the token before. */
static void make_trace(double zipf, double repeat)
{
	uint32_t step, layer, k, x;

	state = 1;
	for (step = 0; step < TRACE_STEPS; step++) {
		for (layer = 0; layer < TRACE_LAYERS; layer++) {
			uint32_t *list = trace[step][layer];

			for (k = 0; k < TRACE_TOP; k++) {
				do {
					x = step && uniform() < repeat ?
						trace[step - 1][layer][(uint32_t)(uniform() * TRACE_TOP)] :
						draw(zipf, layer);
				} while (has(list, k, x));
				list[k] = x;
			}
		}
	}
}

/* Misses of a cache of @count that loses who has the lowest stamp. */
static uint32_t by_stamp(uint32_t count, bool renew)
{
	uint64_t stamps[TRACE_ALL] = { 0 }, now = 0;
	uint32_t misses = 0, there = 0, step, layer, k, x;

	for (step = 0; step < TRACE_STEPS; step++) {
		for (layer = 0; layer < TRACE_LAYERS; layer++) {
			for (k = 0; k < TRACE_TOP; k++) {
				x = layer * TRACE_EXPERTS + trace[step][layer][k];
				now++;
				if (stamps[x]) {
					stamps[x] = renew ? now : stamps[x];
					continue;
				}
				misses++;
				if (there == count) {
					uint32_t oldest = NPU_NOWHERE, i;

					for (i = 0; i < TRACE_ALL; i++)
						if (stamps[i] && (oldest == NPU_NOWHERE || stamps[i] < stamps[oldest]))
							oldest = i;
					stamps[oldest] = 0;
					there--;
				}
				stamps[x] = now;
				there++;
			}
		}
	}
	return misses;
}

static void one_command(struct npu_places *p, uint32_t layer,
			const uint32_t *list, uint32_t *misses)
{
	uint32_t k, victim;

	npu_places_wait(p, layer);
	for (k = 0; k < TRACE_TOP; k++) {
		npu_places_used(p, layer * TRACE_EXPERTS + list[k]);
		npu_places_hold(p, layer * TRACE_EXPERTS + list[k]);
	}
	npu_places_at(p, layer + 1);
	for (k = 0; k < TRACE_TOP; k++) {
		uint32_t x = layer * TRACE_EXPERTS + list[k];

		if (p->uses[x].place != NPU_NOWHERE)
			continue;
		npu_places_missed(p, x);
		npu_places_take(p, x, &victim);
		++*misses;
	}
}

/* What npu_experts does, of files that tell who is used. */
static uint32_t by_places(uint32_t count)
{
	static uint16_t permille[TRACE_ALL];
	const struct npu_places_request request = {
		.layers = TRACE_LAYERS,
		.experts = TRACE_EXPERTS,
		.experts_per_token = TRACE_TOP,
		.count = count,
		.bytes = PLACE,
		.permille = permille,
	};
	uint32_t step, layer, k, misses = 0;
	struct npu_places p;

	for (k = 0; k < TRACE_ALL; k++)
		permille[k] = 500;
	if (npu_places_init(&p, &request))
		exit(1);
	for (step = 0; step < TRACE_STEPS; step++) {
		npu_places_begin(&p);
		for (layer = 0; layer < TRACE_LAYERS; layer++)
			one_command(&p, layer, trace[step][layer], &misses);
		npu_places_learn(&p);
	}
	npu_places_clear(&p);
	return misses;
}

static void test_traces(void)
{
	static const struct {
		double zipf, repeat;
	} kinds[] = {
		{ 1.2, 0 }, { 0.8, 0 }, { 0.8, 0.5 }, { 0, 0.5 }, { 1.2, 0.5 },
		{ 0.8, 0.8 },
	};
	const double all = TRACE_STEPS * TRACE_LAYERS * TRACE_TOP;
	uint32_t i, part, places, ours, lru, fifo;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		make_trace(kinds[i].zipf, kinds[i].repeat);
		for (part = 2; part <= 4; part += 2) {
			places = TRACE_ALL / part;
			ours = by_places(places);
			lru = by_stamp(places, true);
			fifo = by_stamp(places, false);
			ok(ours <= lru && ours <= fifo,
			   "Zipf %.1f, %.0f %% repeated, room for 1/%u: %.1f %% misses, LRU %.1f, FIFO %.1f",
			   kinds[i].zipf, kinds[i].repeat * 100, part,
			   ours * 100 / all, lru * 100 / all, fifo * 100 / all);
		}
	}
}

int main(void)
{
	test_layers();
	test_pins();
	test_habits();
	test_recency();
	test_priors();
	test_guesses();
	test_spare();
	test_same_command();
	test_traces();
	return done();
}
