// SPDX-License-Identifier: MIT
/* Experts in jobs: faults, hints, copies to SRAM, and what is counted. */
#include <string.h>

#include "../tap.h"
#include "guest.h"

#define CMDS		0x100000u
#define STEP		0x20000u
#define BYTES		1150000u	/* 5 us of DRAM */

static void set_expert(struct guest *guest, uint32_t layer, uint32_t expert,
		       uint32_t state)
{
	*guest_expert(guest, layer, expert) = (struct m6npu_expert) {
		.addr = GUEST_VA + expert * 64,
		.size = 64,
		.flags = state,
		.priority = 500,
	};
}

static void set_layer(struct guest *guest, uint32_t layer, uint32_t state)
{
	for (uint32_t i = 0; i < GUEST_LAYER_EXPERTS; i++)
		set_expert(guest, layer, i, state);
}

static struct m6npu_cmd cmd_experts(uint32_t layer, uint32_t first,
				    uint32_t count)
{
	struct m6npu_cmd cmd = {
		.opcode = M6NPU_OP_MOE_FFN,
		.layer = layer,
		.operand = { 0x10000 },
	};

	cmd.args.word[0] = first;
	cmd.args.word[1] = count;
	return cmd;
}

static struct m6npu_cmd cmd_prefetch(uint32_t layer, uint32_t first,
				     uint32_t count, uint32_t permille)
{
	struct m6npu_cmd cmd = cmd_experts(layer, first, count);

	cmd.opcode = M6NPU_OP_EXPERT_PREFETCH;
	cmd.args.word[2] = permille;
	return cmd;
}

static struct m6npu_cmd cmd_compute(uint32_t us)
{
	struct m6npu_cmd cmd = { .opcode = M6NPU_OP_BARRIER };

	cmd.args.word[1] = us * (4096 * 1200 >> 16);
	return cmd;
}

/* With a step block that has only these two; @flags ~0: without one. */
static uint32_t run_step(struct guest *guest, const struct m6npu_cmd *cmds,
			 uint32_t count, uint64_t fence, uint32_t permille,
			 uint32_t flags)
{
	struct m6npu_step *step = guest_data(guest, STEP);
	struct m6npu_ring_entry *entry;

	memset(step, 0, sizeof(*step));
	step->prefetch_permille = permille;
	step->flags = flags;
	entry = guest_job(guest, 0, CMDS, cmds, count, fence);
	entry->step_addr = flags == ~0u ? 0 : guest_va(STEP);
	guest_submit(guest, 0);
	return guest_wait(guest, fence) ? guest_status(guest, fence)->code :
					  0xffff;
}

static uint32_t run(struct guest *guest, const struct m6npu_cmd *cmds,
		    uint32_t count, uint64_t fence)
{
	return run_step(guest, cmds, count, fence, 0, ~0u);
}

static uint64_t job_ns(struct guest *guest, uint64_t fence)
{
	const struct m6npu_job_status *status = guest_status(guest, fence);

	return status->end_ns - status->begin_ns;
}

