/* SPDX-License-Identifier: MIT */
#ifndef NPU_COMPILER_SAFETENSORS_H
#define NPU_COMPILER_SAFETENSORS_H

#include "tensors.h"

/*
 * Adds the tensors of a Hugging Face folder: model.safetensors, or the files
 * that model.safetensors.index.json names.
 */
int safetensors_open_folder(const char *folder, struct tensor_set *set);

#endif
