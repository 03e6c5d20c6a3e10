// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Jobs
 *
 * From SUBMIT (m6npu_submit.c) a job goes to a scheduler's queue, from there
 * to a ring (m6npu_ring.c), and ends by one of
 *
 * - the device's status record (interrupt, or timeout if that got lost),
 * - a reset of its unit or of the device (m6npu_reset.c),
 * - refusal in run_job(): the device is lost, or its context was ended,
 * - being dropped from the queue when its file is closed.
 *
 * The first three call m6npu_job_end() exactly once before the job's finished
 * fence signals, so whoever waited for that fence finds the job in the
 * context's history. In the last case there is nobody left to ask.
 *
 * Everything a job needs is allocated at submission; between run_job() and
 * the signal of its fence nothing is allocated and no lock is taken that is
 * held over an allocation.
 *
 * The fence is an object of its own, with its own lock and without release or
 * wait operations, so that it may outlive the driver.
 */
#include <linux/dma-fence.h>
#include <linux/slab.h>

#include <drm/drm_managed.h>
#include <drm/drm_print.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_drv.h"
#include "m6npu_event.h"
#include "m6npu_job.h"
#include "m6npu_reset.h"
#include "m6npu_trace.h"

/* How often a job that does not end is told to. */
#define ABORT_REPEAT		msecs_to_jiffies(20)

/**
 * struct m6npu_fence - signalled when the device is done with a job
 */
struct m6npu_fence {
	/** @base: first, so that dma_fence_free() frees us */
	struct dma_fence base;
	/** @lock: of @base */
	spinlock_t lock;
};

static const char *m6npu_fence_driver_name(struct dma_fence *fence)
{
	return M6NPU_DRIVER_NAME;
}

static const char *m6npu_fence_timeline_name(struct dma_fence *fence)
{
	return "ring";
}

static const struct dma_fence_ops m6npu_fence_ops = {
	.get_driver_name = m6npu_fence_driver_name,
	.get_timeline_name = m6npu_fence_timeline_name,
};

/**
 * m6npu_job_create() - a job of a context, with all it will ever need
 * @ctx: context
 *
 * Return: the job, for m6npu_job_destroy(), or an error pointer.
 */
struct m6npu_job *m6npu_job_create(struct m6npu_context *ctx)
{
	struct m6npu_job *job;

	if (m6npu_fault_due(ctx->m6npu))
		return ERR_PTR(-ENOMEM);
	job = kzalloc(sizeof(*job), GFP_KERNEL);
	if (!job)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&job->link);
	job->ctx = m6npu_context_get(ctx);
	atomic_inc(&ctx->jobs_alive);
	if (!m6npu_fault_due(ctx->m6npu))
		job->fence = kzalloc(sizeof(*job->fence), GFP_KERNEL);
	job->event = m6npu_event_alloc(DRM_M6NPU_EVENT_EXCEPTION, GFP_KERNEL);
	if (!job->fence || !job->event) {
		m6npu_job_destroy(job);
		return ERR_PTR(-ENOMEM);
	}
	spin_lock_init(&job->fence->lock);
	return job;
}

/* The opposite of m6npu_job_create(); the scheduler's part is gone already. */
void m6npu_job_destroy(struct m6npu_job *job)
{
	struct m6npu_context *ctx = job->ctx;

	if (job->ring)
		dma_fence_put(&job->fence->base);
	else
		kfree(job->fence);
	kfree(job->event);
	kfree(job);
	atomic_dec(&ctx->jobs_alive);
	wake_up_all(&ctx->jobs_wait);
	m6npu_context_put(ctx);
}

/**
 * m6npu_job_enlist() - make a job one of its context's, with an id
 * @job: job that is about to be queued
 *
 * Return: 0, -EIO if the context was ended, or -EAGAIN if it has too many
 * jobs.
 */
int m6npu_job_enlist(struct m6npu_job *job)
{
	struct m6npu_context *ctx = job->ctx;
	unsigned long flags;
	int ret = 0;

	spin_lock_irqsave(&ctx->jobs_lock, flags);
	if (ctx->ended) {
		ret = -EIO;
	} else if (ctx->job_count >= M6NPU_CONTEXT_MAX_JOBS) {
		ret = -EAGAIN;
	} else {
		job->id = ctx->next_job++;
		list_add_tail(&job->link, &ctx->jobs);
		ctx->job_count++;
	}
	spin_unlock_irqrestore(&ctx->jobs_lock, flags);
	return ret;
}

