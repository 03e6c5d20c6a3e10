// SPDX-License-Identifier: MIT
/*
 * Experts: read from the file into a place, then bound in the context's table,
 * which the device looks through when a job needs them. Here is how they begin
 * and end, and the frame of a step; expert_*.c have the rest.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "error.h"
#include "experts_priv.h"
#include "pool.h"

/* Experts that an event of the driver names. */
#define EVENT_EXPERTS	64

/* ---- Beginning and end ---- */

/* At most half of the cache, so that the other experts still have some. */
static void pin(struct npu_experts *e)
{
	uint32_t n, room = e->device->router_entries / 2;

	for (n = 0; n < npu_experts_total(e) && n < room; n++)
		if (e->preload->permille[e->order[n]] >=
		    NPU_PRELOAD_PIN_PERMILLE)
			e->places.uses[e->order[n]].pinned = true;
}

static int init_places(struct npu_experts *e, const struct npu_layout *layout)
{
	const struct npu_places_request request = {
		.layers = e->layers,
		.experts = e->experts,
		.experts_per_token = e->top,
		.count = layout->places,
		.bytes = layout->place_bytes,
		.permille = e->preload->permille,
		.chances = e->preload->chances,
	};
	uint64_t bytes;
	int ret;

	ret = npu_places_init(&e->places, &request);
	if (ret || layout->place_bytes)
		return ret;
	e->offsets = npu_layout_experts(e->file, NPU_SECTION_EXPERT, &bytes);
	return e->offsets ? 0 : npu_fail_memory();
}

static int arrange(struct npu_experts *e, const struct npu_layout *layout)
{
	size_t most = layout->places > EVENT_EXPERTS ? layout->places :
						       EVENT_EXPERTS;
	int ret;

	ret = init_places(e, layout);
	if (ret)
		return ret;
	e->list = calloc(npu_experts_total(e), sizeof(*e->list));
	e->reads = calloc(layout->places, sizeof(*e->reads));
	e->coming = calloc(most, sizeof(*e->coming));
	e->victims = calloc(most, sizeof(*e->victims));
	e->dropped = calloc(most, sizeof(*e->dropped));
	e->binds = calloc(DRM_M6NPU_MAX_BINDS, sizeof(*e->binds));
	e->order = npu_preload_order(e->preload);
	if (!e->list || !e->reads || !e->coming || !e->victims || !e->dropped ||
	    !e->binds || !e->order)
		return npu_fail_memory();
	pin(e);
	return npu_shards_create(e->file, &e->shards);
}

static int take_memory(struct npu_experts *e, struct npu_pool *pool,
		       const struct npu_layout *layout)
{
	int ret;

	ret = npu_span_init(&e->span, pool, layout->experts, layout->chunk,
			    NPU_BUFFER_READONLY, layout->experts_windows);
	/* Costs nothing yet, and none has to be refused when it faults. */
	if (!ret)
		ret = npu_span_populate(&e->span, 0, layout->experts);
	return ret ? ret : npu_experts_init_low(e, pool, layout);
}

static void init_ahead(struct npu_experts *e, const struct npu_layout *layout,
		       const struct npu_experts_options *options)
{
	npu_routed_init(&e->routed, options->io,
			&npu_file_header(e->file)->runtime);
	e->hints = layout->experts_come && e->routed.guesses &&
		   options->prefetch_permille != NPU_PREFETCH_OFF;
	npu_threshold_init(&e->threshold, options->prefetch_permille,
			   options->prefetch_low, options->prefetch_high);
	atomic_store(&e->figures.threshold,
		     npu_threshold_permille(&e->threshold));
}

int npu_experts_init(struct npu_experts *e, struct npu_pool *pool,
		     struct npu_file *file, const struct npu_layout *layout,
		     const struct npu_preload *preload,
		     const struct npu_experts_options *options)
{
	int ret;

	memset(e, 0, sizeof(*e));
	e->device = pool->device;
	e->file = file;
	e->preload = preload;
	e->layers = preload->layers;
	e->experts = preload->experts;
	e->top = npu_file_header(file)->runtime.experts_per_token;
	if (!e->layers)
		return 0;
	init_ahead(e, layout, options);
	ret = arrange(e, layout);
	if (!ret)
		ret = take_memory(e, pool, layout);
	if (!ret)
		ret = npu_experts_take_table(e);
	if (ret)
		npu_experts_clear(e);
	return ret;
}

