// SPDX-License-Identifier: MIT
/*
 * Experts: read from the file into a place, then bound in the context's table,
 * which the device looks through when a job needs them.
 *
 * When all places are taken, somebody has to go first. Victims are made absent
 * by one call, in which the driver waits for jobs that may use them; from then
 * on nobody reads their places, and they are overwritten. The job that waits is
 * none of those the driver waits for, and looks everything up again.
 *
 * It may look for one that has just gone: of the experts that its command needs
 * only the missing ones are told. But who came for a command does not go for
 * the same command, and there are places for all that one needs. So each turn
 * gets it further.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.h"
#include "error.h"
#include "experts.h"
#include "pool.h"

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t total(const struct npu_experts *e)
{
	return e->layers * e->experts;
}

static uint32_t section_of(const struct npu_experts *e, uint32_t k)
{
	return npu_file_expert(e->file, k / e->experts, k % e->experts);
}

static const struct npu_section *section(const struct npu_experts *e,
					 uint32_t k)
{
	return npu_file_section(e->file, section_of(e, k));
}

static bool is_there(const struct npu_experts *e, uint32_t k)
{
	return e->places.uses[k].place != NPU_NOWHERE;
}

static uint64_t offset_of(const struct npu_experts *e, uint32_t k)
{
	uint32_t place = e->places.uses[k].place;

	return e->offsets ? e->offsets[place] : place * e->places.bytes;
}

/* ---- Beginning and end ---- */

/* At most half of the cache, so that the other experts still have some. */
static void pin(struct npu_experts *e)
{
	uint32_t n, room = e->device->router_entries / 2;

	for (n = 0; n < total(e) && n < room; n++)
		if (e->preload->permille[e->order[n]] >=
		    NPU_PRELOAD_PIN_PERMILLE)
			e->places.uses[e->order[n]].pinned = true;
}

static int arrange(struct npu_experts *e, const struct npu_layout *layout)
{
	const struct npu_places_request request = {
		.layers = e->layers,
		.experts = e->experts,
		.experts_per_token =
			npu_file_header(e->file)->runtime.experts_per_token,
		.count = layout->places,
		.bytes = layout->place_bytes,
		.permille = e->preload->permille,
	};
	uint64_t bytes;
	int ret;

	ret = npu_places_init(&e->places, &request);
	if (ret)
		return ret;
	e->list = calloc(layout->places, sizeof(*e->list));
	e->coming = calloc(layout->places, sizeof(*e->coming));
	e->victims = calloc(layout->places, sizeof(*e->victims));
	e->binds = calloc(DRM_M6NPU_MAX_BINDS, sizeof(*e->binds));
	e->order = npu_preload_order(e->preload);
	if (!layout->place_bytes) {
		e->offsets = npu_layout_experts(e->file, &bytes);
		if (!e->offsets)
			return npu_fail_memory();
	}
	if (!e->list || !e->coming || !e->victims || !e->binds || !e->order)
		return npu_fail_memory();
	pin(e);
	return npu_shards_create(e->file, &e->shards);
}

static int set_table(struct npu_experts *e, uint32_t layers, uint32_t experts)
{
	struct drm_m6npu_expert_table arg = {
		.layers = layers,
		.experts = experts,
	};

	return npu_device_ioctl(e->device, DRM_IOCTL_M6NPU_EXPERT_TABLE, &arg);
}

static int take_table(struct npu_experts *e)
{
	int ret;

	if (e->layers > DRM_M6NPU_MAX_EXPERT_LAYERS ||
	    e->experts > DRM_M6NPU_MAX_EXPERTS)
		return npu_fail(-ENOTSUP,
				"%" PRIu32 " layers of %" PRIu32 " experts; the device has tables of up to %d by %d",
				e->layers, e->experts,
				DRM_M6NPU_MAX_EXPERT_LAYERS,
				DRM_M6NPU_MAX_EXPERTS);
	pthread_mutex_lock(&e->device->lock);
	if (e->device->experts)
		ret = -EEXIST;
	else
		ret = set_table(e, e->layers, e->experts);
	if (!ret) {
		e->device->experts = e;
		e->table = true;
	}
	pthread_mutex_unlock(&e->device->lock);
	if (ret == -EEXIST)
		return npu_fail(-EBUSY,
				"another model with experts is loaded here; open the device once more for this one");
	if (ret)
		return npu_device_fail(e->device, ret,
				       "cannot set up the expert table");
	return 0;
}

