/* SPDX-License-Identifier: MIT */
/*
 * Storage in device time: reads one behind the other, those that somebody
 * waits for before those that only may be of use.
 */
#ifndef M6_INPROC_STORAGE_H
#define M6_INPROC_STORAGE_H

#include <stdbool.h>
#include <stdint.h>

struct storage_read {
	uint32_t expert;
	uint64_t bytes;
	uint64_t time_ns;	/* asked for; when under way: complete */
};

struct storage {
	uint32_t mb_s;		/* 0: takes no time */
	uint64_t free_ns;	/* when the last read under way is complete */
	uint64_t bytes;		/* read so far */
	struct storage_read *queue, *under_way;	/* room for all experts */
	uint32_t queued, started;
};

/* -ENOMEM */
int storage_init(struct storage *storage, uint32_t mb_s, uint32_t experts);
void storage_clear(struct storage *storage);

/* Begins now, or when those under way are complete. */
void storage_demand(struct storage *storage, const struct storage_read *read);
/* Begins when there is nothing else to do. */
void storage_ahead(struct storage *storage, const struct storage_read *read);
/* Begins what can begin before @ns. */
void storage_run(struct storage *storage, uint64_t ns);
/* A read that is complete at @ns, taken off; false: none. */
bool storage_complete(struct storage *storage, uint64_t ns, uint32_t *expert);
/* When a read is complete that has begun; false: it has not. */
bool storage_when(const struct storage *storage, uint32_t expert,
		  uint64_t *ns);
/* Drops a read that has not begun; false: there is none. */
bool storage_cancel(struct storage *storage, uint32_t expert);

#endif
