// SPDX-License-Identifier: MIT
#include "guest.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAIT_S	20

static void count_irq(void *opaque, unsigned int vector)
{
	struct guest *guest = opaque;

	__atomic_fetch_add(&guest->irqs[vector], 1, __ATOMIC_SEQ_CST);
}

unsigned int guest_irqs(struct guest *guest, unsigned int vector)
{
	return __atomic_load_n(&guest->irqs[vector], __ATOMIC_SEQ_CST);
}

void guest_init(struct guest *guest)
{
	struct m6_profile profile;

	m6_profile_default(&profile);
	profile.idle_permille = 0;
	guest_init_profile(guest, &profile, false);
}

void guest_init_profile(struct guest *guest, const struct m6_profile *profile,
			bool dry)
{
	memset(guest, 0, sizeof(*guest));
	guest->ram = aligned_alloc(4096, GUEST_RAM);
	memset(guest->ram, 0, GUEST_RAM);
	guest->dev = m6_device_create(&(struct m6_device_config) {
		.profile = profile,
		.dry = dry,
		.threads = 1,
		.irq = count_irq,
		.irq_opaque = guest,
	});
	m6_device_dma_map(guest->dev, 0, GUEST_RAM, guest->ram,
			  M6_DMA_READ | M6_DMA_WRITE, NULL, NULL);
	guest_setup_tables(guest);
	guest_setup_exceptions(guest);
	for (unsigned int i = 0; i < M6NPU_RINGS; i++)
		guest_setup_ring(guest, i);
}

void guest_exit(struct guest *guest)
{
	m6_device_destroy(guest->dev);
	free(guest->ram);
}

struct m6npu_as *guest_as(struct guest *guest, unsigned int asid)
{
	struct m6npu_as *as = (void *)(guest->ram + GUEST_AS_TABLE +
				       asid * sizeof(*as));

	memset(as, 0, sizeof(*as));
	as->pgd = GUEST_PGD;
	as->expert_table = GUEST_EXPERTS;
	as->expert_layers = GUEST_LAYERS;
	as->experts_per_layer = GUEST_LAYER_EXPERTS;
	as->valid = 1;
	return as;
}

struct m6npu_expert *guest_expert(struct guest *guest, uint32_t layer,
				  uint32_t expert)
{
	return (struct m6npu_expert *)(guest->ram + GUEST_EXPERTS) +
	       layer * GUEST_LAYER_EXPERTS + expert;
}

struct m6npu_layer_stats *guest_stats(struct guest *guest, uint32_t layer)
{
	return (struct m6npu_layer_stats *)(guest->ram + GUEST_STATS) + layer;
}

uint64_t *guest_pte(struct guest *guest, uint64_t va)
{
	uint64_t index = va >> M6NPU_PAGE_SHIFT & (M6NPU_PT_ENTRIES - 1);

	return (uint64_t *)(guest->ram + GUEST_PT) + index;
}

void guest_setup_tables(struct guest *guest)
{
	uint64_t *pgd = (uint64_t *)(guest->ram + GUEST_PGD);
	struct m6npu_region *region = (void *)(guest->ram + GUEST_REGIONS);

	memset(region, 0, M6NPU_REGIONS * sizeof(*region));
	region[0].addr = GUEST_VA;
	region[0].size = GUEST_DATA_BYTES;
	guest_as(guest, 1);
	pgd[GUEST_VA >> M6NPU_LARGE_PAGE_SHIFT] = GUEST_PT | M6NPU_PTE_VALID;
	for (uint64_t at = 0; at < GUEST_DATA_BYTES; at += 4096)
		*guest_pte(guest, GUEST_VA + at) = (GUEST_DATA + at) |
			M6NPU_PTE_VALID | M6NPU_PTE_READ | M6NPU_PTE_WRITE;
	guest_write64(guest, M6NPU_REG_AS_TABLE_LO, GUEST_AS_TABLE);
	guest_invalidate(guest);
}

void guest_invalidate(struct guest *guest)
{
	guest_write(guest, M6NPU_REG_AS_INVALIDATE, M6NPU_AS_INVALIDATE_ALL);
}

void guest_setup_exceptions(struct guest *guest)
{
	memset(guest->ram + GUEST_EXCEPTIONS, 0,
	       GUEST_EXC_ENTRIES * sizeof(struct m6npu_exception));
	guest_write(guest, M6NPU_REG_EXC_SIZE, GUEST_EXC_ENTRIES);
	guest_write64(guest, M6NPU_REG_EXC_BASE_LO, GUEST_EXCEPTIONS);
}

