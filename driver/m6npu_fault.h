/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_FAULT_H
#define M6NPU_FAULT_H

#include <linux/spinlock.h>
#include <linux/types.h>

struct m6npu_device;

/**
 * struct m6npu_faults - which allocation is to fail, for tests
 */
struct m6npu_faults {
	/** @lock: protects the following members */
	spinlock_t lock;
	/** @countdown: allocations until one fails, 0 = none does */
	u32 countdown;
	/** @tgid: process whose allocations count */
	pid_t tgid;
};

void m6npu_faults_init(struct m6npu_device *m6npu);
void m6npu_faults_set(struct m6npu_device *m6npu, u32 countdown);
u32 m6npu_faults_left(struct m6npu_device *m6npu);
bool m6npu_fault_due(struct m6npu_device *m6npu);

#endif
