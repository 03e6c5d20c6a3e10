/* SPDX-License-Identifier: MIT */
/*
 * The MMU: device addresses to bus addresses. One address-space table for the
 * device, one translation cache a ring. What is cached stays so until
 * M6NPU_REG_AS_INVALIDATE: a driver that forgets to invalidate sees old
 * translations here as it would on the board. Invalid entries are not cached.
 */
#ifndef M6_MMU_H
#define M6_MMU_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "m6npu_regs.h"
#include "memory.h"

/* A walk fetches a line of 8 entries of a second-level table. */
#define M6_TLB_LINE_PAGES	8
#define M6_TLB_LINES		1024
#define M6_TLB_LARGE		256

/* Most bus ranges one operand may fall into: 4 GiB of scattered pages. */
#define M6_PIECES_MAX		(1u << 20)

struct m6_piece {
	uint64_t bus;
	uint64_t bytes;
};

/* A list of bus ranges, neighbours merged. Zero-initialized is empty. */
struct m6_pieces {
	struct m6_piece *piece;
	uint32_t count;
	uint32_t room;
};

struct m6_tlb {
	pthread_mutex_t lock;	/* leaf but for m6_memory's; guards all below */
	uint64_t as_valid;	/* bit per address space in as[] */
	struct m6npu_as as[M6NPU_ADDRESS_SPACES];
	struct {
		uint64_t tag;	/* 0: free */
		uint64_t pte[M6_TLB_LINE_PAGES];
	} line[M6_TLB_LINES];
	struct {
		uint64_t tag;
		uint64_t pte;
	} large[M6_TLB_LARGE];
};

struct m6_mmu {
	struct m6_memory *mem;
	bool large_pages;
	atomic_uint_fast64_t as_table;	/* bus address, 0: none */
	atomic_uint_fast64_t hits;
	atomic_uint_fast64_t misses;
	atomic_uint_fast64_t walk_cycles;
	atomic_uint inject_fault;	/* translations left to fail */
	struct m6_tlb tlb[M6NPU_RINGS];
};

void m6_mmu_init(struct m6_mmu *mmu, struct m6_memory *mem, bool large_pages);
void m6_mmu_destroy(struct m6_mmu *mmu);
void m6_mmu_reset(struct m6_mmu *mmu);

void m6_mmu_set_table(struct m6_mmu *mmu, uint64_t bus);
/* One address space, or M6NPU_AS_INVALIDATE_ALL. */
void m6_mmu_invalidate(struct m6_mmu *mmu, uint32_t asid);

/*
 * Appends what [va, va + bytes) translates to on @ring. 0 or M6NPU_EXC_*, then
 * @fault says where. @walks counts misses of this call.
 */
uint32_t m6_mmu_translate(struct m6_mmu *mmu, unsigned int ring,
			  unsigned int asid, uint64_t va, uint64_t bytes,
			  bool write, struct m6_pieces *pieces,
			  uint64_t *walks, uint64_t *fault);
/* The address space as @ring has it cached. 0 or M6NPU_EXC_*. */
uint32_t m6_mmu_address_space(struct m6_mmu *mmu, unsigned int ring,
			      unsigned int asid, struct m6npu_as *as);

int m6_pieces_add(struct m6_pieces *pieces, uint64_t bus, uint64_t bytes);
void m6_pieces_free(struct m6_pieces *pieces);

#endif
