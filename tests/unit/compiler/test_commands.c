// SPDX-License-Identifier: MIT
/*
 * What --verify finds in command lists: every list that the compiler writes is
 * good, and none is any more once one of its fields says something else.
 */
#include <stdlib.h>

#include "../tap.h"
#include "command_check.h"
#include "lists.h"

struct change {
	const char *name;
	void (*apply)(struct m6npu_cmd *cmd);
};

static void set_opcode(struct m6npu_cmd *cmd)
{
	cmd->opcode = 0x7f;
}

static void set_flag(struct m6npu_cmd *cmd)
{
	cmd->flags |= 0x80;
}

static void set_word(struct m6npu_cmd *cmd)
{
	/* Rows where there are such, else something reserved. */
	cmd->args.word[0] += 1u << 20;
}

static void set_last_word(struct m6npu_cmd *cmd)
{
	cmd->args.word[5] = 0x7fffffff;
}

/* Its last word, the epsilon, may be any. */
static void set_norm_width(struct m6npu_cmd *cmd)
{
	cmd->args.norm.width += 1u << 22;
}

static void set_region(struct m6npu_cmd *cmd)
{
	cmd->operand[0] = M6NPU_OPERAND(7, 0);
}

static void set_stray_bits(struct m6npu_cmd *cmd)
{
	cmd->operand[0] |= 1ull << 50;
}

static void set_unaligned(struct m6npu_cmd *cmd)
{
	cmd->operand[0] += 2;
}

static void set_offset(struct m6npu_cmd *cmd)
{
	cmd->operand[0] += 1ull << 37;
}

static void set_none(struct m6npu_cmd *cmd)
{
	cmd->operand[0] = M6NPU_OPERAND_NONE;
}

static void set_to_weights(struct m6npu_cmd *cmd)
{
	/* The one that only reads has nothing to lose there but its operand. */
	cmd->operand[0] = cmd->opcode == M6NPU_OP_EXPERT_PREFETCH ?
		M6NPU_OPERAND_NONE : M6NPU_OPERAND(NPU_REGION_WEIGHTS, 0);
}

static void set_type(struct m6npu_cmd *cmd)
{
	cmd->type[0] = 77;
}

static void set_grouping(struct m6npu_cmd *cmd)
{
	cmd->flags ^= M6NPU_CMD_GROUPED;
}

static void set_both_flags(struct m6npu_cmd *cmd)
{
	cmd->flags |= M6NPU_CMD_GROUPED | M6NPU_CMD_ACCUMULATE;
}

static void set_source(struct m6npu_cmd *cmd)
{
	cmd->operand[1] += 1ull << 37;
}

static void set_choices(struct m6npu_cmd *cmd)
{
	cmd->args.moe.k = 65;
}

static void set_experts(struct m6npu_cmd *cmd)
{
	cmd->args.moe.experts++;
}

static void set_layer(struct m6npu_cmd *cmd)
{
	cmd->layer = 400;
}

static void set_router_flags(struct m6npu_cmd *cmd)
{
	cmd->args.router.flags |= M6NPU_ROUTER_CHANCE |
				  M6NPU_ROUTER_RENORMALIZE;
}

/* Less than zero; only guesses have one. */
static void set_spread(struct m6npu_cmd *cmd)
{
	cmd->args.router.flags = M6NPU_ROUTER_CHANCE;
	cmd->args.router.among = 1;
	cmd->args.router.scale = 0xbf800000;
}

/* Which is 1 where it is no guess. */
static void set_no_spread(struct m6npu_cmd *cmd)
{
	set_spread(cmd);
	cmd->args.router.scale = 0;
}

static const struct change changes[] = {
	{ "opcode", set_opcode },
	{ "flags", set_flag },
	{ "first word", set_word },
	{ "region", set_region },
	{ "stray bits", set_stray_bits },
	{ "alignment", set_unaligned },
	{ "offset", set_offset },
	{ "missing operand", set_none },
	{ "write to the weights", set_to_weights },
	{ "type", set_type },
};

/* What only some opcodes have. */
static const struct special {
	const char *name;
	enum m6npu_opcode opcode;
	void (*apply)(struct m6npu_cmd *cmd);
} specials[] = {
	{ "width of a norm", M6NPU_OP_NORM, set_norm_width },
	{ "pad of a GEMM", M6NPU_OP_GEMM, set_last_word },
	{ "pad of an attention", M6NPU_OP_ATTENTION, set_last_word },
	{ "activation of a GLU", M6NPU_OP_GLU, set_last_word },
	{ "capacity and members", M6NPU_OP_MOE_FFN, set_last_word },
	{ "grouping", M6NPU_OP_MOE_FFN, set_grouping },
	{ "adding or grouping", M6NPU_OP_MOE_FFN, set_both_flags },
	{ "pairs of a combination", M6NPU_OP_MOE_COMBINE, set_source },
	{ "choices of a combination", M6NPU_OP_MOE_COMBINE, set_choices },
	{ "pad of a combination", M6NPU_OP_MOE_COMBINE, set_last_word },
	{ "pad of a prefetch", M6NPU_OP_EXPERT_PREFETCH, set_last_word },
	{ "experts of a prefetch", M6NPU_OP_EXPERT_PREFETCH, set_experts },
	{ "layer of a prefetch", M6NPU_OP_EXPERT_PREFETCH, set_layer },
	{ "chances among too many", M6NPU_OP_ROUTER_TOPK, set_last_word },
	{ "flags of a router", M6NPU_OP_ROUTER_TOPK, set_router_flags },
	{ "spread of a router", M6NPU_OP_ROUTER_TOPK, set_spread },
	{ "no spread of a guess", M6NPU_OP_ROUTER_TOPK, set_no_spread },
	{ "pad of TOPK", M6NPU_OP_TOPK, set_last_word },
	{ "rotation", M6NPU_OP_ROPE, set_last_word },
};

