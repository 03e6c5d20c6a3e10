// SPDX-License-Identifier: MIT
/* The life of a job, and what it offers to the execution of its commands. */
#include <stdlib.h>
#include <string.h>

#include "job_priv.h"
#include "log.h"

#define VA_END		(1ull << M6NPU_VA_BITS)

struct m6_job *m6_job_create(struct m6_device *dev, struct m6_ring *ring)
{
	struct m6_job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	job->dev = dev;
	job->ring = ring;
	/* The DMA engine moves bytes; threads would not make it faster. */
	job->exec = m6_exec_create(ring->index == M6NPU_RING_DMA ? 1 :
				   dev->threads);
	if (!job->exec) {
		free(job);
		return NULL;
	}
	return job;
}

void m6_job_destroy(struct m6_job *job)
{
	m6_job_release(job, false);
	m6_exec_destroy(job->exec);
	free(job->hold);
	free(job->bounce);
	free(job->cmds);
	free(job);
}

const struct m6_step *m6_job_step(const struct m6_job *job)
{
	return job->has_step ? &job->step : NULL;
}

bool m6_job_cancelled(const struct m6_job *job)
{
	return m6_ring_cancelled(job->ring, job->generation);
}

void m6_job_now(const struct m6_job *job, uint64_t *ns, uint64_t *cycles)
{
	m6_clock_ring(&job->dev->clock, job->ring->index, ns, cycles);
}

void m6_job_exception(struct m6_job *job, struct m6npu_exception *record)
{
	uint64_t cycles;

	record->ring = job->ring->index;
	record->asid = job->entry.asid;
	record->fence_value = job->entry.fence_value;
	record->cmd_index = job->index;
	m6_job_now(job, (uint64_t *)&record->time_ns, &cycles);
	m6_device_exception(job->dev, record);
}

static bool entry_valid(const struct m6npu_ring_entry *entry)
{
	return entry->asid && entry->asid < M6NPU_ADDRESS_SPACES &&
	       !entry->flags && entry->cmd_count &&
	       entry->cmd_count <= M6NPU_MAX_COMMANDS &&
	       !(entry->cmd_addr % 64) && !(entry->region_addr % 64) &&
	       entry->status_addr && !(entry->status_addr % 64) &&
	       !(entry->step_addr % 8) &&
	       !entry->reserved[0] && !entry->reserved[1];
}

static uint32_t load_regions(struct m6_job *job)
{
	if (m6_memory_read(&job->dev->mem, job->entry.region_addr, job->region,
			   sizeof(job->region)))
		return M6NPU_EXC_DMA_ERROR;
	for (int i = 0; i < M6NPU_REGIONS; i++) {
		const struct m6npu_region *region = &job->region[i];

		if (!region->size)
			continue;
		if (region->addr % 64)
			return M6NPU_EXC_ILLEGAL_COMMAND;
		if (region->addr >= VA_END ||
		    region->size > VA_END - region->addr) {
			job->fault_addr = region->addr;
			return M6NPU_EXC_BOUNDS;
		}
	}
	return 0;
}

static uint32_t check_step(struct m6_job *job, const struct m6npu_step *head)
{
	uint32_t out = 0;

	for (uint32_t i = 0; i < head->token_count; i++)
		if (job->tokens[i].flags & M6NPU_TOKEN_OUT)
			job->out_rows[out++] = i;
	if (out != head->out_count)
		return M6NPU_EXC_ILLEGAL_COMMAND;
	job->step = (struct m6_step) {
		.token_count = head->token_count,
		.out_count = out,
		.kv_capacity = head->kv_capacity,
		.kv_type = head->kv_type,
		.kv_slot_stride = head->kv_slot_stride,
		.tokens = job->tokens,
		.out_rows = job->out_rows,
	};
	job->has_step = true;
	job->hints = head->flags & M6NPU_STEP_HINTS;
	if (head->prefetch_permille)
		job->threshold = head->prefetch_permille;
	return 0;
}

