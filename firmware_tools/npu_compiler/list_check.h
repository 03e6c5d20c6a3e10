/* SPDX-License-Identifier: MIT */
/* What the commands of a list have to do with each other. */
#ifndef NPU_COMPILER_LIST_CHECK_H
#define NPU_COMPILER_LIST_CHECK_H

#include "m6npu_regs.h"
#include "static_part.h"

struct command_array {
	const struct m6npu_cmd *cmds;	/* each good for itself */
	size_t count;
	const struct npu_runtime *runtime;
};

/* The part of the weights region that lists of members lie in; 0: none. */
void list_members(const struct command_array *list, uint64_t *begin,
		  uint64_t *end);
/*
 * Does every layer work with all of its experts, once, and leave in IO whom it
 * chose? @members has what list_members() says. Stores which command fails.
 */
int list_check(const struct command_array *list,
	       const struct static_part *members, size_t *at);

#endif
