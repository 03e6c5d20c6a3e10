/* SPDX-License-Identifier: MIT */
#ifndef NPU_BUFFER_H
#define NPU_BUFFER_H

#include <npu/npu.h>

struct npu_buffer {
	struct npu_pool *pool;
	uint64_t size;
	uint64_t addr;
	uint64_t mmap_offset;
	uint64_t align;		/* of device address and memory */
	void *cpu;		/* NULL: not mapped */
	uint32_t handle;
};

/* Windows of the device lie at multiples of this. */
#define NPU_WINDOW_ALIGN	(256ull << 20)

/* npu_buffer_create() with an alignment: NPU_WINDOW_ALIGN, or 0 for its own. */
int npu_buffer_create_aligned(struct npu_pool *pool, uint64_t size,
			      uint32_t flags, uint64_t align, uint64_t *addr,
			      struct npu_buffer **buffer);

/* Maps the buffer over what is at @cpu; unmapping is the caller's. */
int npu_buffer_map_at(struct npu_buffer *buffer, void *cpu);

#endif
