// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Pools for people
 *
 * debugfs mem_pool_info: figures and a map of each pool; and what fdinfo says of
 * a file's part. Physical addresses are nobody's business, so all of it is
 * offsets and sizes.
 */
#include <linux/math64.h>
#include <linux/seq_file.h>
#include <linux/sizes.h>

#include <drm/drm_print.h>
#include <drm/m6npu_accel.h>

#include "m6npu_device.h"
#include "m6npu_mmu.h"
#include "m6npu_pool.h"

/* Characters of a segment's map. */
#define MAP_CELLS		64

/**
 * struct map_cell - what one character of a map stands for
 */
struct map_cell {
	/** @taken: bytes in blocks */
	u64 taken;
	/** @pinned: some of them are not moved */
	bool pinned;
};

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

static void map_fill(struct drm_mm *mm, u64 start, u64 cell_size,
		     struct map_cell *cells)
{
	struct drm_mm_node *node;

	drm_mm_for_each_node(node, mm) {
		struct m6npu_block *block = container_of(node,
							 struct m6npu_block,
							 node);
		u64 at = node->start - start;
		u64 end = at + node->size;

		while (at < end) {
			u64 cell = div64_u64(at, cell_size);
			u64 next = min(end, (cell + 1) * cell_size);

			cells[cell].taken += next - at;
			cells[cell].pinned |= block->pins;
			at = next;
		}
	}
}

static char map_char(const struct map_cell *cell, u64 room)
{
	if (!cell->taken)
		return '.';
	if (cell->pinned)
		return 'P';
	return cell->taken == room ? '#' : '+';
}

static void segment_show(struct seq_file *m, struct m6npu_pool *pool,
			 unsigned int index)
{
	struct m6npu_arena *arena = &pool->arena;
	u64 size = arena->size[index];
	u64 cell_size = max_t(u64, PAGE_SIZE, DIV_ROUND_UP_ULL(size, MAP_CELLS));
	u64 count = DIV64_U64_ROUND_UP(size, cell_size);
	struct map_cell cells[MAP_CELLS] = {};
	unsigned int i;

	map_fill(&arena->mm[index], arena->start[index], cell_size, cells);
	seq_printf(m, "  segment %u: %llu bytes of %s, largest free %llu\n",
		   index, size, segment_source_name(&pool->segments[index]),
		   m6npu_arena_segment_largest(arena, index));
	seq_puts(m, "    |");
	for (i = 0; i < count; i++)
		seq_putc(m, map_char(&cells[i],
				     min(cell_size, size - i * cell_size)));
	seq_printf(m, "| %llu KiB each, # taken, + partly, P pinned, . free\n",
		   cell_size / SZ_1K);
}

static void pool_show_clients(struct seq_file *m, struct m6npu_pool *pool)
{
	struct m6npu_mmu *mmu = &pool->m6npu->mmu;
	struct m6npu_vm *vm;
	unsigned long asid;

	xa_lock(&mmu->vms);
	xa_for_each(&mmu->vms, asid, vm) {
		const struct m6npu_pool_usage *usage = &pool->usage[asid];

		if (usage->blocks)
			seq_printf(m, "  client %d (%s): used %llu, buffers %u\n",
				   vm->pid, vm->comm, usage->used,
				   usage->blocks);
	}
	xa_unlock(&mmu->vms);
}

static void pool_show_defrag(struct seq_file *m, struct m6npu_pool *pool)
{
	const struct m6npu_pool_stats *stats = &pool->stats;

	if (stats->runs)
		seq_printf(m, "  defrag: runs %llu, moved %llu, copied %llu, worst_pause_ns %llu, last largest_free_block %llu -> %llu\n",
			   stats->runs, stats->moved, stats->copied,
			   stats->pause_ns, stats->before, stats->after);
}

static u64 pool_show(struct seq_file *m, struct m6npu_pool *pool)
{
	bool persistent = pool->flags & DRM_M6NPU_POOL_PERSISTENT;
	struct m6npu_arena *arena = &pool->arena;
	u64 largest;
	unsigned int i;

	guard(mutex)(&pool->lock);
	largest = m6npu_arena_largest(arena);
	seq_printf(m, "pool %u: %s, owner %d (%s)\n", pool->id,
		   persistent ? "persistent" : "private", pool->pid,
		   pool->comm);
	seq_printf(m, "  size %llu, used %llu, largest_free_block %llu, buffers %u (%u dying), segments %u, pinned %llu%s\n",
		   arena->total, arena->used, largest, arena->blocks,
		   pool->dying, m6npu_pool_segments(pool), arena->pinned,
		   pool->destroyed ? ", destroyed" : "");
	if (pool->client_limit)
		seq_printf(m, "  client_limit %llu\n", pool->client_limit);
	pool_show_clients(m, pool);
	pool_show_defrag(m, pool);
	for (i = 0; i < M6NPU_POOL_MAX_SEGMENTS; i++) {
		if (arena->size[i])
			segment_show(m, pool, i);
	}
	return largest;
}

void m6npu_pools_show(struct seq_file *m, struct m6npu_device *m6npu)
{
	struct m6npu_pools *pools = &m6npu->pools;
	struct m6npu_pool *pool;
	u64 size = 0, used = 0, largest = 0;

	guard(mutex)(&pools->lock);
	list_for_each_entry(pool, &pools->list, link) {
		largest = max(largest, pool_show(m, pool));
		size += READ_ONCE(pool->arena.total);
		used += READ_ONCE(pool->arena.used);
	}
	seq_printf(m, "area: %s, %llu bytes\n",
		   pools->of_reserved ? "device tree" :
		   pools->area ? "system" : "none", pools->area_size);
	seq_printf(m, "ordinary_memory: %llu\n", pools->reserved);
	seq_printf(m, "total: %llu\n", size);
	seq_printf(m, "used: %llu\n", used);
	seq_printf(m, "largest_free_block: %llu\n", largest);
}

/* What an address space holds of each pool. */
void m6npu_pools_show_usage(struct drm_printer *p, struct m6npu_vm *vm)
{
	struct m6npu_pools *pools = &vm->m6npu->pools;
	struct m6npu_pool *pool;

	guard(mutex)(&pools->lock);
	list_for_each_entry(pool, &pools->list, link) {
		u64 used = READ_ONCE(pool->usage[vm->asid].used);

		if (used)
			drm_printf(p, "m6npu-pool-%u:\t%llu KiB\n", pool->id,
				   used / SZ_1K);
	}
}
