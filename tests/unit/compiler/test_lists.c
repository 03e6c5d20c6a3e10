// SPDX-License-Identifier: MIT
/*
 * Lists as a whole: what the compiler writes of experts for each way through
 * them, and what --verify finds when commands don't fit together.
 */
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "lists.h"

static size_t count_of(const struct list *list, enum m6npu_opcode opcode,
		       uint8_t flags)
{
	size_t i, count = 0;

	for (i = 0; i < list->count; i++)
		count += list->cmds[i].opcode == opcode &&
			 (list->cmds[i].flags & M6NPU_CMD_GROUPED) == flags;
	return count;
}

static struct m6npu_cmd *find(const struct list *list, size_t from,
			      enum m6npu_opcode opcode)
{
	size_t i;

	for (i = from; i < list->count; i++)
		if (list->cmds[i].opcode == opcode)
			return &list->cmds[i];
	return NULL;
}

/* Of qwen2moe: two layers of four experts, two a token. */
struct shape {
	const char *name, *options;
	uint32_t tile;
	size_t plain, grouped, combines, guesses;
};

static const struct shape shapes[] = {
	{ "one token", "--moe grouped --guess 0", 1, 2, 0, 0, 0 },
	{ "token by token", "--moe token --guess 0", 16, 2, 0, 0, 0 },
	{ "grouped", "--moe grouped --guess 0", 16, 0, 2, 2, 0 },
	{ "a command an expert", "--moe per-expert --guess 0", 16, 0, 8, 2, 0 },
	{ "guesses", "--moe token --guess 3", 1, 2, 0, 0, 1 },
	{ "guesses in a large tile", "--moe token --guess 3", 16, 2, 0, 0, 1 },
	{ "the default", "--quantize int4", 16, 0, 2, 2, 1 },
	{ "the default for one token", "--quantize int4", 1, 2, 0, 0, 1 },
};

static bool has_shape(const struct list *list, const struct shape *shape)
{
	return count_of(list, M6NPU_OP_MOE_FFN, 0) == shape->plain &&
	       count_of(list, M6NPU_OP_MOE_FFN, M6NPU_CMD_GROUPED) ==
		       shape->grouped &&
	       count_of(list, M6NPU_OP_MOE_COMBINE, 0) == shape->combines &&
	       count_of(list, M6NPU_OP_ROUTER_TOPK, 0) == 2 + shape->guesses &&
	       count_of(list, M6NPU_OP_EXPERT_PREFETCH, 0) == shape->guesses;
}

static void test_shapes(void)
{
	struct npu_file *file;
	struct list list;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(shapes); i++) {
		file = lists_compile("qwen2moe", shapes[i].options);
		if (!ok(file && lists_of_tile(file, shapes[i].tile, &list),
			"%s: compiled", shapes[i].name))
			continue;
		ok(has_shape(&list, &shapes[i]), "%s: commands",
		   shapes[i].name);
		free(list.cmds);
		npu_file_close(file);
	}
}

/* A guess comes before the work that hides its reads. */
static void test_guess(void)
{
	struct npu_file *file = lists_compile("qwen2moe", "--guess 3");
	const struct m6npu_cmd *guess, *prefetch, *ffn;
	struct list list;

	if (!ok(file && lists_of_tile(file, 1, &list), "a list with a guess"))
		return;
	guess = find(&list, 0, M6NPU_OP_ROUTER_TOPK);
	prefetch = find(&list, 0, M6NPU_OP_EXPERT_PREFETCH);
	ffn = find(&list, 0, M6NPU_OP_MOE_FFN);
	ok(guess < prefetch && prefetch < ffn && ffn->layer == 0 &&
	   prefetch->layer == 1 && guess->layer == 1,
	   "layer 0 names experts of layer 1 before it works");
	ok(guess->args.router.flags == M6NPU_ROUTER_CHANCE &&
	   guess->args.router.k == 3 && guess->args.router.among == 2 &&
	   guess->args.router.scale == 0x3f800000,
	   "three, by their chance to be among two, over a spread of 1");
	ok(prefetch->operand[0] == guess->operand[0] &&
	   prefetch->operand[1] == guess->operand[1] &&
	   prefetch->args.moe.k == 3 && prefetch->args.moe.experts == 4,
	   "and those are fetched");
	free(list.cmds);
	npu_file_close(file);
}

