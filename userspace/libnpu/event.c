// SPDX-License-Identifier: MIT
/*
 * Events that the driver queues on the device file.
 *
 * Expert faults and hints go to the model they are for. What the others tell is
 * also in JOB_INFO and in the device's figures, so they need no more than be
 * taken out of the queue, which is short.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "event.h"

/* The kernel hands out whole events only. */
#define READ_BYTES 4096

/* Faults and hints have the same fields. */
static int handle_expert(const struct npu_event_handler *handler,
			 const struct drm_event *base, const void *data)
{
	struct drm_m6npu_event_expert_fault event;

	if (!handler || base->length < sizeof(event))
		return 0;
	memcpy(&event, data, sizeof(event));
	if (base->type == DRM_M6NPU_EVENT_EXPERT_FAULT)
		return handler->expert_fault(handler->user, &event);
	handler->expert_hint(handler->user, &event);
	return 0;
}

int npu_events_parse(const void *data, size_t size,
		     const struct npu_event_handler *handler)
{
	const char *p = data;
	struct drm_event base;
	int ret = 0, error;

	while (size >= sizeof(base)) {
		memcpy(&base, p, sizeof(base));
		if (base.length < sizeof(base) || base.length > size)
			break;
		error = 0;
		if (base.type == DRM_M6NPU_EVENT_EXPERT_FAULT ||
		    base.type == DRM_M6NPU_EVENT_EXPERT_HINT)
			error = handle_expert(handler, &base, p);
		if (error && !ret)
			ret = error;
		p += base.length;
		size -= base.length;
	}
	return ret;
}

int npu_events_read(struct npu_device *device,
		    const struct npu_event_handler *handler)
{
	char buf[READ_BYTES] __attribute__((aligned(8)));
	int ret = 0, error;
	ssize_t n;

	for (;;) {
		n = read(device->fd, buf, sizeof(buf));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		error = npu_events_parse(buf, (size_t)n, handler);
		if (error && !ret)
			ret = error;
	}
	if (n < 0 && errno != EAGAIN && !ret)
		ret = npu_device_fail(device, -errno, "cannot read events");
	return ret;
}
