// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Recovery
 *
 * Everything here runs on one ordered workqueue, the one the schedulers'
 * timeouts run on: a hung unit, a full reset and the loss of the device are
 * dealt with one after another.
 *
 * The scheduler has us look at a job twice in each job timeout. A job is left
 * alone if
 *
 * - the device wrote its result, and just the interrupt got lost;
 * - it waits for an expert, for which there is another timeout;
 * - the units are halted until they cooled down;
 * - it completed a command since the last look.
 *
 * Else, at the second look in a row that found nothing, its unit is reset.
 * That disturbs no other unit. A job that was told to end and did not gets no
 * second look. Only if the unit does not come back is the whole device reset,
 * at the expense of what runs on the other units, and the context whose job
 * caused it is ended. A context is also ended after some hangs in a row.
 *
 * If the device does not come back either, or if it answers with all ones, it
 * is lost: everything in flight, queued and to come fails with -ENODEV, and a
 * uevent asks for the driver to be bound again.
 *
 * Who ends the job is decided in m6npu_ring_take(), or by freezing the ring,
 * before its scheduler is stopped. So a job that is completed by an interrupt
 * at the last moment is either done and left alone, or ours.
 */
#include <linux/capability.h>
#include <linux/jiffies.h>

#include <drm/drm_drv.h>
#include <drm/drm_managed.h>
#include <drm/drm_print.h>

#include "m6npu_compat.h"
#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_drv.h"
#include "m6npu_reset.h"
#include "m6npu_trace.h"

#define DEVICE_ATTEMPTS		3
#define LOOKS			2

long m6npu_reset_period(void)
{
	if (!m6npu_job_timeout_ms)
		return MAX_SCHEDULE_TIMEOUT;
	return max(msecs_to_jiffies(m6npu_job_timeout_ms / LOOKS), 1ul);
}

static bool reset_has_patience(struct m6npu_job *job)
{
	return ++job->strikes < LOOKS;
}

/* The device says that the job waits for an expert. Do we know? */
static bool reset_look_stalled(struct m6npu_ring *ring, struct m6npu_job *job)
{
	m6npu_exceptions_drain(ring->m6npu);
	if (READ_ONCE(job->stalled)) {
		job->strikes = 0;
		return true;
	}
	/* The record got lost: have it posted again. */
	m6npu_ring_resume(ring, job->ctx->vm->asid);
	return reset_has_patience(job);
}

/* Is there a reason to leave the job alone? */
static bool reset_look(struct m6npu_ring *ring, struct m6npu_job *job)
{
	struct m6npu_device *m6npu = ring->m6npu;
	u32 status, progress;

	/* One that ended and waits to be freed, while another one runs. */
	if (READ_ONCE(ring->job) != job)
		return true;
	status = m6npu_ring_read(ring, M6NPU_RING_STATUS);
	if (status == ~0u && m6npu_device_check_lost(m6npu))
		return true;
	if (READ_ONCE(job->abort_error))
		return false;
	if (status & M6NPU_RING_STATUS_STALLED)
		return reset_look_stalled(ring, job);
	progress = m6npu_ring_read(ring, M6NPU_RING_PROGRESS);
	if (progress != job->seen_progress ||
	    m6npu_read(m6npu, M6NPU_REG_STATUS) & M6NPU_STATUS_HALTED) {
		job->seen_progress = progress;
		job->strikes = 0;
		return true;
	}
	return reset_has_patience(job);
}

static void reset_blame(struct m6npu_context *ctx, bool at_once)
{
	unsigned long flags;
	bool end;

	spin_lock_irqsave(&ctx->jobs_lock, flags);
	end = ++ctx->hangs >= M6NPU_CONTEXT_MAX_HANGS || at_once;
	spin_unlock_irqrestore(&ctx->jobs_lock, flags);
	if (!end)
		return;
	drm_warn(&ctx->m6npu->drm, "%s[%d] is refused further jobs\n",
		 ctx->comm, ctx->pid);
	m6npu_context_end(ctx, -ECANCELED);
}

