/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_CONTEXT_H
#define M6NPU_CONTEXT_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/xarray.h>

#include <drm/drm_file.h>

#include "m6npu_device.h"
#include "m6npu_expert.h"
#include "m6npu_job.h"

/* Jobs a context remembers after their end, and may have queued. */
#define M6NPU_JOB_HISTORY		64
#define M6NPU_CONTEXT_MAX_JOBS		1024
/* Hangs in a row, with no job in between that ended well. */
#define M6NPU_CONTEXT_MAX_HANGS		3

/**
 * struct m6npu_context - what belongs to one open file, or to a copier
 *
 * Referenced by its owner and by each of its jobs.
 */
struct m6npu_context {
	/** @ref: see m6npu_context_get() */
	struct kref ref;
	/** @free_work: frees the context if a job was the last to hold it */
	struct work_struct free_work;
	/** @link: in &m6npu_device.contexts */
	struct list_head link;
	/** @m6npu: the device; the file keeps it alive, and so do jobs */
	struct m6npu_device *m6npu;
	/** @file: valid while @events_open, and in ioctls; NULL for a copier */
	struct drm_file *file;
	/** @pid: of the process that opened the file, 0 if there is none */
	pid_t pid;
	/** @comm: its name then, or "kernel" */
	char comm[TASK_COMM_LEN];

	/** @vm: address space; never NULL */
	struct m6npu_vm *vm;
	/** @experts: expert table */
	struct m6npu_experts experts;
	/** @pools: private pools by id */
	struct xarray pools;

	/** @submit_lock: orders submissions; protects @entities and @last */
	struct mutex submit_lock;
	/** @entities: struct drm_sched_entity, made when first used */
	struct xarray entities;
	/** @last: the youngest job of each engine kind and priority */
	struct m6npu_last_job last[M6NPU_ENGINES][M6NPU_PRIORITIES];

	/** @jobs_lock: protects the following members; taken in hard IRQs */
	spinlock_t jobs_lock;
	/** @ended: how jobs end that did not run yet, 0 as long as they may */
	int ended;
	/** @hangs: jobs that hung, with none in between that ended well */
	unsigned int hangs;
	/** @jobs: &m6npu_job.link of jobs that have not ended */
	struct list_head jobs;
	/** @job_count: length of @jobs */
	unsigned int job_count;
	/** @next_job: id of the next job, from 1 */
	u64 next_job;
	/** @history: the jobs that ended last */
	struct drm_m6npu_job_info history[M6NPU_JOB_HISTORY];
	/** @history_pos: entry of @history that the next job overwrites */
	unsigned int history_pos;
	/** @stats: sums over all jobs that ended */
	struct m6npu_job_stats stats;
	/** @jobs_alive: jobs that are not freed yet, ended or not */
	atomic_t jobs_alive;
	/** @stalls: times that the device said that a job waits for experts */
	atomic_t stalls;
	/** @stall_ns: how long jobs waited for them */
	atomic64_t stall_ns;
	/** @jobs_wait: woken when a job ends, waits for an expert, is freed */
	wait_queue_head_t jobs_wait;

	/** @events_open: events may be queued; under &drm_device.event_lock */
	bool events_open;
	/** @events_lost: events for which the file had no space; likewise */
	u64 events_lost;
	/** @hints_lost: hints that had to leave space to others; likewise */
	u64 hints_lost;
};

int m6npu_contexts_init(void);
void m6npu_contexts_exit(void);

struct m6npu_context *m6npu_context_create(struct m6npu_device *m6npu,
					   struct drm_file *file);
void m6npu_context_close(struct m6npu_context *ctx);
void m6npu_context_stop(struct m6npu_context *ctx);
void m6npu_context_end(struct m6npu_context *ctx, int error);

struct m6npu_context *m6npu_context_get(struct m6npu_context *ctx);
void m6npu_context_put(struct m6npu_context *ctx);

/* Jobs of this context are queued or running. */
bool m6npu_context_has_jobs(struct m6npu_context *ctx);
/*
 * Waits until no job of this context that was running at the call, other than
 * those that wait for an expert, is running any more. Call it after the tables
 * were changed and what was cached of them dropped. Returns 0 or -EINTR.
 */
int m6npu_context_wait_running(struct m6npu_context *ctx);

static inline struct m6npu_context *to_m6npu_context(struct drm_file *file)
{
	return file->driver_priv;
}

#endif
