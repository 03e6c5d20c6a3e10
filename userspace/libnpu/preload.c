// SPDX-License-Identifier: MIT
/*
 * preload_config.json: which experts matter most.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include "error.h"
#include "preload.h"

#define MAX_FILE_BYTES	(16u << 20)

int npu_preload_init(struct npu_preload *preload, uint32_t layers,
		     uint32_t experts)
{
	size_t i, n = (size_t)layers * experts;

	*preload = (struct npu_preload){ .layers = layers, .experts = experts };
	preload->permille = calloc(n + 1, sizeof(*preload->permille));
	preload->named = calloc(n + 1, sizeof(*preload->named));
	if (!preload->permille || !preload->named) {
		npu_preload_clear(preload);
		return npu_fail_memory();
	}
	for (i = 0; i < n; i++)
		preload->permille[i] = NPU_PRELOAD_DEFAULT_PERMILLE;
	return 0;
}

void npu_preload_clear(struct npu_preload *preload)
{
	free(preload->permille);
	free(preload->named);
	free(preload->chances);
	*preload = (struct npu_preload){ 0 };
}

struct entry {
	uint32_t layer, expert;
	bool all_layers;
	uint16_t permille;
};

static int bad(size_t i, const char *format, uint64_t value)
{
	char text[96];

	snprintf(text, sizeof(text), format, value);
	return npu_fail(-EINVAL, "preload config: entry %zu: %s", i, text);
}

static int parse_entry(const struct npu_preload *p, yyjson_val *json, size_t i,
		       struct entry *e)
{
	yyjson_val *id = yyjson_obj_get(json, "expert_id");
	yyjson_val *layer = yyjson_obj_get(json, "layer");
	yyjson_val *priority = yyjson_obj_get(json, "priority");

	if (!yyjson_is_uint(id))
		return bad(i, "\"expert_id\" is not a number", 0);
	if (yyjson_get_uint(id) >= p->experts)
		return bad(i, "the model has no expert %" PRIu64 " in a layer",
			   yyjson_get_uint(id));
	if (layer && !yyjson_is_uint(layer))
		return bad(i, "\"layer\" is not a number", 0);
	if (layer && yyjson_get_uint(layer) >= p->layers)
		return bad(i, "the model has no expert layer %" PRIu64,
			   yyjson_get_uint(layer));
	if (!yyjson_is_num(priority) || !(yyjson_get_num(priority) >= 0) ||
	    !(yyjson_get_num(priority) <= 1))
		return bad(i, "\"priority\" is not a number from 0 to 1", 0);
	e->expert = (uint32_t)yyjson_get_uint(id);
	e->layer = (uint32_t)yyjson_get_uint(layer);
	e->all_layers = !layer;
	e->permille = (uint16_t)(yyjson_get_num(priority) * 1000 + 0.5);
	return 0;
}

static void apply(struct npu_preload *p, const struct entry *e)
{
	uint32_t first = e->all_layers ? 0 : e->layer;
	uint32_t end = e->all_layers ? p->layers : e->layer + 1;
	uint32_t layer;

	for (layer = first; layer < end; layer++) {
		p->permille[layer * p->experts + e->expert] = e->permille;
		p->named[layer * p->experts + e->expert] = true;
	}
}

/* Twice through the list: entries for one layer have the last word. */
static int parse_list(struct npu_preload *p, yyjson_val *list)
{
	struct entry e;
	yyjson_val *item;
	size_t i, n;
	int ret;

	if (!list)
		return 0;
	if (!yyjson_is_arr(list))
		return npu_fail(-EINVAL,
				"preload config: \"expert_preload\" is not a list");
	if (yyjson_arr_size(list) && !p->layers)
		return npu_fail(-EINVAL,
				"preload config: the model has no experts");
	yyjson_arr_foreach(list, i, n, item) {
		ret = parse_entry(p, item, i, &e);
		if (ret)
			return ret;
		if (e.all_layers)
			apply(p, &e);
	}
	yyjson_arr_foreach(list, i, n, item) {
		ret = parse_entry(p, item, i, &e);
		if (ret)
			return ret;
		if (!e.all_layers)
			apply(p, &e);
	}
	return 0;
}

static int parse_root(struct npu_preload *p, yyjson_val *root)
{
	yyjson_val *prefill = yyjson_obj_get(root, "prefill_buffer_size");

	if (!yyjson_is_obj(root))
		return npu_fail(-EINVAL, "preload config: not an object");
	if (prefill && !yyjson_is_uint(prefill))
		return npu_fail(-EINVAL,
				"preload config: \"prefill_buffer_size\" is not a number of bytes");
	p->prefill_buffer_bytes = yyjson_get_uint(prefill);
	return parse_list(p, yyjson_obj_get(root, "expert_preload"));
}

int npu_preload_parse(struct npu_preload *preload, const char *json,
		      size_t length)
{
	yyjson_read_err error;
	yyjson_doc *doc;
	int ret;

	doc = yyjson_read_opts((char *)(uintptr_t)json, length, 0, NULL,
			       &error);
	if (!doc)
		return npu_fail(-EINVAL,
				"preload config: not JSON, at byte %zu: %s",
				error.pos, error.msg);
	ret = parse_root(preload, yyjson_doc_get_root(doc));
	yyjson_doc_free(doc);
	return ret;
}

int npu_preload_read(struct npu_preload *preload, const char *path)
{
	char *text = NULL;
	size_t n;
	FILE *f;
	int ret;

	f = fopen(path, "re");
	if (!f)
		return npu_fail(-errno, "%s: cannot open: %s", path,
				strerror(errno));
	text = malloc(MAX_FILE_BYTES);
	if (!text) {
		ret = npu_fail_memory();
		goto out;
	}
	errno = 0;
	n = fread(text, 1, MAX_FILE_BYTES, f);
	if (ferror(f)) {
		ret = npu_fail(errno ? -errno : -EIO, "%s: read error: %s",
			       path, strerror(errno ? errno : EIO));
	} else if (n == MAX_FILE_BYTES) {
		ret = npu_fail(-EINVAL, "%s: too large", path);
	} else {
		ret = npu_preload_parse(preload, text, n);
		if (ret)
			npu_error_prefix("%s", path);
	}
out:
	free(text);
	fclose(f);
	return ret;
}

struct ranked {
	uint32_t index;
	double rank;
};

static int compare(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank > y->rank ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

uint32_t *npu_preload_order(const struct npu_preload *preload)
{
	uint32_t i, n = preload->layers * preload->experts;
	struct ranked *ranked;
	uint32_t *order;

	ranked = calloc(n + 1, sizeof(*ranked));
	order = calloc(n + 1, sizeof(*order));
	if (!ranked || !order) {
		free(ranked);
		free(order);
		return NULL;
	}
	for (i = 0; i < n; i++)
		ranked[i] = (struct ranked){
			i, preload->chances ? preload->chances[i] :
					      preload->permille[i]
		};
	qsort(ranked, n, sizeof(*ranked), compare);
	for (i = 0; i < n; i++)
		order[i] = ranked[i].index;
	free(ranked);
	return order;
}
