// SPDX-License-Identifier: MIT
#include "commands.h"

#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "commands are written as they lie in memory: little-endian hosts only"
#endif

static uint32_t float_bits(double value)
{
	float single = value;
	uint32_t bits;

	memcpy(&bits, &single, sizeof(bits));
	return bits;
}

/* What an opcode does not use is none and zero: readers check that. */
static struct m6npu_cmd *emit(struct command_list *list,
			      enum m6npu_opcode opcode, uint8_t flags)
{
	struct m6npu_cmd *cmd;
	int i;

	if (list->count == list->room) {
		list->room = list->room ? list->room * 2 : 128;
		list->cmds = xrealloc(list->cmds, list->room,
				      sizeof(*list->cmds));
	}
	cmd = &list->cmds[list->count++];
	memset(cmd, 0, sizeof(*cmd));
	cmd->opcode = opcode;
	cmd->flags = flags;
	for (i = 0; i < 4; i++)
		cmd->operand[i] = M6NPU_OPERAND_NONE;
	return cmd;
}

static uint32_t rows_of(const struct command_list *list, uint8_t flags)
{
	return flags & M6NPU_CMD_OUT_ROWS ? list->out_rows : list->rows;
}

static uint64_t weight_operand(const struct weight *weight)
{
	return M6NPU_OPERAND(NPU_REGION_WEIGHTS, weight->offset);
}

void command_list_free(struct command_list *list)
{
	free(list->cmds);
	memset(list, 0, sizeof(*list));
}

struct activation command_take(struct command_list *list, uint32_t width)
{
	uint64_t bytes = (uint64_t)list->rows * width * sizeof(float);
	struct activation taken = {
		.operand = M6NPU_OPERAND(NPU_REGION_SCRATCH,
					 arena_take(&list->arena, bytes)),
		.stride = width,
	};

	return taken;
}

void command_give(struct command_list *list, struct activation buffer)
{
	arena_give(&list->arena, buffer.operand & M6NPU_OPERAND_OFFSET_MASK);
}

struct activation activation_column(struct activation buffer, uint32_t column)
{
	buffer.operand += column * sizeof(float);
	return buffer;
}

void emit_timestamp(struct command_list *list, uint64_t io_offset)
{
	struct m6npu_cmd *cmd = emit(list, M6NPU_OP_TIMESTAMP, 0);

	cmd->operand[0] = M6NPU_OPERAND(NPU_REGION_IO, io_offset);
}

void emit_embed(struct command_list *list, struct activation dst,
		const struct weight *table)
{
	struct m6npu_cmd *cmd = emit(list, M6NPU_OP_EMBED, 0);

	cmd->type[1] = table->type;
	cmd->operand[0] = dst.operand;
	cmd->operand[1] = weight_operand(table);
	cmd->args.embed.rows = list->rows;
	cmd->args.embed.width = table->cols;
	cmd->args.embed.vocab = table->rows;
}

void emit_norm(struct command_list *list, uint8_t flags, struct activation dst,
	       struct activation src, const struct weight *weight,
	       uint32_t groups, double eps)
{
	struct m6npu_cmd *cmd = emit(list, M6NPU_OP_NORM, flags);

	cmd->operand[0] = dst.operand;
	cmd->operand[1] = src.operand;
	cmd->operand[2] = weight_operand(weight);
	cmd->args.norm.rows = rows_of(list, flags);
	cmd->args.norm.groups = groups;
	cmd->args.norm.width = weight->cols;
	cmd->args.norm.src_stride = src.stride;
	cmd->args.norm.dst_stride = dst.stride;
	cmd->args.norm.eps = float_bits(eps);
}

void emit_gemm(struct command_list *list, uint8_t flags, struct activation dst,
	       struct activation src, const struct weight *weight,
	       const struct weight *bias)
{
	struct m6npu_cmd *cmd = emit(list, M6NPU_OP_GEMM, flags);

	cmd->type[2] = weight->type;
	cmd->operand[0] = dst.operand;
	cmd->operand[1] = src.operand;
	cmd->operand[2] = weight_operand(weight);
	if (bias)
		cmd->operand[3] = weight_operand(bias);
	cmd->args.gemm.rows = rows_of(list, flags);
	cmd->args.gemm.n = weight->rows;
	cmd->args.gemm.k = weight->cols;
	cmd->args.gemm.src_stride = src.stride;
	cmd->args.gemm.dst_stride = dst.stride;
}

void emit_rope(struct command_list *list, struct activation rows,
	       const struct rope_shape *shape)
{
	struct m6npu_cmd *cmd = emit(list, M6NPU_OP_ROPE, 0);

	cmd->operand[0] = rows.operand;
	if (shape->divisors)
		cmd->operand[1] = weight_operand(shape->divisors);
	cmd->args.rope.rows = list->rows;
	cmd->args.rope.heads = shape->heads;
	cmd->args.rope.head_dim = shape->head_dim;
	cmd->args.rope.stride = rows.stride;
	cmd->args.rope.theta = float_bits(shape->theta);
	cmd->args.rope.scale = float_bits(shape->scale);
	cmd->args.rope.rot_dim = shape->head_dim;
}

void emit_attention(struct command_list *list, struct activation dst,
		    struct activation qkv, uint16_t layer,
		    const struct attention_shape *shape)
{
	struct m6npu_cmd *cmd = emit(list, M6NPU_OP_ATTENTION, 0);

	cmd->layer = layer;
	cmd->operand[0] = dst.operand;
	cmd->operand[1] = qkv.operand;
	cmd->operand[2] = M6NPU_OPERAND(NPU_REGION_KV, 0);
	cmd->args.attention.rows = list->rows;
	cmd->args.attention.heads = shape->heads;
	cmd->args.attention.kv_heads = shape->kv_heads;
	cmd->args.attention.head_dim = shape->head_dim;
	cmd->args.attention.scale = float_bits(shape->scale);
}

