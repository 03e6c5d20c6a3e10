// SPDX-License-Identifier: MIT
/*
 * config.json has no schema: keys came and moved over the years. Each is read
 * where any release of transformers puts it, and whatever would change the
 * arithmetic in a way that is not implemented is refused, because a model that
 * runs a little wrong is worse than one that does not run.
 */
#include "hf_config.h"

#include <math.h>
#include <string.h>

#include "m6npu_regs.h"

/* Generous, and small enough that products of two stay far from overflow. */
#define MAX_WIDTH	(1u << 18)
#define MAX_VOCAB	(1u << 22)
#define MAX_CONTEXT	(1u << 24)
#define MAX_ROUTED	64	/* the NPU's ROUTER_TOPK */
#define MAX_HEAD_DIM	1024
#define MISTRAL_WINDOW	4096

static void copy_text(yyjson_val *value, char *text, size_t room)
{
	const char *found = yyjson_get_str(value);

	if (found && strlen(found) < room)
		memcpy(text, found, strlen(found) + 1);
}

static int read_names(const struct json_file *file, struct hf_config *config)
{
	yyjson_val *classes = json_value(file->root, "architectures");

	copy_text(json_value(file->root, "model_type"), config->model_type,
		  sizeof(config->model_type));
	copy_text(yyjson_arr_get_first(classes), config->class_name,
		  sizeof(config->class_name));
	if (!config->model_type[0])
		return fail("%s has no model_type: not the config of a language model",
			    file->path);
	if (json_value(file->root, "quantization_config"))
		return fail("%s: the model is already quantized (quantization_config): use the original F16 or BF16 model",
			    file->path);
	return 0;
}

static int need(const struct json_file *file, const char *key, uint32_t value)
{
	return value ? 0 : fail("%s lacks %s", file->path, key);
}

static int read_dimensions(const struct json_file *file, struct hf_config *c)
{
	yyjson_val *root = file->root;

	if (json_u32(file, root, "vocab_size", 1, MAX_VOCAB, &c->vocab) ||
	    json_u32(file, root, "hidden_size", 1, MAX_WIDTH, &c->hidden) ||
	    json_u32(file, root, "intermediate_size", 1, MAX_WIDTH,
		     &c->intermediate) ||
	    json_u32(file, root, "num_hidden_layers", 1, HF_MAX_LAYERS,
		     &c->layers) ||
	    json_u32(file, root, "num_attention_heads", 1, 512, &c->heads) ||
	    json_u32(file, root, "num_key_value_heads", 1, 512,
		     &c->kv_heads) ||
	    json_u32(file, root, "head_dim", 2, MAX_HEAD_DIM, &c->head_dim) ||
	    json_u32(file, root, "max_position_embeddings", 1, MAX_CONTEXT,
		     &c->context))
		return -1;
	if (need(file, "vocab_size", c->vocab) ||
	    need(file, "hidden_size", c->hidden) ||
	    need(file, "num_hidden_layers", c->layers) ||
	    need(file, "num_attention_heads", c->heads) ||
	    need(file, "max_position_embeddings", c->context))
		return -1;
	if (!c->kv_heads)
		c->kv_heads = c->heads;
	if (!c->head_dim && c->hidden % c->heads)
		return fail("%s: hidden_size %u is no multiple of num_attention_heads %u, and there is no head_dim",
			    file->path, c->hidden, c->heads);
	if (!c->head_dim)
		c->head_dim = c->hidden / c->heads;
	if (c->head_dim % 2)
		return fail("%s: head_dim %u is odd", file->path, c->head_dim);
	if (c->heads % c->kv_heads)
		return fail("%s: num_attention_heads %u is no multiple of num_key_value_heads %u",
			    file->path, c->heads, c->kv_heads);
	if (c->head_dim > MAX_HEAD_DIM)
		return fail("%s: heads of %u elements are wider than the NPU takes (%u)",
			    file->path, c->head_dim, MAX_HEAD_DIM);
	return 0;
}

static int read_activation(const struct json_file *file, struct hf_config *c)
{
	static const struct {
		const char *name;
		uint8_t act;
	} known[] = {
		{ "silu", M6NPU_ACT_SILU },
		{ "swish", M6NPU_ACT_SILU },
		{ "gelu_pytorch_tanh", M6NPU_ACT_GELU },
		{ "gelu_new", M6NPU_ACT_GELU },
	};
	yyjson_val *value = json_value(file->root, "hidden_act");
	size_t i;

	for (i = 0; i < ARRAY_SIZE(known); i++)
		if (yyjson_equals_str(value, known[i].name)) {
			c->act = known[i].act;
			return 0;
		}
	return fail("%s: hidden_act %s is not supported (silu and gelu_pytorch_tanh are)",
		    file->path,
		    yyjson_is_str(value) ? yyjson_get_str(value) : "(none)");
}

