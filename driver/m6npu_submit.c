// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Submission
 *
 * SUBMIT in stages: check what can be checked by looking; copy and look up
 * everything the job names; then, under the context's submit lock, attach
 * dependencies, and queue. What can fail comes before drm_sched_job_arm().
 * The driver does not read command lists: the device checks each operand
 * against its region and each region against the address space.
 *
 * A queue (scheduler entity) is over a set of rings, and its jobs run in
 * order, but a job may narrow the set with its unit mask. So there is a queue
 * for each mask that is used, and a job that goes to another queue than the
 * one before it (of the same engine kind and priority) depends on that one.
 */
#include <linux/capability.h>
#include <linux/dma-fence-chain.h>
#include <linux/dma-resv.h>
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include <drm/drm_print.h>
#include <drm/drm_syncobj.h>

#include "m6npu_compat.h"
#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_gem.h"
#include "m6npu_job.h"
#include "m6npu_trace.h"

#define M6NPU_VA_END		BIT_ULL(M6NPU_VA_BITS)
#define ALL_UNITS		(BIT(M6NPU_UNITS) - 1)
#define STEP_MAX_SIZE		struct_size_t(struct m6npu_step, tokens, \
					      M6NPU_STEP_MAX_TOKENS)
/* An element larger than this is not from any version of the interface. */
#define MAX_STRIDE		1024

/**
 * struct m6npu_out_sync - a syncobj to signal
 */
struct m6npu_out_sync {
	/** @syncobj: referenced */
	struct drm_syncobj *syncobj;
	/** @chain: for a timeline, else NULL; allocated ahead */
	struct dma_fence_chain *chain;
	/** @point: of the timeline */
	u64 point;
};

/**
 * struct m6npu_submission - what an ioctl call holds until the job is queued
 */
struct m6npu_submission {
	/** @args: the caller's */
	struct drm_m6npu_submit *args;
	/** @file: the caller */
	struct drm_file *file;
	/** @ctx: its context */
	struct m6npu_context *ctx;
	/** @job: the job */
	struct m6npu_job *job;
	/**
	 * @cmdlist: sealed buffer with the commands, referenced; once the job
	 * is queued its fence keeps the memory, as that of all buffers
	 */
	struct drm_gem_object *cmdlist;
	/** @in: fences to wait for, referenced */
	struct dma_fence *in[DRM_M6NPU_MAX_SYNCS];
	/** @in_count: entries of @in */
	unsigned int in_count;
	/** @out: syncobjs to signal */
	struct m6npu_out_sync out[DRM_M6NPU_MAX_SYNCS];
	/** @out_count: entries of @out */
	unsigned int out_count;
};

static int submit_check(const struct drm_m6npu_submit *args)
{
	if (args->flags & ~DRM_M6NPU_SUBMIT_DMA_ENGINE ||
	    args->priority > DRM_M6NPU_PRIORITY_HIGH ||
	    args->unit_mask & ~ALL_UNITS)
		return -EINVAL;
	if (args->flags & DRM_M6NPU_SUBMIT_DMA_ENGINE && args->unit_mask)
		return -EINVAL;
	if (args->region_count > DRM_M6NPU_MAX_REGIONS ||
	    args->in_sync_count > DRM_M6NPU_MAX_SYNCS ||
	    args->out_sync_count > DRM_M6NPU_MAX_SYNCS)
		return -EINVAL;
	if (!args->cmd_count || args->cmd_count > DRM_M6NPU_MAX_COMMANDS ||
	    !IS_ALIGNED(args->cmd_offset, sizeof(struct m6npu_cmd)))
		return -EINVAL;
	if (args->step_addr >= M6NPU_VA_END)
		return -EINVAL;
	if (args->priority == DRM_M6NPU_PRIORITY_HIGH && !capable(CAP_SYS_NICE))
		return -EPERM;
	return 0;
}

/*
 * Element @index of a user's array. Fields that the user's version of the
 * structure lacks are zero, fields that ours lacks must be.
 */
