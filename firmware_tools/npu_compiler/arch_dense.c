// SPDX-License-Identifier: MIT
/* Dense decoders: Llama, Mistral, Qwen2, Qwen3. */
#include "arch.h"

#include <stdio.h>

#define NAME_BYTES	160

int dense_plan_glu(struct model *model, uint32_t index, const char *prefix,
		   uint32_t width, bool bias)
{
	static const char *const names[3] = { "gate_proj", "up_proj",
					      "down_proj" };
	struct layer *layer = &model->layers[index];
	uint32_t hidden = model->config.hidden;
	char weights[3][NAME_BYTES], biases[3][NAME_BYTES];
	struct model_part weight[3], vector[3];
	int i;

	for (i = 0; i < 3; i++) {
		snprintf(weights[i], NAME_BYTES,
			 "model.layers.%u.%s.%s.weight", index, prefix,
			 names[i]);
		snprintf(biases[i], NAME_BYTES, "model.layers.%u.%s.%s.bias",
			 index, prefix, names[i]);
		weight[i].name = weights[i];
		vector[i].name = biases[i];
		weight[i].rows = vector[i].rows = i == 2 ? hidden : width;
	}
	layer->gate_up = model_add_weight(model, "ffn.gate_up", ROLE_MATRIX,
					  weight, 2, hidden);
	if (!layer->gate_up)
		return -1;
	layer->down = model_add_weight(model, "ffn.down", ROLE_MATRIX,
				       &weight[2], 1, width);
	if (!layer->down || !bias)
		return layer->down ? 0 : -1;
	layer->gate_up_bias = model_add_vector(model, "ffn.gate_up_bias",
					       vector, 2);
	if (!layer->gate_up_bias)
		return -1;
	layer->down_bias = model_add_vector(model, "ffn.down_bias",
					    &vector[2], 1);
	return layer->down_bias ? 0 : -1;
}

int dense_plan_ffn(struct model *model, uint32_t index)
{
	const struct hf_config *c = &model->config;

	return dense_plan_glu(model, index, "mlp", c->intermediate,
			      model->arch->mlp_bias && c->mlp_bias);
}

void dense_emit_glu(const struct model *model, const struct layer *layer,
		    struct command_list *list, uint8_t down_flags,
		    struct activation dst, struct activation src)
{
	uint32_t width = layer->gate_up->rows / 2;
	struct activation both, inner;

	both = command_take(list, 2 * width);
	emit_gemm(list, 0, both, src, layer->gate_up, layer->gate_up_bias);
	inner = command_take(list, width);
	emit_glu(list, inner, both, activation_column(both, width), width,
		 model->config.act);
	command_give(list, both);
	emit_gemm(list, down_flags, dst, inner, layer->down,
		  layer->down_bias);
	command_give(list, inner);
}

void dense_emit_ffn(const struct model *model, uint32_t index,
		    struct command_list *list, struct activation dst,
		    struct activation src)
{
	dense_emit_glu(model, &model->layers[index], list,
		       M6NPU_CMD_ACCUMULATE, dst, src);
}

static int check_dense(const struct arch *arch, const struct hf_config *config)
{
	if (!config->intermediate)
		return fail("config.json lacks intermediate_size");
	if (config->experts)
		return fail("config.json gives a %s model experts",
			    arch->model_type);
	return 0;
}

#define DENSE						\
	.check = check_dense,				\
	.plan_ffn = dense_plan_ffn,			\
	.emit_ffn = dense_emit_ffn

const struct arch arch_dense[] = {
	{
		.model_type = "llama",
		.class_name = "LlamaForCausalLM",
		.qkv_bias = BIAS_ATTENTION,
		.o_bias = BIAS_ATTENTION,
		.mlp_bias = true,
		DENSE,
	}, {
		.model_type = "mistral",
		.class_name = "MistralForCausalLM",
		DENSE,
	}, {
		.model_type = "qwen2",
		.class_name = "Qwen2ForCausalLM",
		.qkv_bias = BIAS_ALWAYS,
		DENSE,
	}, {
		.model_type = "qwen3",
		.class_name = "Qwen3ForCausalLM",
		.qkv_bias = BIAS_ATTENTION,
		.o_bias = BIAS_ATTENTION,
		.qk_norm = true,
		DENSE,
	},
	{ 0 },
};
