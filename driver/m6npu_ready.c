// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: First use
 *
 * Nobody may see what a buffer's memory held before. To clear a buffer of many
 * GiB when it is made would take long, for nothing if it is about to be filled,
 * or moved, or stays empty. So it is cleared piece by piece, when a piece is
 * first used; until then neither the CPU nor the device has it mapped, and to
 * move it costs nothing.
 *
 * A piece is what one entry of the first-level page table covers: up to 32 MiB,
 * and a large page where the buffer has such. Uses are
 *
 * - access through a CPU mapping (the fault),
 * - a job's regions, step block and command list: SUBMIT knows them,
 * - an expert that is bound,
 * - a window, or a dma-buf.
 *
 * A job that is queued gets to see pieces that others made ready in the
 * meantime. That is memory of its own address space, cleared.
 */
#include <linux/bitmap.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>

#include <drm/drm_drv.h>

#include "m6npu_device.h"
#include "m6npu_gem.h"
#include "m6npu_mmu.h"
#include "m6npu_pt.h"

/* Cleared between two looks at whether something else wants to run. */
#define CLEAR_STEP		SZ_1M

unsigned int m6npu_bo_piece_at(const struct m6npu_bo *bo, u64 offset)
{
	return m6npu_pt_slot(bo->va.start + offset) -
	       m6npu_pt_slot(bo->va.start);
}

unsigned int m6npu_bo_pieces(const struct m6npu_bo *bo)
{
	return m6npu_bo_piece_at(bo, bo->va.size - 1) + 1;
}

struct m6npu_piece m6npu_bo_piece(const struct m6npu_bo *bo,
				  unsigned int index)
{
	u64 base = ALIGN_DOWN(bo->va.start, M6NPU_LARGE_PAGE_SIZE);
	u64 start = base + (u64)index * M6NPU_LARGE_PAGE_SIZE;
	u64 end = min(start + M6NPU_LARGE_PAGE_SIZE,
		      bo->va.start + bo->va.size);

	start = max(start, bo->va.start);
	return (struct m6npu_piece) {
		.offset = start - bo->va.start,
		.size = end - start,
	};
}

/* For a buffer that nobody has used. */
int m6npu_bo_ready_init(struct m6npu_bo *bo)
{
	unsigned int pieces = m6npu_bo_pieces(bo);

	if (m6npu_fault_due(bo->vm->m6npu))
		return -ENOMEM;
	bo->ready = bitmap_zalloc(pieces, GFP_KERNEL_ACCOUNT);
	if (!bo->ready)
		return -ENOMEM;
	bo->unready = pieces;
	atomic_add(pieces, &bo->vm->unready);
	return 0;
}

void m6npu_bo_ready_fini(struct m6npu_bo *bo)
{
	atomic_sub(bo->unready, &bo->vm->unready);
	bitmap_free(bo->ready);
}

/* Bytes that are ready. */
u64 m6npu_bo_ready_size(struct m6npu_bo *bo)
{
	unsigned int i;
	u64 size = 0;

	if (!READ_ONCE(bo->unready))
		return bo->va.size;
	for_each_set_bit(i, bo->ready, m6npu_bo_pieces(bo))
		size += m6npu_bo_piece(bo, i).size;
	return size;
}

/* Some of it is ready, or was about to be. */
bool m6npu_bo_is_used(const struct m6npu_bo *bo)
{
	return bo->unready < m6npu_bo_pieces(bo);
}

static void piece_clear(struct m6npu_bo *bo, const struct m6npu_piece *piece)
{
	u8 *at = page_address(m6npu_block_page(bo->pool, &bo->block)) +
		 piece->offset;
	u64 left = piece->size;

	while (left) {
		u64 step = min(left, CLEAR_STEP);

		memset(at, 0, step);
		at += step;
		left -= step;
		cond_resched();
	}
}

