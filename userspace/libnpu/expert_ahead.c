// SPDX-License-Identifier: MIT
/*
 * Experts that the device expects to need, and that are read before it does.
 */
#include <stdlib.h>

#include "experts_priv.h"

/* Only into a place that is free: see expert_room.c. */
static void read_ahead(struct npu_experts *e, uint32_t k)
{
	if (npu_experts_there(e, k) || e->list[k].low)
		return;
	atomic_fetch_add(&e->figures.hints, 1);
	if (e->places.uses[k].coming ||
	    npu_places_take_free(&e->places, k) == NPU_NOWHERE)
		return;
	atomic_fetch_add(&e->figures.prefetches, 1);
	e->list[k].ahead = e->places.step;
	npu_experts_read(e, k, false);
}

void npu_experts_hint(struct npu_experts *e,
		      const struct drm_m6npu_event_expert_fault *event)
{
	uint32_t bit, expert;

	if (event->job != e->job || event->layer >= e->layers || !e->hints)
		return;
	/* Guesses are of the next layer, and come before this one's experts. */
	npu_experts_pass(e, event->layer ? event->layer - 1 : 0);
	for (bit = 0; bit < 64 && event->expert_base < e->experts; bit++) {
		expert = event->expert_base + bit;
		if (!(event->mask >> bit & 1) || expert >= e->experts)
			continue;
		expert += event->layer * e->experts;
		npu_places_guess(&e->places, expert);
		read_ahead(e, expert);
	}
}

bool npu_experts_want_hints(const struct npu_experts *e)
{
	return e->hints && (!e->places.bytes || e->places.free_count);
}

uint32_t npu_experts_threshold(const struct npu_experts *e)
{
	return npu_threshold_permille(&e->threshold);
}

/* ---- What it was good for ---- */

/* A guess that a lower threshold would have let through. */
static bool let_down(const struct npu_experts *e, float chance)
{
	return chance * 1000 >= e->threshold.low &&
	       chance * 1000 < e->threshold.permille;
}

/* Experts that the step waited for, each once, though they had been guessed. */
static uint32_t count_missed(const struct npu_experts *e)
{
	bool *seen = calloc(npu_experts_total(e), sizeof(*seen));
	uint32_t layer, n, k, missed = 0;
	const float *chances;

	for (layer = 0; layer < e->layers && seen; layer++) {
		const int32_t *ids =
			npu_routed_guesses(&e->routed, layer, &chances);
		uint32_t end = ids ? e->routed.rows * e->routed.guesses : 0;

		for (n = 0; n < end; n++) {
			if ((uint32_t)ids[n] >= e->experts ||
			    !let_down(e, chances[n]))
				continue;
			k = layer * e->experts + (uint32_t)ids[n];
			missed += !seen[k] &&
				  e->places.uses[k].missed == e->places.step;
			seen[k] = true;
		}
	}
	free(seen);
	return missed;
}

static uint32_t count_wasted(const struct npu_experts *e)
{
	uint32_t k, wasted = 0;

	for (k = 0; k < npu_experts_total(e); k++)
		wasted += e->list[k].ahead == e->places.step;
	return wasted;
}

void npu_experts_adapt(struct npu_experts *e)
{
	if (!e->hints || e->threshold.low == e->threshold.high)
		return;
	npu_threshold_step(&e->threshold, count_wasted(e), count_missed(e));
	atomic_store(&e->figures.threshold,
		     npu_threshold_permille(&e->threshold));
}
