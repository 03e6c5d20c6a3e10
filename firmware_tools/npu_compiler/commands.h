/* SPDX-License-Identifier: MIT */
/* Writes command lists: one function an operation. */
#ifndef NPU_COMPILER_COMMANDS_H
#define NPU_COMPILER_COMMANDS_H

#include <npu/npu_format.h>

#include "arena.h"
#include "m6npu_regs.h"
#include "tiers.h"
#include "weight.h"

struct command_list {
	struct m6npu_cmd *cmds;
	size_t count, room;
	uint32_t rows;		/* of the tile */
	uint32_t out_rows;
	struct arena arena;	/* of the scratch region */
};

void command_list_free(struct command_list *list);

/* A matrix of activations: operand, and elements between its rows. */
struct activation {
	uint64_t operand;
	uint32_t stride;
};

/* Takes scratch for list->rows rows of @width, gives it back. */
struct activation command_take(struct command_list *list, uint32_t width);
void command_give(struct command_list *list, struct activation buffer);
/* The same rows from column @column on. */
struct activation activation_column(struct activation buffer, uint32_t column);

void emit_timestamp(struct command_list *list, uint64_t io_offset);
void emit_embed(struct command_list *list, struct activation dst,
		const struct weight *table);
/* @groups vectors of the weight's width in each row. */
void emit_norm(struct command_list *list, uint8_t flags, struct activation dst,
	       struct activation src, const struct weight *weight,
	       uint32_t groups, double eps);
/* @bias may be NULL. */
void emit_gemm(struct command_list *list, uint8_t flags, struct activation dst,
	       struct activation src, const struct weight *weight,
	       const struct weight *bias);

struct rope_shape {
	uint32_t heads, head_dim;
	double theta, scale;
	const struct weight *divisors;	/* or NULL */
};

void emit_rope(struct command_list *list, struct activation rows,
	       const struct rope_shape *shape);

struct attention_shape {
	uint32_t heads, kv_heads, head_dim;
	double scale;
};

void emit_attention(struct command_list *list, struct activation dst,
		    struct activation qkv, uint16_t layer,
		    const struct attention_shape *shape);
void emit_glu(struct command_list *list, struct activation dst,
	      struct activation gate, struct activation up, uint32_t width,
	      uint8_t act);
void emit_gather(struct command_list *list, struct activation dst,
		 struct activation src, uint32_t width);
void emit_gated_add(struct command_list *list, struct activation dst,
		    struct activation src, struct activation gate,
		    uint32_t width);

struct routing {
	uint32_t experts, per_token;
	uint32_t flags;		/* M6NPU_ROUTER_* */
	uint32_t among;
	double scale;		/* 0: none */
};

void emit_router(struct command_list *list, uint16_t layer,
		 struct activation ids, struct activation weights,
		 struct activation logits, const struct routing *routing);
void emit_prefetch(struct command_list *list, uint16_t layer,
		   struct activation ids, struct activation chances,
		   const struct routing *routing);

struct expert_shape {
	uint32_t hidden, ffn;
	uint8_t type[3];	/* gate, up, down */
	uint8_t act;
};

struct moe_operands {
	uint16_t layer;
	struct activation dst, src, ids;
	const struct weight *members;	/* of all tiers, by expert only */
	const struct routing *routing;
	const struct expert_shape *shape;
};

/* Token by token; adds to the destination. */
void emit_moe(struct command_list *list, struct activation weights,
	      const struct moe_operands *operands);
/* By expert: the destination takes the results of all pairs. */
void emit_moe_tier(struct command_list *list,
		   const struct moe_operands *operands,
		   const struct tier *tier);
/* Adds the pairs, which lie at the others' destination, to @dst. */
void emit_combine(struct command_list *list, struct activation dst,
		  struct activation weights,
		  const struct moe_operands *operands);
/* Of the logits of out rows. */
void emit_topk(struct command_list *list, uint64_t ids, uint64_t values,
	       uint64_t logits, uint32_t vocab, uint32_t k);

#endif
