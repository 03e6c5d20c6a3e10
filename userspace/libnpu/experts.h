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
#include "shards.h"
#include "span.h"

/* Any thread may read them. */
struct npu_expert_figures {
	atomic_uint resident;
	_Atomic uint64_t faults, waits, loads, evictions, bytes_read;
	_Atomic uint64_t stall_ns;
};

/* The experts of a model: where each has its place, which are there. */
struct npu_experts {
	struct npu_device *device;
	struct npu_file *file;
	uint32_t layers, experts;	/* 0: a dense model */
	uint64_t *offsets;		/* of each in the span; NULL: see places */
	uint32_t *order;		/* indices, most important first */
	const struct npu_preload *preload;
	struct npu_span span;
	struct npu_places places;
	struct npu_shards *shards;
	bool table;			/* the context has our table */
	struct npu_expert_figures figures;
	uint64_t job;			/* that runs, or ran last */
	/* What is under way: for each a shard, whom it drove out, its entry. */
	struct npu_shard *list;
	uint32_t *coming, *victims;
	uint32_t count;
	struct drm_m6npu_expert *binds;
	uint32_t bind_count;
	int error;			/* the first that reading gave */
};

/*
 * Takes the device's expert table, and memory in @pool for the places of
 * @layout. The others live as long as @experts. -EBUSY: another model has the
 * table.
 */
int npu_experts_init(struct npu_experts *experts, struct npu_pool *pool,
		     struct npu_file *file, const struct npu_layout *layout,
		     const struct npu_preload *preload);
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
 * configuration names, most important first, and binds them. @each is called
 * after each one; what it returns other than 0 stops and is returned.
 */
int npu_experts_load(struct npu_experts *experts, bool named_only,
		     int (*each)(void *user, uint64_t bytes), void *user);
/* @job is the one that runs; faults of others are old. */
void npu_experts_begin(struct npu_experts *experts, uint64_t job);
/*
 * Brings in and binds what the job waits for. -ENOSPC: that is more than there
 * are places for.
 */
int npu_experts_fault(struct npu_experts *experts,
		      const struct drm_m6npu_event_expert_fault *event);

#endif
