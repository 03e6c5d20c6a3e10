// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: dma-bufs
 *
 * Export makes a buffer's memory known to other files and devices. It is not
 * moved any more, not even after the last of them let go, since nobody tells
 * when a mapping through the dma-buf's own file ends. What was not used of it is
 * made ready first. That is written back from caches for our device; one that
 * snoops none and shares a system with ours, which does, is not provided for.
 *
 * Import maps a dma-buf of anyone in the file's address space, page by page if
 * it must be. The importer has no say in where it lies: it is attached for as
 * long as the buffer lives, and mapped as long as the device is bound. A
 * dma-buf of this driver is imported the same way, as another buffer with the
 * same memory, for it has another device address in each address space. Only
 * the file that exported it gets its own handle back, as everywhere in DRM.
 *
 * Jobs do not wait for the dma-buf's fences, nor do they add theirs: what runs
 * when is said by syncobjs, explicitly.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include <drm/drm_drv.h>
#include <drm/drm_managed.h>
#include <drm/drm_prime.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_gem.h"
#include "m6npu_mmu.h"
#include "m6npu_pt.h"

/* The length of an entry is an unsigned int. */
#define PRIME_SG_MAX		0x80000000ull

/* ---- Export ---- */

struct sg_table *m6npu_prime_get_sg_table(struct drm_gem_object *obj)
{
	struct m6npu_bo *bo = to_m6npu_bo(obj);
	struct page *page = m6npu_block_page(bo->pool, &bo->block);
	u64 left = obj->size;
	struct sg_table *sgt;
	struct scatterlist *sg;
	unsigned int i;
	int err;

	/* Nothing is left to do, see m6npu_prime_handle_to_fd(). */
	err = m6npu_bo_use_locked(bo, 0, obj->size);
	if (err)
		return ERR_PTR(err);
	if (m6npu_fault_due(bo->pool->m6npu))
		return ERR_PTR(-ENOMEM);
	sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	if (!sgt)
		return ERR_PTR(-ENOMEM);
	err = sg_alloc_table(sgt, DIV_ROUND_UP_ULL(left, PRIME_SG_MAX),
			     GFP_KERNEL);
	if (err) {
		kfree(sgt);
		return ERR_PTR(err);
	}
	for_each_sgtable_sg(sgt, sg, i) {
		u64 size = min(left, PRIME_SG_MAX);

		sg_set_page(sg, page, size, 0);
		page += size >> PAGE_SHIFT;
		left -= size;
	}
	return sgt;
}

/*
 * The core holds a lock of everybody's while it exports or imports. What may
 * take long, which is to clear memory, is done before.
 */
int m6npu_prime_handle_to_fd(struct drm_device *drm, struct drm_file *file,
			     u32 handle, u32 flags, int *fd)
{
	struct m6npu_bo *bo = m6npu_bo_lookup(file, handle);
	int err, idx;

	if (IS_ERR(bo))
		return PTR_ERR(bo);
	err = -ENODEV;
	if (drm_dev_enter(drm, &idx)) {
		err = m6npu_bo_use(bo, 0, bo->base.size);
		drm_dev_exit(idx);
	}
	drm_gem_object_put(&bo->base);
	return err ?: drm_gem_prime_handle_to_fd(drm, file, handle, flags, fd);
}

/* The reservation is held; *@fresh: it had not been shared before. */
static int prime_share(struct m6npu_bo *bo, bool *fresh)
{
	/* What must not change is nobody else's. */
	if (bo->flags & DRM_M6NPU_BO_SEALED)
		return -EPERM;
	*fresh = !(bo->flags & DRM_M6NPU_BO_EXPORTED);
	if (!*fresh)
		return 0;
	m6npu_block_pin(bo->pool, &bo->block);
	WRITE_ONCE(bo->flags, bo->flags | DRM_M6NPU_BO_EXPORTED);
	return 0;
}

static void prime_unshare(struct m6npu_bo *bo)
{
	dma_resv_lock(bo->base.resv, NULL);
	WRITE_ONCE(bo->flags, bo->flags & ~DRM_M6NPU_BO_EXPORTED);
	m6npu_block_unpin(bo->pool, &bo->block);
	dma_resv_unlock(bo->base.resv);
}

struct dma_buf *m6npu_prime_export(struct drm_gem_object *obj, int flags)
{
	struct m6npu_bo *bo = to_m6npu_bo(obj);
	struct dma_buf *dma_buf;
	bool fresh;
	int err;

