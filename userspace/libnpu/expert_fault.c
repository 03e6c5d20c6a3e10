// SPDX-License-Identifier: MIT
/*
 * A job waits for experts.
 *
 * It may look for one that has just gone: of the experts that its command needs
 * only the missing ones are told, and not every file has the others in IO. But
 * who came for a command does not go for the same command, and there are places
 * for all that one needs. So each turn gets it further.
 */
#include <errno.h>
#include <inttypes.h>
#include <time.h>

#include "error.h"
#include "experts_priv.h"

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* With copies that stand in, an expert may do without a place of its own. */
static int take_one(struct npu_experts *e, uint32_t k)
{
	uint32_t victim = NPU_NOWHERE;

	if (e->places.uses[k].coming)
		npu_places_hold(&e->places, k);
	else if (e->low.size)
		npu_places_take(&e->places, k, &victim);
	else
		return npu_experts_take(e, k);
	e->victims[e->count] = victim;
	e->coming[e->count++] = k;
	return 0;
}

static bool is_named(const struct npu_experts *e,
		     const struct drm_m6npu_event_expert_fault *event,
		     unsigned int bit)
{
	return event->mask >> bit & 1 && event->expert_base < e->experts &&
	       bit < e->experts - event->expert_base;
}

static int take_missing(struct npu_experts *e,
			const struct drm_m6npu_event_expert_fault *event)
{
	uint32_t first = event->layer * e->experts + event->expert_base;
	unsigned int bit;
	int ret = 0;

	/* Some may have come since the event was sent: they are to stay. */
	for (bit = 0; bit < 64; bit++)
		if (is_named(e, event, bit) && npu_experts_there(e, first + bit))
			npu_places_hold(&e->places, first + bit);
	for (bit = 0; bit < 64 && !ret; bit++) {
		if (!is_named(e, event, bit) ||
		    npu_experts_there(e, first + bit) ||
		    e->list[first + bit].low)
			continue;
		npu_places_missed(&e->places, first + bit);
		ret = take_one(e, first + bit);
	}
	return ret;
}

/* Also after an error: what is there need not be read again. */
static int bring_in(struct npu_experts *e)
{
	uint32_t n;
	int ret = 0, error;

	for (n = 0; n < e->count; n++)
		if (!e->places.uses[e->coming[n]].coming)
			npu_experts_read(e, e->coming[n], true);
	for (n = 0; n < e->count; n++) {
		error = npu_experts_await(e, e->coming[n], !ret);
		ret = ret ? ret : error;
	}
	error = npu_experts_bind(e, "cannot bind experts");
	return ret ? ret : error;
}

static int answer(struct npu_experts *e, uint32_t layer)
{
	int ret;

	atomic_fetch_add(&e->figures.faults, e->count);
	atomic_fetch_add(&e->figures.waits, 1);
	ret = npu_experts_drive_out(e);
	if (ret)
		return ret;
	npu_experts_pass(e, layer);
	return e->low.size ? npu_experts_stand_in(e) : bring_in(e);
}

int npu_experts_fault(struct npu_experts *e,
		      const struct drm_m6npu_event_expert_fault *event)
{
	uint64_t start = now_ns();
	int ret;

	/* Of a job that has ended. */
	if (event->job != e->job)
		return 0;
	if (event->layer >= e->layers)
		return npu_fail(-EIO, "the device asks for an expert of layer %"
				PRIu32 ", which the model does not have",
				event->layer);
	npu_places_wait(&e->places, event->layer);
	npu_experts_know(e, event->layer + 1);
	npu_experts_ripen(e);
	e->count = 0;
	ret = take_missing(e, event);
	if (ret)
		npu_experts_untake(e);
	if (ret || !e->count)
		return ret;
	ret = answer(e, event->layer);
	atomic_fetch_add(&e->figures.stall_ns, now_ns() - start);
	return ret;
}
