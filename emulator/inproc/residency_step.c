// SPDX-License-Identifier: MIT
#include <errno.h>
#include <inttypes.h>

#include "error.h"
#include "residency_priv.h"

/* xorshift64*: the same orders everywhere. */
static uint32_t random_below(struct residency *r, uint32_t limit)
{
	r->random ^= r->random >> 12;
	r->random ^= r->random << 25;
	r->random ^= r->random >> 27;
	return (uint32_t)((r->random * 0x2545f4914f6cdd1dull >> 32) * limit >>
			  32);
}

/* What storage has brought until now. */
static void bind_complete(struct residency *r, uint64_t ns)
{
	uint32_t k;

	while (storage_complete(&r->storage, ns, &k))
		residency_bind(r, k);
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Places for what may be read ahead; while a job runs nobody is driven out. */
static void keep_spare(struct residency *r)
{
	uint32_t per_token = r->runtime->experts_per_token;
	uint32_t needed = smaller(r->tokens * per_token, r->runtime->experts);
	uint32_t spare = 0, victim;

	if (r->options.hints)
		spare = npu_places_spare(&r->places, needed, per_token);
	while (r->places.free_count < spare) {
		victim = npu_places_drop(&r->places);
		if (victim == NPU_NOWHERE)
			break;
		residency_unbind(r, victim);
	}
}

void residency_begin(struct residency *r, uint32_t tokens)
{
	r->tokens = tokens;
	r->known = 0;
	npu_places_begin(&r->places);
	keep_spare(r);
}

static void give_up(struct residency *r, uint32_t k)
{
	storage_cancel(&r->storage, k);
	npu_places_give(&r->places, k);
	r->ahead[k] = 0;
}

/* Guesses of layers before @layer, which the step has passed. */
static void give_up_passed(struct residency *r, uint32_t layer)
{
	struct storage_list *ahead = &r->storage.ahead;
	uint32_t i;

	for (i = ahead->count; i; i--)
		if (ahead->reads[i - 1].expert / r->runtime->experts < layer)
			give_up(r, ahead->reads[i - 1].expert);
}

/* Read ahead, if that needs nobody to leave. */
static void hint(struct residency *r, uint32_t k, uint64_t ns)
{
	struct storage_read read;

	npu_places_guess(&r->places, k);
	if (r->places.uses[k].place != NPU_NOWHERE)
		return;
	r->stats.hints++;
	if (npu_places_take_free(&r->places, k) == NPU_NOWHERE)
		return;
	/* A read that fails is tried again when the expert is needed. */
	if (residency_fill(r, k)) {
		npu_places_give(&r->places, k);
		return;
	}
	r->places.uses[k].coming = true;
	r->ahead[k] = r->places.step;
	r->stats.ahead++;
	read = residency_read(r, k, ns);
	storage_ahead(&r->storage, &read);
}

void residency_posted(void *user, const struct m6npu_exception *record)
{
	struct residency *r = user;
	uint32_t i, k;

	/* Guesses are of the next layer, and come before this one's experts. */
	if (record->code == M6NPU_EXC_EXPERT_HINT && record->layer)
		give_up_passed(r, record->layer - 1);
	for (i = 0; i < 64; i++) {
		if (!(record->mask >> i & 1))
			continue;
		k = record->layer * r->runtime->experts +
		    record->expert_base + i;
		if (record->code == M6NPU_EXC_EXPERT_HINT)
			hint(r, k, record->time_ns);
		else
			r->missing[r->missing_count++] = k;
	}
}

/* A guess is given up before somebody who is needed finds no place. */
static bool cancel_one(struct residency *r)
{
	const struct storage_list *ahead = &r->storage.ahead;

	if (!ahead->count)
		return false;
	give_up(r, ahead->reads[ahead->count - 1].expert);
	return true;
}

/* Somebody who is coming will be there, and can go again; @now moves on. */
static bool await_one(struct residency *r, uint64_t *now)
{
	uint64_t next;

	if (!storage_next(&r->storage, &next))
		return false;
	if (*now < next)
		*now = next;
	bind_complete(r, *now);
	return true;
}

static int take(struct residency *r, uint32_t k, uint64_t *now)
{
	uint32_t victim;

	while (npu_places_take(&r->places, k, &victim) == NPU_NOWHERE)
		if (!cancel_one(r) && !await_one(r, now))
			return npu_fail(-ENOSPC,
					"a command needs more experts at once than there are places for (%" PRIu32 ")",
					r->places.count);
	if (victim != NPU_NOWHERE)
		residency_unbind(r, victim);
	return residency_fill(r, k);
}

/* @until: when all are there. */
static int fetch(struct residency *r, uint32_t k, uint64_t now,
		 uint64_t *until)
{
	struct storage_read read;
	uint64_t when;
	int ret;

	r->stats.faults++;
	npu_places_missed(&r->places, k);
	npu_places_hold(&r->places, k);
	if (!storage_hurry(&r->storage, k, now)) {
		ret = take(r, k, &now);
		if (ret)
			return ret;
		r->places.uses[k].coming = true;
		read = residency_read(r, k, now);
		storage_demand(&r->storage, &read);
	}
	storage_when(&r->storage, k, &when);
	if (*until < when)
		*until = when;
	return 0;
}

static void shuffle(struct residency *r)
{
	uint32_t i, j, k;

	for (i = r->missing_count; i > 1; i--) {
		j = random_below(r, i);
		k = r->missing[j];
		r->missing[j] = r->missing[i - 1];
		r->missing[i - 1] = k;
	}
}

/* Those that are missing, perhaps in another order, or only one of them. */
static void arrange_missing(struct residency *r)
{
	if (r->options.order != RESIDENCY_AS_ASKED)
		shuffle(r);
	if (r->options.order == RESIDENCY_ONE_BY_ONE)
		r->missing_count = 1;
}

static int fetch_missing(struct residency *r, uint64_t now, uint64_t *until)
{
	uint32_t i, k;
	int ret = 0;

	for (i = 0; i < r->missing_count && !ret; i++) {
		k = r->missing[i];
		if (residency_there(r, k)) {
			npu_places_hold(&r->places, k);
			continue;
		}
		ret = fetch(r, k, now, until);
	}
	r->missing_count = 0;
	return ret;
}

int residency_stalled(void *user)
{
	struct residency *r = user;
	uint32_t layer = r->missing[0] / r->runtime->experts;
	uint64_t now = board_now(r->board), until = now;
	uint64_t faults = r->stats.faults;
	int ret;

	bind_complete(r, now);
	npu_places_wait(&r->places, layer);
	residency_know(r, layer + 1);
	arrange_missing(r);
	ret = fetch_missing(r, now, &until);
	give_up_passed(r, layer + 1);
	if (ret || r->stats.faults == faults)
		return ret;
	keep_spare(r);
	r->stats.waits++;
	r->stats.stall_ns += until - now;
	board_advance(r->board, until - now);
	bind_complete(r, until);
	return 0;
}

static void forget(struct residency *r)
{
	uint32_t k;

	for (k = 0; k < r->count; k++) {
		if (!residency_there(r, k))
			continue;
		npu_places_give(&r->places, k);
		residency_unbind(r, k);
	}
}

void residency_end(struct residency *r)
{
	bind_complete(r, board_now(r->board));
	/* What was guessed for this step is of no use now. */
	while (cancel_one(r))
		;
	residency_know(r, r->runtime->expert_layers);
	residency_adapt(r);
	npu_places_learn(&r->places);
	if (r->options.forget)
		forget(r);
}
