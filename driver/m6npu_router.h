/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_ROUTER_H
#define M6NPU_ROUTER_H

#include <linux/mutex.h>
#include <linux/types.h>

struct attribute_group;
struct drm_device;
struct drm_file;
struct drm_m6npu_layer_stats;
struct drm_m6npu_router_ctl;
struct m6npu_device;
struct m6npu_vm;
struct seq_file;

#define M6NPU_ROUTER_THRESHOLD_MAX	1000

/**
 * struct m6npu_router - the router cache's settings
 */
struct m6npu_router {
	/** @lock: protects the following members, and their registers */
	struct mutex lock;
	/** @policy: M6NPU_ROUTER_* */
	u32 policy;
	/** @threshold: chance from which on an expert is prefetched, in 1/1000 */
	u32 threshold;
	/** @tables: contexts that have an expert table */
	unsigned int tables;
	/** @stall_ns: how long jobs waited for experts */
	atomic64_t stall_ns;
};

int m6npu_router_init(struct m6npu_device *m6npu);
void m6npu_router_program(struct m6npu_device *m6npu);

void m6npu_router_set_policy(struct m6npu_device *m6npu, u32 policy);
void m6npu_router_set_threshold(struct m6npu_device *m6npu, u32 permille);
u32 m6npu_router_quota(struct m6npu_device *m6npu);
int m6npu_router_report(struct m6npu_device *m6npu,
			struct drm_m6npu_router_ctl *ctl);

/* Expert tables came, or, if @change is negative, went. */
void m6npu_router_count_tables(struct m6npu_device *m6npu, int change);
/* Drops what the device has cached of these experts, synchronously. */
void m6npu_router_invalidate(struct m6npu_device *m6npu, const u32 *keys,
			     u32 count);
/*
 * What the device counted in a layer of the table. Call it with &m6npu_vm.lock
 * or the context's &m6npu_experts.lock held.
 */
void m6npu_router_layer_stats(struct m6npu_vm *vm, u32 layer,
			      struct drm_m6npu_layer_stats *stats);

int m6npu_router_ctl_ioctl(struct drm_device *drm, void *data,
			   struct drm_file *file);
int m6npu_layer_stats_ioctl(struct drm_device *drm, void *data,
			    struct drm_file *file);

/* m6npu_router_show.c */
extern const struct attribute_group m6npu_router_group;
int m6npu_router_show(struct seq_file *m, struct m6npu_device *m6npu);
void m6npu_router_layers_show(struct seq_file *m, struct m6npu_device *m6npu);

#endif
