// SPDX-License-Identifier: MIT
/*
 * Chat templates are programs (Jinja); the board runs none. The few formats
 * that models really use are recognized by their marks and written down as
 * prefixes and suffixes.
 */
#include "tokenizer_config.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TOKENIZER_BYTES	(256u << 20)
#define MAX_CONFIG_BYTES	(16u << 20)

static const struct chat_format formats[] = {
	{
		.name = "chatml",
		.mark = "<|im_start|>",
		.end_of_turn = "<|im_end|>",
		.before_role = "<|im_start|>",
		.after_role = "\n",
		.suffix = "<|im_end|>\n",
	}, {
		.name = "llama3",
		.mark = "<|start_header_id|>",
		.end_of_turn = "<|eot_id|>",
		.before_role = "<|start_header_id|>",
		.after_role = "<|end_header_id|>\n\n",
		.suffix = "<|eot_id|>",
		.bos = true,
	},
};

/* Optional file; an absent one reads as "nothing said". */
static int open_optional(const char *folder, const char *name,
			 struct json_file *file)
{
	char *path = xasprintf("%s/%s", folder, name);
	int ret = 0;

	memset(file, 0, sizeof(*file));
	if (file_exists(path))
		ret = json_open(path, MAX_CONFIG_BYTES, file);
	free(path);
	return ret;
}

static int add_eos(const struct json_file *file, yyjson_val *id,
		   uint32_t vocab, struct tokenizer_config *tokens)
{
	size_t i;

	if (!yyjson_is_uint(id) || yyjson_get_uint(id) >= vocab)
		return fail("%s: eos_token_id is not a token below %u",
			    file->path, vocab);
	for (i = 0; i < tokens->eos_count; i++)
		if (tokens->eos[i] == yyjson_get_uint(id))
			return 0;
	if (tokens->eos_count == MAX_EOS)
		return fail("%s: more than %d end tokens", file->path,
			    MAX_EOS);
	tokens->eos[tokens->eos_count++] = yyjson_get_uint(id);
	return 0;
}

static int read_one_id(const struct json_file *file, const char *key,
		       uint32_t vocab, int64_t *id)
{
	yyjson_val *value = json_value(file->root, key);

	/* The first Llamas say -1 for none. */
	if (!value || (yyjson_is_sint(value) && yyjson_get_sint(value) == -1))
		return 0;
	if (!yyjson_is_uint(value) || yyjson_get_uint(value) >= vocab)
		return fail("%s: %s is not a token below %u", file->path, key,
			    vocab);
	*id = yyjson_get_uint(value);
	return 0;
}

static int read_ids(const struct json_file *file, uint32_t vocab,
		    struct tokenizer_config *tokens)
{
	yyjson_val *eos = json_value(file->root, "eos_token_id"), *id;
	size_t i, count;

	if (!yyjson_is_arr(eos)) {
		if (eos && add_eos(file, eos, vocab, tokens))
			return -1;
	} else {
		yyjson_arr_foreach(eos, i, count, id)
			if (add_eos(file, id, vocab, tokens))
				return -1;
	}
	return read_one_id(file, "bos_token_id", vocab, &tokens->bos) ||
	       read_one_id(file, "pad_token_id", vocab, &tokens->pad) ?
		-1 : 0;
}

/* The id of an added token of tokenizer.json, -1 if it has no such. */
static int64_t find_added_token(const struct json_file *file, const char *text)
{
	yyjson_val *list = json_value(file->root, "added_tokens"), *token;
	size_t i, count;

	yyjson_arr_foreach(list, i, count, token)
		if (json_string_is(token, "content", text) &&
		    yyjson_is_uint(yyjson_obj_get(token, "id")))
			return yyjson_get_uint(yyjson_obj_get(token, "id"));
	return -1;
}

/* A template, or a list of named ones of which "default" counts. */
static const char *default_template(yyjson_val *value)
{
	yyjson_val *named;
	size_t i, count;

	if (!yyjson_is_arr(value))
		return yyjson_get_str(value);
	yyjson_arr_foreach(value, i, count, named)
		if (json_string_is(named, "name", "default"))
			return yyjson_get_str(
				yyjson_obj_get(named, "template"));
	return NULL;
}

