// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Rings
 *
 * A ring is a compute unit or the DMA engine. Its scheduler hands over one
 * job at a time: the units do not overlap jobs, the gap between two is a
 * doorbell and an interrupt, and with one job in flight there is never a
 * question whose fault a hang is.
 *
 * The device writes a job's result to the status record of the ring's slot,
 * the fence value last, and raises the ring's vector. The handler reads that
 * record and no register. The only thing it believes is that a job is done if
 * its own fence value stands there: everything else is figures, which are
 * reported and never used as an index.
 *
 * &m6npu_ring.job is the one point of decision about a job's end. Completion,
 * timeout, reset and unplug compete for it under the ring's lock; who takes
 * it signals the job's fence, and until then the job cannot be freed.
 *
 * A job that waits for an expert holds its ring. The device posts an
 * exception record (m6npu_exception.c), userspace gets an event, binds the
 * expert, and m6npu_rings_resume() has the job look again. @expert_work
 * guards against two things: an expert that never comes ends the job, and an
 * event for which there was no space is repeated by resuming the job, upon
 * which the device posts the fault again.
 */
#include <linux/bitops.h>
#include <linux/dma-mapping.h>
#include <linux/iopoll.h>
#include <linux/jiffies.h>

#include <drm/drm_drv.h>
#include <drm/drm_managed.h>
#include <drm/drm_print.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_drv.h"
#include "m6npu_ring.h"
#include "m6npu_trace.h"

#define RESET_POLL_US		500
#define RESET_TIMEOUT_US	USEC_PER_SEC
#define FAULT_RETRY_MS		200

static const char * const ring_names[M6NPU_RINGS] = {
	"m6npu-unit0", "m6npu-unit1", "m6npu-unit2", "m6npu-unit3",
	"m6npu-dma",
};

const char *m6npu_ring_name(const struct m6npu_ring *ring)
{
	return ring_names[ring->index];
}

u32 m6npu_ring_read(struct m6npu_ring *ring, u32 reg)
{
	return m6npu_read(ring->m6npu, M6NPU_RING_BLOCK(ring->index) + reg);
}

void m6npu_ring_write(struct m6npu_ring *ring, u32 reg, u32 value)
{
	m6npu_write(ring->m6npu, M6NPU_RING_BLOCK(ring->index) + reg, value);
}

/* Enables a ring that is empty and disabled, as after a reset. */
void m6npu_ring_start(struct m6npu_ring *ring)
{
	unsigned long flags;

	m6npu_ring_write(ring, M6NPU_RING_BASE_LO, lower_32_bits(ring->mem_dma));
	m6npu_ring_write(ring, M6NPU_RING_BASE_HI, upper_32_bits(ring->mem_dma));
	m6npu_ring_write(ring, M6NPU_RING_SIZE, M6NPU_RING_ENTRIES);
	spin_lock_irqsave(&ring->lock, flags);
	ring->tail = 0;
	ring->progress = 0;
	spin_unlock_irqrestore(&ring->lock, flags);
	m6npu_ring_write(ring, M6NPU_RING_CTRL, M6NPU_RING_CTRL_ENABLE);
}

/**
 * m6npu_ring_reset() - have one unit drop what it does
 * @ring: ring, no longer responsible for a job
 *
 * When this succeeds the device writes no status record any more.
 *
 * Return: 0, -ETIMEDOUT, or -ENODEV if the device is lost.
 */
int m6npu_ring_reset(struct m6npu_ring *ring)
{
	u32 status;
	int ret;

	m6npu_ring_write(ring, M6NPU_RING_CTRL, M6NPU_RING_CTRL_RESET);
	ret = read_poll_timeout(m6npu_ring_read, status,
				status & M6NPU_RING_STATUS_RESET_DONE,
				RESET_POLL_US, RESET_TIMEOUT_US, false,
				ring, M6NPU_RING_STATUS);
	if (status == ~0u && m6npu_device_check_lost(ring->m6npu))
		return -ENODEV;
	return ret;
}

static dma_addr_t ring_dma(struct m6npu_ring *ring, void *part)
{
	return ring->mem_dma + (part - (void *)ring->mem);
}

