// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Windows
 *
 * An address space has 16 windows that map up to 2 GiB of contiguous memory
 * each, and win over its page tables. Here a window shows part of a buffer at
 * the buffer's own device address: the same memory as the page tables do, so
 * that results do not depend on windows, only without walks and TLB misses.
 * Hence one may come and go while jobs run. The buffer must stay where it is as
 * long as it has windows.
 */
#include <linux/dma-resv.h>
#include <linux/overflow.h>
#include <linux/ratelimit.h>

#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_print.h>
#include <drm/m6npu_accel.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_gem.h"
#include "m6npu_mmu.h"

/* Where the device looks. Call it inside drm_dev_enter(). */
static struct m6npu_window *window_entry(struct m6npu_vm *vm, u32 index)
{
	return &vm->m6npu->as_table[vm->asid].window[index];
}

static void window_write(struct m6npu_vm *vm, u32 index,
			 const struct m6npu_bo *bo, u64 offset, u64 size)
{
	struct m6npu_window *entry = window_entry(vm, index);
	u64 flags = M6NPU_PTE_VALID | M6NPU_PTE_READ |
		    (m6npu_bo_is_writable(bo) ? M6NPU_PTE_WRITE : 0);

	entry->va = cpu_to_le64(bo->va.start + offset);
	entry->pa = cpu_to_le64(m6npu_block_dma(&bo->block) + offset);
	entry->size = cpu_to_le64(size);
	dma_wmb();
	WRITE_ONCE(entry->flags, cpu_to_le64(flags));
	m6npu_vm_invalidate(vm);
}

static void window_clear(struct m6npu_vm *vm, u32 index)
{
	int idx;

	/* The table is gone with the device. */
	if (!drm_dev_enter(&vm->m6npu->drm, &idx))
		return;
	WRITE_ONCE(window_entry(vm, index)->flags, 0);
	dma_wmb();
	m6npu_vm_invalidate(vm);
	drm_dev_exit(idx);
}

/* Every window of a buffer that jobs must not reach any more. */
void m6npu_bo_close_windows(struct m6npu_bo *bo)
{
	struct m6npu_vm *vm = bo->vm;
	unsigned int i;

	guard(mutex)(&vm->lock);
	for_each_set_bit(i, &bo->windows, M6NPU_WINDOWS) {
		window_clear(vm, i);
		vm->windows[i].bo = NULL;
	}
	bo->windows = 0;
}

/* A window that is free, if nothing overlaps. */
static int window_find(struct m6npu_vm *vm, u64 start, u64 size, u32 *index)
{
	int err = -ENOSPC;
	u32 i;

	lockdep_assert_held(&vm->lock);
	for (i = M6NPU_WINDOWS; i--;) {
		const struct m6npu_vm_window *window = &vm->windows[i];

		if (!window->bo) {
			*index = i;
			err = 0;
		} else if (start < window->start + window->size &&
			   window->start < start + size) {
			return -EEXIST;
		}
	}
	return err;
}

static int window_open(struct m6npu_bo *bo, u64 offset, u64 size, u32 *index)
{
	struct m6npu_vm *vm = bo->vm;
	int err;

	guard(mutex)(&vm->lock);
	err = window_find(vm, bo->va.start + offset, size, index);
	if (err)
		return err;
	vm->windows[*index] = (struct m6npu_vm_window) {
		.bo = bo, .start = bo->va.start + offset, .size = size,
	};
	bo->windows |= BIT(*index);
	window_write(vm, *index, bo, offset, size);
	return 0;
}

static int region_check_align(const struct m6npu_bo *bo, u64 offset)
{
	static DEFINE_RATELIMIT_STATE(limit, 10 * HZ, 5);

	if (IS_ALIGNED(offset, M6NPU_WINDOW_ALIGN) &&
	    IS_ALIGNED(bo->va.start, M6NPU_WINDOW_ALIGN) &&
	    IS_ALIGNED(m6npu_block_dma(&bo->block), M6NPU_WINDOW_ALIGN))
		return 0;
	if (__ratelimit(&limit))
		drm_warn(bo->base.dev,
			 "PAGE_ALIGNMENT_VIOLATION: no window at offset %#llx of a buffer at device address %#llx: offset, address and memory must be multiples of 256 MiB; create the buffer with that alignment\n",
			 offset, bo->va.start);
	return -EINVAL;
}

