// SPDX-License-Identifier: MIT
/* What is made of routing that is known. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yyjson.h>

#include "../tap.h"
#include "calibrate_guess.h"
#include "calibrate_prompts.h"
#include "calibrate_report.h"
#include "calibrate_tally.h"

#define GUESSES	20000

static double uniform(void)
{
	return (rand() + 0.5) / (RAND_MAX + 1.0);
}

static double chance_of(double margin, double spread)
{
	return 1 / (1 + exp(-margin / spread));
}

/* Experts lie up to @reach logits from the border; what comes true is random. */
static void guess_at(struct guesses *guesses, double spread, double reach)
{
	double margin;
	int i;

	for (i = 0; i < GUESSES; i++) {
		margin = (2 * uniform() - 1) * reach;
		guesses_add(guesses, chance_of(margin, CALIBRATION_SPREAD),
			    CALIBRATION_SPREAD,
			    uniform() < chance_of(margin, spread));
	}
	guesses->uses = GUESSES / 2;
}

static void test_fit(void)
{
	static const double spreads[] = { 0.1, 0.4, 1, 3, 5 };
	struct guesses guesses;
	double got;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(spreads); i++) {
		guesses = (struct guesses){ 0 };
		srand(1 + i);
		guess_at(&guesses, spreads[i], 3 * spreads[i]);
		got = guesses_fit(&guesses, CALIBRATION_SPREAD);
		ok(fabs(got / spreads[i] - 1) < 0.05,
		   "guesses that are off by %g: %g", spreads[i], got);
		ok(got == guesses_fit(&guesses, 17), "and the same again");
		guesses_free(&guesses);
	}
}

static void test_fit_ends(void)
{
	struct guesses right = { 0 }, wrong = { 0 }, few = { 0 };
	double chance;
	int i;

	for (i = 0; i < 1000; i++) {
		/* Also 0 and 1, which F32 makes of margins that are large. */
		chance = i / 999.0;
		guesses_add(&right, chance, 1, chance > 0.5);
		guesses_add(&wrong, chance, 1, chance < 0.5);
	}
	for (i = 0; i < GUESS_FEW - 1; i++)
		guesses_add(&few, 0.9, 1, true);
	ok(fabs(guesses_fit(&right, 1) / GUESS_MIN_SPREAD - 1) < 1e-6,
	   "always right: the least spread");
	ok(fabs(guesses_fit(&wrong, 1) / GUESS_MAX_SPREAD - 1) < 1e-6,
	   "always wrong: the largest");
	ok(guesses_fit(&few, 2.5) == 2.5, "too few: as it was");
	guesses_free(&right);
	guesses_free(&wrong);
	guesses_free(&few);
}

static void test_score(void)
{
	struct guess_score score = { 0 };
	struct guesses guesses = { .uses = 5 };

	guesses_add(&guesses, 0.99, 1, true);
	guesses_add(&guesses, 0.9, 1, false);
	guesses_add(&guesses, 0.9, 1, true);
	guesses_add(&guesses, 0.6, 1, true);
	guesses_score(&guesses, 1, 0.85, &score);
	ok(score.named == 3 && score.right == 2 && score.uses == 5,
	   "three of four reach 0.85, two come true");
	score = (struct guess_score){ 0 };
	/* 0.9 with half the spread is 0.81 / (0.81 + 0.01). */
	guesses_score(&guesses, 0.5, 0.98, &score);
	ok(score.named == 3 && score.right == 2, "half the spread: surer");
	score = (struct guess_score){ 0 };
	guesses_score(&guesses, 2, 0.85, &score);
	ok(score.named == 1 && score.right == 1, "twice: less sure");
	guesses_free(&guesses);
}

static const int32_t choices[][2] = {
	{ 0, 3 }, { 3, 0 }, { 4, 1 }, { 1, 2 }, { 3, 1 }, { 0, 3 },
};

