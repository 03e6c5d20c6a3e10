// SPDX-License-Identifier: MIT
#include "sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
	int32_t token;
	float logit;
};

struct sampler {
	struct sampling sampling;
	uint32_t vocab;
	uint64_t state;
	uint32_t *counts;	/* of generated tokens; NULL without penalties */
	struct candidate *candidates;
	double *weights;
};

struct sampler *sampler_create(const struct sampling *sampling, uint32_t vocab)
{
	struct sampler *sampler = calloc(1, sizeof(*sampler));

	if (!sampler)
		return NULL;
	sampler->sampling = *sampling;
	sampler->vocab = vocab;
	sampler->state = sampling->seed;
	sampler->candidates = calloc(vocab, sizeof(*sampler->candidates));
	sampler->weights = calloc(vocab, sizeof(*sampler->weights));
	if (sampling->presence_penalty != 0 || sampling->frequency_penalty != 0)
		sampler->counts = calloc(vocab, sizeof(*sampler->counts));
	if (!sampler->candidates || !sampler->weights ||
	    (!sampler->counts && (sampling->presence_penalty != 0 ||
				  sampling->frequency_penalty != 0))) {
		sampler_destroy(sampler);
		return NULL;
	}
	return sampler;
}

void sampler_destroy(struct sampler *sampler)
{
	if (!sampler)
		return;
	free(sampler->candidates);
	free(sampler->weights);
	free(sampler->counts);
	free(sampler);
}

/* SplitMix64 (Steele, Lea, Flood 2014): any seed is a good one. */
static uint64_t next_random(struct sampler *sampler)
{
	uint64_t z = sampler->state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static int by_logit(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->logit != y->logit)
		return x->logit < y->logit ? 1 : -1;
	return (x->token > y->token) - (x->token < y->token);
}

static float penalized(const struct sampler *sampler, const float *logits,
		       uint32_t token)
{
	float logit = logits[token];
	uint32_t count = sampler->counts ? sampler->counts[token] : 0;

	if (count)
		logit -= sampler->sampling.presence_penalty +
			 sampler->sampling.frequency_penalty * (float)count;
	return isnan(logit) ? -INFINITY : logit;
}

static int32_t greedy(const struct sampler *sampler, const float *logits)
{
	uint32_t best = 0;
	float best_logit = penalized(sampler, logits, 0);

	for (uint32_t i = 1; i < sampler->vocab; i++) {
		float logit = penalized(sampler, logits, i);

		if (logit > best_logit) {
			best = i;
			best_logit = logit;
		}
	}
	return (int32_t)best;
}

/* How many of the sorted candidates top-k, top-p and min-p leave, at least 1. */
static uint32_t truncate_candidates(struct sampler *sampler)
{
	const struct sampling *s = &sampler->sampling;
	const struct candidate *c = sampler->candidates;
	uint32_t count = sampler->vocab;
	double sum = 0, seen = 0;
	uint32_t kept;

	if (s->top_k && s->top_k < count)
		count = s->top_k;
	for (uint32_t i = 0; i < count; i++) {
		sampler->weights[i] = exp((double)c[i].logit - c[0].logit);
		sum += sampler->weights[i];
	}
	for (kept = 0; kept < count; kept++) {
		if (kept && (seen >= (double)s->top_p * sum ||
			     sampler->weights[kept] < (double)s->min_p))
			break;
		seen += sampler->weights[kept];
	}
	return kept;
}

static int32_t draw(struct sampler *sampler, uint32_t count)
{
	const struct candidate *c = sampler->candidates;
	double inverse = 1.0 / (double)sampler->sampling.temperature;
	double sum = 0, at;

	for (uint32_t i = 0; i < count; i++) {
		sampler->weights[i] =
			exp(((double)c[i].logit - c[0].logit) * inverse);
		sum += sampler->weights[i];
	}
	at = (double)(next_random(sampler) >> 11) * 0x1.0p-53 * sum;
	for (uint32_t i = 0; i < count; i++) {
		at -= sampler->weights[i];
		if (at < 0)
			return c[i].token;
	}
	return c[0].token;
}

int32_t sampler_next(struct sampler *sampler, const float *logits)
{
	int32_t token;

	if (sampler->sampling.temperature <= 0) {
		token = greedy(sampler, logits);
	} else {
		for (uint32_t i = 0; i < sampler->vocab; i++) {
			sampler->candidates[i].token = (int32_t)i;
			sampler->candidates[i].logit =
				penalized(sampler, logits, i);
		}
		qsort(sampler->candidates, sampler->vocab,
		      sizeof(*sampler->candidates), by_logit);
		/* Nothing finite to draw from. */
		if (isinf(sampler->candidates[0].logit))
			token = sampler->candidates[0].token;
		else
			token = draw(sampler, truncate_candidates(sampler));
	}
	if (sampler->counts)
		sampler->counts[token]++;
	return token;
}

float logits_logprob(const float *logits, uint32_t vocab, int32_t token)
{
	double sum = 0;
	float most = logits[0];

	for (uint32_t i = 1; i < vocab; i++)
		most = fmaxf(most, logits[i]);
	for (uint32_t i = 0; i < vocab; i++)
		sum += exp((double)logits[i] - most);
	return (float)((double)logits[token] - most - log(sum));
}
