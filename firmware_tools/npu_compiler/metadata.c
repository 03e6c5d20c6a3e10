// SPDX-License-Identifier: MIT
#include "metadata.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "arch.h"
#include "version.h"

typedef yyjson_mut_doc doc_t;
typedef yyjson_mut_val val_t;

static void add_dimensions(doc_t *doc, val_t *root, const struct model *model)
{
	const struct hf_config *c = &model->config;
	const struct {
		const char *key;
		uint32_t value;
	} list[] = {
		{ "vocab", c->vocab },
		{ "hidden", c->hidden },
		{ "layers", c->layers },
		{ "heads", c->heads },
		{ "kv_heads", c->kv_heads },
		{ "head_dim", c->head_dim },
		{ "intermediate", c->intermediate },
		{ "expert_layers", model->runtime.expert_layers },
		{ "experts", model->runtime.experts },
		{ "experts_per_token", model->runtime.experts_per_token },
		{ "expert_intermediate", model->expert_shape.ffn },
		{ "shared_expert_intermediate",
		  model->arch->shared_expert ? c->shared_intermediate : 0 },
	};
	val_t *object = yyjson_mut_obj_add_obj(doc, root, "dimensions");
	size_t i;

	for (i = 0; i < ARRAY_SIZE(list); i++)
		if (list[i].value)
			yyjson_mut_obj_add_uint(doc, object, list[i].key,
						list[i].value);
}

/* Weights of one class: alike in all layers, so one line is enough. */
struct class {
	const struct weight *first;
	uint64_t count, bytes;
};

static void count_weight(struct class *classes, size_t *count,
			 const struct weight *weight)
{
	size_t i;

	for (i = 0; i < *count; i++)
		if (!strcmp(classes[i].first->class_name,
			    weight->class_name) &&
		    classes[i].first->type == weight->type &&
		    classes[i].first->rows == weight->rows &&
		    classes[i].first->cols == weight->cols)
			break;
	if (i == *count)
		classes[(*count)++].first = weight;
	classes[i].count++;
	classes[i].bytes += weight->bytes;
}

static size_t count_weights(const struct model *model, struct class *classes)
{
	size_t count = 0, i;
	int j;

	for (i = 0; i < model->weight_count; i++)
		count_weight(classes, &count, model->weights[i]);
	for (i = 0; i < model->expert_count; i++)
		for (j = 0; j < 3; j++)
			count_weight(classes, &count,
				     &model->experts[i].matrix[j]);
	return count;
}

static void add_tensors(doc_t *doc, val_t *root, const struct model *model)
{
	struct class *classes = xcalloc(model->weight_count + 3,
					sizeof(*classes));
	val_t *array = yyjson_mut_obj_add_arr(doc, root, "tensors");
	val_t *object, *shape;
	size_t count = count_weights(model, classes), i;

	for (i = 0; i < count; i++) {
		object = yyjson_mut_arr_add_obj(doc, array);
		yyjson_mut_obj_add_str(doc, object, "name",
				       classes[i].first->class_name);
		yyjson_mut_obj_add_str(doc, object, "type",
				       weight_type_name(classes[i].first->type));
		shape = yyjson_mut_obj_add_arr(doc, object, "shape");
		if (classes[i].first->rows > 1)
			yyjson_mut_arr_add_uint(doc, shape,
						classes[i].first->rows);
		yyjson_mut_arr_add_uint(doc, shape, classes[i].first->cols);
		yyjson_mut_obj_add_uint(doc, object, "count",
					classes[i].count);
		yyjson_mut_obj_add_uint(doc, object, "bytes",
					classes[i].bytes);
	}
	free(classes);
}

static void add_id(doc_t *doc, val_t *object, const char *key, int64_t id)
{
	if (id < 0)
		yyjson_mut_obj_add_null(doc, object, key);
	else
		yyjson_mut_obj_add_uint(doc, object, key, id);
}

