/* SPDX-License-Identifier: MIT */
/*
 * What the files of the board share.
 *
 *	board.c		the device, its ring, jobs
 *	board_memory.c	guest memory and page tables
 *	board_expert.c	the expert table
 */
#ifndef M6_INPROC_BOARD_PRIV_H
#define M6_INPROC_BOARD_PRIV_H

#include "board.h"
#include "device.h"

#define BOARD_ASID	5
#define BOARD_PAGE	(1ull << M6NPU_PAGE_SHIFT)

struct board {
	struct m6_device *dev;
	struct board_options options;

	uint8_t *ram;
	uint64_t ram_bytes, used;
	uint64_t next_va;
	void **copies;		/* hosts' views of scattered memory */
	unsigned int copy_count;
	uint64_t *pgd;
	struct m6npu_as *as;

	struct m6npu_expert *experts;
	uint32_t experts_per_layer;
	struct m6npu_layer_stats *layer_stats;

	struct m6npu_ring_entry *ring;
	struct m6npu_region *regions;
	struct m6npu_job_status *status;
	struct m6npu_exception *exceptions;
	uint64_t exceptions_seen;
	uint32_t tail;
};

/* board_memory.c */

/* The guest's memory. */
int board_memory_init(struct board *board);
void board_memory_clear(struct board *board);
/* Zeroed; NULL with npu_error() set: it is used up. */
void *board_ram(struct board *board, uint64_t bytes, uint64_t align);
uint64_t board_bus(const struct board *board, const void *host);

#endif
