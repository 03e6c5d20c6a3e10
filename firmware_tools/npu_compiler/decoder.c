// SPDX-License-Identifier: MIT
/*
 * What all decoders of the family share: embedding, attention, head, and the
 * order of it all. The feed-forward part is the architecture's.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch.h"
#include "experts.h"

#define NAME_BYTES	160

static bool has_bias(const struct hf_config *config, enum arch_bias bias)
{
	switch (bias) {
	case BIAS_ALWAYS:
		return true;
	case BIAS_ATTENTION:
		return config->attention_bias;
	case BIAS_QKV:
		return config->qkv_bias;
	case BIAS_NEVER:
		break;
	}
	return false;
}

static struct weight *add_norm(struct model *model, const char *class_name,
			       uint32_t layer, const char *name,
			       uint64_t width)
{
	char text[NAME_BYTES];
	struct model_part part = { text, width };

	snprintf(text, sizeof(text), "model.layers.%u.%s.weight", layer, name);
	return model_add_vector(model, class_name, &part, 1);
}

static int plan_qkv(struct model *model, uint32_t index)
{
	static const char *const names[3] = { "q_proj", "k_proj", "v_proj" };
	const struct hf_config *c = &model->config;
	struct layer *layer = &model->layers[index];
	char weights[3][NAME_BYTES], biases[3][NAME_BYTES];
	struct model_part weight[3], bias[3];
	uint64_t rows;
	int i;

	for (i = 0; i < 3; i++) {
		rows = (i ? c->kv_heads : c->heads) * c->head_dim;
		snprintf(weights[i], NAME_BYTES,
			 "model.layers.%u.self_attn.%s.weight", index,
			 names[i]);
		snprintf(biases[i], NAME_BYTES,
			 "model.layers.%u.self_attn.%s.bias", index, names[i]);
		weight[i] = (struct model_part){ weights[i], rows };
		bias[i] = (struct model_part){ biases[i], rows };
	}
	layer->qkv = model_add_weight(model, "attention.qkv", ROLE_MATRIX,
				      weight, 3, c->hidden);
	if (!layer->qkv)
		return -1;
	if (!has_bias(c, model->arch->qkv_bias))
		return 0;
	layer->qkv_bias = model_add_vector(model, "attention.qkv_bias", bias,
					   3);
	return layer->qkv_bias ? 0 : -1;
}

static int plan_o(struct model *model, uint32_t index)
{
	const struct hf_config *c = &model->config;
	struct layer *layer = &model->layers[index];
	char name[NAME_BYTES];
	struct model_part part = { name, c->hidden };

	snprintf(name, sizeof(name), "model.layers.%u.self_attn.o_proj.weight",
		 index);
	layer->o = model_add_weight(model, "attention.o", ROLE_MATRIX, &part,
				    1, (uint64_t)c->heads * c->head_dim);
	if (!layer->o)
		return -1;
	if (!has_bias(c, model->arch->o_bias))
		return 0;
	snprintf(name, sizeof(name), "model.layers.%u.self_attn.o_proj.bias",
		 index);
	layer->o_bias = model_add_vector(model, "attention.o_bias", &part, 1);
	return layer->o_bias ? 0 : -1;
}

static int plan_qk_norm(struct model *model, uint32_t index)
{
	struct layer *layer = &model->layers[index];
	uint32_t width = model->config.head_dim;

	if (!model->arch->qk_norm)
		return 0;
	layer->q_norm = add_norm(model, "attention.q_norm", index,
				 "self_attn.q_norm", width);
	layer->k_norm = add_norm(model, "attention.k_norm", index,
				 "self_attn.k_norm", width);
	return layer->q_norm && layer->k_norm ? 0 : -1;
}

static int plan_layer(struct model *model, uint32_t index)
{
	struct layer *layer = &model->layers[index];
	uint32_t hidden = model->config.hidden;

	layer->attention_norm = add_norm(model, "attention.norm", index,
					 "input_layernorm", hidden);
	if (!layer->attention_norm || plan_qkv(model, index) ||
	    plan_qk_norm(model, index) || plan_o(model, index))
		return -1;
	layer->ffn_norm = add_norm(model, "ffn.norm", index,
				   "post_attention_layernorm", hidden);
	if (!layer->ffn_norm)
		return -1;
	return model->arch->plan_ffn(model, index);
}

/*
 * Llama 3's stretching of the context: low frequencies are divided by the
 * factor, high ones stay, those between are blended.
 */
