/* SPDX-License-Identifier: MIT */
/* A job as the device sees it; exec_*.c sees job.h only. */
#ifndef M6_JOB_PRIV_H
#define M6_JOB_PRIV_H

#include "core.h"
#include "job.h"

/* Scattered memory of a command, gathered: no more than this in all. */
#define M6_BOUNCE_MAX		(2ull << 30)
/* A DMA descriptor spans at most this. */
#define M6_SPAN_MAX		(24ull << 30)

/* Scattered memory, gathered into one piece. */
struct m6_bounce {
	uint64_t va;
	uint64_t bytes;
	bool write;
	uint8_t *host;
	struct m6_pieces pieces;
};

/* What a job's lookups in one layer of the expert table came to. */
struct m6_layer_counts {
	struct m6_router_counters router;
	uint64_t sram_hits;
	uint64_t prefetches;
	uint64_t hints;
};

/* Allocated once a ring, and used for one job after another. */
struct m6_job {
	struct m6_device *dev;
	struct m6_ring *ring;
	struct m6_exec *exec;
	unsigned int generation;
	struct m6npu_ring_entry entry;
	struct m6npu_region region[M6NPU_REGIONS];
	struct m6_step step;
	bool has_step;
	bool hints;			/* the step asks for them */
	uint32_t threshold;		/* for prefetches, 1/1000 */
	struct m6npu_step_token tokens[M6NPU_STEP_MAX_TOKENS];
	uint32_t out_rows[M6NPU_STEP_MAX_TOKENS];
	struct m6npu_cmd *cmds;		/* private copy of the list */
	uint32_t cmds_room;
	uint32_t index;			/* command under way */
	bool full_reported;
	struct m6_layer_counts layer[M6NPU_MAX_EXPERT_LAYERS];
	uint64_t fault_addr;
	struct m6npu_job_status status;
	/* Of the command under way. */
	struct m6_mapping **hold;
	uint32_t holds;
	uint32_t hold_room;
	struct m6_bounce *bounce;
	uint32_t bounces;
	uint32_t bounce_room;
	struct m6_charge charge;
};

struct m6_job *m6_job_create(struct m6_device *dev, struct m6_ring *ring);
void m6_job_destroy(struct m6_job *job);
/* The life of a job, from its entry at @addr to its status record. */
void m6_job_run(struct m6_job *job, unsigned int generation, uint64_t addr,
		uint64_t submit_ns);

/* Posts a record of this job. */
void m6_job_exception(struct m6_job *job, struct m6npu_exception *record);

/* expert.c. The counts of all layers: to the status record, to the host. */
void m6_job_sum_layers(struct m6_job *job);
void m6_job_add_layers(struct m6_job *job);

/* span.c */
uint32_t m6_job_map_va(struct m6_job *job, uint64_t va, uint64_t bytes,
		       bool write, struct m6_span *span);
/* Copies out of device memory. 0 or M6NPU_EXC_*. */
uint32_t m6_job_copy_in(struct m6_job *job, uint64_t va, void *to,
			uint64_t bytes);
/* Ends all mappings of the command; @store: bounced writes go to memory. */
uint32_t m6_job_release(struct m6_job *job, bool store);

#endif
