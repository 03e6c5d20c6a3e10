/* SPDX-License-Identifier: MIT */
/*
 * Where everything of a model goes in memory, decided before any of it is
 * allocated. No device code.
 */
#ifndef NPU_LAYOUT_H
#define NPU_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>
#include "npu_file.h"

struct npu_layout_request {
	uint64_t max_chunk;	/* the device's limit for a buffer */
	uint32_t slots, max_seq;	/* 0: default */
	bool kv_q8_0;
	bool experts_on_demand;
	uint64_t expert_budget;	/* bytes, 0: room for all experts */
	bool expert_fallback;	/* copies of lower precision stand in */
};

struct npu_layout {
	uint32_t slots, max_seq;
	uint64_t kv_slot_stride;
	/* Bytes of each part. */
	uint64_t weights, scratch, kv, io, commands, experts, low;
	/* Bytes of the buffers they are cut into. */
	uint64_t chunk;
	/*
	 * Places for experts: each expert its own (@place_bytes 0), packed, or
	 * fewer, of one size, that any may have.
	 */
	uint32_t places;
	uint64_t place_bytes;
	/* Experts come when they are needed; else all are there, to stay. */
	bool experts_come;
	/* Tokens of a step whose experts have places all at once. */
	uint32_t step_tokens;
	/* These parts are worth windows of the device. */
	bool weights_windows, experts_windows;
	/* A pool that holds all of it, and what aligning for windows adds. */
	uint64_t pool, window_slack;
};

/* A command list. */
struct npu_tile {
	uint32_t tokens;	/* a step takes at most */
	uint32_t commands;
	uint32_t section;
	uint64_t offset;	/* in the buffer of all lists */
};

/*
 * -EINVAL: @request does not fit the model, -ENOTSUP: the model lacks what it
 * asks for, -EBADMSG: the file's figures do not fit together, -ENOSPC: more
 * than the device can address.
 */
int npu_layout_plan(struct npu_layout *layout, const struct npu_file *file,
		    const struct npu_layout_request *request);

/* All command lists by rising tile size, for free(3). */
struct npu_tile *npu_layout_tiles(const struct npu_file *file,
				  uint32_t *count, uint64_t *bytes);
/* The smallest tile for that many tokens, or NULL. */
const struct npu_tile *npu_tile_for(const struct npu_tile *tiles,
				    uint32_t count, uint32_t tokens);

/*
 * Offset of each (layer, expert) in a span of its own, for free(3): packed
 * layer by layer. @type: NPU_SECTION_EXPERT, or _LOW, which the file must have.
 */
uint64_t *npu_layout_experts(const struct npu_file *file,
			     enum npu_section_type type, uint64_t *bytes);

#endif
