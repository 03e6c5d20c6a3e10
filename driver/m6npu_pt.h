/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Arithmetic of the device's two-level page tables. No device and no kernel
 * services here, so that it also runs in a test program.
 */
#ifndef M6NPU_PT_H
#define M6NPU_PT_H

#include <linux/const.h>
#include <linux/types.h>

#include "m6npu_regs.h"

/* Nothing is mapped below, so that small offsets from address 0 fault. */
#define M6NPU_VA_START		0x100000ull
#define M6NPU_VA_SIZE		_BITULL(M6NPU_VA_BITS)
#define M6NPU_PAGE_SIZE		_BITULL(M6NPU_PAGE_SHIFT)
#define M6NPU_LARGE_PAGE_SIZE	_BITULL(M6NPU_LARGE_PAGE_SHIFT)

/* Entry of the first level that covers @va. */
static inline unsigned int m6npu_pt_slot(__u64 va)
{
	return (va >> M6NPU_LARGE_PAGE_SHIFT) & (M6NPU_PT_ENTRIES - 1);
}

/* Entry of the second level that covers @va. */
static inline unsigned int m6npu_pt_index(__u64 va)
{
	return (va >> M6NPU_PAGE_SHIFT) & (M6NPU_PT_ENTRIES - 1);
}

/* Bytes of [@va, @end) that lie in the first-level entry of @va. */
static inline __u64 m6npu_pt_span(__u64 va, __u64 end)
{
	__u64 next = (va | (M6NPU_LARGE_PAGE_SIZE - 1)) + 1;

	return (next < end ? next : end) - va;
}

/* Whether @span bytes at @va can be one large page at @pa. */
static inline bool m6npu_pt_fits_large(__u64 va, __u64 pa, __u64 span)
{
	return span == M6NPU_LARGE_PAGE_SIZE &&
	       !((va | pa) & (M6NPU_LARGE_PAGE_SIZE - 1));
}

/* Device addresses of a buffer of @size bytes are multiples of this. */
static inline __u64 m6npu_pt_align(__u64 size)
{
	return size < M6NPU_LARGE_PAGE_SIZE ? M6NPU_PAGE_SIZE :
	       M6NPU_LARGE_PAGE_SIZE;
}

static inline __u64 m6npu_pt_entry(__u64 pa, __u64 flags)
{
	return (pa & M6NPU_PTE_ADDR_MASK) | flags;
}

#endif
