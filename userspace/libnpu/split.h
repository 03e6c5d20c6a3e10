/* SPDX-License-Identifier: MIT */
/*
 * Pre-tokenizers: rules that cut text into the words BPE works on.
 */
#ifndef NPU_SPLIT_H
#define NPU_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <yyjson.h>

struct npu_split_rule;

struct npu_split {
	struct npu_split_rule *rules;
	size_t count;
	bool byte_level;	/* the last rule is ByteLevel */
};

/* A piece of text: [start, end) */
struct npu_range {
	size_t start, end;
};

struct npu_ranges {
	struct npu_range *ranges;
	size_t count, room;
};

/*
 * From tokenizer.json's "pre_tokenizer". -ENOTSUP: a kind that libnpu does not
 * know, -EBADMSG: not well-formed; the message says which.
 */
int npu_split_parse(struct npu_split *split, yyjson_val *json);
void npu_split_clear(struct npu_split *split);

/* Does the first rule want a space before a text that begins without? */
bool npu_split_wants_space(const struct npu_split *split);
/*
 * Cuts valid UTF-8 @text. @ranges[0] and [1] are work space; returns in @which
 * the one that holds the result.
 */
int npu_split_run(const struct npu_split *split, const char *text, size_t size,
		  struct npu_ranges ranges[2], unsigned int *which);

#endif
