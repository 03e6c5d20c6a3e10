// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Router cache
 *
 * The device caches what it found in expert tables, 128 entries for all
 * contexts together. That makes lookups faster and never changes what they
 * give. Its settings are kept here and told to the device after each reset.
 *
 * Each context that has a table keeps a quota of entries against the others,
 * pinned or not: all entries divided by the number of such contexts.
 *
 * The device counts lookups for itself in registers, and for each layer of a
 * context in memory, next to the table. These counts are shown and never used.
 */
#include <linux/overflow.h>
#include <linux/uaccess.h>

#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_managed.h>
#include <drm/m6npu_accel.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_mmu.h"
#include "m6npu_router.h"

#define STRIDE_MAX		4096

static_assert(M6NPU_ROUTER_OFF == DRM_M6NPU_ROUTER_POLICY_OFF);
static_assert(M6NPU_ROUTER_LRU == DRM_M6NPU_ROUTER_POLICY_LRU);
static_assert(M6NPU_ROUTER_PRIORITY_LRU ==
	      DRM_M6NPU_ROUTER_POLICY_PRIORITY_LRU);
static_assert(sizeof(struct m6npu_layer_stats) ==
	      sizeof(struct drm_m6npu_layer_stats));

/* ---- Settings ---- */

int m6npu_router_init(struct m6npu_device *m6npu)
{
	m6npu->router.policy = M6NPU_ROUTER_LRU;
	m6npu->router.threshold = M6NPU_ROUTER_THRESHOLD_DEFAULT;
	return drmm_mutex_init(&m6npu->drm, &m6npu->router.lock);
}

u32 m6npu_router_quota(struct m6npu_device *m6npu)
{
	unsigned int tables = max(READ_ONCE(m6npu->router.tables), 1u);

	return max(M6NPU_ROUTER_ENTRIES / tables, 1u);
}

/* After a reset, which the settings survive. */
void m6npu_router_program(struct m6npu_device *m6npu)
{
	struct m6npu_router *router = &m6npu->router;

	guard(mutex)(&router->lock);
	m6npu_write(m6npu, M6NPU_REG_ROUTER_POLICY, router->policy);
	m6npu_write(m6npu, M6NPU_REG_ROUTER_THRESHOLD, router->threshold);
	m6npu_write(m6npu, M6NPU_REG_ROUTER_QUOTA, m6npu_router_quota(m6npu));
}

void m6npu_router_set_policy(struct m6npu_device *m6npu, u32 policy)
{
	guard(mutex)(&m6npu->router.lock);
	WRITE_ONCE(m6npu->router.policy, policy);
	m6npu_write(m6npu, M6NPU_REG_ROUTER_POLICY, policy);
}

void m6npu_router_set_threshold(struct m6npu_device *m6npu, u32 permille)
{
	guard(mutex)(&m6npu->router.lock);
	WRITE_ONCE(m6npu->router.threshold, permille);
	m6npu_write(m6npu, M6NPU_REG_ROUTER_THRESHOLD, permille);
}

void m6npu_router_count_tables(struct m6npu_device *m6npu, int change)
{
	struct m6npu_router *router = &m6npu->router;

	if (!change)
		return;
	guard(mutex)(&router->lock);
	WRITE_ONCE(router->tables, router->tables + change);
	m6npu_write(m6npu, M6NPU_REG_ROUTER_QUOTA, m6npu_router_quota(m6npu));
}

void m6npu_router_invalidate(struct m6npu_device *m6npu, const u32 *keys,
			     u32 count)
{
	u32 i;

	for (i = 0; i < count; i++)
		m6npu_write(m6npu, M6NPU_REG_ROUTER_INVALIDATE, keys[i]);
	/* Writes are posted. */
	m6npu_read(m6npu, M6NPU_REG_ROUTER_INVALIDATE);
}

/* ---- Counters ---- */

/**
 * m6npu_router_report() - settings and counters
 * @m6npu: device
 * @ctl: where they go
 *
 * Return: 0 or -ENODEV.
 */
int m6npu_router_report(struct m6npu_device *m6npu,
			struct drm_m6npu_router_ctl *ctl)
{
	u32 occupancy = m6npu_read(m6npu, M6NPU_REG_ROUTER_OCCUPANCY);

