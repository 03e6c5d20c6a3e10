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

static void sram_drop(struct m6_sram *sram, unsigned int slot)
{
	sram->used -= sram->slot[slot].bytes;
	sram->slot[slot].bytes = 0;
}

void m6_sram_resize(struct m6_sram *sram, uint32_t room)
{
	pthread_mutex_lock(&sram->lock);
	for (unsigned int i = 0; i < M6_SRAM_SLOTS; i++)
		sram_drop(sram, i);
	sram->room = room;
	pthread_mutex_unlock(&sram->lock);
}

void m6_sram_invalidate(struct m6_sram *sram, uint32_t asid)
{
	pthread_mutex_lock(&sram->lock);
	for (unsigned int i = 0; i < M6_SRAM_SLOTS; i++)
		if (asid == M6NPU_AS_INVALIDATE_ALL ||
		    sram->slot[i].key.asid == asid)
			sram_drop(sram, i);
	pthread_mutex_unlock(&sram->lock);
}

static bool sram_find(struct m6_sram *sram, const struct m6_router_key *key)
{
	for (unsigned int i = 0; i < M6_SRAM_SLOTS; i++) {
		if (!sram->slot[i].bytes ||
		    memcmp(&sram->slot[i].key, key, sizeof(*key)))
			continue;
		sram->slot[i].stamp = ++sram->stamp;
		return true;
	}
	return false;
}

bool m6_sram_holds(struct m6_sram *sram, const struct m6_router_key *key)
{
	bool found;

	pthread_mutex_lock(&sram->lock);
	found = sram_find(sram, key);
	pthread_mutex_unlock(&sram->lock);
	return found;
}

/* The slot in use that was not used for longest; @free: a free one, if any. */
static unsigned int sram_oldest(const struct m6_sram *sram, int *free)
{
	unsigned int oldest = 0;
	uint64_t stamp = UINT64_MAX;

	*free = -1;
	for (unsigned int i = 0; i < M6_SRAM_SLOTS; i++) {
		if (!sram->slot[i].bytes) {
			*free = i;
		} else if (sram->slot[i].stamp < stamp) {
			stamp = sram->slot[i].stamp;
			oldest = i;
		}
	}
	return oldest;
}

bool m6_sram_add(struct m6_sram *sram, const struct m6_router_key *key,
		 uint32_t bytes)
{
	unsigned int oldest;
	bool added = false;
	int free;

	pthread_mutex_lock(&sram->lock);
	if (!bytes || bytes > sram->room || sram_find(sram, key))
		goto out;
	oldest = sram_oldest(sram, &free);
	while (free < 0 || bytes > sram->room - sram->used) {
		sram_drop(sram, oldest);
		oldest = sram_oldest(sram, &free);
	}
	sram->slot[free].key = *key;
	sram->slot[free].bytes = bytes;
	sram->slot[free].stamp = ++sram->stamp;
	sram->used += bytes;
	added = true;
out:
	pthread_mutex_unlock(&sram->lock);
	return added;
}