static void ring_fill(struct m6npu_ring *ring, struct m6npu_job *job)
{
	struct m6npu_ring_memory *mem = ring->mem;
	unsigned int slot = job->slot;
	dma_addr_t status = ring_dma(ring, &mem->status[slot]);
	dma_addr_t region = ring_dma(ring, mem->region[slot]);

	memset(&mem->status[slot], 0, sizeof(mem->status[slot]));
	memcpy(mem->region[slot], job->region, sizeof(job->region));
	mem->entry[slot] = (struct m6npu_ring_entry) {
		.asid = cpu_to_le16(job->ctx->vm->asid),
		.cmd_count = cpu_to_le32(job->cmd_count),
		.cmd_addr = cpu_to_le64(job->cmd_addr),
		.region_addr = cpu_to_le64(region),
		.step_addr = cpu_to_le64(job->step_addr),
		.status_addr = cpu_to_le64(status),
		.fence_value = cpu_to_le64(job->fence_value),
	};
}

/**
 * m6npu_ring_run() - give a job to the device
 * @ring: ring, idle
 * @job: job; the ring decides about its end from here on
 *
 * Return: 0, or how the job ends without having begun: it is still the caller's.
 */
int m6npu_ring_run(struct m6npu_ring *ring, struct m6npu_job *job)
{
	unsigned long flags;
	int idx, ret = 0;
	u32 tail;

	if (!drm_dev_enter(&ring->m6npu->drm, &idx))
		return -ENODEV;
	spin_lock_irqsave(&ring->lock, flags);
	/* Who cancels it looks for it here afterwards, under this lock. */
	if (READ_ONCE(job->ctx->ended))
		ret = job->ctx->ended;
	else if (m6npu_device_is_lost(ring->m6npu))
		ret = -ENODEV;
	else if (READ_ONCE(job->cancelled))
		ret = -ECANCELED;
	if (ret) {
		spin_unlock_irqrestore(&ring->lock, flags);
		drm_dev_exit(idx);
		return ret;
	}
	job->fence_value = ++ring->seqno;
	job->slot = ring->tail % M6NPU_RING_ENTRIES;
	job->seen_progress = ring->progress;
	trace_m6npu_job_run(job);
	ring_fill(ring, job);
	tail = ++ring->tail;
	ring->job = job;
	ring->last_id = job->id;
	ring->last_ctx = job->ctx;
	spin_unlock_irqrestore(&ring->lock, flags);

	/* writel() orders the entry before the doorbell. */
	m6npu_ring_write(ring, M6NPU_RING_DOORBELL, tail);
	drm_dev_exit(idx);
	return 0;
}

/* The job goes on, or ends. */
static void ring_end_stall(struct m6npu_ring *ring, struct m6npu_job *job)
{
	s64 ns;

	lockdep_assert_held(&ring->lock);
	if (!job->stalled)
		return;
	ns = ktime_to_ns(ktime_sub(ktime_get(), job->stall_begin));
	atomic64_add(ns, &job->ctx->stall_ns);
	atomic64_add(ns, &ring->m6npu->router.stall_ns);
	job->stalled = false;
}

/*
 * Did the device write that the job in flight is done? If so the job is the
 * caller's.
 */
static struct m6npu_job *ring_reap(struct m6npu_ring *ring,
				   struct m6npu_job_status *status)
{
	struct m6npu_job *job = ring->job;
	struct m6npu_job_status *record;

	lockdep_assert_held(&ring->lock);
	if (!job || ring->frozen)
		return NULL;
	record = &ring->mem->status[job->slot].record;
	if (le64_to_cpu(READ_ONCE(record->fence)) != job->fence_value)
		return NULL;
	dma_rmb();
	*status = *record;
	ring_end_stall(ring, job);
	ring->job = NULL;
	ring->progress += le32_to_cpu(status->cmd_index);
	return job;
}

/**
 * m6npu_ring_complete() - end the job in flight if the device is done with it
 * @ring: ring
 *
 * Context: any.
 *
 * Return: true if there was such a job.
 */
bool m6npu_ring_complete(struct m6npu_ring *ring)
{
	struct m6npu_job_status status;
	struct m6npu_job *job;
	unsigned long flags;
	int error;

	spin_lock_irqsave(&ring->lock, flags);
	job = ring_reap(ring, &status);
	spin_unlock_irqrestore(&ring->lock, flags);
	if (!job)
		return false;
	error = m6npu_exception_errno(le32_to_cpu(status.code));
	if (error && job->abort_error)
		error = job->abort_error;
	m6npu_job_done(job, error, &status);
	return true;
}