int npu_experts_init(struct npu_experts *e, struct npu_pool *pool,
		     struct npu_file *file, const struct npu_layout *layout,
		     const struct npu_preload *preload)
{
	int ret;

	memset(e, 0, sizeof(*e));
	e->device = pool->device;
	e->file = file;
	e->preload = preload;
	e->layers = preload->layers;
	e->experts = preload->experts;
	if (!e->layers)
		return 0;
	ret = arrange(e, layout);
	if (!ret)
		ret = npu_span_init(&e->span, pool, layout->experts,
				    layout->chunk, NPU_BUFFER_READONLY,
				    layout->experts_windows);
	/* Costs nothing yet, and none has to be refused when it faults. */
	if (!ret)
		ret = npu_span_populate(&e->span, 0, layout->experts);
	if (!ret)
		ret = take_table(e);
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
	if (e->table) {
		pthread_mutex_lock(&e->device->lock);
		set_table(e, 0, 0);
		e->device->experts = NULL;
		pthread_mutex_unlock(&e->device->lock);
	}
	npu_shards_destroy(e->shards);
	npu_span_clear(&e->span);
	npu_places_clear(&e->places);
	free(e->offsets);
	free(e->order);
	free(e->list);
	free(e->coming);
	free(e->victims);
	free(e->binds);
	memset(e, 0, sizeof(*e));
}

/* ---- The device's table ---- */

static void add_bind(struct npu_experts *e, uint32_t k, uint32_t state)
{
	struct drm_m6npu_expert *bind = &e->binds[e->bind_count++];

	*bind = (struct drm_m6npu_expert){
		.layer = (uint16_t)(k / e->experts),
		.expert = (uint16_t)(k % e->experts),
		.state = (uint16_t)state,
	};
	if (state == DRM_M6NPU_EXPERT_ABSENT)
		return;
	bind->addr = e->span.addr + offset_of(e, k);
	bind->size = (uint32_t)section(e, k)->loaded_bytes;
	bind->priority = e->preload->permille[k];
}

/* All or none. */
static int send_binds(struct npu_experts *e, const char *what)
{
	struct drm_m6npu_expert_bind arg = {
		.entries = (uintptr_t)e->binds,
		.count = e->bind_count,
		.stride = sizeof(*e->binds),
	};
	int ret = 0;

	if (e->bind_count)
		ret = npu_device_ioctl(e->device, DRM_IOCTL_M6NPU_EXPERT_BIND,
				       &arg);
	e->bind_count = 0;
	return ret ? npu_device_fail(e->device, ret, what) : 0;
}

/* ---- Making room ---- */

static void untake_all(struct npu_experts *e)
{
	for (; e->count; e->count--)
		npu_places_untake(&e->places, e->coming[e->count - 1],
				  e->victims[e->count - 1]);
}

static int take_place(struct npu_experts *e, uint32_t k)
{
	uint32_t victim;

	if (npu_places_take(&e->places, k, &victim) == NPU_NOWHERE)
		return npu_fail(-ENOSPC,
				"a command needs more experts at once than the expert budget has places for (%" PRIu32 "); give it more",
				e->places.count);
	e->victims[e->count] = victim;
	e->coming[e->count++] = k;
	return 0;
}

/* Nobody reads the places of the victims after this. */
static int drive_out(struct npu_experts *e)
{
	uint32_t n, gone = 0;
	int ret;

	for (n = 0; n < e->count; n++) {
		if (e->victims[n] == NPU_NOWHERE)
			continue;
		add_bind(e, e->victims[n], DRM_M6NPU_EXPERT_ABSENT);
		gone++;
	}
	ret = send_binds(e, "cannot unbind experts");
	if (ret)
		return ret;
	atomic_fetch_add(&e->figures.evictions, gone);
	atomic_fetch_sub(&e->figures.resident, gone);
	return 0;
}

/* ---- Bringing in ---- */

/* What takes part in a callback of npu_shards_read(). */
struct arrival {
	struct npu_experts *experts;
	uint32_t n;			/* of the list */
	int (*each)(void *user, uint64_t bytes);
	void *user;
};

static void note_error(struct npu_experts *e, struct npu_shard *shard)
{
	if (!e->error)
		e->error = npu_shard_fail(shard);
}

static int one_arrived(void *user, struct npu_shard *shard)
{
	struct arrival *a = user;
	struct npu_experts *e = a->experts;
	uint32_t k = e->coming[a->n++];
	const struct npu_section *s = section(e, k);

	if (!shard->error)
		shard->error = npu_span_sync_to_device(&e->span,
						       offset_of(e, k),
						       s->loaded_bytes);
	if (shard->error) {
		note_error(e, shard);
		npu_places_give(&e->places, k);
		e->coming[a->n - 1] = NPU_NOWHERE;
		return 0;
	}
	atomic_fetch_add(&e->figures.loads, 1);
	atomic_fetch_add(&e->figures.bytes_read, s->stored_bytes);
	return a->each ? a->each(a->user, s->loaded_bytes) : 0;
}

static int read_all(struct npu_experts *e,
		    int (*each)(void *user, uint64_t bytes), void *user)
{
	struct arrival arrival = { e, 0, each, user };
	uint32_t n;

	for (n = 0; n < e->count; n++) {
		uint32_t k = e->coming[n];

		e->list[n] = (struct npu_shard){
			.section = section_of(e, k),
			.dst = e->span.cpu + offset_of(e, k),
			.cap = section(e, k)->loaded_bytes,
		};
	}
	e->error = 0;
	return npu_shards_read(e->shards, e->list, e->count, one_arrived,
			       &arrival);
}

