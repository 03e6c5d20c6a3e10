/* SPDX-License-Identifier: MIT */
#ifndef NPU_COMPILER_COMPILE_H
#define NPU_COMPILER_COMPILE_H

#include "calibration.h"
#include "options.h"

/* @calibration may be NULL; another model's is refused. */
int compile(const struct options *options,
	    const struct calibration *calibration);

#endif