static void test_stall(struct guest *guest)
{
	struct m6npu_cmd cmd = cmd_experts(1, 60, 8);
	uint32_t tail = guest_read(guest, M6NPU_REG_EXC_TAIL);
	unsigned int irqs = guest_irqs(guest, M6NPU_VEC_EXPERT);
	struct m6npu_exception *a = guest_exception(guest, tail);
	struct m6npu_exception *b = guest_exception(guest, tail + 1);
	struct m6npu_exception *c = guest_exception(guest, tail + 2);
	struct m6npu_job_status *status = guest_status(guest, 40);

	set_layer(guest, 1, M6NPU_EXPERT_RESIDENT);
	set_expert(guest, 1, 61, M6NPU_EXPERT_ABSENT);
	set_expert(guest, 1, 64, M6NPU_EXPERT_ABSENT);
	set_expert(guest, 1, 66, M6NPU_EXPERT_ABSENT);
	guest_job(guest, 0, CMDS, &cmd, 1, 40);
	guest_submit(guest, 0);
	ok(guest_wait_status(guest, 0, M6NPU_RING_STATUS_STALLED), "stalls");
	ok(guest_read(guest, M6NPU_REG_EXC_TAIL) == tail + 2 &&
	   a->code == M6NPU_EXC_EXPERT_FAULT && a->layer == 1 &&
	   a->expert_base == 0 && a->mask == 1ull << 61 &&
	   a->fence_value == 40 && b->expert_base == 64 && b->mask == 5,
	   "one record for every 64 experts");
	ok(guest_irqs(guest, M6NPU_VEC_EXPERT) == irqs + 2, "their vector");
	set_expert(guest, 1, 61, M6NPU_EXPERT_RESIDENT);
	set_expert(guest, 1, 64, M6NPU_EXPERT_RESIDENT);
	guest_ring_write(guest, 0, M6NPU_RING_RESUME, 1);
	while (guest_read(guest, M6NPU_REG_EXC_TAIL) != tail + 3)
		;
	ok(c->expert_base == 64 && c->mask == 4, "posts what is missing still");
	set_expert(guest, 1, 66, M6NPU_EXPERT_RESIDENT);
	/* Likely before it waits again: a resume is never lost. */
	guest_ring_write(guest, 0, M6NPU_RING_RESUME, 1);
	ok(guest_wait(guest, 40) && !status->code, "goes on");
	ok(status->expert_faults == 4, "counts faults: %u",
	   status->expert_faults);
	ok(((uint64_t *)guest_data(guest, 0x10000))[7] == GUEST_VA + 67 * 64,
	   "finds the experts");
}

static void test_stall_ends(struct guest *guest)
{
	struct m6npu_cmd cmd = cmd_experts(2, 0, 1);

	set_expert(guest, 2, 0, M6NPU_EXPERT_ABSENT);
	guest_job(guest, 0, CMDS, &cmd, 1, 41);
	guest_submit(guest, 0);
	guest_wait_status(guest, 0, M6NPU_RING_STATUS_STALLED);
	guest_ring_write(guest, 0, M6NPU_RING_ABORT, 41);
	ok(guest_wait(guest, 41) &&
	   guest_status(guest, 41)->code == M6NPU_EXC_ABORTED,
	   "abort a stalled job");
	guest_job(guest, 0, CMDS, &cmd, 1, 42);
	guest_submit(guest, 0);
	guest_wait_status(guest, 0, M6NPU_RING_STATUS_STALLED);
	guest_ring_write(guest, 0, M6NPU_RING_CTRL, M6NPU_RING_CTRL_RESET);
	ok(guest_wait_status(guest, 0, M6NPU_RING_STATUS_RESET_DONE) &&
	   !guest_fence(guest, 42), "reset a stalled ring");
	guest_setup_ring(guest, 0);
	cmd = cmd_experts(GUEST_LAYERS, 0, 1);
	ok(run(guest, &cmd, 1, 43) == M6NPU_EXC_BOUNDS, "no such layer");
	cmd = cmd_experts(0, GUEST_LAYER_EXPERTS, 1);
	ok(run(guest, &cmd, 1, 43) == M6NPU_EXC_BOUNDS, "no such expert");
}

/* Tables that say they are larger than the device can count. */
static void test_limits(struct guest *guest)
{
	struct m6npu_as *as =
		(struct m6npu_as *)(guest->ram + GUEST_AS_TABLE) + 1;
	struct m6npu_cmd cmds[2] = { cmd_prefetch(0, 0, 4, 1000),
				     cmd_experts(0, 0, 1) };

	set_layer(guest, 0, M6NPU_EXPERT_RESIDENT);
	ok(!run(guest, cmds, 2, 43), "a good table");
	as->expert_layers = M6NPU_MAX_EXPERT_LAYERS + 1;
	guest_invalidate(guest);
	ok(run(guest, cmds, 2, 43) == M6NPU_EXC_BOUNDS &&
	   guest_status(guest, 43)->cmd_index == 1, "257 layers");
	as->expert_layers = GUEST_LAYERS;
	as->experts_per_layer = M6NPU_MAX_EXPERTS_PER_LAYER + 1;
	guest_invalidate(guest);
	ok(run(guest, cmds, 2, 43) == M6NPU_EXC_BOUNDS &&
	   guest_status(guest, 43)->cmd_index == 1, "513 experts in each");
	as->experts_per_layer = GUEST_LAYER_EXPERTS;
	guest_invalidate(guest);
}

