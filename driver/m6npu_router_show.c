// SPDX-License-Identifier: GPL-2.0-only
/*
 * What there is to see of the router cache: sysfs, one value a file, and tables
 * for people in debugfs.
 */
#include <linux/device.h>
#include <linux/kstrtox.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include <drm/drm_drv.h>
#include <drm/m6npu_accel.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_mmu.h"
#include "m6npu_router.h"

static const char * const policy_names[] = {
	[M6NPU_ROUTER_OFF] = "off",
	[M6NPU_ROUTER_LRU] = "lru",
	[M6NPU_ROUTER_PRIORITY_LRU] = "priority-lru",
};

/* ---- sysfs ---- */

static ssize_t stored(struct m6npu_device *m6npu, size_t size)
{
	return m6npu_device_is_lost(m6npu) ? -ENODEV : size;
}

static ssize_t policy_show(struct device *dev, struct device_attribute *attr,
			   char *buf)
{
	struct drm_m6npu_router_ctl ctl;
	int err = m6npu_router_report(dev_get_drvdata(dev), &ctl);

	return err ?: sysfs_emit(buf, "%s\n", policy_names[ctl.policy]);
}

static ssize_t policy_store(struct device *dev, struct device_attribute *attr,
			    const char *buf, size_t size)
{
	struct m6npu_device *m6npu = dev_get_drvdata(dev);
	int policy = sysfs_match_string(policy_names, buf);

	if (policy < 0)
		return policy;
	m6npu_router_set_policy(m6npu, policy);
	return stored(m6npu, size);
}
static DEVICE_ATTR_RW(policy);

/* Of what the report has. */
#define ROUTER_SHOW(name, type)						\
static ssize_t name##_show(struct device *dev,				\
			   struct device_attribute *attr, char *buf)	\
{									\
	struct drm_m6npu_router_ctl ctl;				\
	int err = m6npu_router_report(dev_get_drvdata(dev), &ctl);	\
									\
	return err ?: sysfs_emit(buf, type "\n", ctl.name);		\
}

ROUTER_SHOW(threshold, "%u")
static ssize_t threshold_store(struct device *dev,
			       struct device_attribute *attr, const char *buf,
			       size_t size)
{
	struct m6npu_device *m6npu = dev_get_drvdata(dev);
	u32 permille;
	int err;

	err = kstrtou32(buf, 10, &permille);
	if (err)
		return err;
	if (permille > M6NPU_ROUTER_THRESHOLD_MAX)
		return -EINVAL;
	m6npu_router_set_threshold(m6npu, permille);
	return stored(m6npu, size);
}
static DEVICE_ATTR_RW(threshold);

ROUTER_SHOW(quota, "%u")
static DEVICE_ATTR_RO(quota);
ROUTER_SHOW(entries, "%u")
static DEVICE_ATTR_RO(entries);
ROUTER_SHOW(pinned, "%u")
static DEVICE_ATTR_RO(pinned);
ROUTER_SHOW(hits, "%llu")
static DEVICE_ATTR_RO(hits);
ROUTER_SHOW(misses, "%llu")
static DEVICE_ATTR_RO(misses);
ROUTER_SHOW(evictions, "%llu")
static DEVICE_ATTR_RO(evictions);
ROUTER_SHOW(faults, "%llu")
static DEVICE_ATTR_RO(faults);
ROUTER_SHOW(full, "%llu")
static DEVICE_ATTR_RO(full);

static struct attribute *router_attrs[] = {
	&dev_attr_policy.attr,
	&dev_attr_threshold.attr,
	&dev_attr_quota.attr,
	&dev_attr_entries.attr,
	&dev_attr_pinned.attr,
	&dev_attr_hits.attr,
	&dev_attr_misses.attr,
	&dev_attr_evictions.attr,
	&dev_attr_faults.attr,
	&dev_attr_full.attr,
	NULL
};

/* The driver core has it there while the driver is bound. */
const struct attribute_group m6npu_router_group = {
	.name = "expert_router",
	.attrs = router_attrs,
};

/* ---- debugfs ---- */

