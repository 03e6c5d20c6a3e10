// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Segments
 *
 * A segment is what a pool is made of: one physically contiguous range that
 * the device sees as one range of bus addresses.
 *
 * Where the pages come from, in this order:
 *
 * - The contiguous area (CMA) of the device: the device tree's reserved memory
 *   if the function has a node that names one, else the system's default area
 *   (``cma=`` on the kernel's command line). This gives many GiB in one piece.
 * - Ordinary memory, by moving away what is in the way. This depends on luck
 *   once the system has been up for a while, and takes at most a quarter of
 *   the machine's memory, so that a PC without ``cma=`` still runs small
 *   models but cannot be starved.
 * - dma_alloc_pages(), where the kernel exports none of the above (before
 *   7.x). A few MiB at a time; enough to try things out.
 *
 * Nothing here touches memory. It is cleared when a buffer is first used.
 */

#include <linux/cma.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>

#include "m6npu_arena.h"
#include "m6npu_device.h"
#include "m6npu_pt.h"
#include "m6npu_segment.h"

/* What ordinary memory may give, as a part of the whole. */
#define SEGMENT_RESERVE_SHARE	4
/* Halvings of m6npu_segment_probe(). */
#define SEGMENT_PROBE_STEPS	6
/* When it is told what it found by then. */
#define SEGMENT_PROBE_TIME	msecs_to_jiffies(1000)

#ifdef M6NPU_HAVE_CMA

/* Aligned for the device's windows and large pages; not worth failing for. */
static struct page *segment_take_cma(struct cma *area, u64 size)
{
	static const u64 aligns[] = { M6NPU_ALIGN_WINDOW, M6NPU_ALIGN_LARGE };
	unsigned long count = size >> PAGE_SHIFT;
	struct page *page = NULL;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(aligns) && !page; i++) {
		if (size >= aligns[i])
			page = cma_alloc(area, count, get_order(aligns[i]),
					 true);
	}
	if (!page)
		page = cma_alloc(area, count,
				 min_t(unsigned int, CONFIG_CMA_ALIGNMENT,
				       get_order(size)), true);
	return page;
}

static struct page *segment_take_contig(struct device *dev, u64 size)
{
	int node = dev_to_node(dev);

	if (node == NUMA_NO_NODE)
		node = numa_mem_id();
	return alloc_contig_pages(size >> PAGE_SHIFT,
				  GFP_KERNEL | __GFP_NOWARN, node, NULL);
}

static void segment_give_back(struct device *dev,
			      struct m6npu_segment *segment)
{
	unsigned long count = segment->size >> PAGE_SHIFT;

	if (segment->source == M6NPU_SEGMENT_CMA)
		cma_release(segment->area, segment->page, count);
	else
		free_contig_range(page_to_pfn(segment->page), count);
}

static int segment_map(struct device *dev, struct m6npu_segment *segment)
{
	segment->dma = dma_map_page_attrs(dev, segment->page, 0, segment->size,
					  DMA_BIDIRECTIONAL,
					  DMA_ATTR_SKIP_CPU_SYNC);
	return dma_mapping_error(dev, segment->dma);
}

static void segment_unmap(struct device *dev, struct m6npu_segment *segment)
{
	dma_unmap_page_attrs(dev, segment->dma, segment->size,
			     DMA_BIDIRECTIONAL, DMA_ATTR_SKIP_CPU_SYNC);
}

#else

static struct page *segment_take_cma(struct cma *area, u64 size)
{
	return NULL;
}

static struct page *segment_take_contig(struct device *dev, u64 size)
{
	return NULL;
}

static void segment_give_back(struct device *dev,
			      struct m6npu_segment *segment)
{
}

static int segment_map(struct device *dev, struct m6npu_segment *segment)
{
	return -EOPNOTSUPP;
}

static void segment_unmap(struct device *dev, struct m6npu_segment *segment)
{
}

#endif

/* Accounts ordinary memory; false if it would be too much. */
static bool segment_reserve(struct m6npu_pools *pools, u64 size)
{
	u64 limit = (u64)totalram_pages() / SEGMENT_RESERVE_SHARE;

	guard(mutex)(&pools->lock);
	if (pools->reserved + size > limit << PAGE_SHIFT)
		return false;
	pools->reserved += size;
	return true;
}

static void segment_unreserve(struct m6npu_pools *pools, u64 size)
{
	guard(mutex)(&pools->lock);
	pools->reserved -= size;
}