/* What the host needs to bring an expert in is time that the job takes. */
static void test_stall_time(struct guest *guest)
{
	const uint64_t ns = 1000000;
	struct m6npu_cmd cmd = cmd_experts(2, 0, 1);
	uint64_t before;

	set_expert(guest, 2, 0, M6NPU_EXPERT_ABSENT);
	guest_job(guest, 0, CMDS, &cmd, 1, 46);
	guest_submit(guest, 0);
	guest_wait_status(guest, 0, M6NPU_RING_STATUS_STALLED);
	m6_device_wait_idle(guest->dev, 1000);
	m6_device_advance(guest->dev, ns);
	before = guest_read64(guest, M6NPU_REG_TIME_NS_LO);
	set_expert(guest, 2, 0, M6NPU_EXPERT_RESIDENT);
	guest_ring_write(guest, 0, M6NPU_RING_RESUME, 1);
	guest_wait(guest, 46);
	ok(job_ns(guest, 46) > ns && job_ns(guest, 46) < ns + 20000 &&
	   guest_status(guest, 46)->end_ns == before + 1200 + 1,
	   "a stall of 1 ms in a job of %llu ns",
	   (unsigned long long)job_ns(guest, 46));
}

static void test_router_full(struct guest *guest)
{
	struct m6npu_cmd cmds[2];
	uint32_t tail = guest_read(guest, M6NPU_REG_EXC_TAIL);
	unsigned int wrong = 0;

	guest_invalidate(guest);
	set_layer(guest, 3, M6NPU_EXPERT_PINNED);
	cmds[0] = cmd_experts(3, 0, 140);
	cmds[1] = cmd_experts(3, 100, 100);
	ok(!run(guest, cmds, 2, 44), "more pins than the cache holds");
	ok(guest_read(guest, M6NPU_REG_EXC_TAIL) == tail + 1 &&
	   guest_exception(guest, tail)->code == M6NPU_EXC_ROUTER_CACHE_FULL &&
	   guest_exception(guest, tail)->layer == 3 &&
	   guest_exception(guest, tail)->expert_base == 128,
	   "reported once a job");
	ok(guest_read(guest, M6NPU_REG_ROUTER_OCCUPANCY) == (128 | 128 << 16),
	   "occupancy");
	for (uint64_t i = 0; i < 100; i++)
		wrong += ((uint64_t *)guest_data(guest, 0x10000))[i] !=
			 GUEST_VA + (100 + i) * 64;
	ok(!wrong, "and every translation is right");
	ok(guest_read64(guest, M6NPU_REG_ROUTER_FULL_LO) == 12 + 72,
	   "counted: %llu", (unsigned long long)
	   guest_read64(guest, M6NPU_REG_ROUTER_FULL_LO));
	guest_invalidate(guest);
}