static size_t count_accepted(const struct list *list,
			     void (*apply)(struct m6npu_cmd *cmd), int opcode)
{
	size_t i, accepted = 0;
	struct m6npu_cmd cmd;

	for (i = 0; i < list->count; i++) {
		cmd = list->cmds[i];
		if (opcode >= 0 && cmd.opcode != opcode)
			continue;
		if (apply)
			apply(&cmd);
		accepted += !command_check(&cmd, list->tile, &list->runtime);
	}
	return accepted;
}

static void check_list(const char *model, const struct list *list)
{
	size_t i;

	ok(count_accepted(list, NULL, -1) == list->count,
	   "%s, tile %u: %zu commands are good", model, list->tile,
	   list->count);
	for (i = 0; i < ARRAY_SIZE(changes); i++)
		ok(!count_accepted(list, changes[i].apply, -1),
		   "%s, tile %u: %s", model, list->tile, changes[i].name);
	for (i = 0; i < ARRAY_SIZE(specials); i++)
		ok(!count_accepted(list, specials[i].apply,
				   specials[i].opcode),
		   "%s, tile %u: %s", model, list->tile, specials[i].name);
}

/* What fits the regions does not fit smaller ones. */
static void check_sizes(const char *model, const struct list *largest)
{
	struct list list = *largest;
	size_t good = list.count;

	list.runtime.scratch_bytes = 1024;
	ok(count_accepted(&list, NULL, -1) < good, "%s: a smaller scratch",
	   model);
	list.runtime = largest->runtime;
	list.runtime.io_bytes = list.runtime.time_offset + 28;
	ok(count_accepted(&list, NULL, -1) == good - 1, "%s: a smaller IO",
	   model);
	list.runtime = largest->runtime;
	list.runtime.kv_layers--;
	ok(count_accepted(&list, NULL, -1) == good - 1, "%s: fewer KV layers",
	   model);
}

static void check_model(const char *model, const char *options)
{
	struct npu_file *file = lists_compile(model, options);
	struct list list;
	int64_t i = -1;

	if (!ok(file != NULL, "%s %s", model, options))
		return;
	while ((i = npu_file_find(file, NPU_SECTION_COMMANDS, i + 1)) >= 0) {
		if (!ok(lists_load(file, i, &list), "%s: list", model))
			continue;
		check_list(model, &list);
		if (list.tile == list.runtime.max_tile)
			check_sizes(model, &list);
		free(list.cmds);
	}
	npu_file_close(file);
}

/* A token has at most 64 experts, a guess as many as there are. */
static void check_many(void)
{
	struct npu_file *file = lists_compile("qwen2moe", "--guess 3");
	struct m6npu_cmd *cmd, *guess = NULL, *prefetch = NULL;
	struct list list;
	size_t i;

	if (!ok(file && lists_of_tile(file, 1, &list), "a list with a guess"))
		return;
	for (i = 0; i < list.count; i++) {
		cmd = &list.cmds[i];
		if (cmd->opcode == M6NPU_OP_EXPERT_PREFETCH)
			prefetch = cmd;
		else if (cmd->opcode == M6NPU_OP_ROUTER_TOPK &&
			 cmd->args.router.flags & M6NPU_ROUTER_CHANCE)
			guess = cmd;
	}
	list.runtime.experts = 100;
	guess->args.router.experts = prefetch->args.moe.experts = 100;
	guess->args.router.k = prefetch->args.moe.k = 65;
	ok(!command_check(guess, 1, &list.runtime) &&
	   !command_check(prefetch, 1, &list.runtime),
	   "a guess may name 65: %s", fail_message());
	guess->args.router.flags = guess->args.router.among = 0;
	ok(command_check(guess, 1, &list.runtime), "a token not: %s",
	   fail_message());
	free(list.cmds);
	npu_file_close(file);
}

int main(void)
{
	check_many();
	check_model("qwen2moe", "--tiles 1,16,64 --quantize int4 --guess 3");
	check_model("qwen3moe", "--tiles 1,16,64 --moe per-expert");
	check_model("mixtral", "--tiles 1,16 --quantize int8 --moe token");
	check_model("llama", "--tiles 1,16,64 --quantize int8");
	return done();
}
