/* SPDX-License-Identifier: MIT */
/*
 * What a step leaves in IO about its experts: who worked on each token, and whom
 * the layer before thought likely.
 */
#ifndef NPU_ROUTED_H
#define NPU_ROUTED_H

#include <stdint.h>
#include <npu/npu_format.h>
#include "span.h"

struct npu_routed {
	struct npu_span *io;
	uint64_t ids_offset;		/* 0: the file does not tell */
	uint64_t guess_ids_offset, guess_chances_offset;
	uint32_t top, guesses;		/* of each row */
	uint32_t max_rows;		/* that have room */
	uint32_t rows;			/* of the step */
};

void npu_routed_init(struct npu_routed *routed, struct npu_span *io,
		     const struct npu_runtime *runtime);
/* [rows, top] of a layer; NULL: not known. */
const int32_t *npu_routed_ids(const struct npu_routed *routed, uint32_t layer);
/* [rows, guesses]; NULL: there are none. */
const int32_t *npu_routed_guesses(const struct npu_routed *routed,
				  uint32_t layer, const float **chances);

#endif
