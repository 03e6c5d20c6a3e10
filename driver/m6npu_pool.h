/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_POOL_H
#define M6NPU_POOL_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/xarray.h>

#include <drm/drm_mm.h>

#include "m6npu_segment.h"

struct drm_device;
struct drm_file;
struct m6npu_context;
struct m6npu_device;
struct seq_file;

#define M6NPU_POOL_MAX_SEGMENTS		16
#define M6NPU_POOLS_PER_FILE		64
#define M6NPU_POOLS_PERSISTENT		64
/* Ids of persistent pools begin here, those of a file's own pools below. */
#define M6NPU_POOL_PERSISTENT_ID	0x10000

/**
 * struct m6npu_pools - all pools of a device
 */
struct m6npu_pools {
	/** @lock: protects @list, @reserved; outside &m6npu_pool.lock */
	struct mutex lock;
	/** @create_lock: held while segments are allocated; outside @lock */
	struct mutex create_lock;
	/** @list: &m6npu_pool.link of every pool that exists */
	struct list_head list;
	/** @persistent: pools that outlive their file, by id */
	struct xarray persistent;
	/** @area: contiguous area pools are taken from, or NULL */
	struct cma *area;
	/** @area_size: bytes of @area, 0 if unknown */
	u64 area_size;
	/** @reserved: bytes taken from the system's ordinary memory */
	u64 reserved;
	/** @of_reserved: the area is the device tree's */
	bool of_reserved;
};

/**
 * struct m6npu_pool - memory buffers are taken from
 *
 * Referenced by its id, and by each buffer in it.
 */
struct m6npu_pool {
	/** @ref: see m6npu_pool_get() */
	struct kref ref;
	/** @m6npu: the device */
	struct m6npu_device *m6npu;
	/** @link: in &m6npu_pools.list */
	struct list_head link;
	/** @id: what userspace calls it */
	u32 id;
	/** @flags: DRM_M6NPU_POOL_* */
	u32 flags;
	/** @pid: of the process that created it */
	pid_t pid;
	/** @comm: its name then */
	char comm[TASK_COMM_LEN];
	/** @size: bytes in all segments */
	u64 size;

	/**
	 * @lock: protects the following members and the segments' allocators.
	 * Taken before a buffer's reservation, which code that holds it may
	 * only try to take.
	 */
	struct mutex lock;
	/** @used: bytes in blocks */
	u64 used;
	/** @blocks: blocks, each one buffer's */
	u32 blocks;
	/** @dying: those of @blocks whose buffer has no handle any more */
	u32 dying;
	/** @destroyed: takes no new buffers */
	bool destroyed;
	/** @releases: blocks ever given back, free-running */
	u32 releases;
	/** @released: woken when @releases changes */
	wait_queue_head_t released;

	/** @segment_count: length of @segments, at least 1 */
	unsigned int segment_count;
	/** @segments: the memory */
	struct m6npu_segment segments[M6NPU_POOL_MAX_SEGMENTS];
};

/**
 * struct m6npu_block - a buffer's part of a pool
 */
struct m6npu_block {
	/** @node: range of bus addresses; protected by &m6npu_pool.lock */
	struct drm_mm_node node;
	/** @segment: segment it is in */
	struct m6npu_segment *segment;
};

int m6npu_pools_init(struct m6npu_device *m6npu);
void m6npu_pools_fini(struct m6npu_device *m6npu);
int m6npu_context_pools_init(struct m6npu_context *ctx);
void m6npu_context_pools_fini(struct m6npu_context *ctx);
void m6npu_pools_show(struct seq_file *m, struct m6npu_device *m6npu);

struct m6npu_pool *m6npu_pool_lookup(struct drm_file *file, u32 id);
void m6npu_pool_put(struct m6npu_pool *pool);

int m6npu_block_alloc(struct m6npu_pool *pool, struct m6npu_block *block,
		      u64 size);
void m6npu_block_retire(struct m6npu_pool *pool);
void m6npu_block_free(struct m6npu_pool *pool, struct m6npu_block *block,
		      bool dying);
int m6npu_block_clear(struct m6npu_pool *pool, struct m6npu_block *block);

/* First of the block's pages. */
static inline struct page *m6npu_block_page(const struct m6npu_block *block)
{
	u64 offset = block->node.start - block->segment->dma;

	return block->segment->page + (offset >> PAGE_SHIFT);
}

static inline dma_addr_t m6npu_block_dma(const struct m6npu_block *block)
{
	return block->node.start;
}

int m6npu_pool_create_ioctl(struct drm_device *drm, void *data,
			    struct drm_file *file);
int m6npu_pool_destroy_ioctl(struct drm_device *drm, void *data,
			     struct drm_file *file);
int m6npu_pool_info_ioctl(struct drm_device *drm, void *data,
			  struct drm_file *file);

#endif