static int submit_copy(void *dst, size_t size, u64 array, u32 stride,
		       unsigned int index)
{
	const char __user *src = u64_to_user_ptr(array);
	int ret;

	if (!stride || stride > MAX_STRIDE)
		return -EINVAL;
	ret = copy_struct_from_user(dst, size, src + (size_t)index * stride,
				    stride);
	return ret == -E2BIG ? -EINVAL : ret;
}

static int submit_regions(struct m6npu_submission *sub)
{
	const struct drm_m6npu_submit *args = sub->args;
	struct drm_m6npu_region region;
	unsigned int i;
	u64 end;
	int ret;

	for (i = 0; i < args->region_count; i++) {
		ret = submit_copy(&region, sizeof(region), args->regions,
				  args->region_stride, i);
		if (ret)
			return ret;
		if (!region.size)
			continue;
		if (!IS_ALIGNED(region.addr, 64) ||
		    check_add_overflow(region.addr, region.size, &end) ||
		    end > M6NPU_VA_END)
			return -EINVAL;
		sub->job->region[i].addr = cpu_to_le64(region.addr);
		sub->job->region[i].size = cpu_to_le64(region.size);
	}
	return 0;
}

/* What the job is told of must be ready for the device. */
static int submit_use(struct m6npu_submission *sub)
{
	struct m6npu_job *job = sub->job;
	struct m6npu_vm *vm = sub->ctx->vm;
	unsigned int i;
	int ret;

	if (!atomic_read(&vm->unready))
		return 0;
	for (i = 0; i < M6NPU_REGIONS; i++) {
		ret = m6npu_vm_use(vm, le64_to_cpu(job->region[i].addr),
				   le64_to_cpu(job->region[i].size));
		if (ret)
			return ret;
	}
	if (!job->step_addr)
		return 0;
	return m6npu_vm_use(vm, job->step_addr, STEP_MAX_SIZE);
}

static int submit_copy_sync(struct m6npu_submission *sub, u64 array,
			    unsigned int index, struct drm_m6npu_sync *sync)
{
	bool timeline;
	int ret;

	ret = submit_copy(sync, sizeof(*sync), array, sub->args->sync_stride,
			  index);
	if (ret)
		return ret;
	timeline = sync->flags & DRM_M6NPU_SYNC_TIMELINE;
	if (sync->flags & ~DRM_M6NPU_SYNC_TIMELINE || timeline != !!sync->point)
		return -EINVAL;
	return 0;
}

static int submit_in_syncs(struct m6npu_submission *sub)
{
	struct drm_m6npu_sync sync;
	unsigned int i;
	int ret;

	for (i = 0; i < sub->args->in_sync_count; i++) {
		ret = submit_copy_sync(sub, sub->args->in_syncs, i, &sync);
		if (ret)
			return ret;
		ret = drm_syncobj_find_fence(sub->file, sync.handle,
					     sync.point, 0, &sub->in[i]);
		if (ret)
			return ret;
		sub->in_count++;
	}
	return 0;
}

static int submit_out_syncs(struct m6npu_submission *sub)
{
	struct m6npu_out_sync *out;
	struct drm_m6npu_sync sync;
	unsigned int i;
	int ret;

	for (i = 0; i < sub->args->out_sync_count; i++) {
		ret = submit_copy_sync(sub, sub->args->out_syncs, i, &sync);
		if (ret)
			return ret;
		out = &sub->out[i];
		out->syncobj = drm_syncobj_find(sub->file, sync.handle);
		if (!out->syncobj)
			return -ENOENT;
		sub->out_count++;
		out->point = sync.point;
		if (!sync.point)
			continue;
		if (!m6npu_fault_due(sub->ctx->m6npu))
			out->chain = dma_fence_chain_alloc();
		if (!out->chain)
			return -ENOMEM;
	}
	return 0;
}

static void submit_release(struct m6npu_submission *sub)
{
	unsigned int i;

	for (i = 0; i < sub->in_count; i++)
		dma_fence_put(sub->in[i]);
	for (i = 0; i < sub->out_count; i++) {
		dma_fence_chain_free(sub->out[i].chain);
		drm_syncobj_put(sub->out[i].syncobj);
	}
	if (sub->cmdlist)
		drm_gem_object_put(sub->cmdlist);
	if (sub->job)
		m6npu_job_destroy(sub->job);
	kfree(sub);
}