static void recognize_chat(const char *template,
			   const struct json_file *tokenizer, uint32_t vocab,
			   struct tokenizer_config *tokens)
{
	int64_t end;
	size_t i;

	for (i = 0; template && i < ARRAY_SIZE(formats); i++)
		if (strstr(template, formats[i].mark) &&
		    strstr(template, formats[i].end_of_turn))
			break;
	if (!template || i == ARRAY_SIZE(formats)) {
		note("warning: %s; the model will complete text but not chat",
		     template ? "the chat template is of no known format" :
				"the model has no chat template");
		return;
	}
	end = find_added_token(tokenizer, formats[i].end_of_turn);
	if (find_added_token(tokenizer, formats[i].mark) < 0 || end < 0 ||
	    end >= vocab) {
		note("warning: the chat template is %s's, but the tokenizer lacks its tokens; the model will not chat",
		     formats[i].name);
		return;
	}
	tokens->chat = &formats[i];
	/* Base models' configs forget that a turn's end is an end. */
	for (i = 0; i < tokens->eos_count && tokens->eos[i] != end; i++)
		;
	if (i == tokens->eos_count && i < MAX_EOS)
		tokens->eos[tokens->eos_count++] = end;
}

static int read_chat(const char *folder, const struct json_file *tokenizer,
		     uint32_t vocab, struct tokenizer_config *tokens)
{
	char *path = xasprintf("%s/chat_template.jinja", folder);
	struct json_file file;
	char *text = NULL;
	size_t bytes;
	int ret = 0;

	if (open_optional(folder, "tokenizer_config.json", &file)) {
		free(path);
		return -1;
	}
	if (file_exists(path))
		ret = read_file(path, MAX_CONFIG_BYTES, &text, &bytes);
	if (!ret && file.root)
		ret = json_bool(&file, file.root, "add_bos_token",
				&tokens->add_bos);
	if (!ret)
		recognize_chat(text ? text : default_template(
				json_value(file.root, "chat_template")),
			       tokenizer, vocab, tokens);
	json_close(&file);
	free(text);
	free(path);
	return ret;
}

static int read_tokenizer(const char *folder, struct json_file *file)
{
	char *path = xasprintf("%s/tokenizer.json", folder);
	int ret;

	if (!file_exists(path))
		ret = fail("%s is missing: save the tokenizer in its fast form (AutoTokenizer, save_pretrained) first",
			   path);
	else
		ret = json_open(path, MAX_TOKENIZER_BYTES, file);
	free(path);
	if (!ret && !yyjson_is_obj(json_value(file->root, "model"))) {
		ret = fail("%s has no model: not a tokenizer", file->path);
		json_close(file);
	}
	return ret;
}

int tokenizer_config_read(const char *folder, const struct json_file *config,
			  uint32_t vocab, struct tokenizer_config *tokens)
{
	struct json_file tokenizer, generation;
	int ret;

	memset(tokens, 0, sizeof(*tokens));
	tokens->bos = tokens->pad = -1;
	if (read_tokenizer(folder, &tokenizer))
		return -1;
	ret = open_optional(folder, "generation_config.json", &generation);
	if (!ret)
		ret = read_ids(config, vocab, tokens);
	if (!ret && generation.root)
		ret = read_ids(&generation, vocab, tokens);
	if (!ret)
		ret = read_chat(folder, &tokenizer, vocab, tokens);
	if (!ret && !tokens->eos_count)
		note("warning: no end token is named; generation stops at its length only");
	if (!ret) {
		tokens->json = tokenizer.text;
		tokens->json_bytes = tokenizer.bytes;
		tokenizer.text = NULL;
	}
	json_close(&generation);
	json_close(&tokenizer);
	return ret;
}

void tokenizer_config_free(struct tokenizer_config *tokens)
{
	free(tokens->json);
	memset(tokens, 0, sizeof(*tokens));
}
