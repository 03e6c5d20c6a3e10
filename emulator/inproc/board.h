/* SPDX-License-Identifier: MIT */
/*
 * A host around the emulator's device core, without a VM: guest memory, one
 * address space, one ring. It does what the driver does, in the plainest way.
 *
 * Functions return 0 or a negative errno and set npu_error(), unless said.
 */
#ifndef M6_INPROC_BOARD_H
#define M6_INPROC_BOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "m6npu_regs.h"
#include "profile.h"

struct board;

/* A run of device memory, and where this program sees it. */
struct board_memory {
	uint64_t addr;		/* device address */
	uint64_t bytes;
	uint8_t *host;
};

struct board_options {
	const struct m6_profile *profile;	/* NULL: the built-in one */
	uint64_t ram_bytes;	/* that there is at most */
	uint32_t router_policy;	/* M6NPU_ROUTER_* */
	uint32_t router_quota;	/* 0: all entries */
	unsigned int ring;	/* unit to run on */
	unsigned int threads;	/* of the emulator's arithmetic, 0: all */
	/*
	 * Neighbouring pages of the device lie apart on the bus, every other
	 * one: the emulator has no contiguous view of anything.
	 */
	bool scatter;
	/* Time passes, and nothing is computed. */
	bool dry;
};

struct board_job {
	uint64_t cmds;		/* device address */
	uint32_t count;
	uint64_t step;		/* device address */
	struct m6npu_region region[M6NPU_REGIONS];
};

int board_create(const struct board_options *options, struct board **board);
/* Takes NULL. */
void board_destroy(struct board *board);

/*
 * Memory the device can reach, zeroed. With scattered pages @host is a copy
 * of its own: board_push() writes it out, board_pull() reads it in.
 */
int board_alloc(struct board *board, uint64_t bytes, bool writable,
		struct board_memory *memory);
void board_push(struct board *board, const struct board_memory *memory,
		uint64_t offset, uint64_t bytes);
void board_pull(struct board *board, const struct board_memory *memory,
		uint64_t offset, uint64_t bytes);

/* A table with every expert absent, and statistics of its layers. */
int board_expert_table(struct board *board, uint32_t layers,
		       uint32_t experts);
void board_expert_set(struct board *board, uint32_t layer, uint32_t expert,
		      const struct m6npu_expert *entry);
/* Absent, and the device knows. */
void board_expert_drop(struct board *board, uint32_t layer, uint32_t expert);
/* As the device wrote them, one for each layer. */
const struct m6npu_layer_stats *board_layer_stats(const struct board *board);

/* Device time, ns. Advancing takes effect when nothing runs. */
uint64_t board_now(struct board *board);
void board_advance(struct board *board, uint64_t ns);

/* Who looks after experts while a job runs. */
struct board_host {
	void *user;
	/* A fault or a hint: each, in order. */
	void (*posted)(void *user, const struct m6npu_exception *record);
	/*
	 * The job waits for what was told since; it looks again when this
	 * returns 0, and is aborted if not.
	 */
	int (*stalled)(void *user);
};

/*
 * Runs the job to its end. -EIO: it ended with an exception, and the message
 * says which; what @host returned when it gave up.
 */
int board_run(struct board *board, const struct board_job *job,
	      const struct board_host *host, struct m6npu_job_status *status);

#endif
