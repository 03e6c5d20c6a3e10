/* SPDX-License-Identifier: MIT */
/*
 * Which experts are in memory while a model runs on a board: the rules are
 * libnpu's (places.c), storage and its time are modelled (storage.c). What a
 * read brings is there at once, but nobody may know before its time has come.
 *
 * A hint starts a read in device time, while the job goes on. Reads that are
 * complete are bound when the job next waits, or ends; so an expert that was
 * read in time may still be missed by the device, which costs the walk, is
 * counted there as a fault and here as a hit.
 */
#ifndef M6_INPROC_RESIDENCY_H
#define M6_INPROC_RESIDENCY_H

#include "board.h"
#include "npu_file.h"

struct residency;

/* In which order experts come for which a job waits. */
enum residency_order {
	RESIDENCY_AS_ASKED,
	RESIDENCY_SHUFFLED,
	RESIDENCY_ONE_BY_ONE,	/* any of them, and the job looks again */
};

struct residency_options {
	uint32_t places;	/* experts that have room at once, 0: all */
	uint32_t storage_mb_s;	/* 0: reads take no time */
	bool on_demand;		/* experts come when they fault */
	bool forget;		/* and all go again after each step */
	enum residency_order order;
	uint32_t seed;		/* of the order */
	uint32_t pinned;	/* so many, all over the table, are pinned */
	uint32_t low_every;	/* of so many one is its low copy, 0: none */
	const uint16_t *permille;	/* priority of each; NULL: 500 */
	/* As in struct m6npu_step. */
	bool hints;
	uint32_t prefetch_permille;
	/* Both, if not 0: the threshold moves between them. */
	uint32_t prefetch_low, prefetch_high;
};

/* What a step leaves in IO; NULL where the model has none. */
struct residency_io {
	const int32_t *routed;		/* [layers, max_tile, per token] */
	const int32_t *guess_ids;	/* [layers, max_tile, guesses] */
	const float *guess_chances;
};

struct residency_stats {
	uint64_t uses;		/* experts that layers of steps worked with, */
	uint64_t faults;	/* those that it had to wait for, */
	uint64_t waits;		/* in so many waits */
	uint64_t stall_ns;	/* device time */
	uint64_t evictions;
	uint64_t bytes_read;	/* as stored */
	uint64_t hints;		/* of experts neither there nor coming, */
	uint64_t ahead;		/* those read for one, */
	uint64_t ahead_used;	/* and used before they went */
};

struct residency_setup {
	struct board *board;
	struct npu_file *file;
	struct residency_io io;		/* while a job waits, or after it */
	struct residency_options options;
	bool dry;
};

/* 0, or a negative errno and npu_error(). */
int residency_create(const struct residency_setup *setup,
		     struct residency **residency);
/* Takes NULL. */
void residency_destroy(struct residency *residency);

/* Before a step of @tokens. */
void residency_begin(struct residency *residency, uint32_t tokens);
/* Two of a struct board_host, with @user a residency. */
void residency_posted(void *user, const struct m6npu_exception *record);
int residency_stalled(void *user);
/* After it, if it was good. */
void residency_end(struct residency *residency);

/* For the next step. */
uint32_t residency_threshold(const struct residency *residency);
struct residency_stats residency_stats(const struct residency *residency);
/* Tokens that each expert worked on, [layers * experts]. */
const uint64_t *residency_uses(const struct residency *residency);

#endif
