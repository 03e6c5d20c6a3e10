// SPDX-License-Identifier: MIT
/* Experts whose entries say that they are of another type than the command. */
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "moe.h"

#define EXPERTS		7u
#define ROWS		9u
#define K		3u
#define SIZE		256u		/* hidden and ffn: any block divides it */
#define PAIR_BYTES	(SIZE * 4)

static struct m6_exec *exec;
static struct m6_job *job;

static uint32_t run(const struct m6npu_cmd *cmd, struct m6_cost *cost)
{
	return m6_exec_command(exec, job, cmd, false, cost);
}

/* What the command says, and the other one. */
static struct moe usual, other;

/* Both kinds of each expert; entries name the usual one. */
static void make_both(uint8_t type)
{
	uint64_t stride;
	uint8_t *memory;

	other = usual;
	memset(other.type, type, sizeof(other.type));
	stride = moe_stride(&usual) > moe_stride(&other) ?
		 moe_stride(&usual) : moe_stride(&other);
	memory = fake_experts(job, 2 * EXPERTS, stride);
	for (uint32_t i = 0; i < EXPERTS; i++) {
		moe_fill_expert(&usual, memory + i * stride);
		moe_fill_expert(&other, memory + (EXPERTS + i) * stride);
		job->experts[i].size = moe_expert_bytes(&usual);
	}
}

static void name_other(uint32_t expert)
{
	job->experts[expert] = job->experts[EXPERTS + expert];
	job->experts[expert].size = moe_expert_bytes(&other);
	job->experts[expert].type = other.type[0];
}

/* Results of all pairs, not weighted. */
static bool all_pairs(uint8_t *pairs)
{
	int32_t ids[EXPERTS];
	struct m6npu_cmd cmd;
	struct m6_cost cost;

	for (uint32_t i = 0; i < EXPERTS; i++)
		ids[i] = (int32_t)i;
	cmd = moe_grouped(job, &usual, 0, ids, EXPERTS, 4);
	if (run(&cmd, &cost))
		return false;
	memcpy(pairs, job->region[PAIRS], ROWS * K * PAIR_BYTES);
	return true;
}

static void test_mixed(uint8_t type)
{
	static uint8_t plain[ROWS * K * PAIR_BYTES];
	static uint8_t mixed[sizeof(plain)], low[sizeof(plain)];
	const int32_t *ids;
	bool same = true;

	make_both(type);
	moe_rows(job, &usual);
	ids = job->region[IDS];
	ok(all_pairs(plain), "all as the command says");
	for (uint32_t i = 0; i < EXPERTS; i += 2)
		name_other(i);
	ok(all_pairs(mixed), "every other one in %s", weight_name(type));
	for (uint32_t i = 1; i < EXPERTS; i += 2)
		name_other(i);
	ok(all_pairs(low), "all of them");
	for (uint32_t i = 0; i < ROWS * K; i++) {
		const uint8_t *expected = ids[i] % 2 ? plain : low;

		same &= !memcmp(mixed + i * PAIR_BYTES,
				expected + i * PAIR_BYTES, PAIR_BYTES);
	}
	ok(same, "a pair is what it is when all are of its expert's type");
	ok(memcmp(plain, low, sizeof(plain)), "and the types do differ");
}

/* An expert that says what the command would: no difference at all. */
static void test_redundant(void)
{
	const struct moe before = usual;
	static uint8_t plain[ROWS * K * PAIR_BYTES], named[sizeof(plain)];

	memset(usual.type, M6NPU_TYPE_Q4_0, sizeof(usual.type));
	make_both(M6NPU_TYPE_Q4_0);
	moe_rows(job, &usual);
	ok(all_pairs(plain), "Q4_0 by the command");
	for (uint32_t i = 0; i < EXPERTS; i++)
		job->experts[i].type = M6NPU_TYPE_Q4_0;
	ok(all_pairs(named) && !memcmp(plain, named, sizeof(plain)),
	   "Q4_0 by the entries");
	usual = before;
}

/* Two pairs of an expert that is as usual, four of one that is not. */
static void test_price(void)
{
	static const int32_t chosen[] = { 1, 2, 2, 1, 2, 2 };
	struct moe m = usual;
	struct m6npu_cmd cmd;
	struct m6_cost cost;

	make_both(M6NPU_TYPE_Q4_0);
	moe_rows(job, &usual);
	memcpy(job->region[IDS], chosen, sizeof(chosen));
	name_other(2);
	m.rows = 2;
	cmd = moe_command(&m);
	ok(!run(&cmd, &cost) && cost.dram_bytes ==
	   2 * moe_expert_bytes(&usual) + 4 * moe_expert_bytes(&other) +
	   2 * 2 * PAIR_BYTES + 2 * sizeof(chosen),
	   "each is read as large as it is");
	/* Q8_0 counts 1, Q4_0 a half. */
	ok(cost.macs == (2 * 2 + 4) * 3 * SIZE * SIZE / 2,
	   "and computed as what it is");
}

static void test_refused(void)
{
	struct m6npu_cmd cmd = moe_command(&usual);
	int32_t *ids = job->region[IDS];
	struct m6_cost cost;

	make_both(M6NPU_TYPE_Q4_0);
	for (uint32_t i = 0; i < ROWS * K; i++)
		ids[i] = 2;
	name_other(2);
	ok(!run(&cmd, &cost), "a good type");
	job->experts[2].size--;
	ok(run(&cmd, &cost) == M6NPU_EXC_BOUNDS, "too small for its type");
	job->experts[2].size++;
	job->experts[2].type = M6NPU_TYPE_I32;
	ok(run(&cmd, &cost) == M6NPU_EXC_ILLEGAL_COMMAND, "weights of I32");
	job->experts[2].type = M6NPU_TYPE_COUNT;
	ok(run(&cmd, &cost) == M6NPU_EXC_ILLEGAL_COMMAND, "no such type");
	job->experts[2].type = 255;
	ok(run(&cmd, &cost) == M6NPU_EXC_ILLEGAL_COMMAND, "type 255");
	job->experts[2].type = M6NPU_TYPE_Q4_K;
	cmd.args.moe.ffn = 32;
	ok(run(&cmd, &cost) == M6NPU_EXC_ILLEGAL_COMMAND,
	   "a type whose blocks don't fit");
}

int main(void)
{
	usual = (struct moe){ ROWS, K, EXPERTS, SIZE, SIZE, M6NPU_ACT_SILU,
			      { M6NPU_TYPE_Q8_0, M6NPU_TYPE_Q8_0,
				M6NPU_TYPE_Q8_0 }, false };
	exec = m6_exec_create(2);
	job = fake_create();
	if (!ok(exec, "created"))
		return done();
	for (unsigned int i = 0; i < weight_type_count; i++) {
		uint8_t type = weight_types[i];

		if (type != M6NPU_TYPE_F32 && type != usual.type[0])
			test_mixed(type);
	}
	test_redundant();
	test_price();
	test_refused();
	fake_destroy(job);
	m6_exec_destroy(exec);
	return done();
}
