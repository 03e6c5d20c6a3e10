// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: fdinfo
 *
 * Usage of an open file in the form drm-usage-stats.rst describes, for
 * npu_top and for the generic tools. Times and cycles are the device's own.
 * A file reads its jobs that ended; the one that runs is not in the sums.
 */
#include <drm/drm_drv.h>
#include <drm/drm_print.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_fdinfo.h"

#define MAX_FREQ_HZ	1200000000u

void m6npu_fdinfo_show(struct drm_printer *p, struct drm_file *file)
{
	struct m6npu_context *ctx = to_m6npu_context(file);
	struct m6npu_job_stats stats;

	spin_lock_irq(&ctx->jobs_lock);
	stats = ctx->stats;
	spin_unlock_irq(&ctx->jobs_lock);

	drm_printf(p, "drm-engine-npu:\t%llu ns\n", stats.busy_ns);
	drm_printf(p, "drm-engine-capacity-npu:\t%u\n", M6NPU_UNITS);
	drm_printf(p, "drm-cycles-npu:\t%llu\n", stats.cycles);
	drm_printf(p, "drm-maxfreq-npu:\t%u Hz\n", MAX_FREQ_HZ);
	drm_printf(p, "m6npu-jobs:\t%llu\n", stats.jobs);
	drm_printf(p, "m6npu-jobs-failed:\t%llu\n", stats.failed);
	drm_printf(p, "m6npu-router-hits:\t%llu\n", stats.router_hits);
	drm_printf(p, "m6npu-router-misses:\t%llu\n", stats.router_misses);
	drm_printf(p, "m6npu-expert-faults:\t%llu\n", stats.expert_faults);
	m6npu_pools_show_usage(p, ctx->vm);
	drm_show_memory_stats(p, file);
}
