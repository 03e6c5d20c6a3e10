/* SPDX-License-Identifier: MIT */
/*
 * Which experts' weights lie in SRAM, or are on their way there. What the
 * prefill buffer leaves of SRAM is expert slots. Only time depends on it: the
 * weights are read from memory all the same.
 *
 * A layer's experts are fetched before those of the layer before are used, so
 * what is fetched stays until it is used or the next batch but one comes.
 * Of the others the one not used for longest makes room.
 */
#ifndef M6_SRAM_H
#define M6_SRAM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"
#include "router.h"

#define M6_SRAM_SLOTS	64

struct m6_sram_slot {
	struct m6_router_key key;
	uint32_t bytes;		/* 0: free */
	bool used;		/* since it was last fetched */
	uint64_t stamp;		/* of the last use or fetch */
	uint64_t batch;
	struct m6_transfer copy;
};

struct m6_sram {
	pthread_mutex_t lock;	/* before the clock's; guards all below */
	uint32_t room;		/* bytes */
	uint32_t used;
	uint64_t stamp;
	uint64_t batch;		/* fetches of one command */
	uint64_t hits;
	uint64_t fetches;
	struct m6_sram_slot slot[M6_SRAM_SLOTS];
};

struct m6_sram_state {
	uint32_t room;
	uint32_t used;
	uint64_t hits;
	uint64_t fetches;
};

void m6_sram_init(struct m6_sram *sram, uint32_t room);
void m6_sram_destroy(struct m6_sram *sram);
void m6_sram_reset(struct m6_sram *sram, uint32_t room);
void m6_sram_read(struct m6_sram *sram, struct m6_sram_state *state);
/* Empties it, with so much room. */
void m6_sram_resize(struct m6_sram *sram, uint32_t room);
void m6_sram_invalidate(struct m6_sram *sram, uint32_t asid);
void m6_sram_forget(struct m6_sram *sram, const struct m6_router_key *key);

/*
 * True if the expert is there, or will be at @ready_ns. To a ring that is
 * behind in time it is not until its copy began.
 */
bool m6_sram_find(struct m6_sram *sram, const struct m6_router_key *key,
		  uint64_t now_ns, uint64_t *ready_ns);
/* What is fetched from now on belongs together. */
void m6_sram_next_batch(struct m6_sram *sram);
/*
 * Begins to copy an expert, at the present time of @ring. False: it is there or
 * on its way, or there is no room.
 */
bool m6_sram_fetch(struct m6_sram *sram, const struct m6_router_key *key,
		   uint32_t bytes, struct m6_clock *clock, unsigned int ring);

#endif
