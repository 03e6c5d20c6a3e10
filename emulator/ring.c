// SPDX-License-Identifier: MIT
#include "ring.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "core.h"
#include "job_priv.h"
#include "log.h"

/* How often a worker looks whether its unit has cooled down. */
#define GATE_POLL_MS	20

static struct timespec deadline(unsigned int ms)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += ms / 1000;
	at.tv_nsec += ms % 1000 * 1000000l;
	if (at.tv_nsec >= 1000000000l) {
		at.tv_sec++;
		at.tv_nsec -= 1000000000l;
	}
	return at;
}

static bool ring_has_work(const struct m6_ring *ring)
{
	return ring->enabled && ring->head != ring->tail;
}

/* The worker has let go of whatever a reset was to stop. */
static void ring_settle(struct m6_ring *ring)
{
	if (ring->resetting) {
		ring->resetting = false;
		ring->reset_done = !ring->enabled;
		ring->hang = false;
	}
}

static void ring_run_next(struct m6_ring *ring)
{
	uint32_t slot = ring->head % ring->entries;
	uint64_t addr = ring->base +
			(uint64_t)slot * sizeof(struct m6npu_ring_entry);
	unsigned int generation = atomic_load(&ring->generation);
	uint64_t submit_ns = ring->submit_ns[slot];

	ring->working = true;
	ring->fence = 0;
	atomic_store(&ring->abort, false);
	pthread_mutex_unlock(&ring->lock);
	m6_job_run(ring->job, generation, addr, submit_ns);
	pthread_mutex_lock(&ring->lock);
	ring->working = false;
	ring->stalled = false;
}

static void *ring_thread(void *arg)
{
	struct m6_ring *ring = arg;

	pthread_mutex_lock(&ring->lock);
	while (!ring->quit) {
		ring_settle(ring);
		if (ring_has_work(ring)) {
			ring_run_next(ring);
		} else {
			pthread_cond_broadcast(&ring->quiet);
			pthread_cond_wait(&ring->wake, &ring->lock);
		}
	}
	pthread_mutex_unlock(&ring->lock);
	return NULL;
}

int m6_ring_init(struct m6_ring *ring, struct m6_device *dev,
		 unsigned int index)
{
	pthread_condattr_t attr;
	int err;

	memset(ring, 0, sizeof(*ring));
	ring->dev = dev;
	ring->index = index;
	ring->job = m6_job_create(dev, ring);
	if (!ring->job)
		return -ENOMEM;
	pthread_mutex_init(&ring->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&ring->wake, &attr);
	pthread_cond_init(&ring->quiet, &attr);
	pthread_condattr_destroy(&attr);
	err = pthread_create(&ring->thread, NULL, ring_thread, ring);
	if (err) {
		m6_job_destroy(ring->job);
		ring->job = NULL;
	}
	return -err;
}

void m6_ring_destroy(struct m6_ring *ring)
{
	if (!ring->job)
		return;
	pthread_mutex_lock(&ring->lock);
	ring->quit = true;
	atomic_fetch_add(&ring->generation, 1);
	pthread_cond_broadcast(&ring->wake);
	pthread_mutex_unlock(&ring->lock);
	pthread_join(ring->thread, NULL);
	m6_job_destroy(ring->job);
	pthread_cond_destroy(&ring->wake);
	pthread_cond_destroy(&ring->quiet);
	pthread_mutex_destroy(&ring->lock);
}

/* RING_CTRL.RESET: everything but what was written to BASE and SIZE. */
static void ring_drop(struct m6_ring *ring)
{
	atomic_fetch_add(&ring->generation, 1);
	ring->enabled = false;
	ring->head = 0;
	ring->tail = 0;
	ring->resetting = true;
	ring->reset_done = false;
	if (!ring->working)
		ring_settle(ring);
	pthread_cond_broadcast(&ring->wake);
}

void m6_ring_reset(struct m6_ring *ring)
{
	pthread_mutex_lock(&ring->lock);
	ring_drop(ring);
	ring->base_lo = 0;
	ring->base_hi = 0;
	ring->size = 0;
	atomic_store(&ring->progress, 0);
	pthread_mutex_unlock(&ring->lock);
}

bool m6_ring_ready(struct m6_ring *ring)
{
	bool ready;

	pthread_mutex_lock(&ring->lock);
	ready = !ring->resetting;
	pthread_mutex_unlock(&ring->lock);
	return ready;
}

