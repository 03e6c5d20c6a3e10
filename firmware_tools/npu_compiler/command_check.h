/* SPDX-License-Identifier: MIT */
/* What the device would check of a model's commands, before it has to. */
#ifndef NPU_COMPILER_COMMAND_CHECK_H
#define NPU_COMPILER_COMMAND_CHECK_H

#include <npu/npu_format.h>

#include "m6npu_regs.h"
#include "util.h"

/* "GEMM"; "?" for none that a model may hold. */
const char *command_name(uint8_t opcode);

/* With all @tile rows live, does @cmd stay within the regions? */
int command_check(const struct m6npu_cmd *cmd, uint32_t tile,
		  const struct npu_runtime *runtime);

/* Of an expert of MOE_FFN's shape, matrices of @type; 0: there can be none. */
uint64_t command_expert_bytes(const struct m6npu_cmd *cmd,
			      const uint8_t type[3]);

#endif
