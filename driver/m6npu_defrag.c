// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Defragmentation
 *
 * POOL_DEFRAG moves buffers of a pool, at any time, so that what is free of it
 * becomes contiguous. Which moves, m6npu_plan.c says, one by one. A move is
 *
 * 1. No job of the buffer's address space is running, and none begins: SUBMIT
 *    waits at the gate while those that are queued come to their end. Jobs of
 *    others go on.
 * 2. CPU mappings are zapped, under the reservation. Who touches one waits in
 *    the fault, and then finds the new place.
 * 3. What was used of the buffer is copied, by the device if it is much, and the
 *    page tables are rewritten. Device addresses stay.
 * 4. Translations are invalidated, and the gate opens.
 *
 * As many moves as fit in a slice of time are made behind one closed gate; then
 * it opens. It is a mutex: who waits there may find it closed again once, but
 * then it is handed over, so a job gets through after two slices at the latest.
 * The longest time that it was closed is in the report. Who is no administrator and
 * moves what is others' gives them as much time as it took from them.
 *
 * Some buffers stay: those with pins (shared by a dma-buf, or mapped by a
 * window), those about to be freed, and all of an address space whose jobs do
 * not come to an end in time.
 *
 * Lock order: &m6npu_pool.defrag_lock, &m6npu_vm.gate, reservation,
 * &m6npu_pool.lock, &m6npu_vm.lock. Under the pool's lock a buffer that has
 * references keeps its block: who drops the last must take that lock first.
 */
#include <linux/bitmap.h>
#include <linux/capability.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>

#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_print.h>
#include <drm/drm_vma_manager.h>
#include <drm/m6npu_accel.h>

#include "m6npu_context.h"
#include "m6npu_copy.h"
#include "m6npu_device.h"
#include "m6npu_gem.h"
#include "m6npu_mmu.h"
#include "m6npu_pool.h"
#include "m6npu_trace.h"

/* Jobs are held back about this long at a time, or for one move. */
#define DEFRAG_SLICE_NS		(20 * NSEC_PER_MSEC)
/* Copied between two looks at whether something else wants to run. */
#define DEFRAG_COPY_STEP	SZ_1M

/**
 * struct m6npu_defrag - one call of POOL_DEFRAG
 */
struct m6npu_defrag {
	/** @pool: what is compacted */
	struct m6npu_pool *pool;
	/** @args: the caller's, for flags and report */
	struct drm_m6npu_pool_defrag *args;
	/** @plan: how far it got */
	struct m6npu_plan plan;
	/** @own: the caller's address space */
	struct m6npu_vm *own;
	/** @busy: address spaces whose jobs do not end */
	DECLARE_BITMAP(busy, M6NPU_ADDRESS_SPACES);
	/** @copier: the device's help; NULL before it is needed */
	struct m6npu_copier *copier;
	/** @cpu_only: there is no help to be had */
	bool cpu_only;
};

static struct m6npu_bo *block_to_bo(const struct m6npu_block *block)
{
	return container_of(block, struct m6npu_bo, block);
}

/* Neither one that is being made, nor one that is about to be freed. */
static bool defrag_can_move(const struct m6npu_block *block, void *data)
{
	const struct m6npu_defrag *defrag = data;
	struct m6npu_bo *bo = block_to_bo(block);

	return m6npu_bo_is_live(bo) && kref_read(&bo->base.refcount) &&
	       !test_bit(bo->vm->asid, defrag->busy);
}

/* ---- Copying ---- */

static u64 defrag_copy_device(struct m6npu_defrag *defrag, dma_addr_t dst,
			      dma_addr_t src, u64 size)
{
	struct m6npu_copier *copier = defrag->copier;
	u64 done = 0;

	if (defrag->cpu_only || size < M6NPU_COPY_MIN)
		return 0;
	if (!copier) {
		copier = m6npu_copier_create(defrag->pool->m6npu);
		if (IS_ERR(copier)) {
			defrag->cpu_only = true;
			return 0;
		}
		defrag->copier = copier;
	}
	if (m6npu_copier_copy(copier, dst, src, size, &done) == -EOPNOTSUPP)
		return done;
	/* A device that failed once is not asked again. */
	defrag->cpu_only = done < size;
	return done;
}

/* Upwards, so that ranges may overlap if the destination is below. */
static void defrag_copy_cpu(void *dst, const void *src, u64 size)
{
	u64 at;

	for (at = 0; at < size; at += DEFRAG_COPY_STEP) {
		memmove(dst + at, src + at,
			min_t(u64, size - at, DEFRAG_COPY_STEP));
		cond_resched();
	}
}

/*
 * Caches, where the device does not snoop them: what either side wrote is in
 * memory before it is copied, and nothing stale is left over the copy.
 */
