// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Pools
 *
 * The device wants its weights in large physically contiguous pieces, and the
 * system cannot promise those at any later time than now. So userspace asks
 * once, for a pool, and takes its buffers from that.
 *
 * A pool is one segment, or a few if its creator allows; a buffer is a block
 * inside one segment (m6npu_arena.c). Blocks are kept in bus addresses, so that
 * "aligned" means what the device's page tables mean by it. They may be moved
 * (m6npu_defrag.c).
 *
 * A pool belongs to an open file and is only known there, or is persistent:
 * created by the administrator, known to every user of the device, and gone
 * when the administrator says so or the device goes. Both kinds live on, out
 * of sight, until their last buffer is gone.
 *
 * Limits. What one file may hold of a persistent pool is said by its creator,
 * what one may hold of the contiguous area by the module parameter
 * client_percent. The kernel's own controller for this, dmem, is not built into
 * the kernels we run on.
 */

#include <linux/capability.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/of.h>
#include <linux/of_reserved_mem.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/ratelimit.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_print.h>
#include <drm/m6npu_accel.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_pool.h"
#include "m6npu_pt.h"

static unsigned int pool_client_percent = 100;
module_param_named(client_percent, pool_client_percent, uint, 0644);
MODULE_PARM_DESC(client_percent,
		 "Most of the contiguous area that the private pools of one file may take, in percent; does not bind CAP_SYS_RESOURCE (default 100)");

static unsigned int pool_prealloc_mb;
module_param_named(prealloc_mb, pool_prealloc_mb, uint, 0444);
MODULE_PARM_DESC(prealloc_mb,
		 "Create a persistent pool of this many MiB, in one piece, when a device is found (default 0: none)");

static struct m6npu_pool *pool_get(struct m6npu_pool *pool)
{
	kref_get(&pool->ref);
	return pool;
}

static void pool_free_segments(struct m6npu_pool *pool)
{
	unsigned int i;

	for (i = 0; i < M6NPU_POOL_MAX_SEGMENTS; i++) {
		if (!pool->segments[i].size)
			continue;
		if (pool->arena.size[i])
			m6npu_arena_drop(&pool->arena, i);
		m6npu_segment_free(pool->m6npu, &pool->segments[i]);
	}
}

static void pool_unmap_segments(struct m6npu_pool *pool)
{
	unsigned int i;

	for (i = 0; i < M6NPU_POOL_MAX_SEGMENTS; i++)
		m6npu_segment_unmap(pool->m6npu, &pool->segments[i]);
}

static void pool_release(struct kref *ref)
{
	struct m6npu_pool *pool = container_of(ref, struct m6npu_pool, ref);
	struct m6npu_pools *pools = &pool->m6npu->pools;

	/* From here on m6npu_pools_fini() does not see it. */
	scoped_guard(mutex, &pools->lock) {
		list_del(&pool->link);
		pool_unmap_segments(pool);
	}
	pool_free_segments(pool);
	mutex_destroy(&pool->lock);
	mutex_destroy(&pool->defrag_lock);
	kfree(pool);
}

void m6npu_pool_put(struct m6npu_pool *pool)
{
	kref_put(&pool->ref, pool_release);
}

/* Where pools of this id are kept. */
static struct xarray *pool_space(struct drm_file *file, u32 id)
{
	struct m6npu_context *ctx = file->driver_priv;

	if (id >= M6NPU_POOL_PERSISTENT_ID)
		return &ctx->m6npu->pools.persistent;
	return &ctx->pools;
}

struct m6npu_pool *m6npu_pool_lookup(struct drm_file *file, u32 id)
{
	struct xarray *space = pool_space(file, id);
	struct m6npu_pool *pool;

	xa_lock(space);
	pool = xa_load(space, id);
	if (pool)
		pool_get(pool);
	xa_unlock(space);
	return pool;
}

/* What anyone may do with a pool of their own takes a right with others'. */
bool m6npu_pool_may_administer(const struct m6npu_pool *pool)
{
	return !(pool->flags & DRM_M6NPU_POOL_PERSISTENT) ||
	       capable(CAP_SYS_ADMIN);
}

unsigned int m6npu_pool_segments(const struct m6npu_pool *pool)
{
	unsigned int i, count = 0;

	lockdep_assert_held(&pool->lock);
	for (i = 0; i < M6NPU_POOL_MAX_SEGMENTS; i++)
		count += !!pool->arena.size[i];
	return count;
}

