/* SPDX-License-Identifier: MIT */
/* What config.json says, checked and in one form whatever its age. */
#ifndef NPU_COMPILER_HF_CONFIG_H
#define NPU_COMPILER_HF_CONFIG_H

#include "json.h"

#define HF_MAX_LAYERS	1024

enum rope_kind {
	ROPE_DEFAULT,
	ROPE_LINEAR,
	ROPE_LLAMA3,
};

struct rope_config {
	enum rope_kind kind;
	double theta;
	double factor;
	/* ROPE_LLAMA3 */
	double low_freq_factor;
	double high_freq_factor;
	uint32_t original_context;
};

struct hf_config {
	char model_type[32];
	char class_name[64];		/* architectures[0], "" if absent */
	uint32_t vocab;
	uint32_t hidden;
	uint32_t intermediate;
	uint32_t layers;
	uint32_t heads;
	uint32_t kv_heads;
	uint32_t head_dim;
	uint32_t context;
	uint32_t window;		/* of sliding layers, 0 = none slide */
	uint8_t act;			/* M6NPU_ACT_* */
	double eps;
	struct rope_config rope;
	bool tied;
	bool tied_given;		/* else the tensors decide */
	bool attention_bias;
	bool qkv_bias;
	bool mlp_bias;
	/* Mixture of experts */
	uint32_t experts;		/* 0 = dense */
	uint32_t experts_per_token;
	uint32_t moe_intermediate;
	uint32_t shared_intermediate;	/* 0 = no shared expert */
	uint32_t sparse_step;
	bool norm_topk;
	bool norm_topk_given;
	bool dense_layer[HF_MAX_LAYERS];	/* mlp_only_layers */
};

/* Reads @file; refuses what no builder here knows how to honour. */
int hf_config_read(const struct json_file *file, struct hf_config *config);

#endif
