// SPDX-License-Identifier: MIT
#include "command_check.h"

#include <string.h>

#include "weight.h"

/* The device's limits; see Documentation/hardware.rst. */
#define MAX_DIM		(1u << 22)
#define MAX_EXPERT_DIM	65536u
#define MAX_HEADS	1024u
#define MAX_ROUTED	64u
#define MAX_TOPK	256u
/* Above: infinite, no number, or less than 0. */
#define MAX_FLOAT_BITS	0x7f7fffffu

struct check {
	const struct m6npu_cmd *cmd;
	const struct npu_runtime *runtime;
	uint32_t tile;
	uint32_t rows;		/* live at most */
};

struct operation {
	const char *name;
	uint8_t flags;		/* M6NPU_CMD_* it takes */
	uint8_t required;	/* masks of operands */
	uint8_t optional;
	uint8_t typed;		/* mask of type[] */
	uint8_t words;		/* of args; the rest is zero */
	bool has_rows;
	int (*check)(const struct check *check);
};

static bool dimension(uint64_t value, uint64_t max)
{
	return value >= 1 && value <= max;
}

static uint64_t region_bytes(const struct npu_runtime *runtime,
			     unsigned int region)
{
	switch (region) {
	case NPU_REGION_WEIGHTS:
		return runtime->weights_bytes;
	case NPU_REGION_SCRATCH:
		return runtime->scratch_bytes;
	case NPU_REGION_IO:
		return runtime->io_bytes;
	default:
		return 0;	/* the KV cache is as large as the user wants */
	}
}

static int check_bytes(const struct check *check, unsigned int index,
		       uint64_t bytes, bool write)
{
	uint64_t operand = check->cmd->operand[index];
	unsigned int region = operand >> M6NPU_OPERAND_REGION_SHIFT;
	uint64_t offset = operand & M6NPU_OPERAND_OFFSET_MASK;
	uint64_t room;

	if (region >= NPU_REGION_COUNT ||
	    operand != M6NPU_OPERAND(region, offset) || offset % 4)
		return fail("operand %u is malformed", index);
	room = region_bytes(check->runtime, region);
	if (offset > room || bytes > room - offset)
		return fail("operand %u reaches beyond its region (%llu bytes from %llu of %llu)",
			    index, (unsigned long long)bytes,
			    (unsigned long long)offset,
			    (unsigned long long)room);
	if (write && region == NPU_REGION_WEIGHTS)
		return fail("operand %u writes to the weights", index);
	return 0;
}

/* @rows rows of @width F32 or I32, @stride apart. */
static int check_rows(const struct check *check, unsigned int index,
		      uint64_t rows, uint64_t stride, uint64_t width,
		      bool write)
{
	if (!dimension(width, MAX_DIM) || (rows > 1 && stride < width))
		return fail("operand %u has rows of %llu elements every %llu",
			    index, (unsigned long long)width,
			    (unsigned long long)stride);
	return check_bytes(check, index, ((rows - 1) * stride + width) * 4,
			   write);
}

static int check_matrix(const struct check *check, unsigned int index,
			uint8_t type, uint64_t rows, uint64_t cols)
{
	if (!weight_row_is_whole(type, cols))
		return fail("operand %u: rows of %llu elements cannot be of type %u",
			    index, (unsigned long long)cols, type);
	if (!dimension(rows, MAX_DIM) || !dimension(cols, MAX_DIM))
		return fail("operand %u has an impossible size", index);
	return check_bytes(check, index, rows * weight_row_bytes(type, cols),
			   false);
}

static int check_barrier(const struct check *check)
{
	return 0;
}

static int check_timestamp(const struct check *check)
{
	return check_bytes(check, 0, 16, true);
}

static int check_copy(const struct check *check)
{
	uint64_t bytes = check->cmd->args.mem.bytes;

	return check_bytes(check, 0, bytes, true) ||
	       check_bytes(check, 1, bytes, false);
}

static int check_fill(const struct check *check)
{
	return check_bytes(check, 0, check->cmd->args.mem.bytes, true);
}

