/* SPDX-License-Identifier: MIT */
/* Sparse layers: routing, guesses about later ones, tiers of experts. */
#ifndef NPU_COMPILER_EXPERTS_H
#define NPU_COMPILER_EXPERTS_H

#include "model.h"

/* Once all layers are planned: what the commands below go by. */
int experts_plan(struct model *model);
/* Places in IO for what routers and guesses say. */
void experts_plan_io(struct npu_runtime *runtime, uint64_t *bytes);

/* dst += experts(src), of layer @index; @dst is what the layer before left. */
void experts_emit(const struct model *model, uint32_t index,
		  struct command_list *list, struct activation dst,
		  struct activation src);

#endif
