/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_EXPERT_H
#define M6NPU_EXPERT_H

#include <linux/mutex.h>
#include <linux/types.h>

struct drm_device;
struct drm_file;
struct m6npu_context;
struct m6npu_device;

/**
 * struct m6npu_experts - a context's expert table
 *
 * The table itself is &m6npu_vm.experts, since jobs outlive the context.
 */
struct m6npu_experts {
	/** @lock: protects all members and the table; outside &m6npu_vm.resv */
	struct mutex lock;
	/** @layers: of the table, 0 if there is none */
	u32 layers;
	/** @per_layer: experts of each layer */
	u32 per_layer;
};

void m6npu_experts_init(struct m6npu_context *ctx);
void m6npu_experts_fini(struct m6npu_context *ctx);

int m6npu_expert_table_ioctl(struct drm_device *drm, void *data,
			     struct drm_file *file);
int m6npu_expert_bind_ioctl(struct drm_device *drm, void *data,
			    struct drm_file *file);

#endif
