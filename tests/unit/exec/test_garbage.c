// SPDX-License-Identifier: MIT
/*
 * Random commands on random memory: whatever the code, no crash, no step
 * outside a region (under a sanitizer), no endless command. Fields are mostly
 * small, so that many commands get as far as computing.
 *
 * Usage: test_garbage [COUNT [SEED]]
 */
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "fake.h"

/* True once in @n. */
static bool once(uint32_t n)
{
	return fake_random() % n == 0;
}

static uint32_t small(uint32_t limit)
{
	return 1 + fake_random() % limit;
}

/* Multiples of blocks more often than not; sometimes anything. */
static uint32_t dim(void)
{
	static const uint32_t usual[] = { 1, 2, 4, 8, 32, 64, 96, 256, 512 };

	if (once(60))
		return (uint32_t)fake_random();
	if (once(60))
		return 1u << fake_random() % 32;
	return once(5) ? fake_random() % 300 :
			 usual[fake_random() % (sizeof(usual) / 4)];
}

/* Floats of all kinds: ordinary, huge, tiny, not numbers. */
static uint32_t any_float(void)
{
	if (once(3))
		return (uint32_t)fake_random();
	return float_bits(random_float() * (once(4) ? 1e-3f : 100.0f));
}

static void scramble(struct m6_job *job, unsigned int region)
{
	uint32_t *words = job->region[region];
	uint64_t count = job->size[region] / 4;
	uint32_t kind = fake_random() % 4;

	for (uint64_t i = 0; i < count; i++) {
		if (kind == 0)
			words[i] = (uint32_t)fake_random();
		else if (kind == 1)
			words[i] = fake_random() % 8;
		else if (kind == 2)
			words[i] = float_bits(random_float());
		else
			words[i] = any_float();
	}
}

static void scramble_step(struct m6_job *job)
{
	fake_step(job, fake_random() % 20, fake_random() % 40);
	job->step.kv_capacity = once(10) ? (uint32_t)fake_random() : 64;
	job->step.kv_type = once(2) ? M6NPU_TYPE_F16 : M6NPU_TYPE_Q8_0;
	if (once(10))
		job->step.kv_type = fake_random() % 300;
	job->step.kv_slot_stride = once(10) ? fake_random() << 16 :
					      (fake_random() % 64) << 10;
	for (uint32_t i = 0; i < job->step.token_count; i++) {
		struct m6npu_step_token *t = &job->tokens[i];

		t->token = once(50) ? (uint32_t)fake_random() :
				      fake_random() % 8;
		t->slot = once(50) ? (uint32_t)fake_random() :
				     once(4) ? fake_random() % 4 : 0;
		if (once(30))
			t->position = (uint32_t)fake_random();
		if (once(2))
			job->out_rows[job->step.out_count++] = i;
	}
	if (once(4))
		fake_no_step(job);
}

static void scramble_experts(struct m6_job *job)
{
	for (unsigned int i = 0; i < FAKE_EXPERTS; i++) {
		job->experts[i].addr = fake_random() % 64 * 64;
		job->experts[i].size = once(90) ? 100 : 0xffffffff;
		job->experts[i].type = once(9) ? fake_random() % 10 : 0;
		job->in_sram[i] = once(3);
		if (once(300))
			job->experts[i].addr = fake_random();
	}
	job->expert_code = once(50) ? M6NPU_EXC_EXPERT_FAULT : 0;
	job->threshold = fake_random() % 1100;
}

/* Fields of one opcode; the words were filled with dim() before. */
typedef void (*args_fn)(struct m6npu_cmd *cmd);

static void no_args(struct m6npu_cmd *cmd)
{
	memset(&cmd->args, 0, sizeof(cmd->args));
}

static void mem_args(struct m6npu_cmd *cmd)
{
	memset(&cmd->args, 0, sizeof(cmd->args));
	cmd->args.mem.bytes = once(9) ? fake_random() : dim() * 4ull;
	if (cmd->opcode != M6NPU_OP_COPY)
		cmd->args.mem.pattern = fake_random() % 8;
}

static void lz4_args(struct m6npu_cmd *cmd)
{
	no_args(cmd);
	cmd->args.lz4.dst_bytes = once(9) ? fake_random() : dim();
	cmd->args.lz4.src_bytes = once(9) ? fake_random() : dim();
}

static void embed_args(struct m6npu_cmd *cmd)
{
	memset(cmd->args.embed.pad, 0, sizeof(cmd->args.embed.pad));
	cmd->args.embed.vocab = cmd->opcode == M6NPU_OP_EMBED ? 8 : 0;
	cmd->type[1] = cmd->opcode == M6NPU_OP_EMBED ? fake_random() % 10 : 0;
}

