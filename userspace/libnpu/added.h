/* SPDX-License-Identifier: MIT */
/*
 * Added tokens: those that are found in text as they are, before the
 * vocabulary has its say.
 */
#ifndef NPU_ADDED_H
#define NPU_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <yyjson.h>
#include "vocab.h"

struct npu_added_token {
	int32_t id;
	const char *text;	/* the vocabulary's */
	uint32_t size;
	bool special, normalized, lstrip, rstrip, single_word;
};

struct npu_added {
	struct npu_added_token *tokens;	/* by first byte, then longest first */
	size_t count;
	uint32_t first[257];		/* of each first byte, in tokens */
};

/* From tokenizer.json's "added_tokens"; puts them into @vocab. */
int npu_added_parse(struct npu_added *added, struct npu_vocab *vocab,
		    yyjson_val *json);
void npu_added_clear(struct npu_added *added);

struct npu_added_match {
	const struct npu_added_token *token;
	size_t start, end;	/* with the white space it takes */
};

/*
 * The first token in @text at or behind @at; special ones only if @special.
 * @normalized picks the tokens that are looked for in normalized text.
 */
bool npu_added_find(const struct npu_added *added, const char *text,
		    size_t size, size_t at, bool normalized, bool special,
		    struct npu_added_match *match);

#endif