static void add_tokens(doc_t *doc, val_t *root,
		       const struct tokenizer_config *tokens)
{
	val_t *object = yyjson_mut_obj_add_obj(doc, root, "tokens"), *eos;
	size_t i;

	add_id(doc, object, "bos", tokens->bos);
	eos = yyjson_mut_obj_add_arr(doc, object, "eos");
	for (i = 0; i < tokens->eos_count; i++)
		yyjson_mut_arr_add_uint(doc, eos, tokens->eos[i]);
	add_id(doc, object, "pad", tokens->pad);
	yyjson_mut_obj_add_bool(doc, object, "add_bos", tokens->add_bos);
}

static void add_joined(doc_t *doc, val_t *object, const char *key,
		       const char *before, const char *role,
		       const char *after)
{
	char *text = xasprintf("%s%s%s", before, role, after);

	yyjson_mut_obj_add_strcpy(doc, object, key, text);
	free(text);
}

static void add_chat(doc_t *doc, val_t *root, const struct chat_format *chat)
{
	static const char *const names[] = { "system", "user", "assistant" };
	val_t *object, *roles, *role;
	size_t i;

	if (!chat)
		return;
	object = yyjson_mut_obj_add_obj(doc, root, "chat");
	yyjson_mut_obj_add_str(doc, object, "name", chat->name);
	roles = yyjson_mut_obj_add_obj(doc, object, "roles");
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		role = yyjson_mut_obj_add_obj(doc, roles, names[i]);
		add_joined(doc, role, "prefix", chat->before_role, names[i],
			   chat->after_role);
		yyjson_mut_obj_add_str(doc, role, "suffix", chat->suffix);
	}
	add_joined(doc, object, "generation", chat->before_role, "assistant",
		   chat->after_role);
	yyjson_mut_obj_add_bool(doc, object, "bos", chat->bos);
}

static void add_hash(doc_t *doc, val_t *object, const char *key,
		     const char *data, size_t bytes)
{
	char text[17];

	snprintf(text, sizeof(text), "%016llx",
		 (unsigned long long)XXH3_64bits(data, bytes));
	yyjson_mut_obj_add_strcpy(doc, object, key, text);
}

/* Where it comes from; no time and no place, so that bytes are repeatable. */
static void add_provenance(doc_t *doc, val_t *root, const struct model *model,
			   const struct tokenizer_config *tokens,
			   const struct json_file *config)
{
	val_t *object = yyjson_mut_obj_add_obj(doc, root, "provenance");
	uint64_t bytes = 0;
	size_t i;

	for (i = 0; i < model->tensors->count; i++)
		bytes += model->tensors->tensors[i].bytes;
	yyjson_mut_obj_add_str(doc, object, "compiler",
			       "npu_compiler " NPU_COMPILER_VERSION);
	yyjson_mut_obj_add_str(doc, object, "source", "huggingface");
	yyjson_mut_obj_add_str(doc, object, "class", model->arch->class_name);
	add_hash(doc, object, "config_xxh3", config->text, config->bytes);
	add_hash(doc, object, "tokenizer_xxh3", tokens->json,
		 tokens->json_bytes);
	yyjson_mut_obj_add_uint(doc, object, "source_tensors",
				model->tensors->count);
	yyjson_mut_obj_add_uint(doc, object, "source_bytes", bytes);
}

char *metadata_write(const struct model *model, const struct options *options,
		     const char *name, const struct tokenizer_config *tokens,
		     const struct json_file *config, size_t *bytes)
{
	doc_t *doc = yyjson_mut_doc_new(NULL);
	val_t *root = yyjson_mut_obj(doc);
	char *text;

	yyjson_mut_doc_set_root(doc, root);
	yyjson_mut_obj_add_strcpy(doc, root, "name", name);
	yyjson_mut_obj_add_str(doc, root, "architecture",
			       model->arch->model_type);
	yyjson_mut_obj_add_str(doc, root, "quantization",
			       options->quant_name);
	yyjson_mut_obj_add_uint(doc, root, "context_length",
				model->runtime.context_length);
	add_dimensions(doc, root, model);
	add_tensors(doc, root, model);
	add_tokens(doc, root, tokens);
	add_chat(doc, root, tokens->chat);
	add_provenance(doc, root, model, tokens, config);
	text = yyjson_mut_write(doc, YYJSON_WRITE_PRETTY_TWO_SPACES, bytes);
	yyjson_mut_doc_free(doc);
	if (!text)
		fail("--name %s is not valid UTF-8", name);
	return text;
}