void npu_experts_close_file(struct npu_experts *e)
{
	npu_span_unmap(&e->span);
	npu_shards_destroy(e->shards);
	e->shards = NULL;
	e->file = NULL;
}

void npu_experts_clear(struct npu_experts *e)
{
	npu_experts_give_table(e);
	/* What is still read goes into the span. */
	npu_shards_destroy(e->shards);
	npu_experts_clear_low(e);
	npu_span_clear(&e->span);
	npu_places_clear(&e->places);
	free(e->list);
	free(e->reads);
	free(e->offsets);
	free(e->order);
	free(e->coming);
	free(e->victims);
	free(e->dropped);
	free(e->binds);
	memset(e, 0, sizeof(*e));
}

/* ---- At load ---- */

static uint64_t loaded_bytes(const struct npu_experts *e, uint32_t k)
{
	return npu_file_section(e->file, npu_experts_section(e, k))
		->loaded_bytes;
}

uint64_t npu_experts_bytes(const struct npu_experts *e)
{
	uint64_t bytes = 0;
	uint32_t k;

	for (k = 0; k < npu_experts_total(e); k++)
		bytes += loaded_bytes(e, k);
	return bytes;
}

/* The next of the order that is to be there from the start, or the end. */
static uint32_t next_chosen(const struct npu_experts *e, bool named_only,
			    uint32_t n)
{
	while (n < npu_experts_total(e) && named_only &&
	       !e->preload->named[e->order[n]])
		n++;
	return n;
}

void npu_experts_chosen(const struct npu_experts *e, bool named_only,
			uint32_t *count, uint64_t *bytes)
{
	uint32_t n = next_chosen(e, named_only, 0);

	*count = 0;
	*bytes = 0;
	for (; n < npu_experts_total(e) && *count < e->places.count;
	     n = next_chosen(e, named_only, n + 1)) {
		*count += 1;
		*bytes += loaded_bytes(e, e->order[n]);
	}
}

/* Takes places for all of them, and has them read. */
static int ask_chosen(struct npu_experts *e, bool named_only)
{
	uint32_t n = next_chosen(e, named_only, 0);
	int ret;

	e->count = 0;
	for (; n < npu_experts_total(e) && e->count < e->places.count;
	     n = next_chosen(e, named_only, n + 1)) {
		ret = npu_experts_take(e, e->order[n]);
		if (ret)
			return ret;
		npu_experts_read(e, e->order[n], true);
	}
	return 0;
}

int npu_experts_load(struct npu_experts *e, bool named_only,
		     int (*each)(void *user, uint64_t bytes), void *user)
{
	uint32_t n;
	int ret;

	ret = npu_experts_load_low(e);
	if (!ret)
		ret = ask_chosen(e, named_only);
	for (n = 0; n < e->count && !ret; n++) {
		ret = npu_experts_await(e, e->coming[n], true);
		if (!ret && e->bind_count == DRM_M6NPU_MAX_BINDS)
			ret = npu_experts_bind(e, "cannot bind experts");
		if (!ret)
			ret = each(user, loaded_bytes(e, e->coming[n]));
	}
	return ret ? ret : npu_experts_bind(e, "cannot bind experts");
}

/* ---- Steps ---- */

void npu_experts_prepare(struct npu_experts *e, uint32_t rows)
{
	if (!e->layers)
		return;
	npu_places_begin(&e->places);
	e->routed.rows = rows;
	e->known = 0;
	e->needed = rows < e->experts / e->top ? rows * e->top : e->experts;
	if (!e->shards)
		return;
	npu_experts_arrived(e);
	npu_experts_ripen(e);
	npu_experts_drop_low(e);
	e->count = 0;
	/* Fails: then nobody is read ahead. */
	npu_experts_drive_out(e);
}

void npu_experts_begin(struct npu_experts *e, uint64_t job)
{
	e->job = job;
}
