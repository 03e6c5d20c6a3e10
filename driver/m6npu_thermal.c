// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Heat
 *
 * The firmware throttles and halts the units by itself, and posts a record
 * when it begins to. That it ended shows in the status register only, so that
 * is polled while the device is throttled. Both are told to every open file.
 */
#include <drm/drm_print.h>

#include "m6npu_device.h"
#include "m6npu_event.h"
#include "m6npu_thermal.h"

#define POLL_MS		1000

static void thermal_schedule(struct m6npu_device *m6npu)
{
	schedule_delayed_work(&m6npu->thermal.poll,
			      msecs_to_jiffies(POLL_MS));
}

/* Context: thread of the event vector. */
void m6npu_thermal_throttled(struct m6npu_device *m6npu, s32 millicelsius)
{
	dev_warn_ratelimited(m6npu->drm.dev, "THERMAL_THROTTLE triggered at %dC; improve cooling or lower the load, the clock is reduced until it cools down\n",
			     millicelsius / 1000);
	WRITE_ONCE(m6npu->thermal.throttled, true);
	m6npu_event_broadcast(m6npu, millicelsius, true);
	thermal_schedule(m6npu);
}

void m6npu_thermal_critical(struct m6npu_device *m6npu, s32 millicelsius)
{
	dev_crit_ratelimited(m6npu->drm.dev, "THERMAL_CRITICAL at %dC, units halted until they cool down; check the heat sink\n",
			     millicelsius / 1000);
}

static void thermal_poll(struct work_struct *work)
{
	struct m6npu_thermal *thermal =
		container_of(to_delayed_work(work), struct m6npu_thermal, poll);
	struct m6npu_device *m6npu = container_of(thermal, struct m6npu_device,
						  thermal);
	u32 status = m6npu_read(m6npu, M6NPU_REG_STATUS);

	if (m6npu_device_is_lost(m6npu) || status == ~0u)
		return;
	if (status & M6NPU_STATUS_THROTTLED) {
		thermal_schedule(m6npu);
		return;
	}
	WRITE_ONCE(thermal->throttled, false);
	m6npu_event_broadcast(m6npu, m6npu_read(m6npu, M6NPU_REG_TEMP_MC),
			      false);
}

/* The device sleeps: it cannot be asked. */
void m6npu_thermal_suspend(struct m6npu_device *m6npu)
{
	cancel_delayed_work_sync(&m6npu->thermal.poll);
}

void m6npu_thermal_resume(struct m6npu_device *m6npu)
{
	if (READ_ONCE(m6npu->thermal.throttled))
		thermal_schedule(m6npu);
}

void m6npu_thermal_init(struct m6npu_device *m6npu)
{
	INIT_DELAYED_WORK(&m6npu->thermal.poll, thermal_poll);
}

/* For good: the vectors' threads, which may still drain, are freed later. */
void m6npu_thermal_fini(struct m6npu_device *m6npu)
{
	disable_delayed_work_sync(&m6npu->thermal.poll);
}
