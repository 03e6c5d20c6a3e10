// SPDX-License-Identifier: MIT
#include "list_check.h"

#include <string.h>

struct state {
	const struct npu_runtime *runtime;
	const struct static_part *members;
	const struct m6npu_cmd *group;	/* the first of one that is open */
	unsigned int covered;		/* experts of it */
	bool is_covered[M6NPU_MAX_EXPERTS_PER_LAYER];
	bool routed[M6NPU_MAX_EXPERT_LAYERS];
	bool guessed[M6NPU_MAX_EXPERT_LAYERS];
	bool worked[M6NPU_MAX_EXPERT_LAYERS];
};

static bool grouped(const struct m6npu_cmd *cmd)
{
	return cmd->opcode == M6NPU_OP_MOE_FFN &&
	       cmd->flags & M6NPU_CMD_GROUPED;
}

static bool static_members(const struct m6npu_cmd *cmd)
{
	return cmd->operand[3] >> M6NPU_OPERAND_REGION_SHIFT ==
	       NPU_REGION_WEIGHTS;
}

void list_members(const struct command_array *list, uint64_t *begin,
		  uint64_t *end)
{
	const struct m6npu_cmd *cmd;
	uint64_t at, bytes;
	size_t i;

	*begin = *end = 0;
	for (i = 0; i < list->count; i++) {
		cmd = &list->cmds[i];
		if (!grouped(cmd) || !static_members(cmd))
			continue;
		at = cmd->operand[3] & M6NPU_OPERAND_OFFSET_MASK;
		bytes = cmd->args.moe.members * sizeof(int32_t);
		if (!*end || at < *begin)
			*begin = at;
		if (at + bytes > *end)
			*end = at + bytes;
	}
}

static int cover(struct state *state, const struct m6npu_cmd *cmd)
{
	const int32_t *ids = NULL;
	uint32_t i;

	if (static_members(cmd))
		ids = static_part_at(state->members, cmd->operand[3] &
				     M6NPU_OPERAND_OFFSET_MASK,
				     cmd->args.moe.members * sizeof(*ids));
	if (!ids)
		return fail("its members are not in the weights");
	for (i = 0; i < cmd->args.moe.members; i++) {
		if (ids[i] < 0 || (uint32_t)ids[i] >= state->runtime->experts)
			return fail("member %u is expert %d of %u", i, ids[i],
				    state->runtime->experts);
		if (state->is_covered[ids[i]])
			return fail("expert %d is a member twice", ids[i]);
		state->is_covered[ids[i]] = true;
	}
	state->covered += cmd->args.moe.members;
	return 0;
}

/* In all but their members, and the room for them. */
static bool same_work(const struct m6npu_cmd *a, const struct m6npu_cmd *b)
{
	return a->layer == b->layer && a->flags == b->flags &&
	       a->args.moe.rows == b->args.moe.rows &&
	       a->args.moe.k == b->args.moe.k &&
	       a->args.moe.hidden == b->args.moe.hidden &&
	       a->args.moe.ffn == b->args.moe.ffn &&
	       a->args.moe.act == b->args.moe.act &&
	       !memcmp(a->type, b->type, sizeof(a->type)) &&
	       !memcmp(a->operand, b->operand, 3 * sizeof(a->operand[0]));
}

static int check_group(struct state *state, const struct m6npu_cmd *cmd)
{
	const struct m6npu_cmd *first = state->group;

	if (!first) {
		state->group = cmd;
		state->covered = 0;
		memset(state->is_covered, 0, sizeof(state->is_covered));
	} else if (!same_work(cmd, first)) {
		return fail("not of the group before it, which is not combined");
	}
	return cover(state, cmd);
}

/* All experts of a layer are through. */
static int check_work(struct state *state, uint32_t layer)
{
	/* Before 1.1, IO kept nothing of routing, and no rule was about it. */
	if (!state->runtime->routed_offset)
		return 0;
	if (state->worked[layer])
		return fail("the experts of layer %u work twice", layer);
	state->worked[layer] = true;
	return 0;
}