static void norm_args(struct m6npu_cmd *cmd)
{
	cmd->args.norm.groups = small(4);
	cmd->args.norm.src_stride = small(4) * 256;
	cmd->args.norm.dst_stride = small(4) * 256;
	cmd->args.norm.eps = any_float();
}

static void gemm_args(struct m6npu_cmd *cmd)
{
	cmd->type[2] = fake_random() % 10;
	cmd->args.gemm.pad = 0;
	if (!once(3))
		cmd->args.gemm.src_stride = cmd->args.gemm.k;
	if (!once(3))
		cmd->args.gemm.dst_stride = cmd->args.gemm.n;
}

static void rope_args(struct m6npu_cmd *cmd)
{
	cmd->args.rope.heads = small(6);
	cmd->args.rope.head_dim = dim();
	cmd->args.rope.rot_dim = once(2) ? cmd->args.rope.head_dim : dim();
	cmd->args.rope.theta = any_float();
	cmd->args.rope.scale = any_float();
	cmd->args.rope.flags = once(20) ? dim() : fake_random() % 2;
}

static void attention_args(struct m6npu_cmd *cmd)
{
	cmd->args.attention.kv_heads = small(3);
	cmd->args.attention.heads = cmd->args.attention.kv_heads * small(3);
	if (once(9))
		cmd->args.attention.heads = dim();
	cmd->args.attention.head_dim = once(9) ? dim() : 32;
	cmd->args.attention.pad0 = 0;
	cmd->args.attention.pad1 = 0;
	cmd->args.attention.window = once(2) ? 0 : dim();
	cmd->args.attention.scale = any_float();
}

static void glu_args(struct m6npu_cmd *cmd)
{
	cmd->args.glu.act = fake_random() % 3;
	if (once(3))
		return;
	cmd->args.glu.gate_stride = cmd->args.glu.up_stride = 300;
	cmd->args.glu.dst_stride = cmd->args.glu.n;
}

static void add_args(struct m6npu_cmd *cmd)
{
	memset(cmd->args.add.pad, 0, sizeof(cmd->args.add.pad));
	cmd->args.add.factor = 0;
	if (cmd->opcode == M6NPU_OP_SCALE)
		cmd->args.add.factor = any_float();
}

static void router_args(struct m6npu_cmd *cmd)
{
	cmd->args.router.k = small(8);
	cmd->args.router.flags = fake_random() % 5;
	cmd->args.router.scale = any_float();
	cmd->args.router.among = 0;
	if (cmd->args.router.flags & M6NPU_ROUTER_CHANCE) {
		cmd->args.router.among = small(8);
		cmd->operand[3] = M6NPU_OPERAND_NONE;
	}
}

/* Ids that fit are rare in memory of all kinds: let many be 512 experts. */
static void moe_args(struct m6npu_cmd *cmd)
{
	for (unsigned int i = 1; i < 4; i++)
		cmd->type[i] = once(4) ? fake_random() % 10 :
					 M6NPU_TYPE_Q4_0;
	cmd->args.moe.k = small(4);
	cmd->args.moe.experts = once(9) ? dim() : once(2) ? 8 : 512;
	cmd->args.moe.act = fake_random() % 2;
	cmd->args.moe.capacity = 0;
	cmd->args.moe.members = 0;
	if (once(2))
		cmd->args.moe.hidden = cmd->args.moe.ffn = 32 * small(4);
}

static void grouped_args(struct m6npu_cmd *cmd)
{
	moe_args(cmd);
	cmd->flags = M6NPU_CMD_GROUPED;
	cmd->args.moe.capacity = once(9) ? dim() : small(8);
	cmd->args.moe.members = once(9) ? dim() : small(3);
}

static void combine_args(struct m6npu_cmd *cmd)
{
	uint32_t hidden = cmd->args.moe.hidden;

	no_args(cmd);
	cmd->args.moe.rows = small(20);
	cmd->args.moe.k = small(8);
	cmd->args.moe.hidden = hidden;
}

static void prefetch_args(struct m6npu_cmd *cmd)
{
	no_args(cmd);
	cmd->args.moe.rows = small(20);
	cmd->args.moe.k = small(8);
	cmd->args.moe.experts = once(2) ? 512 : dim();
}