static int check_embed(const struct check *check)
{
	const struct m6npu_cmd *cmd = check->cmd;
	uint32_t width = cmd->args.embed.width;

	return check_rows(check, 0, check->rows, width, width, true) ||
	       check_matrix(check, 1, cmd->type[1], cmd->args.embed.vocab,
			    width);
}

static int check_gather(const struct check *check)
{
	uint32_t width = check->cmd->args.embed.width;
	uint32_t out = check->runtime->max_out;

	if (check->cmd->args.embed.vocab)
		return fail("a reserved field is not zero");
	if (out > check->tile)
		out = check->tile;
	return check_rows(check, 0, out, width, width, true) ||
	       check_rows(check, 1, check->rows, width, width, false);
}

static int check_norm(const struct check *check)
{
	const struct m6npu_cmd *cmd = check->cmd;
	uint64_t width = cmd->args.norm.width;
	uint64_t row = width * cmd->args.norm.groups;

	return check_rows(check, 0, check->rows, cmd->args.norm.dst_stride,
			  row, true) ||
	       check_rows(check, 1, check->rows, cmd->args.norm.src_stride,
			  row, false) ||
	       check_rows(check, 2, 1, width, width, false);
}

static int check_gemm(const struct check *check)
{
	const struct m6npu_cmd *cmd = check->cmd;
	uint32_t n = cmd->args.gemm.n, k = cmd->args.gemm.k;

	if (check_rows(check, 0, check->rows, cmd->args.gemm.dst_stride, n,
		       true) ||
	    check_rows(check, 1, check->rows, cmd->args.gemm.src_stride, k,
		       false) ||
	    check_matrix(check, 2, cmd->type[2], n, k))
		return -1;
	if (cmd->operand[3] == M6NPU_OPERAND_NONE)
		return 0;
	return check_rows(check, 3, 1, n, n, false);
}

static int check_rope(const struct check *check)
{
	const struct m6npu_cmd *cmd = check->cmd;
	uint32_t rot = cmd->args.rope.rot_dim, head = cmd->args.rope.head_dim;

	if (!rot || rot % 2 || rot > head ||
	    !dimension(cmd->args.rope.heads, MAX_HEADS) ||
	    cmd->args.rope.flags & ~M6NPU_ROPE_INTERLEAVED)
		return fail("rotation of %u of %u elements", rot, head);
	if (check_rows(check, 0, check->rows, cmd->args.rope.stride,
		       (uint64_t)cmd->args.rope.heads * head, true))
		return -1;
	if (cmd->operand[1] == M6NPU_OPERAND_NONE)
		return 0;
	return check_rows(check, 1, 1, rot / 2, rot / 2, false);
}

static int check_attention(const struct check *check)
{
	const struct npu_runtime *r = check->runtime;
	const struct m6npu_cmd *cmd = check->cmd;
	uint32_t heads = cmd->args.attention.heads;
	uint32_t kv_heads = cmd->args.attention.kv_heads;
	uint64_t width = (uint64_t)heads * cmd->args.attention.head_dim;
	uint64_t all = width +
		       2ull * kv_heads * cmd->args.attention.head_dim;

	if (cmd->args.attention.pad0 || cmd->args.attention.pad1)
		return fail("a reserved field is not zero");
	if (cmd->layer >= r->kv_layers || kv_heads != r->kv_heads ||
	    cmd->args.attention.head_dim != r->head_dim ||
	    !dimension(heads, MAX_HEADS) || heads % kv_heads)
		return fail("layer %u with %u heads over %u does not fit the KV cache",
			    cmd->layer, heads, kv_heads);
	if (cmd->operand[2] != M6NPU_OPERAND(NPU_REGION_KV, 0))
		return fail("operand 2 is not the KV cache");
	return check_rows(check, 0, check->rows, width, width, true) ||
	       check_rows(check, 1, check->rows, all, all, false);
}

static int check_glu(const struct check *check)
{
	const struct m6npu_cmd *cmd = check->cmd;
	uint32_t n = cmd->args.glu.n;

	if (cmd->args.glu.act > M6NPU_ACT_GELU)
		return fail("unknown activation");
	return check_rows(check, 0, check->rows, cmd->args.glu.dst_stride, n,
			  true) ||
	       check_rows(check, 1, check->rows, cmd->args.glu.gate_stride, n,
			  false) ||
	       check_rows(check, 2, check->rows, cmd->args.glu.up_stride, n,
			  false);
}

