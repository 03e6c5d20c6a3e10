/* SPDX-License-Identifier: MIT */
/* Chances as people write them: 0 to 1. Ours are in permille. */
#ifndef NPU_CHANCE_H
#define NPU_CHANCE_H

#include <stdint.h>

/*
 * "0.85": 850. At least 1, as libnpu takes 0 for something else. -EINVAL: no
 * number from 0 to 1.
 */
int npu_chance_parse(const char *text, uint32_t *permille);
/* "0.3,0.7", the lower one first. */
int npu_chances_parse(const char *text, uint32_t *low, uint32_t *high);

#endif