void emit_glu(struct command_list *list, struct activation dst,
	      struct activation gate, struct activation up, uint32_t width,
	      uint8_t act)
{
	struct m6npu_cmd *cmd = emit(list, M6NPU_OP_GLU, 0);

	cmd->operand[0] = dst.operand;
	cmd->operand[1] = gate.operand;
	cmd->operand[2] = up.operand;
	cmd->args.glu.rows = list->rows;
	cmd->args.glu.n = width;
	cmd->args.glu.gate_stride = gate.stride;
	cmd->args.glu.up_stride = up.stride;
	cmd->args.glu.dst_stride = dst.stride;
	cmd->args.glu.act = act;
}

void emit_gather(struct command_list *list, struct activation dst,
		 struct activation src, uint32_t width)
{
	struct m6npu_cmd *cmd = emit(list, M6NPU_OP_GATHER, 0);

	cmd->operand[0] = dst.operand;
	cmd->operand[1] = src.operand;
	cmd->args.embed.rows = list->rows;
	cmd->args.embed.width = width;
}

void emit_gated_add(struct command_list *list, struct activation dst,
		    struct activation src, struct activation gate,
		    uint32_t width)
{
	struct m6npu_cmd *cmd = emit(list, M6NPU_OP_GATED_ADD, 0);

	cmd->operand[0] = dst.operand;
	cmd->operand[1] = src.operand;
	cmd->operand[2] = gate.operand;
	cmd->args.add.rows = list->rows;
	cmd->args.add.n = width;
}

void emit_router(struct command_list *list, uint16_t layer,
		 struct activation ids, struct activation weights,
		 struct activation logits, const struct routing *routing)
{
	struct m6npu_cmd *cmd = emit(list, M6NPU_OP_ROUTER_TOPK, 0);

	cmd->layer = layer;
	cmd->operand[0] = ids.operand;
	cmd->operand[1] = weights.operand;
	cmd->operand[2] = logits.operand;
	cmd->args.router.rows = list->rows;
	cmd->args.router.experts = routing->experts;
	cmd->args.router.k = routing->per_token;
	cmd->args.router.flags = routing->flags;
	cmd->args.router.scale = float_bits(routing->scale);
	cmd->args.router.among = routing->among;
}

void emit_prefetch(struct command_list *list, uint16_t layer,
		   struct activation ids, struct activation chances,
		   const struct routing *routing)
{
	struct m6npu_cmd *cmd = emit(list, M6NPU_OP_EXPERT_PREFETCH, 0);

	cmd->layer = layer;
	cmd->operand[0] = ids.operand;
	cmd->operand[1] = chances.operand;
	cmd->args.moe.rows = list->rows;
	cmd->args.moe.k = routing->per_token;
	cmd->args.moe.experts = routing->experts;
}

static struct m6npu_cmd *emit_moe_ffn(struct command_list *list, uint8_t flags,
				      const struct moe_operands *operands)
{
	struct m6npu_cmd *cmd = emit(list, M6NPU_OP_MOE_FFN, flags);
	const struct expert_shape *shape = operands->shape;

	cmd->layer = operands->layer;
	memcpy(&cmd->type[1], shape->type, sizeof(shape->type));
	cmd->operand[0] = operands->dst.operand;
	cmd->operand[1] = operands->src.operand;
	cmd->operand[2] = operands->ids.operand;
	cmd->args.moe.rows = list->rows;
	cmd->args.moe.k = operands->routing->per_token;
	cmd->args.moe.experts = operands->routing->experts;
	cmd->args.moe.hidden = shape->hidden;
	cmd->args.moe.ffn = shape->ffn;
	cmd->args.moe.act = shape->act;
	return cmd;
}

void emit_moe(struct command_list *list, struct activation weights,
	      const struct moe_operands *operands)
{
	struct m6npu_cmd *cmd = emit_moe_ffn(list, M6NPU_CMD_ACCUMULATE,
					     operands);

	cmd->operand[3] = weights.operand;
}

void emit_moe_tier(struct command_list *list,
		   const struct moe_operands *operands,
		   const struct tier *tier)
{
	struct m6npu_cmd *cmd = emit_moe_ffn(list, M6NPU_CMD_GROUPED,
					     operands);

	cmd->operand[3] = weight_operand(operands->members) +
			  tier->first * sizeof(int32_t);
	cmd->args.moe.capacity = tier->capacity;
	cmd->args.moe.members = tier->count;
}

void emit_combine(struct command_list *list, struct activation dst,
		  struct activation weights,
		  const struct moe_operands *operands)
{
	struct m6npu_cmd *cmd = emit(list, M6NPU_OP_MOE_COMBINE,
				     M6NPU_CMD_ACCUMULATE);

	cmd->operand[0] = dst.operand;
	cmd->operand[1] = operands->dst.operand;
	cmd->operand[2] = weights.operand;
	cmd->args.moe.rows = list->rows;
	cmd->args.moe.k = operands->routing->per_token;
	cmd->args.moe.hidden = operands->shape->hidden;
}

void emit_topk(struct command_list *list, uint64_t ids, uint64_t values,
	       uint64_t logits, uint32_t vocab, uint32_t k)
{
	struct m6npu_cmd *cmd = emit(list, M6NPU_OP_TOPK, M6NPU_CMD_OUT_ROWS);

	cmd->operand[0] = ids;
	cmd->operand[1] = values;
	cmd->operand[2] = logits;
	cmd->args.topk.rows = list->out_rows;
	cmd->args.topk.n = vocab;
	cmd->args.topk.k = k;
}
