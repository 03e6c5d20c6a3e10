/* SPDX-License-Identifier: MIT */
/*
 * Places for experts in their span, who is where, and who has to go when there
 * is none left. No device code.
 */
#ifndef NPU_PLACES_H
#define NPU_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#define NPU_NOWHERE	UINT32_MAX

/* What is known of the use of an expert. */
struct npu_use {
	uint32_t place;		/* NPU_NOWHERE: has none */
	bool pinned;
	double prior;		/* chance of use in a step, before any is known */
	/*
	 * While an expert is absent each use of it is a fault; while it is
	 * there nobody tells. So chances are learnt from the former.
	 */
	double faults;		/* steps in which it was missed, */
	double absent;		/* of so many, */
	uint64_t since;		/* and absent or there since this step */
	uint64_t waiter;	/* command that it was brought in for */
};

struct npu_places {
	uint32_t layers, experts;
	/* Bytes of a place that any expert may have, or 0: each has its own. */
	uint64_t bytes;
	uint32_t count;
	uint32_t *holders;	/* of each place: an expert, or NPU_NOWHERE */
	uint32_t *free;		/* places nobody has, @free_count of them */
	uint32_t free_count;
	struct npu_use *uses;	/* [layers * experts] */
	uint64_t step;		/* steps so far */
	/* The command that waits, by number, and what for. */
	uint64_t waiter;
	uint32_t layer;
};

struct npu_places_request {
	uint32_t layers, experts, experts_per_token;
	uint32_t count;		/* places */
	uint64_t bytes;
	const uint16_t *permille;	/* priority of each expert, 500 is normal */
};

/* -ENOMEM */
int npu_places_init(struct npu_places *places,
		    const struct npu_places_request *request);
/* Takes zeroed ones, too. */
void npu_places_clear(struct npu_places *places);

/* A step begins. */
void npu_places_begin(struct npu_places *places);
/* A command of it waits for experts of @layer, perhaps once more. */
void npu_places_wait(struct npu_places *places, uint32_t layer);
/* It needs @expert, which is there. */
void npu_places_hold(struct npu_places *places, uint32_t expert);
/*
 * Gives @expert, which has none, a place, for the command that waits. *@victim
 * has lost it then, or is NPU_NOWHERE. Whoever has come for the same command
 * stays; NPU_NOWHERE if that are all.
 */
uint32_t npu_places_take(struct npu_places *places, uint32_t expert,
			 uint32_t *victim);
/* Takes that back: the expert is not there, and the victim, if any, still. */
void npu_places_untake(struct npu_places *places, uint32_t expert,
		       uint32_t victim);
/* @expert loses its place. */
void npu_places_give(struct npu_places *places, uint32_t expert);
/* The command that waits missed @expert. */
void npu_places_missed(struct npu_places *places, uint32_t expert);

#endif
