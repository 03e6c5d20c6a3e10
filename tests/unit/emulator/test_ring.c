// SPDX-License-Identifier: MIT
/* Rings and the life of jobs, with a stub for the arithmetic. */
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "guest.h"

#define CMDS	0x100000u	/* where command lists go in the data area */

static struct m6npu_cmd cmd_copy(uint64_t dst, uint64_t src, uint64_t bytes)
{
	return (struct m6npu_cmd) {
		.opcode = M6NPU_OP_COPY,
		.operand = { dst, src },
		.args.mem.bytes = bytes,
	};
}

static struct m6npu_cmd cmd_fill(uint64_t dst, uint64_t bytes,
				 uint32_t pattern)
{
	return (struct m6npu_cmd) {
		.opcode = M6NPU_OP_FILL,
		.operand = { dst },
		.args.mem = { bytes, pattern },
	};
}

static struct m6npu_cmd cmd_op(uint8_t opcode)
{
	return (struct m6npu_cmd) { .opcode = opcode };
}

static uint32_t run(struct guest *guest, unsigned int ring,
		    const struct m6npu_cmd *cmds, uint32_t count,
		    uint64_t fence)
{
	guest_job(guest, ring, CMDS, cmds, count, fence);
	guest_submit(guest, ring);
	return guest_wait(guest, fence) ? guest_status(guest, fence)->code :
					  0xffff;
}

static void test_copy(struct guest *guest)
{
	struct m6npu_cmd cmds[2];
	unsigned int irqs = guest_irqs(guest, M6NPU_VEC_UNIT(2));
	struct m6npu_job_status *status = guest_status(guest, 1);

	memset(guest_data(guest, 0), 0x5a, 10000);
	cmds[0] = cmd_copy(0x8000, 4, 9000);
	cmds[1] = cmd_op(M6NPU_OP_BARRIER);
	ok(!run(guest, 2, cmds, 2, 1), "a job");
	ok(!memcmp(guest_data(guest, 4), guest_data(guest, 0x8000), 9000) &&
	   !*(char *)guest_data(guest, 0x8000 + 9000), "did what it says");
	ok(status->cmd_index == 2 && status->end_ns > status->begin_ns &&
	   status->cycles, "and its record is filled in");
	m6_device_wait_idle(guest->dev, 1000);
	ok(guest_irqs(guest, M6NPU_VEC_UNIT(2)) == irqs + 1, "its vector");
	ok(guest_ring_read(guest, 2, M6NPU_RING_HEAD) == 1 &&
	   guest_ring_read(guest, 2, M6NPU_RING_PROGRESS) == 2 &&
	   guest_ring_read(guest, 2, M6NPU_RING_STATUS) ==
	   M6NPU_RING_STATUS_ENABLED, "head, progress, status");
}

static void test_wrap(struct guest *guest)
{
	unsigned int bad = 0;

	for (uint32_t i = 0; i < 5 * GUEST_RING_ENTRIES; i++) {
		struct m6npu_cmd cmd = cmd_fill(0x100, 64, i);

		bad += run(guest, 0, &cmd, 1, 2) != 0;
		bad += *(uint32_t *)guest_data(guest, 0x100) != i;
	}
	ok(!bad, "five times around the ring");
	for (uint32_t i = 0; i < GUEST_RING_ENTRIES; i++) {
		struct m6npu_cmd cmd = cmd_fill(0x200 + i * 4, 4, i + 1);

		guest_job(guest, 0, CMDS + i * 64, &cmd, 1, 10 + i);
	}
	guest_submit(guest, 0);
	ok(guest_wait(guest, 10 + GUEST_RING_ENTRIES - 1), "a full ring");
	for (uint32_t i = 0; i < GUEST_RING_ENTRIES; i++)
		bad += ((uint32_t *)guest_data(guest, 0x200))[i] != i + 1;
	ok(!bad, "every job of it");
}

