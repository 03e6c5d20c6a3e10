// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Pools
 *
 * The device wants its weights in large physically contiguous pieces, and the
 * system cannot promise those at any later time than now. So userspace asks
 * once, for a pool, and takes its buffers from that.
 *
 * A pool is one segment, or a few if its creator allows; a buffer is a block
 * inside one segment, found by best fit. Blocks are kept in bus addresses, so
 * that "aligned" means what the device's page tables mean by it.
 *
 * A pool belongs to an open file and is only known there, or is persistent:
 * created by the administrator, known to every user of the device, and gone
 * when the administrator says so or the device goes. Both kinds live on, out
 * of sight, until their last buffer is gone.
 *
 * Buffers end late: one that was closed while jobs run is only given back when
 * those ended (see m6npu_gem.c). Such blocks are counted as dying. Whoever
 * finds the pool full or wants to destroy it waits for them.
 */

#include <linux/capability.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/of.h>
#include <linux/of_reserved_mem.h>
#include <linux/ratelimit.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
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

/* How long a buffer that does not fit waits for those that are dying. */
#define POOL_RECLAIM_MS		2000
/* Cleared between two looks at pending signals. */
#define POOL_CLEAR_STEP		SZ_1M
/* Characters of a segment's map in debugfs. */
#define POOL_MAP_CELLS		64

static struct m6npu_pool *pool_get(struct m6npu_pool *pool)
{
	kref_get(&pool->ref);
	return pool;
}

static void pool_free_segments(struct m6npu_pool *pool)
{
	while (pool->segment_count)
		m6npu_segment_free(pool->m6npu,
				   &pool->segments[--pool->segment_count]);
}