static void tally_choices(struct tally *tally)
{
	static const int32_t guess_ids[] = { 3, 4, 5 };
	static const float chances[] = { 0.9f, 0.5f, 0.1f };
	struct tally_choice choice = {
		.guess_ids = guess_ids,
		.guess_chances = chances,
	};
	size_t i;

	tally_init(tally, 2, 6, 2, 3);
	for (i = 0; i < ARRAY_SIZE(choices); i++) {
		choice.ids = choices[i];
		tally_add(tally, 1, &choice);
		tally->tokens++;
	}
}

static void test_tally(void)
{
	static const uint64_t uses[] = { 3, 3, 1, 4, 1, 0 };
	static const struct calibration_pair pairs[] = {
		{ { 0, 3 }, 3 }, { { 1, 2 }, 1 }, { { 1, 3 }, 1 },
		{ { 1, 4 }, 1 },
	};
	struct guess_score score = { 0 };
	struct calibration calibration;
	struct calibration_layer *layer;
	struct tally tally;
	bool same = true;
	size_t i;

	tally_choices(&tally);
	tally_summarize(&tally, &calibration);
	layer = &calibration.layer[1];
	ok(calibration.tokens == 6 && calibration.layers == 2 &&
	   calibration.experts == 6, "tokens, layers, experts");
	ok(!memcmp(layer->use, uses, sizeof(uses)), "uses of each expert");
	for (i = 0; i < ARRAY_SIZE(pairs) && i < layer->pairs; i++)
		same &= layer->together[i].expert[0] == pairs[i].expert[0] &&
			layer->together[i].expert[1] == pairs[i].expert[1] &&
			layer->together[i].tokens == pairs[i].tokens;
	ok(layer->pairs == ARRAY_SIZE(pairs) && same,
	   "pairs, the most frequent first");
	guesses_score(&tally.layer[1].guesses, 1, 0.4, &score);
	ok(score.uses == 12 && score.named == 12 && score.right == 5,
	   "guesses of 3 and 4: %llu of 12 come true",
	   (unsigned long long)score.right);
	ok(!calibration.layer[0].pairs && !calibration.layer[0].use[3] &&
	   calibration.layer[0].spread == CALIBRATION_SPREAD,
	   "and nothing in the other layer");
	calibration_free(&calibration);
	tally_free(&tally);
}

static void test_tally_refuses(void)
{
	static const int32_t beyond[] = { 1, 6 }, below[] = { -1, 1 };
	struct tally_choice choice = { .ids = beyond };
	struct tally tally;

	tally_init(&tally, 1, 6, 2, 0);
	ok(tally_add(&tally, 0, &choice) &&
	   strstr(fail_message(), "expert 6 of 6"), "an expert beyond the last");
	choice.ids = below;
	ok(tally_add(&tally, 0, &choice), "and one before the first");
	tally_free(&tally);
}

static void test_many_pairs(void)
{
	struct calibration calibration;
	struct tally_choice choice;
	struct tally tally;
	int32_t ids[32];
	int i;

	for (i = 0; i < 32; i++)
		ids[i] = i;
	choice = (struct tally_choice){ .ids = ids };
	tally_init(&tally, 1, 32, 32, 0);
	tally_add(&tally, 0, &choice);
	tally.tokens = 1;
	tally_summarize(&tally, &calibration);
	ok(calibration.layer[0].pairs == CALIBRATION_MAX_PAIRS,
	   "of 496 pairs 64 are kept");
	calibration_free(&calibration);
	tally_free(&tally);
}

static double real_at(yyjson_mut_val *object, const char *pointer)
{
	return yyjson_mut_get_real(yyjson_mut_ptr_get(object, pointer));
}

static uint64_t uint_at(yyjson_mut_val *object, const char *pointer)
{
	return yyjson_mut_get_uint(yyjson_mut_ptr_get(object, pointer));
}

