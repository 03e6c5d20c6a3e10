// SPDX-License-Identifier: MIT
#include "calibrate_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_USED	5
#define STRONGEST_PAIRS	3
#define OFTEN		0.01	/* of the tokens */

typedef yyjson_mut_doc doc_t;
typedef yyjson_mut_val val_t;

struct ranked {
	uint32_t expert;
	uint64_t use;
};

static int compare_ranked(const void *a, const void *b)
{
	const struct ranked *first = a, *second = b;

	if (first->use != second->use)
		return first->use < second->use ? 1 : -1;
	return first->expert < second->expert ? -1 : 1;
}

static struct ranked *rank(const struct calibration_layer *layer,
			   uint32_t experts)
{
	struct ranked *ranked = xcalloc(experts, sizeof(*ranked));
	uint32_t i;

	for (i = 0; i < experts; i++)
		ranked[i] = (struct ranked){ i, layer->use[i] };
	qsort(ranked, experts, sizeof(*ranked), compare_ranked);
	return ranked;
}

static double share_of(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / whole : 0;
}

/* As many experts, used alike, would be as hard to foresee. */
static double effective(const struct ranked *ranked, uint32_t experts)
{
	double sum = 0, entropy = 0, share;
	uint32_t i;

	for (i = 0; i < experts; i++)
		sum += ranked[i].use;
	for (i = 0; i < experts && ranked[i].use; i++) {
		share = ranked[i].use / sum;
		entropy -= share * log(share);
	}
	return sum ? exp(entropy) : 0;
}

/* Shares and ratios of counts: four digits are more than they are worth. */
static void add_ratio(doc_t *doc, val_t *object, const char *key, double value)
{
	yyjson_mut_obj_add_real(doc, object, key, round(value * 1e4) / 1e4);
}

static void add_use(doc_t *doc, val_t *object, const struct ranked *ranked,
		    const struct calibration *calibration)
{
	val_t *list, *item;
	uint32_t i, often = 0;

	while (often < calibration->experts &&
	       share_of(ranked[often].use, calibration->tokens) > OFTEN)
		often++;
	yyjson_mut_obj_add_uint(doc, object, "used_often", often);
	list = yyjson_mut_obj_add_arr(doc, object, "most_used");
	for (i = 0; i < MOST_USED && i < calibration->experts; i++) {
		if (!ranked[i].use)
			break;
		item = yyjson_mut_arr_add_obj(doc, list);
		yyjson_mut_obj_add_uint(doc, item, "expert", ranked[i].expert);
		add_ratio(doc, item, "share",
			  share_of(ranked[i].use, calibration->tokens));
	}
	list = yyjson_mut_obj_add_arr(doc, object, "never_used");
	for (i = 0; i < calibration->experts; i++)
		if (!ranked[i].use)
			yyjson_mut_arr_add_uint(doc, list, ranked[i].expert);
}

/* Above 1: more often than strangers would meet. */
static double of_chance(const struct calibration_layer *layer,
			const struct calibration_pair *pair, uint64_t tokens)
{
	double strangers = share_of(layer->use[pair->expert[0]], tokens) *
			   share_of(layer->use[pair->expert[1]], tokens);

	/* The file's word is not taken for it. */
	return strangers ? share_of(pair->tokens, tokens) / strangers : 0;
}

static void add_pairs(doc_t *doc, val_t *object,
		      const struct calibration_layer *layer,
		      uint64_t tokens)
{
	val_t *list = yyjson_mut_obj_add_arr(doc, object, "together");
	const struct calibration_pair *pair;
	val_t *item, *experts;
	size_t i;

	for (i = 0; i < STRONGEST_PAIRS && i < layer->pairs; i++) {
		pair = &layer->together[i];
		item = yyjson_mut_arr_add_obj(doc, list);
		experts = yyjson_mut_obj_add_arr(doc, item, "experts");
		yyjson_mut_arr_add_uint(doc, experts, pair->expert[0]);
		yyjson_mut_arr_add_uint(doc, experts, pair->expert[1]);
		add_ratio(doc, item, "share", share_of(pair->tokens, tokens));
		add_ratio(doc, item, "of_chance",
			  of_chance(layer, pair, tokens));
	}
}

