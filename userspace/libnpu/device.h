/* SPDX-License-Identifier: MIT */
#ifndef NPU_DEVICE_H
#define NPU_DEVICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <npu/npu.h>
#include "span.h"

struct npu_experts;

struct npu_device {
	int fd;
	char node[64];
	uint32_t router_entries;
	/* Guards what follows: models of one device may run in parallel. */
	pthread_mutex_t lock;
	struct npu_va va;
	/*
	 * Whose table the context has, or NULL. Events are read by the model
	 * that owns it: expert faults are for it alone.
	 */
	struct npu_experts *experts;
};

/* ioctl(2), restarted when interrupted; 0 or a negative errno, no message. */
int npu_device_ioctl(const struct npu_device *device, unsigned long request,
		     void *arg);
/* Asks for a DRM_M6NPU_PARAM_*. */
int npu_device_param(const struct npu_device *device, uint32_t param,
		     uint64_t *value);
/* @what: what could not be done, for the message. */
int npu_device_fail(const struct npu_device *device, int error,
		    const char *what);

#endif
