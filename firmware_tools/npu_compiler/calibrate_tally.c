// SPDX-License-Identifier: MIT
#include "calibrate_tally.h"

#include <stdlib.h>
#include <string.h>

void tally_init(struct tally *tally, uint32_t layers, uint32_t experts,
		  uint32_t chosen, uint32_t guessed)
{
	uint32_t i;

	*tally = (struct tally){
		.layers = layers,
		.experts = experts,
		.chosen = chosen,
		.guessed = guessed,
		.layer = xcalloc(layers, sizeof(*tally->layer)),
		.marked = xcalloc(experts, sizeof(*tally->marked)),
	};
	for (i = 0; i < layers; i++) {
		tally->layer[i].use = xcalloc(experts, sizeof(uint64_t));
		tally->layer[i].together = xcalloc((size_t)experts * experts,
						     sizeof(uint32_t));
	}
}

void tally_free(struct tally *tally)
{
	uint32_t i;

	for (i = 0; i < tally->layers; i++) {
		free(tally->layer[i].use);
		free(tally->layer[i].together);
		guesses_free(&tally->layer[i].guesses);
	}
	free(tally->layer);
	free(tally->marked);
	*tally = (struct tally){ 0 };
}

static int check_ids(const struct tally *tally, const int32_t *ids,
		     uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		if (ids[i] < 0 || (uint32_t)ids[i] >= tally->experts)
			return fail("internal error: expert %d of %u was routed to",
				    ids[i], tally->experts);
	return 0;
}

static void mark(struct tally *tally, const int32_t *ids, bool marked)
{
	uint32_t i;

	for (i = 0; i < tally->chosen; i++)
		tally->marked[ids[i]] = marked;
}

static void count_uses(struct tally *tally, struct tally_layer *layer,
		       const int32_t *ids)
{
	uint32_t i, j, low, high;

	for (i = 0; i < tally->chosen; i++) {
		layer->use[ids[i]]++;
		for (j = 0; j < i; j++) {
			low = ids[i] < ids[j] ? ids[i] : ids[j];
			high = ids[i] < ids[j] ? ids[j] : ids[i];
			layer->together[(size_t)low * tally->experts +
					high]++;
		}
	}
}

static void judge_guesses(struct tally *tally, struct tally_layer *layer,
			  const struct tally_choice *choice)
{
	uint32_t i;

	if (layer->guesses.count + tally->guessed > GUESS_MANY)
		return;
	layer->guesses.uses += tally->chosen;
	mark(tally, choice->ids, true);
	for (i = 0; i < tally->guessed; i++)
		guesses_add(&layer->guesses, choice->guess_chances[i],
			    CALIBRATION_SPREAD,
			    tally->marked[choice->guess_ids[i]]);
	mark(tally, choice->ids, false);
}

int tally_add(struct tally *tally, uint32_t layer,
		const struct tally_choice *choice)
{
	if (check_ids(tally, choice->ids, tally->chosen) ||
	    (choice->guess_ids &&
	     check_ids(tally, choice->guess_ids, tally->guessed)))
		return -1;
	count_uses(tally, &tally->layer[layer], choice->ids);
	if (choice->guess_ids)
		judge_guesses(tally, &tally->layer[layer], choice);
	return 0;
}

static int compare_pairs(const void *a, const void *b)
{
	const struct calibration_pair *first = a, *second = b;

	if (first->tokens != second->tokens)
		return first->tokens < second->tokens ? 1 : -1;
	if (first->expert[0] != second->expert[0])
		return first->expert[0] - second->expert[0];
	return first->expert[1] - second->expert[1];
}

static void find_pairs(const struct tally *tally,
		       const struct tally_layer *from,
		       struct calibration_layer *to)
{
	size_t i, count = 0, size = (size_t)tally->experts * tally->experts;
	struct calibration_pair *pairs = xcalloc(size, sizeof(*pairs));

	for (i = 0; i < size; i++)
		if (from->together[i])
			pairs[count++] = (struct calibration_pair){
				.expert = { i / tally->experts,
					    i % tally->experts },
				.tokens = from->together[i],
			};
	qsort(pairs, count, sizeof(*pairs), compare_pairs);
	to->pairs = count < CALIBRATION_MAX_PAIRS ? count :
						    CALIBRATION_MAX_PAIRS;
	memcpy(to->together, pairs, to->pairs * sizeof(*pairs));
	free(pairs);
}

void tally_summarize(const struct tally *tally,
		       struct calibration *calibration)
{
	const struct tally_layer *from;
	struct calibration_layer *to;
	uint32_t i;

	calibration_init(calibration, tally->layers, tally->experts);
	calibration->tokens = tally->tokens;
	for (i = 0; i < tally->layers; i++) {
		from = &tally->layer[i];
		to = &calibration->layer[i];
		memcpy(to->use, from->use,
		       tally->experts * sizeof(*to->use));
		to->spread = guesses_fit(&from->guesses, CALIBRATION_SPREAD);
		find_pairs(tally, from, to);
	}
}
