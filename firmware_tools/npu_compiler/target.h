/* SPDX-License-Identifier: MIT */
/* What a model is compiled for. */
#ifndef NPU_COMPILER_TARGET_H
#define NPU_COMPILER_TARGET_H

#include "util.h"

struct target {
	const char *name;
	uint32_t router_entries;
	/* Documentation/hardware.rst, "Device time". */
	uint32_t macs_per_cycle;	/* INT8, of one unit */
	uint32_t mhz;			/* highest operating point */
	uint32_t dram_mb_s;
	uint32_t command_ns;		/* to launch one */
};

/* NULL: unknown, with fail(). */
const struct target *target_find(const char *name);

/* A multiply-accumulate with weights of a type; reading bytes of weights. */
double target_mac_ns(const struct target *target, uint8_t type);
double target_read_ns(const struct target *target, uint64_t bytes);

#endif
