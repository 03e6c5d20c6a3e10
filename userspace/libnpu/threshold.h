/* SPDX-License-Identifier: MIT */
/*
 * How likely an expert has to be to be read ahead. No device code.
 */
#ifndef NPU_THRESHOLD_H
#define NPU_THRESHOLD_H

#include <stdint.h>

struct npu_threshold {
	uint32_t low, high;	/* permille; equal ones: it stays */
	double permille;
};

/* Stays at @permille, or moves between @low and @high if these are not 0. */
void npu_threshold_init(struct npu_threshold *threshold, uint32_t permille,
			uint32_t low, uint32_t high);
/*
 * A step has ended. @wasted: experts that were read ahead for it in vain;
 * @missed: those it waited for although they had been guessed, but not likely
 * enough.
 */
void npu_threshold_step(struct npu_threshold *threshold, uint32_t wasted,
			uint32_t missed);
uint32_t npu_threshold_permille(const struct npu_threshold *threshold);

#endif