static int check_add(const struct check *check)
{
	uint32_t n = check->cmd->args.add.n;
	bool gated = check->cmd->opcode == M6NPU_OP_GATED_ADD;

	if (check->cmd->opcode != M6NPU_OP_SCALE &&
	    check->cmd->args.add.factor)
		return fail("a reserved field is not zero");
	if (check_rows(check, 0, check->rows, n, n, true) ||
	    check_rows(check, 1, check->rows, n, n, false))
		return -1;
	if (check->cmd->opcode == M6NPU_OP_SCALE)
		return 0;
	return check_rows(check, 2, check->rows, gated ? 1 : n, gated ? 1 : n,
			  false);
}

/* A guess, or the real thing; each has its own fields. */
static int check_router_kind(const struct m6npu_cmd *cmd)
{
	uint32_t flags = cmd->args.router.flags;
	uint32_t among = cmd->args.router.among;

	if (flags == M6NPU_ROUTER_CHANCE) {
		if (!dimension(among, cmd->args.router.experts))
			return fail("chances to be among %u of %u experts",
				    among, cmd->args.router.experts);
		if (cmd->operand[3] != M6NPU_OPERAND_NONE)
			return fail("a guess with a selection bias");
		if (!cmd->args.router.scale ||
		    cmd->args.router.scale > MAX_FLOAT_BITS)
			return fail("chances over a spread that is no number above 0");
		return 0;
	}
	if (cmd->args.router.k > MAX_ROUTED)
		return fail("%u choices of a token", cmd->args.router.k);
	if (among || flags & ~(M6NPU_ROUTER_SIGMOID |
			       M6NPU_ROUTER_RENORMALIZE))
		return fail("routing with flags %#x among %u", flags, among);
	return 0;
}

static int check_router(const struct check *check)
{
	const struct m6npu_cmd *cmd = check->cmd;
	uint32_t experts = cmd->args.router.experts, k = cmd->args.router.k;

	if (!dimension(experts, M6NPU_MAX_EXPERTS_PER_LAYER) ||
	    !dimension(k, experts))
		return fail("routing to %u of %u experts", k, experts);
	if (check_router_kind(cmd))
		return -1;
	if (check_rows(check, 0, check->rows, k, k, true) ||
	    check_rows(check, 1, check->rows, k, k, true) ||
	    check_rows(check, 2, check->rows, experts, experts, false))
		return -1;
	if (cmd->operand[3] == M6NPU_OPERAND_NONE)
		return 0;
	return check_rows(check, 3, 1, experts, experts, false);
}

uint64_t command_expert_bytes(const struct m6npu_cmd *cmd,
			      const uint8_t type[3])
{
	uint64_t hidden = cmd->args.moe.hidden, ffn = cmd->args.moe.ffn;
	uint64_t bytes = 0;
	int i;

	if (!dimension(hidden, MAX_EXPERT_DIM) ||
	    !dimension(ffn, MAX_EXPERT_DIM))
		return 0;
	for (i = 0; i < 3; i++) {
		if (!weight_row_is_whole(type[i], i < 2 ? hidden : ffn))
			return 0;
		bytes = align_up(bytes, M6NPU_EXPERT_ALIGN) + (i < 2 ?
			ffn * weight_row_bytes(type[i], hidden) :
			hidden * weight_row_bytes(type[i], ffn));
	}
	return bytes;
}

/* Destination and last operand, which depend on who goes first. */
static int check_moe_order(const struct check *check)
{
	const struct m6npu_cmd *cmd = check->cmd;
	uint32_t k = cmd->args.moe.k, hidden = cmd->args.moe.hidden;
	uint32_t members = cmd->args.moe.members;

	if (!(cmd->flags & M6NPU_CMD_GROUPED)) {
		if (members || cmd->args.moe.capacity)
			return fail("a capacity or members, and no groups");
		return check_rows(check, 0, check->rows, hidden, hidden,
				  true) ||
		       check_rows(check, 3, check->rows, k, k, false);
	}
	if (cmd->flags & M6NPU_CMD_ACCUMULATE)
		return fail("groups do not add to what is there");
	if (!cmd->args.moe.capacity ||
	    !dimension(members, cmd->args.moe.experts))
		return fail("groups of %u of %u experts with a capacity of %u",
			    members, cmd->args.moe.experts,
			    cmd->args.moe.capacity);
	return check_rows(check, 0, (uint64_t)check->rows * k, hidden, hidden,
			  true) ||
	       check_rows(check, 3, 1, members, members, false);
}