static void piece_map(struct m6npu_bo *bo, const struct m6npu_piece *piece)
{
	int idx;

	/* Files stay open when the device goes, with mappings of the CPU. */
	if (!drm_dev_enter(bo->base.dev, &idx))
		return;
	m6npu_bo_sync_device(bo, piece->offset, piece->size);
	m6npu_vm_write(bo->vm, bo->va.start + piece->offset, piece->size,
		       m6npu_block_dma(&bo->block) + piece->offset,
		       m6npu_bo_is_writable(bo));
	drm_dev_exit(idx);
}

/* Makes a piece ready if it is not; takes as long as clearing 32 MiB. */
void m6npu_bo_use_piece(struct m6npu_bo *bo, unsigned int index)
{
	struct m6npu_piece piece = m6npu_bo_piece(bo, index);

	dma_resv_assert_held(bo->base.resv);
	if (!bo->unready || test_bit(index, bo->ready))
		return;
	piece_clear(bo, &piece);
	piece_map(bo, &piece);
	set_bit(index, bo->ready);
	WRITE_ONCE(bo->unready, bo->unready - 1);
	atomic_dec(&bo->vm->unready);
}

/* Makes ready what lies in [@offset, @offset + @size), or returns -EINTR. */
int m6npu_bo_use_locked(struct m6npu_bo *bo, u64 offset, u64 size)
{
	unsigned int i = m6npu_bo_piece_at(bo, offset);
	unsigned int last = m6npu_bo_piece_at(bo, offset + size - 1);

	for (; bo->unready && i <= last; i++) {
		if (signal_pending(current))
			return -EINTR;
		m6npu_bo_use_piece(bo, i);
	}
	return 0;
}

/*
 * As above, for callers without the reservation. It is let go between pieces,
 * since faults of other threads wait for it.
 */
int m6npu_bo_use(struct m6npu_bo *bo, u64 offset, u64 size)
{
	unsigned int i = m6npu_bo_piece_at(bo, offset);
	unsigned int last = m6npu_bo_piece_at(bo, offset + size - 1);
	int err;

	for (; READ_ONCE(bo->unready) && i <= last; i++) {
		if (test_bit(i, bo->ready))
			continue;
		if (signal_pending(current))
			return -EINTR;
		err = dma_resv_lock_interruptible(bo->base.resv, NULL);
		if (err)
			return err;
		m6npu_bo_use_piece(bo, i);
		dma_resv_unlock(bo->base.resv);
	}
	return 0;
}

/* The next buffer in the range that is not all ready, referenced, or NULL. */
static struct m6npu_bo *vm_find_unready(struct m6npu_vm *vm, u64 start,
					u64 end)
{
	struct drm_mm_node *node;

	guard(mutex)(&vm->lock);
	drm_mm_for_each_node_in_range(node, &vm->mm, start, end) {
		struct m6npu_bo *bo = container_of(node, struct m6npu_bo, va);

		/* Not those that are being made, or are dying. */
		if (m6npu_bo_is_live(bo) && READ_ONCE(bo->unready) &&
		    kref_get_unless_zero(&bo->base.refcount))
			return bo;
	}
	return NULL;
}

/**
 * m6npu_vm_use - make ready what a job is about to be told of
 * @vm: address space
 * @addr: device address, of buffers or not
 * @size: bytes; what is beyond the address space does not count
 *
 * Return: 0, -EINTR.
 */
int m6npu_vm_use(struct m6npu_vm *vm, u64 addr, u64 size)
{
	u64 end = min(addr + size, M6NPU_VA_SIZE);
	int err = 0;

	while (!err && addr < end && atomic_read(&vm->unready)) {
		struct m6npu_bo *bo = vm_find_unready(vm, addr, end);
		u64 start, stop;

		if (!bo)
			break;
		start = max(addr, bo->va.start);
		stop = min(end, bo->va.start + bo->va.size);
		err = m6npu_bo_use(bo, start - bo->va.start, stop - start);
		addr = stop;
		drm_gem_object_put(&bo->base);
	}
	return err;
}
