/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_COREDUMP_H
#define M6NPU_COREDUMP_H

#include <linux/sched.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "m6npu_regs.h"

struct m6npu_device;
struct m6npu_job;
struct m6npu_ring;

/**
 * struct m6npu_coredump - a unit that hung, and its job
 *
 * Taken where memory may not be allocated, and written out by @work.
 */
struct m6npu_coredump {
	/** @work: writes the dump; nothing is taken while it is pending */
	struct work_struct work;
	/** @ring: number of the ring */
	unsigned int ring;
	/** @regs: the ring's registers */
	u32 regs[16];
	/** @status: M6NPU_REG_STATUS */
	u32 status;
	/** @entry: the job as the device got it */
	struct m6npu_ring_entry entry;
	/** @region: its region table */
	struct m6npu_region region[M6NPU_REGIONS];
	/** @record: its status record */
	struct m6npu_job_status record;
	/** @job: its id */
	u64 job;
	/** @pid: process that submitted it */
	pid_t pid;
	/** @comm: name of that process */
	char comm[TASK_COMM_LEN];
};

void m6npu_coredump_init(struct m6npu_device *m6npu);
void m6npu_coredump_fini(struct m6npu_device *m6npu);
void m6npu_coredump_take(struct m6npu_ring *ring, struct m6npu_job *job);

#endif