static void pool_release(struct kref *ref)
{
	struct m6npu_pool *pool = container_of(ref, struct m6npu_pool, ref);
	struct m6npu_pools *pools = &pool->m6npu->pools;

	/* From here on m6npu_pools_fini() does not see it. */
	scoped_guard(mutex, &pools->lock) {
		unsigned int i;

		list_del(&pool->link);
		for (i = 0; i < pool->segment_count; i++)
			m6npu_segment_unmap(pool->m6npu, &pool->segments[i]);
	}
	pool_free_segments(pool);
	mutex_destroy(&pool->lock);
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

/*
 * As one segment if that works, else as up to @max_segments, largest first:
 * halve until it fits, but never below what the segments left must hold.
 */
static int pool_alloc_segments(struct m6npu_pool *pool, u64 size,
			       unsigned int max_segments)
{
	u64 left = size, chunk = size;
	int err;

	while (left) {
		unsigned int slots = max_segments - pool->segment_count;
		u64 least = PAGE_ALIGN(DIV_ROUND_UP_ULL(left, slots));

		chunk = min(chunk, left);
		err = m6npu_segment_alloc(pool->m6npu,
					  &pool->segments[pool->segment_count],
					  chunk);
		if (!err) {
			pool->segment_count++;
			left -= chunk;
			continue;
		}
		if (chunk <= least || fatal_signal_pending(current))
			goto err_free;
		chunk = max(PAGE_ALIGN(chunk / 2), least);
	}
	return 0;

err_free:
	pool_free_segments(pool);
	return err;
}

static void pool_report_failure(struct m6npu_device *m6npu, u64 size,
				unsigned int max_segments)
{
	static DEFINE_RATELIMIT_STATE(limit, 30 * HZ, 1);
	u64 largest;

	if (!__ratelimit(&limit))
		return;
	largest = m6npu_segment_probe(m6npu, size);
	drm_warn(&m6npu->drm,
		 "npu_dma_map_error: cannot map %llu bytes in %u segment(s): largest free block about %llu bytes; make the pool smaller, allow more segments, destroy or defragment other pools, or boot with a larger cma=\n",
		 size, max_segments, largest);
}

static struct m6npu_pool *pool_create(struct m6npu_device *m6npu, u64 size,
				      u32 flags, unsigned int max_segments)
{
	struct m6npu_pools *pools = &m6npu->pools;
	struct m6npu_pool *pool;
	int err;

	pool = kzalloc(sizeof(*pool), GFP_KERNEL);
	if (!pool)
		return ERR_PTR(-ENOMEM);
	kref_init(&pool->ref);
	mutex_init(&pool->lock);
	init_waitqueue_head(&pool->released);
	pool->m6npu = m6npu;
	pool->flags = flags;
	pool->size = size;
	pool->pid = task_tgid_nr(current);
	get_task_comm(pool->comm, current);

	/* Lest a probe take away what another caller could have had. */
	mutex_lock(&pools->create_lock);
	err = pool_alloc_segments(pool, size, max_segments);
	if (err)
		pool_report_failure(m6npu, size, max_segments);
	mutex_unlock(&pools->create_lock);
	if (err) {
		mutex_destroy(&pool->lock);
		kfree(pool);
		return ERR_PTR(-ENOMEM);
	}

	guard(mutex)(&pools->lock);
	list_add_tail(&pool->link, &pools->list);
	return pool;
}

static int pool_check_args(const struct drm_m6npu_pool_create *args)
{
	if (args->flags & ~DRM_M6NPU_POOL_PERSISTENT || args->pad)
		return -EINVAL;
	if (!args->size || args->size > M6NPU_VA_SIZE)
		return -EINVAL;
	if (args->max_segments > M6NPU_POOL_MAX_SEGMENTS)
		return -EINVAL;
	if (args->flags & DRM_M6NPU_POOL_PERSISTENT && !capable(CAP_SYS_ADMIN))
		return -EPERM;
	return 0;
}

/* Takes an id that nothing answers to yet. */
static int pool_reserve_id(struct drm_file *file, u32 flags, u32 *id)
{
	struct xa_limit limit = XA_LIMIT(1, M6NPU_POOLS_PER_FILE);
	int err;

	if (flags & DRM_M6NPU_POOL_PERSISTENT)
		limit = XA_LIMIT(M6NPU_POOL_PERSISTENT_ID,
				 M6NPU_POOL_PERSISTENT_ID +
				 M6NPU_POOLS_PERSISTENT - 1);
	err = xa_alloc(pool_space(file, limit.min), id, NULL, limit,
		       GFP_KERNEL);
	return err == -EBUSY ? -ENOSPC : err;
}

int m6npu_pool_create_ioctl(struct drm_device *drm, void *data,
			    struct drm_file *file)
{
	struct m6npu_device *m6npu = to_m6npu_device(drm);
	struct drm_m6npu_pool_create *args = data;
	struct m6npu_pool *pool;
	u64 size;
	u32 id;
	int err, idx;

	err = pool_check_args(args);
	if (err) {
		drm_dbg(drm, "pool of %llu bytes, flags %#x, refused: %d\n",
			args->size, args->flags, err);
		return err;
	}
	size = PAGE_ALIGN(args->size);

	err = pool_reserve_id(file, args->flags, &id);
	if (err)
		return err;
	if (!drm_dev_enter(drm, &idx)) {
		err = -ENODEV;
		goto err_id;
	}
	pool = pool_create(m6npu, size, args->flags,
			   max(args->max_segments, 1));
	if (IS_ERR(pool)) {
		err = PTR_ERR(pool);
		goto err_dev;
	}

	pool->id = id;
	args->size = size;
	args->pool = id;
	/* Takes the place of the reservation, so nothing is allocated. */
	xa_store(pool_space(file, id), id, pool, GFP_KERNEL);
	/* Not before: m6npu_pools_fini() must find the pool. */
	drm_dev_exit(idx);
	return 0;

err_dev:
	drm_dev_exit(idx);
err_id:
	xa_erase(pool_space(file, id), id);
	return err;
}

/* Waits until another block than those before @releases was given back. */
static long pool_wait_released(struct m6npu_pool *pool, u32 releases,
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
			if (pool->blocks > pool->dying)
				return -EBUSY;
			if (!pool->blocks) {
				pool->destroyed = true;
				return 0;
			}
			releases = pool->releases;
		}
		left = pool_wait_released(pool, releases,
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

	if (pool->flags & DRM_M6NPU_POOL_PERSISTENT && !capable(CAP_SYS_ADMIN))
		err = -EPERM;
	else
		err = pool_close(pool);
	if (!err) {
		xa_erase(pool_space(file, pool->id), pool->id);
		m6npu_pool_put(pool);
	} else {
		drm_dbg(drm, "pool %u not destroyed: %d\n", args->pool, err);
	}
	m6npu_pool_put(pool);
	return err;
}

static u64 segment_largest_free(struct m6npu_segment *segment)
{
	struct drm_mm_node *node;
	u64 start, end, largest = 0;

	drm_mm_for_each_hole(node, &segment->mm, start, end)
		largest = max(largest, end - start);
	return largest;
}

static u64 pool_largest_free(struct m6npu_pool *pool)
{
	u64 largest = 0;
	unsigned int i;

	lockdep_assert_held(&pool->lock);
	for (i = 0; i < pool->segment_count; i++)
		largest = max(largest,
			      segment_largest_free(&pool->segments[i]));
	return largest;
}

static void pool_add_info(struct m6npu_pool *pool,
			  struct drm_m6npu_pool_info *info)
{
	guard(mutex)(&pool->lock);
	info->size += pool->size;
	info->used += pool->used;
	info->largest_free = max(info->largest_free, pool_largest_free(pool));
	info->buffers += pool->blocks;
	info->segments += pool->segment_count;
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
		pool_add_info(pool, info);
		m6npu_pool_put(pool);
	}
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
		pool_add_info(pool, &info);
		m6npu_pool_put(pool);
	}
	*args = info;
	return 0;
}

