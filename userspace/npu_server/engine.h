/* SPDX-License-Identifier: MIT */
/*
 * The one thread that runs the model: a queue of requests, slots in the KV
 * cache, and steps that carry tokens of all slots at once.
 */
#ifndef NPU_SERVER_ENGINE_H
#define NPU_SERVER_ENGINE_H

#include <npu/npu.h>

#include "metrics.h"
#include "request.h"

struct engine;

struct engine_options {
	uint32_t queue_limit;	/* requests that wait for a slot */
};

struct engine_state {
	uint32_t slots, busy, queued;
	bool stopping;
};

/* Starts the thread. @model, @device and @metrics are used until destroy. */
int engine_create(struct npu_device *device, struct npu_model *model,
		  const struct engine_options *options, struct metrics *metrics,
		  struct engine **engine);

/*
 * Queues @request, of which the engine takes a reference of its own. -EAGAIN:
 * the queue is full, -ESHUTDOWN: the engine is stopping.
 */
int engine_submit(struct engine *engine, struct request *request);

void engine_state(struct engine *engine, struct engine_state *state);

/*
 * Takes no more requests, lets those at hand end for up to @grace_ms, then
 * cancels them, and joins the thread. Requests may still be submitted, and are
 * refused, until engine_destroy().
 */
void engine_stop(struct engine *engine, int grace_ms);
void engine_destroy(struct engine *engine);

#endif
