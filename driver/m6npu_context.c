// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Contexts
 *
 * An open file is a context: an address space, an expert table, queues of
 * jobs, a history of those that ended, and events. The driver makes contexts
 * for itself, too (m6npu_copy.c); those have no file and no events.
 *
 * Closing is in two steps. m6npu_context_stop() comes first, before the DRM
 * core releases the file's buffers: it drops what is queued, has the device
 * end what runs (a job that waits for an expert would else hold its unit, and
 * the closing process, until the expert timeout), and waits until no ring
 * works for the context. So buffers are never waited for. Then postclose
 * calls m6npu_context_close(), which gives back what the context owns.
 *
 * A queued job that was dropped can still be there afterwards, since the
 * scheduler ends it only when its dependencies have signalled. It holds the
 * context, and the context holds the DRM device and the module. The last
 * reference may thus be put from a scheduler's work, which cannot destroy the
 * scheduler; a work of our own does it.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include <drm/drm_drv.h>
#include <drm/drm_gem.h>
#include <drm/drm_print.h>

#include "m6npu_compat.h"
#include "m6npu_context.h"
#include "m6npu_event.h"

/* How long the device gets to end a job that it was told to end. */
#define ABORT_TIMEOUT		msecs_to_jiffies(2000)
/* How long jobs that ended are waited for to be freed. */
#define LINGER_TIMEOUT		msecs_to_jiffies(200)
/* How often a unit is asked whether its job waits for an expert. */
#define STALL_POLL_MIN_NS	(20 * NSEC_PER_USEC)
#define STALL_POLL_MAX_NS	(4 * NSEC_PER_MSEC)

static struct workqueue_struct *m6npu_context_wq;

int m6npu_contexts_init(void)
{
	m6npu_context_wq = alloc_workqueue("m6npu", WQ_UNBOUND, 0);
	return m6npu_context_wq ? 0 : -ENOMEM;
}

void m6npu_contexts_exit(void)
{
	destroy_workqueue(m6npu_context_wq);
}

static void context_set_owner(struct m6npu_context *ctx, struct drm_file *file)
{
	ctx->file = file;
	if (file) {
		ctx->pid = task_tgid_nr(current);
		get_task_comm(ctx->comm, current);
		m6npu_events_open(ctx);
	} else {
		strscpy(ctx->comm, "kernel");
	}
}

/* @file: whose context it is, or NULL if it is the driver's own */
struct m6npu_context *m6npu_context_create(struct m6npu_device *m6npu,
					   struct drm_file *file)
{
	struct m6npu_context *ctx;
	int ret;

	if (m6npu_fault_due(m6npu))
		return ERR_PTR(-ENOMEM);
	ctx = kzalloc(sizeof(*ctx), GFP_KERNEL);
	if (!ctx)
		return ERR_PTR(-ENOMEM);
	ctx->vm = m6npu_vm_create(m6npu);
	if (IS_ERR(ctx->vm)) {
		ret = PTR_ERR(ctx->vm);
		goto err_free;
	}
	ctx->m6npu = m6npu;
	ret = m6npu_context_pools_init(ctx);
	if (ret)
		goto err_vm;

	drm_dev_get(&m6npu->drm);
	__module_get(THIS_MODULE);
	kref_init(&ctx->ref);
	ctx->next_job = 1;
	mutex_init(&ctx->submit_lock);
	xa_init(&ctx->entities);
	spin_lock_init(&ctx->jobs_lock);
	INIT_LIST_HEAD(&ctx->jobs);
	init_waitqueue_head(&ctx->jobs_wait);
	m6npu_experts_init(ctx);
	context_set_owner(ctx, file);

	mutex_lock(&m6npu->contexts_lock);
	list_add_tail(&ctx->link, &m6npu->contexts);
	mutex_unlock(&m6npu->contexts_lock);
	return ctx;

err_vm:
	m6npu_vm_put(ctx->vm);
err_free:
	kfree(ctx);
	return ERR_PTR(ret);
}

static void context_free(struct m6npu_context *ctx)
{
	struct m6npu_device *m6npu = ctx->m6npu;

	m6npu_vm_put(ctx->vm);
	mutex_destroy(&ctx->submit_lock);
	kfree(ctx);
	drm_dev_put(&m6npu->drm);
	module_put(THIS_MODULE);
}

static void context_free_work(struct work_struct *work)
{
	context_free(container_of(work, struct m6npu_context, free_work));
}

static void context_release_deferred(struct kref *ref)
{
	struct m6npu_context *ctx = container_of(ref, struct m6npu_context,
						 ref);

	INIT_WORK(&ctx->free_work, context_free_work);
	queue_work(m6npu_context_wq, &ctx->free_work);
}

static void context_release(struct kref *ref)
{
	context_free(container_of(ref, struct m6npu_context, ref));
}

struct m6npu_context *m6npu_context_get(struct m6npu_context *ctx)
{
	kref_get(&ctx->ref);
	return ctx;
}

/* Context: any. */
void m6npu_context_put(struct m6npu_context *ctx)
{
	kref_put(&ctx->ref, context_release_deferred);
}

/**
 * m6npu_context_end() - let no more jobs of a context run
 * @ctx: context
 * @error: how those end that are queued
 */
