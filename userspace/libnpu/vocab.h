/* SPDX-License-Identifier: MIT */
/*
 * A byte-level BPE vocabulary: tokens as byte strings, merges as pairs of
 * tokens. The printable characters that tokenizer.json writes for bytes exist
 * only while it is parsed.
 */
#ifndef NPU_VOCAB_H
#define NPU_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ids index an array. */
#define NPU_VOCAB_MAX_ID	(1 << 24)
#define NPU_NO_TOKEN		(-1)

struct npu_token {
	char *bytes;		/* NULL: no such id */
	uint32_t size;
	bool special;		/* of an added token */
	bool added;
};

struct npu_merge {
	int32_t left, right;
	int32_t rank;		/* lower merges first */
	int32_t result;
};

struct npu_vocab {
	struct npu_token *tokens;	/* by id */
	uint32_t size;			/* highest id + 1 */
	int32_t *by_bytes;		/* hash table of ids, -1 is free */
	uint32_t by_bytes_mask;
	struct npu_merge *merges;	/* hash table, left -1 is free */
	uint32_t merges_mask;
	int32_t byte_ids[256];		/* token of a single byte, or -1 */
	int32_t unknown;		/* for bytes without one, or -1 */
};

/* @tokens: how many are going to be added; the same for merges. */
int npu_vocab_init(struct npu_vocab *vocab, size_t tokens, size_t merges);
void npu_vocab_clear(struct npu_vocab *vocab);

/* Copies @bytes. -EBADMSG: bad or used id. */
int npu_vocab_set(struct npu_vocab *vocab, int64_t id, const char *bytes,
		  size_t size);
/* Makes the token findable by its bytes (added tokens are not). */
void npu_vocab_index(struct npu_vocab *vocab, int32_t id);
int32_t npu_vocab_find(const struct npu_vocab *vocab, const char *bytes,
		       size_t size);
/* After all tokens are indexed. */
void npu_vocab_find_bytes(struct npu_vocab *vocab);

/* A pair that is there already keeps its rank. */
void npu_vocab_add_merge(struct npu_vocab *vocab, const struct npu_merge *merge);
const struct npu_merge *npu_vocab_merge(const struct npu_vocab *vocab,
					int32_t left, int32_t right);

/*
 * Undoes GPT-2's mapping of bytes to printable characters. Returns the number
 * of bytes written to @out (at most @size), -1 if @text holds another
 * character.
 */
int64_t npu_bytes_from_printable(const char *text, size_t size, char *out);

#endif
