/* SPDX-License-Identifier: MIT */
/* Chooses the next token from logits. */
#ifndef NPU_SERVER_SAMPLER_H
#define NPU_SERVER_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

struct sampling {
	float temperature;	/* 0: greedy */
	float top_p;		/* 1: off */
	float min_p;		/* 0: off */
	uint32_t top_k;		/* 0: off */
	float presence_penalty;
	float frequency_penalty;
	uint64_t seed;
};

struct sampler;

/* NULL: out of memory. */
struct sampler *sampler_create(const struct sampling *sampling, uint32_t vocab);
void sampler_destroy(struct sampler *sampler);

/*
 * The next token; the same seed and logits give the same tokens on every
 * machine. Greedy takes the lowest index of equal logits. Order as in
 * llama.cpp: penalties, top-k, top-p, min-p, temperature.
 */
int32_t sampler_next(struct sampler *sampler, const float *logits);

/* log(softmax(logits)[token]) */
float logits_logprob(const float *logits, uint32_t vocab, int32_t token);

#endif
