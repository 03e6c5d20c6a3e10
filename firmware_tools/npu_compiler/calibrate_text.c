// SPDX-License-Identifier: MIT
#include "calibrate_text.h"

#include <npu/npu.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "tokenizer.h"

struct prompt_text {
	struct npu_metadata metadata;
	struct npu_tokenizer *tokenizer;
};

static int read_metadata(struct prompt_text *text, const char *json,
			 size_t bytes)
{
	return npu_metadata_parse(&text->metadata, json, bytes);
}

static int read_tokenizer(struct prompt_text *text, const char *json,
			  size_t bytes)
{
	return npu_tokenizer_create(json, bytes, &text->tokenizer);
}

static int read_section(struct prompt_text *text, struct npu_file *file,
			enum npu_section_type type,
			int (*read)(struct prompt_text *text, const char *json,
				    size_t bytes))
{
	size_t bytes;
	void *data;
	int ret;

	if (npu_file_load_section(file, npu_file_find(file, type, 0), &data,
				  &bytes))
		return fail("%s", npu_error());
	ret = read(text, data, bytes);
	free(data);
	return ret ? fail("%s", npu_error()) : 0;
}

struct prompt_text *prompt_text_open(struct npu_file *file)
{
	struct prompt_text *text = xcalloc(1, sizeof(*text));

	if (!read_section(text, file, NPU_SECTION_METADATA, read_metadata) &&
	    !read_section(text, file, NPU_SECTION_TOKENIZER, read_tokenizer))
		return text;
	prompt_text_close(text);
	return NULL;
}

void prompt_text_close(struct prompt_text *text)
{
	if (!text)
		return;
	npu_metadata_clear(&text->metadata);
	npu_tokenizer_destroy(text->tokenizer);
	free(text);
}

static int encode_plain(const struct prompt_text *text, const char *prompt,
			struct npu_ids *ids)
{
	const struct npu_ids *begin = &text->tokenizer->begin;
	struct npu_text_part part = { prompt, strlen(prompt), false };
	int ret = 0;
	size_t i;

	for (i = 0; i < begin->count && !ret; i++)
		ret = npu_ids_add(ids, begin->ids[i]);
	if (!begin->count && text->metadata.add_bos)
		ret = npu_ids_add(ids, text->metadata.bos);
	return ret ? ret : npu_tokenize_parts(text->tokenizer, &part, 1, ids);
}

int prompt_text_encode(const struct prompt_text *text, const char *prompt,
		       struct npu_ids *ids)
{
	const struct npu_chat_message message = { "user", prompt };
	int ret;

	if (text->metadata.chat.present)
		ret = npu_chat_render(&text->metadata, text->tokenizer,
				      &message, 1, ids);
	else
		ret = encode_plain(text, prompt, ids);
	return ret ? fail("%s", npu_error()) : 0;
}

bool prompt_text_ends(const struct prompt_text *text, int32_t token)
{
	uint32_t i;

	for (i = 0; i < text->metadata.eos_count; i++)
		if (text->metadata.eos[i] == token)
			return true;
	return false;
}