void m6npu_context_end(struct m6npu_context *ctx, int error)
{
	unsigned long flags;

	spin_lock_irqsave(&ctx->jobs_lock, flags);
	if (!ctx->ended)
		WRITE_ONCE(ctx->ended, error);
	spin_unlock_irqrestore(&ctx->jobs_lock, flags);
}

bool m6npu_context_has_jobs(struct m6npu_context *ctx)
{
	bool has_jobs;

	spin_lock_irq(&ctx->jobs_lock);
	has_jobs = ctx->job_count;
	spin_unlock_irq(&ctx->jobs_lock);
	return has_jobs;
}

/* Is there a ring of which @is is true for the job in @running? */
static bool context_any(struct m6npu_context *ctx, const u64 *running,
			bool (*is)(struct m6npu_ring *ring, u64 fence_value))
{
	unsigned int i;

	for (i = 0; i < M6NPU_RINGS; i++) {
		if (running[i] && is(&ctx->m6npu->ring[i], running[i]))
			return true;
	}
	return false;
}

/*
 * The end of a job wakes us, and so does the record that says that one waits.
 * That may come before the ring's status says so, hence look again, soon at
 * first; and it may get lost.
 */
int m6npu_context_wait_running(struct m6npu_context *ctx)
{
	u64 running[M6NPU_RINGS], pause = STALL_POLL_MIN_NS;
	unsigned int i;
	int stalls;
	long ret;

	for (i = 0; i < M6NPU_RINGS; i++)
		running[i] = m6npu_ring_serves(&ctx->m6npu->ring[i], ctx);
	for (;;) {
		stalls = atomic_read(&ctx->stalls);
		if (!context_any(ctx, running, m6npu_ring_executes))
			return 0;
		ret = wait_event_interruptible_hrtimeout(ctx->jobs_wait,
							 atomic_read(&ctx->stalls) != stalls ||
							 !context_any(ctx, running,
								      m6npu_ring_runs),
							 ns_to_ktime(pause));
		if (ret == -ERESTARTSYS)
			return ret;
		pause = ret ? min(pause * 2, STALL_POLL_MAX_NS) :
			      STALL_POLL_MIN_NS;
	}
}

static bool context_is_served(struct m6npu_context *ctx)
{
	unsigned int i;

	for (i = 0; i < M6NPU_RINGS; i++) {
		if (m6npu_ring_serves(&ctx->m6npu->ring[i], ctx))
			return true;
	}
	return false;
}

static void context_drop_queued(struct m6npu_context *ctx)
{
	struct drm_sched_entity *entity;
	unsigned int engine, i;
	unsigned long key;

	mutex_lock(&ctx->submit_lock);
	xa_for_each(&ctx->entities, key, entity) {
		m6npu_compat_entity_fini(entity);
		kfree(entity);
	}
	xa_destroy(&ctx->entities);
	for (engine = 0; engine < M6NPU_ENGINES; engine++) {
		for (i = 0; i < M6NPU_PRIORITIES; i++)
			dma_fence_put(ctx->last[engine][i].fence);
	}
	memset(ctx->last, 0, sizeof(ctx->last));
	mutex_unlock(&ctx->submit_lock);
}

/*
 * A unit that does not end a job when told so is treated as one that hangs,
 * which is for the timeout handler; it ends the job in any case.
 */
static void context_end_running(struct m6npu_context *ctx)
{
	struct m6npu_device *m6npu = ctx->m6npu;
	unsigned int i;

	for (i = 0; i < M6NPU_RINGS; i++)
		m6npu_ring_abort(&m6npu->ring[i], ctx, 0);
	while (!wait_event_timeout(ctx->jobs_wait, !context_is_served(ctx),
				   ABORT_TIMEOUT)) {
		for (i = 0; i < M6NPU_RINGS; i++) {
			if (m6npu_ring_serves(&m6npu->ring[i], ctx))
				drm_sched_fault(&m6npu->ring[i].sched);
		}
	}
}

/**
 * m6npu_context_stop() - end all jobs of a context that is being closed
 * @ctx: context; no ioctl of its file is running
 */
void m6npu_context_stop(struct m6npu_context *ctx)
{
	unsigned int i;

	m6npu_events_close(ctx);
	m6npu_context_end(ctx, -ECANCELED);
	context_drop_queued(ctx);
	context_end_running(ctx);
	for (i = 0; i < M6NPU_RINGS; i++)
		m6npu_ring_forget(&ctx->m6npu->ring[i], ctx);
	/* Not needed, but what the file held is then free when close returns. */
	wait_event_timeout(ctx->jobs_wait, !atomic_read(&ctx->jobs_alive),
			   LINGER_TIMEOUT);
}

/**
 * m6npu_context_close() - give back what a context owns
 * @ctx: stopped context, put by this
 */
void m6npu_context_close(struct m6npu_context *ctx)
{
	struct m6npu_device *m6npu = ctx->m6npu;

	mutex_lock(&m6npu->contexts_lock);
	list_del(&ctx->link);
	mutex_unlock(&m6npu->contexts_lock);
	m6npu_experts_fini(ctx);
	m6npu_context_pools_fini(ctx);
	kref_put(&ctx->ref, context_release);
}
