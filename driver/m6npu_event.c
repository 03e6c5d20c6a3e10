// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Events
 *
 * Records for read(2) on the device file. A file has room for 4 KiB of them;
 * what does not fit is counted and dropped. Nothing is lost by that but time:
 * an expert fault is posted again by the device (m6npu_ring.c), a failed job
 * can be asked for with JOB_INFO. What is only good to know is dropped when half
 * of the space is used: a fault that does not fit costs its job much.
 *
 * A file's events may be sent from interrupts and from the threads of other
 * files. They are sent between m6npu_events_open() and _close(), under the
 * DRM device's event lock, and the file is there as long as they are open.
 */
#include <linux/slab.h>

#include <drm/drm_device.h>
#include <drm/drm_file.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_event.h"

/* What the DRM core gives to a file. */
#define EVENT_SPACE	4096

static u32 event_length(u32 type)
{
	switch (type) {
	case DRM_M6NPU_EVENT_EXPERT_FAULT:
	case DRM_M6NPU_EVENT_EXPERT_HINT:
	case DRM_M6NPU_EVENT_ROUTER_FULL:
		return sizeof(struct drm_m6npu_event_expert_fault);
	case DRM_M6NPU_EVENT_EXCEPTION:
		return sizeof(struct drm_m6npu_event_exception);
	default:
		return sizeof(struct drm_m6npu_event_thermal);
	}
}

/**
 * m6npu_event_alloc() - an empty event
 * @type: DRM_M6NPU_EVENT_*
 * @gfp: how to allocate
 *
 * Return: the event, for m6npu_event_send() or kfree(), or NULL.
 */
struct m6npu_event *m6npu_event_alloc(u32 type, gfp_t gfp)
{
	struct m6npu_event *event = kzalloc(sizeof(*event), gfp);

	if (event) {
		event->u.header.type = type;
		event->u.header.length = event_length(type);
	}
	return event;
}

/**
 * m6npu_event_send() - queue an event for a file
 * @ctx: context of the file
 * @event: event, or NULL for one that could not be allocated; consumed
 *
 * Context: any.
 *
 * Return: 0, or -ENOMEM if it was dropped.
 */
int m6npu_event_send(struct m6npu_context *ctx, struct m6npu_event *event)
{
	struct drm_device *drm = &ctx->m6npu->drm;
	unsigned long flags;
	int ret = -ENOMEM;

	spin_lock_irqsave(&drm->event_lock, flags);
	if (!ctx->events_open)
		ret = 0;
	else if (event)
		ret = drm_event_reserve_init_locked(drm, ctx->file,
						    &event->base,
						    &event->u.header);
	if (ctx->events_open && !ret) {
		drm_send_event_locked(drm, &event->base);
		event = NULL;
	} else if (ret) {
		ctx->events_lost++;
	}
	spin_unlock_irqrestore(&drm->event_lock, flags);
	kfree(event);
	return ret;
}

static bool event_has_place(struct m6npu_context *ctx)
{
	lockdep_assert_held(&ctx->m6npu->drm.event_lock);
	return ctx->events_open && ctx->file->event_space >= EVENT_SPACE / 2;
}

/**
 * m6npu_event_offer() - queue an event that nobody needs
 * @ctx: context of the file
 * @event: event, or NULL for one that could not be allocated; consumed
 *
 * Context: any.
 */
void m6npu_event_offer(struct m6npu_context *ctx, struct m6npu_event *event)
{
	struct drm_device *drm = &ctx->m6npu->drm;
	unsigned long flags;

	spin_lock_irqsave(&drm->event_lock, flags);
	if (event && event_has_place(ctx) &&
	    !drm_event_reserve_init_locked(drm, ctx->file, &event->base,
					   &event->u.header)) {
		drm_send_event_locked(drm, &event->base);
		event = NULL;
	} else {
		ctx->hints_lost++;
	}
	spin_unlock_irqrestore(&drm->event_lock, flags);
	kfree(event);
}

/*
 * Tells every file that throttling began or ended. Does not wait for memory,
 * see m6npu_exceptions_drain().
 */
void m6npu_event_broadcast(struct m6npu_device *m6npu, s32 temperature,
			   bool throttled)
{
	struct m6npu_context *ctx;
	struct m6npu_event *event;

	mutex_lock(&m6npu->contexts_lock);
	list_for_each_entry(ctx, &m6npu->contexts, link) {
		event = m6npu_event_alloc(DRM_M6NPU_EVENT_THERMAL, GFP_NOWAIT);
		if (event) {
			event->u.thermal.temperature = temperature;
			event->u.thermal.throttled = throttled;
		}
		m6npu_event_send(ctx, event);
	}
	mutex_unlock(&m6npu->contexts_lock);
}

static void events_set_open(struct m6npu_context *ctx, bool open)
{
	struct drm_device *drm = &ctx->m6npu->drm;

	spin_lock_irq(&drm->event_lock);
	ctx->events_open = open;
	spin_unlock_irq(&drm->event_lock);
}

void m6npu_events_open(struct m6npu_context *ctx)
{
	events_set_open(ctx, true);
}

/* Before the DRM core releases the file's events. */
void m6npu_events_close(struct m6npu_context *ctx)
{
	events_set_open(ctx, false);
}
