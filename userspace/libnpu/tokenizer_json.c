// SPDX-License-Identifier: MIT
/*
 * Reads Hugging Face's tokenizer.json, as far as byte-level BPE goes. Other
 * kinds are refused by name, not half understood.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include "error.h"
#include "tokenizer.h"

static const char *type_of(yyjson_val *json)
{
	const char *type = yyjson_get_str(yyjson_obj_get(json, "type"));

	return type ? type : "?";
}

/* ---- Normalizer ---- */

static int parse_form(struct npu_tokenizer *t, yyjson_val *json)
{
	static const struct {
		const char *name;
		enum npu_normal_form form;
	} forms[] = {
		{ "NFC", NPU_FORM_NFC },
		{ "NFD", NPU_FORM_NFD },
		{ "NFKC", NPU_FORM_NFKC },
		{ "NFKD", NPU_FORM_NFKD },
	};
	size_t i;

	for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (strcmp(type_of(json), forms[i].name))
			continue;
		t->form = forms[i].form;
		return 0;
	}
	return npu_fail(-ENOTSUP, "tokenizer: normalizer %s is not supported",
			type_of(json));
}

static int parse_normalizer(struct npu_tokenizer *t, yyjson_val *json)
{
	yyjson_val *list = yyjson_obj_get(json, "normalizers");

	if (!json || yyjson_is_null(json))
		return 0;
	if (strcmp(type_of(json), "Sequence"))
		return parse_form(t, json);
	if (yyjson_arr_size(list) == 0)
		return 0;
	if (yyjson_arr_size(list) == 1)
		return parse_form(t, yyjson_arr_get_first(list));
	return npu_fail(-ENOTSUP,
			"tokenizer: a sequence of normalizers is not supported");
}

/* ---- Vocabulary and merges ---- */

static int parse_vocab_entry(struct npu_vocab *vocab, yyjson_val *key,
			     yyjson_val *id, struct npu_text *work)
{
	size_t size = yyjson_get_len(key);
	int64_t n;
	int ret;

	if (!yyjson_is_int(id))
		return npu_fail(-EBADMSG, "tokenizer: vocab: an id is no integer");
	/* Bytes are at most as many as the characters that stand for them. */
	work->size = 0;
	ret = npu_text_append(work, yyjson_get_str(key), size);
	if (ret)
		return ret;
	n = npu_bytes_from_printable(yyjson_get_str(key), size, work->bytes);
	/* Not made of bytes: an added token, matched by its text. */
	if (n < 0)
		return npu_vocab_set(vocab, yyjson_get_sint(id),
				     yyjson_get_str(key), size);
	ret = npu_vocab_set(vocab, yyjson_get_sint(id), work->bytes, (size_t)n);
	if (!ret)
		npu_vocab_index(vocab, (int32_t)yyjson_get_sint(id));
	return ret;
}

static int parse_vocab(struct npu_vocab *vocab, yyjson_val *json)
{
	struct npu_text work = { 0 };
	yyjson_val *key, *value;
	size_t i, n;
	int ret = 0;

	yyjson_obj_foreach(json, i, n, key, value) {
		ret = parse_vocab_entry(vocab, key, value, &work);
		if (ret)
			break;
	}
	npu_text_clear(&work);
	npu_vocab_find_bytes(vocab);
	return ret;
}

/* Two forms: "a b", and ["a", "b"], which allows for spaces in them. */
static bool merge_halves(yyjson_val *json, const char *half[2], size_t size[2])
{
	const char *space;
	yyjson_val *right;

	if (yyjson_is_arr(json) && yyjson_arr_size(json) == 2) {
		half[0] = yyjson_get_str(yyjson_arr_get_first(json));
		size[0] = yyjson_get_len(yyjson_arr_get_first(json));
		right = yyjson_arr_get_last(json);
		half[1] = yyjson_get_str(right);
		size[1] = yyjson_get_len(right);
		return half[0] && half[1];
	}
	half[0] = yyjson_get_str(json);
	space = half[0] ? strchr(half[0], ' ') : NULL;
	if (!space)
		return false;
	size[0] = (size_t)(space - half[0]);
	half[1] = space + 1;
	size[1] = yyjson_get_len(json) - size[0] - 1;
	return true;
}