static uint32_t load_step(struct m6_job *job)
{
	const uint64_t addr = job->entry.step_addr;
	struct m6npu_step head;
	uint32_t code;

	job->has_step = false;
	if (!addr)
		return 0;
	code = m6_job_copy_in(job, addr, &head, sizeof(head));
	if (code)
		return code;
	if (head.token_count > M6NPU_STEP_MAX_TOKENS ||
	    head.flags & ~M6NPU_STEP_HINTS ||
	    (head.kv_capacity && head.kv_type != M6NPU_TYPE_F16 &&
	     head.kv_type != M6NPU_TYPE_Q8_0))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_job_copy_in(job, addr + sizeof(head), job->tokens,
			      head.token_count * sizeof(job->tokens[0]));
	return code ? code : check_step(job, &head);
}

static uint32_t load_commands(struct m6_job *job)
{
	uint32_t count = job->entry.cmd_count;

	if (count > job->cmds_room) {
		free(job->cmds);
		job->cmds = malloc(count * sizeof(*job->cmds));
		job->cmds_room = job->cmds ? count : 0;
		if (!job->cmds)
			return M6NPU_EXC_DMA_ERROR;
	}
	return m6_job_copy_in(job, job->entry.cmd_addr, job->cmds,
			      count * sizeof(*job->cmds));
}

/* From here on only private copies are looked at. */
static uint32_t load_job(struct m6_job *job)
{
	uint32_t code;

	if (!entry_valid(&job->entry))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = load_regions(job);
	if (!code)
		code = load_step(job);
	if (!code)
		code = load_commands(job);
	return code;
}

static void charge_walks(struct m6_job *job)
{
	struct m6_device *dev = job->dev;
	uint64_t ns = job->charge.tlb_walks * dev->profile.tlb_walk_ns;

	if (ns)
		atomic_fetch_add(&dev->mmu.walk_cycles,
				 m6_clock_ns_to_cycles(&dev->clock, ns));
}

static void charge_command(struct m6_job *job, const struct m6_cost *cost)
{
	struct m6_device *dev = job->dev;
	uint32_t events;

	charge_walks(job);
	job->charge.macs = cost->macs;
	job->charge.dram_bytes = cost->dram_bytes;
	job->charge.sram_bytes = cost->sram_bytes;
	job->charge.lz4_bytes = cost->lz4_bytes;
	/* What the DMA engine moves crosses the link once: in, or out. */
	if (job->ring->index == M6NPU_RING_DMA)
		job->charge.link_bytes = cost->dram_bytes / 2;
	events = m6_clock_charge(&dev->clock, job->ring->index, &job->charge,
				 (uint64_t *)&job->status.cycles);
	m6_device_clock_events(dev, events);
}

/* One try at one command. */
static uint32_t try_command(struct m6_job *job, struct m6_cost *cost)
{
	uint32_t code, stored;

	memset(cost, 0, sizeof(*cost));
	memset(&job->charge, 0, sizeof(job->charge));
	job->fault_addr = 0;
	code = m6_exec_command(job->exec, job, &job->cmds[job->index],
			       job->dev->dry, cost);
	stored = m6_job_release(job, !code);
	return code ? code : stored;
}

/* Until it is done, fails, or the job is cancelled. */
static uint32_t run_command(struct m6_job *job)
{
	struct m6_cost cost;
	uint32_t resumes, code;

	for (;;) {
		m6_ring_gate(job->ring, job->generation);
		if (m6_job_cancelled(job))
			return M6NPU_EXC_ABORTED;
		resumes = m6_ring_resumes(job->ring);
		code = try_command(job, &cost);
		if (code != M6NPU_EXC_EXPERT_FAULT || m6_job_cancelled(job))
			break;
		/* The lookups that failed took their time, too. */
		memset(&cost, 0, sizeof(cost));
		charge_command(job, &cost);
		m6_ring_stall(job->ring, job->generation, resumes);
	}
	if (m6_job_cancelled(job) && code)
		return M6NPU_EXC_ABORTED;
	if (!code)
		charge_command(job, &cost);
	return code;
}

