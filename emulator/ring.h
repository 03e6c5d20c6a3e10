/* SPDX-License-Identifier: MIT */
/*
 * A ring and the worker thread that serves it.
 *
 * Whoever resets a ring raises its generation and goes on; the worker notices
 * at the next command boundary that its job belongs to an older generation,
 * drops it, and only then is the reset done. So nobody ever waits for a
 * worker while holding up the guest.
 */
#ifndef M6_RING_H
#define M6_RING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "m6npu_regs.h"

#define M6_RING_SIZE_MIN	2
#define M6_RING_SIZE_MAX	1024

struct m6_device;
struct m6_job;

struct m6_ring {
	struct m6_device *dev;
	unsigned int index;
	struct m6_job *job;		/* the worker's own */
	pthread_t thread;
	pthread_mutex_t lock;		/* guards all below but the atomics */
	pthread_cond_t wake;		/* for the worker */
	pthread_cond_t quiet;		/* the worker has nothing to do */
	bool quit;
	/* As written. */
	uint32_t base_lo;
	uint32_t base_hi;
	uint32_t size;
	/* As of the rising edge of ENABLE. */
	uint64_t base;
	uint32_t entries;
	bool enabled;
	uint32_t head;
	uint32_t tail;
	uint64_t submit_ns[M6_RING_SIZE_MAX];	/* device time of the doorbell */
	/* The worker's state. */
	bool working;
	bool stalled;
	bool resetting;			/* until the worker has let go */
	bool reset_done;
	bool hang;			/* injected: until the next reset */
	uint32_t resumes;
	uint64_t resume_ns;		/* device time of the last one */
	uint64_t fence;			/* of the job in flight */
	/* Raised under the lock, looked at without. */
	atomic_uint generation;
	atomic_bool abort;
	atomic_uint progress;
};

int m6_ring_init(struct m6_ring *ring, struct m6_device *dev,
		 unsigned int index);
void m6_ring_destroy(struct m6_ring *ring);
/* Everything to its initial state. Does not wait. */
void m6_ring_reset(struct m6_ring *ring);
/* False while a worker still holds on to a job from before a reset. */
bool m6_ring_ready(struct m6_ring *ring);
bool m6_ring_wait_quiet(struct m6_ring *ring, unsigned int timeout_ms);

/* Registers, offset within the ring's block. */
uint32_t m6_ring_read(struct m6_ring *ring, uint32_t offset);
void m6_ring_write(struct m6_ring *ring, uint32_t offset, uint32_t value);

/* True if the job of @generation is to stop. */
bool m6_ring_cancelled(const struct m6_ring *ring, unsigned int generation);
/*
 * The job waits until RESUME is written; @resumes as of before the command
 * that faulted. Returns at once if that has happened since, or on cancel.
 */
void m6_ring_stall(struct m6_ring *ring, unsigned int generation,
		   uint32_t resumes);
uint32_t m6_ring_resumes(struct m6_ring *ring);
/* Waits while the units are too hot, or hang. */
void m6_ring_gate(struct m6_ring *ring, unsigned int generation);
/*
 * The job is over: writes the status record, unless the ring was reset, and
 * moves the head. True if it did.
 */
bool m6_ring_complete(struct m6_ring *ring, unsigned int generation,
		      uint64_t addr, const struct m6npu_job_status *status);
void m6_ring_set_fence(struct m6_ring *ring, uint64_t fence);

#endif
