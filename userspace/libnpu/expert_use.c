// SPDX-License-Identifier: MIT
/*
 * Who worked on which tokens: the router leaves that in IO, layer by layer. While
 * a job waits it is known up to the layer that waits.
 */
#include "experts_priv.h"

static void used(struct npu_experts *e, uint32_t k)
{
	npu_places_used(&e->places, k);
	if (!e->list[k].ahead)
		return;
	e->list[k].ahead = 0;
	atomic_fetch_add(&e->figures.prefetches_used, 1);
}

/* Those of the layer that waits are needed by its command: they stay. */
static void know_layer(struct npu_experts *e, uint32_t layer, bool hold)
{
	const int32_t *ids = npu_routed_ids(&e->routed, layer);
	uint32_t n, k, end = ids ? e->routed.rows * e->routed.top : 0;

	for (n = 0; n < end; n++) {
		if ((uint32_t)ids[n] >= e->experts)
			continue;
		k = layer * e->experts + (uint32_t)ids[n];
		used(e, k);
		if (hold)
			npu_places_hold(&e->places, k);
	}
}

void npu_experts_know(struct npu_experts *e, uint32_t end)
{
	if (!e->routed.ids_offset)
		return;
	for (; e->known < end; e->known++)
		know_layer(e, e->known, e->known + 1 == end);
	npu_places_at(&e->places, end);
}

static void count_tokens(struct npu_experts *e)
{
	uint32_t layer, n;

	for (layer = 0; layer < e->layers; layer++) {
		const int32_t *ids = npu_routed_ids(&e->routed, layer);
		uint32_t end = ids ? e->routed.rows * e->routed.top : 0;

		for (n = 0; n < end; n++)
			if ((uint32_t)ids[n] < e->experts)
				atomic_fetch_add_explicit(
					&e->list[layer * e->experts +
						 (uint32_t)ids[n]].uses, 1,
					memory_order_relaxed);
	}
}

static void count_hits(struct npu_experts *e)
{
	const struct npu_places *p = &e->places;
	uint32_t k, uses = 0, hits = 0;

	for (k = 0; k < npu_experts_total(e); k++) {
		if (p->uses[k].used != p->step)
			continue;
		uses++;
		hits += p->uses[k].missed != p->step;
	}
	atomic_fetch_add(&e->figures.uses, uses);
	atomic_fetch_add(&e->figures.hits, hits);
}

void npu_experts_end(struct npu_experts *e)
{
	if (!e->layers || !e->routed.ids_offset)
		return;
	npu_experts_know(e, e->layers);
	count_tokens(e);
	count_hits(e);
	npu_experts_adapt(e);
	npu_places_learn(&e->places);
}
