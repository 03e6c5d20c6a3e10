/* SPDX-License-Identifier: MIT */
#ifndef BOARD_H
#define BOARD_H

#include <npu/npu.h>
#include "../unit/tap.h"

/* ok() for what should work: says why it did not. */
#define fine(condition, ...)						\
	(ok(condition, __VA_ARGS__) ||					\
	 (printf("# %s\n", npu_error()), false))

#endif