/* ---- Creation ---- */

/*
 * As one segment if that works, else as up to @max_segments, largest first:
 * halve until it fits, but never below what the segments left must hold.
 */
static int pool_alloc_segments(struct m6npu_pool *pool, u64 size,
			       unsigned int max_segments)
{
	u64 left = size, chunk = size;
	unsigned int count = 0;
	int err;

	while (left) {
		struct m6npu_segment *segment = &pool->segments[count];
		u64 least = PAGE_ALIGN(DIV_ROUND_UP_ULL(left,
							max_segments - count));

		chunk = min(chunk, left);
		err = m6npu_segment_alloc(pool->m6npu, segment, chunk);
		if (!err) {
			m6npu_arena_add(&pool->arena, count++, segment->dma,
					chunk);
			left -= chunk;
			continue;
		}
		if (err != -ENOMEM || chunk <= least)
			goto err_free;
		err = -EINTR;
		if (fatal_signal_pending(current))
			goto err_free;
		chunk = max(PAGE_ALIGN(chunk / 2), least);
	}
	return 0;

err_free:
	pool_free_segments(pool);
	return err;
}

/**
 * m6npu_pools_warn - the line that users look for, and what would help
 * @m6npu: device
 * @size: bytes that could not be had
 * @where: of what
 * @largest: bytes that could be
 * @help: what to do
 */
void m6npu_pools_warn(struct m6npu_device *m6npu, u64 size,
		      const char *where, u64 largest, const char *help)
{
	static DEFINE_RATELIMIT_STATE(limit, 10 * HZ, 5);

	if (__ratelimit(&limit))
		drm_warn(&m6npu->drm,
			 "npu_dma_map_error: cannot map %llu bytes %s: largest free block %llu bytes; %s\n",
			 size, where, largest, help);
}

static void pool_report_failure(struct m6npu_device *m6npu, u64 size,
				unsigned int max_segments, int err)
{
	static DEFINE_RATELIMIT_STATE(limit, 30 * HZ, 1);
	u64 largest;

	if (err == -ERANGE)
		m6npu_pools_warn(m6npu, size, "for the device", 0,
				 "memory lies above what it can address; check the reserved memory");
	if (err == -EIO)
		m6npu_pools_warn(m6npu, size, "for the device", 0,
				 "the bus refuses it; check IOMMU and dma-ranges");
	if (err != -ENOMEM)
		return;
	/* To find out takes time. */
	if (!__ratelimit(&limit))
		return;
	largest = m6npu_segment_probe(m6npu, size);
	m6npu_pools_warn(m6npu, size,
			 max_segments > 1 ? "in the segments allowed" :
					    "in one segment",
			 largest,
			 "make the pool smaller, allow more segments, flush or destroy other pools, or boot with a larger cma=");
}

static struct m6npu_pool *pool_alloc(struct m6npu_device *m6npu, u32 flags)
{
	struct m6npu_pool *pool;

	if (m6npu_fault_due(m6npu))
		return NULL;
	pool = kzalloc(sizeof(*pool), GFP_KERNEL);
	if (!pool)
		return NULL;
	kref_init(&pool->ref);
	mutex_init(&pool->lock);
	mutex_init(&pool->defrag_lock);
	init_waitqueue_head(&pool->released);
	INIT_LIST_HEAD(&pool->dying_list);
	m6npu_arena_init(&pool->arena);
	pool->m6npu = m6npu;
	pool->flags = flags;
	pool->pid = task_tgid_nr(current);
	get_task_comm(pool->comm, current);
	return pool;
}

static struct m6npu_pool *pool_create(struct m6npu_device *m6npu, u64 size,
				      u32 flags, unsigned int max_segments)
{
	struct m6npu_pools *pools = &m6npu->pools;
	struct m6npu_pool *pool;
	int err;

	lockdep_assert_held(&pools->create_lock);
	pool = pool_alloc(m6npu, flags);
	if (!pool)
		return ERR_PTR(-ENOMEM);
	err = pool_alloc_segments(pool, size, max_segments);
	if (err) {
		pool_report_failure(m6npu, size, max_segments, err);
		mutex_destroy(&pool->lock);
		mutex_destroy(&pool->defrag_lock);
		kfree(pool);
		return ERR_PTR(err);
	}

	guard(mutex)(&pools->lock);
	list_add_tail(&pool->link, &pools->list);
	return pool;
}

