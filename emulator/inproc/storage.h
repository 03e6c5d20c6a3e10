/* SPDX-License-Identifier: MIT */
/*
 * Storage in device time: reads one behind the other. Those that only may be of
 * use stand still while somebody waits for another.
 */
#ifndef M6_INPROC_STORAGE_H
#define M6_INPROC_STORAGE_H

#include <stdbool.h>
#include <stdint.h>

struct storage_read {
	uint32_t expert;
	uint64_t bytes;
	uint64_t time_ns;	/* asked for; in the end: complete */
	uint64_t left_ns;	/* of its own time, without that of others */
};

struct storage_list {
	struct storage_read *reads;	/* room for all experts */
	uint32_t count;
};

struct storage {
	uint32_t mb_s;		/* 0: takes no time */
	uint64_t now_ns;	/* what had been asked until then is done so far */
	uint64_t bytes;		/* of reads that are complete */
	struct storage_list needed, ahead, complete;
};

/* -ENOMEM */
int storage_init(struct storage *storage, uint32_t mb_s, uint32_t experts);
void storage_clear(struct storage *storage);

/* Before all that are read ahead. Reads are asked for in order of time. */
void storage_demand(struct storage *storage, const struct storage_read *read);
void storage_ahead(struct storage *storage, const struct storage_read *read);
/* One that is read ahead is needed now; false: there is none. */
bool storage_hurry(struct storage *storage, uint32_t expert, uint64_t ns);
/* Reads until @ns. */
void storage_run(struct storage *storage, uint64_t ns);
/* A read that is complete at @ns, taken off; false: none. */
bool storage_complete(struct storage *storage, uint64_t ns, uint32_t *expert);
/* When one that is needed will be complete; false: it is not among them. */
bool storage_when(const struct storage *storage, uint32_t expert,
		  uint64_t *ns);
/* When the next one will be complete; false: there is none. */
bool storage_next(const struct storage *storage, uint64_t *ns);
/* Drops one that is read ahead; false: there is none. */
bool storage_cancel(struct storage *storage, uint32_t expert);

#endif
