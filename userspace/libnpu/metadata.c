// SPDX-License-Identifier: MIT
/*
 * The METADATA section of a .npu file.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include "error.h"
#include "metadata.h"

const char *const npu_role_names[NPU_ROLE_COUNT] = {
	[NPU_ROLE_SYSTEM] = "system",
	[NPU_ROLE_USER] = "user",
	[NPU_ROLE_ASSISTANT] = "assistant",
};

static int bad(const char *key, const char *what)
{
	return npu_fail(-EBADMSG, "metadata: \"%s\" is not %s", key, what);
}

/* Absent and null leave NULL. */
static int get_string(yyjson_val *json, const char *key, char **out)
{
	yyjson_val *v = yyjson_obj_get(json, key);

	if (!v || yyjson_is_null(v))
		return 0;
	/* A NUL inside would silently cut it. */
	if (!yyjson_is_str(v) ||
	    strlen(yyjson_get_str(v)) != yyjson_get_len(v))
		return bad(key, "a string");
	*out = strdup(yyjson_get_str(v));
	return *out ? 0 : npu_fail_memory();
}

static int need_string(yyjson_val *json, const char *key, char **out)
{
	int ret = get_string(json, key, out);

	if (ret)
		return ret;
	return *out ? 0 : bad(key, "there");
}

static int to_token(const char *key, yyjson_val *v, int32_t *out)
{
	if (!yyjson_is_uint(v) || yyjson_get_uint(v) > INT32_MAX)
		return bad(key, "a token id");
	*out = (int32_t)yyjson_get_uint(v);
	return 0;
}

static int get_token(yyjson_val *json, const char *key, int32_t *out)
{
	yyjson_val *v = yyjson_obj_get(json, key);

	*out = -1;
	if (!v || yyjson_is_null(v))
		return 0;
	return to_token(key, v, out);
}

static int parse_tokens(struct npu_metadata *m, yyjson_val *json)
{
	yyjson_val *eos = yyjson_obj_get(json, "eos");
	yyjson_val *add_bos = yyjson_obj_get(json, "add_bos");
	yyjson_val *item;
	size_t i, n;
	int ret;

	if (json && !yyjson_is_obj(json))
		return bad("tokens", "an object");
	ret = get_token(json, "bos", &m->bos);
	if (!ret)
		ret = get_token(json, "pad", &m->pad);
	m->add_bos = yyjson_is_true(add_bos) && m->bos >= 0;
	if (ret || !eos || yyjson_is_null(eos))
		return ret;
	if (!yyjson_is_arr(eos) || yyjson_arr_size(eos) > NPU_MAX_EOS)
		return bad("eos", "a list of at most 8 token ids");
	yyjson_arr_foreach(eos, i, n, item) {
		ret = to_token("eos", item, &m->eos[m->eos_count]);
		if (ret)
			return ret;
		m->eos_count++;
	}
	return 0;
}

static int parse_role(struct npu_role_frame *frame, yyjson_val *json,
		      const char *role)
{
	int ret;

	if (!json || yyjson_is_null(json))
		return 0;
	if (!yyjson_is_obj(json))
		return bad(role, "an object");
	ret = need_string(json, "prefix", &frame->prefix);
	return ret ? ret : need_string(json, "suffix", &frame->suffix);
}

static int parse_chat(struct npu_chat_format *chat, yyjson_val *json)
{
	yyjson_val *roles = yyjson_obj_get(json, "roles");
	unsigned int i;
	int ret;

	if (!json || yyjson_is_null(json))
		return 0;
	if (!yyjson_is_obj(json) || !yyjson_is_obj(roles))
		return bad("chat", "an object with roles");
	ret = get_string(json, "name", &chat->name);
	for (i = 0; i < NPU_ROLE_COUNT && !ret; i++)
		ret = parse_role(&chat->roles[i],
				 yyjson_obj_get(roles, npu_role_names[i]),
				 npu_role_names[i]);
	if (!ret && !chat->roles[NPU_ROLE_USER].prefix)
		ret = bad("roles", "with a user");
	if (!ret)
		ret = need_string(json, "generation", &chat->generation);
	if (!ret)
		ret = get_string(json, "default_system",
				 &chat->default_system);
	if (!ret && chat->default_system &&
	    !chat->roles[NPU_ROLE_SYSTEM].prefix)
		ret = bad("default_system", "usable without a system role");
	chat->bos = yyjson_is_true(yyjson_obj_get(json, "bos"));
	chat->present = !ret;
	return ret;
}

static int parse_root(struct npu_metadata *m, yyjson_val *root)
{
	yyjson_val *context = yyjson_obj_get(root, "context_length");
	int ret;

	if (!yyjson_is_obj(root))
		return npu_fail(-EBADMSG, "metadata: not an object");
	ret = need_string(root, "name", &m->name);
	if (!ret)
		ret = need_string(root, "architecture", &m->architecture);
	if (!ret)
		ret = need_string(root, "quantization", &m->quantization);
	if (!ret && context && (!yyjson_is_uint(context) ||
				yyjson_get_uint(context) > UINT32_MAX))
		ret = bad("context_length", "a number of tokens");
	if (ret)
		return ret;
	m->context_length = (uint32_t)yyjson_get_uint(context);
	ret = parse_tokens(m, yyjson_obj_get(root, "tokens"));
	if (!ret)
		ret = parse_chat(&m->chat, yyjson_obj_get(root, "chat"));
	if (!ret && m->chat.bos && m->bos < 0)
		ret = bad("bos", "there, but the chat format wants it");
	return ret;
}

int npu_metadata_parse(struct npu_metadata *metadata, const char *json,
		       size_t length)
{
	yyjson_read_err error;
	yyjson_doc *doc;
	int ret;

	*metadata = (struct npu_metadata){ .bos = -1, .pad = -1 };
	doc = yyjson_read_opts((char *)(uintptr_t)json, length, 0, NULL,
			       &error);
	if (!doc)
		return npu_fail(-EBADMSG, "metadata: not JSON, at byte %zu: %s",
				error.pos, error.msg);
	ret = parse_root(metadata, yyjson_doc_get_root(doc));
	yyjson_doc_free(doc);
	if (ret)
		npu_metadata_clear(metadata);
	return ret;
}

void npu_metadata_clear(struct npu_metadata *metadata)
{
	unsigned int i;

	free(metadata->name);
	free(metadata->architecture);
	free(metadata->quantization);
	free(metadata->chat.name);
	free(metadata->chat.generation);
	free(metadata->chat.default_system);
	for (i = 0; i < NPU_ROLE_COUNT; i++) {
		free(metadata->chat.roles[i].prefix);
		free(metadata->chat.roles[i].suffix);
	}
	*metadata = (struct npu_metadata){ 0 };
}
