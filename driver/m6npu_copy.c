// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Copies
 *
 * The driver has the DMA engine move memory, too. A copier is a context
 * without a file: an address space, in which source and destination are mapped
 * while they are copied, and a queue of jobs. So what jobs have, copies have:
 * timeouts, resets, and an end when the device goes.
 *
 * A copy is cut into windows, which bounds what page tables take, and a window
 * into pieces. A piece is a job of one command, and the next one is queued when
 * it has ended well. That costs a round trip for each, but so it is certain how
 * far a copy that failed has come, even if the engine hung and cannot be asked:
 * all pieces before the one that failed were copied, and none after it begun.
 *
 * This matters where the ranges overlap. A piece is then not longer than the
 * distance the memory moves, so what it writes over is the source of pieces
 * before it. One that fails half-way leaves its own source intact, and what
 * comes after that.
 *
 * All pieces of a window have one size, so they share a command, which is
 * written once a window. The device may have kept the one before; the
 * invalidation at the end of the last window made it forget that.
 */
#include <linux/device.h>
#include <linux/dma-fence.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include <drm/drm_drv.h>

#include "m6npu_compat.h"
#include "m6npu_context.h"
#include "m6npu_copy.h"
#include "m6npu_device.h"
#include "m6npu_job.h"
#include "m6npu_mmu.h"
#include "m6npu_pt.h"
#include "m6npu_reset.h"
#include "m6npu_trace.h"

#define COPY_WINDOW		SZ_256M
/* How often to look whether the driver is being unbound. */
#define COPY_POLL		msecs_to_jiffies(1000)

/* Device addresses, each with room for more than a window. */
#define COPY_VA_LIST		BIT_ULL(32)
#define COPY_VA_DST		(2 * BIT_ULL(32))
#define COPY_VA_SRC		(3 * BIT_ULL(32))

/* Regions of the command. */
#define COPY_DST		0
#define COPY_SRC		1

/**
 * struct m6npu_copier - an address space and a queue of the driver's own
 */
struct m6npu_copier {
	/** @ctx: the context */
	struct m6npu_context *ctx;
	/** @entity: the queue */
	struct drm_sched_entity entity;
	/** @list: page with the command */
	struct m6npu_table list;
	/** @list_va: where the device sees it */
	struct drm_mm_node list_va;
};

/*
 * At the same offset in a large page as on the bus, so that large pages fit
 * wherever in the pool the memory is. Nobody else takes device addresses here,
 * so none are reserved.
 */
static int copy_map(struct m6npu_vm *vm, struct drm_mm_node *va, u64 base,
		    dma_addr_t dma, u64 size, bool writable)
{
	int err;

	va->start = base + (dma & (M6NPU_LARGE_PAGE_SIZE - 1));
	va->size = size;
	err = m6npu_vm_prepare(vm, va, true);
	if (!err)
		m6npu_vm_write(vm, va->start, size, dma, writable);
	return err;
}

static int copier_create_list(struct m6npu_copier *copier)
{
	struct m6npu_context *ctx = copier->ctx;
	int err;

	err = m6npu_table_alloc(ctx->m6npu, &copier->list, PAGE_SIZE,
				DMA_TO_DEVICE);
	if (err)
		return err;
	err = copy_map(ctx->vm, &copier->list_va, COPY_VA_LIST,
		       copier->list.dma, PAGE_SIZE, false);
	if (err)
		m6npu_table_free(ctx->m6npu, &copier->list);
	return err;
}

static int copier_init(struct m6npu_copier *copier, struct m6npu_device *m6npu)
{
	int err;

	copier->ctx = m6npu_context_create(m6npu, NULL);
	if (IS_ERR(copier->ctx))
		return PTR_ERR(copier->ctx);
	/* Whoever copies holds locks, so it waits for the job in flight only. */
	err = drm_sched_entity_init(&copier->entity, DRM_SCHED_PRIORITY_KERNEL,
				    &m6npu->dma_sched, 1, NULL);
	if (err)
		goto err_context;
	err = copier_create_list(copier);
	if (err)
		goto err_entity;
	return 0;

err_entity:
	m6npu_compat_entity_fini(&copier->entity);
err_context:
	m6npu_context_close(copier->ctx);
	return err;
}

