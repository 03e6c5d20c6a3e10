// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Buffers
 *
 * A buffer is a block of a pool, with device addresses in its file's address
 * space for life. Its memory is cleared, and mapped for the device, when it is
 * first used (m6npu_ready.c).
 *
 * All buffers of an address space have one reservation, the address space's,
 * and each job adds its fence there. So "the jobs that may use this buffer" are
 * all jobs of the file, which is what SUBMIT promises, and costs a job nothing
 * per buffer.
 *
 * End of a buffer. Its last reference may go at any time: while jobs run, or
 * when a process is killed, before its jobs are cancelled. Waiting there could
 * take as long as a job may stall. So a buffer that jobs may still use is put
 * on its address space's list of dying ones, and a work item
 *
 * 1. waits for the jobs that were queued by then,
 * 2. unmaps the buffer and invalidates translations,
 * 3. waits again, for jobs queued in between: they may have got a translation,
 *    those queued later cannot,
 * 4. gives the device addresses and the block back.
 *
 * If no job was queued at 1 and 3 the same is done at once.
 *
 * CPU mappings are faulted in under the reservation, from where the block is
 * at that time, so that it can be moved (m6npu_defrag.c). They are cached. On
 * systems where the device does not snoop caches BO_SYNC does what is needed,
 * on others nothing.
 *
 * Lock order: mmap lock, &m6npu_vm.gate, reservation, &m6npu_pool.lock,
 * &m6npu_vm.lock.
 */

#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_prime.h>
#include <drm/drm_print.h>
#include <drm/m6npu_accel.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_gem.h"
#include "m6npu_mmu.h"
#include "m6npu_pool.h"
#include "m6npu_pt.h"

/* Mapped at a fault, around the page that is wanted. */
#define BO_FAULT_AROUND		SZ_2M

#define BO_CREATE_FLAGS		(DRM_M6NPU_BO_FIXED_ADDR | \
				 DRM_M6NPU_BO_DEVICE_READONLY)
#define BO_SYNC_FLAGS		(DRM_M6NPU_SYNC_TO_DEVICE | \
				 DRM_M6NPU_SYNC_FROM_DEVICE)

/* ---- End of a buffer ---- */

static void bo_unmap(struct m6npu_bo *bo)
{
	m6npu_bo_close_windows(bo);
	if (bo->prepared)
		m6npu_vm_unmap(bo->vm, &bo->va,
			       !bo->pool || m6npu_bo_is_used(bo));
	bo->prepared = false;
}

/* Gives back what bo_place() took; jobs cannot reach it any more. */
static void bo_unplace(struct m6npu_bo *bo, bool dying)
{
	m6npu_vm_release(bo->vm, &bo->va);
	if (!bo->pool)
		return;
	m6npu_block_free(bo->pool, &bo->block, bo->vm, dying);
	m6npu_pool_put(bo->pool);
}

static void bo_destroy(struct m6npu_bo *bo)
{
	/* One whose import came to nothing has no addresses. */
	if (bo->vm) {
		m6npu_bo_ready_fini(bo);
		bo_unplace(bo, true);
		m6npu_vm_put(bo->vm);
	}
	if (bo->base.import_attach)
		m6npu_prime_forget(bo);
	kfree(bo);
}

static bool vm_take_dying(struct m6npu_vm *vm, struct list_head *list)
{
	guard(spinlock)(&vm->dying_lock);
	list_splice_tail_init(&vm->dying, list);
	return !list_empty(list);
}

void m6npu_bo_reap(struct work_struct *work)
{
	struct m6npu_vm *vm = container_of(work, struct m6npu_vm, reap_work);
	struct m6npu_bo *bo, *next;
	LIST_HEAD(dying);

	while (vm_take_dying(vm, &dying)) {
		m6npu_vm_wait_idle(vm);
		list_for_each_entry(bo, &dying, dying)
			bo_unmap(bo);
		m6npu_vm_wait_idle(vm);
		list_for_each_entry_safe(bo, next, &dying, dying) {
			list_del(&bo->dying);
			bo_destroy(bo);
		}
	}
	m6npu_vm_put(vm);
}

