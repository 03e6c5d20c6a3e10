// SPDX-License-Identifier: MIT
/*
 * Tables of a byte-level BPE vocabulary.
 *
 * Both hash tables are filled once, to at most half, and only read afterwards,
 * so tokenizing needs no lock.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "error.h"
#include "vocab.h"

static uint32_t table_size(size_t entries)
{
	uint32_t size = 64;

	while (size < 2 * entries)
		size *= 2;
	return size;
}

int npu_vocab_init(struct npu_vocab *vocab, size_t tokens, size_t merges)
{
	uint32_t by_bytes, by_pair;

	memset(vocab, 0, sizeof(*vocab));
	memset(vocab->byte_ids, 0xff, sizeof(vocab->byte_ids));
	vocab->unknown = NPU_NO_TOKEN;
	if (tokens > NPU_VOCAB_MAX_ID || merges > NPU_VOCAB_MAX_ID)
		return npu_fail(-EBADMSG, "tokenizer: too many tokens or merges");
	by_bytes = table_size(tokens);
	by_pair = table_size(merges);
	vocab->by_bytes = malloc(by_bytes * sizeof(*vocab->by_bytes));
	vocab->merges = malloc(by_pair * sizeof(*vocab->merges));
	if (!vocab->by_bytes || !vocab->merges) {
		npu_vocab_clear(vocab);
		return npu_fail_memory();
	}
	memset(vocab->by_bytes, 0xff, by_bytes * sizeof(*vocab->by_bytes));
	memset(vocab->merges, 0xff, by_pair * sizeof(*vocab->merges));
	vocab->by_bytes_mask = by_bytes - 1;
	vocab->merges_mask = by_pair - 1;
	return 0;
}

void npu_vocab_clear(struct npu_vocab *vocab)
{
	uint32_t i;

	for (i = 0; i < vocab->size; i++)
		free(vocab->tokens[i].bytes);
	free(vocab->tokens);
	free(vocab->by_bytes);
	free(vocab->merges);
	memset(vocab, 0, sizeof(*vocab));
}

static int grow(struct npu_vocab *vocab, uint32_t id)
{
	struct npu_token *tokens;
	uint32_t size = id + 1;

	if (size <= vocab->size)
		return 0;
	/* Ids mostly come in order: grow by more than the one. */
	size += size / 2;
	tokens = realloc(vocab->tokens, size * sizeof(*tokens));
	if (!tokens)
		return npu_fail_memory();
	memset(tokens + vocab->size, 0,
	       (size - vocab->size) * sizeof(*tokens));
	vocab->tokens = tokens;
	vocab->size = size;
	return 0;
}

int npu_vocab_set(struct npu_vocab *vocab, int64_t id, const char *bytes,
		  size_t size)
{
	struct npu_token *token;
	int ret;

	if (id < 0 || id >= NPU_VOCAB_MAX_ID)
		return npu_fail(-EBADMSG, "tokenizer: bad token id %" PRId64,
				id);
	ret = grow(vocab, (uint32_t)id);
	if (ret)
		return ret;
	token = &vocab->tokens[id];
	if (token->bytes)
		return npu_fail(-EBADMSG, "tokenizer: two tokens have id %" PRId64,
				id);
	token->bytes = malloc(size + 1);
	if (!token->bytes)
		return npu_fail_memory();
	memcpy(token->bytes, bytes, size);
	token->bytes[size] = '\0';
	token->size = (uint32_t)size;
	return 0;
}

/* Slot of these bytes, or the free one where they belong. */
static uint32_t find_slot(const struct npu_vocab *vocab, const char *bytes,
			  size_t size)
{
	uint32_t i = (uint32_t)XXH3_64bits(bytes, size);

	for (;; i++) {
		int32_t id = vocab->by_bytes[i & vocab->by_bytes_mask];

		if (id < 0 || (vocab->tokens[id].size == size &&
			       !memcmp(vocab->tokens[id].bytes, bytes, size)))
			return i & vocab->by_bytes_mask;
	}
}

void npu_vocab_index(struct npu_vocab *vocab, int32_t id)
{
	const struct npu_token *token = &vocab->tokens[id];
	uint32_t slot = find_slot(vocab, token->bytes, token->size);

	if (vocab->by_bytes[slot] < 0)
		vocab->by_bytes[slot] = id;
}

int32_t npu_vocab_find(const struct npu_vocab *vocab, const char *bytes,
		       size_t size)
{
	return vocab->by_bytes[find_slot(vocab, bytes, size)];
}

void npu_vocab_find_bytes(struct npu_vocab *vocab)
{
	unsigned int i;

	for (i = 0; i < 256; i++) {
		char byte = (char)i;

		vocab->byte_ids[i] = npu_vocab_find(vocab, &byte, 1);
	}
}

static uint32_t pair_hash(int32_t left, int32_t right)
{
	uint64_t x = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;

	x *= 0x9e3779b97f4a7c15ull;
	return (uint32_t)(x >> 32);
}

static struct npu_merge *merge_slot(const struct npu_vocab *vocab,
				    int32_t left, int32_t right)
{
	uint32_t i = pair_hash(left, right);

	for (;; i++) {
		struct npu_merge *m = &vocab->merges[i & vocab->merges_mask];

		if (m->left < 0 || (m->left == left && m->right == right))
			return m;
	}
}

void npu_vocab_add_merge(struct npu_vocab *vocab, const struct npu_merge *merge)
{
	struct npu_merge *m = merge_slot(vocab, merge->left, merge->right);

	if (m->left < 0)
		*m = *merge;
}

const struct npu_merge *npu_vocab_merge(const struct npu_vocab *vocab,
					int32_t left, int32_t right)
{
	const struct npu_merge *m = merge_slot(vocab, left, right);

	return m->left < 0 ? NULL : m;
}

/*
 * GPT-2 writes the printable bytes of Latin-1 as themselves and the others, in
 * order, as U+0100 and following.
 */
static bool byte_is_printable(unsigned int b)
{
	return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) ||
	       (b >= 0xae && b <= 0xff);
}

static int byte_of_char(uint32_t c)
{
	unsigned int b, next = 0x100;

	if (c < 0x100)
		return byte_is_printable(c) ? (int)c : -1;
	for (b = 0; b < 256; b++)
		if (!byte_is_printable(b) && next++ == c)
			return (int)b;
	return -1;
}

int64_t npu_bytes_from_printable(const char *text, size_t size, char *out)
{
	const unsigned char *p = (const unsigned char *)text;
	const unsigned char *end = p + size;
	int64_t n = 0;

	/* All of these characters have one or two bytes in UTF-8. */
	while (p < end) {
		uint32_t c = *p++;
		int byte;

		if (c >= 0x80) {
			if (c < 0xc2 || c > 0xdf || p == end)
				return -1;
			c = (c & 0x1f) << 6 | (*p++ & 0x3f);
		}
		byte = byte_of_char(c);
		if (byte < 0)
			return -1;
		out[n++] = (char)byte;
	}
	return n;
}
