// SPDX-License-Identifier: MIT
/*
 * The table of experts that the device looks through: where each one is. A
 * context has one.
 */
#include <errno.h>
#include <inttypes.h>

#include "device.h"
#include "error.h"
#include "experts_priv.h"

static int set_table(struct npu_experts *e, uint32_t layers, uint32_t experts)
{
	struct drm_m6npu_expert_table arg = {
		.layers = layers,
		.experts = experts,
	};

	return npu_device_ioctl(e->device, DRM_IOCTL_M6NPU_EXPERT_TABLE, &arg);
}

int npu_experts_take_table(struct npu_experts *e)
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

void npu_experts_give_table(struct npu_experts *e)
{
	if (!e->table)
		return;
	pthread_mutex_lock(&e->device->lock);
	set_table(e, 0, 0);
	e->device->experts = NULL;
	pthread_mutex_unlock(&e->device->lock);
	e->table = false;
}

/* ---- Binding ---- */

static struct drm_m6npu_expert *add(struct npu_experts *e, uint32_t k,
				    uint16_t state)
{
	struct drm_m6npu_expert *bind = &e->binds[e->bind_count++];

	*bind = (struct drm_m6npu_expert){
		.layer = (uint16_t)(k / e->experts),
		.expert = (uint16_t)(k % e->experts),
		.state = state,
	};
	return bind;
}

static void add_at(struct npu_experts *e, uint32_t k, uint64_t addr,
		   const struct npu_section *section)
{
	struct drm_m6npu_expert *bind;

	bind = add(e, k, e->places.uses[k].pinned ? DRM_M6NPU_EXPERT_PINNED :
						    DRM_M6NPU_EXPERT_RESIDENT);
	bind->addr = addr;
	bind->size = (uint32_t)section->loaded_bytes;
	bind->priority = e->preload->permille[k];
	/* Of experts themselves, commands name it. */
	bind->type = section->format;
}

void npu_experts_add_present(struct npu_experts *e, uint32_t k)
{
	add_at(e, k, e->span.addr + npu_experts_offset(e, k),
	       npu_file_section(e->file, npu_experts_section(e, k)));
}

void npu_experts_add_low(struct npu_experts *e, uint32_t k)
{
	uint32_t section = npu_file_expert_low(e->file, k / e->experts,
					       k % e->experts);

	add_at(e, k, e->low.addr + e->low_offsets[k],
	       npu_file_section(e->file, section));
}

void npu_experts_add_absent(struct npu_experts *e, uint32_t k)
{
	add(e, k, DRM_M6NPU_EXPERT_ABSENT);
}

static bool in_place(const struct npu_experts *e,
		     const struct drm_m6npu_expert *bind)
{
	return bind->state != DRM_M6NPU_EXPERT_ABSENT &&
	       bind->addr >= e->span.addr &&
	       bind->addr < e->span.addr + e->span.size;
}

static void settle(struct npu_experts *e, const struct drm_m6npu_expert *bind,
		   bool good)
{
	uint32_t k = bind->layer * e->experts + bind->expert;

	if (!in_place(e, bind))
		return;
	if (!good) {
		npu_places_give(&e->places, k);
		return;
	}
	e->places.uses[k].coming = false;
	e->list[k].low = false;
	atomic_fetch_add(&e->figures.resident, 1);
}

int npu_experts_bind(struct npu_experts *e, const char *what)
{
	struct drm_m6npu_expert_bind arg = {
		.entries = (uintptr_t)e->binds,
		.count = e->bind_count,
		.stride = sizeof(*e->binds),
	};
	uint32_t i;
	int ret = 0;

	if (e->bind_count)
		ret = npu_device_ioctl(e->device, DRM_IOCTL_M6NPU_EXPERT_BIND,
				       &arg);
	for (i = 0; i < e->bind_count; i++)
		settle(e, &e->binds[i], !ret);
	e->bind_count = 0;
	return ret ? npu_device_fail(e->device, ret, what) : 0;
}
