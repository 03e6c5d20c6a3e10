// SPDX-License-Identifier: MIT
/*
 * Byte-pair encoding of one pre-token.
 *
 * Symbols are a doubly linked list in an array; mergeable neighbours wait in a
 * heap, lowest rank first and leftmost among equals. A candidate whose symbols
 * have changed since is recognized by their ids and skipped. So a megabyte
 * without a space costs n log n, where searching the list for each merge would
 * take n^2.
 */
#include <errno.h>
#include <stdlib.h>

#include "bpe.h"
#include "error.h"

struct npu_bpe_symbol {
	int32_t id;		/* NPU_NO_TOKEN: merged into its left one */
	int32_t prev, next;	/* -1 at the ends */
};

struct npu_bpe_candidate {
	int32_t rank;
	int32_t left, right;		/* indices of symbols */
	int32_t left_id, right_id;	/* as they were */
	int32_t result;
};

int npu_ids_add(struct npu_ids *list, int32_t id)
{
	if (list->count == list->room) {
		size_t room = list->room ? 2 * list->room : 256;
		int32_t *ids = realloc(list->ids, room * sizeof(*ids));

		if (!ids)
			return npu_fail_memory();
		list->ids = ids;
		list->room = room;
	}
	list->ids[list->count++] = id;
	return 0;
}

void npu_bpe_clear(struct npu_bpe *bpe)
{
	free(bpe->symbols);
	free(bpe->heap);
	*bpe = (struct npu_bpe){ 0 };
}

static bool before(const struct npu_bpe_candidate *a,
		   const struct npu_bpe_candidate *b)
{
	if (a->rank != b->rank)
		return a->rank < b->rank;
	return a->left < b->left;
}

static void push(struct npu_bpe *bpe, const struct npu_bpe_candidate *c)
{
	struct npu_bpe_candidate *heap = bpe->heap;
	size_t i = bpe->heap_count++;

	while (i && before(c, &heap[(i - 1) / 2])) {
		heap[i] = heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap[i] = *c;
}

static struct npu_bpe_candidate pop(struct npu_bpe *bpe)
{
	struct npu_bpe_candidate *heap = bpe->heap;
	struct npu_bpe_candidate top = heap[0], last;
	size_t i = 0, child, n = --bpe->heap_count;

	last = heap[n];
	for (; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && before(&heap[child + 1], &heap[child]))
			child++;
		if (!before(&heap[child], &last))
			break;
		heap[i] = heap[child];
	}
	heap[i] = last;
	return top;
}

static void consider(struct npu_bpe *bpe, const struct npu_vocab *vocab,
		     int32_t left)
{
	const struct npu_bpe_symbol *s = bpe->symbols;
	struct npu_bpe_candidate c;
	const struct npu_merge *m;

	if (left < 0 || s[left].next < 0)
		return;
	c.left = left;
	c.right = s[left].next;
	c.left_id = s[left].id;
	c.right_id = s[c.right].id;
	m = npu_vocab_merge(vocab, c.left_id, c.right_id);
	if (!m)
		return;
	c.rank = m->rank;
	c.result = m->result;
	push(bpe, &c);
}

/*
 * Every merge removes a symbol and pushes at most two candidates, so 3n of
 * them are room enough and push() need not check.
 */
static int reserve(struct npu_bpe *bpe, size_t size)
{
	void *p;

	if (size > INT32_MAX / 4)
		return npu_fail(-E2BIG, "text is too long to tokenize");
	if (size <= bpe->symbols_room)
		return 0;
	size += size / 2;
	p = realloc(bpe->symbols, size * sizeof(*bpe->symbols));
	if (!p)
		return npu_fail_memory();
	bpe->symbols = p;
	bpe->symbols_room = size;
	p = realloc(bpe->heap, 3 * size * sizeof(*bpe->heap));
	if (!p) {
		bpe->symbols_room = 0;
		return npu_fail_memory();
	}
	bpe->heap = p;
	return 0;
}

static int32_t split_bytes(struct npu_bpe *bpe, const struct npu_vocab *vocab,
			   const char *bytes, size_t size)
{
	struct npu_bpe_symbol *s = bpe->symbols;
	int32_t n = 0;
	size_t i;

	for (i = 0; i < size; i++) {
		int32_t id = vocab->byte_ids[(unsigned char)bytes[i]];

		if (id < 0)
			id = vocab->unknown;
		if (id < 0)
			continue;
		s[n] = (struct npu_bpe_symbol){ id, n - 1, n + 1 };
		n++;
	}
	if (n)
		s[n - 1].next = -1;
	return n;
}

static void merge(struct npu_bpe *bpe, const struct npu_bpe_candidate *c)
{
	struct npu_bpe_symbol *s = bpe->symbols;
	struct npu_bpe_symbol *left = &s[c->left], *right = &s[c->right];

	left->id = c->result;
	left->next = right->next;
	if (right->next >= 0)
		s[right->next].prev = c->left;
	right->id = NPU_NO_TOKEN;
}

static bool is_current(const struct npu_bpe *bpe,
		       const struct npu_bpe_candidate *c)
{
	const struct npu_bpe_symbol *s = bpe->symbols;

	return s[c->left].id == c->left_id && s[c->left].next == c->right &&
	       s[c->right].id == c->right_id;
}

int npu_bpe_encode(struct npu_bpe *bpe, const struct npu_vocab *vocab,
		   const char *bytes, size_t size, struct npu_ids *out)
{
	int32_t i, n;
	int ret;

	ret = reserve(bpe, size);
	if (ret)
		return ret;
	n = split_bytes(bpe, vocab, bytes, size);
	bpe->heap_count = 0;
	for (i = 0; i < n; i++)
		consider(bpe, vocab, i);
	while (bpe->heap_count) {
		struct npu_bpe_candidate c = pop(bpe);

		if (!is_current(bpe, &c))
			continue;
		merge(bpe, &c);
		consider(bpe, vocab, bpe->symbols[c.left].prev);
		consider(bpe, vocab, c.left);
	}
	for (i = n ? 0 : -1; i >= 0 && !ret; i = bpe->symbols[i].next)
		ret = npu_ids_add(out, bpe->symbols[i].id);
	return ret;
}