static int bind_range(struct npu_experts *e, uint32_t from, uint32_t to)
{
	uint32_t n, bound;
	int ret;

	for (n = from; n < to; n++)
		if (e->coming[n] != NPU_NOWHERE)
			add_bind(e, e->coming[n],
				 e->places.uses[e->coming[n]].pinned ?
					 DRM_M6NPU_EXPERT_PINNED :
					 DRM_M6NPU_EXPERT_RESIDENT);
	bound = e->bind_count;
	ret = send_binds(e, "cannot bind experts");
	if (!ret)
		atomic_fetch_add(&e->figures.resident, bound);
	for (n = from; ret && n < to; n++)
		if (e->coming[n] != NPU_NOWHERE)
			npu_places_give(&e->places, e->coming[n]);
	return ret;
}

static int bind_all(struct npu_experts *e)
{
	uint32_t n, end;
	int ret = 0, error;

	for (n = 0; n < e->count; n = end) {
		end = n + DRM_M6NPU_MAX_BINDS;
		end = end < e->count ? end : e->count;
		error = bind_range(e, n, end);
		ret = ret ? ret : error;
	}
	return ret;
}

/* ---- At load ---- */

uint64_t npu_experts_bytes(const struct npu_experts *e)
{
	uint64_t bytes = 0;
	uint32_t k;

	for (k = 0; k < total(e); k++)
		bytes += section(e, k)->loaded_bytes;
	return bytes;
}

/* The next of the order that is to be there from the start, or the end. */
static uint32_t next_chosen(const struct npu_experts *e, bool named_only,
			    uint32_t n)
{
	while (n < total(e) && named_only && !e->preload->named[e->order[n]])
		n++;
	return n;
}

void npu_experts_chosen(const struct npu_experts *e, bool named_only,
			uint32_t *count, uint64_t *bytes)
{
	uint32_t n = next_chosen(e, named_only, 0);

	*count = 0;
	*bytes = 0;
	for (; n < total(e) && *count < e->places.count;
	     n = next_chosen(e, named_only, n + 1)) {
		*count += 1;
		*bytes += section(e, e->order[n])->loaded_bytes;
	}
}

int npu_experts_load(struct npu_experts *e, bool named_only,
		     int (*each)(void *user, uint64_t bytes), void *user)
{
	uint32_t n = next_chosen(e, named_only, 0);
	int ret = 0;

	e->count = 0;
	for (; n < total(e) && e->count < e->places.count && !ret;
	     n = next_chosen(e, named_only, n + 1))
		ret = take_place(e, e->order[n]);
	if (!ret)
		ret = read_all(e, each, user);
	if (!ret)
		ret = e->error;
	return ret ? ret : bind_all(e);
}

/* ---- While a job waits ---- */

void npu_experts_begin(struct npu_experts *e, uint64_t job)
{
	e->job = job;
	npu_places_begin(&e->places);
}

static bool is_named(const struct npu_experts *e,
		     const struct drm_m6npu_event_expert_fault *event,
		     unsigned int bit)
{
	return event->mask >> bit & 1 && event->expert_base < e->experts &&
	       bit < e->experts - event->expert_base;
}

static int take_missing(struct npu_experts *e,
			const struct drm_m6npu_event_expert_fault *event)
{
	uint32_t first = event->layer * e->experts + event->expert_base;
	unsigned int bit;
	int ret = 0;

	/* Some may have come since the event was sent: they are to stay. */
	for (bit = 0; bit < 64; bit++)
		if (is_named(e, event, bit) && is_there(e, first + bit))
			npu_places_hold(&e->places, first + bit);
	for (bit = 0; bit < 64 && !ret; bit++) {
		if (!is_named(e, event, bit) || is_there(e, first + bit))
			continue;
		npu_places_missed(&e->places, first + bit);
		ret = take_place(e, first + bit);
	}
	return ret;
}

static int bring_in(struct npu_experts *e)
{
	int ret;

	ret = drive_out(e);
	if (ret) {
		untake_all(e);
		return ret;
	}
	read_all(e, NULL, NULL);
	/* Also after an error: what is there need not be read again. */
	ret = bind_all(e);
	return e->error ? e->error : ret;
}

int npu_experts_fault(struct npu_experts *e,
		      const struct drm_m6npu_event_expert_fault *event)
{
	uint64_t start = now_ns();
	int ret;

	/* Of a job that has ended. */
	if (event->job != e->job)
		return 0;
	if (event->layer >= e->layers)
		return npu_fail(-EIO, "the device asks for an expert of layer %"
				PRIu32 ", which the model does not have",
				event->layer);
	npu_places_wait(&e->places, event->layer);
	e->count = 0;
	ret = take_missing(e, event);
	if (ret) {
		untake_all(e);
		return ret;
	}
	if (!e->count)
		return 0;
	atomic_fetch_add(&e->figures.faults, e->count);
	atomic_fetch_add(&e->figures.waits, 1);
	ret = bring_in(e);
	atomic_fetch_add(&e->figures.stall_ns, now_ns() - start);
	return ret;
}
