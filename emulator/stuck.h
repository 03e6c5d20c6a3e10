/* SPDX-License-Identifier: MIT */
/*
 * Memory bits that are stuck, on request. Guest RAM is shared with the guest
 * and takes whatever is stored there, so a stuck bit is put back before the
 * device reads memory and after it wrote some: what the CPU wrote is found
 * wrong by the device, and what the device wrote by either.
 */
#ifndef M6_STUCK_H
#define M6_STUCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define M6_STUCK_MAX	16

struct m6_memory;

struct m6_stuck_bit {
	uint64_t addr;		/* bus */
	unsigned int bit;	/* of the byte there, 0 to 7 */
	unsigned int value;	/* 0 or 1 */
};

struct m6_stuck {
	pthread_mutex_t lock;	/* outside m6_memory's; guards bit[] */
	atomic_uint count;	/* changed under the lock, read without */
	struct m6_stuck_bit bit[M6_STUCK_MAX];
};

void m6_stuck_init(struct m6_stuck *stuck);
void m6_stuck_destroy(struct m6_stuck *stuck);

/* "ADDRESS:BIT:VALUE". -EINVAL */
int m6_stuck_parse(const char *text, struct m6_stuck_bit *bit);
/* Also changes the value of one. -EINVAL bit or value; -ENOSPC too many. */
int m6_stuck_add(struct m6_stuck *stuck, const struct m6_stuck_bit *bit);
/* -ENOENT: it was not stuck. Memory keeps what is there. */
int m6_stuck_remove(struct m6_stuck *stuck, uint64_t addr, unsigned int bit);
/* Puts those in the range, where there is memory, to their values. */
void m6_stuck_force(struct m6_stuck *stuck, struct m6_memory *mem,
		    uint64_t addr, uint64_t bytes);

#endif
