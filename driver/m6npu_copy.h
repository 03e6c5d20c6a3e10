/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_COPY_H
#define M6NPU_COPY_H

#include <linux/sizes.h>
#include <linux/types.h>

/* What is smaller, a processor copies in less time than a job takes. */
#define M6NPU_COPY_MIN		SZ_4M

struct m6npu_copier;
struct m6npu_device;

struct m6npu_copier *m6npu_copier_create(struct m6npu_device *m6npu);
void m6npu_copier_destroy(struct m6npu_copier *copier);
int m6npu_copier_copy(struct m6npu_copier *copier, dma_addr_t dst,
		      dma_addr_t src, u64 size, u64 *done);

#endif
