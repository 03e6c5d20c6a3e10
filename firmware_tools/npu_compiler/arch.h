/* SPDX-License-Identifier: MIT */
/*
 * Architectures. All here are decoders of one family: RMS norms around
 * grouped-query attention with rotary positions and a gated feed-forward
 * part. An entry says in what one differs; what an entry can't say needs code.
 */
#ifndef NPU_COMPILER_ARCH_H
#define NPU_COMPILER_ARCH_H

#include "model.h"

enum arch_bias {
	BIAS_NEVER = 0,
	BIAS_ALWAYS,
	BIAS_ATTENTION,		/* config's attention_bias */
	BIAS_QKV,		/* config's qkv_bias */
};

struct arch {
	const char *model_type;		/* config.json */
	const char *class_name;		/* of its causal language model */
	enum arch_bias qkv_bias;
	enum arch_bias o_bias;
	bool qk_norm;
	bool mlp_bias;			/* config's mlp_bias counts */

	/* Mixture of experts; expert_names NULL: dense. */
	const char *moe_prefix;		/* "mlp" */
	const char *expert_names[3];	/* gate, up, down */
	bool shared_expert;
	bool always_renormalize;	/* else config's norm_topk_prob */

	/* Checks what the config has to say about the feed-forward part. */
	int (*check)(const struct arch *arch, const struct hf_config *config);
	/* Takes the tensors of one layer's feed-forward part. */
	int (*plan_ffn)(struct model *model, uint32_t index);
	/* dst += ffn(src) */
	void (*emit_ffn)(const struct model *model, uint32_t index,
			 struct command_list *list, struct activation dst,
			 struct activation src);
};

/* NULL: unknown, with fail(). */
const struct arch *arch_find(const struct hf_config *config);

/* The tables, each ended by an entry without model_type. */
extern const struct arch arch_dense[];
extern const struct arch arch_moe[];

/* Dense feed-forward part, also of the dense layers of sparse models. */
int dense_plan_ffn(struct model *model, uint32_t index);
void dense_emit_ffn(const struct model *model, uint32_t index,
		    struct command_list *list, struct activation dst,
		    struct activation src);
/* gate_up, act, down: @down_flags tells whether it adds to @dst. */
void dense_emit_glu(const struct model *model, const struct layer *layer,
		    struct command_list *list, uint8_t down_flags,
		    struct activation dst, struct activation src);
/* Names under "model.layers.N.PREFIX.", without suffix. */
int dense_plan_glu(struct model *model, uint32_t index, const char *prefix,
		   uint32_t width, bool bias);

#endif
