// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>

#include "error.h"
#include "residency_priv.h"

static int load_all(struct residency *r)
{
	uint32_t k;
	int ret = 0;

	for (k = 0; k < r->count && !ret; k++) {
		if (npu_places_take_free(&r->places, k) == NPU_NOWHERE)
			break;
		ret = residency_fill(r, k);
		if (!ret)
			residency_bind(r, k);
	}
	return ret;
}

static int take_places(struct residency *r)
{
	const struct npu_runtime *runtime = r->runtime;
	struct npu_places_request request = {
		.layers = runtime->expert_layers,
		.experts = runtime->experts,
		.experts_per_token = runtime->experts_per_token,
		.count = r->options.places ? r->options.places : r->count,
		/* Where all have room each has its own. */
		.bytes = r->options.places ? r->place_bytes : 0,
	};
	uint16_t *permille = calloc(r->count, sizeof(*permille));
	uint32_t k;
	int ret;

	if (!permille)
		return npu_fail_memory();
	for (k = 0; k < r->count; k++)
		permille[k] = RESIDENCY_PERMILLE;
	request.permille = r->options.permille ? r->options.permille :
						 permille;
	ret = npu_places_init(&r->places, &request);
	free(permille);
	if (ret)
		return ret;
	for (k = 0; k < r->options.pinned; k++)
		r->places.uses[(uint64_t)k * r->count /
			       r->options.pinned].pinned = true;
	return board_alloc(r->board, request.count * r->place_bytes, false,
			   &r->memory);
}

static int take_lists(struct residency *r)
{
	r->missing = calloc(r->count, sizeof(*r->missing));
	r->ahead = calloc(r->count, sizeof(*r->ahead));
	r->counted = calloc(r->count, sizeof(*r->counted));
	r->noted = calloc(r->count, sizeof(*r->noted));
	r->uses = calloc(r->count, sizeof(*r->uses));
	if (!r->missing || !r->ahead || !r->counted || !r->noted || !r->uses)
		return npu_fail_memory();
	npu_threshold_init(&r->threshold, r->options.prefetch_permille,
			   r->options.prefetch_low, r->options.prefetch_high);
	return storage_init(&r->storage, r->options.storage_mb_s, r->count);
}

static int set_up(struct residency *r)
{
	int ret;

	if (r->options.low_every && !r->runtime->low_expert_bytes)
		return npu_fail(-ENOTSUP,
				"the model has no experts of lower precision");
	ret = take_lists(r);
	if (!ret)
		ret = take_places(r);
	if (!ret)
		ret = board_expert_table(r->board, r->runtime->expert_layers,
					 r->runtime->experts);
	if (!ret && !r->options.on_demand)
		ret = load_all(r);
	return ret;
}

int residency_create(const struct residency_setup *setup,
		     struct residency **result)
{
	const struct npu_runtime *runtime =
		&npu_file_header(setup->file)->runtime;
	struct residency *r = calloc(1, sizeof(*r));
	int ret;

	if (!r)
		return npu_fail_memory();
	*r = (struct residency){
		.board = setup->board,
		.file = setup->file,
		.runtime = runtime,
		.io = setup->io,
		.options = setup->options,
		.dry = setup->dry,
		.count = runtime->expert_layers * runtime->experts,
		.random = setup->options.seed + 1,
		.place_bytes = (runtime->expert_bytes +
				M6NPU_EXPERT_ALIGN - 1) /
			       M6NPU_EXPERT_ALIGN * M6NPU_EXPERT_ALIGN,
	};
	ret = set_up(r);
	if (ret) {
		residency_destroy(r);
		return ret;
	}
	*result = r;
	return 0;
}

void residency_destroy(struct residency *r)
{
	if (!r)
		return;
	npu_places_clear(&r->places);
	storage_clear(&r->storage);
	free(r->missing);
	free(r->ahead);
	free(r->counted);
	free(r->noted);
	free(r->uses);
	free(r);
}

uint32_t residency_threshold(const struct residency *r)
{
	return npu_threshold_permille(&r->threshold);
}

struct residency_stats residency_stats(const struct residency *r)
{
	struct residency_stats stats = r->stats;

	stats.bytes_read = r->storage.bytes;
	return stats;
}

const uint64_t *residency_uses(const struct residency *r)
{
	return r->uses;
}
