/* SPDX-License-Identifier: MIT */
#ifndef NPU_COMPILER_VERIFY_H
#define NPU_COMPILER_VERIFY_H

#include "util.h"

/* Checks every byte of a .npu file, and its commands against its regions. */
int verify(const char *path, bool progress);

#endif