/**
 * m6npu_ring_take() - decide about the end of the job in flight
 * @ring: ring
 * @job: the job in flight, or NULL for whichever it is
 *
 * Return: the job, now the caller's, or NULL if it ended already.
 */
struct m6npu_job *m6npu_ring_take(struct m6npu_ring *ring,
				  struct m6npu_job *job)
{
	struct m6npu_job *taken = NULL;
	unsigned long flags;

	spin_lock_irqsave(&ring->lock, flags);
	if (!job || ring->job == job)
		swap(taken, ring->job);
	spin_unlock_irqrestore(&ring->lock, flags);
	return taken;
}

/* No job is completed between freeze and thaw: a reset will end it. */
void m6npu_ring_freeze(struct m6npu_ring *ring)
{
	unsigned long flags;

	spin_lock_irqsave(&ring->lock, flags);
	ring->frozen = true;
	spin_unlock_irqrestore(&ring->lock, flags);
}

void m6npu_ring_thaw(struct m6npu_ring *ring)
{
	unsigned long flags;

	spin_lock_irqsave(&ring->lock, flags);
	ring->frozen = false;
	spin_unlock_irqrestore(&ring->lock, flags);
}

/* Fence value of the job in flight if it is this context's, else 0. */
u64 m6npu_ring_serves(struct m6npu_ring *ring, struct m6npu_context *ctx)
{
	unsigned long flags;
	u64 fence_value = 0;

	spin_lock_irqsave(&ring->lock, flags);
	if (ring->job && ring->job->ctx == ctx)
		fence_value = ring->job->fence_value;
	spin_unlock_irqrestore(&ring->lock, flags);
	return fence_value;
}

/* Is the job with this fence value in flight? */
bool m6npu_ring_runs(struct m6npu_ring *ring, u64 fence_value)
{
	unsigned long flags;
	bool runs;

	spin_lock_irqsave(&ring->lock, flags);
	runs = ring->job && ring->job->fence_value == fence_value;
	spin_unlock_irqrestore(&ring->lock, flags);
	return runs;
}

/*
 * Is the job with this fence value still working, that is, in flight and not
 * waiting for an expert? Records may be late, so the device is asked. If it
 * is lost the end of its jobs is near.
 */
bool m6npu_ring_executes(struct m6npu_ring *ring, u64 fence_value)
{
	u32 status;

	if (!m6npu_ring_runs(ring, fence_value))
		return false;
	status = m6npu_ring_read(ring, M6NPU_RING_STATUS);
	if (status == ~0u && m6npu_device_check_lost(ring->m6npu))
		return true;
	return !(status & M6NPU_RING_STATUS_STALLED);
}

/**
 * m6npu_ring_abort() - have the device end the job in flight
 * @ring: ring
 * @ctx: only if the job is this context's
 * @id: and has this id, or 0 for any
 *
 * A job that the device has not begun yet doesn't hear of it: look again.
 */
void m6npu_ring_abort(struct m6npu_ring *ring, struct m6npu_context *ctx,
		      u64 id)
{
	unsigned long flags;
	u64 fence_value = 0;

	spin_lock_irqsave(&ring->lock, flags);
	if (ring->job && ring->job->ctx == ctx &&
	    (!id || ring->job->id == id)) {
		if (!ring->job->abort_error)
			ring->job->abort_error = -ECANCELED;
		fence_value = ring->job->fence_value;
	}
	spin_unlock_irqrestore(&ring->lock, flags);
	if (fence_value)
		m6npu_ring_write(ring, M6NPU_RING_ABORT,
				 lower_32_bits(fence_value));
}

/* A context is being closed: none of its jobs is in flight, or will be. */
void m6npu_ring_forget(struct m6npu_ring *ring, struct m6npu_context *ctx)
{
	unsigned long flags;

	spin_lock_irqsave(&ring->lock, flags);
	if (ring->last_ctx == ctx)
		ring->last_ctx = NULL;
	spin_unlock_irqrestore(&ring->lock, flags);
}

static void ring_schedule(struct m6npu_ring *ring, unsigned long when)
{
	unsigned long now = jiffies;

	mod_delayed_work(ring->m6npu->recovery_wq, &ring->expert_work,
			 time_after(when, now) ? when - now : 0);
}

