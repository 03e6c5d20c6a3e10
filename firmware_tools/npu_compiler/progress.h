/* SPDX-License-Identifier: MIT */
/* How far long work is, on stderr. */
#ifndef NPU_COMPILER_PROGRESS_H
#define NPU_COMPILER_PROGRESS_H

#include "util.h"

/* Shows something if stderr is a terminal, or if @always. */
void progress_begin(const char *what, uint64_t total, bool always);
void progress_add(uint64_t amount);
void progress_end(void);

#endif
