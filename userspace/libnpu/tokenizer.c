// SPDX-License-Identifier: MIT
/*
 * Text to tokens and back.
 *
 * As Hugging Face's tokenizers do it: added tokens are cut out of the raw
 * text, the rest is normalized, added tokens that are looked for in normalized
 * text are cut out of that, pre-tokenizers cut what is left into words, and
 * each word is byte-pair encoded.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "tokenizer.h"

/* Texts beyond this are not prompts. */
#define MAX_TEXT_BYTES	(256u << 20)

/* One tokenization: work space and where it goes. */
struct job {
	const struct npu_tokenizer *t;
	struct npu_ids *out;
	struct npu_bpe bpe;
	struct npu_ranges ranges[2];
	struct npu_text raw;	/* since the last added token */
	struct npu_text normal;
	struct npu_text words;
	bool raw_special;	/* all of it may hold special tokens */
};

static void job_clear(struct job *job)
{
	npu_bpe_clear(&job->bpe);
	free(job->ranges[0].ranges);
	free(job->ranges[1].ranges);
	npu_text_clear(&job->raw);
	npu_text_clear(&job->normal);
	npu_text_clear(&job->words);
}

static int encode_word(struct job *job, const char *bytes, size_t size)
{
	const struct npu_vocab *vocab = &job->t->vocab;

	if (job->t->ignore_merges) {
		int32_t id = npu_vocab_find(vocab, bytes, size);

		if (id >= 0)
			return npu_ids_add(job->out, id);
	}
	return npu_bpe_encode(&job->bpe, vocab, bytes, size, job->out);
}

static int encode_words(struct job *job, const char *text, size_t size)
{
	const struct npu_split *split = &job->t->split;
	unsigned int which;
	size_t i;
	int ret;

	if (!size)
		return 0;
	if (npu_split_wants_space(split) && text[0] != ' ') {
		job->words.size = 0;
		ret = npu_text_append(&job->words, " ", 1);
		if (!ret)
			ret = npu_text_append(&job->words, text, size);
		if (ret)
			return ret;
		text = job->words.bytes;
		size = job->words.size;
	}
	ret = npu_split_run(split, text, size, job->ranges, &which);
	for (i = 0; !ret && i < job->ranges[which].count; i++) {
		const struct npu_range *r = &job->ranges[which].ranges[i];

		ret = encode_word(job, text + r->start, r->end - r->start);
	}
	return ret;
}

static int encode_raw(struct job *job)
{
	struct npu_text *text = &job->normal;
	bool special = job->raw_special;
	struct npu_added_match m;
	size_t at = 0;
	int ret;

	job->raw_special = true;
	if (!job->raw.size)
		return 0;
	text->size = 0;
	ret = npu_text_append_form(text, job->raw.bytes, job->raw.size,
				   job->t->form);
	job->raw.size = 0;
	while (!ret && npu_added_find(&job->t->added, text->bytes, text->size,
				      at, true, special, &m)) {
		ret = encode_words(job, text->bytes + at, m.start - at);
		if (!ret)
			ret = npu_ids_add(job->out, m.token->id);
		at = m.end;
	}
	return ret ? ret : encode_words(job, text->bytes + at, text->size - at);
}

static int keep_raw(struct job *job, const char *text, size_t size,
		    bool special)
{
	if (size)
		job->raw_special &= special;
	return npu_text_append(&job->raw, text, size);
}

/* Valid UTF-8. */
static int encode_part(struct job *job, const char *text, size_t size,
		       bool special)
{
	struct npu_added_match m;
	size_t at = 0;
	int ret;

	while (npu_added_find(&job->t->added, text, size, at, false, special,
			      &m)) {
		ret = keep_raw(job, text + at, m.start - at, special);
		if (!ret)
			ret = encode_raw(job);
		if (!ret)
			ret = npu_ids_add(job->out, m.token->id);
		if (ret)
			return ret;
		at = m.end;
	}
	return keep_raw(job, text + at, size - at, special);
}