static int parse_merge(struct npu_vocab *vocab, yyjson_val *json, int32_t rank,
		       struct npu_text *work)
{
	struct npu_merge merge = { .rank = rank };
	const char *half[2];
	size_t size[2];
	int64_t a, b;
	int ret;

	if (!merge_halves(json, half, size))
		return npu_fail(-EBADMSG, "tokenizer: merge %" PRId32
				" is not a pair", rank);
	work->size = 0;
	ret = npu_text_append(work, half[0], size[0]);
	if (!ret)
		ret = npu_text_append(work, half[1], size[1]);
	if (ret)
		return ret;
	a = npu_bytes_from_printable(half[0], size[0], work->bytes);
	b = a < 0 ? -1 : npu_bytes_from_printable(half[1], size[1],
						  work->bytes + a);
	if (b < 0)
		return npu_fail(-EBADMSG, "tokenizer: merge %" PRId32
				" is not byte-level", rank);
	merge.left = npu_vocab_find(vocab, work->bytes, (size_t)a);
	merge.right = npu_vocab_find(vocab, work->bytes + a, (size_t)b);
	merge.result = npu_vocab_find(vocab, work->bytes, (size_t)(a + b));
	if (merge.left < 0 || merge.right < 0 || merge.result < 0)
		return npu_fail(-EBADMSG, "tokenizer: merge %" PRId32
				" is of tokens that are not in the vocabulary",
				rank);
	npu_vocab_add_merge(vocab, &merge);
	return 0;
}

static int parse_merges(struct npu_vocab *vocab, yyjson_val *json)
{
	struct npu_text work = { 0 };
	yyjson_val *item;
	size_t i, n;
	int ret = 0;

	yyjson_arr_foreach(json, i, n, item) {
		ret = parse_merge(vocab, item, (int32_t)i, &work);
		if (ret)
			break;
	}
	npu_text_clear(&work);
	return ret;
}

/* A suffix or prefix of words changes what merges mean; null and "" do not. */
static bool is_set(yyjson_val *model, const char *key)
{
	yyjson_val *v = yyjson_obj_get(model, key);

	return yyjson_is_true(v) || (yyjson_is_str(v) && yyjson_get_len(v)) ||
	       (yyjson_is_num(v) && yyjson_get_num(v) != 0);
}

static int check_model(yyjson_val *model)
{
	static const char *const unsupported[] = {
		"continuing_subword_prefix", "end_of_word_suffix",
		"byte_fallback",
	};
	yyjson_val *type = yyjson_obj_get(model, "type");
	size_t i;

	/* Old files leave the type out. */
	if (type && !yyjson_equals_str(type, "BPE"))
		return npu_fail(-ENOTSUP,
				"tokenizer: model %s is not supported; libnpu reads byte-level BPE tokenizers",
				type_of(model));
	for (i = 0; i < sizeof(unsupported) / sizeof(unsupported[0]); i++)
		if (is_set(model, unsupported[i]))
			return npu_fail(-ENOTSUP,
					"tokenizer: %s is not supported; libnpu reads byte-level BPE tokenizers",
					unsupported[i]);
	if (!yyjson_is_obj(yyjson_obj_get(model, "vocab")) ||
	    !yyjson_is_arr(yyjson_obj_get(model, "merges")))
		return npu_fail(-EBADMSG,
				"tokenizer: model without vocab or merges");
	return 0;
}