	ctl->policy = READ_ONCE(m6npu->router.policy);
	ctl->threshold = READ_ONCE(m6npu->router.threshold);
	ctl->quota = m6npu_router_quota(m6npu);
	ctl->pad2 = 0;
	ctl->entries = occupancy & 0xffff;
	ctl->pinned = occupancy >> 16;
	ctl->hits = m6npu_read64(m6npu, M6NPU_REG_ROUTER_HITS_LO);
	ctl->misses = m6npu_read64(m6npu, M6NPU_REG_ROUTER_MISSES_LO);
	ctl->evictions = m6npu_read64(m6npu, M6NPU_REG_ROUTER_EVICTIONS_LO);
	ctl->faults = m6npu_read64(m6npu, M6NPU_REG_ROUTER_FAULTS_LO);
	ctl->full = m6npu_read64(m6npu, M6NPU_REG_ROUTER_FULL_LO);
	/* The last one: the device may have gone between two of them. */
	if (m6npu_device_is_lost(m6npu) ||
	    (ctl->full == ~0ull && m6npu_device_check_lost(m6npu)))
		return -ENODEV;
	return 0;
}

static int router_check(const struct drm_m6npu_router_ctl *ctl)
{
	const u32 flags = DRM_M6NPU_ROUTER_SET_POLICY |
			  DRM_M6NPU_ROUTER_SET_THRESHOLD |
			  DRM_M6NPU_ROUTER_INVALIDATE;

	if (ctl->flags & ~flags || ctl->pad)
		return -EINVAL;
	if (ctl->flags & DRM_M6NPU_ROUTER_SET_POLICY &&
	    ctl->policy > DRM_M6NPU_ROUTER_POLICY_PRIORITY_LRU)
		return -EINVAL;
	if (ctl->flags & DRM_M6NPU_ROUTER_SET_THRESHOLD &&
	    ctl->threshold > M6NPU_ROUTER_THRESHOLD_MAX)
		return -EINVAL;
	return 0;
}

int m6npu_router_ctl_ioctl(struct drm_device *drm, void *data,
			   struct drm_file *file)
{
	struct m6npu_device *m6npu = to_m6npu_device(drm);
	struct m6npu_context *ctx = to_m6npu_context(file);
	struct drm_m6npu_router_ctl *args = data;
	int err;

	err = router_check(args);
	if (err)
		return err;
	if (args->flags & DRM_M6NPU_ROUTER_SET_POLICY)
		m6npu_router_set_policy(m6npu, args->policy);
	if (args->flags & DRM_M6NPU_ROUTER_SET_THRESHOLD)
		m6npu_router_set_threshold(m6npu, args->threshold);
	if (args->flags & DRM_M6NPU_ROUTER_INVALIDATE)
		m6npu_as_invalidate(m6npu, ctx->vm->asid);
	return m6npu_router_report(m6npu, args);
}

/* ---- Layers ---- */

void m6npu_router_layer_stats(struct m6npu_vm *vm, u32 layer,
			      struct drm_m6npu_layer_stats *stats)
{
	const struct m6npu_table *table = &vm->layer_stats;
	const size_t offset = layer * sizeof(struct m6npu_layer_stats);
	const __le64 *count = table->cpu + offset;
	u64 *value = (u64 *)stats;
	unsigned int i;

	m6npu_table_look(vm->m6npu, table, offset, sizeof(*stats));
	for (i = 0; i < sizeof(*stats) / sizeof(*value); i++)
		value[i] = le64_to_cpu(READ_ONCE(count[i]));
}

static int layer_stats_put(void __user *to, u32 stride,
			   const struct drm_m6npu_layer_stats *stats)
{
	size_t known = min_t(size_t, stride, sizeof(*stats));

	if (copy_to_user(to, stats, known) ||
	    clear_user(to + known, stride - known))
		return -EFAULT;
	return 0;
}

static int layer_stats_get(struct m6npu_context *ctx,
			   struct drm_m6npu_layer_stats_get *args)
{
	u32 layers = ctx->experts.layers, room = args->count, i;
	struct drm_m6npu_layer_stats stats;
	int err = 0;

	if (!layers)
		return -ENXIO;
	args->count = layers;
	for (i = 0; i < room && args->first + (u64)i < layers && !err; i++) {
		m6npu_router_layer_stats(ctx->vm, args->first + i, &stats);
		err = layer_stats_put(u64_to_user_ptr(args->entries +
						      (u64)i * args->stride),
				      args->stride, &stats);
	}
	return err;
}

int m6npu_layer_stats_ioctl(struct drm_device *drm, void *data,
			    struct drm_file *file)
{
	struct m6npu_context *ctx = to_m6npu_context(file);
	struct drm_m6npu_layer_stats_get *args = data;
	int err;

	if (args->pad || args->stride < sizeof(u64) ||
	    !IS_ALIGNED(args->stride, sizeof(u64)) || args->stride > STRIDE_MAX)
		return -EINVAL;
	err = mutex_lock_interruptible(&ctx->experts.lock);
	if (err)
		return err;
	err = layer_stats_get(ctx, args);
	mutex_unlock(&ctx->experts.lock);
	return err;
}
