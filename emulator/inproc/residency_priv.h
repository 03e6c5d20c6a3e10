/* SPDX-License-Identifier: MIT */
/*
 * What the files of residency share.
 *
 *	residency.c		beginning and end
 *	residency_expert.c	one expert: its bytes, its entry in the table
 *	residency_step.c	a step: hints, faults
 *	residency_use.c		who was used, and what follows from it
 */
#ifndef M6_INPROC_RESIDENCY_PRIV_H
#define M6_INPROC_RESIDENCY_PRIV_H

#include "places.h"
#include "residency.h"
#include "storage.h"
#include "threshold.h"

#define RESIDENCY_PERMILLE	500	/* of experts without a priority */

struct residency {
	struct board *board;
	struct npu_file *file;
	const struct npu_runtime *runtime;
	struct residency_options options;
	bool dry;

	struct residency_io io;
	struct npu_places places;
	struct npu_threshold threshold;
	uint64_t place_bytes;
	struct board_memory memory;	/* all places */
	struct storage storage;

	/* By expert, layer * experts + expert. */
	uint32_t count;
	uint32_t *missing;	/* those that the job waits for */
	uint32_t missing_count;
	uint64_t *ahead;	/* step that read it for a hint; 0: or used */
	uint64_t *counted;	/* step that counted its use, */
	uint64_t *noted;	/* and that it was missed */
	uint64_t *uses;

	/* The step. */
	uint32_t tokens;
	uint32_t known;		/* layers whose uses are known */

	uint64_t random;
	struct residency_stats stats;
};

/* ---- residency_expert.c ---- */

static inline bool residency_there(const struct residency *r, uint32_t k)
{
	return r->places.uses[k].place != NPU_NOWHERE &&
	       !r->places.uses[k].coming;
}

/* Its bytes, into its place. */
int residency_fill(struct residency *r, uint32_t k);
/* The device may use it. */
void residency_bind(struct residency *r, uint32_t k);
/* It has lost its place. */
void residency_unbind(struct residency *r, uint32_t k);
struct storage_read residency_read(const struct residency *r, uint32_t k,
				   uint64_t ns);

/* ---- residency_use.c ---- */

/* Learns who is used in the layers before @end, of which the last may wait. */
void residency_know(struct residency *r, uint32_t end);
/* After a step: moves the threshold. */
void residency_adapt(struct residency *r);

#endif