static void job_result(const struct m6npu_job *job, int error,
		       const struct m6npu_job_status *status,
		       struct drm_m6npu_job_info *info)
{
	*info = (struct drm_m6npu_job_info) {
		.job = job->id,
		.error = error,
	};
	if (!status)
		return;
	info->exception = le32_to_cpu(status->code);
	info->fault_addr = le64_to_cpu(status->fault_addr);
	info->begin_ns = le64_to_cpu(status->begin_ns);
	info->end_ns = le64_to_cpu(status->end_ns);
	info->cmd_index = le32_to_cpu(status->cmd_index);
	info->router_hits = le32_to_cpu(status->router_hits);
	info->router_misses = le32_to_cpu(status->router_misses);
	info->expert_faults = le32_to_cpu(status->expert_faults);
}

static void job_account(struct m6npu_job_stats *stats,
			const struct drm_m6npu_job_info *info, u64 cycles)
{
	stats->jobs++;
	if (info->error)
		stats->failed++;
	if (info->end_ns > info->begin_ns)
		stats->busy_ns += info->end_ns - info->begin_ns;
	stats->cycles += cycles;
	stats->router_hits += info->router_hits;
	stats->router_misses += info->router_misses;
	stats->expert_faults += info->expert_faults;
}

static void job_tell(struct m6npu_job *job,
		     const struct drm_m6npu_job_info *info)
{
	struct drm_m6npu_event_exception *exception;
	struct m6npu_event *event = job->event;

	if (!event || !info->exception)
		return;
	job->event = NULL;
	exception = &event->u.exception;
	exception->job = job->id;
	exception->code = info->exception;
	exception->unit = job->ring ? job->ring->index : 0;
	exception->addr = info->fault_addr;
	exception->cmd_index = info->cmd_index;
	m6npu_event_send(job->ctx, event);
}

/**
 * m6npu_job_end() - enter a job's result into its context
 * @job: job that was queued and not ended
 * @error: 0 or negative errno
 * @status: what the device wrote, or NULL
 */
void m6npu_job_end(struct m6npu_job *job, int error,
		   const struct m6npu_job_status *status)
{
	struct m6npu_context *ctx = job->ctx;
	struct drm_m6npu_job_info info;
	unsigned long flags;

	job_result(job, error, status, &info);
	trace_m6npu_job_done(job, &info);
	job_tell(job, &info);

	spin_lock_irqsave(&ctx->jobs_lock, flags);
	list_del_init(&job->link);
	ctx->job_count--;
	ctx->history[ctx->history_pos++ % M6NPU_JOB_HISTORY] = info;
	job_account(&ctx->stats, &info,
		    status ? le64_to_cpu(status->cycles) : 0);
	if (!error)
		ctx->hangs = 0;
	spin_unlock_irqrestore(&ctx->jobs_lock, flags);
	wake_up_all(&ctx->jobs_wait);
}

/**
 * m6npu_job_done() - end a job that had been given to a ring
 * @job: job taken from its ring; may be freed before this returns
 * @error: 0 or negative errno
 * @status: what the device wrote, or NULL
 */
void m6npu_job_done(struct m6npu_job *job, int error,
		    const struct m6npu_job_status *status)
{
	struct dma_fence *fence = dma_fence_get(&job->fence->base);

	m6npu_job_end(job, error, status);
	if (error)
		dma_fence_set_error(fence, error);
	dma_fence_signal(fence);
	dma_fence_put(fence);
}

static struct dma_fence *m6npu_job_run(struct drm_sched_job *base)
{
	struct m6npu_ring *ring = container_of(base->sched, struct m6npu_ring,
					       sched);
	struct m6npu_job *job = to_m6npu_job(base);
	struct dma_fence *fence = &job->fence->base;
	int ret;

	dma_fence_init(fence, &m6npu_fence_ops, &job->fence->lock,
		       ring->fence_context, ++ring->fence_seqno);
	job->ring = ring;
	dma_fence_get(fence);
	ret = m6npu_ring_run(ring, job);
	if (!ret)
		return fence;
	m6npu_job_done(job, ret, NULL);
	dma_fence_put(fence);
	return ERR_PTR(ret);
}

/* A job that is still enlisted here was dropped from the queue. */
static void m6npu_job_free(struct drm_sched_job *base)
{
	struct m6npu_job *job = to_m6npu_job(base);

	if (!list_empty(&job->link))
		m6npu_job_end(job, -ECANCELED, NULL);
	drm_sched_job_cleanup(base);
	m6npu_job_destroy(job);
}

