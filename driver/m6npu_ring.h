/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_RING_H
#define M6NPU_RING_H

#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include <drm/gpu_scheduler.h>

#include "m6npu_regs.h"

struct m6npu_context;
struct m6npu_device;
struct m6npu_job;

#define M6NPU_RING_ENTRIES		64

/**
 * struct m6npu_ring_memory - what a ring and the device share
 *
 * Coherent memory. The device writes @status only, and the driver believes
 * nothing of it but the fence value it put there itself.
 */
struct m6npu_ring_memory {
	/** @entry: the ring */
	struct m6npu_ring_entry entry[M6NPU_RING_ENTRIES];
	/** @region: region table of each entry */
	struct m6npu_region region[M6NPU_RING_ENTRIES][M6NPU_REGIONS];
	/** @status: status record of each entry; aligned to 64 bytes */
	struct {
		struct m6npu_job_status record;
	} __aligned(64) status[M6NPU_RING_ENTRIES];
};

/**
 * struct m6npu_ring - a compute unit or the DMA engine
 */
struct m6npu_ring {
	/** @m6npu: the device */
	struct m6npu_device *m6npu;
	/** @index: number of the ring */
	unsigned int index;
	/** @sched: hands over one job at a time */
	struct drm_gpu_scheduler sched;
	/** @fence_context: of the fences that jobs signal */
	u64 fence_context;
	/** @fence_seqno: of the youngest of them; run_job() only */
	u64 fence_seqno;
	/** @mem: shared memory */
	struct m6npu_ring_memory *mem;
	/** @mem_dma: bus address of @mem */
	dma_addr_t mem_dma;

	/**
	 * @expert_work: ends a job that waited too long for an expert, or has
	 * the device report again a fault that got lost; on recovery_wq
	 */
	struct delayed_work expert_work;

	/** @lock: protects the following members; taken in hard IRQs */
	spinlock_t lock;
	/**
	 * @job: in flight. Whoever sets it to NULL decides how the job ends;
	 * until then it cannot be freed.
	 */
	struct m6npu_job *job;
	/** @last_id: id of the job in flight or, if there is none, the last */
	u64 last_id;
	/** @last_ctx: its context; NULL once that is being closed */
	struct m6npu_context *last_ctx;
	/** @frozen: a reset is on its way, and decides how @job ends */
	bool frozen;
	/** @tail: free-running, entries written since the ring was enabled */
	u32 tail;
	/** @seqno: fence value of the youngest job; never goes back */
	u64 seqno;
	/** @progress: M6NPU_RING_PROGRESS that we expect between jobs */
	u32 progress;

	/** @lost_irqs: completions that only the timeout handler noticed */
	atomic_t lost_irqs;
	/** @resets: times the unit was reset */
	atomic_t resets;
};

int m6npu_rings_init(struct m6npu_device *m6npu);
void m6npu_rings_fini(struct m6npu_device *m6npu);
void m6npu_ring_start(struct m6npu_ring *ring);
int m6npu_ring_reset(struct m6npu_ring *ring);

/* The job in flight. */
int m6npu_ring_run(struct m6npu_ring *ring, struct m6npu_job *job);
bool m6npu_ring_complete(struct m6npu_ring *ring);
struct m6npu_job *m6npu_ring_take(struct m6npu_ring *ring,
				  struct m6npu_job *job);
void m6npu_ring_freeze(struct m6npu_ring *ring);
void m6npu_ring_thaw(struct m6npu_ring *ring);
u64 m6npu_ring_serves(struct m6npu_ring *ring, struct m6npu_context *ctx);
bool m6npu_ring_runs(struct m6npu_ring *ring, u64 fence_value);
bool m6npu_ring_executes(struct m6npu_ring *ring, u64 fence_value);
void m6npu_ring_abort(struct m6npu_ring *ring, struct m6npu_context *ctx,
		      u64 id);
void m6npu_ring_forget(struct m6npu_ring *ring, struct m6npu_context *ctx);

/* A job that waits for experts. */
struct m6npu_context *
m6npu_ring_fault(struct m6npu_ring *ring,
		 const struct m6npu_exception *exception, u64 *id);
void m6npu_ring_fault_lost(struct m6npu_ring *ring);
struct m6npu_context *
m6npu_ring_hint(struct m6npu_ring *ring,
		const struct m6npu_exception *exception, u64 *id);
struct m6npu_context *
m6npu_ring_full(struct m6npu_ring *ring,
		const struct m6npu_exception *exception, u64 *id);
void m6npu_ring_resume(struct m6npu_ring *ring, u32 asid);
void m6npu_ring_repeat(struct m6npu_ring *ring);
u64 m6npu_ring_job_id(struct m6npu_ring *ring, u64 fence_value);

u32 m6npu_ring_read(struct m6npu_ring *ring, u32 reg);
void m6npu_ring_write(struct m6npu_ring *ring, u32 reg, u32 value);
const char *m6npu_ring_name(const struct m6npu_ring *ring);

#endif
