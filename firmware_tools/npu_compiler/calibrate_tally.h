/* SPDX-License-Identifier: MIT */
/* Which experts tokens were routed to, and which had been guessed. */
#ifndef NPU_COMPILER_CALIBRATE_TALLY_H
#define NPU_COMPILER_CALIBRATE_TALLY_H

#include "calibrate_guess.h"
#include "calibration.h"

struct tally_layer {
	uint64_t *use;		/* tokens that chose each expert */
	uint32_t *together;	/* [experts, experts]: tokens that chose both */
	struct guesses guesses;
};

struct tally {
	uint32_t layers, experts;
	uint32_t chosen;	/* experts a token */
	uint32_t guessed;	/* by the layer before, 0: nobody guesses */
	uint64_t tokens;
	struct tally_layer *layer;
	bool *marked;		/* [experts], of the token looked at */
};

/* What one layer did with one token. */
struct tally_choice {
	const int32_t *ids;		/* [chosen] */
	const int32_t *guess_ids;	/* [guessed], NULL: no guess */
	const float *guess_chances;
};

void tally_init(struct tally *tally, uint32_t layers, uint32_t experts,
		  uint32_t chosen, uint32_t guessed);
void tally_free(struct tally *tally);

/* -1: an id that no expert has. */
int tally_add(struct tally *tally, uint32_t layer,
		const struct tally_choice *choice);

/* What a compiler wants to know of it. For calibration_free(). */
void tally_summarize(const struct tally *tally,
		       struct calibration *calibration);

#endif