static void test_doorbell(struct guest *guest)
{
	uint32_t head = guest_ring_read(guest, 0, M6NPU_RING_HEAD);
	unsigned int wrong = 0;

	/* Anything beyond the ring's size, and backwards, is ignored. */
	for (uint64_t i = 0; i < 0x100000000ull; i += 0x1234567) {
		uint32_t tail = head + (uint32_t)i;

		if ((uint32_t)(tail - head) <= GUEST_RING_ENTRIES)
			continue;
		guest_ring_write(guest, 0, M6NPU_RING_DOORBELL, tail);
		wrong += guest_ring_read(guest, 0, M6NPU_RING_STATUS) !=
			 M6NPU_RING_STATUS_ENABLED;
	}
	guest_ring_write(guest, 0, M6NPU_RING_DOORBELL,
			 head + GUEST_RING_ENTRIES + 1);
	wrong += guest_ring_read(guest, 0, M6NPU_RING_HEAD) != head;
	ok(!wrong, "bad doorbells are ignored");
	guest_ring_write(guest, 3, M6NPU_RING_CTRL, 0);
	guest_ring_write(guest, 3, M6NPU_RING_DOORBELL, 1);
	ok(!guest_ring_read(guest, 3, M6NPU_RING_STATUS),
	   "also of a disabled ring");
	guest_ring_write(guest, 3, M6NPU_RING_SIZE, 3);
	guest_ring_write(guest, 3, M6NPU_RING_CTRL, 1);
	ok(!guest_ring_read(guest, 3, M6NPU_RING_CTRL), "size 3 is refused");
	guest_ring_write(guest, 3, M6NPU_RING_SIZE, 2048);
	guest_ring_write(guest, 3, M6NPU_RING_CTRL, 1);
	ok(!guest_ring_read(guest, 3, M6NPU_RING_CTRL), "size 2048 too");
	guest_ring_write(guest, 3, M6NPU_RING_SIZE, 8);
	guest_ring_write(guest, 3, M6NPU_RING_BASE_LO, GUEST_RING(3) + 64);
	guest_ring_write(guest, 3, M6NPU_RING_CTRL, 1);
	ok(!guest_ring_read(guest, 3, M6NPU_RING_CTRL), "and a crooked base");
	guest_setup_ring(guest, 3);
	ok(guest_ring_read(guest, 3, M6NPU_RING_CTRL) == 1, "a good one");
}

/* Spoils one field of an otherwise good entry. */
static void spoil(struct m6npu_ring_entry *entry, int how)
{
	switch (how) {
	case 0: entry->asid = 0; break;
	case 1: entry->asid = 64; break;
	case 2: entry->flags = 1; break;
	case 3: entry->cmd_count = 0; break;
	case 4: entry->cmd_count = M6NPU_MAX_COMMANDS + 1; break;
	case 5: entry->cmd_addr += 8; break;
	case 6: entry->region_addr += 8; break;
	case 7: entry->reserved[1] = 1; break;
	case 8: entry->step_addr = 4; break;
	case 9: entry->region_addr = 0xfffffffffffc0; break;
	case 10: entry->cmd_addr = 0; break;
	case 11: entry->step_addr = 8; break;
	case 12: entry->asid = 7; break;
	}
}

static void test_bad_entries(struct guest *guest)
{
	static const uint32_t codes[] = {
		0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30,
		0x1d, 0x1a, 0x1a, 0x1a,
	};
	struct m6npu_cmd cmd = cmd_fill(0, 64, 1);
	unsigned int wrong = 0;
	uint32_t tail = guest_read(guest, M6NPU_REG_EXC_TAIL);

	for (int i = 0; i < 13; i++) {
		struct m6npu_ring_entry *entry;

		entry = guest_job(guest, 1, CMDS, &cmd, 1, 20);
		spoil(entry, i);
		guest_submit(guest, 1);
		wrong += !guest_wait(guest, 20);
		if (guest_status(guest, 20)->code != codes[i]) {
			printf("# case %d: %#x\n", i,
			       guest_status(guest, 20)->code);
			wrong++;
		}
		wrong += guest_exception(guest, tail + i)->code != codes[i];
		wrong += guest_exception(guest, tail + i)->fence_value != 20;
		wrong += guest_exception(guest, tail + i)->ring != 1;
	}
	ok(!wrong, "bad entries fail by themselves, with a record each");
	/* Without a status record the ring goes on as well. */
	guest_job(guest, 1, CMDS, &cmd, 1, 20)->status_addr = 1ull << 40;
	guest_job(guest, 1, CMDS, &cmd, 1, 20)->status_addr = 8;
	ok(!run(guest, 1, &cmd, 1, 21), "nowhere to put the record");
	guest_write(guest, M6NPU_REG_EXC_HEAD,
		    guest_read(guest, M6NPU_REG_EXC_TAIL));
}

