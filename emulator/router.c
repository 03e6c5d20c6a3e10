// SPDX-License-Identifier: MIT
#include "router.h"

#include <errno.h>
#include <string.h>

void m6_router_init(struct m6_router *router)
{
	memset(router, 0, sizeof(*router));
	pthread_mutex_init(&router->lock, NULL);
	router->policy = M6NPU_ROUTER_LRU;
}

void m6_router_destroy(struct m6_router *router)
{
	pthread_mutex_destroy(&router->lock);
}

void m6_router_reset(struct m6_router *router)
{
	pthread_mutex_lock(&router->lock);
	router->policy = M6NPU_ROUTER_LRU;
	router->stamp = 0;
	memset(&router->counters, 0, sizeof(router->counters));
	memset(router->entry, 0, sizeof(router->entry));
	pthread_mutex_unlock(&router->lock);
}

int m6_router_set_policy(struct m6_router *router, uint32_t policy)
{
	if (policy > M6NPU_ROUTER_PRIORITY_LRU)
		return -EINVAL;
	pthread_mutex_lock(&router->lock);
	router->policy = policy;
	if (policy == M6NPU_ROUTER_OFF)
		memset(router->entry, 0, sizeof(router->entry));
	pthread_mutex_unlock(&router->lock);
	return 0;
}

void m6_router_invalidate(struct m6_router *router, uint32_t asid)
{
	pthread_mutex_lock(&router->lock);
	for (int i = 0; i < M6NPU_ROUTER_ENTRIES; i++)
		if (asid == M6NPU_AS_INVALIDATE_ALL ||
		    router->entry[i].asid == asid)
			router->entry[i].used = false;
	pthread_mutex_unlock(&router->lock);
}

uint32_t m6_router_occupancy(struct m6_router *router)
{
	uint32_t used = 0, pinned = 0;

	pthread_mutex_lock(&router->lock);
	for (int i = 0; i < M6NPU_ROUTER_ENTRIES; i++) {
		used += router->entry[i].used;
		pinned += router->entry[i].used && router->entry[i].pinned;
	}
	pthread_mutex_unlock(&router->lock);
	return used | pinned << 16;
}

void m6_router_counters(struct m6_router *router,
			struct m6_router_counters *counters)
{
	pthread_mutex_lock(&router->lock);
	*counters = router->counters;
	pthread_mutex_unlock(&router->lock);
}

static struct m6_router_entry *router_lookup(struct m6_router *router,
					     const struct m6_router_key *key)
{
	for (int i = 0; i < M6NPU_ROUTER_ENTRIES; i++) {
		struct m6_router_entry *entry = &router->entry[i];

		if (entry->used && entry->asid == key->asid &&
		    entry->layer == key->layer && entry->expert == key->expert)
			return entry;
	}
	return NULL;
}

/* True if @a leaves before @b. */
static bool router_before(uint32_t policy, const struct m6_router_entry *a,
			  const struct m6_router_entry *b)
{
	if (policy == M6NPU_ROUTER_PRIORITY_LRU &&
	    a->value.priority != b->value.priority)
		return a->value.priority < b->value.priority;
	return a->stamp < b->stamp;
}

/* A free entry, else one to evict, else NULL: all are pinned. */
static struct m6_router_entry *router_victim(struct m6_router *router)
{
	struct m6_router_entry *victim = NULL;

	for (int i = 0; i < M6NPU_ROUTER_ENTRIES; i++) {
		struct m6_router_entry *entry = &router->entry[i];

		if (!entry->used)
			return entry;
		if (entry->pinned)
			continue;
		if (!victim || router_before(router->policy, entry, victim))
			victim = entry;
	}
	return victim;
}

static enum m6_router_found router_keep(struct m6_router *router,
					const struct m6_router_key *key,
					const struct m6npu_expert *value)
{
	struct m6_router_entry *entry;

	if (router->policy == M6NPU_ROUTER_OFF)
		return M6_ROUTER_MISS;
	entry = router_victim(router);
	if (!entry) {
		router->counters.full++;
		return M6_ROUTER_MISS_FULL;
	}
	router->counters.evictions += entry->used;
	*entry = (struct m6_router_entry) {
		.used = true,
		.pinned = (value->flags & M6NPU_EXPERT_STATE_MASK) ==
			  M6NPU_EXPERT_PINNED,
		.asid = key->asid,
		.layer = key->layer,
		.expert = key->expert,
		.stamp = ++router->stamp,
		.value = *value,
	};
	return M6_ROUTER_MISS;
}

static enum m6_router_found
router_walk(struct m6_router *router, const struct m6_router_key *key,
	    int (*load)(void *opaque, const struct m6_router_key *key,
			struct m6npu_expert *value),
	    void *opaque, struct m6npu_expert *value)
{
	uint32_t state;

	router->counters.misses++;
	if (load(opaque, key, value))
		return M6_ROUTER_ERROR;
	state = value->flags & M6NPU_EXPERT_STATE_MASK;
	if (state != M6NPU_EXPERT_RESIDENT && state != M6NPU_EXPERT_PINNED) {
		router->counters.faults++;
		return M6_ROUTER_ABSENT;
	}
	return router_keep(router, key, value);
}

enum m6_router_found
m6_router_find(struct m6_router *router, const struct m6_router_key *key,
	       int (*load)(void *opaque, const struct m6_router_key *key,
			   struct m6npu_expert *value),
	       void *opaque, struct m6npu_expert *value)
{
	struct m6_router_entry *entry;
	enum m6_router_found found = M6_ROUTER_HIT;

	pthread_mutex_lock(&router->lock);
	entry = router_lookup(router, key);
	if (entry) {
		router->counters.hits++;
		entry->stamp = ++router->stamp;
		*value = entry->value;
	} else {
		found = router_walk(router, key, load, opaque, value);
	}
	pthread_mutex_unlock(&router->lock);
	return found;
}
