// SPDX-License-Identifier: MIT
/* An execution side that needs no arithmetic; see guest.h. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "job.h"

struct m6_exec {
	unsigned int threads;
};

struct m6_exec *m6_exec_create(unsigned int threads)
{
	struct m6_exec *exec = malloc(sizeof(*exec));

	exec->threads = threads;
	return exec;
}

void m6_exec_destroy(struct m6_exec *exec)
{
	free(exec);
}

const char *m6_opcode_name(uint8_t opcode)
{
	return opcode == M6NPU_OP_BARRIER ? "BARRIER" : "other";
}

const char *m6_exception_name(uint32_t code)
{
	return code ? "exception" : "none";
}

static uint32_t copy(struct m6_job *job, const struct m6npu_cmd *cmd)
{
	struct m6_span dst, src;
	uint32_t code;

	code = m6_job_map(job, cmd->operand[0], cmd->args.mem.bytes, true,
			  &dst);
	if (!code)
		code = m6_job_map(job, cmd->operand[1], cmd->args.mem.bytes,
				  false, &src);
	if (!code && cmd->args.mem.bytes)
		memmove(dst.host, src.host, cmd->args.mem.bytes);
	return code;
}

static uint32_t fill(struct m6_job *job, const struct m6npu_cmd *cmd)
{
	struct m6_span dst;
	uint32_t code;

	code = m6_job_map(job, cmd->operand[0], cmd->args.mem.bytes, true,
			  &dst);
	for (uint64_t i = 0; !code && i + 4 <= dst.bytes; i += 4)
		memcpy((char *)dst.host + i, &cmd->args.mem.pattern, 4);
	return code;
}

static uint32_t timestamp(struct m6_job *job, const struct m6npu_cmd *cmd)
{
	struct m6_span dst;
	uint64_t now[2];
	uint32_t code;

	code = m6_job_map(job, cmd->operand[0], sizeof(now), true, &dst);
	if (code)
		return code;
	m6_job_now(job, &now[0], &now[1]);
	memcpy(dst.host, now, sizeof(now));
	return 0;
}

/* The experts a command names; how many. */
static uint32_t named(const struct m6npu_cmd *cmd, uint32_t *ids)
{
	uint32_t count = cmd->args.word[1];

	if (count > M6NPU_MAX_EXPERTS_PER_LAYER)
		count = M6NPU_MAX_EXPERTS_PER_LAYER;
	for (uint32_t i = 0; i < count; i++)
		ids[i] = cmd->args.word[0] + i;
	return count;
}

static uint32_t experts(struct m6_job *job, const struct m6npu_cmd *cmd,
			struct m6_cost *cost)
{
	struct m6npu_expert found[M6NPU_MAX_EXPERTS_PER_LAYER];
	uint32_t ids[M6NPU_MAX_EXPERTS_PER_LAYER];
	uint32_t count = named(cmd, ids), code;
	struct m6_span dst;

	code = m6_job_map(job, cmd->operand[0], count * sizeof(uint64_t), true,
			  &dst);
	if (!code)
		code = m6_job_experts(job, cmd->layer, ids, count, found);
	for (uint32_t i = 0; !code && i < count; i++)
		memcpy((uint64_t *)dst.host + i, &found[i].addr, 8);
	for (uint32_t i = 0; !code && i < count; i++)
		if (m6_job_expert_in_sram(job, cmd->layer, ids[i]))
			cost->sram_bytes += found[i].size;
		else
			cost->dram_bytes += found[i].size;
	return code;
}

/* All are equally likely. */
static uint32_t prefetch(struct m6_job *job, const struct m6npu_cmd *cmd)
{
	uint32_t ids[M6NPU_MAX_EXPERTS_PER_LAYER];
	uint32_t count = named(cmd, ids);

	if (cmd->args.word[2] >= m6_job_threshold(job))
		m6_job_prefetch(job, cmd->layer, ids, count);
	return 0;
}

static uint32_t wait_for_cancel(struct m6_job *job)
{
	while (!m6_job_cancelled(job))
		nanosleep(&(struct timespec) { .tv_nsec = 1000000 }, NULL);
	return M6NPU_EXC_ABORTED;
}

uint32_t m6_exec_command(struct m6_exec *exec, struct m6_job *job,
			 const struct m6npu_cmd *cmd, bool dry,
			 struct m6_cost *cost)
{
	switch (cmd->opcode) {
	case M6NPU_OP_BARRIER:
		cost->dram_bytes = cmd->args.word[0];
		cost->macs = (uint64_t)cmd->args.word[1] << 16;
		return 0;
	case M6NPU_OP_COPY:
		return copy(job, cmd);
	case M6NPU_OP_FILL:
		return fill(job, cmd);
	case M6NPU_OP_TIMESTAMP:
		return timestamp(job, cmd);
	case M6NPU_OP_MOE_FFN:
		return experts(job, cmd, cost);
	case M6NPU_OP_EXPERT_PREFETCH:
		return prefetch(job, cmd);
	case M6NPU_OP_ROPE:
		return wait_for_cancel(job);
	default:
		return M6NPU_EXC_ILLEGAL_COMMAND;
	}
}