static void test_bad_commands(struct guest *guest)
{
	struct m6npu_cmd cmds[3];
	struct m6npu_job_status *status = guest_status(guest, 22);

	cmds[0] = cmd_fill(0, 64, 0x11);
	cmds[1] = cmd_fill(GUEST_DATA_BYTES - 32, 64, 0x22);
	cmds[2] = cmd_fill(64, 64, 0x33);
	memset(guest_data(guest, 0), 0, 256);
	ok(run(guest, 0, cmds, 3, 22) == M6NPU_EXC_BOUNDS &&
	   status->cmd_index == 1 &&
	   status->fault_addr == GUEST_VA + GUEST_DATA_BYTES - 32, "bounds");
	ok(*(uint32_t *)guest_data(guest, 0) == 0x11 &&
	   !*(uint32_t *)guest_data(guest, 64), "stops where it fails");
	cmds[0] = cmd_fill(M6NPU_OPERAND(3, 0), 64, 0);
	ok(run(guest, 0, cmds, 1, 22) == M6NPU_EXC_BOUNDS, "unused region");
	cmds[0] = cmd_fill(M6NPU_OPERAND(9, 0), 64, 0);
	ok(run(guest, 0, cmds, 1, 22) == M6NPU_EXC_ILLEGAL_COMMAND,
	   "region 9");
	cmds[0] = cmd_fill(2, 64, 0);
	ok(run(guest, 0, cmds, 1, 22) == M6NPU_EXC_ILLEGAL_COMMAND,
	   "an operand at 2");
	cmds[0] = cmd_fill(1ull << 40, 64, 0);
	ok(run(guest, 0, cmds, 1, 22) == M6NPU_EXC_ILLEGAL_COMMAND,
	   "bits above the offset");
	cmds[0] = cmd_fill(0, ~0ull - 3, 0);
	ok(run(guest, 0, cmds, 1, 22) == M6NPU_EXC_BOUNDS, "far too long");
	cmds[0] = cmd_op(0xff);
	ok(run(guest, 0, cmds, 1, 22) == M6NPU_EXC_ILLEGAL_COMMAND,
	   "no such command");
	m6_device_inject_mmu_fault(guest->dev);
	cmds[0] = cmd_fill(0, 64, 0);
	ok(run(guest, 0, cmds, 1, 22) == M6NPU_EXC_MMU_PAGE_FAULT,
	   "an injected fault");
	ok(!run(guest, 0, cmds, 1, 22), "once");
}

/* Pages in reverse order: one operand, no two neighbours. */
static void test_scattered(struct guest *guest)
{
	const uint64_t va = 0x40000, bytes = 16 * 4096 + 100;
	struct m6npu_cmd cmds[2];
	uint8_t *text = malloc(bytes);

	for (uint64_t i = 0; i < bytes; i++)
		text[i] = i * 7 + i / 4096;
	for (uint64_t i = 0; i < 32; i++)
		*guest_pte(guest, GUEST_VA + va + i * 4096) ^=
			(GUEST_DATA + va + i * 4096) ^
			(GUEST_DATA + va + (31 - i) * 4096);
	guest_invalidate(guest);
	memcpy(guest_data(guest, 0x200000), text, bytes);
	cmds[0] = cmd_copy(va + 8, 0x200000, bytes);
	cmds[1] = cmd_copy(0x300000, va + 8, bytes);
	ok(!run(guest, 0, cmds, 2, 23), "copy to and from scattered pages");
	ok(!memcmp(guest_data(guest, 0x300000), text, bytes), "intact");
	ok(!memcmp(guest_data(guest, va + 31 * 4096 + 8), text, 4088) &&
	   !memcmp(guest_data(guest, va + 30 * 4096), text + 4088, 4096),
	   "where the table says");
	/* Source and destination in one bounced range. */
	cmds[0] = cmd_copy(va, va + 4096, 8192);
	ok(!run(guest, 0, cmds, 1, 23) &&
	   !memcmp(guest_data(guest, va + 31 * 4096), text + 4088, 4096),
	   "overlapping operands");
	*guest_pte(guest, GUEST_VA + va + 3 * 4096) &= ~M6NPU_PTE_WRITE;
	guest_invalidate(guest);
	memset(guest_data(guest, va + 31 * 4096), 0, 4096);
	cmds[0] = cmd_fill(va, bytes, 0xee);
	ok(run(guest, 0, cmds, 1, 23) == M6NPU_EXC_MMU_PAGE_FAULT &&
	   guest_status(guest, 23)->fault_addr == GUEST_VA + va + 3 * 4096 &&
	   !*(uint8_t *)guest_data(guest, va + 31 * 4096),
	   "all of it or nothing");
	guest_setup_tables(guest);
	free(text);
}

