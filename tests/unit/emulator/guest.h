/* SPDX-License-Identifier: MIT */
/*
 * A guest for device tests: a device with some RAM at bus address 0, and what
 * a driver would write into it. Nothing here checks anything.
 *
 * In RAM: address-space table, page tables, rings, regions and
 * status records at the offsets below; data from GUEST_DATA on, which address
 * space 1 maps at device address GUEST_VA.
 */
#ifndef M6_TEST_GUEST_H
#define M6_TEST_GUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "m6npu_regs.h"

#define GUEST_RAM		(64u << 20)
#define GUEST_AS_TABLE		0x0f0000u	/* 64 KiB */
#define GUEST_PGD		0x010000u	/* 64 KiB */
#define GUEST_PT		0x020000u	/* 64 KiB */
#define GUEST_RING(n)		(0x030000u + (n) * 0x10000u)
#define GUEST_REGIONS		0x080000u
#define GUEST_EXCEPTIONS	0x090000u	/* 256 records */
#define GUEST_STATUS(n)		(0x0a0000u + (n) * 64u)
#define GUEST_EXPERTS		0x0c0000u
#define GUEST_STATS		0x0e0000u
#define GUEST_LAYERS		4u
#define GUEST_LAYER_EXPERTS	256u
#define GUEST_DATA		0x100000u
#define GUEST_DATA_BYTES	0x400000u
#define GUEST_VA		0x2000000ull	/* second 32 MiB */
#define GUEST_RING_ENTRIES	8u
#define GUEST_EXC_ENTRIES	256u

struct guest {
	struct m6_device *dev;
	uint8_t *ram;
	unsigned int irqs[M6NPU_VECTORS];	/* atomically */
	uint32_t tail[M6NPU_RINGS];
};

/* A device whose idle time stands still, RAM, tables, all rings enabled. */
void guest_init(struct guest *guest);
void guest_init_profile(struct guest *guest, const struct m6_profile *profile,
			bool dry);
void guest_exit(struct guest *guest);

void guest_setup_tables(struct guest *guest);
void guest_setup_ring(struct guest *guest, unsigned int ring);
void guest_setup_exceptions(struct guest *guest);

/* Address space @asid like the first one. */
struct m6npu_as *guest_as(struct guest *guest, unsigned int asid);
uint64_t *guest_pte(struct guest *guest, uint64_t va);
void guest_invalidate(struct guest *guest);

/* Device address of @offset in the data area, and its host view. */
uint64_t guest_va(uint64_t offset);
void *guest_data(struct guest *guest, uint64_t offset);

/*
 * Puts @count commands at @offset of the data area and a job for them into a
 * ring's next slot, with region 0 all data. Not submitted yet.
 */
struct m6npu_ring_entry *guest_job(struct guest *guest, unsigned int ring,
				   uint64_t offset,
				   const struct m6npu_cmd *cmds,
				   uint32_t count, uint64_t fence);
/* An entry of the expert table, and what the device counted in a layer. */
struct m6npu_expert *guest_expert(struct guest *guest, uint32_t layer,
				  uint32_t expert);
struct m6npu_layer_stats *guest_stats(struct guest *guest, uint32_t layer);
void guest_submit(struct guest *guest, unsigned int ring);
struct m6npu_job_status *guest_status(struct guest *guest, uint64_t fence);
/* What is in the record of the job with @fence: that, or 0. */
uint64_t guest_fence(struct guest *guest, uint64_t fence);
/* True once the job's fence was written. */
bool guest_wait(struct guest *guest, uint64_t fence);
/* True once the ring's status register has all of @bits. */
bool guest_wait_status(struct guest *guest, unsigned int ring, uint32_t bits);
bool guest_wait_ready(struct guest *guest);

uint32_t guest_read(struct guest *guest, uint32_t reg);
uint64_t guest_read64(struct guest *guest, uint32_t reg);
void guest_write(struct guest *guest, uint32_t reg, uint32_t value);
void guest_write64(struct guest *guest, uint32_t reg, uint64_t value);
uint32_t guest_ring_read(struct guest *guest, unsigned int ring,
			 uint32_t reg);
void guest_ring_write(struct guest *guest, unsigned int ring, uint32_t reg,
		      uint32_t value);
unsigned int guest_irqs(struct guest *guest, unsigned int vector);
struct m6npu_exception *guest_exception(struct guest *guest, uint32_t index);

/*
 * What the stub of the execution side does, by opcode:
 *	COPY		memmove
 *	FILL		fills
 *	TIMESTAMP	as documented
 *	BARRIER		nothing; costs args.word[0] DRAM bytes and word[1] << 16
 *			multiply-accumulates
 *	MOE_FFN		looks experts word[0] .. word[0] + word[1] - 1 of
 *			`layer` up, stores their addresses at operand 0, and
 *			costs their bytes, of SRAM or DRAM
 *	EXPERT_PREFETCH	those, if word[2] reaches the threshold
 *	ROPE		waits until it is cancelled
 * anything else is illegal.
 */

#endif