static void bo_defer(struct m6npu_bo *bo)
{
	struct m6npu_vm *vm = bo->vm;

	/* For the work; @bo and its reference may be gone any time now. */
	m6npu_vm_get(vm);
	scoped_guard(spinlock, &vm->dying_lock)
		list_add_tail(&bo->dying, &vm->dying);
	if (!queue_work(vm->m6npu->mmu.reaper, &vm->reap_work))
		m6npu_vm_put(vm);
}

static void m6npu_bo_free(struct drm_gem_object *obj)
{
	struct m6npu_bo *bo = to_m6npu_bo(obj);

	/* First of all: m6npu_defrag.c leaves it alone from here on. */
	if (bo->pool)
		m6npu_block_retire(bo->pool, &bo->block);
	drm_gem_object_release(obj);
	if (bo->vm && m6npu_vm_is_idle(bo->vm))
		bo_unmap(bo);
	if (!bo->vm || (!bo->prepared && m6npu_vm_is_idle(bo->vm)))
		bo_destroy(bo);
	else
		bo_defer(bo);
}

/* ---- CPU mappings ---- */

static bool bo_is_sealed(const struct m6npu_bo *bo)
{
	return READ_ONCE(bo->flags) & DRM_M6NPU_BO_SEALED;
}

/*
 * Writable pages are dirty from the start: nobody asks whether they are, and a
 * CPU that does not note it by itself would fault again at each one.
 */
static pgprot_t bo_page_prot(const struct vm_area_struct *vma)
{
	pte_t pte = pfn_pte(0, vma->vm_page_prot);

	if (vma->vm_flags & VM_WRITE)
		pte = pte_mkdirty(pte);
	return pte_pgprot(pte);
}

/* Maps [@first, @last] of the buffer's pages, the one at fault among them. */
static vm_fault_t bo_insert_pages(struct m6npu_bo *bo, struct vm_fault *vmf,
				  pgoff_t first, pgoff_t last)
{
	struct vm_area_struct *vma = vmf->vma;
	pgoff_t start = vma->vm_pgoff - drm_vma_node_start(&bo->base.vma_node);
	unsigned long pfn = page_to_pfn(m6npu_block_page(bo->pool,
							 &bo->block));
	pgprot_t prot = bo_page_prot(vma);
	vm_fault_t ret = VM_FAULT_NOPAGE;
	pgoff_t page;

	for (page = first; page <= last && ret == VM_FAULT_NOPAGE; page++)
		ret = vmf_insert_pfn_prot(vma, vma->vm_start +
					  ((page - start) << PAGE_SHIFT),
					  pfn + page, prot);
	return ret;
}

/*
 * Defragmentation may hold the reservation for a while. Who waits lets go of
 * the mmap lock if it may, and can be killed.
 */
static vm_fault_t bo_fault_lock(struct m6npu_bo *bo, struct vm_fault *vmf)
{
	struct dma_resv *resv = bo->base.resv;

	if (dma_resv_trylock(resv))
		return 0;
	if (!fault_flag_allow_retry_first(vmf->flags))
		return dma_resv_lock_interruptible(resv, NULL) ?
		       VM_FAULT_NOPAGE : 0;
	if (vmf->flags & FAULT_FLAG_RETRY_NOWAIT)
		return VM_FAULT_RETRY;
	drm_gem_object_get(&bo->base);
	mmap_read_unlock(vmf->vma->vm_mm);
	if (!dma_resv_lock_interruptible(resv, NULL))
		dma_resv_unlock(resv);
	drm_gem_object_put(&bo->base);
	return VM_FAULT_RETRY;
}

