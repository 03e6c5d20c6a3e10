// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Parameters
 *
 * GET_PARAM: one figure a call, from what was read at bring-up, from a
 * register, or from the calling file's context.
 */
#include <linux/units.h>

#include <drm/drm_device.h>

#include "m6npu_context.h"
#include "m6npu_device.h"

static u64 param_features(struct m6npu_device *m6npu)
{
	u32 features = READ_ONCE(m6npu->features);
	u64 value = 0;

	if (features & M6NPU_FEAT_LARGE_PAGES)
		value |= DRM_M6NPU_FEATURE_LARGE_PAGES;
	if (features & M6NPU_FEAT_SEQLEN_CHECK)
		value |= DRM_M6NPU_FEATURE_SEQLEN_CHECK;
	if (features & M6NPU_FEAT_TEMP_DRIFT_FIX)
		value |= DRM_M6NPU_FEATURE_TEMP_DRIFT_FIX;
	if (features & M6NPU_FEAT_AUTO_RECOVER)
		value |= DRM_M6NPU_FEATURE_AUTO_RECOVER;
	return value;
}

/* What does not change while the device is bound, or only with firmware. */
static int param_static(struct m6npu_device *m6npu, u32 param, u64 *value)
{
	switch (param) {
	case DRM_M6NPU_PARAM_DEVICE_ID:
		*value = M6NPU_ID_VALUE;
		return 0;
	case DRM_M6NPU_PARAM_FW_VERSION:
		*value = READ_ONCE(m6npu->fw_version);
		return 0;
	case DRM_M6NPU_PARAM_FEATURES:
		*value = param_features(m6npu);
		return 0;
	case DRM_M6NPU_PARAM_UNITS:
		*value = M6NPU_UNITS;
		return 0;
	case DRM_M6NPU_PARAM_ROUTER_ENTRIES:
		*value = M6NPU_ROUTER_ENTRIES;
		return 0;
	case DRM_M6NPU_PARAM_SRAM_SIZE:
		*value = READ_ONCE(m6npu->sram_size);
		return 0;
	case DRM_M6NPU_PARAM_VA_BITS:
		*value = M6NPU_VA_BITS;
		return 0;
	case DRM_M6NPU_PARAM_MAX_CHUNK:
		*value = (u64)READ_ONCE(m6npu->max_chunk_kb) * SZ_1K;
		return 0;
	case DRM_M6NPU_PARAM_CMA_SIZE:
		*value = m6npu->pools.area_size;
		return 0;
	default:
		return -EINVAL;
	}
}

static int param_register(struct m6npu_device *m6npu, u32 param, u64 *value)
{
	switch (param) {
	case DRM_M6NPU_PARAM_TEMPERATURE:
		*value = (s64)(s32)m6npu_read(m6npu, M6NPU_REG_TEMP_MC);
		break;
	case DRM_M6NPU_PARAM_POWER:
		*value = m6npu_read(m6npu, M6NPU_REG_POWER_MW);
		break;
	case DRM_M6NPU_PARAM_FREQUENCY:
		*value = m6npu_read(m6npu, M6NPU_REG_FREQ_MHZ);
		break;
	case DRM_M6NPU_PARAM_DEVICE_TIME:
		*value = m6npu_read64(m6npu, M6NPU_REG_TIME_NS_LO);
		break;
	default:
		return -EINVAL;
	}
	if ((u32)*value == ~0u && m6npu_device_check_lost(m6npu))
		return -ENODEV;
	if (param == DRM_M6NPU_PARAM_FREQUENCY)
		*value *= HZ_PER_MHZ;
	return 0;
}

static int param_context(struct m6npu_context *ctx, u32 param, u64 *value)
{
	struct m6npu_job_stats stats;

	spin_lock_irq(&ctx->jobs_lock);
	stats = ctx->stats;
	spin_unlock_irq(&ctx->jobs_lock);

	switch (param) {
	case DRM_M6NPU_PARAM_CTX_BUSY:
		*value = stats.busy_ns;
		return 0;
	case DRM_M6NPU_PARAM_CTX_ROUTER_HITS:
		*value = stats.router_hits;
		return 0;
	case DRM_M6NPU_PARAM_CTX_ROUTER_MISSES:
		*value = stats.router_misses;
		return 0;
	case DRM_M6NPU_PARAM_CTX_EXPERT_FAULTS:
		*value = stats.expert_faults;
		return 0;
	case DRM_M6NPU_PARAM_CTX_JOBS:
		*value = stats.jobs;
		return 0;
	default:
		return -EINVAL;
	}
}

int m6npu_get_param_ioctl(struct drm_device *drm, void *data,
			  struct drm_file *file)
{
	struct m6npu_device *m6npu = to_m6npu_device(drm);
	struct drm_m6npu_get_param *args = data;
	u64 value;
	int ret;

	if (args->pad)
		return -EINVAL;
	if (m6npu_device_is_lost(m6npu))
		return -ENODEV;
	if (args->param <= DRM_M6NPU_PARAM_CMA_SIZE)
		ret = param_static(m6npu, args->param, &value);
	else if (args->param <= DRM_M6NPU_PARAM_DEVICE_TIME)
		ret = param_register(m6npu, args->param, &value);
	else
		ret = param_context(to_m6npu_context(file), args->param,
				    &value);
	if (!ret)
		args->value = value;
	return ret;
}
