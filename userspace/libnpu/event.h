/* SPDX-License-Identifier: MIT */
#ifndef NPU_EVENT_H
#define NPU_EVENT_H

#include <stddef.h>
#include <stdint.h>
#include <drm/m6npu_accel.h>
#include "device.h"

struct npu_event_handler {
	/* A negative errno stops nothing, but is what the reader returns. */
	int (*expert_fault)(void *user,
			    const struct drm_m6npu_event_expert_fault *event);
	void (*expert_hint)(void *user,
			    const struct drm_m6npu_event_expert_fault *event);
	void *user;
};

/*
 * Reads and handles the device's events until there are none. @handler may be
 * NULL: then what concerns experts is dropped.
 */
int npu_events_read(struct npu_device *device,
		    const struct npu_event_handler *handler);
/* One read's worth, for tests. */
int npu_events_parse(const void *data, size_t size,
		     const struct npu_event_handler *handler);

#endif