static vm_fault_t m6npu_bo_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct m6npu_bo *bo = to_m6npu_bo(vma->vm_private_data);
	pgoff_t node = drm_vma_node_start(&bo->base.vma_node);
	pgoff_t around = BO_FAULT_AROUND >> PAGE_SHIFT;
	pgoff_t first, last, page = vmf->pgoff - node;
	vm_fault_t ret;
	struct m6npu_piece piece;
	unsigned int index;

	if (page >= bo->base.size >> PAGE_SHIFT)
		return VM_FAULT_SIGBUS;
	index = m6npu_bo_piece_at(bo, (u64)page << PAGE_SHIFT);
	piece = m6npu_bo_piece(bo, index);
	/* What of the aligned range around the page is to be seen here. */
	first = max3(ALIGN_DOWN(page, around), vma->vm_pgoff - node,
		     (pgoff_t)(piece.offset >> PAGE_SHIFT));
	last = min3(ALIGN_DOWN(page, around) + around,
		    vma->vm_pgoff - node + vma_pages(vma),
		    (pgoff_t)((piece.offset + piece.size) >> PAGE_SHIFT)) - 1;

	ret = bo_fault_lock(bo, vmf);
	if (ret)
		return ret;
	ret = VM_FAULT_SIGBUS;
	if (!bo_is_sealed(bo)) {
		m6npu_bo_use_piece(bo, index);
		ret = bo_insert_pages(bo, vmf, first, last);
	}
	dma_resv_unlock(bo->base.resv);
	return ret;
}

static const struct vm_operations_struct m6npu_bo_vm_ops = {
	.open = drm_gem_vm_open,
	.close = drm_gem_vm_close,
	.fault = m6npu_bo_fault,
};

static int m6npu_bo_mmap(struct drm_gem_object *obj, struct vm_area_struct *vma)
{
	if (obj->import_attach)
		return m6npu_prime_mmap(to_m6npu_bo(obj), vma);
	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	if (vma->vm_flags & VM_EXEC || bo_is_sealed(to_m6npu_bo(obj)))
		return -EACCES;

	vm_flags_mod(vma, VM_PFNMAP | VM_IO | VM_DONTEXPAND | VM_DONTDUMP,
		     VM_MAYEXEC);
	vma->vm_page_prot = vm_get_page_prot(vma->vm_flags);
	vma->vm_ops = &m6npu_bo_vm_ops;
	return 0;
}

/* ---- The object ---- */

static enum drm_gem_object_status m6npu_bo_status(struct drm_gem_object *obj)
{
	return DRM_GEM_OBJECT_RESIDENT;
}

static const struct drm_gem_object_funcs m6npu_bo_funcs = {
	.free = m6npu_bo_free,
	.open = m6npu_prime_open,
	.export = m6npu_prime_export,
	.get_sg_table = m6npu_prime_get_sg_table,
	.mmap = m6npu_bo_mmap,
	.status = m6npu_bo_status,
	.vm_ops = &m6npu_bo_vm_ops,
};

void m6npu_bo_init(struct m6npu_bo *bo, struct drm_device *drm, u64 size,
		   struct dma_resv *resv)
{
	bo->base.funcs = &m6npu_bo_funcs;
	bo->base.resv = resv;
	drm_gem_private_object_init(drm, &bo->base, size);
}

struct m6npu_bo *m6npu_bo_lookup(struct drm_file *file, u32 handle)
{
	struct m6npu_context *ctx = to_m6npu_context(file);
	struct drm_gem_object *obj;
	struct m6npu_bo *bo;

	obj = drm_gem_object_lookup(file, handle);
	if (!obj)
		return ERR_PTR(-ENOENT);
	bo = to_m6npu_bo(obj);
	if (bo->vm != ctx->vm) {
		drm_gem_object_put(obj);
		return ERR_PTR(-ENOENT);
	}
	return bo;
}

bool m6npu_bo_is_writable(const struct m6npu_bo *bo)
{
	return !(bo->flags & (DRM_M6NPU_BO_DEVICE_READONLY |
			      DRM_M6NPU_BO_SEALED));
}

/* What BO_CREATE takes for the device address; memory may be less aligned. */
static u64 bo_va_align(const struct drm_m6npu_bo_create *args)
{
	return max(args->align, m6npu_pt_align(args->size));
}

