// SPDX-License-Identifier: MIT
#include "calibration.h"

#include <npu/npu.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "m6npu_regs.h"

#define VERSION		1
/* A sum of them still fits 64 bits. */
#define MAX_TOKENS	(1ull << 48)
#define MAX_SPREAD	1e6

typedef yyjson_mut_doc doc_t;
typedef yyjson_mut_val val_t;

void calibration_init(struct calibration *calibration, uint32_t layers,
		      uint32_t experts)
{
	uint32_t i;

	*calibration = (struct calibration){
		.layers = layers,
		.experts = experts,
		.layer = xcalloc(layers, sizeof(*calibration->layer)),
	};
	for (i = 0; i < layers; i++) {
		calibration->layer[i].use = xcalloc(experts, sizeof(uint64_t));
		calibration->layer[i].spread = CALIBRATION_SPREAD;
	}
}

void calibration_free(struct calibration *calibration)
{
	uint32_t i;

	for (i = 0; i < calibration->layers; i++)
		free(calibration->layer[i].use);
	free(calibration->layer);
	*calibration = (struct calibration){ 0 };
}

static void write_pairs(doc_t *doc, val_t *object,
			const struct calibration_layer *layer)
{
	val_t *array = yyjson_mut_obj_add_arr(doc, object, "together"), *pair;
	size_t i;

	for (i = 0; i < layer->pairs; i++) {
		pair = yyjson_mut_arr_add_arr(doc, array);
		yyjson_mut_arr_add_uint(doc, pair,
					layer->together[i].expert[0]);
		yyjson_mut_arr_add_uint(doc, pair,
					layer->together[i].expert[1]);
		yyjson_mut_arr_add_uint(doc, pair, layer->together[i].tokens);
	}
}

char *calibration_write(const struct calibration *calibration, size_t *bytes)
{
	doc_t *doc = yyjson_mut_doc_new(NULL);
	val_t *root = yyjson_mut_obj(doc), *layers, *object, *use;
	const struct calibration_layer *layer;
	uint32_t i, j;
	char *text;

	yyjson_mut_doc_set_root(doc, root);
	yyjson_mut_obj_add_uint(doc, root, "version", VERSION);
	yyjson_mut_obj_add_uint(doc, root, "tokens", calibration->tokens);
	layers = yyjson_mut_obj_add_arr(doc, root, "layers");
	for (i = 0; i < calibration->layers; i++) {
		layer = &calibration->layer[i];
		object = yyjson_mut_arr_add_obj(doc, layers);
		use = yyjson_mut_obj_add_arr(doc, object, "use");
		for (j = 0; j < calibration->experts; j++)
			yyjson_mut_arr_add_uint(doc, use, layer->use[j]);
		yyjson_mut_obj_add_real(doc, object, "spread", layer->spread);
		write_pairs(doc, object, layer);
	}
	text = yyjson_mut_write(doc, 0, bytes);
	yyjson_mut_doc_free(doc);
	if (!text)
		fail("internal error: the calibration cannot be written as JSON");
	return text;
}

/* A count of tokens; -1 with fail(). */
static int read_count(yyjson_val *value, const char *what, uint64_t *count)
{
	*count = yyjson_get_uint(value);
	if (!yyjson_is_uint(value) || *count > MAX_TOKENS)
		return fail("%s: a count of tokens is none", what);
	return 0;
}

static int read_pairs(yyjson_val *array, const char *what, uint32_t experts,
		      struct calibration_layer *layer)
{
	struct calibration_pair *pair;
	uint64_t a, b;
	size_t i, count;
	yyjson_val *value;

	if (array && (!yyjson_is_arr(array) ||
		      yyjson_arr_size(array) > CALIBRATION_MAX_PAIRS))
		return fail("%s: together is no list of at most %d pairs",
			    what, CALIBRATION_MAX_PAIRS);
	yyjson_arr_foreach(array, i, count, value) {
		pair = &layer->together[i];
		if (!yyjson_is_arr(value) || yyjson_arr_size(value) != 3 ||
		    !yyjson_is_uint(yyjson_arr_get(value, 0)) ||
		    !yyjson_is_uint(yyjson_arr_get(value, 1)))
			return fail("%s: together holds what is no [expert, expert, tokens]",
				    what);
		a = yyjson_get_uint(yyjson_arr_get(value, 0));
		b = yyjson_get_uint(yyjson_arr_get(value, 1));
		if (a >= b || b >= experts)
			return fail("%s: together names experts %llu and %llu of %u",
				    what, (unsigned long long)a,
				    (unsigned long long)b, experts);
		pair->expert[0] = a;
		pair->expert[1] = b;
		if (read_count(yyjson_arr_get(value, 2), what, &pair->tokens))
			return -1;
		layer->pairs++;
	}
	return 0;
}

