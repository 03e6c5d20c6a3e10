// SPDX-License-Identifier: MIT
/*
 * The first byte of the input chooses: the rest is a tokenizer.json, or text
 * for a small tokenizer of which the tokens must give the text back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <npu/npu.h>
#include "input.h"
#include "metadata.h"
#include "preload.h"
#include "text.h"
#include "tokenizer.h"

#define SAMPLE "Hello \xc3\xa9t\xc3\xa9 12345  <s>\n\n x\xff"

static void try_json(const char *json, size_t size)
{
	struct npu_tokenizer *tokenizer;
	int32_t ids[64];

	if (npu_tokenizer_create(json, size, &tokenizer))
		return;
	npu_tokenize(tokenizer, SAMPLE, strlen(SAMPLE),
		     NPU_TOKENIZE_SPECIAL | NPU_TOKENIZE_BEGIN, ids, 64);
	npu_tokenizer_destroy(tokenizer);
}

static void try_metadata(const char *json, size_t size)
{
	struct npu_metadata metadata;
	struct npu_preload preload;

	if (!npu_metadata_parse(&metadata, json, size))
		npu_metadata_clear(&metadata);
	if (npu_preload_init(&preload, 3, 5))
		return;
	npu_preload_parse(&preload, json, size);
	npu_preload_clear(&preload);
}

/* All bytes, some pairs, an added token of each kind. */
static struct npu_tokenizer *make_sample(void)
{
	struct npu_text json = { 0 };
	struct npu_tokenizer *t = NULL;
	unsigned int b, next = 256;
	char item[64];

#define ADD(text) npu_text_append(&json, text, strlen(text))
	ADD("{\"added_tokens\":[{\"id\":300,\"content\":\"<s>\",\"special\":true,"
	    "\"rstrip\":false},{\"id\":301,\"content\":\"\xc3\xa9\"}],"
	    "\"pre_tokenizer\":{\"type\":\"ByteLevel\","
	    "\"add_prefix_space\":false},\"model\":{\"type\":\"BPE\","
	    "\"vocab\":{\"ab\":256,\"abab\":257");
	for (b = 0; b < 256; b++) {
		unsigned int c = (b >= 0x21 && b <= 0x7e) ||
				 (b >= 0xa1 && b != 0xad) ? b : next++;

		snprintf(item, sizeof(item), ",\"\\u%04x\":%u", c, b);
		ADD(item);
	}
	ADD("},\"merges\":[\"a b\",\"ab ab\"]}}");
#undef ADD
	npu_tokenizer_create(json.bytes, json.size, &t);
	npu_text_clear(&json);
	return t;
}

/* Tokens stand for the text, with what is invalid replaced. */
static void try_text(const struct npu_tokenizer *t, const char *text,
		     size_t size)
{
	struct npu_text valid = { 0 }, back = { 0 };
	int n, i, k;
	int32_t *ids;
	char buf[8];

	n = npu_tokenize(t, text, size, NPU_TOKENIZE_SPECIAL, NULL, 0);
	if (n < 0)
		abort();
	ids = calloc((size_t)n + 1, sizeof(*ids));
	npu_tokenize(t, text, size, NPU_TOKENIZE_SPECIAL, ids, (size_t)n);
	for (i = 0; i < n; i++) {
		k = npu_detokenize(t, ids[i], NPU_TOKENIZE_SPECIAL, buf,
				   sizeof(buf));
		npu_text_append(&back, buf, (size_t)k);
	}
	npu_text_append_utf8(&valid, text, size);
	if (valid.size != back.size ||
	    (valid.size && memcmp(valid.bytes, back.bytes, valid.size)))
		abort();
	npu_text_clear(&valid);
	npu_text_clear(&back);
	free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct npu_tokenizer *sample;
	const char *rest = (const char *)data + 1;

	if (!size)
		return 0;
	if (!sample)
		sample = make_sample();
	if (!sample)
		abort();
	switch (data[0] % 3) {
	case 0:
		try_json(rest, size - 1);
		break;
	case 1:
		try_metadata(rest, size - 1);
		break;
	default:
		try_text(sample, rest, size - 1);
		break;
	}
	return 0;
}
