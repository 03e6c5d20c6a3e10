/* SPDX-License-Identifier: MIT */
#ifndef NPU_TOKENIZER_H
#define NPU_TOKENIZER_H

#include <npu/npu.h>
#include "added.h"
#include "bpe.h"
#include "split.h"
#include "text.h"
#include "vocab.h"

struct npu_tokenizer {
	struct npu_vocab vocab;
	struct npu_added added;
	struct npu_split split;
	enum npu_normal_form form;
	bool ignore_merges;	/* a word that is a token is that token */
	struct npu_ids begin;	/* what the post-processor puts before a text */
};

/* Fills a zeroed @tokenizer, also in part when it fails. */
int npu_tokenizer_parse(struct npu_tokenizer *tokenizer, const char *json,
			size_t length);

/* A part of a text, of which some may hold special tokens and some may not. */
struct npu_text_part {
	const char *text;
	size_t length;
	bool special;
};

/*
 * Appends the tokens of the parts, read as one text: no boundary shows between
 * them, except that no special token spans one.
 */
int npu_tokenize_parts(const struct npu_tokenizer *tokenizer,
		       const struct npu_text_part *parts, size_t count,
		       struct npu_ids *out);

#endif
