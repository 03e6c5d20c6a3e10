/* SPDX-License-Identifier: MIT */
/*
 * What the device does in a memory test: fills a piece with a pattern, compares
 * it, copies it, or does the first two with a series of patterns. Its command
 * lists are written once, for each size of a piece.
 */
#ifndef MEM_DEVICE_H
#define MEM_DEVICE_H

#include <stdint.h>
#include <npu/npu.h>

#include "mem_area.h"

/* Patterns by their number: the user's, its inverse, a bit set, a bit clear. */
enum {
	MEM_BASE = 0,
	MEM_INVERSE = 1,
	MEM_WALKING_ONES = 2,
	MEM_WALKING_ZEROS = MEM_WALKING_ONES + 32,
	MEM_PATTERNS = MEM_WALKING_ZEROS + 32,
};

#define MEM_WALK_STEPS	32

/* What a comparison came to. */
struct mem_finding {
	uint64_t mismatches;	/* words */
	uint64_t addr;		/* of the first one */
	uint32_t found;		/* there */
};

struct mem_device {
	struct npu_device *device;
	struct npu_buffer *lists;
	struct npu_buffer *results;
	struct npu_buffer *copy;	/* MEM_PIECE bytes */
	uint32_t pattern[MEM_PATTERNS];
};

/* Of the pool's memory that is not tested, for what is below. */
uint64_t mem_device_bytes(void);

/* Buffers are @area's. */
int mem_device_init(struct mem_device *md, struct mem_area *area,
		    uint32_t pattern);
int mem_device_fill(struct mem_device *md, const struct mem_piece *piece,
		    unsigned int pattern);
int mem_device_compare(struct mem_device *md, const struct mem_piece *piece,
		       unsigned int pattern, struct mem_finding *finding);
/* Fills and compares by MEM_WALK_STEPS patterns from @first on. */
int mem_device_walk(struct mem_device *md, const struct mem_piece *piece,
		    unsigned int first, struct mem_finding *findings);
/* @copy tells where the copy is then for the CPU, @addr where for the device. */
int mem_device_copy(struct mem_device *md, const struct mem_piece *piece,
		    const uint32_t **copy, uint64_t *addr);

#endif