struct m6npu_exception *guest_exception(struct guest *guest, uint32_t index)
{
	return (struct m6npu_exception *)(guest->ram + GUEST_EXCEPTIONS) +
	       index % GUEST_EXC_ENTRIES;
}

void guest_setup_ring(struct guest *guest, unsigned int ring)
{
	guest_ring_write(guest, ring, M6NPU_RING_BASE_LO, GUEST_RING(ring));
	guest_ring_write(guest, ring, M6NPU_RING_BASE_HI, 0);
	guest_ring_write(guest, ring, M6NPU_RING_SIZE, GUEST_RING_ENTRIES);
	guest_ring_write(guest, ring, M6NPU_RING_CTRL, M6NPU_RING_CTRL_ENABLE);
	guest->tail[ring] = 0;
}

uint64_t guest_va(uint64_t offset)
{
	return GUEST_VA + offset;
}

void *guest_data(struct guest *guest, uint64_t offset)
{
	return guest->ram + GUEST_DATA + offset;
}

struct m6npu_ring_entry *guest_job(struct guest *guest, unsigned int ring,
				   uint64_t offset,
				   const struct m6npu_cmd *cmds,
				   uint32_t count, uint64_t fence)
{
	uint32_t slot = guest->tail[ring]++ % GUEST_RING_ENTRIES;
	struct m6npu_ring_entry *entry =
		(void *)(guest->ram + GUEST_RING(ring) + slot * 64);

	memcpy(guest_data(guest, offset), cmds, count * sizeof(*cmds));
	memset(guest_status(guest, fence), 0,
	       sizeof(struct m6npu_job_status));
	*entry = (struct m6npu_ring_entry) {
		.asid = 1,
		.cmd_count = count,
		.cmd_addr = guest_va(offset),
		.region_addr = GUEST_REGIONS,
		.status_addr = GUEST_STATUS(fence),
		.fence_value = fence,
	};
	return entry;
}

void guest_submit(struct guest *guest, unsigned int ring)
{
	guest_ring_write(guest, ring, M6NPU_RING_DOORBELL, guest->tail[ring]);
}

struct m6npu_job_status *guest_status(struct guest *guest, uint64_t fence)
{
	return (void *)(guest->ram + GUEST_STATUS(fence));
}

static bool timed_out(time_t *end)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (!*end)
		*end = now.tv_sec + WAIT_S;
	sched_yield();
	return now.tv_sec > *end;
}

uint64_t guest_fence(struct guest *guest, uint64_t fence)
{
	return __atomic_load_n((uint64_t *)guest_status(guest, fence),
			       __ATOMIC_ACQUIRE);
}

bool guest_wait(struct guest *guest, uint64_t fence)
{
	time_t end = 0;

	while (guest_fence(guest, fence) != fence)
		if (timed_out(&end))
			return false;
	return true;
}

bool guest_wait_status(struct guest *guest, unsigned int ring, uint32_t bits)
{
	time_t end = 0;

	while ((guest_ring_read(guest, ring, M6NPU_RING_STATUS) & bits) !=
	       bits)
		if (timed_out(&end))
			return false;
	return true;
}

bool guest_wait_ready(struct guest *guest)
{
	time_t end = 0;

	while (!(guest_read(guest, M6NPU_REG_STATUS) & M6NPU_STATUS_READY))
		if (timed_out(&end))
			return false;
	return true;
}

uint32_t guest_read(struct guest *guest, uint32_t reg)
{
	return m6_device_reg_read(guest->dev, reg);
}

uint64_t guest_read64(struct guest *guest, uint32_t reg)
{
	uint64_t low = guest_read(guest, reg);

	return low | (uint64_t)guest_read(guest, reg + 4) << 32;
}

void guest_write(struct guest *guest, uint32_t reg, uint32_t value)
{
	m6_device_reg_write(guest->dev, reg, value);
}

void guest_write64(struct guest *guest, uint32_t reg, uint64_t value)
{
	guest_write(guest, reg, (uint32_t)value);
	guest_write(guest, reg + 4, value >> 32);
}

uint32_t guest_ring_read(struct guest *guest, unsigned int ring, uint32_t reg)
{
	return guest_read(guest, M6NPU_RING_BLOCK(ring) + reg);
}

void guest_ring_write(struct guest *guest, unsigned int ring, uint32_t reg,
		      uint32_t value)
{
	guest_write(guest, M6NPU_RING_BLOCK(ring) + reg, value);
}
