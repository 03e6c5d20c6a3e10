// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: System sleep
 *
 * Jobs that run are waited for, those in the queues stay there. A job that
 * waits for an expert waits for a process that is frozen, so it is ended with
 * -EIO, as by a reset. All tables are in memory and survive; the device is
 * brought up anew.
 */
#include <linux/delay.h>
#include <linux/iopoll.h>
#include <linux/pm.h>

#include <drm/drm_print.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_job.h"
#include "m6npu_reset.h"

#define IDLE_POLL_US		1000
#define IDLE_TIMEOUT_US		(5 * USEC_PER_SEC)

static bool pm_ring_executes(struct m6npu_ring *ring)
{
	u32 status = m6npu_ring_read(ring, M6NPU_RING_STATUS);

	m6npu_ring_complete(ring);
	return READ_ONCE(ring->job) && !(status & M6NPU_RING_STATUS_STALLED);
}

static bool pm_is_quiet(struct m6npu_device *m6npu)
{
	unsigned int i;

	for (i = 0; i < M6NPU_RINGS; i++) {
		if (pm_ring_executes(&m6npu->ring[i]))
			return false;
	}
	return true;
}

static void pm_start_scheds(struct m6npu_device *m6npu)
{
	unsigned int i;

	for (i = 0; i < M6NPU_RINGS; i++)
		drm_sched_wqueue_start(&m6npu->ring[i].sched);
}

static int m6npu_suspend(struct device *dev)
{
	struct m6npu_device *m6npu = dev_get_drvdata(dev);
	struct m6npu_job *job;
	unsigned int i;
	bool quiet;

	if (m6npu_device_is_lost(m6npu))
		return 0;
	for (i = 0; i < M6NPU_RINGS; i++)
		drm_sched_wqueue_stop(&m6npu->ring[i].sched);
	if (read_poll_timeout(pm_is_quiet, quiet, quiet, IDLE_POLL_US,
			      IDLE_TIMEOUT_US, false, m6npu)) {
		drm_warn(&m6npu->drm, "jobs take too long for sleep\n");
		pm_start_scheds(m6npu);
		return -EBUSY;
	}
	for (i = 0; i < M6NPU_RINGS; i++) {
		job = m6npu_ring_take(&m6npu->ring[i], NULL);
		if (job)
			m6npu_job_done(job, -EIO, NULL);
	}
	m6npu_thermal_suspend(m6npu);
	m6npu_device_save(m6npu);
	m6npu_write(m6npu, M6NPU_REG_CTRL, M6NPU_CTRL_RESET);
	return 0;
}

static int m6npu_resume(struct device *dev)
{
	struct m6npu_device *m6npu = dev_get_drvdata(dev);

	/* If it got lost while it slept, the queues still have to drain. */
	if (!m6npu_device_is_lost(m6npu) && m6npu_device_restart(m6npu))
		m6npu_reset_lost(m6npu);
	m6npu_thermal_resume(m6npu);
	pm_start_scheds(m6npu);
	return 0;
}

/* Debugging aid: what a system's sleep does to the device. */
int m6npu_pm_cycle(struct m6npu_device *m6npu)
{
	int ret = m6npu_suspend(m6npu->drm.dev);

	return ret ?: m6npu_resume(m6npu->drm.dev);
}

const struct dev_pm_ops m6npu_pm_ops = {
	SYSTEM_SLEEP_PM_OPS(m6npu_suspend, m6npu_resume)
};
