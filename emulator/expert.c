// SPDX-License-Identifier: MIT
/* Experts: where a job's commands find them, and what is counted of that. */
#include <stddef.h>
#include <string.h>

#include "job_priv.h"
#include "log.h"

#define MASKS	(M6NPU_MAX_EXPERTS_PER_LAYER / 64)

/* Where the table is, and the router's way to one entry of it. */
struct expert_table {
	struct m6_memory *mem;
	uint64_t addr;
	uint32_t per_layer;
};

/* The half with the flags first: the host may be changing the entry. */
static int load_expert(void *opaque, const struct m6_router_key *key,
		       struct m6npu_expert *value)
{
	const struct expert_table *table = opaque;
	uint64_t index = (uint64_t)key->layer * table->per_layer + key->expert;
	uint64_t addr = table->addr + index * sizeof(*value);
	uint64_t half[2] = { 0, 0 };
	int err;

	_Static_assert(sizeof(*value) == sizeof(half) &&
		       offsetof(struct m6npu_expert, flags) >= sizeof(half[0]),
		       "flags are in the second half");
	err = m6_memory_load(table->mem, addr + sizeof(half[0]), &half[1], 1);
	memcpy(value, half, sizeof(half));
	if (!err && value->flags & M6NPU_EXPERT_STATE_MASK)
		err = m6_memory_load(table->mem, addr, &half[0], 1);
	memcpy(value, half, sizeof(half));
	return err;
}

static uint32_t open_table(struct m6_job *job, uint32_t layer,
			   struct expert_table *table)
{
	struct m6npu_as as;
	uint32_t code;

	code = m6_mmu_address_space(&job->dev->mmu, job->ring->index,
				    job->entry.asid, &as);
	if (code)
		return code;
	if (!as.expert_table || layer >= as.expert_layers ||
	    as.expert_layers > M6NPU_MAX_EXPERT_LAYERS ||
	    as.experts_per_layer > M6NPU_MAX_EXPERTS_PER_LAYER)
		return M6NPU_EXC_BOUNDS;
	*table = (struct expert_table) {
		.mem = &job->dev->mem,
		.addr = as.expert_table,
		.per_layer = as.experts_per_layer,
	};
	return 0;
}

static void mask_set(uint64_t *masks, uint32_t expert)
{
	masks[expert / 64] |= 1ull << (expert % 64);
}

/* A record for every 64 experts with one among them. Returns how many. */
static uint32_t post_experts(struct m6_job *job, uint32_t code, uint32_t layer,
			     const uint64_t *masks)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < MASKS; i++) {
		struct m6npu_exception record = {
			.code = code,
			.layer = layer,
			.expert_base = i * 64,
			.mask = masks[i],
		};

		if (!masks[i])
			continue;
		m6_job_exception(job, &record);
		count += __builtin_popcountll(masks[i]);
	}
	return count;
}

static void report_full(struct m6_job *job, const struct m6_router_key *key)
{
	uint64_t masks[MASKS] = { 0 };

	if (job->full_reported)
		return;
	job->full_reported = true;
	mask_set(masks, key->expert);
	post_experts(job, M6NPU_EXC_ROUTER_CACHE_FULL, key->layer, masks);
}

/* One expert. @missing collects those that are not there, a bit each. */
static uint32_t find_expert(struct m6_job *job, struct expert_table *table,
			    const struct m6_router_key *key,
			    struct m6npu_expert *value, uint64_t *missing)
{
	const struct m6_router_table load = { load_expert, table };
	enum m6_router_found found;

	found = m6_router_find(&job->dev->router, key, &load, value,
			       &job->layer[key->layer].router);
	job->charge.router_walks += found != M6_ROUTER_HIT;
	if (found == M6_ROUTER_ERROR) {
		job->fault_addr = table->addr;
		return M6NPU_EXC_TLB_WALK_TIMEOUT;
	}
	if (found == M6_ROUTER_MISS_FULL)
		report_full(job, key);
	if (found == M6_ROUTER_ABSENT) {
		mask_set(missing, key->expert);
		return 0;
	}
	if (value->addr % M6NPU_EXPERT_ALIGN) {
		job->fault_addr = value->addr;
		return M6NPU_EXC_ILLEGAL_COMMAND;
	}
	return 0;
}

uint32_t m6_job_experts(struct m6_job *job, uint32_t layer,
			const uint32_t *ids, uint32_t count,
			struct m6npu_expert *experts)
{
	uint64_t missing[MASKS] = { 0 };
	struct expert_table table;
	uint32_t code;

	job->fault_addr = 0;
	code = open_table(job, layer, &table);
	for (uint32_t i = 0; i < count && !code; i++) {
		const struct m6_router_key key = {
			.asid = job->entry.asid,
			.layer = layer,
			.expert = ids[i],
		};

		if (ids[i] >= table.per_layer)
			return M6NPU_EXC_BOUNDS;
		code = find_expert(job, &table, &key, &experts[i], missing);
	}
	if (!code && post_experts(job, M6NPU_EXC_EXPERT_FAULT, layer, missing))
		code = M6NPU_EXC_EXPERT_FAULT;
	return code;
}