static int check_moe(const struct check *check)
{
	const struct npu_runtime *r = check->runtime;
	const struct m6npu_cmd *cmd = check->cmd;
	uint32_t k = cmd->args.moe.k, hidden = cmd->args.moe.hidden;
	uint64_t bytes = command_expert_bytes(cmd, &cmd->type[1]);

	if (cmd->layer >= r->expert_layers ||
	    cmd->args.moe.experts != r->experts || !dimension(k, MAX_ROUTED) ||
	    k > r->experts || cmd->args.moe.act > M6NPU_ACT_GELU)
		return fail("layer %u with %u experts does not fit the expert table",
			    cmd->layer, cmd->args.moe.experts);
	if (!bytes || bytes > r->expert_bytes)
		return fail("experts of %llu bytes where the file's take %llu",
			    (unsigned long long)bytes,
			    (unsigned long long)r->expert_bytes);
	return check_rows(check, 1, check->rows, hidden, hidden, false) ||
	       check_rows(check, 2, check->rows, k, k, false) ||
	       check_moe_order(check);
}

static int check_combine(const struct check *check)
{
	const struct m6npu_cmd *cmd = check->cmd;
	uint32_t k = cmd->args.moe.k, hidden = cmd->args.moe.hidden;

	if (cmd->args.moe.experts || cmd->args.moe.ffn ||
	    cmd->args.moe.act || cmd->args.moe.capacity ||
	    cmd->args.moe.members)
		return fail("a reserved field is not zero");
	if (!dimension(k, MAX_ROUTED))
		return fail("%u choices of a token", k);
	return check_rows(check, 0, check->rows, hidden, hidden, true) ||
	       check_rows(check, 1, (uint64_t)check->rows * k, hidden, hidden,
			  false) ||
	       check_rows(check, 2, check->rows, k, k, false);
}

static int check_prefetch(const struct check *check)
{
	const struct m6npu_cmd *cmd = check->cmd;
	uint32_t k = cmd->args.moe.k;

	if (cmd->args.moe.hidden || cmd->args.moe.ffn || cmd->args.moe.act ||
	    cmd->args.moe.capacity || cmd->args.moe.members)
		return fail("a reserved field is not zero");
	if (cmd->layer >= check->runtime->expert_layers ||
	    cmd->args.moe.experts != check->runtime->experts ||
	    !dimension(k, check->runtime->experts))
		return fail("layer %u with %u of %u experts does not fit the expert table",
			    cmd->layer, k, cmd->args.moe.experts);
	return check_rows(check, 0, check->rows, k, k, false) ||
	       check_rows(check, 1, check->rows, k, k, false);
}

static int check_topk(const struct check *check)
{
	const struct m6npu_cmd *cmd = check->cmd;
	uint32_t n = cmd->args.topk.n, k = cmd->args.topk.k;

	if (!dimension(k, n) || k > MAX_TOPK)
		return fail("%u best of %u", k, n);
	return check_rows(check, 0, check->rows, k, k, true) ||
	       check_rows(check, 1, check->rows, k, k, true) ||
	       check_rows(check, 2, check->rows, n, n, false);
}

#define OUT	M6NPU_CMD_OUT_ROWS
#define ACC	M6NPU_CMD_ACCUMULATE
#define GRP	M6NPU_CMD_GROUPED

