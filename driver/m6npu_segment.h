/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_SEGMENT_H
#define M6NPU_SEGMENT_H

#include <linux/mm_types.h>
#include <linux/types.h>

struct cma;
struct m6npu_device;

/**
 * enum m6npu_segment_source - where a segment's pages come from
 * @M6NPU_SEGMENT_CMA: the device's or the system's contiguous area
 * @M6NPU_SEGMENT_CONTIG: a contiguous range out of free and movable memory
 * @M6NPU_SEGMENT_DMA: dma_alloc_pages(), where the kernel exports neither
 */
enum m6npu_segment_source {
	M6NPU_SEGMENT_CMA,
	M6NPU_SEGMENT_CONTIG,
	M6NPU_SEGMENT_DMA,
};

/**
 * struct m6npu_segment - physically contiguous memory, mapped for the device
 */
struct m6npu_segment {
	/** @page: first page */
	struct page *page;
	/** @size: bytes, a multiple of the page size; 0 if there is none */
	u64 size;
	/** @dma: bus address of the first byte */
	dma_addr_t dma;
	/** @area: CMA area it came from, if it did */
	struct cma *area;
	/** @source: who gets the pages back */
	enum m6npu_segment_source source;
	/** @mapped: @dma is valid; false once the device is gone */
	bool mapped;
};

int m6npu_segment_alloc(struct m6npu_device *m6npu,
			struct m6npu_segment *segment, u64 size);
void m6npu_segment_unmap(struct m6npu_device *m6npu,
			 struct m6npu_segment *segment);
void m6npu_segment_free(struct m6npu_device *m6npu,
			struct m6npu_segment *segment);

/* Bytes of the largest segment that could be had now, below @limit. */
u64 m6npu_segment_probe(struct m6npu_device *m6npu, u64 limit);

#endif
