// SPDX-License-Identifier: MIT
/*
 * The device's data formats that libnpu writes or prints. The only file of
 * libnpu that includes m6npu_regs.h.
 */
#include <endian.h>
#include <m6npu_regs.h>

#include "job_format.h"

uint32_t npu_step_max_tokens(void)
{
	return M6NPU_STEP_MAX_TOKENS;
}

size_t npu_step_block_bytes(uint32_t tokens)
{
	return sizeof(struct m6npu_step) +
	       tokens * sizeof(struct m6npu_step_token);
}

size_t npu_step_block_write(void *dst, const struct npu_kv_shape *kv,
			    const struct npu_step_ahead *ahead,
			    const struct npu_step_token *tokens,
			    uint32_t count)
{
	struct m6npu_step *step = dst;
	uint32_t i, out = 0;

	for (i = 0; i < count; i++) {
		step->tokens[i] = (struct m6npu_step_token){
			.token = htole32((uint32_t)tokens[i].token),
			.position = htole32(tokens[i].position),
			.slot = htole32(tokens[i].slot),
			.flags = htole32(tokens[i].out ? M6NPU_TOKEN_OUT : 0),
		};
		out += tokens[i].out;
	}
	step->token_count = htole32(count);
	step->out_count = htole32(out);
	step->kv_capacity = htole32(kv->capacity);
	step->kv_type = htole32(kv->q8_0 ? M6NPU_TYPE_Q8_0 : M6NPU_TYPE_F16);
	step->kv_slot_stride = htole64(kv->slot_stride);
	step->prefetch_permille = htole32(ahead->permille);
	step->flags = htole32(ahead->hints ? M6NPU_STEP_HINTS : 0);
	return npu_step_block_bytes(count);
}

#define MISMATCH \
	"model file and device do not agree; compile the model again, and check the firmware's version"
#define BROKEN "see dmesg; if it comes again, reset the device (npu_reset)"
#define MEMORY "memory is failing; test it with npu_mem_test"

static const struct {
	uint32_t code;
	const char *name, *remedy;
} exceptions[] = {
	{ M6NPU_EXC_MMU_PAGE_FAULT, "MMU_PAGE_FAULT", MISMATCH },
	{ M6NPU_EXC_TLB_WALK_TIMEOUT, "TLB_WALK_TIMEOUT", BROKEN },
	{ M6NPU_EXC_PAGE_ALIGNMENT, "PAGE_ALIGNMENT_VIOLATION", MISMATCH },
	{ M6NPU_EXC_DMA_ERROR, "DMA_ERROR", BROKEN },
	{ M6NPU_EXC_EXPERT_FAULT, "EXPERT_FAULT",
	  "an expert was not brought in in time; load all experts, or raise the driver's expert timeout" },
	{ M6NPU_EXC_ROUTER_CACHE_FULL, "ROUTER_CACHE_FULL",
	  "pin fewer experts" },
	{ M6NPU_EXC_EXPERT_HINT, "EXPERT_HINT", "nothing: it is no error" },
	{ M6NPU_EXC_ILLEGAL_COMMAND, "ILLEGAL_COMMAND", MISMATCH },
	{ M6NPU_EXC_BOUNDS, "BOUNDS", MISMATCH },
	{ M6NPU_EXC_UNIT_HANG, "UNIT_HANG", BROKEN },
	{ M6NPU_EXC_ABORTED, "ABORTED", "try again" },
	{ M6NPU_EXC_DECOMPRESS_ERROR, "DECOMPRESS_ERROR",
	  "check the model with npu_compiler --verify" },
	{ M6NPU_EXC_THERMAL_THROTTLE, "THERMAL_THROTTLE",
	  "improve the cooling" },
	{ M6NPU_EXC_THERMAL_CRITICAL, "THERMAL_CRITICAL",
	  "let the board cool down and improve the cooling" },
	{ M6NPU_EXC_ECC_CORRECTED, "ECC_CORRECTED", MEMORY },
	{ M6NPU_EXC_ECC_UNCORRECTED, "ECC_UNCORRECTED", MEMORY },
	{ M6NPU_EXC_FIRMWARE_ASSERT, "FIRMWARE_ASSERT", BROKEN },
	{ M6NPU_EXC_LINK_DEGRADED, "LINK_DEGRADED",
	  "reseat the board; lspci -vv shows the link" },
};

#define COUNT (sizeof(exceptions) / sizeof(exceptions[0]))

const char *npu_exception_name(uint32_t code)
{
	size_t i;

	for (i = 0; i < COUNT; i++)
		if (exceptions[i].code == code)
			return exceptions[i].name;
	return "unknown exception";
}

const char *npu_exception_remedy(uint32_t code)
{
	size_t i;

	for (i = 0; i < COUNT; i++)
		if (exceptions[i].code == code)
			return exceptions[i].remedy;
	return "see dmesg";
}
