// SPDX-License-Identifier: MIT
#include "residency_priv.h"

static void count_use(struct residency *r, uint32_t k)
{
	r->uses[k]++;
	npu_places_used(&r->places, k);
	if (r->counted[k] == r->places.step)
		return;
	r->counted[k] = r->places.step;
	r->stats.uses++;
	r->stats.ahead_used += r->ahead[k] != 0;
	r->ahead[k] = 0;
}

/* Those of the layer that waits are needed by its command: they stay. */
static void know_layer(struct residency *r, uint32_t layer, bool hold)
{
	uint32_t per_token = r->runtime->experts_per_token, i, k;
	const int32_t *ids = r->io.routed + (uint64_t)layer *
			     r->runtime->max_tile * per_token;

	for (i = 0; i < r->tokens * per_token; i++) {
		k = layer * r->runtime->experts + (uint32_t)ids[i];
		count_use(r, k);
		if (hold)
			npu_places_hold(&r->places, k);
	}
}

void residency_know(struct residency *r, uint32_t end)
{
	if (!r->io.routed)
		return;
	for (; r->known < end; r->known++)
		know_layer(r, r->known, r->known + 1 == end);
	npu_places_at(&r->places, end);
}

/* Experts that were waited for although they had been guessed, each once. */
static uint32_t count_missed(struct residency *r)
{
	uint32_t guesses = r->runtime->guesses, missed = 0, layer, i, k;
	uint64_t at;

	for (layer = 1; layer < r->runtime->expert_layers; layer++)
		for (i = 0; i < r->tokens * guesses; i++) {
			at = (uint64_t)layer * r->runtime->max_tile * guesses +
			     i;
			k = layer * r->runtime->experts +
			    (uint32_t)r->io.guess_ids[at];
			if (r->places.uses[k].missed != r->places.step ||
			    r->noted[k] == r->places.step ||
			    r->io.guess_chances[at] * 1000 >=
				    r->threshold.permille)
				continue;
			r->noted[k] = r->places.step;
			missed++;
		}
	return missed;
}

void residency_adapt(struct residency *r)
{
	uint32_t k, wasted = 0;

	if (!r->io.guess_ids || r->threshold.low == r->threshold.high)
		return;
	for (k = 0; k < r->count; k++)
		wasted += r->ahead[k] == r->places.step;
	npu_threshold_step(&r->threshold, wasted, count_missed(r));
}
