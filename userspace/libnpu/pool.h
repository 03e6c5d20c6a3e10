/* SPDX-License-Identifier: MIT */
#ifndef NPU_POOL_H
#define NPU_POOL_H

#include <stdbool.h>
#include <npu/npu.h>

struct npu_pool {
	struct npu_device *device;
	uint32_t id;
	bool created;		/* here, so its memory goes with this object */
};

/* What is to be said about a failed ioctl. */
struct npu_reason {
	int error;
	const char *what, *help;
};

/* The entry for @error, or NULL. */
const struct npu_reason *npu_reason_find(const struct npu_reason *reasons,
					 size_t count, int error);

/*
 * Opens the persistent pool that suits @need bytes best, defragmented if it has
 * them only in pieces; NULL if there is none with as many.
 */
int npu_pool_find(struct npu_device *device, uint64_t need,
		  struct npu_pool **pool);

#endif
