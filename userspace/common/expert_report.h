/* SPDX-License-Identifier: MIT */
/* How much each expert of a model was used, as a file for npu_compiler. */
#ifndef NPU_EXPERT_REPORT_H
#define NPU_EXPERT_REPORT_H

#include <npu/npu.h>

/*
 * Writes {"model": NAME, "tokens": @tokens, "layers": [{"use": [...]}]} to
 * @path, where it appears at once and whole. 0 or a negative errno.
 */
int npu_expert_report_write(const struct npu_model *model, uint64_t tokens,
			    const char *path);

#endif