static enum m6npu_engine submit_engine(const struct drm_m6npu_submit *args)
{
	return args->flags & DRM_M6NPU_SUBMIT_DMA_ENGINE ? M6NPU_ENGINE_DMA :
							   M6NPU_ENGINE_UNITS;
}

static struct drm_sched_entity *
entity_create(struct m6npu_device *m6npu, u32 priority, u32 mask)
{
	static const enum drm_sched_priority priorities[M6NPU_PRIORITIES] = {
		[DRM_M6NPU_PRIORITY_NORMAL] = DRM_SCHED_PRIORITY_NORMAL,
		[DRM_M6NPU_PRIORITY_LOW] = DRM_SCHED_PRIORITY_LOW,
		[DRM_M6NPU_PRIORITY_HIGH] = DRM_SCHED_PRIORITY_HIGH,
	};
	struct drm_gpu_scheduler **scheds = &m6npu->dma_sched;
	struct drm_sched_entity *entity;
	int ret;

	if (m6npu_fault_due(m6npu))
		return ERR_PTR(-ENOMEM);
	entity = kzalloc(sizeof(*entity), GFP_KERNEL);
	if (!entity)
		return ERR_PTR(-ENOMEM);
	if (mask)
		scheds = m6npu->unit_scheds[mask];
	ret = drm_sched_entity_init(entity, priorities[priority], scheds,
				    mask ? hweight32(mask) : 1, NULL);
	if (ret) {
		kfree(entity);
		return ERR_PTR(ret);
	}
	return entity;
}

/* The queue for an engine kind, priority and unit mask. */
static struct drm_sched_entity *submit_entity(struct m6npu_submission *sub)
{
	const struct drm_m6npu_submit *args = sub->args;
	struct m6npu_context *ctx = sub->ctx;
	struct drm_sched_entity *entity;
	unsigned long key;
	u32 mask = 0;
	int ret;

	lockdep_assert_held(&ctx->submit_lock);
	if (submit_engine(args) == M6NPU_ENGINE_UNITS)
		mask = args->unit_mask ?: ALL_UNITS;
	key = args->priority << M6NPU_UNITS | mask;
	entity = xa_load(&ctx->entities, key);
	if (entity)
		return entity;
	entity = entity_create(ctx->m6npu, args->priority, mask);
	if (IS_ERR(entity))
		return entity;
	ret = xa_err(xa_store(&ctx->entities, key, entity, GFP_KERNEL));
	if (ret) {
		m6npu_compat_entity_fini(entity);
		kfree(entity);
		return ERR_PTR(ret);
	}
	return entity;
}

static int submit_dependencies(struct m6npu_submission *sub,
			       const struct m6npu_last_job *last,
			       const struct drm_sched_entity *entity)
{
	struct drm_sched_job *base = &sub->job->base;
	unsigned int i;
	int ret;

	for (i = 0; i < sub->in_count; i++) {
		ret = drm_sched_job_add_dependency(base,
						   dma_fence_get(sub->in[i]));
		if (ret)
			return ret;
	}
	if (!last->fence || last->entity == entity)
		return 0;
	return drm_sched_job_add_dependency(base, dma_fence_get(last->fence));
}

static void submit_signal(struct m6npu_submission *sub,
			  struct dma_fence *finished)
{
	struct m6npu_out_sync *out;
	unsigned int i;

	for (i = 0; i < sub->out_count; i++) {
		out = &sub->out[i];
		if (out->chain)
			drm_syncobj_add_point(out->syncobj, out->chain,
					      finished, out->point);
		else
			drm_syncobj_replace_fence(out->syncobj, finished);
		out->chain = NULL;
	}
}

/* Nothing fails here any more. The job may be gone when this returns. */
static void submit_push(struct m6npu_submission *sub,
			struct m6npu_last_job *last,
			struct drm_sched_entity *entity)
{
	struct m6npu_job *job = sub->job;
	struct dma_fence *finished;