/* ---- Blocks ---- */

static int pool_insert(struct m6npu_pool *pool, struct m6npu_block *block,
		       u64 size, u64 align)
{
	unsigned int i;

	for (i = 0; i < pool->segment_count; i++) {
		block->segment = &pool->segments[i];
		if (!drm_mm_insert_node_generic(&block->segment->mm,
						&block->node, size, align, 0,
						DRM_MM_INSERT_BEST))
			return 0;
	}
	return -ENOSPC;
}

/*
 * The device's large pages want aligned memory. Where a block does not fill
 * them, alignment leaves holes; they must stay small against the block.
 */
static bool block_wants_large(u64 size)
{
	return size >= 16 * M6NPU_LARGE_PAGE_SIZE ||
	       (size && IS_ALIGNED(size, M6NPU_LARGE_PAGE_SIZE));
}

static int block_try_alloc(struct m6npu_pool *pool, struct m6npu_block *block,
			   u64 size, u32 *releases)
{
	int err = -ENOSPC;

	guard(mutex)(&pool->lock);
	if (pool->destroyed)
		return -ENOENT;
	if (block_wants_large(size))
		err = pool_insert(pool, block, size, M6NPU_LARGE_PAGE_SIZE);
	if (err)
		err = pool_insert(pool, block, size, PAGE_SIZE);
	if (!err) {
		pool->used += size;
		pool->blocks++;
	} else if (pool->dying) {
		err = -EAGAIN;
	}
	*releases = pool->releases;
	return err;
}

int m6npu_block_alloc(struct m6npu_pool *pool, struct m6npu_block *block,
		      u64 size)
{
	long left = msecs_to_jiffies(POOL_RECLAIM_MS);
	u32 releases;
	int err;

	for (;;) {
		err = block_try_alloc(pool, block, size, &releases);
		if (err != -EAGAIN)
			return err;
		left = pool_wait_released(pool, releases, left);
		if (left < 0)
			return left;
		if (!left)
			return -ENOSPC;
	}
}

/* The block's buffer has no handle any more. */
void m6npu_block_retire(struct m6npu_pool *pool)
{
	guard(mutex)(&pool->lock);
	pool->dying++;
}

/* @dying: m6npu_block_retire() was called for it. */
void m6npu_block_free(struct m6npu_pool *pool, struct m6npu_block *block,
		      bool dying)
{
	scoped_guard(mutex, &pool->lock) {
		pool->used -= block->node.size;
		pool->blocks--;
		pool->dying -= dying;
		WRITE_ONCE(pool->releases, pool->releases + 1);
		drm_mm_remove_node(&block->node);
	}
	wake_up_all(&pool->released);
}

/* Returns -EINTR if the caller is being killed. */
int m6npu_block_clear(struct m6npu_pool *pool, struct m6npu_block *block)
{
	u8 *at = page_address(m6npu_block_page(block));
	u64 left = block->node.size;

	while (left) {
		u64 step = min(left, POOL_CLEAR_STEP);

		if (fatal_signal_pending(current))
			return -EINTR;
		memset(at, 0, step);
		at += step;
		left -= step;
		cond_resched();
	}
	dma_sync_single_for_device(pool->m6npu->drm.dev,
				   m6npu_block_dma(block), block->node.size,
				   DMA_BIDIRECTIONAL);
	return 0;
}

/* ---- debugfs ---- */