static int check_combine(struct state *state, const struct m6npu_cmd *cmd)
{
	const struct m6npu_cmd *group = state->group;

	if (!group || cmd->operand[1] != group->operand[0] ||
	    (cmd->flags ^ group->flags) & M6NPU_CMD_OUT_ROWS ||
	    cmd->args.moe.rows != group->args.moe.rows ||
	    cmd->args.moe.k != group->args.moe.k ||
	    cmd->args.moe.hidden != group->args.moe.hidden)
		return fail("combines what no group has made");
	if (state->covered != state->runtime->experts)
		return fail("combines the work of %u of %u experts",
			    state->covered, state->runtime->experts);
	state->group = NULL;
	return check_work(state, group->layer);
}

/* Where IO has what a layer, or a guess about it, chose. */
static uint64_t place_of(const struct state *state, uint64_t offset,
			 uint32_t layer, uint32_t width)
{
	return M6NPU_OPERAND(NPU_REGION_IO, offset + 4ull * layer *
			     state->runtime->max_tile * width);
}

static uint64_t routed_place(const struct state *state, uint32_t layer)
{
	return place_of(state, state->runtime->routed_offset, layer,
			state->runtime->experts_per_token);
}

static int check_router(struct state *state, const struct m6npu_cmd *cmd)
{
	const struct npu_runtime *r = state->runtime;
	uint32_t layer = cmd->layer;

	if (layer >= r->expert_layers || state->routed[layer])
		return fail("layer %u of %u is routed, or routed twice", layer,
			    r->expert_layers);
	if (cmd->args.router.k != r->experts_per_token ||
	    cmd->operand[0] != routed_place(state, layer))
		return fail("its ids do not go where runtime.routed_offset says");
	state->routed[layer] = true;
	return 0;
}

static int check_guess(struct state *state, const struct m6npu_cmd *cmd)
{
	const struct npu_runtime *r = state->runtime;
	uint32_t layer = cmd->layer;

	if (!layer || layer >= r->expert_layers || state->guessed[layer] ||
	    state->routed[layer])
		return fail("layer %u of %u is guessed about, or too late",
			    layer, r->expert_layers);
	if (cmd->args.router.k != r->guesses ||
	    cmd->operand[0] != place_of(state, r->guess_ids_offset, layer,
					r->guesses) ||
	    cmd->operand[1] != place_of(state, r->guess_chances_offset, layer,
					r->guesses))
		return fail("its guesses do not go where the runtime block says");
	state->guessed[layer] = true;
	return 0;
}

static int check_one(struct state *state, const struct m6npu_cmd *cmd)
{
	bool kept = state->runtime->routed_offset;

	switch (cmd->opcode) {
	case M6NPU_OP_ROUTER_TOPK:
		if (!kept)
			return 0;
		return cmd->args.router.flags & M6NPU_ROUTER_CHANCE ?
			check_guess(state, cmd) : check_router(state, cmd);
	case M6NPU_OP_MOE_FFN:
		if (kept && (!state->routed[cmd->layer] ||
			     cmd->operand[2] != routed_place(state,
							     cmd->layer)))
			return fail("its ids are not those that layer %u was routed to",
				    cmd->layer);
		return grouped(cmd) ? check_group(state, cmd) :
				      check_work(state, cmd->layer);
	case M6NPU_OP_MOE_COMBINE:
		return check_combine(state, cmd);
	default:
		return 0;
	}
}

static int check_end(const struct state *state)
{
	const struct npu_runtime *r = state->runtime;
	uint32_t i;

	if (state->group)
		return fail("the list ends with a group that is not combined");
	if (!r->routed_offset)
		return 0;
	for (i = 0; i < r->expert_layers; i++) {
		if (!state->worked[i])
			return fail("the list ends, and the experts of layer %u do nothing",
				    i);
		if (i && r->guesses && !state->guessed[i])
			return fail("the list ends, and nobody guesses about layer %u",
				    i);
	}
	return 0;
}

int list_check(const struct command_array *list,
	       const struct static_part *members, size_t *at)
{
	struct state state = { list->runtime, members };

	*at = 0;
	if (list->runtime->expert_layers > M6NPU_MAX_EXPERT_LAYERS ||
	    list->runtime->experts > M6NPU_MAX_EXPERTS_PER_LAYER)
		return fail("%u layers of %u experts, and the NPU takes %u of %u",
			    list->runtime->expert_layers,
			    list->runtime->experts, M6NPU_MAX_EXPERT_LAYERS,
			    M6NPU_MAX_EXPERTS_PER_LAYER);
	for (*at = 0; *at < list->count; ++*at)
		if (check_one(&state, &list->cmds[*at]))
			return -1;
	--*at;
	return check_end(&state);
}