/* The job in flight, if that is what the record is about. */
static struct m6npu_job *ring_meant(struct m6npu_ring *ring,
				    const struct m6npu_exception *exception)
{
	struct m6npu_job *job = ring->job;

	lockdep_assert_held(&ring->lock);
	if (!job || job->fence_value != le64_to_cpu(exception->fence_value) ||
	    job->ctx->vm->asid != le16_to_cpu(exception->asid))
		return NULL;
	return job;
}

/**
 * m6npu_ring_fault() - the device says that the job in flight waits
 * @ring: ring
 * @exception: its record
 * @id: where the job's id goes
 *
 * Patience is measured per command: a fault on the same command, after an
 * expert was bound, does not begin it anew.
 *
 * Return: the job's context, referenced, or NULL if the record is not about
 * the job in flight.
 */
struct m6npu_context *
m6npu_ring_fault(struct m6npu_ring *ring,
		 const struct m6npu_exception *exception, u64 *id)
{
	u32 cmd = le32_to_cpu(exception->cmd_index);
	struct m6npu_context *ctx = NULL;
	unsigned long flags, deadline;
	struct m6npu_job *job;

	spin_lock_irqsave(&ring->lock, flags);
	job = ring_meant(ring, exception);
	if (job) {
		if (!job->stall_deadline || job->stall_cmd != cmd) {
			deadline = jiffies +
				   msecs_to_jiffies(m6npu_expert_timeout_ms);
			job->stall_deadline = deadline ?: 1;
			job->stall_cmd = cmd;
		}
		if (!job->stalled)
			job->stall_begin = ktime_get();
		job->stalled = true;
		deadline = job->stall_deadline;
		*id = job->id;
		ctx = m6npu_context_get(job->ctx);
	}
	spin_unlock_irqrestore(&ring->lock, flags);
	if (!ctx)
		return NULL;
	atomic_inc(&ctx->stalls);
	wake_up_all(&ctx->jobs_wait);
	ring_schedule(ring, deadline);
	return ctx;
}

/**
 * m6npu_ring_hint() - the device says what the job in flight will need
 * @ring: ring
 * @exception: its record
 * @id: where the job's id goes
 *
 * Return: the job's context, referenced, or NULL if the record is not about
 * the job in flight: one that ended needs nothing any more.
 */
struct m6npu_context *
m6npu_ring_hint(struct m6npu_ring *ring,
		const struct m6npu_exception *exception, u64 *id)
{
	struct m6npu_context *ctx = NULL;
	struct m6npu_job *job;
	unsigned long flags;

	spin_lock_irqsave(&ring->lock, flags);
	job = ring_meant(ring, exception);
	if (job) {
		*id = job->id;
		ctx = m6npu_context_get(job->ctx);
	}
	spin_unlock_irqrestore(&ring->lock, flags);
	return ctx;
}

/**
 * m6npu_ring_full() - the device says that the router cache had no room
 * @ring: ring
 * @exception: its record
 * @id: where the job's id goes
 *
 * Return: the context of the youngest job, which may have ended by now,
 * referenced, or NULL if the record is about another one.
 */
struct m6npu_context *
m6npu_ring_full(struct m6npu_ring *ring,
		const struct m6npu_exception *exception, u64 *id)
{
	struct m6npu_context *ctx = NULL;
	unsigned long flags;

	spin_lock_irqsave(&ring->lock, flags);
	if (ring->last_ctx &&
	    ring->seqno == le64_to_cpu(exception->fence_value) &&
	    ring->last_ctx->vm->asid == le16_to_cpu(exception->asid)) {
		*id = ring->last_id;
		ctx = m6npu_context_get(ring->last_ctx);
	}
	spin_unlock_irqrestore(&ring->lock, flags);
	return ctx;
}

/* Userspace could not be told about the fault: have it reported again. */
void m6npu_ring_fault_lost(struct m6npu_ring *ring)
{
	unsigned long flags;

	spin_lock_irqsave(&ring->lock, flags);
	if (ring->job)
		ring->job->fault_lost = true;
	spin_unlock_irqrestore(&ring->lock, flags);
	ring_schedule(ring, jiffies + msecs_to_jiffies(FAULT_RETRY_MS));
}

