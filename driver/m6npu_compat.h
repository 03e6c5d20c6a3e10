/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All that depends on the kernel it is built for.
 */
#ifndef M6NPU_COMPAT_H
#define M6NPU_COMPAT_H

#include <linux/kobject.h>

#include <drm/drm_device.h>
#include <drm/drm_file.h>
#include <drm/gpu_scheduler.h>

static inline int m6npu_compat_job_init(struct drm_sched_job *job,
					struct drm_sched_entity *entity,
					struct drm_file *file)
{
	return drm_sched_job_init(job, entity, 1, NULL, file->client_id);
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