static void topk_args(struct m6npu_cmd *cmd)
{
	memset(cmd->args.topk.pad, 0, sizeof(cmd->args.topk.pad));
	cmd->args.topk.k = small(10);
}

static const struct {
	uint8_t opcode;
	uint8_t operands;
	args_fn args;
} opcodes[] = {
	{ M6NPU_OP_BARRIER, 0, no_args },
	{ M6NPU_OP_TIMESTAMP, 1, no_args },
	{ M6NPU_OP_COPY, 2, mem_args },
	{ M6NPU_OP_FILL, 1, mem_args },
	{ M6NPU_OP_COMPARE, 2, mem_args },
	{ M6NPU_OP_LZ4_DECOMPRESS, 2, lz4_args },
	{ M6NPU_OP_EMBED, 2, embed_args },
	{ M6NPU_OP_NORM, 3, norm_args },
	{ M6NPU_OP_GEMM, 4, gemm_args },
	{ M6NPU_OP_ROPE, 2, rope_args },
	{ M6NPU_OP_ATTENTION, 3, attention_args },
	{ M6NPU_OP_GLU, 3, glu_args },
	{ M6NPU_OP_ADD, 3, add_args },
	{ M6NPU_OP_SCALE, 2, add_args },
	{ M6NPU_OP_GATHER, 2, embed_args },
	{ M6NPU_OP_GATED_ADD, 3, add_args },
	{ M6NPU_OP_ROUTER_TOPK, 4, router_args },
	{ M6NPU_OP_MOE_FFN, 4, moe_args },
	{ M6NPU_OP_MOE_FFN, 4, grouped_args },
	{ M6NPU_OP_EXPERT_PREFETCH, 2, prefetch_args },
	{ M6NPU_OP_MOE_COMBINE, 3, combine_args },
	{ M6NPU_OP_TOPK, 3, topk_args },
};
#define OPCODES	(sizeof(opcodes) / sizeof(*opcodes))

static unsigned int passed[OPCODES], refused[OPCODES];

/* Operands of one command sometimes share a region. */
static uint64_t any_operand(unsigned int i)
{
	if (once(100))
		return once(2) ? M6NPU_OPERAND_NONE : fake_random() << 20;
	if (once(20))
		i = fake_random() % 4;
	return M6NPU_OPERAND(i, once(2) ? 0 : fake_random() % 64 * 4);
}

static struct m6npu_cmd any_command(unsigned int which)
{
	struct m6npu_cmd cmd = fake_command(opcodes[which].opcode);

	if (once(3))
		cmd.flags = fake_random() % 8;
	if (once(3))
		cmd.layer = fake_random() % 300;
	for (unsigned int i = 0; i < opcodes[which].operands; i++)
		cmd.operand[i] = any_operand(i);
	for (unsigned int i = 0; i < 6; i++)
		cmd.args.word[i] = dim();
	cmd.args.word[0] = once(50) ? dim() : small(24);
	opcodes[which].args(&cmd);
	if (once(10))
		((uint8_t *)&cmd)[fake_random() % sizeof(cmd)] = fake_random();
	return cmd;
}

static void run_one(struct m6_exec *exec, struct m6_job *job)
{
	unsigned int which = fake_random() % OPCODES;
	struct m6npu_cmd cmd = any_command(which);
	struct m6_cost cost;
	uint32_t code;

	scramble_step(job);
	if (once(8))
		scramble(job, fake_random() % 4);
	scramble_experts(job);
	job->polls_left = once(30) ? fake_random() % 20 : UINT64_MAX;
	code = m6_exec_command(exec, job, &cmd, once(8), &cost);
	if (code)
		refused[which]++;
	else
		passed[which]++;
}

int main(int argc, char **argv)
{
	uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 0) : 100000;
	struct m6_exec *exec = m6_exec_create(2);
	struct m6_job *job = fake_create();

	fake_seed(argc > 2 ? strtoull(argv[2], NULL, 0) : 1);
	if (!ok(exec, "created"))
		return done();
	for (unsigned int i = 0; i < 4; i++)
		fake_region(job, i, 96 << 10);
	for (unsigned int i = 0; i < 4; i++)
		scramble(job, i);
	memset(fake_experts(job, 1, 1 << 20), 0x5a, 1 << 20);
	while (count--)
		run_one(exec, job);
	for (unsigned int i = 0; i < OPCODES; i++)
		ok(passed[i] && refused[i], "%s: %u ran, %u were refused",
		   m6_opcode_name(opcodes[i].opcode), passed[i], refused[i]);
	fake_destroy(job);
	m6_exec_destroy(exec);
	return done();
}