static void test_forget(struct guest *guest)
{
	struct m6npu_cmd cmd = cmd_experts(1, 0, 100);
	struct m6npu_job_status *status = guest_status(guest, 45);
	const uint32_t key = M6NPU_ROUTER_KEY(1, 1, 50);
	uint64_t *addr = guest_data(guest, 0x10000);

	set_layer(guest, 1, M6NPU_EXPERT_RESIDENT);
	guest_invalidate(guest);
	run(guest, &cmd, 1, 45);
	guest_expert(guest, 1, 50)->addr = GUEST_VA;
	run(guest, &cmd, 1, 45);
	ok(status->router_hits == 100 && addr[50] == GUEST_VA + 50 * 64,
	   "an expert that moved is found where it was");
	guest_write(guest, M6NPU_REG_ROUTER_INVALIDATE, key);
	ok(guest_read(guest, M6NPU_REG_ROUTER_INVALIDATE) == key, "reads back");
	run(guest, &cmd, 1, 45);
	ok(status->router_hits == 99 && status->router_misses == 1 &&
	   addr[50] == GUEST_VA, "until it is invalidated, it alone");
	guest_write(guest, M6NPU_REG_ROUTER_INVALIDATE,
		    M6NPU_ROUTER_KEY(0, 1, 50));
	guest_write(guest, M6NPU_REG_ROUTER_INVALIDATE,
		    M6NPU_ROUTER_KEY(64, 1, 50));
	guest_write(guest, M6NPU_REG_ROUTER_INVALIDATE,
		    M6NPU_ROUTER_KEY(1, 256, 50));
	guest_write(guest, M6NPU_REG_ROUTER_INVALIDATE,
		    M6NPU_ROUTER_KEY(1, 1, 512));
	ok(guest_read(guest, M6NPU_REG_ROUTER_INVALIDATE) == key,
	   "nothing that can't be");
}

static bool hint_is(struct guest *guest, uint32_t index, uint32_t base,
		    uint64_t mask)
{
	const struct m6npu_exception *hint = guest_exception(guest, index);

	return hint->code == M6NPU_EXC_EXPERT_HINT && hint->asid == 1 &&
	       hint->layer == 2 && hint->fence_value == 47 &&
	       hint->expert_base == base && hint->mask == mask;
}

static void test_hints(struct guest *guest)
{
	const uint32_t tail = guest_read(guest, M6NPU_REG_EXC_TAIL);
	unsigned int irqs = guest_irqs(guest, M6NPU_VEC_EXPERT);
	struct m6npu_cmd cmd = cmd_prefetch(2, 60, 8, 900);
	struct m6npu_job_status *status = guest_status(guest, 47);

	set_layer(guest, 2, M6NPU_EXPERT_RESIDENT);
	set_expert(guest, 2, 61, M6NPU_EXPERT_ABSENT);
	set_expert(guest, 2, 64, M6NPU_EXPERT_ABSENT);
	set_expert(guest, 2, 67, M6NPU_EXPERT_ABSENT);
	guest_invalidate(guest);
	ok(!run_step(guest, &cmd, 1, 47, 900, M6NPU_STEP_HINTS) &&
	   guest_read(guest, M6NPU_REG_EXC_TAIL) == tail + 2 &&
	   hint_is(guest, tail, 0, 1ull << 61) &&
	   hint_is(guest, tail + 1, 64, 1 | 1 << 3),
	   "absent experts are asked for, and the job goes on");
	ok(guest_irqs(guest, M6NPU_VEC_EXPERT) == irqs + 2, "their vector");
	ok(!status->router_hits && !status->router_misses &&
	   !status->expert_faults, "looking is no use");
	ok(!run_step(guest, &cmd, 1, 47, 900, 0) &&
	   !run_step(guest, &cmd, 1, 47, 901, M6NPU_STEP_HINTS) &&
	   !run_step(guest, &cmd, 1, 47, 1001, M6NPU_STEP_HINTS) &&
	   !run_step(guest, &cmd, 1, 47, 0, M6NPU_STEP_HINTS) &&
	   !run(guest, &cmd, 1, 47) &&
	   guest_read(guest, M6NPU_REG_EXC_TAIL) == tail + 2,
	   "not if the step does not want it, or wants better guesses");
	guest_write(guest, M6NPU_REG_ROUTER_THRESHOLD, 900);
	ok(!run_step(guest, &cmd, 1, 47, 0, M6NPU_STEP_HINTS) &&
	   guest_read(guest, M6NPU_REG_EXC_TAIL) == tail + 4,
	   "the register holds where the step says nothing");
	ok(!run(guest, &cmd, 1, 47) &&
	   guest_read(guest, M6NPU_REG_EXC_TAIL) == tail + 4,
	   "a job without a step has not inherited one");
	guest_write(guest, M6NPU_REG_ROUTER_THRESHOLD, 950);
	cmd = cmd_experts(2, 62, 2);
	run(guest, &cmd, 1, 47);
	ok(status->router_hits == 2, "those that are there are in the cache");
	cmd = cmd_prefetch(GUEST_LAYERS, 0, 8, 1000);
	ok(!run(guest, &cmd, 1, 47), "a layer that is not is no error");
	cmd = cmd_prefetch(0, GUEST_LAYER_EXPERTS - 1, 8, 1000);
	ok(!run(guest, &cmd, 1, 47), "nor experts that are not");
}