	err = dma_resv_lock_interruptible(obj->resv, NULL);
	if (err)
		return ERR_PTR(err);
	err = prime_share(bo, &fresh);
	dma_resv_unlock(obj->resv);
	if (err)
		return ERR_PTR(err);
	dma_buf = drm_gem_prime_export(obj, flags);
	if (IS_ERR(dma_buf) && fresh)
		prime_unshare(bo);
	return dma_buf;
}

/* ---- Import ---- */

static int prime_check_sgt(struct sg_table *sgt, u64 size)
{
	struct scatterlist *sg;
	unsigned int i;
	u64 total = 0;

	for_each_sgtable_dma_sg(sgt, sg, i) {
		u64 last = sg_dma_address(sg) + sg_dma_len(sg) - 1;

		if (!PAGE_ALIGNED(sg_dma_address(sg)) ||
		    !PAGE_ALIGNED(sg_dma_len(sg)) || !sg_dma_len(sg))
			return -EINVAL;
		if (last & ~(M6NPU_PTE_ADDR_MASK | ~PAGE_MASK))
			return -ERANGE;
		total += sg_dma_len(sg);
	}
	return total < size ? -EINVAL : 0;
}

static void prime_write(struct m6npu_bo *bo)
{
	u64 va = bo->va.start, end = va + bo->va.size;
	struct scatterlist *sg;
	unsigned int i;

	for_each_sgtable_dma_sg(bo->sgt, sg, i) {
		u64 size = min_t(u64, sg_dma_len(sg), end - va);

		m6npu_vm_write(bo->vm, va, size, sg_dma_address(sg),
			       m6npu_bo_is_writable(bo));
		va += size;
	}
}

static int prime_bind(struct m6npu_bo *bo, struct m6npu_vm *vm)
{
	u64 size = bo->base.size;
	int err;

	err = m6npu_vm_reserve(vm, &bo->va, size, m6npu_pt_align(size), false,
			       0);
	if (err)
		return err;
	err = m6npu_vm_prepare(vm, &bo->va, false);
	if (err) {
		m6npu_vm_release(vm, &bo->va);
		return err;
	}
	bo->vm = m6npu_vm_get(vm);
	bo->prepared = true;
	prime_write(bo);
	return 0;
}

/* A file gets a handle. The first one of an imported buffer maps it there. */
int m6npu_prime_open(struct drm_gem_object *obj, struct drm_file *file)
{
	struct m6npu_context *ctx = to_m6npu_context(file);
	struct m6npu_bo *bo = to_m6npu_bo(obj);
	int err, idx;

	if (bo->vm)
		return bo->vm == ctx->vm ? 0 : -EACCES;
	if (!drm_dev_enter(obj->dev, &idx))
		return -ENODEV;
	err = prime_bind(bo, ctx->vm);
	drm_dev_exit(idx);
	return err;
}

static struct m6npu_bo *prime_wrap(struct drm_device *drm,
				   struct dma_buf_attachment *attach,
				   struct sg_table *sgt)
{
	u64 size = attach->dmabuf->size;
	struct m6npu_bo *bo;
	int err;

	if (!size || !PAGE_ALIGNED(size) || size > M6NPU_VA_SIZE)
		return ERR_PTR(-EINVAL);
	err = prime_check_sgt(sgt, size);
	if (err)
		return ERR_PTR(err);
	if (m6npu_fault_due(to_m6npu_device(drm)))
		return ERR_PTR(-ENOMEM);
	bo = kzalloc(sizeof(*bo), GFP_KERNEL_ACCOUNT);
	if (!bo)
		return ERR_PTR(-ENOMEM);
	bo->flags = DRM_M6NPU_BO_IMPORTED;
	bo->sgt = sgt;
	m6npu_bo_init(bo, drm, size, attach->dmabuf->resv);
	err = drm_gem_create_mmap_offset(&bo->base);
	if (err) {
		drm_gem_object_release(&bo->base);
		kfree(bo);
		return ERR_PTR(err);
	}
	bo->base.import_attach = attach;
	return bo;
}

static struct m6npu_bo *prime_import(struct drm_device *drm,
				     struct dma_buf *dma_buf)
{
	struct m6npu_imports *imports = &to_m6npu_device(drm)->imports;
	struct dma_buf_attachment *attach;
	struct sg_table *sgt;
	struct m6npu_bo *bo;