static int reset_restart(struct m6npu_device *m6npu)
{
	unsigned int i;
	int ret;

	for (i = 0; i < DEVICE_ATTEMPTS; i++) {
		ret = m6npu_device_restart(m6npu);
		if (!ret)
			return 0;
		drm_err(&m6npu->drm, "reset failed: %pe\n", ERR_PTR(ret));
	}
	m6npu_reset_lost(m6npu);
	return -ENODEV;
}

/*
 * A full reset. The jobs on all rings end with -EIO, those in the queues run
 * afterwards. The scheduler of @stopped, if any, is the caller's.
 */
static int reset_device(struct m6npu_device *m6npu, struct m6npu_ring *stopped)
{
	struct m6npu_ring *ring;
	struct m6npu_job *job;
	unsigned int i;
	int ret, error;

	drm_warn(&m6npu->drm, "resetting the device\n");
	trace_m6npu_reset(m6npu, -1, 0);
	atomic_inc(&m6npu->resets);
	for (i = 0; i < M6NPU_RINGS; i++) {
		ring = &m6npu->ring[i];
		m6npu_ring_freeze(ring);
		if (ring != stopped)
			drm_sched_stop(&ring->sched, NULL);
	}
	m6npu_device_save(m6npu);
	ret = reset_restart(m6npu);
	error = ret ?: -EIO;
	for (i = 0; i < M6NPU_RINGS; i++) {
		ring = &m6npu->ring[i];
		job = m6npu_ring_take(ring, NULL);
		m6npu_ring_thaw(ring);
		if (job)
			m6npu_job_done(job, error, NULL);
		if (ring != stopped)
			m6npu_compat_sched_start(&ring->sched, error);
	}
	return ret;
}

/* The result of a job that hung, which the device did not write. */
static void reset_result(struct m6npu_ring *ring, struct m6npu_job *job,
			 struct m6npu_job_status *status)
{
	u32 progress = m6npu_ring_read(ring, M6NPU_RING_PROGRESS);

	*status = (struct m6npu_job_status) {
		.code = cpu_to_le32(job->abort_error ? M6NPU_EXC_ABORTED :
						       M6NPU_EXC_UNIT_HANG),
		.cmd_index = cpu_to_le32(progress - READ_ONCE(ring->progress)),
	};
}

static enum drm_gpu_sched_stat reset_unit(struct m6npu_ring *ring,
					  struct m6npu_job *job)
{
	struct m6npu_device *m6npu = ring->m6npu;
	struct m6npu_job_status status;
	int ret, error;

	if (!m6npu_ring_take(ring, job))
		return m6npu_compat_no_hang(&job->base);
	error = job->abort_error ?: -ETIME;
	drm_err(&m6npu->drm, "%s hangs with job %llu of %s[%d], resetting it\n",
		m6npu_ring_name(ring), job->id, job->ctx->comm, job->ctx->pid);
	trace_m6npu_reset(m6npu, ring->index, job->id);
	atomic_inc(&ring->resets);
	m6npu_coredump_take(ring, job);
	reset_result(ring, job, &status);

	drm_sched_stop(&ring->sched, &job->base);
	ret = m6npu_ring_reset(ring);
	if (!ret)
		m6npu_ring_start(ring);
	if (ret == -ENODEV)
		error = ret;
	else if (ret || !job->abort_error)
		reset_blame(job->ctx, ret);
	m6npu_job_done(job, error, &status);
	if (ret && ret != -ENODEV)
		reset_device(m6npu, ring);
	m6npu_compat_sched_start(&ring->sched, error);
	return m6npu_compat_was_reset();
}

/**
 * m6npu_reset_timedout() - look at a job that takes long
 * @base: job, still in flight when the scheduler decided to call
 *
 * Return: how the scheduler goes on with the job.
 */
