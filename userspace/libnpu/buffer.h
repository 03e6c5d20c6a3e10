/* SPDX-License-Identifier: MIT */
#ifndef NPU_BUFFER_H
#define NPU_BUFFER_H

#include <npu/npu.h>

struct npu_buffer {
	struct npu_pool *pool;
	uint64_t size;
	uint64_t addr;
	uint64_t mmap_offset;
	void *cpu;		/* NULL: not mapped */
	uint32_t handle;
};

/* Maps the buffer over what is at @cpu; unmapping is the caller's. */
int npu_buffer_map_at(struct npu_buffer *buffer, void *cpu);
/* Makes the buffer an immutable command list. */
int npu_buffer_seal(struct npu_buffer *buffer);

#endif