/**
 * m6npu_copier_create() - get ready to copy
 * @m6npu: device
 *
 * A copier is created, used and destroyed in one section of drm_dev_enter(),
 * by one thread. It must not be destroyed with a reservation or a gate of an
 * address space held.
 *
 * Return: the copier, or an error: -EBUSY if the device has no address space
 * left, -ENOMEM, -ENODEV.
 */
struct m6npu_copier *m6npu_copier_create(struct m6npu_device *m6npu)
{
	struct m6npu_copier *copier;
	int err;

	if (m6npu_device_is_lost(m6npu))
		return ERR_PTR(-ENODEV);
	if (m6npu_fault_due(m6npu))
		return ERR_PTR(-ENOMEM);
	copier = kzalloc(sizeof(*copier), GFP_KERNEL);
	if (!copier)
		return ERR_PTR(-ENOMEM);
	err = copier_init(copier, m6npu);
	if (err) {
		kfree(copier);
		return ERR_PTR(err);
	}
	return copier;
}

void m6npu_copier_destroy(struct m6npu_copier *copier)
{
	struct m6npu_context *ctx = copier->ctx;

	m6npu_compat_entity_fini(&copier->entity);
	m6npu_context_stop(ctx);
	m6npu_vm_unmap(ctx->vm, &copier->list_va, true);
	m6npu_table_free(ctx->m6npu, &copier->list);
	m6npu_context_close(ctx);
	kfree(copier);
}

static void copier_write_list(struct m6npu_copier *copier, u64 size)
{
	struct m6npu_cmd *cmd = copier->list.cpu;

	*cmd = (struct m6npu_cmd) {
		.opcode = M6NPU_OP_COPY,
		.operand = {
			cpu_to_le64(M6NPU_OPERAND(COPY_DST, 0)),
			cpu_to_le64(M6NPU_OPERAND(COPY_SRC, 0)),
			cpu_to_le64(M6NPU_OPERAND_NONE),
			cpu_to_le64(M6NPU_OPERAND_NONE),
		},
		.args.mem.bytes = cpu_to_le64(size),
	};
	m6npu_table_sync(copier->ctx->m6npu, &copier->list, 0, sizeof(*cmd));
}

static struct m6npu_job *copier_create_job(struct m6npu_copier *copier,
					   u64 dst, u64 src, u64 size)
{
	struct m6npu_job *job = m6npu_job_create(copier->ctx);

	if (IS_ERR(job))
		return job;
	job->cmd_addr = copier->list_va.start;
	job->cmd_count = 1;
	job->region[COPY_DST].addr = cpu_to_le64(dst);
	job->region[COPY_DST].size = cpu_to_le64(size);
	job->region[COPY_SRC].addr = cpu_to_le64(src);
	job->region[COPY_SRC].size = cpu_to_le64(size);
	return job;
}

/* If it succeeds the job is not ours any more; *@finished is to be put. */
static int copier_queue(struct m6npu_copier *copier, struct m6npu_job *job,
			struct dma_fence **finished)
{
	int err;

	err = drm_sched_job_init(&job->base, &copier->entity, 1, NULL, 0);
	if (err)
		return err;
	err = m6npu_job_enlist(job);
	if (err) {
		drm_sched_job_cleanup(&job->base);
		return err;
	}
	drm_sched_job_arm(&job->base);
	*finished = dma_fence_get(&job->base.s_fence->finished);
	trace_m6npu_job_submit(job);
	drm_sched_entity_push_job(&job->base);
	return 0;
}

