/* SPDX-License-Identifier: MIT */
#ifndef NPU_BPE_H
#define NPU_BPE_H

#include <stddef.h>
#include <stdint.h>
#include "vocab.h"

/* Token ids that grow in number. */
struct npu_ids {
	int32_t *ids;
	size_t count, room;
};

int npu_ids_add(struct npu_ids *list, int32_t id);

/*
 * Work space of one tokenization, so that each of its thousands of words does
 * not allocate. Zeroed before first use.
 */
struct npu_bpe {
	struct npu_bpe_symbol *symbols;
	size_t symbols_room;
	struct npu_bpe_candidate *heap;
	size_t heap_count, heap_room;
};

void npu_bpe_clear(struct npu_bpe *bpe);
/* Appends the tokens of one pre-token; n log n in its length. */
int npu_bpe_encode(struct npu_bpe *bpe, const struct npu_vocab *vocab,
		   const char *bytes, size_t size, struct npu_ids *out);

#endif
