/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_JOB_H
#define M6NPU_JOB_H

#include <linux/dma-fence.h>
#include <linux/types.h>

#include <drm/gpu_scheduler.h>
#include <drm/m6npu_accel.h>

#include "m6npu_regs.h"

struct drm_file;
struct m6npu_context;
struct m6npu_device;
struct m6npu_event;
struct m6npu_fence;
struct m6npu_ring;

enum m6npu_engine {
	M6NPU_ENGINE_UNITS,
	M6NPU_ENGINE_DMA,
	M6NPU_ENGINES,
};

#define M6NPU_PRIORITIES	3

/**
 * struct m6npu_last_job - the youngest job of an engine kind and priority
 */
struct m6npu_last_job {
	/** @entity: queue it went to */
	struct drm_sched_entity *entity;
	/** @fence: its finished fence */
	struct dma_fence *fence;
};

/**
 * struct m6npu_job_stats - sums over jobs
 */
struct m6npu_job_stats {
	/** @jobs: jobs that ended */
	u64 jobs;
	/** @failed: those of them with an error */
	u64 failed;
	/** @busy_ns: device time */
	u64 busy_ns;
	/** @cycles: unit cycles */
	u64 cycles;
	/** @router_hits: translations found in the router cache */
	u64 router_hits;
	/** @router_misses: translations that walked the expert table */
	u64 router_misses;
	/** @expert_faults: times a job waited for an expert */
	u64 expert_faults;
};

/**
 * struct m6npu_job - one submission
 */
struct m6npu_job {
	/** @base: the scheduler's part, which frees the job */
	struct drm_sched_job base;
	/** @ctx: context, referenced */
	struct m6npu_context *ctx;
	/** @link: in &m6npu_context.jobs until the job ended */
	struct list_head link;
	/** @id: what userspace calls it, 0 until it is queued */
	u64 id;
	/** @cancelled: is not to begin; written under the context's jobs_lock */
	bool cancelled;
	/** @cmd_addr: device address of the first command */
	u64 cmd_addr;
	/** @cmd_count: number of commands */
	u32 cmd_count;
	/** @step_addr: device address of the step block, or 0 */
	u64 step_addr;
	/** @region: region table, unused entries zero */
	struct m6npu_region region[M6NPU_REGIONS];
	/** @fence: signalled when the device is done with the job */
	struct m6npu_fence *fence;
	/** @event: to tell that the job failed; allocated ahead */
	struct m6npu_event *event;

	/** @ring: where it runs; set, with @fence initialized, in run_job() */
	struct m6npu_ring *ring;
	/** @fence_value: what the device writes when it is done */
	u64 fence_value;
	/** @slot: of the ring */
	unsigned int slot;

	/* The following are protected by the ring's lock. */

	/** @abort_error: why it was told to end, 0 if it was not */
	int abort_error;
	/** @stalled: the device said that it waits for an expert */
	bool stalled;
	/** @stall_begin: when that was heard */
	ktime_t stall_begin;
	/** @stall_cmd: command that waits */
	u32 stall_cmd;
	/** @stall_deadline: when its patience ends, in jiffies */
	unsigned long stall_deadline;
	/** @fault_lost: userspace was not told about the last fault */
	bool fault_lost;

	/* The following are used by the timeout handler only. */

	/** @seen_progress: M6NPU_RING_PROGRESS at the last look */
	u32 seen_progress;
	/** @strikes: looks that found no progress, in a row */
	unsigned int strikes;
};

static inline struct m6npu_job *to_m6npu_job(struct drm_sched_job *base)
{
	return container_of(base, struct m6npu_job, base);
}

int m6npu_scheds_init(struct m6npu_device *m6npu);

struct m6npu_job *m6npu_job_create(struct m6npu_context *ctx);
void m6npu_job_destroy(struct m6npu_job *job);
int m6npu_job_enlist(struct m6npu_job *job);
void m6npu_job_end(struct m6npu_job *job, int error,
		   const struct m6npu_job_status *status);
void m6npu_job_done(struct m6npu_job *job, int error,
		    const struct m6npu_job_status *status);

int m6npu_job_info_ioctl(struct drm_device *drm, void *data,
			 struct drm_file *file);
int m6npu_job_abort_ioctl(struct drm_device *drm, void *data,
			  struct drm_file *file);

/* m6npu_submit.c */
int m6npu_submit_ioctl(struct drm_device *drm, void *data,
		       struct drm_file *file);

#endif
