/* SPDX-License-Identifier: MIT */
/*
 * As much of libnpu as a memory test uses, with a device in it that fills,
 * compares and copies, and memory that breaks on request.
 */
#ifndef FAKE_NPU_H
#define FAKE_NPU_H

#include <stdbool.h>
#include <stdint.h>
#include <npu/npu.h>

struct fake {
	/* Before. */
	uint64_t area;		/* contiguous bytes there are */
	bool area_unknown;	/* to the driver */
	uint64_t piece;		/* and the largest pool of them, 0: all */
	uint64_t persistent;	/* free bytes in a persistent pool */
	/* Meanwhile. */
	uint64_t stuck_addr;	/* word of which bits are stuck, 0: none */
	uint32_t stuck_mask, stuck_value;
	uint64_t misread;	/* address COMPARE finds wrong, 0: none */
	int job_error;		/* what jobs fail with */
	/* For looking at. */
	uint64_t taken;		/* of the area */
	unsigned int jobs, buffers, pools;
};

extern struct fake fake;

#endif