static int read_llama3(const struct json_file *file, yyjson_val *rope,
		       struct rope_config *config)
{
	config->kind = ROPE_LLAMA3;
	if (json_f64(file, rope, "low_freq_factor", 1e-3, 1e6,
		     &config->low_freq_factor) ||
	    json_f64(file, rope, "high_freq_factor", 1e-3, 1e6,
		     &config->high_freq_factor) ||
	    json_u32(file, rope, "original_max_position_embeddings", 1,
		     MAX_CONTEXT, &config->original_context))
		return -1;
	if (!config->original_context ||
	    !(config->high_freq_factor > config->low_freq_factor) ||
	    config->low_freq_factor <= 0)
		return fail("%s: the llama3 rope parameters are incomplete or contradict each other",
			    file->path);
	return 0;
}

/* A factor, or parameters for each type of layer, without saying what for. */
static bool is_more_than_theta(yyjson_val *rope)
{
	yyjson_val *key, *value;
	size_t i, count;

	yyjson_obj_foreach(rope, i, count, key, value)
		if (yyjson_is_obj(value))
			return true;
	return json_value(rope, "factor");
}

/*
 * transformers 5 has rope_parameters with theta and kind; before, theta stood
 * alone and rope_scaling, if any, named the kind as rope_type or type.
 */
static int read_rope(const struct json_file *file, const char *model_type,
		     struct rope_config *config)
{
	yyjson_val *rope = json_value(file->root, "rope_parameters");
	yyjson_val *older = json_value(file->root, "rope_scaling");
	yyjson_val *kind, *theta;

	/* Which of them counts depends on the release. */
	if (rope && older && !yyjson_equals(rope, older))
		return fail("%s: rope_parameters and rope_scaling contradict each other",
			    file->path);
	if (!rope)
		rope = older;
	theta = json_value(rope, "rope_theta") ? rope : file->root;
	if (json_f64(file, theta, "rope_theta", 1.0, 1e12, &config->theta))
		return -1;
	/* The first Llamas are older than the key. */
	if (!config->theta && strcmp(model_type, "llama"))
		return fail("%s lacks rope_theta", file->path);
	if (!config->theta)
		config->theta = 10000.0;
	if (!rope)
		return 0;
	if (!yyjson_is_obj(rope))
		return fail("%s: the rope parameters are not an object",
			    file->path);
	kind = json_value(rope, "rope_type");
	if (!kind)
		kind = json_value(rope, "type");
	if (!kind && is_more_than_theta(rope))
		return fail("%s: the rope parameters lack a rope_type",
			    file->path);
	if (!kind || yyjson_equals_str(kind, "default"))
		return 0;
	if (json_f64(file, rope, "factor", 1.0, 1e6, &config->factor))
		return -1;
	if (!config->factor)
		return fail("%s: the rope parameters lack a factor",
			    file->path);
	if (yyjson_equals_str(kind, "llama3"))
		return read_llama3(file, rope, config);
	if (!yyjson_equals_str(kind, "linear"))
		return fail("%s: rope type %s is not supported (default, linear and llama3 are)",
			    file->path,
			    yyjson_is_str(kind) ? yyjson_get_str(kind) : "?");
	config->kind = ROPE_LINEAR;
	return 0;
}

/*
 * One window for all layers can be honoured by staying inside of it. Without
 * the keys, Qwen's models have none and Mistral's one of 4096.
 */
static int read_window(const struct json_file *file, struct hf_config *c)
{
	yyjson_val *types = json_value(file->root, "layer_types"), *type;
	size_t i, count, sliding = 0;
	bool use;

	if (!strcmp(c->model_type, "mistral") &&
	    !yyjson_obj_get(file->root, "sliding_window"))
		c->window = MISTRAL_WINDOW;
	if (json_u32(file, file->root, "sliding_window", 0, MAX_CONTEXT,
		     &c->window))
		return -1;
	yyjson_arr_foreach(types, i, count, type) {
		if (yyjson_equals_str(type, "sliding_attention"))
			sliding++;
		else if (!yyjson_equals_str(type, "full_attention"))
			return fail("%s: a layer of type %s is not supported",
				    file->path, yyjson_is_str(type) ?
				    yyjson_get_str(type) : "?");
	}
	if (types && yyjson_arr_size(types) != c->layers)
		return fail("%s: layer_types has not one entry a layer",
			    file->path);
	use = sliding || strncmp(c->model_type, "qwen", 4);
	if (json_bool(file, file->root, "use_sliding_window", &use))
		return -1;
	if (!use || (types && !sliding))
		c->window = 0;
	return 0;
}