/* Fills in the size if it is left to us. */
static int region_check_range(const struct m6npu_bo *bo,
			      struct drm_m6npu_region_map *args)
{
	u64 end;

	if (args->offset >= bo->base.size)
		return -EINVAL;
	if (!args->size)
		args->size = min(bo->base.size - args->offset,
				 M6NPU_WINDOW_MAX_SIZE);
	if (!IS_ALIGNED(args->size, PAGE_SIZE) ||
	    args->size > M6NPU_WINDOW_MAX_SIZE ||
	    check_add_overflow(args->offset, args->size, &end) ||
	    end > bo->base.size)
		return -EINVAL;
	return 0;
}

/* The buffer is where it will stay. */
static int region_map_pinned(struct m6npu_bo *bo,
			     struct drm_m6npu_region_map *args)
{
	int err;

	err = region_check_align(bo, args->offset);
	if (err)
		return err;
	err = m6npu_bo_use(bo, args->offset, args->size);
	if (err)
		return err;
	err = dma_resv_lock_interruptible(bo->base.resv, NULL);
	if (err)
		return err;
	err = window_open(bo, args->offset, args->size, &args->window);
	dma_resv_unlock(bo->base.resv);
	return err;
}

static int region_map(struct m6npu_bo *bo, struct drm_m6npu_region_map *args)
{
	int err, idx;

	if (!bo->pool)
		return -EOPNOTSUPP;
	err = region_check_range(bo, args);
	if (err)
		return err;
	if (!drm_dev_enter(bo->base.dev, &idx))
		return -ENODEV;
	err = dma_resv_lock_interruptible(bo->base.resv, NULL);
	if (err)
		goto exit;
	m6npu_block_pin(bo->pool, &bo->block);
	dma_resv_unlock(bo->base.resv);

	err = region_map_pinned(bo, args);
	if (err)
		m6npu_block_unpin(bo->pool, &bo->block);
exit:
	drm_dev_exit(idx);
	return err;
}

int m6npu_region_map_ioctl(struct drm_device *drm, void *data,
			   struct drm_file *file)
{
	struct drm_m6npu_region_map *args = data;
	struct m6npu_bo *bo;
	int err;

	if (args->flags || args->pad)
		return -EINVAL;
	bo = m6npu_bo_lookup(file, args->handle);
	if (IS_ERR(bo))
		return PTR_ERR(bo);
	err = region_map(bo, args);
	if (err)
		drm_dbg(drm, "no window of %#llx bytes at %#llx of buffer %u: %d\n",
			args->size, args->offset, args->handle, err);
	drm_gem_object_put(&bo->base);
	return err;
}

/* The buffer whose window it was, referenced, or NULL. */
static struct m6npu_bo *window_close(struct m6npu_vm *vm, u32 index)
{
	struct m6npu_bo *bo;

	guard(mutex)(&vm->lock);
	bo = vm->windows[index].bo;
	/* One that is dying closes its windows itself. */
	if (!bo || !kref_get_unless_zero(&bo->base.refcount))
		return NULL;
	window_clear(vm, index);
	vm->windows[index].bo = NULL;
	bo->windows &= ~BIT(index);
	return bo;
}

int m6npu_region_unmap_ioctl(struct drm_device *drm, void *data,
			     struct drm_file *file)
{
	struct drm_m6npu_region_unmap *args = data;
	struct m6npu_vm *vm = to_m6npu_context(file)->vm;
	struct m6npu_bo *bo;

	if (args->pad)
		return -EINVAL;
	if (args->window >= M6NPU_WINDOWS)
		return -ENOENT;
	bo = window_close(vm, args->window);
	if (!bo)
		return -ENOENT;
	m6npu_block_unpin(bo->pool, &bo->block);
	drm_gem_object_put(&bo->base);
	return 0;
}
