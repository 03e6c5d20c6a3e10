/* SPDX-License-Identifier: MIT */
/* Sizes as people write and read them. */
#ifndef NPU_SIZE_H
#define NPU_SIZE_H

#include <stdint.h>

struct npu_size {
	char text[24];
};

/* "1.50 GiB" */
struct npu_size npu_size(uint64_t bytes);
/* "24G", "512M", "4096": bytes, or -EINVAL. K, M, G and T are powers of 1024. */
int npu_size_parse(const char *text, uint64_t *bytes);

#endif