static const char *segment_source_name(const struct m6npu_segment *segment)
{
	switch (segment->source) {
	case M6NPU_SEGMENT_CMA:
		return "contiguous area";
	case M6NPU_SEGMENT_CONTIG:
		return "ordinary memory";
	case M6NPU_SEGMENT_DMA:
		return "DMA pages";
	}
	return "?";
}

/* Fills in how many bytes of each cell of @cell_size are taken. */
static void segment_fill_cells(struct m6npu_segment *segment, u64 cell_size,
			       u64 *cells)
{
	struct drm_mm_node *node;

	drm_mm_for_each_node(node, &segment->mm) {
		u64 at = node->start - segment->dma;
		u64 end = at + node->size;

		while (at < end) {
			u64 cell = div64_u64(at, cell_size);
			u64 next = min(end, (cell + 1) * cell_size);

			cells[cell] += next - at;
			at = next;
		}
	}
}

static void segment_show(struct seq_file *m, struct m6npu_segment *segment,
			 unsigned int index)
{
	u64 cell_size = max_t(u64, PAGE_SIZE,
			      DIV_ROUND_UP_ULL(segment->size, POOL_MAP_CELLS));
	u64 count = DIV64_U64_ROUND_UP(segment->size, cell_size);
	u64 cells[POOL_MAP_CELLS] = {};
	unsigned int i;

	segment_fill_cells(segment, cell_size, cells);
	seq_printf(m, "  segment %u: %llu bytes of %s, largest free %llu\n",
		   index, segment->size, segment_source_name(segment),
		   segment_largest_free(segment));
	seq_puts(m, "    |");
	for (i = 0; i < count; i++) {
		u64 room = min(cell_size, segment->size - i * cell_size);

		seq_putc(m, cells[i] == room ? '#' : cells[i] ? '+' : '.');
	}
	seq_printf(m, "| %llu KiB each, # taken, + partly, . free\n",
		   cell_size / SZ_1K);
}

static u64 pool_show(struct seq_file *m, struct m6npu_pool *pool)
{
	bool persistent = pool->flags & DRM_M6NPU_POOL_PERSISTENT;
	u64 largest;
	unsigned int i;

	guard(mutex)(&pool->lock);
	largest = pool_largest_free(pool);
	seq_printf(m, "pool %u: %s, owner %d (%s)\n", pool->id,
		   persistent ? "persistent" : "private", pool->pid,
		   pool->comm);
	seq_printf(m, "  size %llu, used %llu, largest_free_block %llu, buffers %u (%u dying), segments %u%s\n",
		   pool->size, pool->used, largest, pool->blocks, pool->dying,
		   pool->segment_count, pool->destroyed ? ", destroyed" : "");
	for (i = 0; i < pool->segment_count; i++)
		segment_show(m, &pool->segments[i], i);
	return largest;
}

/* Physical addresses are nobody's business, so all of it is offsets. */
void m6npu_pools_show(struct seq_file *m, struct m6npu_device *m6npu)
{
	struct m6npu_pools *pools = &m6npu->pools;
	struct m6npu_pool *pool;
	u64 size = 0, used = 0, largest = 0;

	guard(mutex)(&pools->lock);
	list_for_each_entry(pool, &pools->list, link) {
		largest = max(largest, pool_show(m, pool));
		size += pool->size;
		used += READ_ONCE(pool->used);
	}
	seq_printf(m, "area: %s, %llu bytes\n",
		   pools->of_reserved ? "device tree" :
		   pools->area ? "system" : "none", pools->area_size);
	seq_printf(m, "ordinary_memory: %llu\n", pools->reserved);
	seq_printf(m, "total: %llu\n", size);
	seq_printf(m, "used: %llu\n", used);
	seq_printf(m, "largest_free_block: %llu\n", largest);
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
 * When the device goes: after the unplug, when no job can touch memory any
 * more. Pools with buffers in open files stay, but out of the device's reach.
 */
void m6npu_pools_fini(struct m6npu_device *m6npu)
{
	struct m6npu_pools *pools = &m6npu->pools;
	struct m6npu_pool *pool;
	unsigned long id;

	xa_for_each(&pools->persistent, id, pool) {
		xa_erase(&pools->persistent, id);
		m6npu_pool_put(pool);
	}

	guard(mutex)(&pools->lock);
	list_for_each_entry(pool, &pools->list, link) {
		unsigned int i;

		for (i = 0; i < pool->segment_count; i++)
			m6npu_segment_unmap(m6npu, &pool->segments[i]);
	}
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
