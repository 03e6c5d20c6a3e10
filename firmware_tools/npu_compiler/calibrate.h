/* SPDX-License-Identifier: MIT */
/* Compiles a model by what it does, measured first or told. */
#ifndef NPU_COMPILER_CALIBRATE_H
#define NPU_COMPILER_CALIBRATE_H

#include "options.h"

/* Compiles by --calibrate, by --calibration, or without either. */
int calibrate_and_compile(const struct options *options);

#endif