static uint32_t run_commands(struct m6_job *job)
{
	uint32_t code = 0;

	for (job->index = 0; job->index < job->entry.cmd_count; job->index++) {
		code = run_command(job);
		if (code)
			break;
		atomic_fetch_add(&job->ring->progress, 1);
	}
	return code;
}

/* The host asked for an abort itself, and needs no record of it. */
static void report_failure(struct m6_job *job, uint32_t code)
{
	struct m6npu_exception record = {
		.code = code,
		.addr = job->fault_addr,
	};

	m6_guest_error("ring %u: %s at command %u (%s), address %#llx",
		       job->ring->index, m6_exception_name(code), job->index,
		       job->cmds && job->index < job->cmds_room ?
		       m6_opcode_name(job->cmds[job->index].opcode) : "none",
		       (unsigned long long)job->fault_addr);
	if (code != M6NPU_EXC_ABORTED)
		m6_job_exception(job, &record);
}

static void finish_job(struct m6_job *job, uint32_t code)
{
	const struct m6npu_ring_entry *entry = &job->entry;
	unsigned int vector = job->ring->index == M6NPU_RING_DMA ?
			      M6NPU_VEC_DMA :
			      M6NPU_VEC_UNIT(job->ring->index);
	uint64_t cycles, addr = entry->status_addr;

	m6_job_now(job, (uint64_t *)&job->status.end_ns, &cycles);
	job->status.fence = entry->fence_value;
	job->status.code = code;
	job->status.cmd_index = job->index;
	job->status.fault_addr = job->fault_addr;
	m6_job_sum_layers(job);
	if (addr % 64)
		addr = 0;
	if (m6_ring_complete(job->ring, job->generation, addr, &job->status))
		m6_irq_raise(&job->dev->irqs, vector);
}

/* A job that a reset took away leaves no trace: no record, no vector. */
static bool job_dropped(const struct m6_job *job)
{
	return atomic_load(&job->ring->generation) != job->generation;
}

void m6_job_run(struct m6_job *job, unsigned int generation, uint64_t addr,
		uint64_t submit_ns)
{
	struct m6_device *dev = job->dev;
	const unsigned int ring = job->ring->index;
	uint32_t code, events;

	job->generation = generation;
	job->index = 0;
	job->full_reported = false;
	memset(job->layer, 0, sizeof(job->layer));
	job->fault_addr = 0;
	job->has_step = false;
	job->hints = false;
	job->threshold = atomic_load(&dev->regs.threshold);
	memset(&job->status, 0, sizeof(job->status));
	memset(&job->charge, 0, sizeof(job->charge));
	memset(&job->entry, 0, sizeof(job->entry));

	job->status.begin_ns = m6_clock_start(&dev->clock, ring, submit_ns);
	events = m6_clock_charge_ns(&dev->clock, ring,
				    dev->profile.job_launch_ns,
				    (uint64_t *)&job->status.cycles);
	m6_device_clock_events(dev, events);
	code = M6NPU_EXC_DMA_ERROR;
	job->fault_addr = addr;
	if (!m6_memory_read(&dev->mem, addr, &job->entry, sizeof(job->entry))) {
		job->fault_addr = 0;
		m6_ring_set_fence(job->ring, job->entry.fence_value);
		code = load_job(job);
		charge_walks(job);
	}
	if (!code)
		code = run_commands(job);
	if (code && !job_dropped(job))
		report_failure(job, code);
	if (!job_dropped(job))
		m6_job_add_layers(job);
	/* Idle again before the host can know, so that its time can pass. */
	m6_clock_stop(&dev->clock, ring);
	finish_job(job, code);
}