static int segment_take(struct m6npu_device *m6npu,
			struct m6npu_segment *segment, u64 size)
{
	struct device *dev = m6npu->drm.dev;

	if (m6npu_fault_due(m6npu))
		return -ENOMEM;
	segment->size = size;
	segment->area = m6npu->pools.area;
	segment->source = M6NPU_SEGMENT_CMA;
	if (segment->area) {
		segment->page = segment_take_cma(segment->area, size);
		if (segment->page)
			return 0;
	}

	if (!segment_reserve(&m6npu->pools, size))
		return -ENOMEM;
	segment->source = M6NPU_SEGMENT_CONTIG;
	segment->page = segment_take_contig(dev, size);
	if (segment->page)
		return 0;

	segment->source = M6NPU_SEGMENT_DMA;
	segment->page = dma_alloc_pages(dev, size, &segment->dma,
					DMA_BIDIRECTIONAL,
					GFP_KERNEL | __GFP_NOWARN);
	if (segment->page)
		return 0;

	segment_unreserve(&m6npu->pools, size);
	return -ENOMEM;
}

static void segment_release(struct m6npu_device *m6npu,
			    struct m6npu_segment *segment)
{
	struct device *dev = m6npu->drm.dev;

	if (segment->source == M6NPU_SEGMENT_DMA)
		dma_free_pages(dev, segment->size, segment->page, segment->dma,
			       DMA_BIDIRECTIONAL);
	else
		segment_give_back(dev, segment);
	if (segment->source != M6NPU_SEGMENT_CMA)
		segment_unreserve(&m6npu->pools, segment->size);
}

int m6npu_segment_alloc(struct m6npu_device *m6npu,
			struct m6npu_segment *segment, u64 size)
{
	int err;

	err = segment_take(m6npu, segment, size);
	if (err) {
		segment->size = 0;
		return err;
	}
	if (segment->source != M6NPU_SEGMENT_DMA) {
		err = m6npu_fault_due(m6npu) ||
		      segment_map(m6npu->drm.dev, segment);
		if (err) {
			err = -EIO;
			goto err_release;
		}
	}
	segment->mapped = true;

	/* The device's page tables hold 48 bits. */
	if ((segment->dma + size - 1) & ~(M6NPU_PTE_ADDR_MASK | ~PAGE_MASK)) {
		err = -ERANGE;
		goto err_unmap;
	}
	return 0;

err_unmap:
	m6npu_segment_unmap(m6npu, segment);
err_release:
	segment_release(m6npu, segment);
	segment->size = 0;
	return err;
}

/* After this the device must not use the segment any more. */
void m6npu_segment_unmap(struct m6npu_device *m6npu,
			 struct m6npu_segment *segment)
{
	if (segment->mapped && segment->source != M6NPU_SEGMENT_DMA)
		segment_unmap(m6npu->drm.dev, segment);
	segment->mapped = false;
}

void m6npu_segment_free(struct m6npu_device *m6npu,
			struct m6npu_segment *segment)
{
	m6npu_segment_unmap(m6npu, segment);
	segment_release(m6npu, segment);
	segment->size = 0;
}

static bool segment_would_fit(struct m6npu_device *m6npu, u64 size)
{
	struct m6npu_segment segment = {};

	if (segment_take(m6npu, &segment, size))
		return false;
	segment_release(m6npu, &segment);
	return true;
}

/*
 * The kernel does not tell how large the largest free range is, so try. Only
 * for a message that is worth the time: what has to be clear is moved away
 * and, if the kernel is told to, cleared.
 */
u64 m6npu_segment_probe(struct m6npu_device *m6npu, u64 limit)
{
	u64 most = m6npu->pools.area_size ?:
		   (u64)totalram_pages() << PAGE_SHIFT;
	unsigned long deadline = jiffies + SEGMENT_PROBE_TIME;
	u64 low = 0, high = min(limit, most);
	unsigned int i;

	if (high < limit && segment_would_fit(m6npu, high))
		return high;
	for (i = 0; i < SEGMENT_PROBE_STEPS; i++) {
		u64 size = ALIGN_DOWN(low + (high - low) / 2, PAGE_SIZE);

		if (size == low || signal_pending(current) ||
		    time_after(jiffies, deadline))
			break;
		if (segment_would_fit(m6npu, size))
			low = size;
		else
			high = size;
	}
	return low;
}
