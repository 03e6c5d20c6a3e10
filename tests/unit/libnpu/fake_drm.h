/* SPDX-License-Identifier: MIT */
/*
 * The driver, as far as pools, buffers, windows and the expert table go, behind drmIoctl(): what
 * a program under test links instead of having a board. Buffers lie in pools by
 * first fit, so that a test can fragment one as it likes. Nothing runs.
 */
#ifndef FAKE_DRM_H
#define FAKE_DRM_H

#include <stdbool.h>
#include <stdint.h>
#include <drm/m6npu_accel.h>
#include "device.h"

#define FAKE_POOLS	8
#define FAKE_BUFFERS	64
#define FAKE_WINDOWS	16
#define FAKE_PERSISTENT	0x1000		/* ids from here on */
#define FAKE_EXPERTS	256

struct fake_pool {
	uint32_t id;			/* 0: unused */
	uint64_t start, size, client_limit;
	bool persistent;
};

struct fake_buffer {
	uint32_t handle, pool;		/* handle 0: unused */
	int owner;			/* fd of the device */
	uint64_t start, size, addr, align;
	bool pinned;
};

struct fake_window {
	int owner;
	uint32_t handle;
	uint64_t offset, size;		/* size 0: maps nothing */
};

struct fake {
	struct fake_pool pools[FAKE_POOLS];
	struct fake_buffer buffers[FAKE_BUFFERS];
	struct fake_window windows[FAKE_WINDOWS];
	/* The expert table, layer by layer. */
	uint32_t layers, per_layer;
	struct drm_m6npu_expert experts[FAKE_EXPERTS];
	/* Sees each EXPERT_BIND before it is done; NULL: nobody does. */
	void (*on_bind)(const struct drm_m6npu_expert *entries, uint32_t count);
	uint32_t handles;
	uint64_t cma_bytes, max_chunk;
	/* How often, since a test set it to 0. */
	unsigned int defrags, pools_created;
	/* The ioctl that fails once, with what, after how many good ones. */
	unsigned long fail_request;
	int fail_error;
	unsigned int fail_after;
};

extern struct fake fake;

/* Without pools, with 32 GiB for them. */
void fake_reset(void);
struct npu_device *fake_open(void);
void fake_close(struct npu_device *device);
const struct fake_buffer *fake_buffer(uint32_t handle);

#endif
