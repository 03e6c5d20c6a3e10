/* SPDX-License-Identifier: MIT */
/* What the files that deal with experts know of each other. */
#ifndef NPU_EXPERTS_PRIV_H
#define NPU_EXPERTS_PRIV_H

#include "experts.h"

static inline uint32_t npu_experts_total(const struct npu_experts *e)
{
	return e->layers * e->experts;
}

static inline uint32_t npu_experts_section(const struct npu_experts *e,
					   uint32_t k)
{
	return npu_file_expert(e->file, k / e->experts, k % e->experts);
}

static inline uint64_t npu_experts_offset(const struct npu_experts *e,
					  uint32_t k)
{
	uint32_t place = e->places.uses[k].place;

	return e->offsets ? e->offsets[place] : place * e->places.bytes;
}

/* In place, and the device may use it. */
static inline bool npu_experts_there(const struct npu_experts *e, uint32_t k)
{
	return e->places.uses[k].place != NPU_NOWHERE &&
	       !e->places.uses[k].coming;
}

/* ---- expert_table.c ---- */

/* -EBUSY: another model has it. */
int npu_experts_take_table(struct npu_experts *e);
void npu_experts_give_table(struct npu_experts *e);
/* Adds to the next bind: it is in its place, or gone, or its copy stands in. */
void npu_experts_add_present(struct npu_experts *e, uint32_t k);
void npu_experts_add_absent(struct npu_experts *e, uint32_t k);
void npu_experts_add_low(struct npu_experts *e, uint32_t k);
/*
 * Binds what was added, all or none. Those that were to be present lose their
 * places if it fails.
 */
int npu_experts_bind(struct npu_experts *e, const char *what);

/* ---- expert_read.c ---- */

/* Has @k read into its place. */
void npu_experts_read(struct npu_experts *e, uint32_t k, bool urgent);
/* Of one that npu_shards gave back: shows it to the device, counts it. */
int npu_experts_read_done(struct npu_experts *e, uint32_t k);
/*
 * Waits for @k, perhaps reads it once more, and adds it to the next bind. After
 * an error it has no place, and npu_error() tells if it is to @say so.
 */
int npu_experts_await(struct npu_experts *e, uint32_t k, bool say);
/* The step has come to @layer: guesses for those before it are not read now. */
void npu_experts_pass(struct npu_experts *e, uint32_t layer);
/* Takes a place from one that nobody waits for; false: there is none. */
bool npu_experts_reclaim(struct npu_experts *e);

/* ---- expert_room.c ---- */

/* A place for @k, noted with its victim among those that come. -ENOSPC */
int npu_experts_take(struct npu_experts *e, uint32_t k);
/* Takes all of that back. */
void npu_experts_untake(struct npu_experts *e);
/*
 * Unbinds victims, and some more for spare places. Nobody reads their places
 * after this; after an error all are as before.
 */
int npu_experts_drive_out(struct npu_experts *e);

/* ---- expert_low.c ---- */

int npu_experts_init_low(struct npu_experts *e, struct npu_pool *pool,
			 const struct npu_layout *layout);
int npu_experts_load_low(struct npu_experts *e);
void npu_experts_clear_low(struct npu_experts *e);
/* Experts that are in place take over from their copies; no job runs, or it waits. */
void npu_experts_ripen(struct npu_experts *e);
/* Unbinds copies of experts that have found no place; no job runs. */
void npu_experts_drop_low(struct npu_experts *e);
/* Of those that come, copies stand in, and those that have places are read. */
int npu_experts_stand_in(struct npu_experts *e);

/* ---- expert_use.c ---- */

/* Learns what the step uses of the layers before @end, of which the last waits. */
void npu_experts_know(struct npu_experts *e, uint32_t end);

/* ---- expert_ahead.c ---- */

/* After a good step: moves the threshold. */
void npu_experts_adapt(struct npu_experts *e);

#endif
