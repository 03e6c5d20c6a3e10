/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_GEM_H
#define M6NPU_GEM_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include <drm/drm_gem.h>
#include <drm/drm_mm.h>

#include "m6npu_pool.h"

struct dma_buf;
struct m6npu_device;
struct m6npu_vm;
struct sg_table;

/**
 * struct m6npu_bo - a buffer
 *
 * Its place in the pool may change while it lives, its device address not.
 */
struct m6npu_bo {
	/**
	 * @base: the GEM object; @base.resv is &m6npu_vm.resv, or the
	 * exporter's if it is imported
	 */
	struct drm_gem_object base;
	/** @vm: address space it is mapped in, referenced */
	struct m6npu_vm *vm;
	/** @pool: pool it is in, referenced; NULL if imported */
	struct m6npu_pool *pool;
	/** @block: where in the pool; changes under the reservation */
	struct m6npu_block block;
	/** @sgt: memory of an imported buffer; under &m6npu_imports.lock */
	struct sg_table *sgt;
	/** @import: in &m6npu_imports.list */
	struct list_head import;
	/** @va: device addresses */
	struct drm_mm_node va;
	/** @flags: DRM_M6NPU_BO_*; those above bit 28 under the reservation */
	u32 flags;
	/** @live: complete, for those who find it by its node; set once */
	bool live;
	/** @prepared: page tables are there; changes at its birth and end only */
	bool prepared;
	/** @ready: pieces that were cleared and mapped; under the reservation */
	unsigned long *ready;
	/** @unready: pieces that were not */
	unsigned int unready;
	/** @windows: which of its address space map it; under &m6npu_vm.lock */
	unsigned long windows;
	/** @dying: in &m6npu_vm.dying once nothing but jobs needs it */
	struct list_head dying;
};

static inline struct m6npu_bo *to_m6npu_bo(struct drm_gem_object *obj)
{
	return container_of(obj, struct m6npu_bo, base);
}

/*
 * Nodes are there before the rest of a buffer is. Who comes by one looks here
 * first, and at the reference count then.
 */
static inline bool m6npu_bo_is_live(const struct m6npu_bo *bo)
{
	/* Before what the caller reads then; see bo_create(). */
	return smp_load_acquire(&bo->live);
}

/* A buffer of the file's own address space, or an error. Put it. */
struct m6npu_bo *m6npu_bo_lookup(struct drm_file *file, u32 handle);

void m6npu_bo_sync_device(struct m6npu_bo *bo, u64 offset, u64 size);

/* m6npu_ready.c */

/**
 * struct m6npu_piece - what is cleared and mapped at once
 */
struct m6npu_piece {
	/** @offset: bytes into the buffer */
	u64 offset;
	/** @size: bytes */
	u64 size;
};

int m6npu_bo_ready_init(struct m6npu_bo *bo);
void m6npu_bo_ready_fini(struct m6npu_bo *bo);
unsigned int m6npu_bo_pieces(const struct m6npu_bo *bo);
unsigned int m6npu_bo_piece_at(const struct m6npu_bo *bo, u64 offset);
struct m6npu_piece m6npu_bo_piece(const struct m6npu_bo *bo,
				  unsigned int index);
u64 m6npu_bo_ready_size(struct m6npu_bo *bo);
bool m6npu_bo_is_used(const struct m6npu_bo *bo);
void m6npu_bo_use_piece(struct m6npu_bo *bo, unsigned int index);
int m6npu_bo_use_locked(struct m6npu_bo *bo, u64 offset, u64 size);
int m6npu_bo_use(struct m6npu_bo *bo, u64 offset, u64 size);
int m6npu_vm_use(struct m6npu_vm *vm, u64 addr, u64 size);

/* Work function of &m6npu_vm.reap_work. */
void m6npu_bo_reap(struct work_struct *work);

int m6npu_bo_create_ioctl(struct drm_device *drm, void *data,
			  struct drm_file *file);
int m6npu_bo_info_ioctl(struct drm_device *drm, void *data,
			struct drm_file *file);
int m6npu_bo_sync_ioctl(struct drm_device *drm, void *data,
			struct drm_file *file);

bool m6npu_bo_is_writable(const struct m6npu_bo *bo);
void m6npu_bo_init(struct m6npu_bo *bo, struct drm_device *drm, u64 size,
		   struct dma_resv *resv);

/* m6npu_defrag.c */
int m6npu_pool_defrag_ioctl(struct drm_device *drm, void *data,
			    struct drm_file *file);

/* m6npu_window.c */
void m6npu_bo_close_windows(struct m6npu_bo *bo);
int m6npu_region_map_ioctl(struct drm_device *drm, void *data,
			   struct drm_file *file);
int m6npu_region_unmap_ioctl(struct drm_device *drm, void *data,
			     struct drm_file *file);

/* m6npu_prime.c */

/**
 * struct m6npu_imports - imported buffers
 */
struct m6npu_imports {
	/** @lock: protects the following members; outside of reservations */
	struct mutex lock;
	/** @list: &m6npu_bo.import of those that are mapped for the device */
	struct list_head list;
};

int m6npu_imports_init(struct m6npu_device *m6npu);
void m6npu_imports_fini(struct m6npu_device *m6npu);
void m6npu_prime_forget(struct m6npu_bo *bo);
int m6npu_prime_handle_to_fd(struct drm_device *drm, struct drm_file *file,
			     u32 handle, u32 flags, int *fd);
struct dma_buf *m6npu_prime_export(struct drm_gem_object *obj, int flags);
struct sg_table *m6npu_prime_get_sg_table(struct drm_gem_object *obj);
int m6npu_prime_open(struct drm_gem_object *obj, struct drm_file *file);
struct drm_gem_object *m6npu_prime_import(struct drm_device *drm,
					  struct dma_buf *dma_buf);
int m6npu_prime_mmap(struct m6npu_bo *bo, struct vm_area_struct *vma);
int m6npu_prime_sync(struct m6npu_bo *bo, u32 flags);

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
