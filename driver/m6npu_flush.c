// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Flush
 *
 * POOL_FLUSH gives back what nothing needs: blocks of buffers that are closed
 * but that jobs still use, once those ended, and segments without a block. The
 * last segment stays, since a pool that was to be contiguous could not get as
 * much again.
 */
#include <drm/drm_device.h>
#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/m6npu_accel.h>

#include "m6npu_device.h"
#include "m6npu_pool.h"

/* A buffer is there that was dying when @retired had died or begun to. */
static bool pool_has_dying(struct m6npu_pool *pool, u64 retired)
{
	struct m6npu_block *oldest;

	lockdep_assert_held(&pool->lock);
	oldest = list_first_entry_or_null(&pool->dying_list,
					  struct m6npu_block, dying);
	return oldest && oldest->retired <= retired;
}

/* Waits for the buffers that are dying, not for those that begin to. */
static int pool_wait_dying(struct m6npu_pool *pool, u64 *freed)
{
	u32 releases;
	u64 retired;

	scoped_guard(mutex, &pool->lock) {
		*freed = pool->dying_size;
		retired = pool->retired;
	}
	for (;;) {
		long left;

		scoped_guard(mutex, &pool->lock) {
			releases = pool->releases;
			if (!pool_has_dying(pool, retired))
				return 0;
		}
		left = m6npu_pool_wait_released(pool, releases,
						MAX_SCHEDULE_TIMEOUT);
		if (left < 0)
			return left;
	}
}

/* Takes an empty segment out of the pool, if it is not the only one. */
static bool pool_take_empty(struct m6npu_pool *pool,
			    struct m6npu_segment *segment)
{
	unsigned int i;

	guard(mutex)(&pool->lock);
	if (m6npu_pool_segments(pool) == 1)
		return false;
	for (i = M6NPU_POOL_MAX_SEGMENTS; i--;) {
		if (!pool->arena.size[i] ||
		    !m6npu_arena_is_empty(&pool->arena, i))
			continue;
		m6npu_arena_drop(&pool->arena, i);
		*segment = pool->segments[i];
		pool->segments[i].size = 0;
		pool->segments[i].mapped = false;
		return true;
	}
	return false;
}

static int pool_flush(struct m6npu_pool *pool,
		      struct drm_m6npu_pool_flush *args)
{
	struct m6npu_segment segment;
	int err, idx;

	args->released = 0;
	/* Outside: the end of jobs may be waited for, as by an unbind. */
	err = pool_wait_dying(pool, &args->freed);
	if (err)
		return err;
	if (!drm_dev_enter(&pool->m6npu->drm, &idx))
		return -ENODEV;
	while (pool_take_empty(pool, &segment)) {
		args->released += segment.size;
		m6npu_segment_free(pool->m6npu, &segment);
	}
	drm_dev_exit(idx);
	guard(mutex)(&pool->lock);
	args->largest_free = m6npu_arena_largest(&pool->arena);
	return 0;
}

int m6npu_pool_flush_ioctl(struct drm_device *drm, void *data,
			   struct drm_file *file)
{
	struct drm_m6npu_pool_flush *args = data;
	struct m6npu_pool *pool;
	int err;

	if (args->flags)
		return -EINVAL;
	pool = m6npu_pool_lookup(file, args->pool);
	if (!pool)
		return -ENOENT;
	err = m6npu_pool_may_administer(pool) ? pool_flush(pool, args) :
						-EPERM;
	m6npu_pool_put(pool);
	return err;
}