static void plan_rope(struct model *model)
{
	const struct rope_config *rope = &model->config.rope;
	uint32_t pairs = model->config.head_dim / 2, i;
	double frequency, turns, blend;
	float *divisors;

	if (rope->kind != ROPE_LLAMA3)
		return;
	divisors = xcalloc(pairs, sizeof(*divisors));
	for (i = 0; i < pairs; i++) {
		frequency = pow(rope->theta, -(double)i / pairs);
		turns = rope->original_context * frequency / (2 * M_PI);
		blend = (turns - rope->low_freq_factor) /
			(rope->high_freq_factor - rope->low_freq_factor);
		blend = fmin(fmax(blend, 0), 1);
		divisors[i] = 1 / (blend + (1 - blend) / rope->factor);
	}
	model->rope_divisors = model_add_values(model, "rope.divisors",
						M6NPU_TYPE_F32, divisors,
						pairs);
}

/*
 * Some files repeat the tied matrix under its second name. Where it differs,
 * older releases of transformers tie nevertheless and newer ones do not.
 */
static int check_repeated_head(const struct model *model, struct tensor *head)
{
	const struct tensor *embedding = model->embedding->part[0];

	head->used = true;
	if (head->type == embedding->type && head->bytes == embedding->bytes &&
	    !memcmp(head->data, embedding->data, head->bytes))
		return 0;
	return fail("tensor %s is not the embedding, which tie_word_embeddings in config.json says it is: set that to false, or remove the tensor",
		    head->name);
}

static int plan_head(struct model *model)
{
	const struct hf_config *c = &model->config;
	struct model_part norm = { "model.norm.weight", c->hidden };
	struct model_part head = { "lm_head.weight", c->vocab };
	struct tensor *tensor = tensor_find(model->tensors, head.name);

	model->final_norm = model_add_vector(model, "final.norm", &norm, 1);
	if (!model->final_norm)
		return -1;
	if (c->tied || (!c->tied_given && !tensor)) {
		model->head = model->embedding;
		return tensor ? check_repeated_head(model, tensor) : 0;
	}
	model->head = model_add_weight(model, "head", ROLE_EMBEDDING, &head,
				       1, c->hidden);
	return model->head ? 0 : -1;
}

static bool ignorable(const char *name)
{
	const char *suffix = ".rotary_emb.inv_freq";
	size_t bytes = strlen(name), tail = strlen(suffix);

	return bytes > tail && !strcmp(name + bytes - tail, suffix);
}

static int refuse_leftovers(const struct model *model)
{
	const struct tensor_set *set = model->tensors;
	size_t i;

	for (i = 0; i < set->count; i++)
		if (!set->tensors[i].used && !ignorable(set->tensors[i].name))
			return fail("tensor %s has no place in a %s model: the model has a part that is not supported",
				    set->tensors[i].name,
				    model->arch->model_type);
	return 0;
}

static void plan_io(struct model *model)
{
	struct npu_runtime *r = &model->runtime;
	uint64_t bytes = 0;

	r->max_tile = model->tiles[model->tile_count - 1];
	r->max_out = r->max_tile < MODEL_MAX_OUT ? r->max_tile : MODEL_MAX_OUT;
	r->topk = r->vocab < MODEL_TOPK ? r->vocab : MODEL_TOPK;
	r->step_offset = model_place(&bytes, sizeof(struct m6npu_step) +
			       r->max_tile * sizeof(struct m6npu_step_token));
	r->logits_offset = model_place(&bytes, 4ull * r->max_out * r->vocab);
	r->hidden_offset = model_place(&bytes, 4ull * r->max_out * r->hidden);
	r->topk_ids_offset = model_place(&bytes, 4ull * r->max_out * r->topk);
	r->topk_values_offset = model_place(&bytes,
					    4ull * r->max_out * r->topk);
	experts_plan_io(r, &bytes);
	r->time_offset = model_place(&bytes, 2 * 16);
	r->io_bytes = align_up(bytes, NPU_FILE_ALIGN);
}

static void plan_runtime(struct model *model)
{
	const struct hf_config *c = &model->config;
	struct npu_runtime *r = &model->runtime;
	struct command_list list;
	size_t i;

	r->vocab = c->vocab;
	r->hidden = c->hidden;
	r->kv_layers = c->layers;
	r->kv_heads = c->kv_heads;
	r->head_dim = c->head_dim;
	r->context_length = c->context;
	r->weights_bytes = align_up(r->weights_bytes, NPU_FILE_ALIGN);
	plan_io(model);
	for (i = 0; i < model->tile_count; i++) {
		model_emit(model, model->tiles[i], &list);
		if (list.arena.peak > r->scratch_bytes)
			r->scratch_bytes = align_up(list.arena.peak,
						    NPU_FILE_ALIGN);
		command_list_free(&list);
	}
}