static int read_layer(yyjson_val *object, const char *what,
		      const struct calibration *calibration,
		      struct calibration_layer *layer)
{
	yyjson_val *use = json_value(object, "use"), *value;
	yyjson_val *spread = json_value(object, "spread");
	size_t i, count;

	if (yyjson_arr_size(use) != calibration->experts)
		return fail("%s: layers have %u and %zu experts", what,
			    calibration->experts, yyjson_arr_size(use));
	yyjson_arr_foreach(use, i, count, value) {
		if (read_count(value, what, &layer->use[i]))
			return -1;
		if (layer->use[i] > calibration->tokens)
			return fail("%s: more tokens chose an expert than there were",
				    what);
	}
	if (spread) {
		layer->spread = yyjson_get_num(spread);
		if (!(layer->spread >= 1 / MAX_SPREAD &&
		      layer->spread <= MAX_SPREAD))
			return fail("%s: a spread is not a number above 0",
				    what);
	}
	return read_pairs(json_value(object, "together"), what,
			  calibration->experts, layer);
}

static int read_layers(yyjson_val *root, const char *what,
		       struct calibration *calibration)
{
	yyjson_val *layers = json_value(root, "layers"), *value;
	size_t experts, i, count;
	uint64_t tokens;

	if (read_count(json_value(root, "tokens"), what, &tokens))
		return -1;
	experts = yyjson_arr_size(json_value(yyjson_arr_get_first(layers),
					     "use"));
	if (!experts || experts > M6NPU_MAX_EXPERTS_PER_LAYER ||
	    yyjson_arr_size(layers) > M6NPU_MAX_EXPERT_LAYERS)
		return fail("%s: no layers with lists of use, or more than the NPU takes",
			    what);
	calibration_init(calibration, yyjson_arr_size(layers), experts);
	calibration->tokens = tokens;
	yyjson_arr_foreach(layers, i, count, value) {
		if (read_layer(value, what, calibration,
			       &calibration->layer[i])) {
			calibration_free(calibration);
			return -1;
		}
	}
	return 0;
}

int calibration_read(const char *text, size_t bytes, const char *what,
		     struct calibration *calibration)
{
	yyjson_doc *doc = yyjson_read(text, bytes, 0);
	yyjson_val *root = yyjson_doc_get_root(doc);
	yyjson_val *version = json_value(root, "version");
	int ret;

	if (!yyjson_is_obj(root))
		ret = fail("%s is not a JSON object", what);
	else if (version && yyjson_get_uint(version) != VERSION)
		ret = fail("%s is of another version than %d", what, VERSION);
	else
		ret = read_layers(root, what, calibration);
	yyjson_doc_free(doc);
	return ret;
}

int calibration_load(struct npu_file *file, struct calibration *calibration)
{
	const struct npu_runtime *r = &npu_file_header(file)->runtime;
	int64_t index = npu_file_find(file, NPU_SECTION_CALIBRATION, 0);
	size_t bytes;
	void *data;
	int ret;

	*calibration = (struct calibration){ 0 };
	if (index < 0)
		return 0;
	if (npu_file_load_section(file, index, &data, &bytes))
		return fail("%s", npu_error());
	ret = calibration_read(data, bytes, "calibration", calibration);
	free(data);
	if (ret)
		return ret;
	if (calibration->layers == r->expert_layers &&
	    calibration->experts == r->experts)
		return 0;
	ret = fail("calibration: it is of %u layers of %u experts, the file of %u of %u",
		   calibration->layers, calibration->experts,
		   r->expert_layers, r->experts);
	calibration_free(calibration);
	return ret;
}
