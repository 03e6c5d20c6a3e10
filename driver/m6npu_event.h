/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_EVENT_H
#define M6NPU_EVENT_H

#include <linux/gfp_types.h>

#include <drm/drm_file.h>
#include <drm/m6npu_accel.h>

struct m6npu_context;
struct m6npu_device;

/**
 * struct m6npu_event - an event on its way to a file
 */
struct m6npu_event {
	/** @base: the DRM core's part, which it also frees; first */
	struct drm_pending_event base;
	/** @u: what read(2) returns */
	union {
		/** @u.header: common part */
		struct drm_event header;
		/** @u.fault: DRM_M6NPU_EVENT_EXPERT_FAULT, _HINT, ROUTER_FULL */
		struct drm_m6npu_event_expert_fault fault;
		/** @u.exception: DRM_M6NPU_EVENT_EXCEPTION */
		struct drm_m6npu_event_exception exception;
		/** @u.thermal: DRM_M6NPU_EVENT_THERMAL */
		struct drm_m6npu_event_thermal thermal;
	} u;
};

struct m6npu_event *m6npu_event_alloc(u32 type, gfp_t gfp);
int m6npu_event_send(struct m6npu_context *ctx, struct m6npu_event *event);
void m6npu_event_offer(struct m6npu_context *ctx, struct m6npu_event *event);
void m6npu_event_broadcast(struct m6npu_device *m6npu, s32 temperature,
			   bool throttled);
void m6npu_events_open(struct m6npu_context *ctx);
void m6npu_events_close(struct m6npu_context *ctx);

#endif