/* Compute for @us, then use two experts that take 5 us each to read. */
static uint64_t use_two(struct guest *guest, bool fetched, uint32_t permille,
			uint32_t us)
{
	struct m6npu_cmd cmds[3];

	guest_invalidate(guest);
	cmds[0] = cmd_prefetch(0, 0, fetched ? 2 : 0, 960);
	cmds[1] = cmd_compute(us);
	cmds[2] = cmd_experts(0, 0, 2);
	run_step(guest, cmds, 3, 48, permille, 0);
	return job_ns(guest, 48);
}

static void test_fetch(struct guest *guest)
{
	uint64_t with, without, bytes;

	set_layer(guest, 0, M6NPU_EXPERT_RESIDENT);
	for (uint32_t i = 0; i < 2; i++)
		guest_expert(guest, 0, i)->size = BYTES;
	without = use_two(guest, false, 0, 10);
	bytes = guest_read64(guest, M6NPU_REG_DRAM_BYTES_LO);
	with = use_two(guest, true, 0, 10);
	bytes = guest_read64(guest, M6NPU_REG_DRAM_BYTES_LO) - bytes;
	/* Both read 10 us of weights; one while it computed, then SRAM. */
	ok(without - with > 7500 && without - with < 8500,
	   "what was copied in time is not read again: %llu ns less",
	   (unsigned long long)(without - with));
	ok(bytes == 2 * BYTES, "the same traffic");
	ok(use_two(guest, true, 1001, 10) == without,
	   "nothing if nothing is likely");
	guest_write(guest, M6NPU_REG_PREFILL_BUFFER,
		    M6NPU_BAR_SRAM_SIZE - BYTES + 1);
	ok(use_two(guest, true, 0, 10) == without, "or if there is no room");
	guest_write(guest, M6NPU_REG_PREFILL_BUFFER, 0);
	without = use_two(guest, false, 0, 0);
	with = use_two(guest, true, 0, 0);
	ok(with <= without && with + 4000 > without,
	   "what is on its way still is waited for: %llu ns less",
	   (unsigned long long)(without - with));
}

static void clear_stats(struct guest *guest)
{
	memset(guest_stats(guest, 0), 0,
	       GUEST_LAYERS * sizeof(struct m6npu_layer_stats));
}

static void test_forget_copy(struct guest *guest)
{
	const struct m6npu_layer_stats *stats = guest_stats(guest, 0);
	struct m6npu_cmd fetch = cmd_prefetch(0, 0, 2, 1000);
	struct m6npu_cmd use = cmd_experts(0, 0, 2);

	clear_stats(guest);
	guest_invalidate(guest);
	run(guest, &fetch, 1, 48);
	run(guest, &use, 1, 48);
	ok(stats->prefetches == 2 && stats->sram_hits == 2,
	   "a later job finds the copies");
	guest_write(guest, M6NPU_REG_ROUTER_INVALIDATE,
		    M6NPU_ROUTER_KEY(1, 0, 1));
	run(guest, &use, 1, 48);
	ok(stats->sram_hits == 3, "but none that was invalidated");
	guest_write(guest, M6NPU_REG_AS_INVALIDATE, 1);
	run(guest, &use, 1, 48);
	ok(stats->sram_hits == 3, "nor of an address space that was");
}

