// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Failing allocations
 *
 * Stock kernels are built without fault injection, and a path that is only
 * taken when memory runs out is one that nobody has seen. So each allocation an
 * ioctl depends on asks here first. Through debugfs fail_alloc a process has the
 * n-th of its own fail, as it would by /proc/PID/fail-nth of a debug kernel;
 * tests go through all of them.
 */
#include <linux/sched.h>

#include "m6npu_device.h"
#include "m6npu_fault.h"

void m6npu_faults_init(struct m6npu_device *m6npu)
{
	spin_lock_init(&m6npu->faults.lock);
}

/* The @countdown-th allocation from now on, of the caller's process, fails. */
void m6npu_faults_set(struct m6npu_device *m6npu, u32 countdown)
{
	struct m6npu_faults *faults = &m6npu->faults;

	guard(spinlock)(&faults->lock);
	faults->tgid = task_tgid_nr(current);
	WRITE_ONCE(faults->countdown, countdown);
}

/* 0 once it failed. */
u32 m6npu_faults_left(struct m6npu_device *m6npu)
{
	return READ_ONCE(m6npu->faults.countdown);
}

/* Whether the allocation that the caller is about to make must fail. */
bool m6npu_fault_due(struct m6npu_device *m6npu)
{
	struct m6npu_faults *faults = &m6npu->faults;

	if (likely(!READ_ONCE(faults->countdown)))
		return false;
	guard(spinlock)(&faults->lock);
	if (!faults->countdown || faults->tgid != task_tgid_nr(current))
		return false;
	return !--faults->countdown;
}