static const struct drm_sched_backend_ops m6npu_sched_ops = {
	.run_job = m6npu_job_run,
	.timedout_job = m6npu_reset_timedout,
	.free_job = m6npu_job_free,
};

/*
 * A context that is being closed no longer asks, one that was not may have
 * a job for which the scheduler's memory must still be there: so schedulers
 * live as long as the DRM device.
 */
static void m6npu_sched_fini(struct drm_device *drm, void *sched)
{
	drm_sched_fini(sched);
}

static int m6npu_sched_init(struct m6npu_ring *ring)
{
	struct m6npu_device *m6npu = ring->m6npu;
	struct drm_sched_init_args args = {
		.ops = &m6npu_sched_ops,
		.num_rqs = DRM_SCHED_PRIORITY_COUNT,
		.credit_limit = 1,
		.timeout = m6npu_reset_period(),
		.timeout_wq = m6npu->recovery_wq,
		.name = m6npu_ring_name(ring),
		.dev = m6npu->drm.dev,
	};
	int ret;

	ret = drm_sched_init(&ring->sched, &args);
	if (ret)
		return ret;
	return drmm_add_action_or_reset(&m6npu->drm, m6npu_sched_fini,
					&ring->sched);
}

int m6npu_scheds_init(struct m6npu_device *m6npu)
{
	unsigned int i, n, mask;
	int ret;

	for (i = 0; i < M6NPU_RINGS; i++) {
		ret = m6npu_sched_init(&m6npu->ring[i]);
		if (ret)
			return ret;
	}
	for (mask = 1; mask < ARRAY_SIZE(m6npu->unit_scheds); mask++) {
		n = 0;
		for (i = 0; i < M6NPU_UNITS; i++) {
			if (mask & BIT(i))
				m6npu->unit_scheds[mask][n++] =
					&m6npu->ring[i].sched;
		}
	}
	m6npu->dma_sched = &m6npu->ring[M6NPU_RING_DMA].sched;
	return 0;
}

static struct m6npu_job *job_find(struct m6npu_context *ctx, u64 id)
{
	struct m6npu_job *job;

	lockdep_assert_held(&ctx->jobs_lock);
	list_for_each_entry(job, &ctx->jobs, link) {
		if (job->id == id)
			return job;
	}
	return NULL;
}

int m6npu_job_info_ioctl(struct drm_device *drm, void *data,
			 struct drm_file *file)
{
	struct m6npu_context *ctx = to_m6npu_context(file);
	struct drm_m6npu_job_info *args = data;
	int ret = -ENOENT;
	unsigned int i;

	if (!args->job)
		return -ENOENT;
	spin_lock_irq(&ctx->jobs_lock);
	for (i = 0; i < M6NPU_JOB_HISTORY; i++) {
		if (ctx->history[i].job != args->job)
			continue;
		*args = ctx->history[i];
		ret = 0;
		break;
	}
	if (ret && job_find(ctx, args->job))
		ret = -EBUSY;
	spin_unlock_irq(&ctx->jobs_lock);
	return ret;
}

/* False if the job has ended, or never was. */
static bool job_cancel(struct m6npu_context *ctx, u64 id)
{
	struct m6npu_job *job;

	spin_lock_irq(&ctx->jobs_lock);
	job = job_find(ctx, id);
	if (job)
		WRITE_ONCE(job->cancelled, true);
	spin_unlock_irq(&ctx->jobs_lock);
	return job;
}

/*
 * The job ends in any case: the timeout handler sees to that if its unit
 * hangs.
 */
int m6npu_job_abort_ioctl(struct drm_device *drm, void *data,
			  struct drm_file *file)
{
	struct m6npu_context *ctx = to_m6npu_context(file);
	const struct drm_m6npu_job_abort *args = data;
	unsigned int i;
	long ret = 0;

	if (!job_cancel(ctx, args->job))
		return -ENOENT;
	while (!ret) {
		for (i = 0; i < M6NPU_RINGS; i++)
			m6npu_ring_abort(&ctx->m6npu->ring[i], ctx, args->job);
		ret = wait_event_interruptible_timeout(ctx->jobs_wait,
						       !job_cancel(ctx, args->job),
						       ABORT_REPEAT);
	}
	return ret < 0 ? ret : 0;
}