static void add_layer(doc_t *doc, val_t *layers,
		      const struct calibration *calibration, uint32_t i)
{
	const struct calibration_layer *layer = &calibration->layer[i];
	val_t *object = yyjson_mut_arr_add_obj(doc, layers);
	struct ranked *ranked = rank(layer, calibration->experts);

	add_ratio(doc, object, "spread", layer->spread);
	add_ratio(doc, object, "effective_experts",
		  effective(ranked, calibration->experts));
	add_use(doc, object, ranked, calibration);
	add_pairs(doc, object, layer, calibration->tokens);
	free(ranked);
}

void calibrate_report_add(doc_t *doc, val_t *root,
			  const struct calibration *calibration)
{
	val_t *object = yyjson_mut_obj_add_obj(doc, root, "calibration");
	val_t *layers;
	uint32_t i;

	yyjson_mut_obj_add_uint(doc, object, "tokens", calibration->tokens);
	yyjson_mut_obj_add_uint(doc, object, "experts", calibration->experts);
	layers = yyjson_mut_obj_add_arr(doc, object, "layers");
	for (i = 0; i < calibration->layers; i++)
		add_layer(doc, layers, calibration, i);
}

static unsigned long long get_uint(val_t *object, const char *key)
{
	return yyjson_mut_get_uint(yyjson_mut_obj_get(object, key));
}

static double get_real(val_t *object, const char *key)
{
	return yyjson_mut_get_real(yyjson_mut_obj_get(object, key));
}

static void print_most_used(val_t *list)
{
	size_t i, count;
	val_t *item;

	printf("    most used");
	yyjson_mut_arr_foreach(list, i, count, item)
		printf("%s %llu by %.1f %%", i ? "," : "",
		       get_uint(item, "expert"),
		       100 * get_real(item, "share"));
	putchar('\n');
}

static void print_never_used(val_t *list)
{
	size_t i, count;
	val_t *item;

	if (!yyjson_mut_arr_size(list))
		return;
	printf("    never used");
	yyjson_mut_arr_foreach(list, i, count, item)
		printf(" %llu", (unsigned long long)yyjson_mut_get_uint(item));
	putchar('\n');
}

static void print_together(val_t *list)
{
	size_t i, count;
	val_t *item, *experts;

	if (!yyjson_mut_arr_size(list))
		return;
	printf("    together");
	yyjson_mut_arr_foreach(list, i, count, item) {
		experts = yyjson_mut_obj_get(item, "experts");
		printf("%s %llu+%llu by %.1f %%, %.1f times chance",
		       i ? ";" : "",
		       (unsigned long long)yyjson_mut_get_uint(
				yyjson_mut_arr_get_first(experts)),
		       (unsigned long long)yyjson_mut_get_uint(
				yyjson_mut_arr_get_last(experts)),
		       100 * get_real(item, "share"),
		       get_real(item, "of_chance"));
	}
	putchar('\n');
}

void calibrate_report_print(val_t *report)
{
	val_t *layer;
	size_t i, count;

	if (!report)
		return;
	printf("calibration by %llu tokens\n", get_uint(report, "tokens"));
	yyjson_mut_arr_foreach(yyjson_mut_obj_get(report, "layers"), i, count,
			       layer) {
		printf("  layer %zu: %llu of %llu experts by over 1 %% of the tokens, as varied as %.1f, spread %.2f\n",
		       i, get_uint(layer, "used_often"),
		       get_uint(report, "experts"),
		       get_real(layer, "effective_experts"),
		       get_real(layer, "spread"));
		print_most_used(yyjson_mut_obj_get(layer, "most_used"));
		print_never_used(yyjson_mut_obj_get(layer, "never_used"));
		print_together(yyjson_mut_obj_get(layer, "together"));
	}
}
