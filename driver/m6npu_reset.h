/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_RESET_H
#define M6NPU_RESET_H

#include <drm/gpu_scheduler.h>

struct drm_device;
struct drm_file;
struct m6npu_device;

int m6npu_reset_init(struct m6npu_device *m6npu);
void m6npu_reset_fini(struct m6npu_device *m6npu);

/* Full reset, in turn with other recovery; waits for it. */
int m6npu_reset_request(struct m6npu_device *m6npu);
/* The device is gone for good: what is in flight and to come fails. */
void m6npu_reset_lost(struct m6npu_device *m6npu);

/* How often, in jiffies, the scheduler has us look at a job. */
long m6npu_reset_period(void);
enum drm_gpu_sched_stat m6npu_reset_timedout(struct drm_sched_job *base);

int m6npu_reset_ioctl(struct drm_device *drm, void *data,
		      struct drm_file *file);

#endif
