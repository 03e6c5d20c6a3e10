// SPDX-License-Identifier: MIT
/*
 * Finding added tokens: leftmost, and the longest of those that begin there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "added.h"
#include "error.h"
#include "text.h"

#define MAX_ADDED 65536

static int compare(const void *a, const void *b)
{
	const struct npu_added_token *x = a, *y = b;
	unsigned char cx = (unsigned char)x->text[0];
	unsigned char cy = (unsigned char)y->text[0];

	if (cx != cy)
		return cx < cy ? -1 : 1;
	if (x->size != y->size)
		return x->size > y->size ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static void sort(struct npu_added *added)
{
	size_t i = 0;
	unsigned int byte;

	qsort(added->tokens, added->count, sizeof(*added->tokens), compare);
	for (byte = 0; byte < 257; byte++) {
		while (i < added->count && byte < 256 &&
		       (unsigned char)added->tokens[i].text[0] < byte)
			i++;
		added->first[byte] = (uint32_t)(byte < 256 ? i : added->count);
	}
}

static bool flag(yyjson_val *json, const char *key)
{
	return yyjson_is_true(yyjson_obj_get(json, key));
}

static int parse_token(struct npu_added *added, struct npu_vocab *vocab,
		       yyjson_val *json)
{
	yyjson_val *content = yyjson_obj_get(json, "content");
	yyjson_val *id = yyjson_obj_get(json, "id");
	struct npu_added_token *token;
	struct npu_token *entry;
	int ret;

	if (!yyjson_is_str(content) || !yyjson_get_len(content) ||
	    !yyjson_is_int(id))
		return npu_fail(-EBADMSG,
				"tokenizer: an added token without id or content");
	/* Mostly it is in the vocabulary already, under the same id. */
	if (yyjson_get_sint(id) >= 0 && yyjson_get_sint(id) < vocab->size) {
		entry = &vocab->tokens[yyjson_get_sint(id)];
		free(entry->bytes);
		entry->bytes = NULL;
	}
	ret = npu_vocab_set(vocab, yyjson_get_sint(id),
			    yyjson_get_str(content), yyjson_get_len(content));
	if (ret)
		return ret;
	entry = &vocab->tokens[yyjson_get_sint(id)];
	entry->added = true;
	entry->special = flag(json, "special");
	token = &added->tokens[added->count++];
	*token = (struct npu_added_token){
		.id = (int32_t)yyjson_get_sint(id),
		.special = entry->special,
		.normalized = flag(json, "normalized"),
		.lstrip = flag(json, "lstrip"),
		.rstrip = flag(json, "rstrip"),
		.single_word = flag(json, "single_word"),
	};
	return 0;
}

int npu_added_parse(struct npu_added *added, struct npu_vocab *vocab,
		    yyjson_val *json)
{
	yyjson_val *item;
	size_t i, n;
	int ret = 0;

	if (json && !yyjson_is_arr(json) && !yyjson_is_null(json))
		return npu_fail(-EBADMSG, "tokenizer: added_tokens is no list");
	if (yyjson_arr_size(json) > MAX_ADDED)
		return npu_fail(-EBADMSG, "tokenizer: too many added tokens");
	added->tokens = calloc(yyjson_arr_size(json) + 1,
			       sizeof(*added->tokens));
	if (!added->tokens)
		return npu_fail_memory();
	yyjson_arr_foreach(json, i, n, item) {
		ret = parse_token(added, vocab, item);
		if (ret)
			return ret;
	}
	/* Only now: an id that is there twice replaces the first text. */
	for (i = 0; i < added->count; i++) {
		const struct npu_token *t = &vocab->tokens[added->tokens[i].id];

		added->tokens[i].text = t->bytes;
		added->tokens[i].size = t->size;
	}
	sort(added);
	return 0;
}

void npu_added_clear(struct npu_added *added)
{
	free(added->tokens);
	added->tokens = NULL;
	added->count = 0;
}

static bool is_word(uint32_t c)
{
	switch (utf8proc_category((utf8proc_int32_t)c)) {
	case UTF8PROC_CATEGORY_LU:
	case UTF8PROC_CATEGORY_LL:
	case UTF8PROC_CATEGORY_LT:
	case UTF8PROC_CATEGORY_LM:
	case UTF8PROC_CATEGORY_LO:
	case UTF8PROC_CATEGORY_MN:
	case UTF8PROC_CATEGORY_MC:
	case UTF8PROC_CATEGORY_ME:
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_PC:
		return true;
	default:
		return false;
	}
}

static bool is_space(uint32_t c)
{
	return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 ||
	       c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
	       c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Start of the character that ends at @at, which is not 0. */
static size_t char_before(const char *text, size_t at)
{
	do
		at--;
	while (at && (text[at] & 0xc0) == 0x80);
	return at;
}

static bool word_before(const char *text, size_t at)
{
	size_t start;

	if (!at)
		return false;
	start = char_before(text, at);
	return is_word(npu_utf8_char(text + start, at - start));
}

static bool word_at(const char *text, size_t size, size_t at)
{
	if (at == size)
		return false;
	return is_word(npu_utf8_char(text + at, npu_utf8_length(text + at,
								text + size)));
}

static void take_space(struct npu_added_match *m, const char *text,
		       size_t size, size_t from)
{
	size_t n;

	while (m->token->lstrip && m->start > from) {
		size_t before = char_before(text, m->start);

		if (!is_space(npu_utf8_char(text + before, m->start - before)))
			break;
		m->start = before;
	}
	while (m->token->rstrip && m->end < size) {
		n = npu_utf8_length(text + m->end, text + size);
		if (!is_space(npu_utf8_char(text + m->end, n)))
			break;
		m->end += n;
	}
}

static const struct npu_added_token *
token_at(const struct npu_added *added, const char *text, size_t size,
	 size_t at, bool normalized, bool special)
{
	unsigned char byte = (unsigned char)text[at];
	uint32_t i;

	for (i = added->first[byte]; i < added->first[byte + 1]; i++) {
		const struct npu_added_token *t = &added->tokens[i];

		if (t->normalized != normalized || (t->special && !special) ||
		    t->size > size - at || memcmp(text + at, t->text, t->size))
			continue;
		if (t->single_word && (word_before(text, at) ||
				       word_at(text, size, at + t->size)))
			continue;
		return t;
	}
	return NULL;
}

bool npu_added_find(const struct npu_added *added, const char *text,
		    size_t size, size_t at, bool normalized, bool special,
		    struct npu_added_match *match)
{
	size_t from = at;

	if (!added->count)
		return false;
	for (; at < size; at++) {
		match->token = token_at(added, text, size, at, normalized,
					special);
		if (!match->token)
			continue;
		match->start = at;
		match->end = at + match->token->size;
		take_space(match, text, size, from);
		return true;
	}
	return false;
}
