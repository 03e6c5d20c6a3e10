// SPDX-License-Identifier: MIT
/*
 * Experts: read from the file into their place, then bound in the context's
 * table, which the device looks through when a job needs them.
 *
 * Each expert has a place of its own in one span, so bringing one in never
 * waits for another to leave. A version that evicts changes place() and, in
 * bring_in(), what happens when there is no free one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "error.h"
#include "experts.h"
#include "pool.h"

static void place(struct npu_experts *e, const uint64_t *offsets)
{
	uint32_t layer, expert, k = 0;

	for (layer = 0; layer < e->layers; layer++) {
		for (expert = 0; expert < e->experts; expert++, k++) {
			uint32_t i = npu_file_expert(e->file, layer, expert);

			e->all[k] = (struct npu_expert){
				.offset = offsets[k],
				.section = i,
				.size = (uint32_t)npu_file_section(
					e->file, i)->loaded_bytes,
				.permille = e->preload->permille[k],
			};
		}
	}
}

/* At most half of the cache, so that the other experts still have some. */
static void pin(struct npu_experts *e)
{
	uint32_t k, room = e->device->router_entries / 2;

	for (k = 0; k < e->layers * e->experts && k < room; k++)
		if (e->all[e->order[k]].permille >= NPU_PRELOAD_PIN_PERMILLE)
			e->all[e->order[k]].pinned = true;
}

static int arrange(struct npu_experts *e)
{
	uint64_t *offsets, bytes;
	size_t n = (size_t)e->layers * e->experts;

	e->all = calloc(n, sizeof(*e->all));
	e->binds = calloc(DRM_M6NPU_MAX_BINDS, sizeof(*e->binds));
	e->order = npu_preload_order(e->preload);
	offsets = npu_layout_experts(e->file, &bytes);
	if (!e->all || !e->binds || !e->order || !offsets) {
		free(offsets);
		return npu_fail_memory();
	}
	place(e, offsets);
	free(offsets);
	pin(e);
	return 0;
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
	ret = arrange(e);
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

void npu_experts_clear(struct npu_experts *e)
{
	if (e->table) {
		pthread_mutex_lock(&e->device->lock);
		set_table(e, 0, 0);
		e->device->experts = NULL;
		pthread_mutex_unlock(&e->device->lock);
	}
	npu_span_clear(&e->span);
	free(e->all);
	free(e->order);
	free(e->binds);
	memset(e, 0, sizeof(*e));
}

static void forget_binds(struct npu_experts *e)
{
	uint32_t i;

	for (i = 0; i < e->bind_count; i++)
		e->all[e->binds[i].layer * e->experts +
		       e->binds[i].expert].resident = false;
	e->bind_count = 0;
}

static int bind_all(struct npu_experts *e)
{
	struct drm_m6npu_expert_bind arg = {
		.entries = (uintptr_t)e->binds,
		.count = e->bind_count,
		.stride = sizeof(*e->binds),
	};
	int ret;

	if (!e->bind_count)
		return 0;
	ret = npu_device_ioctl(e->device, DRM_IOCTL_M6NPU_EXPERT_BIND, &arg);
	if (ret) {
		forget_binds(e);
		return npu_device_fail(e->device, ret, "cannot bind experts");
	}
	atomic_fetch_add(&e->resident, e->bind_count);
	e->bind_count = 0;
	return 0;
}

static int bring_in(struct npu_experts *e, struct npu_expert *x)
{
	uint32_t k = (uint32_t)(x - e->all);
	int ret;

	if (x->resident)
		return 0;
	if (e->bind_count == DRM_M6NPU_MAX_BINDS) {
		ret = bind_all(e);
		if (ret)
			return ret;
	}
	ret = npu_file_read_section(e->file, x->section,
				    e->span.cpu + x->offset, x->size);
	if (!ret)
		ret = npu_span_sync_to_device(&e->span, x->offset, x->size);
	if (ret)
		return ret;
	e->binds[e->bind_count++] = (struct drm_m6npu_expert){
		.layer = (uint16_t)(k / e->experts),
		.expert = (uint16_t)(k % e->experts),
		.state = x->pinned ? DRM_M6NPU_EXPERT_PINNED :
				     DRM_M6NPU_EXPERT_RESIDENT,
		.addr = e->span.addr + x->offset,
		.size = x->size,
		.priority = x->permille,
	};
	x->resident = true;
	return 0;
}

void npu_experts_total(const struct npu_experts *e, bool named_only,
		       uint32_t *count, uint64_t *bytes)
{
	uint32_t k;

	*count = 0;
	*bytes = 0;
	for (k = 0; k < e->layers * e->experts; k++) {
		if (named_only && !e->preload->named[k])
			continue;
		*count += 1;
		*bytes += e->all[k].size;
	}
}

int npu_experts_load(struct npu_experts *e, bool named_only,
		     int (*each)(void *user, uint64_t bytes), void *user)
{
	uint32_t n;
	int ret;

	for (n = 0; n < e->layers * e->experts; n++) {
		struct npu_expert *x = &e->all[e->order[n]];

		if (named_only && !e->preload->named[e->order[n]])
			continue;
		ret = bring_in(e, x);
		if (!ret)
			ret = each(user, x->size);
		if (ret)
			return ret;
	}
	return bind_all(e);
}

/* Reading of all that a fault names begins before the first is decoded. */
static void prefetch(const struct npu_experts *e, const struct npu_expert *x)
{
	if (!x->resident)
		npu_file_prefetch(e->file, x->section);
}

int npu_experts_fault(struct npu_experts *e,
		      const struct drm_m6npu_event_expert_fault *event)
{
	unsigned int bit;
	int ret = 0;

	if (event->layer >= e->layers)
		return npu_fail(-EIO, "the device asks for an expert of layer %"
				PRIu32 ", which the model does not have",
				event->layer);
	for (bit = 0; bit < 64; bit++) {
		uint32_t expert = event->expert_base + bit;

		if (event->mask >> bit & 1 && expert < e->experts)
			prefetch(e, &e->all[event->layer * e->experts +
					    expert]);
	}
	for (bit = 0; bit < 64 && !ret; bit++) {
		uint32_t expert = event->expert_base + bit;

		if (event->mask >> bit & 1 && expert < e->experts)
			ret = bring_in(e, &e->all[event->layer * e->experts +
						  expert]);
	}
	/* Also after an error: what is there lets the job get further. */
	if (!ret)
		return bind_all(e);
	bind_all(e);
	return ret;
}
