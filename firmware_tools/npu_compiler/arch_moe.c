// SPDX-License-Identifier: MIT
/* Mixtures of experts: Qwen3-MoE, Qwen2-MoE, Mixtral. */
#include "arch.h"

#include <stdio.h>

#include "experts.h"

#define NAME_BYTES	160

static uint32_t expert_width(const struct hf_config *config)
{
	return config->moe_intermediate ? config->moe_intermediate :
					  config->intermediate;
}

static bool is_sparse(const struct hf_config *config, uint32_t index)
{
	return !config->dense_layer[index] &&
	       (index + 1) % config->sparse_step == 0;
}

static int plan_experts(struct model *model, uint32_t index)
{
	static const char *const format = "model.layers.%u.%s.experts.%u.%s.weight";
	const struct arch *arch = model->arch;
	char text[3][NAME_BYTES];
	const char *const names[3] = { text[0], text[1], text[2] };
	uint32_t expert;
	int i;

	for (expert = 0; expert < model->config.experts; expert++) {
		for (i = 0; i < 3; i++)
			snprintf(text[i], NAME_BYTES, format, index,
				 arch->moe_prefix, expert,
				 arch->expert_names[i]);
		if (model_add_expert(model, model->layers[index].expert_row,
				     expert, names))
			return -1;
	}
	return 0;
}

static int plan_shared(struct model *model, uint32_t index)
{
	const struct hf_config *c = &model->config;
	struct layer *layer = &model->layers[index];
	char name[NAME_BYTES];
	struct model_part part = { name, 1 };

	if (!model->arch->shared_expert)
		return 0;
	if (dense_plan_glu(model, index, "mlp.shared_expert",
			   c->shared_intermediate, false))
		return -1;
	snprintf(name, sizeof(name),
		 "model.layers.%u.mlp.shared_expert_gate.weight", index);
	layer->shared_gate = model_add_weight(model, "ffn.shared_gate",
					      ROLE_EXACT, &part, 1,
					      c->hidden);
	return layer->shared_gate ? 0 : -1;
}

/* The same in every layer; set before the first expert is added. */
static void set_expert_shape(struct model *model)
{
	const struct hf_config *c = &model->config;
	struct expert_shape *shape = &model->expert_shape;

	shape->hidden = c->hidden;
	shape->ffn = expert_width(c);
	shape->act = c->act;
	shape->type[0] = weight_type(model->quant, ROLE_MATRIX, c->hidden);
	shape->type[1] = shape->type[0];
	shape->type[2] = weight_type(model->quant, ROLE_MATRIX, shape->ffn);
	model->runtime.experts = c->experts;
	model->runtime.experts_per_token = c->experts_per_token;
}

static int plan_ffn(struct model *model, uint32_t index)
{
	struct layer *layer = &model->layers[index];
	char name[NAME_BYTES];
	struct model_part part = { name, model->config.experts };

	if (!is_sparse(&model->config, index))
		return dense_plan_ffn(model, index);
	set_expert_shape(model);
	layer->expert_row = model->runtime.expert_layers++;
	snprintf(name, sizeof(name), "model.layers.%u.%s.gate.weight", index,
		 model->arch->moe_prefix);
	layer->router = model_add_weight(model, "ffn.router", ROLE_EXACT,
					 &part, 1, model->config.hidden);
	if (!layer->router || plan_shared(model, index))
		return -1;
	return plan_experts(model, index);
}

static void emit_shared(const struct model *model, const struct layer *layer,
			struct command_list *list, struct activation dst,
			struct activation src)
{
	struct activation gate, out;

	if (!layer->shared_gate)
		return;
	gate = command_take(list, 1);
	emit_gemm(list, 0, gate, src, layer->shared_gate, NULL);
	out = command_take(list, model->config.hidden);
	dense_emit_glu(model, layer, list, 0, out, src);
	emit_gated_add(list, dst, out, gate, model->config.hidden);
	command_give(list, out);
	command_give(list, gate);
}

static void emit_ffn(const struct model *model, uint32_t index,
		     struct command_list *list, struct activation dst,
		     struct activation src)
{
	const struct layer *layer = &model->layers[index];

	if (!layer->router) {
		dense_emit_ffn(model, index, list, dst, src);
		return;
	}
	experts_emit(model, index, list, dst, src);
	emit_shared(model, layer, list, dst, src);
}

static uint32_t count_sparse(const struct hf_config *config)
{
	uint32_t i, sparse = 0;

	for (i = 0; i < config->layers; i++)
		sparse += is_sparse(config, i);
	return sparse;
}

static int check_moe(const struct arch *arch, const struct hf_config *config)
{
	uint32_t sparse = count_sparse(config);

	if (!config->experts || !config->experts_per_token)
		return fail("config.json lacks num_experts or num_experts_per_tok");
	if (!expert_width(config) || expert_width(config) > 65536 ||
	    config->hidden > 65536)
		return fail("config.json gives experts a size the NPU does not take");
	if (sparse != config->layers && !config->intermediate)
		return fail("config.json lacks intermediate_size");
	if (!sparse || sparse > M6NPU_MAX_EXPERT_LAYERS)
		return fail("config.json gives %u layers experts; the NPU takes 1 to %u",
			    sparse, M6NPU_MAX_EXPERT_LAYERS);
	if (arch->shared_expert != !!config->shared_intermediate)
		return fail("config.json: shared_expert_intermediate_size %u does not suit a %s model",
			    config->shared_intermediate, arch->model_type);
	if (!arch->always_renormalize && !config->norm_topk_given)
		return fail("config.json lacks norm_topk_prob, without which the experts' weights are not known");
	return 0;
}

#define MOE						\
	.check = check_moe,				\
	.plan_ffn = plan_ffn,				\
	.emit_ffn = emit_ffn
#define PROJECTIONS	{ "gate_proj", "up_proj", "down_proj" }

const struct arch arch_moe[] = {
	{
		.model_type = "qwen3_moe",
		.class_name = "Qwen3MoeForCausalLM",
		.qkv_bias = BIAS_ATTENTION,
		.o_bias = BIAS_ATTENTION,
		.qk_norm = true,
		.moe_prefix = "mlp",
		.expert_names = PROJECTIONS,
		MOE,
	}, {
		.model_type = "qwen2_moe",
		.class_name = "Qwen2MoeForCausalLM",
		.qkv_bias = BIAS_QKV,
		.moe_prefix = "mlp",
		.expert_names = PROJECTIONS,
		.shared_expert = true,
		MOE,
	}, {
		.model_type = "mixtral",
		.class_name = "MixtralForCausalLM",
		.moe_prefix = "block_sparse_moe",
		.expert_names = { "w1", "w3", "w2" },
		.always_renormalize = true,
		MOE,
	},
	{ 0 },
};
