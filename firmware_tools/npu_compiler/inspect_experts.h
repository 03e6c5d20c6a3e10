/* SPDX-License-Identifier: MIT */
/* How a file's commands go through its experts. */
#ifndef NPU_COMPILER_INSPECT_EXPERTS_H
#define NPU_COMPILER_INSPECT_EXPERTS_H

#include <yyjson.h>

#include "npu_file.h"

/* Adds "experts" to @root, an object of @doc, if the model has any. */
int inspect_experts_add(yyjson_mut_doc *doc, yyjson_mut_val *root,
			struct npu_file *file);
/* The same tree as text; NULL prints nothing. */
void inspect_experts_print(yyjson_mut_val *experts);

#endif
