/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All that depends on the kernel the driver is built for. Kbuild looks into
 * its headers and defines M6NPU_HAVE_*.
 */
#ifndef M6NPU_COMPAT_H
#define M6NPU_COMPAT_H

#include <linux/device.h>
#include <linux/kobject.h>

#include <drm/drm_device.h>
#include <drm/drm_file.h>
#include <drm/gpu_scheduler.h>

/* The timeout handler has no complaint about the job. */
static inline enum drm_gpu_sched_stat
m6npu_compat_no_hang(struct drm_sched_job *job)
{
#ifdef M6NPU_HAVE_SCHED_NO_HANG
	return DRM_GPU_SCHED_STAT_NO_HANG;
#else
	spin_lock(&job->sched->job_list_lock);
	list_add(&job->list, &job->sched->pending_list);
	spin_unlock(&job->sched->job_list_lock);
	return DRM_GPU_SCHED_STAT_NOMINAL;
#endif
}

/* The timeout handler reset what the job ran on. */
static inline enum drm_gpu_sched_stat m6npu_compat_was_reset(void)
{
#ifdef M6NPU_HAVE_SCHED_NO_HANG
	return DRM_GPU_SCHED_STAT_RESET;
#else
	return DRM_GPU_SCHED_STAT_NOMINAL;
#endif
}

/* @error: of the jobs that were in flight when the scheduler was stopped. */
static inline void m6npu_compat_sched_start(struct drm_gpu_scheduler *sched,
					    int error)
{
#ifdef M6NPU_HAVE_SCHED_START_ERRNO
	drm_sched_start(sched, error);
#else
	drm_sched_start(sched);
#endif
}

/*
 * drm_sched_entity_fini(), and then the entity is really gone. If the scheduler
 * pops a job while the entity is being killed, it puts it back in the run
 * queue's tree for the sake of the next job, and nobody takes it out again.
 */
static inline void m6npu_compat_entity_fini(struct drm_sched_entity *entity)
{
	drm_sched_entity_fini(entity);
#ifdef M6NPU_HAVE_SCHED_RQ_TREE
	spin_lock(&entity->lock);
	spin_lock(&entity->rq->lock);
	if (!RB_EMPTY_NODE(&entity->rb_tree_node)) {
		rb_erase_cached(&entity->rb_tree_node,
				&entity->rq->rb_tree_root);
		RB_CLEAR_NODE(&entity->rb_tree_node);
	}
	spin_unlock(&entity->rq->lock);
	spin_unlock(&entity->lock);
#endif
}

/*
 * What drm_dev_wedged_event() sends. That one takes the device to have a
 * primary minor, which an accelerator has not.
 */
static inline void m6npu_compat_wedged_event(struct drm_device *drm)
{
	char *envp[2] = { "WEDGED=rebind,bus-reset", NULL };

	kobject_uevent_env(&drm->accel->kdev->kobj, KOBJ_CHANGE, envp);
}

#endif
