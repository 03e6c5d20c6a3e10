/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_GEM_H
#define M6NPU_GEM_H

#include <linux/list.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include <drm/drm_gem.h>
#include <drm/drm_mm.h>

#include "m6npu_pool.h"

struct m6npu_vm;

/**
 * struct m6npu_bo - a buffer
 *
 * Its place in the pool may change while it lives, its device address not.
 */
struct m6npu_bo {
	/** @base: the GEM object; @base.resv is &m6npu_vm.resv */
	struct drm_gem_object base;
	/** @vm: address space it is mapped in, referenced */
	struct m6npu_vm *vm;
	/** @pool: pool it is in, referenced */
	struct m6npu_pool *pool;
	/** @block: where in the pool; changes under the reservation */
	struct m6npu_block block;
	/** @va: device addresses */
	struct drm_mm_node va;
	/** @flags: DRM_M6NPU_BO_*; DRM_M6NPU_BO_SEALED under the reservation */
	u32 flags;
	/** @mapped: the device can reach it; changes at its birth and end only */
	bool mapped;
	/** @dying: in &m6npu_vm.dying once nothing but jobs needs it */
	struct list_head dying;
};

static inline struct m6npu_bo *to_m6npu_bo(struct drm_gem_object *obj)
{
	return container_of(obj, struct m6npu_bo, base);
}

/* A buffer of the file's own address space, or an error. Put it. */
struct m6npu_bo *m6npu_bo_lookup(struct drm_file *file, u32 handle);

void m6npu_bo_sync_device(struct m6npu_bo *bo, u64 offset, u64 size);

/* Work function of &m6npu_vm.reap_work. */
void m6npu_bo_reap(struct work_struct *work);

int m6npu_bo_create_ioctl(struct drm_device *drm, void *data,
			  struct drm_file *file);
int m6npu_bo_info_ioctl(struct drm_device *drm, void *data,
			struct drm_file *file);
int m6npu_bo_sync_ioctl(struct drm_device *drm, void *data,
			struct drm_file *file);

/* m6npu_cmdlist.c */
int m6npu_cmdlist_seal_ioctl(struct drm_device *drm, void *data,
			     struct drm_file *file);
/*
 * The sealed buffer @handle, referenced, if commands [@offset, @offset +
 * @count * 64) are in it; *@addr is the device address of the first.
 */
struct drm_gem_object *m6npu_cmdlist_get(struct drm_file *file, u32 handle,
					 u64 offset, u32 count, u64 *addr);

#endif