/* What jobs said of themselves, and what the layers say of them. */
struct sums {
	uint64_t hits, misses, faults;
};

static void add_status(struct guest *guest, struct sums *sums, uint64_t fence)
{
	const struct m6npu_job_status *status = guest_status(guest, fence);

	sums->hits += status->router_hits;
	sums->misses += status->router_misses;
	sums->faults += status->expert_faults;
}

static void test_stats(struct guest *guest)
{
	const struct m6npu_layer_stats *a = guest_stats(guest, 0);
	const struct m6npu_layer_stats *b = guest_stats(guest, 1);
	struct m6npu_cmd cmds[4];

	set_layer(guest, 0, M6NPU_EXPERT_RESIDENT);
	set_layer(guest, 1, M6NPU_EXPERT_RESIDENT);
	set_expert(guest, 1, 3, M6NPU_EXPERT_ABSENT);
	clear_stats(guest);
	guest_invalidate(guest);
	cmds[0] = cmd_experts(0, 0, 100);
	cmds[1] = cmd_prefetch(1, 0, 4, 1000);
	cmds[2] = cmd_experts(1, 0, 3);
	cmds[3] = cmd_experts(1, 100, 40);
	run_step(guest, cmds, 4, 49, 0, M6NPU_STEP_HINTS);
	ok(a->misses == 100 && !a->hits && !a->evictions && !a->sram_hits,
	   "misses of one layer");
	ok(b->hits == 3 && b->misses == 40 && !b->faults &&
	   b->evictions == 100 + 3 + 40 - 128, "another's, and whom it evicted");
	ok(b->prefetches == 3 && b->sram_hits == 3 && b->hints == 1,
	   "what was guessed: %llu copied, %llu used, %llu asked for",
	   (unsigned long long)b->prefetches,
	   (unsigned long long)b->sram_hits, (unsigned long long)b->hints);
	cmds[1] = cmd_experts(0, 50, 1);
	cmds[2].opcode = 0xff;
	clear_stats(guest);
	ok(run(guest, cmds + 1, 2, 49) == M6NPU_EXC_ILLEGAL_COMMAND &&
	   a->hits + a->misses == 1, "a job that fails counts");
	set_layer(guest, 3, M6NPU_EXPERT_PINNED);
	guest_invalidate(guest);
	cmds[0] = cmd_experts(3, 0, 140);
	run(guest, cmds, 1, 49);
	ok(guest_stats(guest, 3)->full == 12, "no room");
	guest_invalidate(guest);
}

/* All rings at once, with a stall in the middle of each. */
static void test_stats_of_rings(struct guest *guest)
{
	struct m6npu_layer_stats sum = { 0 };
	struct sums sums = { 0 };
	struct m6npu_cmd cmds[64];

	set_layer(guest, 1, M6NPU_EXPERT_RESIDENT);
	set_layer(guest, 2, M6NPU_EXPERT_RESIDENT);
	set_expert(guest, 2, 200, M6NPU_EXPERT_ABSENT);
	clear_stats(guest);
	guest_invalidate(guest);
	for (uint32_t i = 0; i < 64; i++)
		cmds[i] = cmd_experts(i % GUEST_LAYERS, i, 60);
	cmds[30] = cmd_experts(2, 190, 20);
	for (unsigned int i = 0; i < M6NPU_RINGS; i++) {
		for (uint32_t j = 0; j < 64; j++)
			cmds[j].operand[0] = 0x10000 + i * 0x1000;
		guest_job(guest, i, CMDS + i * 0x4000, cmds, 64, 50 + i);
		guest_submit(guest, i);
	}
	for (unsigned int i = 0; i < M6NPU_RINGS; i++)
		guest_wait_status(guest, i, M6NPU_RING_STATUS_STALLED);
	set_expert(guest, 2, 200, M6NPU_EXPERT_RESIDENT);
	for (unsigned int i = 0; i < M6NPU_RINGS; i++)
		guest_ring_write(guest, i, M6NPU_RING_RESUME, 1);
	for (unsigned int i = 0; i < M6NPU_RINGS; i++) {
		guest_wait(guest, 50 + i);
		add_status(guest, &sums, 50 + i);
	}
	for (uint32_t i = 0; i < GUEST_LAYERS; i++) {
		sum.hits += guest_stats(guest, i)->hits;
		sum.misses += guest_stats(guest, i)->misses;
		sum.faults += guest_stats(guest, i)->faults;
	}
	ok(sums.faults == M6NPU_RINGS && sum.faults == sums.faults &&
	   sum.hits == sums.hits && sum.misses == sums.misses &&
	   sum.hits + sum.misses == M6NPU_RINGS * (63 * 60 + 2 * 20),
	   "jobs and layers agree: %llu hits, %llu misses",
	   (unsigned long long)sum.hits, (unsigned long long)sum.misses);
}

