/* SPDX-License-Identifier: MIT */
#ifndef NPU_COMPILER_INSPECT_H
#define NPU_COMPILER_INSPECT_H

#include "util.h"

/* Prints what a .npu file holds. */
int inspect(const char *path, bool json);

#endif