/* Whether the file may have @size bytes more. */
static int pool_check_client(struct drm_file *file, u64 size)
{
	struct m6npu_context *ctx = to_m6npu_context(file);
	struct m6npu_pools *pools = &ctx->m6npu->pools;
	unsigned int percent = READ_ONCE(pool_client_percent);
	struct m6npu_pool *pool;
	unsigned long id;
	u64 limit;

	lockdep_assert_held(&pools->create_lock);
	if (percent >= 100 || capable(CAP_SYS_RESOURCE))
		return 0;
	limit = pools->area_size ?: (u64)totalram_pages() << PAGE_SHIFT;
	limit = mul_u64_u32_div(limit, percent, 100);
	xa_lock(&ctx->pools);
	xa_for_each(&ctx->pools, id, pool)
		size += pool->arena.total;
	xa_unlock(&ctx->pools);
	if (size <= limit)
		return 0;
	m6npu_pools_warn(ctx->m6npu, size, "for one client", limit,
			 "make the pool smaller, use a persistent pool, or raise the module parameter client_percent");
	return -EDQUOT;
}

static int pool_check_args(const struct drm_m6npu_pool_create *args)
{
	if (args->flags & ~DRM_M6NPU_POOL_PERSISTENT || args->pad)
		return -EINVAL;
	if (!args->size || args->size > M6NPU_VA_SIZE)
		return -EINVAL;
	if (args->max_segments > M6NPU_POOL_MAX_SEGMENTS)
		return -EINVAL;
	if (args->client_limit && !(args->flags & DRM_M6NPU_POOL_PERSISTENT))
		return -EINVAL;
	if (args->flags & DRM_M6NPU_POOL_PERSISTENT && !capable(CAP_SYS_ADMIN))
		return -EPERM;
	return 0;
}

/* Takes an id that nothing answers to yet. */
static int pool_reserve_id(struct xarray *space, u32 flags, u32 *id)
{
	struct xa_limit limit = XA_LIMIT(1, M6NPU_POOLS_PER_FILE);
	int err;

	if (flags & DRM_M6NPU_POOL_PERSISTENT)
		limit = XA_LIMIT(M6NPU_POOL_PERSISTENT_ID,
				 M6NPU_POOL_PERSISTENT_ID +
				 M6NPU_POOLS_PERSISTENT - 1);
	err = xa_alloc(space, id, NULL, limit, GFP_KERNEL);
	return err == -EBUSY ? -ENOSPC : err;
}

/* The pool as the caller wants it, under an id that is reserved. */
static int pool_create_as(struct drm_file *file, struct xarray *space, u32 id,
			  const struct drm_m6npu_pool_create *args)
{
	struct m6npu_context *ctx = to_m6npu_context(file);
	struct m6npu_pools *pools = &ctx->m6npu->pools;
	struct m6npu_pool *pool;
	int err;

	/* Lest a probe take away what another caller could have had. */
	err = mutex_lock_interruptible(&pools->create_lock);
	if (err)
		return err;
	if (space == &ctx->pools)
		err = pool_check_client(file, args->size);
	if (err)
		goto unlock;
	pool = pool_create(ctx->m6npu, args->size, args->flags,
			   max(args->max_segments, 1));
	if (IS_ERR(pool)) {
		err = PTR_ERR(pool);
		goto unlock;
	}
	pool->id = id;
	pool->client_limit = args->client_limit;
	/* Takes the place of the reservation, so nothing is allocated. */
	xa_store(space, id, pool, GFP_KERNEL);
unlock:
	mutex_unlock(&pools->create_lock);
	return err;
}

int m6npu_pool_create_ioctl(struct drm_device *drm, void *data,
			    struct drm_file *file)
{
	struct m6npu_context *ctx = to_m6npu_context(file);
	struct drm_m6npu_pool_create *args = data;
	struct xarray *space = &ctx->pools;
	int err, idx;