/* One large page, again and again: a gigabyte of scattered memory, and more. */
static void test_scattered_much(struct guest *guest)
{
	const uint64_t va = 0x40000000, page = 1ull << M6NPU_LARGE_PAGE_SHIFT;
	const uint64_t bytes = 33 * page;
	uint64_t *pgd = (uint64_t *)(guest->ram + GUEST_PGD) + va / page;
	struct m6npu_region *region = (void *)(guest->ram + GUEST_REGIONS);
	struct m6npu_cmd cmd = cmd_copy(M6NPU_OPERAND(1, 0),
					M6NPU_OPERAND(1, bytes), bytes);

	for (unsigned int i = 0; i < 2 * 33; i++)
		pgd[i] = (GUEST_RAM - page) | M6NPU_PTE_VALID |
			 M6NPU_PTE_LARGE | M6NPU_PTE_READ | M6NPU_PTE_WRITE;
	region[1].addr = va;
	region[1].size = 2 * bytes;
	guest_invalidate(guest);
	ok(run(guest, 0, &cmd, 1, 24) == M6NPU_EXC_DMA_ERROR &&
	   guest_status(guest, 24)->fault_addr == va + bytes,
	   "too much in all, though neither operand is");
	memset(pgd, 0, 2 * 33 * sizeof(*pgd));
	guest_setup_tables(guest);
}

static void test_reset(struct guest *guest)
{
	struct m6npu_cmd cmd = cmd_op(M6NPU_OP_ROPE);

	guest_job(guest, 0, CMDS, &cmd, 1, 30);
	guest_job(guest, 0, CMDS, &cmd, 1, 31);
	guest_submit(guest, 0);
	guest_wait_status(guest, 0, M6NPU_RING_STATUS_BUSY);
	guest_ring_write(guest, 0, M6NPU_RING_CTRL, M6NPU_RING_CTRL_RESET);
	ok(guest_wait_status(guest, 0, M6NPU_RING_STATUS_RESET_DONE),
	   "reset in the middle of a command");
	ok(!guest_fence(guest, 30) && !guest_fence(guest, 31),
	   "drops both jobs without a record");
	ok(guest_ring_read(guest, 0, M6NPU_RING_STATUS) ==
	   M6NPU_RING_STATUS_RESET_DONE, "and leaves the ring disabled");
	guest_setup_ring(guest, 0);
	cmd = cmd_fill(0, 4, 9);
	ok(!run(guest, 0, &cmd, 1, 30), "enabled, it works again");

	/* Enabled again before the worker has let go. */
	cmd = cmd_op(M6NPU_OP_ROPE);
	guest_job(guest, 0, CMDS, &cmd, 1, 31);
	guest_submit(guest, 0);
	guest_ring_write(guest, 0, M6NPU_RING_CTRL, M6NPU_RING_CTRL_RESET);
	guest_setup_ring(guest, 0);
	cmd = cmd_fill(0, 4, 9);
	ok(!run(guest, 0, &cmd, 1, 32) && !guest_fence(guest, 31),
	   "at once, too");
}

static void test_abort(struct guest *guest)
{
	struct m6npu_cmd cmd = cmd_op(M6NPU_OP_ROPE);
	const uint64_t fence = 33;

	guest_job(guest, 0, CMDS, &cmd, 1, fence)->fence_value =
		0x100000000ull | fence;
	guest_submit(guest, 0);
	guest_wait_status(guest, 0, M6NPU_RING_STATUS_BUSY);
	guest_ring_write(guest, 0, M6NPU_RING_ABORT, fence + 1);
	ok(!guest_fence(guest, fence), "another fence aborts nothing");
	while (!guest_fence(guest, fence))
		guest_ring_write(guest, 0, M6NPU_RING_ABORT, fence);
	ok(guest_status(guest, fence)->code == M6NPU_EXC_ABORTED,
	   "abort by fence");
	cmd = cmd_fill(0, 4, 9);
	ok(!run(guest, 0, &cmd, 1, 34), "the ring goes on");
}