bool m6_job_expert_in_sram(struct m6_job *job, uint32_t layer, uint32_t id)
{
	const struct m6_router_key key = { job->entry.asid, layer, id };
	uint64_t now, cycles, ready;

	m6_job_now(job, &now, &cycles);
	if (!m6_sram_find(&job->dev->slots, &key, now, &ready))
		return false;
	if (job->charge.ready_ns < ready)
		job->charge.ready_ns = ready;
	job->layer[layer].sram_hits++;
	return true;
}

uint32_t m6_job_threshold(const struct m6_job *job)
{
	return job->threshold;
}

const struct m6_dry_routing *m6_job_dry(const struct m6_job *job)
{
	return &job->dev->profile.dry;
}

/* One expert that will probably be needed; @missing as above. */
static void prefetch_expert(struct m6_job *job, struct expert_table *table,
			    const struct m6_router_key *key, uint64_t *missing)
{
	const struct m6_router_table load = { load_expert, table };
	struct m6_layer_counts *counts = &job->layer[key->layer];
	struct m6npu_expert value;
	enum m6_router_found found;

	found = m6_router_prefetch(&job->dev->router, key, &load, &value,
				   &counts->router);
	job->charge.router_walks += found != M6_ROUTER_HIT;
	if (found == M6_ROUTER_ABSENT)
		mask_set(missing, key->expert);
	else if (found != M6_ROUTER_ERROR)
		counts->prefetches += m6_sram_fetch(&job->dev->slots, key,
						    value.size,
						    &job->dev->clock,
						    job->ring->index);
}

void m6_job_prefetch(struct m6_job *job, uint32_t layer, const uint32_t *ids,
		     uint32_t count)
{
	uint64_t missing[MASKS] = { 0 };
	struct expert_table table;

	if (open_table(job, layer, &table))
		return;
	m6_sram_next_batch(&job->dev->slots);
	for (uint32_t i = 0; i < count; i++) {
		const struct m6_router_key key = {
			.asid = job->entry.asid,
			.layer = layer,
			.expert = ids[i],
		};

		if (ids[i] < table.per_layer)
			prefetch_expert(job, &table, &key, missing);
	}
	if (job->hints)
		job->layer[layer].hints +=
			post_experts(job, M6NPU_EXC_EXPERT_HINT, layer,
				     missing);
}

void m6_job_sum_layers(struct m6_job *job)
{
	struct m6npu_job_status *status = &job->status;

	for (uint32_t i = 0; i < M6NPU_MAX_EXPERT_LAYERS; i++) {
		const struct m6_router_counters *c = &job->layer[i].router;

		status->router_hits += c->hits;
		status->router_misses += c->misses;
		status->expert_faults += c->faults;
	}
}

/* Other rings' jobs may be adding to the same layer. */
static int add_layer(struct m6_memory *mem, uint64_t addr,
		     const struct m6_layer_counts *c)
{
	const struct m6npu_layer_stats stats = {
		.hits = c->router.hits,
		.misses = c->router.misses,
		.evictions = c->router.evictions,
		.full = c->router.full,
		.faults = c->router.faults,
		.sram_hits = c->sram_hits,
		.prefetches = c->prefetches,
		.hints = c->hints,
	};
	uint64_t word[sizeof(stats) / sizeof(uint64_t)];
	int err = 0;

	memcpy(word, &stats, sizeof(stats));
	for (size_t i = 0; i < sizeof(word) / sizeof(word[0]) && !err; i++)
		if (word[i])
			err = m6_memory_add(mem, addr + i * sizeof(word[0]),
					    word[i]);
	return err;
}

void m6_job_add_layers(struct m6_job *job)
{
	struct m6npu_exception record = { .code = M6NPU_EXC_DMA_ERROR };
	struct m6npu_as as;
	uint32_t layers;
	uint64_t bytes;
	int err = 0;

	if (m6_mmu_address_space(&job->dev->mmu, job->ring->index,
				 job->entry.asid, &as) || !as.layer_stats)
		return;
	layers = as.expert_layers < M6NPU_MAX_EXPERT_LAYERS ?
		 as.expert_layers : M6NPU_MAX_EXPERT_LAYERS;
	bytes = layers * sizeof(struct m6npu_layer_stats);
	if (as.layer_stats > UINT64_MAX - bytes)
		err = -1;
	for (uint32_t i = 0; i < layers && !err; i++)
		err = add_layer(&job->dev->mem, as.layer_stats +
				i * sizeof(struct m6npu_layer_stats),
				&job->layer[i]);
	if (!err)
		return;
	m6_guest_error("ring %u: counters of layers at %#llx are out of reach",
		       job->ring->index, (unsigned long long)as.layer_stats);
	record.addr = as.layer_stats;
	m6_job_exception(job, &record);
}
