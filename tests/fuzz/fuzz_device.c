// SPDX-License-Identifier: MIT
/*
 * A guest that does anything: register accesses, memory contents, jobs. The
 * input is a sequence of operations; see run_one(). Whatever happened, a reset
 * must bring the device back.
 */
#include <stdlib.h>
#include <unistd.h>

#include "device.h"
#include "input.h"

#define RAM_BYTES	0x200000u
#define AS_TABLE	0x010000u
#define PGD		0x020000u
#define PT		0x030000u
#define RING(n)		(0x040000u + (n) * 0x1000u)
#define REGIONS		0x050000u
#define EXPERTS		0x060000u
#define EXCEPTIONS	0x070000u
#define STATUS		0x080000u
#define STATS		0x082000u
#define DATA		0x100000u
#define DATA_BYTES	0x100000u
#define VA		0x2000000ull
#define RING_ENTRIES	16u
#define JOB_COMMANDS	8u

static struct m6_device *dev;
static uint8_t *ram;
static uint32_t tail[M6NPU_RINGS];

static void reg(uint32_t offset, uint32_t value)
{
	m6_device_reg_write(dev, offset, value);
}

static void fill_tables(void)
{
	struct m6npu_as *as = (struct m6npu_as *)(ram + AS_TABLE) + 1;
	struct m6npu_expert *expert = (void *)(ram + EXPERTS);
	uint64_t *pt = (uint64_t *)(ram + PT);
	const uint64_t rw = M6NPU_PTE_VALID | M6NPU_PTE_READ |
			    M6NPU_PTE_WRITE;

	memset(ram, 0, RAM_BYTES);
	as->valid = 1;
	as->pgd = PGD;
	as->expert_table = EXPERTS;
	as->expert_layers = 2;
	as->experts_per_layer = 8;
	as->layer_stats = STATS;
	((uint64_t *)(ram + PGD))[1] = PT | M6NPU_PTE_VALID;
	/* Half of it contiguous, half in reverse. */
	for (uint32_t i = 0; i < 128; i++)
		pt[i] = (DATA + i * 4096) | rw;
	for (uint32_t i = 128; i < 256; i++)
		pt[i] = (DATA + (383 - i) * 4096) | rw;
	for (uint32_t i = 0; i < 16; i++)
		expert[i] = (struct m6npu_expert) {
			.addr = VA + i * 0x8000, .size = 0x8000,
			.flags = i == 13 ? 0 : 1 + i % 2,
		};
}

static void start(void)
{
	struct m6npu_region *region = (void *)(ram + REGIONS);

	fill_tables();
	for (uint32_t i = 0; i < M6NPU_REGIONS; i++) {
		region[i].addr = VA + i * 0x20000;
		region[i].size = 0x20000;
	}
	m6_device_dma_map(dev, 0, RAM_BYTES, ram, M6_DMA_READ | M6_DMA_WRITE,
			  NULL, NULL);
	reg(M6NPU_REG_AS_TABLE_LO, AS_TABLE);
	reg(M6NPU_REG_AS_TABLE_HI, 0);
	reg(M6NPU_REG_EXC_SIZE, 16);
	reg(M6NPU_REG_EXC_BASE_LO, EXCEPTIONS);
	reg(M6NPU_REG_EXC_BASE_HI, 0);
	for (uint32_t i = 0; i < M6NPU_RINGS; i++) {
		tail[i] = 0;
		reg(M6NPU_RING_BLOCK(i) + M6NPU_RING_BASE_LO, RING(i));
		reg(M6NPU_RING_BLOCK(i) + M6NPU_RING_SIZE, RING_ENTRIES);
		reg(M6NPU_RING_BLOCK(i) + M6NPU_RING_CTRL, 1);
	}
}

static void setup(void)
{
	struct m6_profile profile;

	m6_profile_default(&profile);
	ram = aligned_alloc(4096, RAM_BYTES);
	dev = m6_device_create(&(struct m6_device_config) {
		.profile = &profile, .threads = 1,
	});
	if (!ram || !dev)
		abort();
}

/* A good entry, and after it what the input changes in it. */
static void submit(struct input *input)
{
	uint32_t ring = input_u8(input) % M6NPU_RINGS;
	uint32_t count = 1 + input_u8(input) % JOB_COMMANDS;
	uint32_t at = 0x10000 * (1 + tail[ring] % 4);
	struct m6npu_ring_entry entry = {
		.asid = 1, .cmd_count = count, .cmd_addr = VA + at,
		.region_addr = REGIONS, .step_addr = VA,
		.status_addr = STATUS + (tail[ring] % 64) * 64,
		.fence_value = tail[ring],
	};
	uint8_t spoil = input_u8(input);

	if (spoil & 1)
		entry.step_addr = 0;
	if (spoil & 2)
		((uint8_t *)&entry)[input_u8(input) % 64] ^= input_u8(input);
	input_take(input, ram + DATA + at, count * sizeof(struct m6npu_cmd));
	memcpy(ram + RING(ring) + tail[ring] % RING_ENTRIES * sizeof(entry),
	       &entry, sizeof(entry));
	reg(M6NPU_RING_BLOCK(ring) + M6NPU_RING_DOORBELL, ++tail[ring]);
}

static void poke(struct input *input)
{
	uint32_t at = input_u32(input) % (RAM_BYTES - 256);

	input_take(input, ram + at, input_u8(input));
}

static void remap(struct input *input)
{
	if (input_u8(input) & 1)
		m6_device_dma_unmap(dev, 0, RAM_BYTES);
	else
		m6_device_dma_map(dev, 0, RAM_BYTES, ram, M6_DMA_READ |
				  M6_DMA_WRITE, NULL, NULL);
}

static void access_bar(struct input *input)
{
	uint8_t bar = input_u8(input) % 6, bytes = input_u8(input) % 16, how;
	uint32_t at = input_u32(input);
	uint8_t data[16];

	how = input_u8(input);
	input_take(input, data, sizeof(data));
	if (how & 1)
		m6_device_config_write(dev, at % 5000, data, bytes);
	else if (how & 2)
		m6_device_mmio_read(dev, bar, at, data, bytes);
	else
		m6_device_mmio_write(dev, bar, at, data, bytes);
}

static void run_one(struct input *input)
{
	uint32_t offset;

	switch (input_u8(input) % 8) {
	case 0:
	case 1:
		submit(input);
		break;
	case 2:
		poke(input);
		break;
	case 3:
		offset = input_u16(input) % 0x1500 & ~3u;
		reg(offset, input_u32(input));
		break;
	case 4:
		m6_device_reg_read(dev, input_u16(input));
		break;
	case 5:
		remap(input);
		break;
	case 6:
		access_bar(input);
		break;
	case 7:
		m6_device_wait_idle(dev, 2);
		break;
	}
}

static void check_reset(void)
{
	m6_device_reset(dev);
	for (int i = 0; i < 20000; i++) {
		if (m6_device_reg_read(dev, M6NPU_REG_STATUS) &
		    M6NPU_STATUS_READY)
			return;
		usleep(1000);
	}
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct input input = { data, bytes };

	if (!dev)
		setup();
	start();
	while (input.bytes)
		run_one(&input);
	/* Half of them see their jobs end, the others are cut short. */
	if (bytes % 2)
		m6_device_wait_idle(dev, 50);
	check_reset();
	m6_device_dma_clear(dev);
	return 0;
}
