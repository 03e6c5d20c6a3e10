/* SPDX-License-Identifier: MIT */
#ifndef NPU_EXPERTS_H
#define NPU_EXPERTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <drm/m6npu_accel.h>
#include "layout.h"
#include "npu_file.h"
#include "places.h"
#include "preload.h"
#include "routed.h"
#include "shards.h"
#include "span.h"
#include "threshold.h"

/* Any thread may read them. */
struct npu_expert_figures {
	atomic_uint resident;
	_Atomic uint64_t faults, waits, loads, evictions, bytes_read;
	_Atomic uint64_t stall_ns;
	_Atomic uint64_t uses, hits;
	_Atomic uint64_t hints, prefetches, prefetches_used, fallbacks;
	atomic_uint threshold;
};

/* What there is to know of one besides its place. */
struct npu_expert {
	_Atomic uint64_t uses;		/* tokens it worked on */
	uint64_t ahead;			/* step it was read for, until used */
	bool low;			/* its copy stands in for it */
};

/* What is read into a place, or was. */
struct npu_read {
	struct npu_shard shard;
	uint32_t expert;
};

/* The experts of a model: where each has its place, which are there. */
struct npu_experts {
	struct npu_device *device;
	struct npu_file *file;
	uint32_t layers, experts;	/* 0: a dense model */
	uint32_t top;			/* of them, for a token */
	struct npu_expert *list;	/* layer by layer */
	uint64_t *offsets;		/* of each; NULL: as places say */
	uint32_t *order;		/* indices, most important first */
	const struct npu_preload *preload;
	struct npu_span span;
	struct npu_places places;
	struct npu_shards *shards;
	struct npu_read *reads;		/* for each place */
	bool table;			/* the context has our table */
	struct npu_expert_figures figures;

	/* The step that runs, or ran last. */
	uint64_t job;
	struct npu_routed routed;
	uint32_t known;			/* layers whose experts it has told */
	uint32_t needed;		/* places that a command may need */

	/* Reading ahead; false: never. */
	bool hints;
	struct npu_threshold threshold;

	/* Copies of lower precision, packed; without: no size. */
	struct npu_span low;
	uint64_t *low_offsets;
	/* Experts that are read, for whom theirs still stands in. */
	uint32_t *ripe, ripe_count;

	/* What is under way: who comes, whom they drive out, for spare places. */
	uint32_t *coming, *victims, count;
	uint32_t *dropped, dropped_count;
	struct drm_m6npu_expert *binds;
	uint32_t bind_count;
};

struct npu_experts_options {
	struct npu_span *io;		/* where steps tell whom they used */
	/* NPU_PREFETCH_OFF: nobody is read ahead. */
	uint32_t prefetch_permille, prefetch_low, prefetch_high;
};

/*
 * Takes the device's expert table, and memory in @pool for the places of
 * @layout. The others live as long as @experts. -EBUSY: another model has the
 * table.
 */
int npu_experts_init(struct npu_experts *experts, struct npu_pool *pool,
		     struct npu_file *file, const struct npu_layout *layout,
		     const struct npu_preload *preload,
		     const struct npu_experts_options *options);
/* Takes zeroed ones, too. */
void npu_experts_clear(struct npu_experts *experts);

/* All experts are there and stay: nothing of the file is needed any more. */
void npu_experts_close_file(struct npu_experts *experts);

/* Of all experts. */
uint64_t npu_experts_bytes(const struct npu_experts *experts);
/* What npu_experts_load() is going to bring in. */
void npu_experts_chosen(const struct npu_experts *experts, bool named_only,
			uint32_t *count, uint64_t *bytes);
/*
 * Brings in those that have room, or only those of them that the preload
 * configuration names, most important first, and binds them; copies of lower
 * precision before that. @each is called after each one; what it returns other
 * than 0 stops and is returned.
 */
int npu_experts_load(struct npu_experts *experts, bool named_only,
		     int (*each)(void *user, uint64_t bytes), void *user);

/* A step of @rows tokens is about to begin; no job of the model runs. */
void npu_experts_prepare(struct npu_experts *experts, uint32_t rows);
/* @job is the one that runs; faults of others are old. */
void npu_experts_begin(struct npu_experts *experts, uint64_t job);
/*
 * Brings in and binds what the job waits for. -ENOSPC: that is more than there
 * are places for.
 */
int npu_experts_fault(struct npu_experts *experts,
		      const struct drm_m6npu_event_expert_fault *event);
/* Has read ahead what the job will probably need, if that has room. */
void npu_experts_hint(struct npu_experts *experts,
		      const struct drm_m6npu_event_expert_fault *event);
/* Is there input to poll on it, some have come. -1: none ever do. */
int npu_experts_fd(const struct npu_experts *experts);
/* Binds those. */
void npu_experts_arrived(struct npu_experts *experts);
/* The step was good: learns from what it used. */
void npu_experts_end(struct npu_experts *experts);

/* For the step block: is the device to ask for what is absent, */
bool npu_experts_want_hints(const struct npu_experts *experts);
/* and from which chance on is it to fetch; 0: as the device is set. */
uint32_t npu_experts_threshold(const struct npu_experts *experts);

#endif
