/* SPDX-License-Identifier: MIT */
/* How a model's experts are used, for people. */
#ifndef NPU_COMPILER_CALIBRATE_REPORT_H
#define NPU_COMPILER_CALIBRATE_REPORT_H

#include <yyjson.h>

#include "calibration.h"

/* Adds "calibration" to @root, an object of @doc. */
void calibrate_report_add(yyjson_mut_doc *doc, yyjson_mut_val *root,
			  const struct calibration *calibration);
/* The same tree as text; NULL prints nothing. */
void calibrate_report_print(yyjson_mut_val *report);

#endif