/* A model with one sparse layer has nobody to guess about. */
static void test_single(void)
{
	struct npu_file *file = lists_compile("qwen3moe", "--guess 3");
	struct list list;

	if (!ok(file && lists_of_tile(file, 16, &list), "one sparse layer"))
		return;
	ok(!list.runtime.guesses && !list.runtime.guess_ids_offset &&
	   list.runtime.routed_offset &&
	   !count_of(&list, M6NPU_OP_EXPERT_PREFETCH, 0), "is not guessed about");
	free(list.cmds);
	npu_file_close(file);
}

/* Changes that leave every command good for itself. */

static void drop_member(struct list *list)
{
	find(list, 0, M6NPU_OP_MOE_FFN)->args.moe.members--;
}

static void repeat_member(struct list *list)
{
	struct m6npu_cmd *first = find(list, 0, M6NPU_OP_MOE_FFN);

	first[1].operand[3] = first->operand[3];
}

/* Whatever lies there: not numbers of experts. */
static void misplace_members(struct list *list)
{
	find(list, 0, M6NPU_OP_MOE_FFN)->operand[3] =
		M6NPU_OPERAND(NPU_REGION_WEIGHTS, 0);
}

static void mix_members(struct list *list)
{
	find(list, 0, M6NPU_OP_MOE_FFN)->operand[3] =
		M6NPU_OPERAND(NPU_REGION_SCRATCH, 0);
}

static void drop_combine(struct list *list)
{
	*find(list, 0, M6NPU_OP_MOE_COMBINE) =
		(struct m6npu_cmd){ .opcode = M6NPU_OP_BARRIER };
}

static void combine_other(struct list *list)
{
	find(list, 0, M6NPU_OP_MOE_COMBINE)->operand[1] += 64;
}

static void swap_layers(struct list *list)
{
	find(list, 0, M6NPU_OP_MOE_FFN)->layer = 1;
}

static void move_routed(struct list *list)
{
	struct m6npu_cmd *cmd = find(list, 0, M6NPU_OP_ROUTER_TOPK);

	while (cmd->args.router.flags & M6NPU_ROUTER_CHANCE)
		cmd = find(list, cmd + 1 - list->cmds, M6NPU_OP_ROUTER_TOPK);
	cmd->operand[0] += 4;
}

static void move_guess(struct list *list)
{
	find(list, 0, M6NPU_OP_ROUTER_TOPK)->operand[0] += 4;
}

static void guess_fewer(struct list *list)
{
	find(list, 0, M6NPU_OP_ROUTER_TOPK)->args.router.k = 2;
}

static void guess_first(struct list *list)
{
	find(list, 0, M6NPU_OP_ROUTER_TOPK)->layer = 0;
}

static void drop_guess(struct list *list)
{
	*find(list, 0, M6NPU_OP_ROUTER_TOPK) =
		(struct m6npu_cmd){ .opcode = M6NPU_OP_BARRIER };
}

static void other_ids(struct list *list)
{
	find(list, 0, M6NPU_OP_MOE_FFN)->operand[2] += 4;
}

static void group_less(struct list *list)
{
	find(list, 0, M6NPU_OP_MOE_FFN)[3].args.moe.rows--;
}

static void combine_less(struct list *list)
{
	find(list, 0, M6NPU_OP_MOE_COMBINE)->args.moe.rows--;
}

