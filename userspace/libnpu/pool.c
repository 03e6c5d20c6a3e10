// SPDX-License-Identifier: MIT
/*
 * Pools of physically contiguous memory.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <drm/m6npu_accel.h>

#include "device.h"
#include "error.h"
#include "pool.h"

#define MIB (1u << 20)

static uint64_t to_mib(uint64_t bytes)
{
	return (bytes + MIB - 1) / MIB;
}

static uint64_t largest_free(const struct npu_device *device)
{
	struct drm_m6npu_pool_info arg = { 0 };

	if (npu_device_ioctl(device, DRM_IOCTL_M6NPU_POOL_INFO, &arg))
		return 0;
	return arg.largest_free;
}

static int fail_create(struct npu_device *device, int error, uint64_t size)
{
	struct drm_m6npu_get_param cma = {
		.param = DRM_M6NPU_PARAM_CMA_SIZE,
	};

	if (error == -EPERM)
		return npu_fail(error,
				"a persistent pool needs root (CAP_SYS_ADMIN)");
	if (error != -ENOMEM)
		return npu_device_fail(device, error, "cannot create a pool");
	npu_device_ioctl(device, DRM_IOCTL_M6NPU_GET_PARAM, &cma);
	return npu_fail(error,
			"no contiguous area of %" PRIu64 " MiB for a pool: the reserved memory has %" PRIu64 " MiB (0: unknown), and the largest free block of existing pools %" PRIu64 " MiB; stop other users of the NPU, enlarge the reserved memory, or take a smaller model",
			to_mib(size), to_mib(cma.value),
			to_mib(largest_free(device)));
}

int npu_pool_create(struct npu_device *device, uint64_t size, uint32_t flags,
		    uint32_t max_segments, struct npu_pool **out)
{
	struct drm_m6npu_pool_create arg = {
		.size = size,
		.max_segments = max_segments,
	};
	struct npu_pool *pool;
	int ret;

	if (flags & ~NPU_POOL_PERSISTENT)
		return npu_fail(-EINVAL, "pool: unknown flags %#x", flags);
	if (flags & NPU_POOL_PERSISTENT)
		arg.flags = DRM_M6NPU_POOL_PERSISTENT;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return npu_fail_memory();
	ret = npu_device_ioctl(device, DRM_IOCTL_M6NPU_POOL_CREATE, &arg);
	if (ret) {
		free(pool);
		return fail_create(device, ret, size);
	}
	pool->device = device;
	pool->id = arg.pool;
	*out = pool;
	return 0;
}

void npu_pool_destroy(struct npu_pool *pool)
{
	struct drm_m6npu_pool_destroy arg;

	if (!pool)
		return;
	/* What still has buffers goes when the device file is closed. */
	arg = (struct drm_m6npu_pool_destroy){ .pool = pool->id };
	npu_device_ioctl(pool->device, DRM_IOCTL_M6NPU_POOL_DESTROY, &arg);
	free(pool);
}

int npu_pool_info(struct npu_pool *pool, struct npu_pool_info *info)
{
	struct drm_m6npu_pool_info arg = { .pool = pool->id };
	int ret;

	ret = npu_device_ioctl(pool->device, DRM_IOCTL_M6NPU_POOL_INFO, &arg);
	if (ret)
		return npu_device_fail(pool->device, ret,
				       "cannot ask for a pool's figures");
	*info = (struct npu_pool_info){
		.id = pool->id,
		.size = arg.size,
		.used = arg.used,
		.largest_free = arg.largest_free,
		.buffers = arg.buffers,
		.segments = arg.segments,
	};
	return 0;
}
