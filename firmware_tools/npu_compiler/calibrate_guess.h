/* SPDX-License-Identifier: MIT */
/* How far a layer's guesses can be trusted. */
#ifndef NPU_COMPILER_CALIBRATE_GUESS_H
#define NPU_COMPILER_CALIBRATE_GUESS_H

#include "util.h"

/* Beyond these a layer's guesses are as good, or as bad, as guesses can be. */
#define GUESS_MIN_SPREAD	(1.0 / 64)
#define GUESS_MAX_SPREAD	64.0
/* Fewer tell nothing. */
#define GUESS_FEW		256
/* More of a layer would make it slower, not better. */
#define GUESS_MANY		(1u << 18)

struct guess {
	float margin;	/* logits that lie between it and the border */
	bool right;	/* the expert was used */
};

struct guesses {
	struct guess *list;
	size_t count, room;
	uint64_t uses;	/* of experts by tokens that were guessed about */
};

/* @chance is what the device gave with @spread. */
void guesses_add(struct guesses *guesses, double chance, double spread,
		 bool right);
void guesses_free(struct guesses *guesses);

/*
 * The spread with which the chances make what happened most likely; @spread
 * where there is too little to go by.
 */
double guesses_fit(const struct guesses *guesses, double spread);

/* Of the guesses whose chance reaches a threshold. */
struct guess_score {
	uint64_t named, right;
	uint64_t uses;		/* there were in all */
};

void guesses_score(const struct guesses *guesses, double spread,
		   double threshold, struct guess_score *score);

#endif