/* Device addresses, memory, and page tables for them. */
static int bo_place(struct m6npu_bo *bo, const struct drm_m6npu_bo_create *args)
{
	int err;

	err = m6npu_vm_reserve(bo->vm, &bo->va, args->size, bo_va_align(args),
			       bo->flags & DRM_M6NPU_BO_FIXED_ADDR,
			       args->addr);
	if (err)
		return err;
	err = m6npu_block_alloc(bo->pool, &bo->block, bo->vm, args->size,
				args->align);
	if (err)
		goto err_va;
	err = m6npu_vm_prepare(bo->vm, &bo->va,
			       bo->block.align >= M6NPU_ALIGN_LARGE);
	if (err)
		goto err_block;
	bo->prepared = true;
	err = m6npu_bo_ready_init(bo);
	if (err)
		goto err_prepared;
	return 0;

err_prepared:
	bo_unmap(bo);
err_block:
	m6npu_block_free(bo->pool, &bo->block, bo->vm, false);
err_va:
	m6npu_vm_release(bo->vm, &bo->va);
	return err;
}

/* Takes over the reference of @pool if it succeeds. */
static struct m6npu_bo *bo_create(struct m6npu_context *ctx,
				  struct m6npu_pool *pool,
				  const struct drm_m6npu_bo_create *args)
{
	struct m6npu_bo *bo;
	int err;

	if (m6npu_fault_due(ctx->m6npu))
		return ERR_PTR(-ENOMEM);
	bo = kzalloc(sizeof(*bo), GFP_KERNEL_ACCOUNT);
	if (!bo)
		return ERR_PTR(-ENOMEM);
	bo->pool = pool;
	bo->vm = ctx->vm;
	bo->flags = args->flags;
	err = bo_place(bo, args);
	if (err) {
		kfree(bo);
		return ERR_PTR(err);
	}

	m6npu_vm_get(bo->vm);
	m6npu_bo_init(bo, &ctx->m6npu->drm, args->size, &bo->vm->resv);
	/* After all the above; m6npu_bo_is_live() is the other side. */
	smp_store_release(&bo->live, true);
	return bo;
}

/* Rounds the size up, and says whether the rest makes sense. */
static int bo_check_args(struct drm_m6npu_bo_create *args)
{
	u64 end;

	if (args->flags & ~BO_CREATE_FLAGS || args->pad)
		return -EINVAL;
	if (!args->size || args->size > M6NPU_VA_SIZE)
		return -EINVAL;
	if (args->align && args->align != M6NPU_ALIGN_PAGE &&
	    args->align != M6NPU_ALIGN_LARGE &&
	    args->align != M6NPU_ALIGN_WINDOW)
		return -EINVAL;
	args->size = PAGE_ALIGN(args->size);
	if (!(args->flags & DRM_M6NPU_BO_FIXED_ADDR))
		return 0;

	if (!IS_ALIGNED(args->addr, bo_va_align(args)) ||
	    args->addr < M6NPU_VA_START)
		return -EINVAL;
	if (check_add_overflow(args->addr, args->size, &end) ||
	    end > M6NPU_VA_SIZE)
		return -EINVAL;
	return 0;
}

static int bo_create_handle(struct drm_file *file,
			    struct drm_m6npu_bo_create *args)
{
	struct m6npu_pool *pool;
	struct m6npu_bo *bo;
	int err;

	pool = m6npu_pool_lookup(file, args->pool);
	if (!pool)
		return -ENOENT;
	bo = bo_create(to_m6npu_context(file), pool, args);
	if (IS_ERR(bo)) {
		m6npu_pool_put(pool);
		return PTR_ERR(bo);
	}

	err = drm_gem_create_mmap_offset(&bo->base);
	args->addr = bo->va.start;
	if (!err)
		err = drm_gem_handle_create(file, &bo->base, &args->handle);
	/* The handle has its own reference now. */
	drm_gem_object_put(&bo->base);
	return err;
}

