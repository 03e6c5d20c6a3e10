// SPDX-License-Identifier: MIT
/*
 * The small models of tests/golden (the environment variable GOLDEN) against
 * their logits, all positions. Their routers speak clearly, so no rounding
 * makes another expert run, and differences stay small.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../tap.h"
#include "trial.h"

static const char *const models[] = {
	"llama", "qwen2", "qwen3", "qwen3moe", "qwen2moe", "mixtral",
};

/* What rounding of the activations to F16, or to Q8_0, makes of logits. */
static const struct format {
	const char *quantize;
	double kl;		/* mean, at most */
	double max_abs;		/* at most, in deviations of the logits */
} formats[] = {
	{ "fp16", 1e-4, 0.01 },
	{ "int8", 2e-2, 0.2 },
	{ "int4", 2e-2, 0.2 },
};

static char *path_of(const char *model, const char *name)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s/%s/%s", getenv("GOLDEN"), model,
		 name);
	return path;
}

static void check_format(const char *model, const struct format *format,
			 const struct npy *tokens)
{
	const struct runner_options options = {
		.board.router_policy = M6NPU_ROUTER_LRU,
	};
	const struct trial_plan plan = { .tile = 16 };
	struct trial_difference d;
	struct npy expected;
	char name[64];
	double limit;
	float *logits;

	snprintf(name, sizeof(name), "logits-%s.npy", format->quantize);
	if (!ok(npy_read(path_of(model, name), &expected), "%s: %s", model,
		name))
		return;
	logits = trial_logits(trial_compile(path_of(model, ""),
					    format->quantize),
			      &options, &plan, tokens, NULL);
	limit = format->max_abs * npy_deviation(&expected);
	d = trial_compare(logits, expected.data, tokens->count,
			  expected.shape[2], 2 * limit);
	ok(d.kl <= format->kl && d.max_abs <= limit,
	   "%s %s: max difference %.4f of %.4f, KL median %.2g, mean %.2g",
	   model, format->quantize, d.max_abs, limit, d.median_kl, d.kl);
	ok(!d.flips, "%s %s: the best tokens are the same", model,
	   format->quantize);
	free(expected.data);
	free(logits);
}

int main(void)
{
	struct npy tokens;
	size_t i, j;

	if (!getenv("GOLDEN"))
		return ok(false, "GOLDEN names the folder of models"), done();
	for (i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		if (!ok(npy_read(path_of(models[i], "tokens.npy"), &tokens),
			"%s is there", models[i]))
			continue;
		for (j = 0; j < sizeof(formats) / sizeof(formats[0]); j++)
			check_format(models[i], &formats[j], &tokens);
		free(tokens.data);
	}
	return done();
}
