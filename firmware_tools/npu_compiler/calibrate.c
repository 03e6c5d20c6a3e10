// SPDX-License-Identifier: MIT
#include "calibrate.h"

#include <stdlib.h>
#include <unistd.h>

#include "calibrate_prompts.h"
#include "calibrate_tally.h"
#include "calibrate_run.h"
#include "compile.h"
#include "temporary.h"
#include "writer.h"

#define MAX_REPORT_BYTES	(256u << 20)

/* Chances from which on a guess may be worth a read. */
static const double thresholds[] = { 0.85, 0.95 };

/* For free(). */
static char *describe(const struct guess_score *score)
{
	if (!score->named)
		return xstrdup("none");
	return xasprintf("%.1f %% right, %.1f %% of what was used",
			 100.0 * score->right / score->named,
			 100.0 * score->right / score->uses);
}

static void tell_score(const struct tally *tally,
		       const struct calibration *calibration, double threshold)
{
	struct guess_score before = { 0 }, after = { 0 };
	const struct guesses *guesses;
	char *then, *now;
	uint32_t layer;

	for (layer = 0; layer < tally->layers; layer++) {
		guesses = &tally->layer[layer].guesses;
		guesses_score(guesses, CALIBRATION_SPREAD, threshold, &before);
		guesses_score(guesses, calibration->layer[layer].spread,
			      threshold, &after);
	}
	then = describe(&before);
	now = describe(&after);
	note("guesses with a chance of %.2f or more: %s; uncalibrated %s",
	     threshold, now, then);
	free(then);
	free(now);
}

/* The model as it is without, to be watched. */
static int compile_trial(const struct options *options, const char *path)
{
	struct options trial = *options;

	trial.output = path;
	trial.encoding = NPU_ENCODING_RAW;
	return compile(&trial, NULL);
}

static int measure(const struct options *options, const char *path,
		   const struct prompts *prompts,
		   struct calibration *calibration)
{
	const struct calibrate_run run = {
		.path = path,
		.prompts_path = options->calibrate,
		.max_tokens = options->calibrate_tokens,
		.threads = options->threads,
		.progress = options->progress,
	};
	struct tally tally;
	size_t i;
	int ret;

	ret = compile_trial(options, path);
	if (ret)
		return ret;
	ret = calibrate_run(&run, prompts, &tally);
	if (!ret) {
		tally_summarize(&tally, calibration);
		note("calibrated by %llu tokens",
		     (unsigned long long)tally.tokens);
		for (i = 0; tally.guessed && i < ARRAY_SIZE(thresholds); i++)
			tell_score(&tally, calibration, thresholds[i]);
	}
	tally_free(&tally);
	return ret;
}

static int compile_measured(const struct options *options)
{
	struct calibration calibration;
	struct prompts prompts;
	char *path = NULL;
	int fd, ret;

	if (writer_check(options->output) ||
	    prompts_read(options->calibrate, &prompts))
		return -1;
	fd = temporary_open(options->output, &path);
	ret = fd < 0 ? -1 : measure(options, path, &prompts, &calibration);
	if (fd >= 0)
		close(fd);
	temporary_remove(path);
	prompts_free(&prompts);
	if (ret)
		return ret;
	/* They were said about the trial already. */
	notes_end();
	ret = compile(options, &calibration);
	calibration_free(&calibration);
	return ret;
}

static int compile_by_report(const struct options *options)
{
	struct calibration calibration;
	size_t bytes;
	char *text;
	int ret;

	if (read_file(options->calibration, MAX_REPORT_BYTES, &text, &bytes))
		return -1;
	ret = calibration_read(text, bytes, options->calibration, &calibration);
	free(text);
	if (ret)
		return ret;
	if (!calibration.tokens)
		ret = fail("%s counts no tokens: let the server answer something first",
			   options->calibration);
	else
		ret = compile(options, &calibration);
	calibration_free(&calibration);
	return ret;
}

int calibrate_and_compile(const struct options *options)
{
	if (options->calibrate)
		return compile_measured(options);
	if (options->calibration)
		return compile_by_report(options);
	return compile(options, NULL);
}
