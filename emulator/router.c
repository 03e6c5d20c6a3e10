// SPDX-License-Identifier: MIT
#include "router.h"

#include <errno.h>
#include <string.h>

void m6_router_init(struct m6_router *router)
{
	memset(router, 0, sizeof(*router));
	pthread_mutex_init(&router->lock, NULL);
	router->policy = M6NPU_ROUTER_LRU;
	router->quota = M6NPU_ROUTER_ENTRIES;
}

void m6_router_destroy(struct m6_router *router)
{
	pthread_mutex_destroy(&router->lock);
}

void m6_router_reset(struct m6_router *router)
{
	pthread_mutex_lock(&router->lock);
	router->policy = M6NPU_ROUTER_LRU;
	router->quota = M6NPU_ROUTER_ENTRIES;
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

int m6_router_set_quota(struct m6_router *router, uint32_t quota)
{
	if (!quota || quota > M6NPU_ROUTER_ENTRIES)
		return -EINVAL;
	pthread_mutex_lock(&router->lock);
	router->quota = quota;
	pthread_mutex_unlock(&router->lock);
	return 0;
}

uint32_t m6_router_quota(struct m6_router *router)
{
	uint32_t quota;

	pthread_mutex_lock(&router->lock);
	quota = router->quota;
	pthread_mutex_unlock(&router->lock);
	return quota;
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

void m6_router_forget(struct m6_router *router,
		      const struct m6_router_key *key)
{
	struct m6_router_entry *entry;

	pthread_mutex_lock(&router->lock);
	entry = router_lookup(router, key);
	if (entry)
		entry->used = false;
	pthread_mutex_unlock(&router->lock);
}

/* What an entry is to a newcomer. Lower ranks leave first. */
enum router_rank {
	RANK_FREE,
	RANK_OVER,		/* of one who has more than the quota */
	RANK_OVER_PINNED,
	RANK_OPEN,
	RANK_KEPT,		/* never leaves */
};

struct router_search {
	const struct m6_router *router;
	uint32_t asid;				/* the newcomer's */
	uint32_t held[M6NPU_ADDRESS_SPACES];	/* entries of each */
};

static enum router_rank router_rank(const struct router_search *search,
				    const struct m6_router_entry *entry)
{
	const uint32_t quota = search->router->quota;

	if (!entry->used)
		return RANK_FREE;
	if (search->held[search->asid] >= quota)
		return entry->asid == search->asid && !entry->pinned ?
		       RANK_OPEN : RANK_KEPT;
	if (search->held[entry->asid] > quota)
		return entry->pinned ? RANK_OVER_PINNED : RANK_OVER;
	return entry->pinned ? RANK_KEPT : RANK_OPEN;
}

/* True if @a leaves before @b. */
static bool router_before(const struct router_search *search,
			  const struct m6_router_entry *a,
			  const struct m6_router_entry *b)
{
	enum router_rank rank = router_rank(search, a);
	uint32_t held = search->held[a->asid];

	if (rank != router_rank(search, b))
		return rank < router_rank(search, b);
	if (rank != RANK_OPEN && held != search->held[b->asid])
		return held > search->held[b->asid];
	if (search->router->policy == M6NPU_ROUTER_PRIORITY_LRU &&
	    a->value.priority != b->value.priority)
		return a->value.priority < b->value.priority;
	return a->stamp < b->stamp;
}

/* A free entry, else one to evict, else NULL: all are kept. */
static struct m6_router_entry *router_victim(struct m6_router *router,
					     uint32_t asid)
{
	struct router_search search = { .router = router, .asid = asid };
	struct m6_router_entry *victim = router->entry;

	for (int i = 0; i < M6NPU_ROUTER_ENTRIES; i++)
		search.held[router->entry[i].asid] += router->entry[i].used;
	for (int i = 1; i < M6NPU_ROUTER_ENTRIES; i++)
		if (router_before(&search, &router->entry[i], victim))
			victim = &router->entry[i];
	return router_rank(&search, victim) == RANK_KEPT ? NULL : victim;
}

static enum m6_router_found router_keep(struct m6_router *router,
					const struct m6_router_key *key,
					const struct m6npu_expert *value,
					struct m6_router_counters *counted)
{
	struct m6_router_entry *entry;

	if (router->policy == M6NPU_ROUTER_OFF)
		return M6_ROUTER_MISS;
	entry = router_victim(router, key->asid);
	if (!entry) {
		counted->full++;
		return M6_ROUTER_MISS_FULL;
	}
	counted->evictions += entry->used;
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
	    const struct m6_router_table *table, struct m6npu_expert *value,
	    struct m6_router_counters *counted)
{
	uint32_t state;

	counted->misses++;
	if (table->load(table->opaque, key, value))
		return M6_ROUTER_ERROR;
	state = value->flags & M6NPU_EXPERT_STATE_MASK;
	if (state != M6NPU_EXPERT_RESIDENT && state != M6NPU_EXPERT_PINNED) {
		counted->faults++;
		return M6_ROUTER_ABSENT;
	}
	return router_keep(router, key, value, counted);
}

static enum m6_router_found
router_find(struct m6_router *router, const struct m6_router_key *key,
	    const struct m6_router_table *table, struct m6npu_expert *value,
	    struct m6_router_counters *counted)
{
	struct m6_router_entry *entry = router_lookup(router, key);

	if (!entry)
		return router_walk(router, key, table, value, counted);
	counted->hits++;
	entry->stamp = ++router->stamp;
	*value = entry->value;
	return M6_ROUTER_HIT;
}

static void counters_add(struct m6_router_counters *to,
			 const struct m6_router_counters *counted)
{
	to->hits += counted->hits;
	to->misses += counted->misses;
	to->evictions += counted->evictions;
	to->faults += counted->faults;
	to->full += counted->full;
}

enum m6_router_found
m6_router_find(struct m6_router *router, const struct m6_router_key *key,
	       const struct m6_router_table *table, struct m6npu_expert *value,
	       struct m6_router_counters *mine)
{
	struct m6_router_counters counted = { 0 };
	enum m6_router_found found;

	pthread_mutex_lock(&router->lock);
	found = router_find(router, key, table, value, &counted);
	counters_add(&router->counters, &counted);
	pthread_mutex_unlock(&router->lock);
	counters_add(mine, &counted);
	return found;
}

enum m6_router_found
m6_router_prefetch(struct m6_router *router, const struct m6_router_key *key,
		   const struct m6_router_table *table,
		   struct m6npu_expert *value,
		   struct m6_router_counters *mine)
{
	struct m6_router_counters counted = { 0 };
	enum m6_router_found found;

	pthread_mutex_lock(&router->lock);
	found = router_find(router, key, table, value, &counted);
	router->counters.evictions += counted.evictions;
	pthread_mutex_unlock(&router->lock);
	mine->evictions += counted.evictions;
	return found;
}
