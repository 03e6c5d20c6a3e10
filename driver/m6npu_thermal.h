/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_THERMAL_H
#define M6NPU_THERMAL_H

#include <linux/types.h>
#include <linux/workqueue.h>

struct m6npu_device;

/**
 * struct m6npu_thermal - throttling as told to the contexts
 */
struct m6npu_thermal {
	/** @poll: looks for the end of throttling, of which no record tells */
	struct delayed_work poll;
	/** @throttled: state last told; exception drain and @poll */
	bool throttled;
};

void m6npu_thermal_init(struct m6npu_device *m6npu);
void m6npu_thermal_fini(struct m6npu_device *m6npu);
void m6npu_thermal_suspend(struct m6npu_device *m6npu);
void m6npu_thermal_resume(struct m6npu_device *m6npu);
void m6npu_thermal_throttled(struct m6npu_device *m6npu, s32 millicelsius);
void m6npu_thermal_critical(struct m6npu_device *m6npu, s32 millicelsius);

#endif
