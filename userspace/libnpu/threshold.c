// SPDX-License-Identifier: MIT
/*
 * The threshold for reading ahead, which moves as reading does good.
 *
 * An expert that nobody needed raises it, one that was waited for lowers it. Free
 * places are few: a read in vain takes one from several guesses that would have
 * come true, and so moves it further.
 */
#include "threshold.h"

/* Permille for each expert, and in one step at most. */
#define WASTED_PERMILLE	16.0
#define MISSED_PERMILLE	8.0
#define MOST_PERMILLE	50.0

static double clamp(double x, double low, double high)
{
	return x < low ? low : x > high ? high : x;
}

void npu_threshold_init(struct npu_threshold *t, uint32_t permille,
			uint32_t low, uint32_t high)
{
	*t = (struct npu_threshold){ low, high, permille };
	if (!low || !high)
		t->low = t->high = permille;
	t->permille = clamp(t->permille, t->low, t->high);
}

void npu_threshold_step(struct npu_threshold *t, uint32_t wasted,
			uint32_t missed)
{
	double by = wasted * WASTED_PERMILLE - missed * MISSED_PERMILLE;

	t->permille = clamp(t->permille +
				    clamp(by, -MOST_PERMILLE, MOST_PERMILLE),
			    t->low, t->high);
}

uint32_t npu_threshold_permille(const struct npu_threshold *t)
{
	return (uint32_t)(t->permille + 0.5);
}
