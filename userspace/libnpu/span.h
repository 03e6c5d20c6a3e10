/* SPDX-License-Identifier: MIT */
/*
 * Spans: device memory larger than one buffer may be. Buffers of one size lie
 * side by side, in the device's address space and in the CPU's.
 */
#ifndef NPU_SPAN_H
#define NPU_SPAN_H

#include <stdbool.h>
#include <stdint.h>
#include <npu/npu.h>

/* Device addresses that spans of an open device use. */
struct npu_va_range {
	uint64_t addr, size;
};

struct npu_va {
	struct npu_va_range *ranges;	/* by address */
	size_t count, room;
};

/*
 * Spans begin here, far from where the driver puts buffers whose address is
 * its choice (from the bottom up).
 */
#define NPU_VA_BASE	(1ull << 36)
#define NPU_VA_END	(1ull << 38)
/* The MMU's large page: what is aligned to it costs least. */
#define NPU_LARGE_PAGE	(32ull << 20)

/* First fit, at a multiple of @align, which is of NPU_LARGE_PAGE. -ENOSPC */
int npu_va_take(struct npu_va *va, uint64_t size, uint64_t align,
		uint64_t *addr);
void npu_va_give(struct npu_va *va, uint64_t addr);
void npu_va_clear(struct npu_va *va);

struct npu_span {
	struct npu_pool *pool;
	uint64_t addr;			/* for the device */
	uint64_t size;
	uint64_t chunk;			/* of each buffer but the last */
	uint32_t flags;			/* NPU_BUFFER_* */
	bool windows;			/* buffers are to be aligned for them */
	char *cpu;			/* NULL: not mapped */
	uint32_t buffer_count;
	struct npu_buffer **buffers;	/* NULL where not populated */
};

/*
 * Reserves addresses; @chunk is a multiple of 4 KiB, with @windows of
 * NPU_WINDOW_ALIGN: buffers are aligned for windows then, as far as the pool has
 * room for that. Give back with npu_span_clear(), which also takes a zeroed or
 * half-made span.
 */
int npu_span_init(struct npu_span *span, struct npu_pool *pool, uint64_t size,
		  uint64_t chunk, uint32_t flags, bool windows);
void npu_span_clear(struct npu_span *span);

/* Makes sure that there is zeroed or loaded memory behind the range. */
int npu_span_populate(struct npu_span *span, uint64_t offset, uint64_t size);
/* Drops the CPU's view, for good. */
void npu_span_unmap(struct npu_span *span);
/* Of a populated range. */
int npu_span_sync_to_device(struct npu_span *span, uint64_t offset,
			    uint64_t size);
int npu_span_sync_from_device(struct npu_span *span, uint64_t offset,
			      uint64_t size);

#endif