	err = pool_check_args(args);
	if (err) {
		drm_dbg(drm, "pool of %llu bytes, flags %#x, refused: %d\n",
			args->size, args->flags, err);
		return err;
	}
	args->size = PAGE_ALIGN(args->size);
	if (args->flags & DRM_M6NPU_POOL_PERSISTENT)
		space = &ctx->m6npu->pools.persistent;

	err = pool_reserve_id(space, args->flags, &args->pool);
	if (err)
		return err;
	err = -ENODEV;
	/* Up to the end: m6npu_pools_fini() must find the pool. */
	if (drm_dev_enter(drm, &idx)) {
		err = pool_create_as(file, space, args->pool, args);
		drm_dev_exit(idx);
	}
	if (err)
		xa_erase(space, args->pool);
	return err;
}

/* ---- End ---- */

/* Waits until another block than those before @releases was given back. */
long m6npu_pool_wait_released(struct m6npu_pool *pool, u32 releases,
			      long timeout)
{
	return wait_event_interruptible_timeout(pool->released,
			READ_ONCE(pool->releases) != releases, timeout);
}

/* No new buffers from here on; waits for those that are dying. */
static int pool_close(struct m6npu_pool *pool)
{
	for (;;) {
		u32 releases;
		long left;

		scoped_guard(mutex, &pool->lock) {
			if (pool->destroyed)
				return -ENOENT;
			if (pool->arena.blocks > pool->dying)
				return -EBUSY;
			if (!pool->arena.blocks) {
				pool->destroyed = true;
				return 0;
			}
			releases = pool->releases;
		}
		left = m6npu_pool_wait_released(pool, releases,
						MAX_SCHEDULE_TIMEOUT);
		if (left < 0)
			return left;
	}
}

int m6npu_pool_destroy_ioctl(struct drm_device *drm, void *data,
			     struct drm_file *file)
{
	struct drm_m6npu_pool_destroy *args = data;
	struct m6npu_pool *pool;
	int err;

	if (args->pad)
		return -EINVAL;
	pool = m6npu_pool_lookup(file, args->pool);
	if (!pool)
		return -ENOENT;

	err = m6npu_pool_may_administer(pool) ? pool_close(pool) : -EPERM;
	if (!err) {
		/* Unless an unbind was faster. */
		if (xa_erase(pool_space(file, pool->id), pool->id) == pool)
			m6npu_pool_put(pool);
	} else {
		drm_dbg(drm, "pool %u not destroyed: %d\n", args->pool, err);
	}
	m6npu_pool_put(pool);
	return err;
}

/* ---- Figures ---- */

static void pool_add_info(struct m6npu_pool *pool, struct drm_file *file,
			  struct drm_m6npu_pool_info *info)
{
	struct m6npu_context *ctx = to_m6npu_context(file);
	const struct m6npu_arena *arena = &pool->arena;

	guard(mutex)(&pool->lock);
	info->size += arena->total;
	info->used += arena->used;
	info->largest_free = max(info->largest_free,
				 m6npu_arena_largest(arena));
	info->buffers += arena->blocks;
	info->segments += m6npu_pool_segments(pool);
	info->pinned += arena->pinned;
	info->client_used += pool->usage[ctx->vm->asid].used;
}

/* Adds up the pools of an id space. */
static void pool_add_space(struct drm_file *file, u32 id,
			   struct drm_m6npu_pool_info *info)
{
	struct xarray *space = pool_space(file, id);
	struct m6npu_pool *pool;
	unsigned long at;

	xa_for_each(space, at, pool) {
		pool = m6npu_pool_lookup(file, at);
		if (!pool)
			continue;
		pool_add_info(pool, file, info);
		m6npu_pool_put(pool);
	}
}

/* The lowest id above @id that the file may use, 0 if there is none. */
static u32 pool_next_id(struct drm_file *file, u32 id)
{
	unsigned long next = id;

	if (id < M6NPU_POOL_PERSISTENT_ID) {
		if (xa_find_after(pool_space(file, id), &next,
				  M6NPU_POOL_PERSISTENT_ID - 1, XA_PRESENT))
			return next;
		next = M6NPU_POOL_PERSISTENT_ID - 1;
	}
	if (xa_find_after(pool_space(file, M6NPU_POOL_PERSISTENT_ID), &next,
			  U32_MAX, XA_PRESENT))
		return next;
	return 0;
}

