// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Blocks
 *
 * A buffer's part of a pool: where it lies is the arena's business
 * (m6npu_arena.c), who holds how much is kept here.
 *
 * Buffers end late: one that was closed while jobs run is only given back when
 * those ended (see m6npu_gem.c). Such blocks are counted as dying. Whoever
 * finds the pool full, flushes or wants to destroy it waits for them.
 */
#include <linux/jiffies.h>

#include "m6npu_device.h"
#include "m6npu_mmu.h"
#include "m6npu_pool.h"

/* How long a buffer that does not fit waits for those that are dying. */
#define POOL_RECLAIM_MS		2000

/* First of the block's pages. */
struct page *m6npu_block_page(const struct m6npu_pool *pool,
			      const struct m6npu_block *block)
{
	const struct m6npu_segment *segment = &pool->segments[block->segment];

	return segment->page + ((block->node.start - segment->dma) >>
				PAGE_SHIFT);
}

static int block_try_alloc(struct m6npu_pool *pool, struct m6npu_block *block,
			   struct m6npu_vm *vm, u64 size, u64 align,
			   u32 *releases)
{
	struct m6npu_pool_usage *usage = &pool->usage[vm->asid];
	int err;

	/* A move may hold it for a while. */
	err = mutex_lock_interruptible(&pool->lock);
	if (err)
		return err;
	*releases = pool->releases;
	if (pool->destroyed)
		err = -ENOENT;
	else if (pool->client_limit && usage->used + size > pool->client_limit)
		err = -EDQUOT;
	else
		err = m6npu_arena_insert(&pool->arena, block, size, align);
	if (!err) {
		usage->used += size;
		usage->blocks++;
	}
	mutex_unlock(&pool->lock);
	return err;
}

static bool block_may_come(struct m6npu_pool *pool, int err)
{
	guard(mutex)(&pool->lock);
	return err && err != -ENOENT && err != -EINTR && pool->dying;
}

static void block_warn(struct m6npu_pool *pool, u64 size, int err)
{
	const char *help = "use a larger pool, a smaller chunk, or flush it";
	u64 largest;

	if (err == -ENOENT || err == -EINTR)
		return;
	scoped_guard(mutex, &pool->lock)
		largest = m6npu_arena_largest(&pool->arena);
	if (err == -ENOBUFS)
		help = "as much is free in pieces: defragment the pool, or use a smaller chunk";
	if (err == -ENOBUFS && largest >= size)
		help = "none is aligned as asked for: defragment the pool, or ask for less";
	if (err == -EDQUOT)
		help = "the client has all that the pool's client_limit allows";
	m6npu_pools_warn(pool->m6npu, size, "in the pool", largest, help);
}

/**
 * m6npu_block_alloc - take a block of a pool
 * @pool: pool
 * @block: to insert, zeroed
 * @vm: address space whose buffer it becomes
 * @size: bytes, page-aligned
 * @align: alignment class, 0 for one that suits the size
 *
 * Return: 0; -ENOSPC, -ENOBUFS, -EDQUOT as BO_CREATE has them; -ENOENT the pool
 * is being destroyed; -ERESTARTSYS.
 */
int m6npu_block_alloc(struct m6npu_pool *pool, struct m6npu_block *block,
		      struct m6npu_vm *vm, u64 size, u64 align)
{
	long left = msecs_to_jiffies(POOL_RECLAIM_MS);
	u32 releases;
	int err;

	for (;;) {
		err = block_try_alloc(pool, block, vm, size, align, &releases);
		if (!left || !block_may_come(pool, err))
			break;
		left = m6npu_pool_wait_released(pool, releases, left);
		if (left < 0)
			return left;
	}
	if (err)
		block_warn(pool, size, err);
	return err;
}

/* The block's buffer has no handle any more. */
void m6npu_block_retire(struct m6npu_pool *pool, struct m6npu_block *block)
{
	guard(mutex)(&pool->lock);
	pool->dying++;
	pool->dying_size += block->node.size;
	block->retired = ++pool->retired;
	list_add_tail(&block->dying, &pool->dying_list);
}

/* @dying: m6npu_block_retire() was called for it. */
void m6npu_block_free(struct m6npu_pool *pool, struct m6npu_block *block,
		      struct m6npu_vm *vm, bool dying)
{
	struct m6npu_pool_usage *usage = &pool->usage[vm->asid];

	scoped_guard(mutex, &pool->lock) {
		usage->used -= block->node.size;
		usage->blocks--;
		if (dying) {
			pool->dying--;
			pool->dying_size -= block->node.size;
			list_del(&block->dying);
		}
		WRITE_ONCE(pool->releases, pool->releases + 1);
		m6npu_arena_remove(&pool->arena, block);
	}
	wake_up_all(&pool->released);
}

/* It stays where it is until as many calls of m6npu_block_unpin(). */
void m6npu_block_pin(struct m6npu_pool *pool, struct m6npu_block *block)
{
	guard(mutex)(&pool->lock);
	m6npu_arena_pin(&pool->arena, block);
}

void m6npu_block_unpin(struct m6npu_pool *pool, struct m6npu_block *block)
{
	guard(mutex)(&pool->lock);
	m6npu_arena_unpin(&pool->arena, block);
}
