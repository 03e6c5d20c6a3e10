/* SPDX-License-Identifier: MIT */
/*
 * What a running job offers to the code that executes its commands, and what
 * that code offers back. The device side (rings, MMU, memory) implements the
 * m6_job_* functions; the execution side (exec_*.c) implements m6_exec_* and
 * m6_cost_*. Neither sees more of the other than this.
 */
#ifndef M6_JOB_H
#define M6_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "m6npu_regs.h"
#include "profile.h"

struct m6_job;

/* Host view of a run of device memory. Valid until the command ends. */
struct m6_span {
	void *host;
	uint64_t bytes;
};

/* Step block, copied out of guest memory once and validated. */
struct m6_step {
	uint32_t token_count;
	uint32_t out_count;
	uint32_t kv_capacity;
	uint32_t kv_type;
	uint64_t kv_slot_stride;
	struct m6npu_step_token *tokens;	/* host endian */
	uint32_t *out_rows;			/* out_count indices into tokens */
};

/* NULL when the job has none. */
const struct m6_step *m6_job_step(const struct m6_job *job);

/*
 * Translates a whole operand, checked against its region and the address
 * space. Contiguous in guest RAM gives a direct pointer; scattered pages give
 * a bounce buffer that is gathered here and, for writes, scattered when the
 * command ends well. Returns 0 or an M6NPU_EXC_* code, with the job's fault
 * address set. @bytes 0 is legal and gives a NULL host pointer.
 */
uint32_t m6_job_map(struct m6_job *job, uint64_t operand, uint64_t bytes,
		    bool write, struct m6_span *span);

/* The same for a device address outside any region (experts). Read-only. */
uint32_t m6_job_map_address(struct m6_job *job, uint64_t addr, uint64_t bytes,
			    struct m6_span *span);

/* Size of the region an operand names, from its offset on; 0 if none. */
uint64_t m6_job_operand_room(const struct m6_job *job, uint64_t operand);

/*
 * Looks the @count distinct experts up through the router cache and the
 * table. 0, M6NPU_EXC_EXPERT_FAULT (the missing ones were posted; the caller
 * returns this code and the command is started again upon resume) or another
 * code. On success @experts[i] holds the entry, host endian.
 */
uint32_t m6_job_experts(struct m6_job *job, uint32_t layer,
			const uint32_t *ids, uint32_t count,
			struct m6npu_expert *experts);

/*
 * True if the weights come from SRAM: a price only. Asked once for every expert
 * a command uses, it counts, and the command waits for what is on its way.
 */
bool m6_job_expert_in_sram(struct m6_job *job, uint32_t layer, uint32_t id);

/* What EXPERT_PREFETCH takes for likely, in 1/1000; above 1000 nothing is. */
uint32_t m6_job_threshold(const struct m6_job *job);
/*
 * Experts that will probably be needed, distinct, most likely first: begins to
 * copy them to SRAM, and asks for absent ones if the step wants that. A hint:
 * nothing can go wrong, and ids that don't exist are ignored.
 */
void m6_job_prefetch(struct m6_job *job, uint32_t layer, const uint32_t *ids,
		     uint32_t count);

/* Made-up routing in dry mode; Documentation/hardware.rst. */
const struct m6_dry_routing *m6_job_dry(const struct m6_job *job);

/* True once the job is to stop (ring reset, abort); long commands ask. */
bool m6_job_cancelled(const struct m6_job *job);

/* Device time as of the command's start, for TIMESTAMP. */
void m6_job_now(const struct m6_job *job, uint64_t *ns, uint64_t *cycles);

/* What a command cost: filled in by m6_exec_command, priced by the device. */
struct m6_cost {
	uint64_t macs;		/* multiply-accumulates, in INT8 equivalents */
	uint64_t dram_bytes;	/* read and written */
	uint64_t sram_bytes;
	uint64_t lz4_bytes;	/* produced by the decompressor */
};

/* One per worker thread: scratch memory, ggml state. NULL: out of memory. */
struct m6_exec;
struct m6_exec *m6_exec_create(unsigned int threads);
void m6_exec_destroy(struct m6_exec *exec);

/*
 * Runs one command (or, dry, only prices it). Returns 0 or an M6NPU_EXC_*
 * code; with a code nothing was written, save by a cancelled command. @cmd is
 * a private copy: the guest can't change it meanwhile.
 */
uint32_t m6_exec_command(struct m6_exec *exec, struct m6_job *job,
			 const struct m6npu_cmd *cmd, bool dry,
			 struct m6_cost *cost);

/* For logs. Never NULL. */
const char *m6_opcode_name(uint8_t opcode);
const char *m6_exception_name(uint32_t code);

#endif
