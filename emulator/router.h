/* SPDX-License-Identifier: MIT */
/*
 * The expert-router cache: translations of (address space, layer, expert),
 * 128 of them. It saves walks of the expert table and nothing else: what is
 * found never depends on size, policy or history.
 */
#ifndef M6_ROUTER_H
#define M6_ROUTER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "m6npu_regs.h"

struct m6_router_entry {
	bool used;
	bool pinned;
	uint16_t asid;
	uint16_t layer;
	uint16_t expert;
	uint64_t stamp;		/* of the last use */
	struct m6npu_expert value;
};

struct m6_router_counters {
	uint64_t hits;
	uint64_t misses;
	uint64_t evictions;
	uint64_t faults;
	uint64_t full;
};

struct m6_router {
	pthread_mutex_t lock;	/* leaf but for m6_memory's; guards all below */
	uint32_t policy;	/* M6NPU_ROUTER_* */
	uint32_t quota;
	uint64_t stamp;
	struct m6_router_counters counters;
	struct m6_router_entry entry[M6NPU_ROUTER_ENTRIES];
};

struct m6_router_key {
	uint16_t asid;
	uint16_t layer;
	uint16_t expert;
};

enum m6_router_found {
	M6_ROUTER_HIT,
	M6_ROUTER_MISS,		/* walked */
	M6_ROUTER_MISS_FULL,	/* walked, and no room to keep it: all pinned */
	M6_ROUTER_ABSENT,	/* walked, not resident; never kept */
	M6_ROUTER_ERROR,	/* the table could not be read */
};

void m6_router_init(struct m6_router *router);
void m6_router_destroy(struct m6_router *router);
void m6_router_reset(struct m6_router *router);

/* -EINVAL: no such policy. Off empties the cache. */
int m6_router_set_policy(struct m6_router *router, uint32_t policy);
/* -EINVAL: none, or more than there are. */
int m6_router_set_quota(struct m6_router *router, uint32_t quota);
uint32_t m6_router_quota(struct m6_router *router);
void m6_router_invalidate(struct m6_router *router, uint32_t asid);
void m6_router_forget(struct m6_router *router,
		      const struct m6_router_key *key);
/* As in M6NPU_REG_ROUTER_OCCUPANCY. */
uint32_t m6_router_occupancy(struct m6_router *router);
void m6_router_counters(struct m6_router *router,
			struct m6_router_counters *counters);

/* How to read an entry of the table: 0 or -errno. */
struct m6_router_table {
	int (*load)(void *opaque, const struct m6_router_key *key,
		    struct m6npu_expert *value);
	void *opaque;
};

/*
 * The table is read under the lock, so that an invalidation can't fall between
 * reading and keeping. What is counted is added to @mine as well.
 */
enum m6_router_found
m6_router_find(struct m6_router *router, const struct m6_router_key *key,
	       const struct m6_router_table *table, struct m6npu_expert *value,
	       struct m6_router_counters *mine);
/* For somebody who will ask later: counts evictions only. */
enum m6_router_found
m6_router_prefetch(struct m6_router *router, const struct m6_router_key *key,
		   const struct m6_router_table *table,
		   struct m6npu_expert *value,
		   struct m6_router_counters *mine);

#endif
