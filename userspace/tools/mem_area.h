/* SPDX-License-Identifier: MIT */
/*
 * The memory under test: pools, cut into buffers, cut into pieces. A piece has
 * a power of two of bytes, up to MEM_PIECE, and is aligned to them in device
 * addresses. It is what one job works on: large enough that starting jobs does
 * not count, small enough for a third-level cache and for whoever waits for its
 * end.
 */
#ifndef MEM_AREA_H
#define MEM_AREA_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <npu/npu.h>

#define MEM_PIECE_MIN	4096u
#define MEM_PIECE	(8u << 20)

struct mem_piece {
	struct npu_buffer *buffer;
	uint64_t offset;	/* in it */
	uint64_t addr;		/* for the device */
	uint32_t size;
	uint32_t *cpu;
};

struct mem_area {
	struct npu_device *device;
	struct npu_pool **pools;
	size_t pool_count;
	uint64_t reserved;	/* free bytes of all pools at first */
	struct npu_buffer **buffers;
	size_t buffer_count, buffer_room;
	struct mem_piece *pieces;
	size_t piece_count, piece_room;
	uint64_t bytes;		/* of all pieces */
};

/*
 * Reserves pools of @bytes in all, or less if no more is to be had: free space
 * of persistent pools if no new pool is. -ENOMEM if there is nothing at all.
 */
int mem_area_reserve(struct mem_area *area, struct npu_device *device,
		     uint64_t bytes);
/* A buffer that is not under test. */
int mem_area_buffer(struct mem_area *area, uint64_t size,
		    struct npu_buffer **buffer);
/*
 * Fills up to @bytes of the pools with buffers and cuts them. Slow, since
 * memory is cleared: tells @progress, and ends early when @stop is set.
 */
int mem_area_fill(struct mem_area *area, uint64_t bytes,
		  void (*progress)(void *user, uint64_t done), void *user,
		  const volatile sig_atomic_t *stop);
void mem_area_free(struct mem_area *area);

#endif
