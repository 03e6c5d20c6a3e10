/* SPDX-License-Identifier: MIT */
/* The exception ring in host memory, M6NPU_REG_EXC_*. */
#ifndef M6_EXCEPTION_H
#define M6_EXCEPTION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "m6npu_regs.h"
#include "memory.h"

#define M6_EXCEPTION_RING_MIN	16
#define M6_EXCEPTION_RING_MAX	4096

struct m6_exceptions {
	pthread_mutex_t lock;	/* leaf but for m6_memory's; guards all below */
	struct m6_memory *mem;
	uint64_t base;
	uint32_t size;		/* as written */
	uint32_t entries;	/* as of the last restart, 0: off */
	uint32_t head;
	uint32_t tail;
	uint32_t dropped;
};

void m6_exceptions_init(struct m6_exceptions *exc, struct m6_memory *mem);
void m6_exceptions_destroy(struct m6_exceptions *exc);
void m6_exceptions_reset(struct m6_exceptions *exc);

/* -EINVAL: not a power of two in range. Takes effect with the next restart. */
int m6_exceptions_set_size(struct m6_exceptions *exc, uint32_t size);
/* Starts over, empty, at @base; 0 switches the ring off. */
void m6_exceptions_restart(struct m6_exceptions *exc, uint64_t base);
void m6_exceptions_set_head(struct m6_exceptions *exc, uint32_t head);

struct m6_exceptions_state {
	uint32_t size;
	uint32_t head;
	uint32_t tail;
	uint32_t dropped;
};
void m6_exceptions_read(struct m6_exceptions *exc,
			struct m6_exceptions_state *state);

/* Writes a record, @record's seq filled in. False: dropped. */
bool m6_exceptions_post(struct m6_exceptions *exc,
			struct m6npu_exception *record);

#endif