static void test_hang(struct guest *guest)
{
	struct m6npu_cmd cmd = cmd_fill(0, 4, 9);

	m6_device_inject_hang(guest->dev, 0);
	guest_job(guest, 0, CMDS, &cmd, 1, 35);
	guest_submit(guest, 0);
	ok(!m6_device_wait_idle(guest->dev, 50), "a hung unit");
	guest_ring_write(guest, 0, M6NPU_RING_ABORT, 35);
	ok(!run(guest, 1, &cmd, 1, 36), "others go on");
	ok(!guest_fence(guest, 35), "it ignores an abort");
	guest_ring_write(guest, 0, M6NPU_RING_CTRL, M6NPU_RING_CTRL_RESET);
	ok(guest_wait_status(guest, 0, M6NPU_RING_STATUS_RESET_DONE),
	   "a reset helps");
	guest_setup_ring(guest, 0);
	ok(!run(guest, 0, &cmd, 1, 35), "for good");
}

static void test_step(struct guest *guest)
{
	struct m6npu_cmd cmd = cmd_fill(0, 4, 9);
	struct m6npu_step *step = guest_data(guest, 0x20000);
	unsigned int wrong = 0;

	for (int i = 0; i < 6; i++) {
		memset(step, 0, 4096);
		step->token_count = i == 1 ? 1025 : 3;
		step->out_count = i == 2 ? 2 : 1;
		step->kv_capacity = 16;
		step->kv_type = i == 3 ? M6NPU_TYPE_Q4_0 : M6NPU_TYPE_F16;
		step->flags = i == 4 ? ~M6NPU_STEP_HINTS : 0;
		step->tokens[i == 5 ? 3 : 2].flags = M6NPU_TOKEN_OUT;
		guest_job(guest, 0, CMDS, &cmd, 1, 45)->step_addr =
			guest_va(0x20000);
		guest_submit(guest, 0);
		wrong += !guest_wait(guest, 45);
		wrong += guest_status(guest, 45)->code !=
			 (i ? M6NPU_EXC_ILLEGAL_COMMAND : 0);
	}
	ok(!wrong, "step blocks are checked");
}

static void test_device_reset(struct guest *guest)
{
	struct m6npu_cmd cmd = cmd_op(M6NPU_OP_ROPE);

	for (unsigned int i = 0; i < M6NPU_RINGS; i++) {
		guest_job(guest, i, CMDS + i * 64, &cmd, 1, 50 + i);
		guest_submit(guest, i);
	}
	guest_write(guest, M6NPU_REG_CTRL, M6NPU_CTRL_RESET);
	ok(guest_wait_ready(guest), "CTRL.RESET with all rings at work");
	ok(!guest_ring_read(guest, 2, M6NPU_RING_SIZE) &&
	   !guest_read(guest, M6NPU_REG_EXC_TAIL) &&
	   !guest_read64(guest, M6NPU_REG_ROUTER_HITS_LO) &&
	   !guest_read(guest, M6NPU_REG_AS_TABLE_LO), "all is initial");
	guest_setup_tables(guest);
	guest_setup_exceptions(guest);
	for (unsigned int i = 0; i < M6NPU_RINGS; i++)
		guest_setup_ring(guest, i);
	cmd = cmd_fill(0, 4, 9);
	ok(!run(guest, 4, &cmd, 1, 50), "set up again, it works");
	ok(guest_irqs(guest, M6NPU_VEC_DMA) == 1, "the DMA engine's vector");
}

/* Memory goes while a command may be using it. */
static void test_unmap(struct guest *guest)
{
	struct m6npu_cmd cmd = cmd_copy(0x100000, 0x200000, 0x80000);
	struct m6npu_job_status *status = guest_status(guest, 60);

	for (int i = 0; i < 50; i++) {
		guest_job(guest, 0, CMDS, &cmd, 1, 60);
		guest_submit(guest, 0);
		m6_device_dma_unmap(guest->dev, 0, GUEST_RAM);
		m6_device_wait_idle(guest->dev, 5000);
		m6_device_dma_map(guest->dev, 0, GUEST_RAM, guest->ram,
				  M6_DMA_READ | M6_DMA_WRITE, NULL, NULL);
	}
	ok(!run(guest, 0, &cmd, 1, 60) && !status->code,
	   "memory may go at any time");
}

int main(void)
{
	struct guest guest;

	guest_init(&guest);
	test_copy(&guest);
	test_wrap(&guest);
	test_doorbell(&guest);
	test_bad_entries(&guest);
	test_bad_commands(&guest);
	test_scattered(&guest);
	test_scattered_much(&guest);
	test_reset(&guest);
	test_abort(&guest);
	test_hang(&guest);
	test_step(&guest);
	test_device_reset(&guest);
	test_unmap(&guest);
	guest_exit(&guest);
	return done();
}
