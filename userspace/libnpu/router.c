// SPDX-License-Identifier: MIT
/*
 * The device's expert-router cache, and what becomes of lookups in it.
 */
#include <errno.h>
#include <drm/m6npu_accel.h>

#include "device.h"
#include "error.h"

_Static_assert(sizeof(struct npu_layer_stats) ==
		       sizeof(struct drm_m6npu_layer_stats),
	       "passed on as they are");

static int control(struct npu_device *device, struct drm_m6npu_router_ctl *arg)
{
	int ret = npu_device_ioctl(device, DRM_IOCTL_M6NPU_ROUTER_CTL, arg);

	if (ret)
		return npu_device_fail(device, ret,
				       "cannot control the expert-router cache");
	return 0;
}

int npu_router_set(struct npu_device *device, enum npu_router_policy policy)
{
	struct drm_m6npu_router_ctl arg = {
		.flags = DRM_M6NPU_ROUTER_SET_POLICY,
		.policy = policy,
	};

	if (policy > NPU_ROUTER_PRIORITY_LRU)
		return npu_fail(-EINVAL, "no router policy has the number %d",
				(int)policy);
	return control(device, &arg);
}

int npu_router_set_threshold(struct npu_device *device, uint32_t permille)
{
	struct drm_m6npu_router_ctl arg = {
		.flags = DRM_M6NPU_ROUTER_SET_THRESHOLD,
		.threshold = permille,
	};

	if (permille > 1000)
		return npu_fail(-EINVAL,
				"prefetch threshold %u is above 1000 (1.0)",
				permille);
	return control(device, &arg);
}

int npu_router_stats(struct npu_device *device, struct npu_router_stats *stats)
{
	struct drm_m6npu_router_ctl arg = { 0 };
	int ret;

	ret = control(device, &arg);
	if (ret)
		return ret;
	*stats = (struct npu_router_stats){
		.policy = (enum npu_router_policy)arg.policy,
		.threshold_permille = arg.threshold,
		.entries = arg.entries,
		.pinned = arg.pinned,
		.hits = arg.hits,
		.misses = arg.misses,
		.evictions = arg.evictions,
		.faults = arg.faults,
		.full = arg.full,
	};
	return 0;
}

int npu_layer_stats(struct npu_device *device, struct npu_layer_stats *stats,
		    size_t max)
{
	struct drm_m6npu_layer_stats_get arg = {
		.entries = (uintptr_t)stats,
		.count = max < UINT32_MAX ? (uint32_t)max : UINT32_MAX,
		.stride = sizeof(*stats),
	};
	int ret;

	ret = npu_device_ioctl(device, DRM_IOCTL_M6NPU_LAYER_STATS, &arg);
	if (ret == -ENXIO)
		return 0;
	if (ret)
		return npu_device_fail(device, ret,
				       "cannot ask for the figures of experts' layers");
	return (int)arg.count;
}