static void combine_results(struct list *list)
{
	find(list, 0, M6NPU_OP_MOE_COMBINE)->flags |= M6NPU_CMD_OUT_ROWS;
}

static void drop_work(struct list *list)
{
	struct m6npu_cmd *first = find(list, 0, M6NPU_OP_MOE_FFN);
	int i;

	/* Four experts, and what combines them. */
	for (i = 0; i < 5; i++)
		first[i] = (struct m6npu_cmd){ .opcode = M6NPU_OP_BARRIER };
}

static void work_twice(struct list *list)
{
	struct m6npu_cmd *first = find(list, 0, M6NPU_OP_MOE_FFN);
	struct m6npu_cmd *second = find(list, first + 5 - list->cmds,
					M6NPU_OP_MOE_FFN);

	memcpy(second, first, 5 * sizeof(*first));
}

static void too_many_layers(struct list *list)
{
	list->runtime.expert_layers = M6NPU_MAX_EXPERT_LAYERS + 1;
}

static void too_many_experts(struct list *list)
{
	list->runtime.experts = 65536;
}

static const struct fault {
	const char *name;
	void (*apply)(struct list *list);
	const char *text;
} faults[] = {
	{ "an expert left out", drop_member, "3 of 4 experts" },
	{ "an expert twice", repeat_member, "is a member twice" },
	{ "members that are none", misplace_members, "of 4" },
	{ "members that are no weights", mix_members, "not in the weights" },
	{ "no combination", drop_combine, "is not combined" },
	{ "a combination of something else", combine_other,
	  "no group has made" },
	{ "a layer before its router", swap_layers, "layer 1 was routed to" },
	{ "routed ids elsewhere", move_routed, "runtime.routed_offset" },
	{ "guessed ids elsewhere", move_guess, "runtime block" },
	{ "fewer guesses", guess_fewer, "runtime block" },
	{ "guesses about the first layer", guess_first, "too late" },
	{ "no guess", drop_guess, "nobody guesses about layer 1" },
	{ "ids of somebody else", other_ids, "not those that layer 0" },
	{ "a group of fewer rows", group_less, "not of the group before" },
	{ "a combination of other rows", combine_less, "no group has made" },
	{ "a combination of results only", combine_results,
	  "no group has made" },
	{ "a layer that does nothing", drop_work,
	  "the experts of layer 0 do nothing" },
	{ "a layer that works twice", work_twice,
	  "the experts of layer 0 work twice" },
	{ "more layers than there can be", too_many_layers,
	  "the NPU takes 256 of 512" },
	{ "more experts than there can be", too_many_experts,
	  "the NPU takes 256 of 512" },
};

static int check(struct npu_file *file, const struct list *list)
{
	const struct command_array array = { list->cmds, list->count,
					     &list->runtime };
	struct static_part members = { 0 };
	uint64_t begin, end;
	size_t at;
	int ret;

	list_members(&array, &begin, &end);
	ret = begin < end ? static_part_load(&members, file, begin, end) : 0;
	if (!ret)
		ret = list_check(&array, &members, &at);
	static_part_free(&members);
	return ret;
}

static void test_faults(void)
{
	struct npu_file *file = lists_compile("qwen2moe",
		"--moe per-expert --guess 3 --quantize int8");
	struct list list;
	size_t i;

	if (!ok(file != NULL, "a file to spoil"))
		return;
	for (i = 0; i < ARRAY_SIZE(faults); i++) {
		if (!ok(lists_of_tile(file, 16, &list), "a list to spoil"))
			return;
		ok(!check(file, &list), "%s: good before", faults[i].name);
		faults[i].apply(&list);
		ok(check(file, &list) &&
		   strstr(fail_message(), faults[i].text), "%s: %s",
		   faults[i].name, fail_message());
		free(list.cmds);
	}
	npu_file_close(file);
}

int main(void)
{
	test_shapes();
	test_guess();
	test_single();
	test_faults();
	return done();
}
