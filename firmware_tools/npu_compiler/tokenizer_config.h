/* SPDX-License-Identifier: MIT */
/* The tokenizer's files: special tokens, and how a chat is written. */
#ifndef NPU_COMPILER_TOKENIZER_CONFIG_H
#define NPU_COMPILER_TOKENIZER_CONFIG_H

#include "json.h"

#define MAX_EOS		8

struct chat_format {
	const char *name;
	const char *mark;		/* what only its template holds */
	const char *end_of_turn;	/* the token a reply ends with */
	const char *before_role;
	const char *after_role;
	const char *suffix;
	bool bos;
};

struct tokenizer_config {
	int64_t bos, pad;		/* -1: none */
	uint32_t eos[MAX_EOS];
	size_t eos_count;
	bool add_bos;
	const struct chat_format *chat;	/* NULL: not recognized */
	char *json;			/* tokenizer.json as it is */
	size_t json_bytes;
};

int tokenizer_config_read(const char *folder, const struct json_file *config,
			  uint32_t vocab, struct tokenizer_config *tokens);
void tokenizer_config_free(struct tokenizer_config *tokens);

#endif
