// SPDX-License-Identifier: MIT
/* Draws follow the distribution that the parameters describe. */
#include <math.h>
#include <string.h>

#include "../tap.h"
#include "sampler.h"

#define VOCAB 8
#define DRAWS 40000

static const float logits[VOCAB] = { 0, 1, 2, 3, 1.5f, -1, 2.5f, -4 };

static void draw(struct sampling sampling, double *share)
{
	struct sampler *sampler;

	sampling.seed = 7;
	sampler = sampler_create(&sampling, VOCAB);
	memset(share, 0, VOCAB * sizeof(*share));
	for (int i = 0; i < DRAWS; i++)
		share[sampler_next(sampler, logits)] += 1.0 / DRAWS;
	sampler_destroy(sampler);
}

/* softmax(logits / temperature) over the tokens of @mask */
static void expected(double temperature, unsigned int mask, double *share)
{
	double sum = 0;

	for (int i = 0; i < VOCAB; i++) {
		share[i] = mask >> i & 1 ? exp(logits[i] / temperature) : 0;
		sum += share[i];
	}
	for (int i = 0; i < VOCAB; i++)
		share[i] /= sum;
}

static bool close_to(const double *a, const double *b)
{
	for (int i = 0; i < VOCAB; i++)
		/* Five standard deviations of a share of one half. */
		if (fabs(a[i] - b[i]) > 5 * 0.5 / sqrt(DRAWS) ||
		    (b[i] == 0 && a[i] != 0))
			return false;
	return true;
}

static void test_distributions(void)
{
	/* Descending: 3, 6, 2, 4, 1, 0, 5, 7. */
	static const struct {
		const char *name;
		struct sampling sampling;
		unsigned int mask;
	} cases[] = {
		{ "temperature 1", { .temperature = 1, .top_p = 1 }, 0xff },
		{ "temperature 0.5", { .temperature = 0.5f, .top_p = 1 }, 0xff },
		{ "top-k 3", { .temperature = 1, .top_p = 1, .top_k = 3 }, 0x4c },
		{ "top-k 1", { .temperature = 2, .top_p = 1, .top_k = 1 }, 0x08 },
		/* shares .42 .26 .16 .094 ...: two reach 0.6, three don't need to */
		{ "top-p 0.6", { .temperature = 1, .top_p = 0.6f }, 0x48 },
		{ "top-p 0", { .temperature = 1, .top_p = 0 }, 0x08 },
		/* relative to the best: 1, .61, .37, .22, .14 */
		{ "min-p 0.2", { .temperature = 1, .top_p = 1, .min_p = 0.2f },
		  0x5c },
	};
	double got[VOCAB], want[VOCAB];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		draw(cases[i].sampling, got);
		expected((double)cases[i].sampling.temperature, cases[i].mask,
			 want);
		ok(close_to(got, want), "%s", cases[i].name);
	}
}

static void test_greedy(void)
{
	static const float ties[VOCAB] = { 1, 5, 5, NAN, 5, 0, 0, 0 };
	static const float nothing[VOCAB] = { NAN, NAN, NAN, NAN,
					      NAN, NAN, NAN, NAN };
	struct sampling sampling = { .temperature = 0, .top_p = 1 };
	struct sampler *sampler = sampler_create(&sampling, VOCAB);

	ok(sampler_next(sampler, logits) == 3, "greedy takes the best");
	ok(sampler_next(sampler, ties) == 1, "the lowest of equals");
	ok(sampler_next(sampler, nothing) == 0, "NaN gives a token all the same");
	sampler_destroy(sampler);
	sampling.temperature = 1;
	sampler = sampler_create(&sampling, VOCAB);
	ok((unsigned int)sampler_next(sampler, nothing) < VOCAB,
	   "and when drawing too");
	sampler_destroy(sampler);
}

static void test_penalties(void)
{
	struct sampling sampling = { .top_p = 1, .presence_penalty = 0.6f };
	struct sampler *sampler = sampler_create(&sampling, VOCAB);

	ok(sampler_next(sampler, logits) == 3 &&
	   sampler_next(sampler, logits) == 6 &&
	   sampler_next(sampler, logits) == 3,
	   "a presence penalty counts once");
	sampler_destroy(sampler);
	sampling = (struct sampling){ .top_p = 1, .frequency_penalty = 0.4f };
	sampler = sampler_create(&sampling, VOCAB);
	/* 3 at 3.0, 2.6, 2.2; 6 at 2.5, 2.1; 2 at 2.0 */
	ok(sampler_next(sampler, logits) == 3 &&
	   sampler_next(sampler, logits) == 3 &&
	   sampler_next(sampler, logits) == 6 &&
	   sampler_next(sampler, logits) == 3,
	   "a frequency penalty counts each time");
	sampler_destroy(sampler);
}

static void test_logprob(void)
{
	double share[VOCAB];
	bool same = true;

	expected(1, 0xff, share);
	for (int i = 0; i < VOCAB; i++)
		same = same && fabs(exp(logits_logprob(logits, VOCAB, i)) -
				    share[i]) < 1e-6;
	ok(same, "log probabilities are the softmax's");
}

int main(void)
{
	test_distributions();
	test_greedy();
	test_penalties();
	test_logprob();
	return done();
}