	attach = dma_buf_attach(dma_buf, drm->dev);
	if (IS_ERR(attach))
		return ERR_CAST(attach);
	sgt = dma_buf_map_attachment_unlocked(attach, DMA_BIDIRECTIONAL);
	if (IS_ERR(sgt)) {
		bo = ERR_CAST(sgt);
		goto err_detach;
	}
	bo = prime_wrap(drm, attach, sgt);
	if (IS_ERR(bo))
		goto err_unmap;
	get_dma_buf(dma_buf);
	/* Scoped, as there are labels below. */
	scoped_guard(mutex, &imports->lock)
		list_add(&bo->import, &imports->list);
	return bo;

err_unmap:
	dma_buf_unmap_attachment_unlocked(attach, sgt, DMA_BIDIRECTIONAL);
err_detach:
	dma_buf_detach(dma_buf, attach);
	return bo;
}

struct drm_gem_object *m6npu_prime_import(struct drm_device *drm,
					  struct dma_buf *dma_buf)
{
	struct m6npu_bo *bo;
	int idx;

	/* Up to the end: m6npu_imports_fini() must find it. */
	if (!drm_dev_enter(drm, &idx))
		return ERR_PTR(-ENODEV);
	bo = prime_import(drm, dma_buf);
	drm_dev_exit(idx);
	return IS_ERR(bo) ? ERR_CAST(bo) : &bo->base;
}

/* The end of an imported buffer. */
void m6npu_prime_forget(struct m6npu_bo *bo)
{
	struct m6npu_imports *imports = &to_m6npu_device(bo->base.dev)->imports;

	/* Under the lock: if the device goes now, it is to be unmapped before. */
	scoped_guard(mutex, &imports->lock) {
		list_del(&bo->import);
		if (bo->sgt)
			dma_buf_unmap_attachment_unlocked(bo->base.import_attach,
							  bo->sgt,
							  DMA_BIDIRECTIONAL);
		bo->sgt = NULL;
	}
	drm_prime_gem_destroy(&bo->base, NULL);
}

int m6npu_imports_init(struct m6npu_device *m6npu)
{
	INIT_LIST_HEAD(&m6npu->imports.list);
	return drmm_mutex_init(&m6npu->drm, &m6npu->imports.lock);
}

/*
 * When the device goes: after the end of all jobs. Buffers stay attached, which
 * is between the dma-buf and us, but out of the device's reach.
 */
void m6npu_imports_fini(struct m6npu_device *m6npu)
{
	struct m6npu_imports *imports = &m6npu->imports;
	struct m6npu_bo *bo;

	guard(mutex)(&imports->lock);
	list_for_each_entry(bo, &imports->list, import) {
		dma_buf_unmap_attachment_unlocked(bo->base.import_attach,
						  bo->sgt, DMA_BIDIRECTIONAL);
		bo->sgt = NULL;
	}
}

int m6npu_prime_mmap(struct m6npu_bo *bo, struct vm_area_struct *vma)
{
	int err;

	/* Ours must not stay if the exporter sets none. */
	vma->vm_ops = NULL;
	vma->vm_private_data = NULL;
	vm_flags_set(vma, VM_DONTEXPAND);
	err = dma_buf_mmap(bo->base.import_attach->dmabuf, vma, 0);
	/* The exporter's mapping has a reference of its own. */
	if (!err)
		drm_gem_object_put(&bo->base);
	return err;
}

/*
 * What the CPU wrote must be written back, so no begin if there was one: that
 * may throw it away. But udmabuf ends nothing that did not begin.
 */
static int prime_sync_device(struct dma_buf *dma_buf)
{
	int err;

	err = dma_buf_end_cpu_access(dma_buf, DMA_BIDIRECTIONAL);
	if (err != -EINVAL)
		return err;
	return dma_buf_begin_cpu_access(dma_buf, DMA_BIDIRECTIONAL) ?:
	       dma_buf_end_cpu_access(dma_buf, DMA_BIDIRECTIONAL);
}

int m6npu_prime_sync(struct m6npu_bo *bo, u32 flags)
{
	struct dma_buf *dma_buf = bo->base.import_attach->dmabuf;
	int err = 0;

	if (flags & DRM_M6NPU_SYNC_TO_DEVICE)
		err = prime_sync_device(dma_buf);
	if (!err && flags & DRM_M6NPU_SYNC_FROM_DEVICE)
		err = dma_buf_begin_cpu_access(dma_buf, DMA_BIDIRECTIONAL);
	return err;
}