int m6npu_pool_info_ioctl(struct drm_device *drm, void *data,
			  struct drm_file *file)
{
	struct drm_m6npu_pool_info *args = data;
	struct drm_m6npu_pool_info info = { .pool = args->pool };
	struct m6npu_pool *pool;

	if (!args->pool) {
		pool_add_space(file, 0, &info);
		pool_add_space(file, M6NPU_POOL_PERSISTENT_ID, &info);
	} else {
		pool = m6npu_pool_lookup(file, args->pool);
		if (!pool)
			return -ENOENT;
		info.flags = pool->flags;
		info.client_limit = pool->client_limit;
		pool_add_info(pool, file, &info);
		m6npu_pool_put(pool);
	}
	info.next = pool_next_id(file, args->pool);
	*args = info;
	return 0;
}

/* ---- Device and context ---- */

/* The size of the area is not to be had of the area. */
static u64 pools_reserved_size(struct device *dev)
{
	struct device_node *node;
	struct reserved_mem *mem;

	node = of_parse_phandle(dev->of_node, "memory-region", 0);
	mem = of_reserved_mem_lookup(node);
	of_node_put(node);
	return mem ? mem->size : 0;
}

/*
 * Call it after the driver's own coherent allocations, so that they do not
 * come out of the device's area and cut it up.
 */
int m6npu_pools_init(struct m6npu_device *m6npu)
{
	struct m6npu_pools *pools = &m6npu->pools;
	struct device *dev = m6npu->drm.dev;
	int err;

	mutex_init(&pools->lock);
	mutex_init(&pools->create_lock);
	INIT_LIST_HEAD(&pools->list);
	xa_init_flags(&pools->persistent, XA_FLAGS_ALLOC);

	err = dev->of_node ? of_reserved_mem_device_init(dev) : -ENODEV;
	if (err && err != -ENODEV) {
		drm_err(&m6npu->drm, "cannot use the reserved memory: %d\n",
			err);
		return err;
	}
	pools->of_reserved = !err;
	if (pools->of_reserved)
		pools->area_size = pools_reserved_size(dev);
#ifdef M6NPU_HAVE_CMA
	pools->area = dev_get_cma_area(dev);
#endif
	return 0;
}

/*
 * For those who want the pool before anything else runs. Not worth failing for:
 * the log says what is wrong, and npu_mem_pool_prealloc can try again.
 */
void m6npu_pools_prealloc(struct m6npu_device *m6npu)
{
	struct m6npu_pools *pools = &m6npu->pools;
	struct m6npu_pool *pool;
	u32 id;

	if (!pool_prealloc_mb ||
	    pool_reserve_id(&pools->persistent, DRM_M6NPU_POOL_PERSISTENT, &id))
		return;
	guard(mutex)(&pools->create_lock);
	pool = pool_create(m6npu, (u64)pool_prealloc_mb * SZ_1M,
			   DRM_M6NPU_POOL_PERSISTENT, 1);
	if (IS_ERR(pool)) {
		xa_erase(&pools->persistent, id);
		return;
	}
	pool->id = id;
	xa_store(&pools->persistent, id, pool, GFP_KERNEL);
}

/*
 * When the device goes: after the unplug, when no job can touch memory any
 * more. Pools with buffers in open files stay, but out of the device's reach.
 */
void m6npu_pools_fini(struct m6npu_device *m6npu)
{
	struct m6npu_pools *pools = &m6npu->pools;
	struct m6npu_pool *pool;
	unsigned long id;

	xa_for_each(&pools->persistent, id, pool) {
		if (xa_erase(&pools->persistent, id) == pool)
			m6npu_pool_put(pool);
	}

	guard(mutex)(&pools->lock);
	list_for_each_entry(pool, &pools->list, link)
		pool_unmap_segments(pool);
	if (pools->of_reserved)
		of_reserved_mem_device_release(m6npu->drm.dev);
	pools->of_reserved = false;
}

int m6npu_context_pools_init(struct m6npu_context *ctx)
{
	xa_init_flags(&ctx->pools, XA_FLAGS_ALLOC1);
	return 0;
}

void m6npu_context_pools_fini(struct m6npu_context *ctx)
{
	struct m6npu_pool *pool;
	unsigned long id;

	xa_for_each(&ctx->pools, id, pool)
		m6npu_pool_put(pool);
	xa_destroy(&ctx->pools);
}