bool m6_ring_wait_quiet(struct m6_ring *ring, unsigned int timeout_ms)
{
	struct timespec end = deadline(timeout_ms);
	int err = 0;
	bool quiet;

	pthread_mutex_lock(&ring->lock);
	for (;;) {
		quiet = ring->stalled ||
			(!ring->working && !ring_has_work(ring));
		if (quiet || err)
			break;
		err = pthread_cond_timedwait(&ring->quiet, &ring->lock, &end);
	}
	pthread_mutex_unlock(&ring->lock);
	return quiet;
}

static void ring_enable(struct m6_ring *ring)
{
	uint64_t base = (uint64_t)ring->base_hi << 32 | ring->base_lo;

	if (base % 4096 || ring->size < M6_RING_SIZE_MIN ||
	    ring->size > M6_RING_SIZE_MAX || ring->size & (ring->size - 1)) {
		m6_guest_error("ring %u: not enabled, base %#llx size %u",
			       ring->index, (unsigned long long)base,
			       ring->size);
		return;
	}
	ring->base = base;
	ring->entries = ring->size;
	ring->head = 0;
	ring->tail = 0;
	ring->enabled = true;
	ring->reset_done = false;
	/* A job of before an ENABLE is of no more use than one of before a reset. */
	if (ring->working)
		atomic_fetch_add(&ring->generation, 1);
	atomic_store(&ring->progress, 0);
}

static void ring_control(struct m6_ring *ring, uint32_t value)
{
	if (value & M6NPU_RING_CTRL_RESET) {
		ring_drop(ring);
		return;
	}
	if (!(value & M6NPU_RING_CTRL_ENABLE))
		ring->enabled = false;
	else if (!ring->enabled)
		ring_enable(ring);
}

static void ring_doorbell(struct m6_ring *ring, uint32_t tail)
{
	uint32_t queued = tail - ring->head;
	uint64_t now;

	if (!ring->enabled || queued > ring->entries ||
	    queued < ring->tail - ring->head) {
		m6_guest_error("ring %u: doorbell %u ignored, head %u tail %u",
			       ring->index, tail, ring->head, ring->tail);
		return;
	}
	now = m6_clock_now(&ring->dev->clock);
	for (; ring->tail != tail; ring->tail++)
		ring->submit_ns[ring->tail % ring->entries] = now;
	pthread_cond_broadcast(&ring->wake);
}

static void ring_abort(struct m6_ring *ring, uint32_t fence)
{
	if (!ring->working || (uint32_t)ring->fence != fence)
		return;
	atomic_store(&ring->abort, true);
	pthread_cond_broadcast(&ring->wake);
}

static uint32_t ring_status(const struct m6_ring *ring)
{
	bool busy = ring->working || ring_has_work(ring);

	return (ring->enabled ? M6NPU_RING_STATUS_ENABLED : 0) |
	       (busy ? M6NPU_RING_STATUS_BUSY : 0) |
	       (ring->stalled ? M6NPU_RING_STATUS_STALLED : 0) |
	       (ring->reset_done ? M6NPU_RING_STATUS_RESET_DONE : 0);
}

uint32_t m6_ring_read(struct m6_ring *ring, uint32_t offset)
{
	uint32_t value = 0;

	pthread_mutex_lock(&ring->lock);
	switch (offset) {
	case M6NPU_RING_BASE_LO:
		value = ring->base_lo;
		break;
	case M6NPU_RING_BASE_HI:
		value = ring->base_hi;
		break;
	case M6NPU_RING_SIZE:
		value = ring->size;
		break;
	case M6NPU_RING_CTRL:
		value = ring->enabled ? M6NPU_RING_CTRL_ENABLE : 0;
		break;
	case M6NPU_RING_STATUS:
		value = ring_status(ring);
		break;
	case M6NPU_RING_HEAD:
		value = ring->head;
		break;
	case M6NPU_RING_PROGRESS:
		value = atomic_load(&ring->progress);
		break;
	}
	pthread_mutex_unlock(&ring->lock);
	return value;
}

