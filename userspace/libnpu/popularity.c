// SPDX-License-Identifier: MIT
/*
 * How popular experts are: what npu_compiler counted when it ran the model, kept
 * in the file's CALIBRATION section (npu-format.rst). A runtime may do without,
 * so whatever does not fit is passed over.
 */
#include <stdlib.h>
#include <yyjson.h>

#include "preload.h"

/* Somebody who was not seen is rare, not impossible. */
static double chance(uint64_t uses, uint64_t tokens)
{
	return ((double)uses + 0.5) / ((double)tokens + 1);
}

static bool parse_layer(yyjson_val *json, uint32_t experts, uint64_t tokens,
			double *chances)
{
	yyjson_val *use = yyjson_obj_get(json, "use"), *item;
	size_t i, n;

	if (!yyjson_is_arr(use) || yyjson_arr_size(use) != experts)
		return false;
	yyjson_arr_foreach(use, i, n, item) {
		if (!yyjson_is_uint(item) || yyjson_get_uint(item) > tokens)
			return false;
		chances[i] = chance(yyjson_get_uint(item), tokens);
	}
	return true;
}

static bool parse(const struct npu_preload *p, yyjson_val *root,
		  double *chances)
{
	yyjson_val *layers = yyjson_obj_get(root, "layers"), *item;
	uint64_t tokens = yyjson_get_uint(yyjson_obj_get(root, "tokens"));
	size_t i, n;

	if (!tokens || !yyjson_is_arr(layers) ||
	    yyjson_arr_size(layers) != p->layers)
		return false;
	yyjson_arr_foreach(layers, i, n, item)
		if (!parse_layer(item, p->experts, tokens,
				 chances + i * p->experts))
			return false;
	return true;
}

bool npu_preload_calibrate(struct npu_preload *p, const char *json,
			   size_t length)
{
	double *chances = calloc((size_t)p->layers * p->experts + 1,
				 sizeof(*chances));
	yyjson_doc *doc;

	doc = yyjson_read_opts((char *)(uintptr_t)json, length, 0, NULL, NULL);
	if (!doc || !chances ||
	    !parse(p, yyjson_doc_get_root(doc), chances)) {
		free(chances);
		chances = NULL;
	}
	yyjson_doc_free(doc);
	if (!chances)
		return false;
	free(p->chances);
	p->chances = chances;
	return true;
}
