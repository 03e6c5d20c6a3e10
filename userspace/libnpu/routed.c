// SPDX-License-Identifier: MIT
/*
 * What a step leaves in IO about its experts. Numbers there are the device's, or
 * those of a step before: whoever reads them checks them.
 */
#include "routed.h"

void npu_routed_init(struct npu_routed *routed, struct npu_span *io,
		     const struct npu_runtime *runtime)
{
	*routed = (struct npu_routed){
		.io = io,
		.ids_offset = runtime->routed_offset,
		.guess_ids_offset = runtime->guess_ids_offset,
		.guess_chances_offset = runtime->guess_chances_offset,
		.top = runtime->experts_per_token,
		.guesses = runtime->guesses,
		.max_rows = runtime->max_tile,
	};
}

/* Elements have four bytes, rows @columns of them. */
static const void *layer_of(const struct npu_routed *r, uint64_t offset,
			    uint32_t columns, uint32_t layer)
{
	uint64_t row_bytes = 4ull * columns;

	offset += layer * r->max_rows * row_bytes;
	if (npu_span_sync_from_device(r->io, offset, r->rows * row_bytes))
		return NULL;
	return r->io->cpu + offset;
}

const int32_t *npu_routed_ids(const struct npu_routed *r, uint32_t layer)
{
	return r->ids_offset ? layer_of(r, r->ids_offset, r->top, layer) : NULL;
}

const int32_t *npu_routed_guesses(const struct npu_routed *r, uint32_t layer,
				  const float **chances)
{
	if (!r->guesses || !layer)
		return NULL;
	*chances = layer_of(r, r->guess_chances_offset, r->guesses, layer);
	if (!*chances)
		return NULL;
	return layer_of(r, r->guess_ids_offset, r->guesses, layer);
}
