// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Command lists
 *
 * The driver does not look into command lists: the device checks every operand
 * against its region, and every region against the page tables. What it does
 * rely on is that a list does not change while it is in use, so that it may
 * decode it once and keep the result.
 *
 * So a list is a buffer that was sealed. Its CPU mappings are zapped under the
 * reservation, and page faults, which take that too, find the seal. The device
 * loses write access. From then on nobody can change it; its memory only gets
 * new contents after it was freed, which no job outlives.
 */

#include <linux/dma-resv.h>
#include <linux/overflow.h>

#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_print.h>
#include <drm/drm_vma_manager.h>
#include <drm/m6npu_accel.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_gem.h"
#include "m6npu_mmu.h"

static void cmdlist_seal(struct m6npu_bo *bo)
{
	struct drm_device *drm = bo->base.dev;

	WRITE_ONCE(bo->flags, bo->flags | DRM_M6NPU_BO_SEALED);
	drm_vma_node_unmap(&bo->base.vma_node, drm->anon_inode->i_mapping);
	m6npu_bo_sync_device(bo, 0, bo->base.size);
	m6npu_vm_write(bo->vm, bo->va.start, bo->va.size,
		       m6npu_block_dma(&bo->block), false);
	m6npu_vm_invalidate(bo->vm);
}

static int cmdlist_check_seal(const struct m6npu_bo *bo)
{
	/* Others could go on writing to it. */
	if (bo->flags & (DRM_M6NPU_BO_EXPORTED | DRM_M6NPU_BO_IMPORTED))
		return -EPERM;
	if (!m6npu_vm_is_idle(bo->vm) || READ_ONCE(bo->windows))
		return -EBUSY;
	return 0;
}

static int cmdlist_try_seal(struct m6npu_bo *bo)
{
	int err;

	err = dma_resv_lock_interruptible(bo->base.resv, NULL);
	if (err)
		return err;
	if (bo->flags & DRM_M6NPU_BO_SEALED)
		goto unlock;
	err = cmdlist_check_seal(bo);
	if (!err)
		err = m6npu_bo_use_locked(bo, 0, bo->base.size);
	if (!err)
		cmdlist_seal(bo);
unlock:
	dma_resv_unlock(bo->base.resv);
	return err;
}

int m6npu_cmdlist_seal_ioctl(struct drm_device *drm, void *data,
			     struct drm_file *file)
{
	struct drm_m6npu_cmdlist_seal *args = data;
	struct m6npu_bo *bo;
	int err, idx;

	if (args->pad)
		return -EINVAL;
	bo = m6npu_bo_lookup(file, args->handle);
	if (IS_ERR(bo))
		return PTR_ERR(bo);
	err = -ENODEV;
	if (drm_dev_enter(drm, &idx)) {
		err = cmdlist_try_seal(bo);
		drm_dev_exit(idx);
	}
	drm_gem_object_put(&bo->base);
	return err;
}

static int cmdlist_check(const struct m6npu_bo *bo, u64 offset, u32 count)
{
	u64 end;

	if (!(READ_ONCE(bo->flags) & DRM_M6NPU_BO_SEALED))
		return -EINVAL;
	if (!count || count > M6NPU_MAX_COMMANDS ||
	    !IS_ALIGNED(offset, sizeof(struct m6npu_cmd)))
		return -EINVAL;
	if (check_add_overflow(offset,
			       (u64)count * sizeof(struct m6npu_cmd),
			       &end) ||
	    end > bo->base.size)
		return -EINVAL;
	return 0;
}

struct drm_gem_object *m6npu_cmdlist_get(struct drm_file *file, u32 handle,
					 u64 offset, u32 count, u64 *addr)
{
	struct m6npu_bo *bo;
	int err;

	bo = m6npu_bo_lookup(file, handle);
	if (IS_ERR(bo))
		return ERR_CAST(bo);
	err = cmdlist_check(bo, offset, count);
	if (err) {
		drm_dbg(bo->base.dev,
			"buffer %u is no list of %u commands at %#llx\n",
			handle, count, offset);
		drm_gem_object_put(&bo->base);
		return ERR_PTR(err);
	}
	*addr = bo->va.start + offset;
	return &bo->base;
}