/* Hits of all lookups, in 1/1000. */
static u64 hit_share(u64 hits, u64 misses)
{
	u64 lookups = hits + misses;

	return lookups ? div64_u64(hits * 1000, lookups) : 0;
}

int m6npu_router_show(struct seq_file *m, struct m6npu_device *m6npu)
{
	struct drm_m6npu_router_ctl ctl;
	u64 share;
	int err;

	err = m6npu_router_report(m6npu, &ctl);
	if (err)
		return err;
	share = hit_share(ctl.hits, ctl.misses);
	seq_printf(m, "policy: %s\n", policy_names[ctl.policy]);
	seq_printf(m, "threshold: %u.%03u\n", ctl.threshold / 1000,
		   ctl.threshold % 1000);
	seq_printf(m, "entries: %u of %u\n", ctl.entries,
		   M6NPU_ROUTER_ENTRIES);
	seq_printf(m, "quota: %u\n", ctl.quota);
	seq_printf(m, "pinned: %u\n", ctl.pinned);
	seq_printf(m, "hits: %llu\n", ctl.hits);
	seq_printf(m, "misses: %llu\n", ctl.misses);
	seq_printf(m, "hit_ratio: %llu.%llu%%\n", share / 10, share % 10);
	seq_printf(m, "evictions: %llu\n", ctl.evictions);
	seq_printf(m, "faults: %llu\n", ctl.faults);
	seq_printf(m, "full: %llu\n", ctl.full);
	seq_printf(m, "stalled_us: %llu\n",
		   div_u64(atomic64_read(&m6npu->router.stall_ns),
			   NSEC_PER_USEC));
	return 0;
}

static void layer_show(struct seq_file *m, const struct m6npu_context *ctx,
		       u32 layer)
{
	struct drm_m6npu_layer_stats stats;
	u64 share;

	m6npu_router_layer_stats(ctx->vm, layer, &stats);
	if (!stats.hits && !stats.misses)
		return;
	share = hit_share(stats.hits, stats.misses);
	seq_printf(m, "%4u %7d %-16s %5u %10llu %10llu %3llu.%llu%% %9llu %8llu %8llu %9llu %10llu %8llu\n",
		   ctx->vm->asid, ctx->pid, ctx->comm, layer, stats.hits,
		   stats.misses, share / 10, share % 10, stats.evictions,
		   stats.full, stats.faults, stats.sram_hits, stats.prefetches,
		   stats.hints);
}

/* That with the lowest number from @asid on, referenced, or NULL. */
static struct m6npu_context *next_context(struct m6npu_device *m6npu, u32 asid)
{
	struct m6npu_context *ctx, *next = NULL;

	guard(mutex)(&m6npu->contexts_lock);
	list_for_each_entry(ctx, &m6npu->contexts, link) {
		if (ctx->vm->asid >= asid &&
		    (!next || ctx->vm->asid < next->vm->asid))
			next = ctx;
	}
	return next ? m6npu_context_get(next) : NULL;
}

static void layers_show(struct seq_file *m, const struct m6npu_context *ctx)
{
	u32 i, layers;

	guard(mutex)(&ctx->vm->lock);
	layers = ctx->vm->layer_stats.size / sizeof(struct m6npu_layer_stats);
	for (i = 0; i < layers; i++)
		layer_show(m, ctx, i);
}

/*
 * For each layer of a context that looked experts up, a line. The list isn't
 * locked meanwhile: jobs may need it to end, and under an address space's lock
 * memory is waited for.
 */
void m6npu_router_layers_show(struct seq_file *m, struct m6npu_device *m6npu)
{
	struct m6npu_context *ctx;
	u32 asid;

	seq_printf(m, "%4s %7s %-16s %5s %10s %10s %6s %9s %8s %8s %9s %10s %8s\n",
		   "asid", "pid", "command", "layer", "hits", "misses", "ratio",
		   "evictions", "full", "faults", "sram_hits", "prefetches",
		   "hints");
	for (asid = 0; (ctx = next_context(m6npu, asid)); asid++) {
		asid = ctx->vm->asid;
		layers_show(m, ctx);
		m6npu_context_put(ctx);
	}
}
