/* SPDX-License-Identifier: MIT */
#ifndef NPU_EXPERTS_H
#define NPU_EXPERTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <drm/m6npu_accel.h>
#include "layout.h"
#include "npu_file.h"
#include "preload.h"
#include "span.h"

struct npu_expert {
	uint64_t offset;	/* in the span */
	uint32_t section;
	uint32_t size;
	uint16_t permille;	/* priority */
	bool pinned;
	bool resident;
};

/*
 * The experts of a model: where each has its place, which are there. This
 * version never takes one out again.
 */
struct npu_experts {
	struct npu_device *device;
	struct npu_file *file;
	uint32_t layers, experts;	/* 0: a dense model */
	struct npu_expert *all;		/* [layers * experts] */
	uint32_t *order;		/* indices, most important first */
	const struct npu_preload *preload;
	struct npu_span span;
	bool table;			/* the context has our table */
	atomic_uint resident;
	/* Brought in and not yet bound. */
	struct drm_m6npu_expert *binds;
	uint32_t bind_count;
};

/*
 * Takes the device's expert table, and a buffer's place in @pool for every
 * expert. The others live as long as @experts. -EBUSY: another model has the
 * table.
 */
int npu_experts_init(struct npu_experts *experts, struct npu_pool *pool,
		     struct npu_file *file, const struct npu_layout *layout,
		     const struct npu_preload *preload);
/* Takes zeroed ones, too. */
void npu_experts_clear(struct npu_experts *experts);

/* All experts, or only those the preload configuration names. */
void npu_experts_total(const struct npu_experts *experts, bool named_only,
		       uint32_t *count, uint64_t *bytes);
/*
 * Brings them in, most important first, and binds them. @each is called after
 * each one; what it returns other than 0 stops and is returned.
 */
int npu_experts_load(struct npu_experts *experts, bool named_only,
		     int (*each)(void *user, uint64_t bytes), void *user);
/* Brings in and binds what a job waits for. */
int npu_experts_fault(struct npu_experts *experts,
		      const struct drm_m6npu_event_expert_fault *event);

#endif