static void set_stats(struct guest *guest, uint64_t addr)
{
	((struct m6npu_as *)(guest->ram + GUEST_AS_TABLE))[1].layer_stats =
		addr;
	guest_invalidate(guest);
}

static void test_stats_elsewhere(struct guest *guest)
{
	static const uint64_t nowhere[] = {
		GUEST_RAM, GUEST_STATS + 4, ~0ull - 7, ~0ull - 127,
	};
	struct m6npu_cmd cmd = cmd_experts(1, 10, 20);
	uint32_t tail = guest_read(guest, M6NPU_REG_EXC_TAIL);
	unsigned int wrong = 0;

	for (uint32_t i = 0; i < 4; i++) {
		const struct m6npu_exception *record =
			guest_exception(guest, tail + i);

		set_stats(guest, nowhere[i]);
		wrong += run(guest, &cmd, 1, 55) != 0;
		wrong += guest_status(guest, 55)->router_misses != 20;
		wrong += record->code != M6NPU_EXC_DMA_ERROR ||
			 record->addr != nowhere[i] || record->fence_value != 55;
	}
	ok(!wrong && guest_read(guest, M6NPU_REG_EXC_TAIL) == tail + 4,
	   "counters that can't be written are reported, the job is well");
	clear_stats(guest);
	set_stats(guest, GUEST_STATS);
	guest_job(guest, 0, CMDS, &cmd, 1, 56);
	set_expert(guest, 1, 12, M6NPU_EXPERT_ABSENT);
	guest_submit(guest, 0);
	guest_wait_status(guest, 0, M6NPU_RING_STATUS_STALLED);
	guest_ring_write(guest, 0, M6NPU_RING_CTRL, M6NPU_RING_CTRL_RESET);
	guest_wait_status(guest, 0, M6NPU_RING_STATUS_RESET_DONE);
	ok(!guest_stats(guest, 1)->misses, "a job that is dropped adds nothing");
	guest_setup_ring(guest, 0);
	guest_job(guest, 0, CMDS, &cmd, 1, 56);
	guest_submit(guest, 0);
	guest_wait_status(guest, 0, M6NPU_RING_STATUS_STALLED);
	guest_ring_write(guest, 0, M6NPU_RING_ABORT, 56);
	guest_wait(guest, 56);
	ok(guest_stats(guest, 1)->faults == 1, "one that is aborted does");
}

int main(void)
{
	struct guest guest;

	guest_init(&guest);
	set_stats(&guest, GUEST_STATS);
	test_stall(&guest);
	test_stall_ends(&guest);
	test_limits(&guest);
	test_stall_time(&guest);
	test_router_full(&guest);
	test_forget(&guest);
	test_hints(&guest);
	test_fetch(&guest);
	test_forget_copy(&guest);
	test_stats(&guest);
	test_stats_of_rings(&guest);
	test_stats_elsewhere(&guest);
	guest_exit(&guest);
	return done();
}