/* Name, flags, required and optional operands, types, words, rows. */
static const struct operation operations[] = {
	[M6NPU_OP_BARRIER] = { "BARRIER", 0, 0, 0, 0, 0, false,
			       check_barrier },
	[M6NPU_OP_TIMESTAMP] = { "TIMESTAMP", 0, 1, 0, 0, 0, false,
				 check_timestamp },
	[M6NPU_OP_COPY] = { "COPY", 0, 3, 0, 0, 2, false, check_copy },
	[M6NPU_OP_FILL] = { "FILL", 0, 1, 0, 0, 3, false, check_fill },
	[M6NPU_OP_EMBED] = { "EMBED", OUT, 3, 0, 2, 3, true, check_embed },
	[M6NPU_OP_NORM] = { "NORM", OUT, 7, 0, 0, 6, true, check_norm },
	[M6NPU_OP_GEMM] = { "GEMM", OUT | ACC, 7, 8, 4, 5, true, check_gemm },
	[M6NPU_OP_ROPE] = { "ROPE", OUT, 1, 2, 0, 6, true, check_rope },
	[M6NPU_OP_ATTENTION] = { "ATTENTION", OUT, 7, 0, 0, 6, true,
				 check_attention },
	[M6NPU_OP_GLU] = { "GLU", OUT, 7, 0, 0, 6, true, check_glu },
	[M6NPU_OP_ADD] = { "ADD", OUT, 7, 0, 0, 3, true, check_add },
	[M6NPU_OP_SCALE] = { "SCALE", OUT, 3, 0, 0, 3, true, check_add },
	[M6NPU_OP_GATHER] = { "GATHER", 0, 3, 0, 0, 3, true, check_gather },
	[M6NPU_OP_GATED_ADD] = { "GATED_ADD", OUT, 7, 0, 0, 3, true,
				 check_add },
	[M6NPU_OP_ROUTER_TOPK] = { "ROUTER_TOPK", OUT, 7, 8, 0, 6, true,
				   check_router },
	[M6NPU_OP_MOE_FFN] = { "MOE_FFN", OUT | ACC | GRP, 15, 0, 14, 6, true,
			       check_moe },
	[M6NPU_OP_MOE_COMBINE] = { "MOE_COMBINE", OUT | ACC, 7, 0, 0, 6, true,
				   check_combine },
	[M6NPU_OP_EXPERT_PREFETCH] = { "EXPERT_PREFETCH", OUT, 3, 0, 0, 6,
				       true, check_prefetch },
	[M6NPU_OP_TOPK] = { "TOPK", OUT, 7, 0, 0, 3, true, check_topk },
};

const char *command_name(uint8_t opcode)
{
	if (opcode >= ARRAY_SIZE(operations) || !operations[opcode].name)
		return "?";
	return operations[opcode].name;
}

static int check_operands(const struct operation *operation,
			  const struct m6npu_cmd *cmd)
{
	unsigned int i;
	bool none;

	for (i = 0; i < 4; i++) {
		none = cmd->operand[i] == M6NPU_OPERAND_NONE;
		if (operation->required & 1u << i) {
			if (none)
				return fail("operand %u is missing", i);
		} else if (!(operation->optional & 1u << i) && !none &&
			   cmd->operand[i]) {
			return fail("operand %u has no meaning", i);
		}
		if (!(operation->typed & 1u << i) && cmd->type[i])
			return fail("the type of operand %u has no meaning",
				    i);
	}
	return 0;
}

int command_check(const struct m6npu_cmd *cmd, uint32_t tile,
		  const struct npu_runtime *runtime)
{
	struct check check = { cmd, runtime, tile, 0 };
	const struct operation *operation;
	unsigned int i;

	if (cmd->opcode >= ARRAY_SIZE(operations) ||
	    !operations[cmd->opcode].name)
		return fail("opcode %#x is none of a model", cmd->opcode);
	operation = &operations[cmd->opcode];
	if (cmd->flags & ~operation->flags)
		return fail("flags %#x have no meaning", cmd->flags);
	for (i = operation->words; i < ARRAY_SIZE(cmd->args.word); i++)
		if (cmd->args.word[i])
			return fail("a reserved field is not zero");
	if (check_operands(operation, cmd))
		return -1;
	if (operation->has_rows) {
		check.rows = cmd->args.word[0];
		if (!dimension(check.rows, tile))
			return fail("%u rows in a tile of %u", check.rows,
				    tile);
		if (cmd->flags & M6NPU_CMD_OUT_ROWS &&
		    check.rows > runtime->max_out)
			return fail("%u rows of results where there are %u",
				    check.rows, runtime->max_out);
	}
	return operation->check(&check) ? -1 : 0;
}
