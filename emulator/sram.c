// SPDX-License-Identifier: MIT
#include "sram.h"

#include <string.h>

void m6_sram_init(struct m6_sram *sram, uint32_t room)
{
	memset(sram, 0, sizeof(*sram));
	pthread_mutex_init(&sram->lock, NULL);
	sram->room = room;
}

void m6_sram_destroy(struct m6_sram *sram)
{
	pthread_mutex_destroy(&sram->lock);
}

void m6_sram_read(struct m6_sram *sram, struct m6_sram_state *state)
{
	pthread_mutex_lock(&sram->lock);
	*state = (struct m6_sram_state) {
		.room = sram->room,
		.used = sram->used,
		.hits = sram->hits,
		.fetches = sram->fetches,
	};
	pthread_mutex_unlock(&sram->lock);
}

static void sram_drop(struct m6_sram *sram, struct m6_sram_slot *slot)
{
	sram->used -= slot->bytes;
	slot->bytes = 0;
}

static void sram_empty(struct m6_sram *sram, uint32_t room)
{
	for (unsigned int i = 0; i < M6_SRAM_SLOTS; i++)
		sram_drop(sram, &sram->slot[i]);
	sram->room = room;
}

void m6_sram_resize(struct m6_sram *sram, uint32_t room)
{
	pthread_mutex_lock(&sram->lock);
	sram_empty(sram, room);
	pthread_mutex_unlock(&sram->lock);
}

void m6_sram_reset(struct m6_sram *sram, uint32_t room)
{
	pthread_mutex_lock(&sram->lock);
	sram_empty(sram, room);
	sram->hits = 0;
	sram->fetches = 0;
	pthread_mutex_unlock(&sram->lock);
}

void m6_sram_invalidate(struct m6_sram *sram, uint32_t asid)
{
	pthread_mutex_lock(&sram->lock);
	for (unsigned int i = 0; i < M6_SRAM_SLOTS; i++)
		if (asid == M6NPU_AS_INVALIDATE_ALL ||
		    sram->slot[i].key.asid == asid)
			sram_drop(sram, &sram->slot[i]);
	pthread_mutex_unlock(&sram->lock);
}

static struct m6_sram_slot *sram_slot(struct m6_sram *sram,
				      const struct m6_router_key *key)
{
	for (unsigned int i = 0; i < M6_SRAM_SLOTS; i++) {
		struct m6_sram_slot *slot = &sram->slot[i];

		if (slot->bytes && !memcmp(&slot->key, key, sizeof(*key)))
			return slot;
	}
	return NULL;
}

void m6_sram_forget(struct m6_sram *sram, const struct m6_router_key *key)
{
	struct m6_sram_slot *slot;

	pthread_mutex_lock(&sram->lock);
	slot = sram_slot(sram, key);
	if (slot)
		sram_drop(sram, slot);
	pthread_mutex_unlock(&sram->lock);
}

bool m6_sram_find(struct m6_sram *sram, const struct m6_router_key *key,
		  uint64_t now_ns, uint64_t *ready_ns)
{
	struct m6_sram_slot *slot;

	pthread_mutex_lock(&sram->lock);
	slot = sram_slot(sram, key);
	if (slot && slot->copy.begin_ns > now_ns)
		slot = NULL;
	if (slot) {
		slot->used = true;
		slot->stamp = ++sram->stamp;
		*ready_ns = slot->copy.end_ns;
		sram->hits++;
	}
	pthread_mutex_unlock(&sram->lock);
	return slot;
}

static bool sram_may_go(const struct m6_sram *sram,
			const struct m6_sram_slot *slot)
{
	return slot->used || slot->batch + 1 < sram->batch;
}

static struct m6_sram_slot *sram_victim(struct m6_sram *sram)
{
	struct m6_sram_slot *victim = NULL;

	for (unsigned int i = 0; i < M6_SRAM_SLOTS; i++) {
		struct m6_sram_slot *slot = &sram->slot[i];

		if (slot->bytes && sram_may_go(sram, slot) &&
		    (!victim || slot->stamp < victim->stamp))
			victim = slot;
	}
	return victim;
}

static struct m6_sram_slot *sram_free_slot(struct m6_sram *sram)
{
	for (unsigned int i = 0; i < M6_SRAM_SLOTS; i++)
		if (!sram->slot[i].bytes)
			return &sram->slot[i];
	return NULL;
}

/* Is there room beside what has to stay? Else nobody is to go for nothing. */
static bool sram_could_hold(const struct m6_sram *sram, uint32_t bytes)
{
	uint32_t slots = 0, kept = 0;

	for (unsigned int i = 0; i < M6_SRAM_SLOTS; i++) {
		const struct m6_sram_slot *slot = &sram->slot[i];

		if (slot->bytes && !sram_may_go(sram, slot)) {
			slots++;
			kept += slot->bytes;
		}
	}
	return slots < M6_SRAM_SLOTS && bytes <= sram->room - kept;
}

/* A free slot, with @bytes of room for it; NULL: there is none to be had. */
static struct m6_sram_slot *sram_make_room(struct m6_sram *sram, uint32_t bytes)
{
	struct m6_sram_slot *slot = sram_free_slot(sram);

	if (!bytes || !sram_could_hold(sram, bytes))
		return NULL;
	while (!slot || bytes > sram->room - sram->used) {
		slot = sram_victim(sram);
		sram_drop(sram, slot);
	}
	return slot;
}

void m6_sram_next_batch(struct m6_sram *sram)
{
	pthread_mutex_lock(&sram->lock);
	sram->batch++;
	pthread_mutex_unlock(&sram->lock);
}

bool m6_sram_fetch(struct m6_sram *sram, const struct m6_router_key *key,
		   uint32_t bytes, struct m6_clock *clock, unsigned int ring)
{
	struct m6_sram_slot *slot;
	bool there;

	pthread_mutex_lock(&sram->lock);
	slot = sram_slot(sram, key);
	there = slot;
	if (!there)
		slot = sram_make_room(sram, bytes);
	if (slot && !there) {
		slot->key = *key;
		slot->bytes = bytes;
		slot->copy = m6_clock_transfer(clock, ring, bytes);
		sram->used += bytes;
		sram->fetches++;
	}
	if (slot) {
		slot->used = false;
		slot->stamp = ++sram->stamp;
		slot->batch = sram->batch;
	}
	pthread_mutex_unlock(&sram->lock);
	return slot && !there;
}