	drm_sched_job_arm(&job->base);
	finished = &job->base.s_fence->finished;
	dma_resv_add_fence(&sub->ctx->vm->resv, finished,
			   DMA_RESV_USAGE_BOOKKEEP);
	submit_signal(sub, finished);
	dma_fence_put(last->fence);
	last->fence = dma_fence_get(finished);
	last->entity = entity;
	sub->args->job = job->id;
	trace_m6npu_job_submit(job);
	sub->job = NULL;
	drm_sched_entity_push_job(&job->base);
}

static int submit_reserve(struct m6npu_submission *sub)
{
	int ret;

	ret = dma_resv_reserve_fences(&sub->ctx->vm->resv, 1);
	if (ret)
		return ret;
	return m6npu_job_enlist(sub->job);
}

static int submit_queue(struct m6npu_submission *sub)
{
	enum m6npu_engine engine = submit_engine(sub->args);
	struct m6npu_context *ctx = sub->ctx;
	struct drm_sched_entity *entity;
	struct m6npu_last_job *last;
	int ret;

	lockdep_assert_held(&ctx->submit_lock);
	entity = submit_entity(sub);
	if (IS_ERR(entity))
		return PTR_ERR(entity);
	ret = drm_sched_job_init(&sub->job->base, entity, 1, NULL,
				 sub->file->client_id);
	if (ret)
		return ret;
	last = &ctx->last[engine][sub->args->priority];
	ret = submit_dependencies(sub, last, entity);
	if (ret)
		goto err_job;
	ret = mutex_lock_interruptible(&ctx->vm->gate);
	if (ret)
		goto err_job;
	ret = dma_resv_lock_interruptible(&ctx->vm->resv, NULL);
	if (ret)
		goto err_gate;
	ret = submit_reserve(sub);
	if (!ret)
		submit_push(sub, last, entity);
	dma_resv_unlock(&ctx->vm->resv);
err_gate:
	mutex_unlock(&ctx->vm->gate);
	if (!ret)
		return 0;
err_job:
	drm_sched_job_cleanup(&sub->job->base);
	return ret;
}

static int submit_prepare(struct m6npu_submission *sub)
{
	struct drm_m6npu_submit *args = sub->args;
	struct drm_gem_object *cmdlist;
	struct m6npu_job *job;
	int ret;

	job = m6npu_job_create(sub->ctx);
	if (IS_ERR(job))
		return PTR_ERR(job);
	sub->job = job;
	cmdlist = m6npu_cmdlist_get(sub->file, args->cmdlist, args->cmd_offset,
				    args->cmd_count, &job->cmd_addr);
	if (IS_ERR(cmdlist))
		return PTR_ERR(cmdlist);
	sub->cmdlist = cmdlist;
	job->cmd_count = args->cmd_count;
	job->step_addr = args->step_addr;
	ret = submit_regions(sub);
	if (ret)
		return ret;
	ret = submit_use(sub);
	if (ret)
		return ret;
	ret = submit_in_syncs(sub);
	if (ret)
		return ret;
	return submit_out_syncs(sub);
}

int m6npu_submit_ioctl(struct drm_device *drm, void *data,
		       struct drm_file *file)
{
	struct m6npu_device *m6npu = to_m6npu_device(drm);
	struct drm_m6npu_submit *args = data;
	struct m6npu_submission *sub;
	int ret;

	args->job = 0;
	if (m6npu_device_is_lost(m6npu))
		return -ENODEV;
	ret = submit_check(args);
	if (ret)
		return ret;
	if (m6npu_fault_due(m6npu))
		return -ENOMEM;
	sub = kzalloc(sizeof(*sub), GFP_KERNEL);
	if (!sub)
		return -ENOMEM;
	sub->args = args;
	sub->file = file;
	sub->ctx = to_m6npu_context(file);
	ret = submit_prepare(sub);
	if (!ret)
		ret = mutex_lock_interruptible(&sub->ctx->submit_lock);
	if (!ret) {
		ret = submit_queue(sub);
		mutex_unlock(&sub->ctx->submit_lock);
	}
	submit_release(sub);
	return ret;
}