static bool ring_resume_locked(struct m6npu_ring *ring, u32 asid)
{
	struct m6npu_job *job = ring->job;

	lockdep_assert_held(&ring->lock);
	if (!job || job->ctx->vm->asid != asid)
		return false;
	ring_end_stall(ring, job);
	job->fault_lost = false;
	return true;
}

/*
 * Whether or not we know already that the job waits: its record may still be
 * on the way, and a unit that works ignores this.
 */
void m6npu_ring_resume(struct m6npu_ring *ring, u32 asid)
{
	unsigned long flags;
	bool resume;

	spin_lock_irqsave(&ring->lock, flags);
	resume = ring_resume_locked(ring, asid);
	spin_unlock_irqrestore(&ring->lock, flags);
	if (resume)
		m6npu_ring_write(ring, M6NPU_RING_RESUME, 1);
}

/* Whatever the job in flight waits for, if it does, is to be reported again. */
void m6npu_ring_repeat(struct m6npu_ring *ring)
{
	unsigned long flags;
	bool resume = false;

	spin_lock_irqsave(&ring->lock, flags);
	if (ring->job)
		resume = ring_resume_locked(ring, ring->job->ctx->vm->asid);
	spin_unlock_irqrestore(&ring->lock, flags);
	if (resume)
		m6npu_ring_write(ring, M6NPU_RING_RESUME, 1);
}

/*
 * Id of the youngest job if it has this fence value, else 0. For logs: records
 * of jobs that failed tend to come after the job's end.
 */
u64 m6npu_ring_job_id(struct m6npu_ring *ring, u64 fence_value)
{
	unsigned long flags;
	u64 id = 0;

	spin_lock_irqsave(&ring->lock, flags);
	if (fence_value && ring->seqno == fence_value)
		id = ring->last_id;
	spin_unlock_irqrestore(&ring->lock, flags);
	return id;
}

static void ring_expert_work(struct work_struct *work)
{
	struct m6npu_ring *ring = container_of(to_delayed_work(work),
					       struct m6npu_ring, expert_work);
	bool abort = false, repeat = false;
	unsigned long flags, deadline = 0;
	struct m6npu_job *job;
	u64 fence_value = 0;

	spin_lock_irqsave(&ring->lock, flags);
	job = ring->job;
	if (job && job->stalled && !job->abort_error) {
		deadline = job->stall_deadline;
		fence_value = job->fence_value;
		abort = time_after_eq(jiffies, deadline);
		repeat = !abort && job->fault_lost;
		if (abort)
			job->abort_error = -ETIME;
		if (repeat)
			ring_resume_locked(ring, job->ctx->vm->asid);
	}
	spin_unlock_irqrestore(&ring->lock, flags);

	if (abort)
		m6npu_ring_write(ring, M6NPU_RING_ABORT,
				 lower_32_bits(fence_value));
	else if (repeat)
		m6npu_ring_write(ring, M6NPU_RING_RESUME, 1);
	else if (deadline)
		ring_schedule(ring, deadline);
}

static int ring_init(struct m6npu_device *m6npu, unsigned int index)
{
	struct m6npu_ring *ring = &m6npu->ring[index];

	BUILD_BUG_ON(sizeof(struct m6npu_ring_entry) != 64);
	ring->m6npu = m6npu;
	ring->index = index;
	ring->fence_context = dma_fence_context_alloc(1);
	spin_lock_init(&ring->lock);
	INIT_DELAYED_WORK(&ring->expert_work, ring_expert_work);
	ring->mem = dmam_alloc_coherent(&m6npu->pdev->dev, sizeof(*ring->mem),
					&ring->mem_dma, GFP_KERNEL);
	return ring->mem ? 0 : -ENOMEM;
}

int m6npu_rings_init(struct m6npu_device *m6npu)
{
	unsigned int i;
	int ret;

	for (i = 0; i < M6NPU_RINGS; i++) {
		ret = ring_init(m6npu, i);
		if (ret)
			return ret;
	}
	return 0;
}

/*
 * No job is in flight any more, and none will be. Disabled for good: the
 * vectors' threads, which may schedule the work, are freed later.
 */
void m6npu_rings_fini(struct m6npu_device *m6npu)
{
	unsigned int i;

	for (i = 0; i < M6NPU_RINGS; i++)
		disable_delayed_work_sync(&m6npu->ring[i].expert_work);
}