static void defrag_copy(struct m6npu_defrag *defrag,
			const struct m6npu_bo *bo,
			const struct m6npu_block *to, u64 offset, u64 size)
{
	dma_addr_t src = m6npu_block_dma(&bo->block) + offset;
	dma_addr_t dst = m6npu_block_dma(to) + offset;
	struct device *dev = bo->base.dev->dev;
	void *src_cpu = page_address(m6npu_block_page(defrag->pool,
						      &bo->block));
	void *dst_cpu = page_address(m6npu_block_page(defrag->pool, to));
	u64 done;

	dma_sync_single_for_device(dev, src, size, DMA_BIDIRECTIONAL);
	dma_sync_single_for_device(dev, dst, size, DMA_BIDIRECTIONAL);
	done = defrag_copy_device(defrag, dst, src, size);
	defrag->args->copied += size;
	defrag->args->copied_device += done;
	dma_sync_single_for_cpu(dev, src, size, DMA_BIDIRECTIONAL);
	if (done)
		dma_sync_single_for_cpu(dev, dst, done, DMA_BIDIRECTIONAL);
	if (done == size)
		return;
	defrag_copy_cpu(dst_cpu + offset + done, src_cpu + offset + done,
			size - done);
	dma_sync_single_for_device(dev, dst + done, size - done,
				   DMA_BIDIRECTIONAL);
}

/* ---- Moving ---- */

/* The next run of pieces that were used, after @run, which begins as zero. */
static bool defrag_next_ready(const struct m6npu_bo *bo,
			      struct m6npu_piece *run)
{
	unsigned int pieces = m6npu_bo_pieces(bo), first, end;
	u64 at = run->offset + run->size;

	if (at == bo->va.size)
		return false;
	first = find_next_bit(bo->ready, pieces, m6npu_bo_piece_at(bo, at));
	if (first >= pieces)
		return false;
	end = find_next_zero_bit(bo->ready, pieces, first);
	run->offset = m6npu_bo_piece(bo, first).offset;
	run->size = (end < pieces ? m6npu_bo_piece(bo, end).offset :
				    bo->va.size) - run->offset;
	return true;
}

/* No job is there to see it; translations are invalidated afterwards. */
static void defrag_move(struct m6npu_defrag *defrag,
			const struct m6npu_move *move)
{
	struct m6npu_bo *bo = block_to_bo(move->block);
	struct m6npu_block to = {
		.node.start = move->start,
		.segment = move->segment,
	};
	struct m6npu_piece run = {};

	lockdep_assert_held(&defrag->pool->lock);
	dma_resv_assert_held(bo->base.resv);
	drm_vma_node_unmap(&bo->base.vma_node,
			   bo->base.dev->anon_inode->i_mapping);
	while (defrag_next_ready(bo, &run)) {
		defrag_copy(defrag, bo, &to, run.offset, run.size);
		m6npu_vm_write(bo->vm, bo->va.start + run.offset, run.size,
			       m6npu_block_dma(&to) + run.offset,
			       m6npu_bo_is_writable(bo));
	}
	m6npu_arena_move(&defrag->pool->arena, move);
	defrag->args->moved += bo->va.size;
	defrag->args->buffers++;
}

/* Moves of one address space, while the slice lasts. */
static void defrag_move_some(struct m6npu_defrag *defrag, struct m6npu_vm *vm,
			     ktime_t begin)
{
	bool moved = false;
	u64 slice = 0;

	guard(mutex)(&defrag->pool->lock);
	while (slice < DEFRAG_SLICE_NS) {
		/* A copy: what is not made must be planned again. */
		struct m6npu_plan plan = defrag->plan;
		struct m6npu_move move;

		if (!m6npu_plan_next(&plan, &move) ||
		    block_to_bo(move.block)->vm != vm)
			break;
		defrag->plan = plan;
		defrag_move(defrag, &move);
		moved = true;
		slice = ktime_to_ns(ktime_sub(ktime_get(), begin));
	}
	if (moved)
		m6npu_vm_invalidate(vm);
}

static int defrag_batch(struct m6npu_defrag *defrag, struct m6npu_vm *vm)
{
	struct drm_m6npu_pool_defrag *args = defrag->args;
	bool drain = !(args->flags & DRM_M6NPU_DEFRAG_NO_DRAIN);
	ktime_t begin = ktime_get();
	u64 pause;
	int err;

	err = m6npu_vm_hold(vm, drain);
	if (err == -ETIME) {
		set_bit(vm->asid, defrag->busy);
		err = 0;
		goto out;
	}
	if (err)
		goto out;
	err = dma_resv_lock_interruptible(&vm->resv, NULL);
	if (!err) {
		defrag_move_some(defrag, vm, ktime_get());
		dma_resv_unlock(&vm->resv);
	}
	m6npu_vm_let_go(vm);
out:
	pause = ktime_to_ns(ktime_sub(ktime_get(), begin));
	args->pause_ns = max(args->pause_ns, pause);
	if (vm != defrag->own && !capable(CAP_SYS_ADMIN))
		schedule_timeout_interruptible(nsecs_to_jiffies(pause) + 1);
	return err;
}