/* Features by which a known architecture becomes another one. */
static int refuse_unknown_features(const struct json_file *file)
{
	static const char *const numbers[] = {
		"partial_rotary_factor", "attention_multiplier",
		"residual_multiplier", "embedding_multiplier",
		"logits_scaling", "routed_scaling_factor",
	};
	static const char *const others[] = {
		"attn_logit_softcapping", "final_logit_softcapping",
		"qk_layernorm", "use_qk_norm", "n_group", "num_nextn_predict_layers",
		"vision_config", "audio_config", "encoder_layers",
		"position_embedding_type", "alibi",
	};
	yyjson_val *rope = json_value(file->root, "rope_parameters"), *value;
	size_t i;

	if (!rope)
		rope = json_value(file->root, "rope_scaling");
	for (i = 0; i < ARRAY_SIZE(numbers); i++) {
		value = json_value(file->root, numbers[i]);
		if (!value)
			value = json_value(rope, numbers[i]);
		if (value && yyjson_get_num(value) != 1.0)
			return fail("%s: %s is not supported", file->path,
				    numbers[i]);
	}
	for (i = 0; i < ARRAY_SIZE(others); i++) {
		value = json_value(file->root, others[i]);
		if (value && !yyjson_is_false(value) &&
		    !(yyjson_is_num(value) && yyjson_get_num(value) == 0))
			return fail("%s: %s is not supported", file->path,
				    others[i]);
	}
	return 0;
}

static int read_dense_layers(const struct json_file *file, struct hf_config *c)
{
	yyjson_val *list = json_value(file->root, "mlp_only_layers"), *layer;
	size_t i, count;

	if (list && !yyjson_is_arr(list))
		return fail("%s: mlp_only_layers is not a list", file->path);
	yyjson_arr_foreach(list, i, count, layer) {
		if (!yyjson_is_uint(layer) ||
		    yyjson_get_uint(layer) >= c->layers)
			return fail("%s: mlp_only_layers names a layer that does not exist",
				    file->path);
		c->dense_layer[yyjson_get_uint(layer)] = true;
	}
	return 0;
}

static int read_experts(const struct json_file *file, struct hf_config *c)
{
	yyjson_val *root = file->root;

	c->sparse_step = 1;
	c->norm_topk_given = json_value(root, "norm_topk_prob");
	if (json_u32(file, root, "num_experts", 1, M6NPU_MAX_EXPERTS_PER_LAYER,
		     &c->experts) ||
	    json_u32(file, root, "num_local_experts", 1,
		     M6NPU_MAX_EXPERTS_PER_LAYER, &c->experts) ||
	    json_u32(file, root, "num_experts_per_tok", 1, MAX_ROUTED,
		     &c->experts_per_token) ||
	    json_u32(file, root, "moe_intermediate_size", 1, MAX_WIDTH,
		     &c->moe_intermediate) ||
	    json_u32(file, root, "shared_expert_intermediate_size", 0,
		     MAX_WIDTH, &c->shared_intermediate) ||
	    json_u32(file, root, "decoder_sparse_step", 1, HF_MAX_LAYERS,
		     &c->sparse_step) ||
	    json_bool(file, root, "norm_topk_prob", &c->norm_topk) ||
	    read_dense_layers(file, c))
		return -1;
	if (c->experts_per_token > c->experts && c->experts)
		return fail("%s: num_experts_per_tok %u is more than there are experts (%u)",
			    file->path, c->experts_per_token, c->experts);
	return 0;
}

static int read_numbers(const struct json_file *file, struct hf_config *c)
{
	yyjson_val *root = file->root;

	c->tied_given = json_value(root, "tie_word_embeddings");
	if (json_f64(file, root, "rms_norm_eps", 0, 1, &c->eps) ||
	    json_bool(file, root, "tie_word_embeddings", &c->tied) ||
	    json_bool(file, root, "attention_bias", &c->attention_bias) ||
	    json_bool(file, root, "qkv_bias", &c->qkv_bias) ||
	    json_bool(file, root, "mlp_bias", &c->mlp_bias))
		return -1;
	if (!json_value(root, "rms_norm_eps"))
		return fail("%s lacks rms_norm_eps", file->path);
	return 0;
}

int hf_config_read(const struct json_file *file, struct hf_config *config)
{
	memset(config, 0, sizeof(*config));
	config->qkv_bias = true;	/* Qwen2-MoE's, before it was a key */
	if (read_names(file, config) || refuse_unknown_features(file) ||
	    read_dimensions(file, config) || read_activation(file, config) ||
	    read_numbers(file, config) ||
	    read_rope(file, config->model_type, &config->rope) ||
	    read_window(file, config) || read_experts(file, config))
		return -1;
	return 0;
}