static int parse_model(struct npu_tokenizer *t, yyjson_val *model)
{
	yyjson_val *unknown = yyjson_obj_get(model, "unk_token");
	yyjson_val *vocab = yyjson_obj_get(model, "vocab");
	yyjson_val *merges = yyjson_obj_get(model, "merges");
	int ret;

	ret = check_model(model);
	if (!ret)
		ret = npu_vocab_init(&t->vocab, yyjson_obj_size(vocab),
				     yyjson_arr_size(merges));
	if (!ret)
		ret = parse_vocab(&t->vocab, vocab);
	if (!ret)
		ret = parse_merges(&t->vocab, merges);
	if (ret)
		return ret;
	t->ignore_merges = yyjson_is_true(yyjson_obj_get(model,
							 "ignore_merges"));
	if (yyjson_is_str(unknown))
		t->vocab.unknown = npu_vocab_find(&t->vocab,
						  yyjson_get_str(unknown),
						  yyjson_get_len(unknown));
	return 0;
}

/* ---- Post-processor ---- */

/* Tokens that a template puts before the text: {"SpecialToken": {"id": ...}} */
static int parse_template(struct npu_tokenizer *t, yyjson_val *json)
{
	yyjson_val *known = yyjson_obj_get(json, "special_tokens");
	yyjson_val *item;
	size_t i, n, j, m;
	int ret;

	yyjson_arr_foreach(yyjson_obj_get(json, "single"), i, n, item) {
		yyjson_val *token = yyjson_obj_get(item, "SpecialToken");
		yyjson_val *ids, *id;

		if (!token)
			break;
		ids = yyjson_obj_get(
			yyjson_obj_get(known, yyjson_get_str(
				yyjson_obj_get(token, "id"))), "ids");
		yyjson_arr_foreach(ids, j, m, id) {
			if (!yyjson_is_int(id) || yyjson_get_sint(id) < 0 ||
			    yyjson_get_sint(id) >= t->vocab.size)
				return npu_fail(-EBADMSG,
						"tokenizer: post_processor: bad token id");
			ret = npu_ids_add(&t->begin,
					  (int32_t)yyjson_get_sint(id));
			if (ret)
				return ret;
		}
	}
	return 0;
}

static int parse_post_processor(struct npu_tokenizer *t, yyjson_val *json)
{
	yyjson_val *item;
	size_t i, n;
	int ret = 0;

	if (!strcmp(type_of(json), "TemplateProcessing"))
		return parse_template(t, json);
	yyjson_arr_foreach(yyjson_obj_get(json, "processors"), i, n, item) {
		if (!ret && !strcmp(type_of(item), "TemplateProcessing"))
			ret = parse_template(t, item);
	}
	return ret;
}

static int parse_root(struct npu_tokenizer *t, yyjson_val *root)
{
	yyjson_val *model = yyjson_obj_get(root, "model");
	int ret;

	if (!yyjson_is_obj(model))
		return npu_fail(-EBADMSG, "tokenizer: not a tokenizer.json");
	ret = parse_model(t, model);
	if (!ret)
		ret = npu_added_parse(&t->added, &t->vocab,
				      yyjson_obj_get(root, "added_tokens"));
	if (!ret)
		ret = parse_normalizer(t, yyjson_obj_get(root, "normalizer"));
	if (!ret)
		ret = npu_split_parse(&t->split,
				      yyjson_obj_get(root, "pre_tokenizer"));
	if (!ret)
		ret = parse_post_processor(t, yyjson_obj_get(root,
							     "post_processor"));
	return ret;
}

int npu_tokenizer_parse(struct npu_tokenizer *tokenizer, const char *json,
			size_t length)
{
	yyjson_read_err error;
	yyjson_doc *doc;
	int ret;

	doc = yyjson_read_opts((char *)(uintptr_t)json, length, 0, NULL,
			       &error);
	if (!doc)
		return npu_fail(-EBADMSG, "tokenizer: not JSON, at byte %zu: %s",
				error.pos, error.msg);
	ret = parse_root(tokenizer, yyjson_doc_get_root(doc));
	yyjson_doc_free(doc);
	return ret;
}
