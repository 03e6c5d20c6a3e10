// SPDX-License-Identifier: MIT
/*
 * Jobs of command lists that the caller wrote, for programs that have more to
 * do with the device than models.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xf86drm.h>
#include <drm/m6npu_accel.h>

#include "buffer.h"
#include "device.h"
#include "error.h"
#include "job_format.h"

_Static_assert(sizeof(struct npu_job_region) == sizeof(struct drm_m6npu_region),
	       "passed on as it is");

static int fail_job(const struct npu_device *device, const struct npu_job *job,
		    const struct drm_m6npu_job_info *info)
{
	int error = info->error ? info->error : -EIO;
	char where[64] = "";

	if (error == -ENODEV || !info->exception)
		return npu_device_fail(device, error, "job");
	if (info->fault_addr)
		snprintf(where, sizeof(where), " at device address %#" PRIx64,
			 (uint64_t)info->fault_addr);
	return npu_fail(error,
			"job failed: %s (%#x)%s, command %" PRIu32 " of %" PRIu32 ": %s",
			npu_exception_name(info->exception), info->exception,
			where, info->cmd_index, job->count,
			npu_exception_remedy(info->exception));
}

static int submit(const struct npu_device *device, const struct npu_job *job,
		  uint32_t syncobj, uint64_t *id)
{
	const struct drm_m6npu_sync done = { .handle = syncobj };
	struct drm_m6npu_submit arg = {
		.cmdlist = job->commands->handle,
		.cmd_count = job->count,
		.cmd_offset = job->offset,
		.regions = (uintptr_t)job->regions,
		.region_count = job->region_count,
		.region_stride = sizeof(job->regions[0]),
		.out_syncs = (uintptr_t)&done,
		.out_sync_count = 1,
		.sync_stride = sizeof(done),
	};
	int ret;

	if (job->flags & NPU_JOB_DMA_ENGINE)
		arg.flags |= DRM_M6NPU_SUBMIT_DMA_ENGINE;
	ret = npu_device_ioctl(device, DRM_IOCTL_M6NPU_SUBMIT, &arg);
	if (ret)
		return npu_device_fail(device, ret, "cannot submit a job");
	*id = arg.job;
	return 0;
}

static int wait_job(const struct npu_device *device, const struct npu_job *job,
		    uint32_t syncobj, uint64_t id, uint64_t *device_ns)
{
	struct drm_m6npu_job_info info = { .job = id };
	int ret;

	/* It ends in any case: the driver sees to that. */
	ret = drmSyncobjWait(device->fd, &syncobj, 1, INT64_MAX, 0, NULL);
	if (ret)
		return npu_device_fail(device, ret, "cannot wait for a job");
	ret = npu_device_ioctl(device, DRM_IOCTL_M6NPU_JOB_INFO, &info);
	if (ret)
		return npu_device_fail(device, ret,
				       "cannot ask how a job ended");
	if (info.error)
		return fail_job(device, job, &info);
	if (device_ns)
		*device_ns = info.end_ns - info.begin_ns;
	return 0;
}

int npu_job_run(struct npu_device *device, const struct npu_job *job,
		uint64_t *device_ns)
{
	uint32_t syncobj;
	uint64_t id = 0;
	int ret;

	if (job->flags & ~NPU_JOB_DMA_ENGINE)
		return npu_fail(-EINVAL, "job: unknown flags %#x", job->flags);
	if (drmSyncobjCreate(device->fd, 0, &syncobj))
		return npu_device_fail(device, -errno,
				       "cannot make a syncobj");
	ret = submit(device, job, syncobj, &id);
	if (!ret)
		ret = wait_job(device, job, syncobj, id, device_ns);
	drmSyncobjDestroy(device->fd, syncobj);
	return ret;
}
