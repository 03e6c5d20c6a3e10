// SPDX-License-Identifier: MIT
#include "calibrate_guess.h"

#include <math.h>
#include <stdlib.h>

/* Halvings of the interval: more than a float holds. */
#define FIT_STEPS	40

static double chance_of(double margin, double spread)
{
	return 1 / (1 + exp(-margin / spread));
}

void guesses_add(struct guesses *guesses, double chance, double spread,
		 bool right)
{
	/* As F32 a chance may be 0 or 1, whose margins have no end. */
	double p = fmin(fmax(chance, 0x1p-100), 1 - 0x1p-25);

	if (guesses->count == guesses->room) {
		guesses->room = guesses->room * 2 + 1024;
		guesses->list = xrealloc(guesses->list, guesses->room,
					 sizeof(*guesses->list));
	}
	guesses->list[guesses->count++] = (struct guess){
		.margin = spread * log(p / (1 - p)),
		.right = right,
	};
}

void guesses_free(struct guesses *guesses)
{
	free(guesses->list);
	*guesses = (struct guesses){ 0 };
}

/* Of the logarithm of the likelihood by 1 / spread: falls as that rises. */
static double slope(const struct guesses *guesses, double spread)
{
	const struct guess *guess = guesses->list;
	double sum = 0;
	size_t i;

	for (i = 0; i < guesses->count; i++)
		sum += guess[i].margin *
		       (guess[i].right - chance_of(guess[i].margin, spread));
	return sum;
}

double guesses_fit(const struct guesses *guesses, double spread)
{
	double low = log(GUESS_MIN_SPREAD), high = log(GUESS_MAX_SPREAD);
	double middle;
	int i;

	if (guesses->count < GUESS_FEW)
		return spread;
	for (i = 0; i < FIT_STEPS; i++) {
		middle = (low + high) / 2;
		if (slope(guesses, exp(middle)) > 0)
			high = middle;
		else
			low = middle;
	}
	return exp((low + high) / 2);
}

void guesses_score(const struct guesses *guesses, double spread,
		   double threshold, struct guess_score *score)
{
	size_t i;

	score->uses += guesses->uses;
	for (i = 0; i < guesses->count; i++)
		if (chance_of(guesses->list[i].margin, spread) >= threshold) {
			score->named++;
			score->right += guesses->list[i].right;
		}
}
