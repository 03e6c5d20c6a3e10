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

#include "m6npu_arena.h"
#include "m6npu_regs.h"
#include "m6npu_segment.h"

struct drm_device;
struct drm_file;
struct drm_printer;
struct m6npu_context;
struct m6npu_device;
struct m6npu_vm;
struct seq_file;

#define M6NPU_POOL_MAX_SEGMENTS		M6NPU_ARENA_SEGMENTS
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
 * struct m6npu_pool_usage - what the buffers of an address space take
 */
struct m6npu_pool_usage {
	/** @used: bytes */
	u64 used;
	/** @blocks: blocks, each one buffer's */
	u32 blocks;
};

/**
 * struct m6npu_pool_stats - what defragmenting a pool did so far
 */
struct m6npu_pool_stats {
	/** @runs: calls of POOL_DEFRAG */
	u64 runs;
	/** @moved: bytes in buffers that were moved */
	u64 moved;
	/** @copied: bytes copied for that */
	u64 copied;
	/** @pause_ns: the longest time that jobs were held back */
	u64 pause_ns;
	/** @before: largest free block before the last run */
	u64 before;
	/** @after: and after it */
	u64 after;
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
	/** @client_limit: bytes one file may hold, 0 = all */
	u64 client_limit;
	/** @defrag_lock: one at a time; outside of everything else here */
	struct mutex defrag_lock;

	/**
	 * @lock: protects the following members. Taken inside the reservation
	 * of an address space, outside &m6npu_vm.lock.
	 */
	struct mutex lock;
	/** @arena: which parts of the segments are taken */
	struct m6npu_arena arena;
	/** @dying: blocks whose buffer has no handle any more */
	u32 dying;
	/** @dying_size: bytes in them */
	u64 dying_size;
	/** @dying_list: &m6npu_block.dying of them, oldest first */
	struct list_head dying_list;
	/** @retired: blocks that were ever in it */
	u64 retired;
	/** @destroyed: takes no new buffers */
	bool destroyed;
	/** @usage: by number of the address space */
	struct m6npu_pool_usage usage[M6NPU_ADDRESS_SPACES];
	/** @stats: for debugfs */
	struct m6npu_pool_stats stats;
	/** @releases: blocks ever given back, free-running */
	u32 releases;
	/** @released: woken when @releases changes */
	wait_queue_head_t released;

	/** @segments: the memory; those with a size are there */
	struct m6npu_segment segments[M6NPU_POOL_MAX_SEGMENTS];
};

int m6npu_pools_init(struct m6npu_device *m6npu);
void m6npu_pools_prealloc(struct m6npu_device *m6npu);
void m6npu_pools_fini(struct m6npu_device *m6npu);
int m6npu_context_pools_init(struct m6npu_context *ctx);
void m6npu_context_pools_fini(struct m6npu_context *ctx);
void m6npu_pools_warn(struct m6npu_device *m6npu, u64 size,
		      const char *where, u64 largest, const char *help);

struct m6npu_pool *m6npu_pool_lookup(struct drm_file *file, u32 id);
void m6npu_pool_put(struct m6npu_pool *pool);
bool m6npu_pool_may_administer(const struct m6npu_pool *pool);
unsigned int m6npu_pool_segments(const struct m6npu_pool *pool);
long m6npu_pool_wait_released(struct m6npu_pool *pool, u32 releases,
			      long timeout);

/* m6npu_block.c */
int m6npu_block_alloc(struct m6npu_pool *pool, struct m6npu_block *block,
		      struct m6npu_vm *vm, u64 size, u64 align);
void m6npu_block_retire(struct m6npu_pool *pool, struct m6npu_block *block);
void m6npu_block_free(struct m6npu_pool *pool, struct m6npu_block *block,
		      struct m6npu_vm *vm, bool dying);
void m6npu_block_pin(struct m6npu_pool *pool, struct m6npu_block *block);
void m6npu_block_unpin(struct m6npu_pool *pool, struct m6npu_block *block);
struct page *m6npu_block_page(const struct m6npu_pool *pool,
			      const struct m6npu_block *block);

static inline dma_addr_t m6npu_block_dma(const struct m6npu_block *block)
{
	return block->node.start;
}

/* m6npu_pool_show.c */
void m6npu_pools_show(struct seq_file *m, struct m6npu_device *m6npu);
void m6npu_pools_show_usage(struct drm_printer *p, struct m6npu_vm *vm);

int m6npu_pool_create_ioctl(struct drm_device *drm, void *data,
			    struct drm_file *file);
int m6npu_pool_destroy_ioctl(struct drm_device *drm, void *data,
			     struct drm_file *file);
int m6npu_pool_info_ioctl(struct drm_device *drm, void *data,
			  struct drm_file *file);

/* m6npu_flush.c */
int m6npu_pool_flush_ioctl(struct drm_device *drm, void *data,
			   struct drm_file *file);

#endif