int m6npu_bo_create_ioctl(struct drm_device *drm, void *data,
			  struct drm_file *file)
{
	struct drm_m6npu_bo_create *args = data;
	int err, idx;

	err = bo_check_args(args);
	if (!err && !drm_dev_enter(drm, &idx))
		return -ENODEV;
	if (!err) {
		err = bo_create_handle(file, args);
		drm_dev_exit(idx);
	}
	if (err)
		drm_dbg(drm, "buffer of %llu bytes in pool %u, flags %#x, address %#llx: %d\n",
			args->size, args->pool, args->flags, args->addr, err);
	return err;
}

/* The largest class that device address and memory are sure to keep. */
static u64 bo_align(const struct m6npu_bo *bo)
{
	u64 align = bo->pool ? bo->block.align : M6NPU_ALIGN_PAGE;

	if (!IS_ALIGNED(bo->va.start, align))
		align = M6NPU_ALIGN_LARGE;
	return IS_ALIGNED(bo->va.start, align) ? align : M6NPU_ALIGN_PAGE;
}

int m6npu_bo_info_ioctl(struct drm_device *drm, void *data,
			struct drm_file *file)
{
	struct drm_m6npu_bo_info *args = data;
	struct m6npu_bo *bo;

	bo = m6npu_bo_lookup(file, args->handle);
	if (IS_ERR(bo))
		return PTR_ERR(bo);
	*args = (struct drm_m6npu_bo_info) {
		.handle = args->handle,
		.flags = READ_ONCE(bo->flags),
		.size = bo->base.size,
		.addr = bo->va.start,
		.mmap_offset = drm_vma_node_offset_addr(&bo->base.vma_node),
		.pool = bo->pool ? bo->pool->id : 0,
		.align = bo_align(bo),
		.ready = m6npu_bo_ready_size(bo),
	};
	drm_gem_object_put(&bo->base);
	return 0;
}

/* Makes what the CPU wrote visible to the device. Reservation held. */
void m6npu_bo_sync_device(struct m6npu_bo *bo, u64 offset, u64 size)
{
	dma_sync_single_range_for_device(bo->base.dev->dev,
					 m6npu_block_dma(&bo->block), offset,
					 size, DMA_BIDIRECTIONAL);
}

static void bo_sync_cpu(struct m6npu_bo *bo, u64 offset, u64 size)
{
	dma_sync_single_range_for_cpu(bo->base.dev->dev,
				      m6npu_block_dma(&bo->block), offset,
				      size, DMA_BIDIRECTIONAL);
}

static int bo_sync(struct m6npu_bo *bo, const struct drm_m6npu_bo_sync *args)
{
	u64 end;
	int err;

	if (check_add_overflow(args->offset, args->size, &end) ||
	    end > bo->base.size)
		return -EINVAL;
	if (!bo->pool)
		return m6npu_prime_sync(bo, args->flags);
	err = dma_resv_lock_interruptible(bo->base.resv, NULL);
	if (err)
		return err;
	if (args->size && args->flags & DRM_M6NPU_SYNC_TO_DEVICE)
		m6npu_bo_sync_device(bo, args->offset, args->size);
	if (args->size && args->flags & DRM_M6NPU_SYNC_FROM_DEVICE)
		bo_sync_cpu(bo, args->offset, args->size);
	dma_resv_unlock(bo->base.resv);
	return 0;
}

int m6npu_bo_sync_ioctl(struct drm_device *drm, void *data,
			struct drm_file *file)
{
	struct drm_m6npu_bo_sync *args = data;
	struct m6npu_bo *bo;
	int err, idx;

	if (!args->flags || args->flags & ~BO_SYNC_FLAGS)
		return -EINVAL;
	bo = m6npu_bo_lookup(file, args->handle);
	if (IS_ERR(bo))
		return PTR_ERR(bo);
	err = -ENODEV;
	if (drm_dev_enter(drm, &idx)) {
		err = bo_sync(bo, args);
		drm_dev_exit(idx);
	}
	drm_gem_object_put(&bo->base);
	return err;
}
