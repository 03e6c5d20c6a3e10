/* SPDX-License-Identifier: MIT */
/*
 * Which experts' weights lie in SRAM. What the prefill buffer leaves of SRAM is
 * expert slots; the one not used for longest makes room. Only time depends on
 * it: the weights are read from memory all the same.
 */
#ifndef M6_SRAM_H
#define M6_SRAM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "router.h"

#define M6_SRAM_SLOTS	64

struct m6_sram {
	pthread_mutex_t lock;	/* leaf; guards all below */
	uint32_t room;		/* bytes */
	uint32_t used;
	uint64_t stamp;
	struct {
		struct m6_router_key key;
		uint32_t bytes;	/* 0: free */
		uint64_t stamp;	/* of the last use */
	} slot[M6_SRAM_SLOTS];
};

void m6_sram_init(struct m6_sram *sram, uint32_t room);
void m6_sram_destroy(struct m6_sram *sram);
/* Empties it, with so much room. */
void m6_sram_resize(struct m6_sram *sram, uint32_t room);
void m6_sram_invalidate(struct m6_sram *sram, uint32_t asid);
bool m6_sram_holds(struct m6_sram *sram, const struct m6_router_key *key);
/* True if the weights have to be copied in; false: there, or too large. */
bool m6_sram_add(struct m6_sram *sram, const struct m6_router_key *key,
		 uint32_t bytes);

#endif
