// SPDX-License-Identifier: MIT
/*
 * Room for experts that come.
 *
 * When all places are taken, somebody has to go first. Victims are made absent
 * by one call, in which the driver waits for jobs that may use them; from then
 * on nobody reads their places, and they are overwritten. The job that waits is
 * none of those the driver waits for, and looks everything up again.
 *
 * While a job runs nobody goes: the call would wait for it. So for experts that
 * are read ahead, some places are kept free, by driving out a few more whenever
 * it costs nothing: while a job waits in any case, and between steps.
 */
#include <errno.h>
#include <inttypes.h>

#include "error.h"
#include "experts_priv.h"

int npu_experts_take(struct npu_experts *e, uint32_t k)
{
	uint32_t victim;

	while (npu_places_take(&e->places, k, &victim) == NPU_NOWHERE)
		if (!npu_experts_reclaim(e))
			return npu_fail(-ENOSPC,
					"a command needs more experts at once than the expert budget has places for (%" PRIu32 "); give it more",
					e->places.count);
	e->victims[e->count] = victim;
	e->coming[e->count++] = k;
	return 0;
}

void npu_experts_untake(struct npu_experts *e)
{
	for (; e->count; e->count--) {
		const struct npu_use *use =
			&e->places.uses[e->coming[e->count - 1]];

		/* Else it is read already, or does without one. */
		if (use->place != NPU_NOWHERE && !use->coming)
			npu_places_untake(&e->places, e->coming[e->count - 1],
					  e->victims[e->count - 1]);
	}
}

static void choose_spare(struct npu_experts *e)
{
	uint32_t spare = 0, k;

	e->dropped_count = 0;
	if (e->hints)
		spare = npu_places_spare(&e->places, e->needed, e->top);
	while (e->places.free_count < spare) {
		k = npu_places_drop(&e->places);
		if (k == NPU_NOWHERE)
			break;
		e->dropped[e->dropped_count++] = k;
	}
}

/* In reverse, so that all get the places that they had. */
static void undo(struct npu_experts *e)
{
	for (; e->dropped_count; e->dropped_count--)
		npu_places_take_free(&e->places,
				     e->dropped[e->dropped_count - 1]);
	npu_experts_untake(e);
}

int npu_experts_drive_out(struct npu_experts *e)
{
	uint32_t n, gone;
	int ret;

	choose_spare(e);
	for (n = 0; n < e->count; n++)
		if (e->victims[n] != NPU_NOWHERE)
			npu_experts_add_absent(e, e->victims[n]);
	for (n = 0; n < e->dropped_count; n++)
		npu_experts_add_absent(e, e->dropped[n]);
	gone = e->bind_count;
	for (n = 0; n < gone; n++)
		e->list[e->binds[n].layer * e->experts + e->binds[n].expert]
			.ahead = 0;
	ret = npu_experts_bind(e, "cannot unbind experts");
	if (ret) {
		undo(e);
		return ret;
	}
	atomic_fetch_add(&e->figures.evictions, gone);
	atomic_fetch_sub(&e->figures.resident, gone);
	return 0;
}
