/* SPDX-License-Identifier: MIT */
#ifndef NPU_POOL_H
#define NPU_POOL_H

#include <npu/npu.h>

struct npu_pool {
	struct npu_device *device;
	uint32_t id;
};

#endif
