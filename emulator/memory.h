/* SPDX-License-Identifier: MIT */
/*
 * Guest RAM as the device may reach it: bus addresses to host pointers.
 *
 * Mappings are counted. Whoever is about to use a host pointer holds the
 * mapping it came from, so that taking a mapping away (which the socket thread
 * does at any time) never pulls memory from under a running command; it only
 * goes away when the last holder is done.
 */
#ifndef M6_MEMORY_H
#define M6_MEMORY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stuck.h"

#define M6_MAPPING_READ		(1u << 0)
#define M6_MAPPING_WRITE	(1u << 1)
#define M6_MAPPINGS_MAX		65535

struct m6_mapping {
	uint64_t addr;
	uint64_t size;
	uint8_t *host;		/* NULL: known, but not reachable */
	uint32_t flags;		/* M6_MAPPING_* */
	atomic_uint refs;
	void (*release)(void *opaque);
	void *opaque;
};

struct m6_memory {
	pthread_mutex_t lock;	/* leaf; guards maps, count, room */
	struct m6_mapping **maps;	/* by address, disjoint */
	size_t count;
	size_t room;
	struct m6_stuck stuck;
};

void m6_memory_init(struct m6_memory *mem);
void m6_memory_destroy(struct m6_memory *mem);

/*
 * @release is called with @opaque when nobody uses @host any more, also if
 * this fails. -EINVAL, -EEXIST (overlap), -ENOSPC, -ENOMEM.
 */
int m6_memory_map(struct m6_memory *mem, uint64_t addr, uint64_t size,
		  void *host, uint32_t flags, void (*release)(void *opaque),
		  void *opaque);
/* Every mapping inside the range. -ENOENT: none; -EINVAL: one is cut. */
int m6_memory_unmap(struct m6_memory *mem, uint64_t addr, uint64_t size);
void m6_memory_clear(struct m6_memory *mem);

/*
 * Holds the mapping at @addr that allows all of @flags; @host and @room tell
 * where it is and how far it goes. NULL if there is none. Who reads or writes
 * there calls m6_memory_settle(); the functions below do that themselves.
 */
struct m6_mapping *m6_memory_get(struct m6_memory *mem, uint64_t addr,
				 uint32_t flags, uint8_t **host,
				 uint64_t *room);
void m6_mapping_put(struct m6_mapping *map);
/* Before the device reads memory, and after it wrote some. */
static inline void m6_memory_settle(struct m6_memory *mem, uint64_t addr,
				    uint64_t bytes)
{
	if (atomic_load_explicit(&mem->stuck.count, memory_order_relaxed))
		m6_stuck_force(&mem->stuck, mem, addr, bytes);
}

/* Copies, across mappings too. -EFAULT: nothing or a part was copied. */
int m6_memory_read(struct m6_memory *mem, uint64_t addr, void *to,
		   uint64_t bytes);
int m6_memory_write(struct m6_memory *mem, uint64_t addr, const void *from,
		    uint64_t bytes);
/*
 * Aligned 64-bit words, each read whole and in order: what the guest may be
 * changing right now. Not across mappings.
 */
int m6_memory_load(struct m6_memory *mem, uint64_t addr, uint64_t *to,
		   unsigned int count);
/* One aligned 64-bit store that everything stored before it precedes. */
int m6_memory_publish(struct m6_memory *mem, uint64_t addr, uint64_t value);
/* Adds to an aligned 64-bit word that others may be adding to as well. */
int m6_memory_add(struct m6_memory *mem, uint64_t addr, uint64_t value);
/* True if all of it can be accessed so. */
bool m6_memory_check(struct m6_memory *mem, uint64_t addr, uint64_t bytes,
		     uint32_t flags);

#endif