int model_plan(struct model *model)
{
	const struct hf_config *c = &model->config;
	struct model_part embedding = { "model.embed_tokens.weight",
					c->vocab };
	uint32_t i;

	model->layers = xcalloc(c->layers, sizeof(*model->layers));
	model->embedding = model_add_weight(model, "embedding",
					    ROLE_EMBEDDING, &embedding, 1,
					    c->hidden);
	if (!model->embedding)
		return -1;
	plan_rope(model);
	for (i = 0; i < c->layers; i++)
		if (plan_layer(model, i))
			return -1;
	if (plan_head(model) || refuse_leftovers(model) || experts_plan(model))
		return -1;
	plan_runtime(model);
	return 0;
}

static void emit_attention_part(const struct model *model, uint32_t index,
				struct command_list *list,
				struct activation x)
{
	const struct hf_config *c = &model->config;
	const struct layer *layer = &model->layers[index];
	const struct attention_shape attention = {
		c->heads, c->kv_heads, c->head_dim, 1 / sqrt(c->head_dim),
	};
	const struct rope_shape rope = {
		c->heads + c->kv_heads, c->head_dim, c->rope.theta,
		c->rope.kind == ROPE_LINEAR ? 1 / c->rope.factor : 1,
		model->rope_divisors,
	};
	struct activation normed, qkv, keys, mixed;

	normed = command_take(list, c->hidden);
	emit_norm(list, 0, normed, x, layer->attention_norm, 1, c->eps);
	qkv = command_take(list, layer->qkv->rows);
	emit_gemm(list, 0, qkv, normed, layer->qkv, layer->qkv_bias);
	command_give(list, normed);
	if (layer->q_norm) {
		keys = activation_column(qkv, c->heads * c->head_dim);
		emit_norm(list, 0, qkv, qkv, layer->q_norm, c->heads, c->eps);
		emit_norm(list, 0, keys, keys, layer->k_norm, c->kv_heads,
			  c->eps);
	}
	emit_rope(list, qkv, &rope);
	mixed = command_take(list, c->heads * c->head_dim);
	emit_attention(list, mixed, qkv, index, &attention);
	command_give(list, qkv);
	emit_gemm(list, M6NPU_CMD_ACCUMULATE, x, mixed, layer->o,
		  layer->o_bias);
	command_give(list, mixed);
}

static void emit_results(const struct model *model, struct command_list *list,
			 struct activation x)
{
	const struct npu_runtime *r = &model->runtime;
	struct activation hidden = {
		M6NPU_OPERAND(NPU_REGION_IO, r->hidden_offset), r->hidden,
	};
	struct activation logits = {
		M6NPU_OPERAND(NPU_REGION_IO, r->logits_offset), r->vocab,
	};
	struct activation wanted = command_take(list, r->hidden);

	emit_gather(list, wanted, x, r->hidden);
	emit_norm(list, M6NPU_CMD_OUT_ROWS, hidden, wanted, model->final_norm,
		  1, model->config.eps);
	command_give(list, wanted);
	emit_gemm(list, M6NPU_CMD_OUT_ROWS, logits, hidden, model->head, NULL);
	emit_topk(list, M6NPU_OPERAND(NPU_REGION_IO, r->topk_ids_offset),
		  M6NPU_OPERAND(NPU_REGION_IO, r->topk_values_offset),
		  logits.operand, r->vocab, r->topk);
}

void model_emit(const struct model *model, uint32_t tile,
		struct command_list *list)
{
	const struct hf_config *c = &model->config;
	struct activation x, normed;
	uint32_t i;

	memset(list, 0, sizeof(*list));
	list->rows = tile;
	list->out_rows = tile < MODEL_MAX_OUT ? tile : MODEL_MAX_OUT;
	emit_timestamp(list, model->runtime.time_offset);
	x = command_take(list, c->hidden);
	emit_embed(list, x, model->embedding);
	for (i = 0; i < c->layers; i++) {
		emit_attention_part(model, i, list, x);
		normed = command_take(list, c->hidden);
		emit_norm(list, 0, normed, x, model->layers[i].ffn_norm, 1,
			  c->eps);
		model->arch->emit_ffn(model, i, list, x, normed);
		command_give(list, normed);
	}
	emit_results(model, list, x);
	command_give(list, x);
	emit_timestamp(list, model->runtime.time_offset + 16);
}