int npu_tokenize_parts(const struct npu_tokenizer *tokenizer,
		       const struct npu_text_part *parts, size_t count,
		       struct npu_ids *out)
{
	struct job job = { .t = tokenizer, .out = out, .raw_special = true };
	struct npu_text valid = { 0 };
	size_t i;
	int ret = 0;

	for (i = 0; i < count && !ret; i++) {
		if (parts[i].length > MAX_TEXT_BYTES) {
			ret = npu_fail(-E2BIG, "text is too long to tokenize");
			break;
		}
		valid.size = 0;
		ret = npu_text_append_utf8(&valid, parts[i].text,
					   parts[i].length);
		if (!ret)
			ret = encode_part(&job, valid.bytes, valid.size,
					  parts[i].special);
	}
	if (!ret)
		ret = encode_raw(&job);
	job_clear(&job);
	npu_text_clear(&valid);
	return ret;
}

int npu_tokenizer_create(const char *json, size_t length,
			 struct npu_tokenizer **out)
{
	struct npu_tokenizer *tokenizer;
	int ret;

	tokenizer = calloc(1, sizeof(*tokenizer));
	if (!tokenizer)
		return npu_fail_memory();
	ret = npu_tokenizer_parse(tokenizer, json, length);
	if (ret) {
		npu_tokenizer_destroy(tokenizer);
		return ret;
	}
	*out = tokenizer;
	return 0;
}

void npu_tokenizer_destroy(struct npu_tokenizer *tokenizer)
{
	if (!tokenizer)
		return;
	free(tokenizer->begin.ids);
	npu_split_clear(&tokenizer->split);
	npu_added_clear(&tokenizer->added);
	npu_vocab_clear(&tokenizer->vocab);
	free(tokenizer);
}

static int begin(const struct npu_tokenizer *tokenizer, struct npu_ids *out)
{
	size_t i;
	int ret = 0;

	for (i = 0; i < tokenizer->begin.count && !ret; i++)
		ret = npu_ids_add(out, tokenizer->begin.ids[i]);
	return ret;
}

int npu_tokenize(const struct npu_tokenizer *tokenizer, const char *text,
		 size_t length, uint32_t flags, int32_t *tokens, size_t max)
{
	struct npu_text_part part = {
		.text = text,
		.length = length,
		.special = flags & NPU_TOKENIZE_SPECIAL,
	};
	struct npu_ids ids = { 0 };
	int ret = 0;

	if (flags & ~(NPU_TOKENIZE_SPECIAL | NPU_TOKENIZE_BEGIN))
		return npu_fail(-EINVAL, "tokenize: unknown flags %#x", flags);
	if (flags & NPU_TOKENIZE_BEGIN)
		ret = begin(tokenizer, &ids);
	if (!ret)
		ret = npu_tokenize_parts(tokenizer, &part, 1, &ids);
	if (!ret && ids.count > INT_MAX)
		ret = npu_fail(-E2BIG, "text is too long to tokenize");
	if (!ret) {
		if (max && ids.count)
			memcpy(tokens, ids.ids, (max < ids.count ? max :
				ids.count) * sizeof(*tokens));
		ret = (int)ids.count;
	}
	free(ids.ids);
	return ret;
}

int npu_detokenize(const struct npu_tokenizer *tokenizer, int32_t token,
		   uint32_t flags, char *text, size_t max)
{
	const struct npu_token *t;

	if (flags & ~NPU_TOKENIZE_SPECIAL)
		return npu_fail(-EINVAL, "detokenize: unknown flags %#x",
				flags);
	if (token < 0)
		return npu_fail(-EINVAL, "no token has the id %d", token);
	/* Models pad their vocabulary; such an id has no text. */
	if ((uint32_t)token >= tokenizer->vocab.size)
		return 0;
	t = &tokenizer->vocab.tokens[token];
	if (!t->bytes || (t->special && !(flags & NPU_TOKENIZE_SPECIAL)))
		return 0;
	if (max && t->size)
		memcpy(text, t->bytes, max < t->size ? max : t->size);
	return (int)t->size;
}