static void test_report(void)
{
	yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
	yyjson_mut_val *root = yyjson_mut_obj(doc);
	struct calibration calibration;
	uint32_t i;
	char *text;

	yyjson_mut_doc_set_root(doc, root);
	calibration_init(&calibration, 2, 8);
	calibration.tokens = 1000;
	for (i = 0; i < 4; i++)
		calibration.layer[0].use[i] = 500;
	calibration.layer[1].use[5] = 990;
	calibration.layer[1].use[2] = 1000;
	calibration.layer[1].use[7] = 10;
	calibration.layer[1].pairs = 2;
	calibration.layer[1].together[0] =
		(struct calibration_pair){ { 2, 5 }, 990 };
	/* No compiler counts that; a file may say so. */
	calibration.layer[1].together[1] =
		(struct calibration_pair){ { 0, 1 }, 7 };
	calibrate_report_add(doc, root, &calibration);
	ok(fabs(real_at(root, "/calibration/layers/0/effective_experts") - 4) <
	   1e-3, "four used alike are four");
	ok(uint_at(root, "/calibration/layers/0/used_often") == 4 &&
	   uint_at(root, "/calibration/layers/0/never_used/0") == 4,
	   "four used often, the fifth never");
	ok(uint_at(root, "/calibration/layers/1/used_often") == 2,
	   "1 %% is not over 1 %%");
	ok(uint_at(root, "/calibration/layers/1/most_used/0/expert") == 2 &&
	   real_at(root, "/calibration/layers/1/most_used/1/share") == 0.99 &&
	   !yyjson_mut_ptr_get(root, "/calibration/layers/1/most_used/3"),
	   "the most used first, unused ones not at all");
	ok(real_at(root, "/calibration/layers/1/together/0/of_chance") == 1,
	   "who is always there meets everybody");
	text = yyjson_mut_write(doc, 0, NULL);
	ok(text, "numbers that JSON has");
	free(text);
	calibration_free(&calibration);
	yyjson_mut_doc_free(doc);
}

static char path[] = "/tmp/m6-prompts-XXXXXX";

static int read_prompts(const char *text, size_t bytes,
			struct prompts *prompts)
{
	FILE *file = fopen(path, "w");
	bool written = file && fwrite(text, 1, bytes, file) == bytes;

	if (file && fclose(file))
		written = false;
	if (!written) {
		printf("Bail out! cannot write %s\n", path);
		exit(1);
	}
	return prompts_read(path, prompts);
}

static void test_prompts(void)
{
	static const char text[] =
		"\xef\xbb\xbfWho are you?\r\n\n \t\r\nHow hot? \xc2\xb0\nlast";
	struct prompts prompts;

	if (!ok(!read_prompts(text, sizeof(text) - 1, &prompts) &&
		prompts.count == 3, "three prompts"))
		return;
	ok(!strcmp(prompts.list[0].text, "Who are you?"),
	   "without byte order mark and carriage return");
	ok(!strcmp(prompts.list[1].text, "How hot? \xc2\xb0") &&
	   prompts.list[1].line == 4, "blank lines count and are left out");
	ok(!strcmp(prompts.list[2].text, "last"), "no newline at the end");
	prompts_free(&prompts);
}

static void test_prompts_refused(void)
{
	static const struct {
		const char *name, *text, *message;
		size_t bytes;
	} cases[] = {
		{ "no UTF-8", "good\nba\xff\n", "line 2: byte 3 is not", 9 },
		{ "half a character", "ok \xe2\x82\nx", "line 1: byte 4 is", 7 },
		{ "a NUL", "a\nb\nc\0d\n", "line 3: byte 2 is NUL", 8 },
		{ "an empty file", "", "holds no prompt", 0 },
		{ "blank lines", "\n \n\r\n", "holds no prompt", 5 },
	};
	struct prompts prompts;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++)
		ok(read_prompts(cases[i].text, cases[i].bytes, &prompts) &&
		   strstr(fail_message(), cases[i].message), "refused: %s: %s",
		   cases[i].name, fail_message());
	ok(prompts_read("/nowhere", &prompts) &&
	   strstr(fail_message(), "/nowhere"), "refused: no file");
}

int main(void)
{
	int fd = mkstemp(path);

	if (fd < 0)
		return 1;
	close(fd);
	test_fit();
	test_fit_ends();
	test_score();
	test_tally();
	test_tally_refuses();
	test_many_pairs();
	test_report();
	test_prompts();
	test_prompts_refused();
	unlink(path);
	return done();
}