enum drm_gpu_sched_stat m6npu_reset_timedout(struct drm_sched_job *base)
{
	enum drm_gpu_sched_stat stat;
	struct m6npu_job *job = to_m6npu_job(base);
	struct m6npu_ring *ring = job->ring;
	int idx;

	/* Unplugged: lost_work ends the job. */
	if (!drm_dev_enter(&ring->m6npu->drm, &idx))
		return m6npu_compat_no_hang(base);
	if (m6npu_ring_complete(ring)) {
		atomic_inc(&ring->lost_irqs);
		stat = m6npu_compat_no_hang(base);
	} else if (reset_look(ring, job)) {
		stat = m6npu_compat_no_hang(base);
	} else {
		stat = reset_unit(ring, job);
	}
	drm_dev_exit(idx);
	return stat;
}

static void reset_work(struct work_struct *work)
{
	struct m6npu_device *m6npu = container_of(work, struct m6npu_device,
						  reset_work);
	int idx;

	m6npu->reset_result = -ENODEV;
	if (m6npu_device_is_lost(m6npu) || !drm_dev_enter(&m6npu->drm, &idx))
		return;
	m6npu->reset_result = reset_device(m6npu, NULL);
	drm_dev_exit(idx);
}

static void reset_lost_work(struct work_struct *work)
{
	struct m6npu_device *m6npu = container_of(work, struct m6npu_device,
						  lost_work);
	struct m6npu_job *job;
	unsigned int i;
	int idx;

	/* The end of its jobs says that it writes to no memory any more. */
	m6npu_device_quiesce(m6npu);
	for (i = 0; i < M6NPU_RINGS; i++) {
		job = m6npu_ring_take(&m6npu->ring[i], NULL);
		if (job)
			m6npu_job_done(job, -ENODEV, NULL);
	}
	/* Nobody to tell if it was unbound, or never got so far. */
	if (!m6npu->drm.registered || !drm_dev_enter(&m6npu->drm, &idx))
		return;
	drm_err(&m6npu->drm, "device lost; unbind and bind the driver, or reset the slot\n");
	m6npu_compat_wedged_event(&m6npu->drm);
	drm_dev_exit(idx);
}

/* Context: any. */
void m6npu_reset_lost(struct m6npu_device *m6npu)
{
	if (!test_and_set_bit(M6NPU_STATE_LOST, &m6npu->state))
		queue_work(m6npu->recovery_wq, &m6npu->lost_work);
}

/**
 * m6npu_reset_request() - reset the device
 * @m6npu: device
 *
 * Return: 0, or -ENODEV if it is lost.
 */
int m6npu_reset_request(struct m6npu_device *m6npu)
{
	if (m6npu_device_is_lost(m6npu))
		return -ENODEV;
	queue_work(m6npu->recovery_wq, &m6npu->reset_work);
	flush_work(&m6npu->reset_work);
	return READ_ONCE(m6npu->reset_result);
}

int m6npu_reset_ioctl(struct drm_device *drm, void *data,
		      struct drm_file *file)
{
	struct drm_m6npu_reset *args = data;

	if (args->flags || args->pad)
		return -EINVAL;
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	return m6npu_reset_request(to_m6npu_device(drm));
}

static void reset_wq_destroy(struct drm_device *drm, void *wq)
{
	destroy_workqueue(wq);
}

int m6npu_reset_init(struct m6npu_device *m6npu)
{
	INIT_WORK(&m6npu->reset_work, reset_work);
	INIT_WORK(&m6npu->lost_work, reset_lost_work);
	m6npu->recovery_wq = alloc_ordered_workqueue("m6npu-recovery",
						     WQ_MEM_RECLAIM);
	if (!m6npu->recovery_wq)
		return -ENOMEM;
	return drmm_add_action_or_reset(&m6npu->drm, reset_wq_destroy,
					m6npu->recovery_wq);
}

/* The driver is being unbound: nothing is in flight when this returns. */
void m6npu_reset_fini(struct m6npu_device *m6npu)
{
	m6npu_reset_lost(m6npu);
	flush_workqueue(m6npu->recovery_wq);
}
