/* SPDX-License-Identifier: MIT */
#ifndef NPU_COMPILER_COMPILE_H
#define NPU_COMPILER_COMPILE_H

#include "options.h"

int compile(const struct options *options);

#endif