/* The address space of the next move, referenced; NULL if there is none. */
static struct m6npu_vm *defrag_next(struct m6npu_defrag *defrag)
{
	struct m6npu_plan plan = defrag->plan;
	struct m6npu_move move;

	guard(mutex)(&defrag->pool->lock);
	if (!m6npu_plan_next(&plan, &move))
		return NULL;
	/* A buffer that has its block has its address space. */
	return m6npu_vm_get(block_to_bo(move.block)->vm);
}

static int defrag_run(struct m6npu_defrag *defrag)
{
	struct m6npu_vm *vm;
	int err = 0;

	while (!err && (vm = defrag_next(defrag))) {
		if (signal_pending(current))
			err = -EINTR;
		else if (drm_dev_is_unplugged(&defrag->pool->m6npu->drm))
			err = -ENODEV;
		else
			err = defrag_batch(defrag, vm);
		m6npu_vm_put(vm);
	}
	return err;
}

/* ---- The report ---- */

static u32 defrag_count_stayed(struct m6npu_defrag *defrag)
{
	struct m6npu_arena *arena = &defrag->pool->arena;
	struct drm_mm_node *node;
	unsigned int i;
	u32 count = 0;

	for (i = 0; i < M6NPU_ARENA_SEGMENTS; i++) {
		if (!arena->size[i])
			continue;
		drm_mm_for_each_node(node, &arena->mm[i]) {
			struct m6npu_block *block =
				container_of(node, struct m6npu_block, node);

			count += block->pins ||
				 !defrag_can_move(block, defrag);
		}
	}
	return count;
}

static void defrag_report(struct m6npu_defrag *defrag, ktime_t begin)
{
	struct drm_m6npu_pool_defrag *args = defrag->args;
	struct m6npu_pool *pool = defrag->pool;
	struct m6npu_pool_stats *stats = &pool->stats;

	args->time_ns = ktime_to_ns(ktime_sub(ktime_get(), begin));
	scoped_guard(mutex, &pool->lock) {
		args->largest_after = m6npu_arena_largest(&pool->arena);
		args->free = pool->arena.total - pool->arena.used;
		args->stayed = defrag_count_stayed(defrag);
		stats->runs++;
		stats->moved += args->moved;
		stats->copied += args->copied;
		stats->pause_ns = max(stats->pause_ns, args->pause_ns);
		stats->before = args->largest_before;
		stats->after = args->largest_after;
	}
	trace_m6npu_defrag(pool, args);
}

static int defrag_pool(struct m6npu_pool *pool, struct m6npu_vm *own,
		       struct drm_m6npu_pool_defrag *args)
{
	struct m6npu_defrag defrag = {
		.pool = pool, .args = args, .own = own,
	};
	ktime_t begin;
	int err;

	err = mutex_lock_interruptible(&pool->defrag_lock);
	if (err)
		return err;
	begin = ktime_get();
	scoped_guard(mutex, &pool->lock) {
		args->largest_before = m6npu_arena_largest(&pool->arena);
		m6npu_plan_init(&defrag.plan, &pool->arena, defrag_can_move,
				&defrag);
	}
	err = defrag_run(&defrag);
	if (defrag.copier)
		m6npu_copier_destroy(defrag.copier);
	defrag_report(&defrag, begin);
	mutex_unlock(&pool->defrag_lock);
	return err;
}

int m6npu_pool_defrag_ioctl(struct drm_device *drm, void *data,
			    struct drm_file *file)
{
	struct drm_m6npu_pool_defrag *args = data;
	struct m6npu_pool *pool;
	int err, idx;

	if (args->flags & ~DRM_M6NPU_DEFRAG_NO_DRAIN)
		return -EINVAL;
	*args = (struct drm_m6npu_pool_defrag) {
		.pool = args->pool, .flags = args->flags,
	};
	pool = m6npu_pool_lookup(file, args->pool);
	if (!pool)
		return -ENOENT;
	err = -ENODEV;
	if (drm_dev_enter(drm, &idx)) {
		err = defrag_pool(pool, to_m6npu_context(file)->vm, args);
		drm_dev_exit(idx);
	}
	m6npu_pool_put(pool);
	return err;
}