/*
 * The timeout handler ends jobs that hang, but not after an unplug: then they
 * end when the unplug is complete, which waits for us. So bring that forward.
 */
static int copier_wait(struct m6npu_device *m6npu, struct dma_fence *finished)
{
	while (!dma_fence_wait_timeout(finished, false, COPY_POLL)) {
		if (drm_dev_is_unplugged(&m6npu->drm))
			m6npu_reset_lost(m6npu);
	}
	return min(dma_fence_get_status(finished), 0);
}

static int copier_copy_piece(struct m6npu_copier *copier, u64 dst, u64 src,
			     u64 size)
{
	struct dma_fence *finished;
	struct m6npu_job *job;
	int err;

	job = copier_create_job(copier, dst, src, size);
	if (IS_ERR(job))
		return PTR_ERR(job);
	err = copier_queue(copier, job, &finished);
	if (err) {
		m6npu_job_destroy(job);
		return err;
	}
	err = copier_wait(copier->ctx->m6npu, finished);
	dma_fence_put(finished);
	return err;
}

/* @size is a multiple of @piece. Adds to *@done what was copied. */
static int copier_copy_window(struct m6npu_copier *copier, dma_addr_t dst,
			      dma_addr_t src, u32 size, u32 piece, u64 *done)
{
	struct drm_mm_node dst_va = {}, src_va = {};
	struct m6npu_vm *vm = copier->ctx->vm;
	u32 at;
	int err;

	copier_write_list(copier, piece);
	err = copy_map(vm, &src_va, COPY_VA_SRC, src, size, false);
	if (err)
		return err;
	err = copy_map(vm, &dst_va, COPY_VA_DST, dst, size, true);
	if (err)
		goto err_src;
	for (at = 0; at < size && !err; at += piece) {
		err = copier_copy_piece(copier, dst_va.start + at,
					src_va.start + at, piece);
		if (!err)
			*done += piece;
	}
	m6npu_vm_unmap(vm, &dst_va, true);
err_src:
	m6npu_vm_unmap(vm, &src_va, true);
	return err;
}

/**
 * m6npu_copier_copy() - copy memory
 * @copier: copier
 * @dst: bus address to copy to
 * @src: bus address to copy from
 * @size: bytes, a multiple of the page size, as are the addresses
 * @done: where to tell how many bytes, from the beginning, were copied
 *
 * The ranges may overlap if @dst is below @src. Both are mapped for DMA, and
 * no cache holds a line of them that was written to (where caches matter,
 * dma_sync_*_for_device()); caches must be told before a CPU reads @dst.
 *
 * Waits for jobs in flight on the DMA engine, so the caller must hold nothing
 * that the end of a job depends on. A pool's lock, reservations and gates are
 * not of that kind.
 *
 * If this fails, *@done bytes were copied, the destination of what follows may
 * hold anything, and its source, from @src + *@done on, is intact. So the
 * caller can finish the copy by other means.
 *
 * Return: 0, or an error: -EOPNOTSUPP if the ranges overlap and are too close
 * to each other, -ETIME if the engine hung, -EIO if there was a reset, -ENODEV
 * if the device is gone, -ENOMEM, or what the device complained of.
 */
int m6npu_copier_copy(struct m6npu_copier *copier, dma_addr_t dst,
		      dma_addr_t src, u64 size, u64 *done)
{
	u32 span, piece = COPY_WINDOW;
	int err = 0;

	*done = 0;
	if (dst <= src && src - dst < size) {
		if (src - dst < M6NPU_COPY_MIN)
			return -EOPNOTSUPP;
		piece = min_t(u64, piece, src - dst);
	}
	while (*done < size && !err) {
		span = min_t(u64, size - *done, COPY_WINDOW);
		piece = min(piece, span);
		err = copier_copy_window(copier, dst + *done, src + *done,
					 rounddown(span, piece), piece, done);
	}
	return err;
}
