// SPDX-License-Identifier: MIT
#include "target.h"

#include <string.h>

#include "m6npu_regs.h"

static const struct target targets[] = {
	{
		.name = "m6-mini",
		.router_entries = M6NPU_ROUTER_ENTRIES,
		.macs_per_cycle = 4096,
		.mhz = 1200,
		.dram_mb_s = 230000,
		.command_ns = 1000,
	},
};

/* What one costs in INT8 ones. */
static const double macs[M6NPU_TYPE_COUNT] = {
	[M6NPU_TYPE_F32] = 4,
	[M6NPU_TYPE_F16] = 2,
	[M6NPU_TYPE_BF16] = 2,
	[M6NPU_TYPE_Q8_0] = 1,
	[M6NPU_TYPE_Q4_0] = 0.5,
};

const struct target *target_find(const char *name)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(targets); i++)
		if (!strcmp(name, targets[i].name))
			return &targets[i];
	fail("--target %s is not known; there is m6-mini", name);
	return NULL;
}

double target_mac_ns(const struct target *target, uint8_t type)
{
	return macs[type] * 1e3 / target->mhz / target->macs_per_cycle;
}

double target_read_ns(const struct target *target, uint64_t bytes)
{
	return bytes * 1e3 / target->dram_mb_s;
}