void m6_ring_write(struct m6_ring *ring, uint32_t offset, uint32_t value)
{
	pthread_mutex_lock(&ring->lock);
	switch (offset) {
	case M6NPU_RING_BASE_LO:
		ring->base_lo = value;
		break;
	case M6NPU_RING_BASE_HI:
		ring->base_hi = value;
		break;
	case M6NPU_RING_SIZE:
		ring->size = value;
		break;
	case M6NPU_RING_CTRL:
		ring_control(ring, value);
		break;
	case M6NPU_RING_DOORBELL:
		ring_doorbell(ring, value);
		break;
	case M6NPU_RING_RESUME:
		ring->resumes++;
		ring->resume_ns = m6_clock_now(&ring->dev->clock);
		ring->stalled = false;
		pthread_cond_broadcast(&ring->wake);
		break;
	case M6NPU_RING_ABORT:
		ring_abort(ring, value);
		break;
	}
	pthread_mutex_unlock(&ring->lock);
}

bool m6_ring_cancelled(const struct m6_ring *ring, unsigned int generation)
{
	return atomic_load_explicit(&ring->generation,
				    memory_order_relaxed) != generation ||
	       atomic_load_explicit(&ring->abort, memory_order_relaxed);
}

uint32_t m6_ring_resumes(struct m6_ring *ring)
{
	uint32_t resumes;

	pthread_mutex_lock(&ring->lock);
	resumes = ring->resumes;
	pthread_mutex_unlock(&ring->lock);
	return resumes;
}

void m6_ring_stall(struct m6_ring *ring, unsigned int generation,
		   uint32_t resumes)
{
	struct m6_clock *clock = &ring->dev->clock;
	uint64_t resume_ns;

	m6_clock_stop(clock, ring->index);
	pthread_mutex_lock(&ring->lock);
	ring->stalled = true;
	pthread_cond_broadcast(&ring->quiet);
	while (ring->resumes == resumes &&
	       !m6_ring_cancelled(ring, generation))
		pthread_cond_wait(&ring->wake, &ring->lock);
	ring->stalled = false;
	resume_ns = ring->resumes == resumes ? m6_clock_now(clock) :
					       ring->resume_ns;
	pthread_mutex_unlock(&ring->lock);
	m6_clock_start(clock, ring->index, resume_ns);
}

/* A hung unit listens to nothing but a reset: not to ABORT. */
static bool ring_hangs(const struct m6_ring *ring, unsigned int generation)
{
	return ring->hang && atomic_load(&ring->generation) == generation;
}

void m6_ring_gate(struct m6_ring *ring, unsigned int generation)
{
	struct m6_clock *clock = &ring->dev->clock;
	bool halted = m6_clock_halted(clock);

	pthread_mutex_lock(&ring->lock);
	if (!halted && !ring->hang) {
		pthread_mutex_unlock(&ring->lock);
		return;
	}
	m6_clock_stop(clock, ring->index);
	while (ring_hangs(ring, generation) ||
	       (halted && !m6_ring_cancelled(ring, generation))) {
		struct timespec end = deadline(GATE_POLL_MS);

		pthread_cond_timedwait(&ring->wake, &ring->lock, &end);
		halted = m6_clock_halted(clock);
	}
	pthread_mutex_unlock(&ring->lock);
	m6_clock_start(clock, ring->index, m6_clock_now(clock));
}

void m6_ring_set_fence(struct m6_ring *ring, uint64_t fence)
{
	pthread_mutex_lock(&ring->lock);
	ring->fence = fence;
	pthread_mutex_unlock(&ring->lock);
}

/* The fence comes last: who sees it sees the rest. */
static int write_status(struct m6_memory *mem, uint64_t addr,
			const struct m6npu_job_status *status)
{
	const size_t skip = sizeof(status->fence);
	int err;

	_Static_assert(offsetof(struct m6npu_job_status, fence) == 0,
		       "the fence is stored by itself, last");
	err = m6_memory_write(mem, addr + skip, (const char *)status + skip,
			      sizeof(*status) - skip);
	return err ? err : m6_memory_publish(mem, addr, status->fence);
}

bool m6_ring_complete(struct m6_ring *ring, unsigned int generation,
		      uint64_t addr, const struct m6npu_job_status *status)
{
	bool ours;
	int err = 0;

	pthread_mutex_lock(&ring->lock);
	ours = atomic_load(&ring->generation) == generation;
	if (ours) {
		if (addr)
			err = write_status(&ring->dev->mem, addr, status);
		ring->head++;
		ring->fence = 0;
	}
	pthread_mutex_unlock(&ring->lock);
	if (err)
		m6_guest_error("ring %u: no status record at %#llx",
			       ring->index, (unsigned long long)addr);
	return ours;
}
