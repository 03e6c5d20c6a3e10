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
	bool coming;		/* its place is being filled */
	double prior;		/* chance of use in a step, at first */
	double often;		/* steps that used it; old ones count less */
	uint64_t last, before;	/* steps of the last use and the one before */
	uint64_t used;		/* @last, if it was more than a miss */
	uint64_t missed;	/* step of the last miss */
	uint64_t guessed;	/* step that is expected to use it */
	uint64_t waiter;	/* command that it was brought in for */
};

/* Of an age are those used so many steps ago; the last is for all others. */
#define NPU_PLACES_AGES	12

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
	double observed;	/* whose uses are known, as in npu_use.often */
	/* Of each age: uses that there were, and that frequency had foretold. */
	double were[NPU_PLACES_AGES], foretold[NPU_PLACES_AGES];
	/* The command that waits, by number, and what for. */
	uint64_t waiter;
	uint32_t layer;
	uint32_t at;		/* the layer that is next */
};

struct npu_places_request {
	uint32_t layers, experts, experts_per_token;
	uint32_t count;		/* places */
	uint64_t bytes;
	const uint16_t *permille;	/* priority of each, 500 is normal */
	const double *chances;	/* that a token uses each; NULL: not known */
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
/* The command that waits missed @expert. */
void npu_places_missed(struct npu_places *places, uint32_t expert);
/* The step is expected to use @expert, of a layer that it has not come to. */
void npu_places_guess(struct npu_places *places, uint32_t expert);
/* The step uses @expert. */
void npu_places_used(struct npu_places *places, uint32_t expert);
/* All that it uses of layers before @layer is known, or there. */
void npu_places_at(struct npu_places *places, uint32_t layer);
/* The step was good, and who was not named was not used. */
void npu_places_learn(struct npu_places *places);

/*
 * Gives @expert, which has none, a place, for the command that waits. *@victim
 * has lost it then, or is NPU_NOWHERE. Whoever has come for the same command
 * stays, and who is still coming; NPU_NOWHERE if that are all.
 */
uint32_t npu_places_take(struct npu_places *places, uint32_t expert,
			 uint32_t *victim);
/* The same, of places that nobody has, for nobody who waits. */
uint32_t npu_places_take_free(struct npu_places *places, uint32_t expert);
/* Takes that back: the expert is not there, and the victim, if any, still. */
void npu_places_untake(struct npu_places *places, uint32_t expert,
		       uint32_t victim);
/* @expert loses its place. */
void npu_places_give(struct npu_places *places, uint32_t expert);
/* Who is the first to go loses its place, or NPU_NOWHERE. */
uint32_t npu_places_drop(struct npu_places *places);

/*
 * How many places should be free for experts that are read ahead, when a
 * command may need @needed at once.
 */
uint32_t npu_places_spare(const struct npu_places *places, uint32_t needed,
			  uint32_t experts_per_token);

#endif
