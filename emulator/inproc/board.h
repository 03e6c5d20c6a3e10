/* SPDX-License-Identifier: MIT */
/*
 * A host around the emulator's device core, without a VM: guest memory, one
 * address space, one ring, interrupts. It does what the driver does, in the
 * plainest way.
 */
#ifndef M6_INPROC_BOARD_H
#define M6_INPROC_BOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "m6npu_regs.h"

struct board;

/* A run of device memory, and where this program sees it. */
struct board_memory {
	uint64_t addr;		/* device address */
	uint64_t bytes;
	uint8_t *host;
};

struct board_options {
	uint32_t router_policy;	/* M6NPU_ROUTER_* */
	unsigned int ring;	/* unit to run on */
	unsigned int threads;	/* of the emulator's arithmetic, 0: all */
	/*
	 * Neighbouring pages of the device lie apart on the bus, every other
	 * one: the emulator has no contiguous view of anything.
	 */
	bool scatter;
};

struct board_job {
	uint64_t cmds;		/* device address */
	uint32_t count;
	uint64_t step;		/* device address */
	struct m6npu_region region[M6NPU_REGIONS];
};

/* NULL: out of memory. */
struct board *board_create(const struct board_options *options);
void board_destroy(struct board *board);

/*
 * Memory the device can reach, zeroed. With scattered pages @host is a copy
 * of its own: board_push() writes it out, board_pull() reads it in.
 */
struct board_memory board_alloc(struct board *board, uint64_t bytes,
				bool writable);
void board_push(struct board *board, const struct board_memory *memory,
		uint64_t offset, uint64_t bytes);
void board_pull(struct board *board, const struct board_memory *memory,
		uint64_t offset, uint64_t bytes);

/* A table with every expert absent. */
void board_expert_table(struct board *board, uint32_t layers,
			uint32_t experts);
void board_expert_set(struct board *board, uint32_t layer, uint32_t expert,
		      uint64_t addr, uint32_t bytes, uint8_t state);
/* After entries were taken away. */
void board_invalidate(struct board *board);

/* Brings in an expert and sets its entry; called by board_run(). */
typedef void (*board_fault_fn)(void *user, uint32_t layer, uint32_t expert);

/* Runs the job to its end and returns its status record. */
struct m6npu_job_status board_run(struct board *board,
				  const struct board_job *job,
				  board_fault_fn fault, void *user);

#endif
