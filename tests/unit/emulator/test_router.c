// SPDX-License-Identifier: MIT
/* The router cache against a model that is too simple to be wrong. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "router.h"

#define SPACES		4
#define LAYERS		4
#define EXPERTS		96
#define STEPS		20000

static struct m6npu_expert table[LAYERS][EXPERTS];

static int load(void *opaque, const struct m6_router_key *key,
		struct m6npu_expert *value)
{
	(void)opaque;
	if (key->layer >= LAYERS || key->expert >= EXPERTS)
		return -EFAULT;
	*value = table[key->layer][key->expert];
	return 0;
}

static const struct m6_router_table loader = { load, NULL };

/* A list in order of use, the most recent last. */
struct model {
	struct {
		struct m6_router_key key;
		struct m6npu_expert value;
	} entry[M6NPU_ROUTER_ENTRIES];
	unsigned int count;
	uint32_t policy;
	uint32_t quota;
	unsigned int held[SPACES + 1];
	struct m6_router_counters counters;
};

static bool pinned(const struct m6npu_expert *value)
{
	return (value->flags & 3) == M6NPU_EXPERT_PINNED;
}

static void model_remove(struct model *model, unsigned int at)
{
	memmove(&model->entry[at], &model->entry[at + 1],
		(model->count - at - 1) * sizeof(model->entry[0]));
	model->count--;
}

static void model_count(struct model *model)
{
	memset(model->held, 0, sizeof(model->held));
	for (unsigned int i = 0; i < model->count; i++)
		model->held[model->entry[i].key.asid]++;
}

/* By policy, of those of @asid (0: all) that hold @held (0: any) entries. */
static int model_pick(const struct model *model, uint32_t asid,
		      unsigned int held, bool pins)
{
	int best = -1;

	for (unsigned int i = 0; i < model->count; i++) {
		const struct m6npu_expert *value = &model->entry[i].value;
		uint32_t owner = model->entry[i].key.asid;

		if (pinned(value) != pins || (asid && owner != asid) ||
		    (held && model->held[owner] != held))
			continue;
		if (best < 0 || (model->policy == M6NPU_ROUTER_PRIORITY_LRU &&
		    value->priority < model->entry[best].value.priority))
			best = i;
	}
	return best;
}

/* What the richest one has that has any with or without pins. */
static unsigned int model_most(const struct model *model, bool pins)
{
	unsigned int most = 0;

	for (unsigned int i = 0; i < model->count; i++) {
		unsigned int held = model->held[model->entry[i].key.asid];

		if (pinned(&model->entry[i].value) == pins && held > most)
			most = held;
	}
	return most;
}

/* The rules of M6NPU_REG_ROUTER_QUOTA, one after the other. */
static int model_victim(struct model *model, uint32_t asid)
{
	model_count(model);
	if (model->held[asid] >= model->quota)
		return model_pick(model, asid, 0, false);
	for (int pins = 0; pins < 2; pins++) {
		unsigned int most = model_most(model, pins);

		if (most > model->quota)
			return model_pick(model, 0, most, pins);
	}
	return model_pick(model, 0, 0, false);
}

static enum m6_router_found model_keep(struct model *model,
				       const struct m6_router_key *key,
				       const struct m6npu_expert *value)
{
	int victim;

	if (model->policy == M6NPU_ROUTER_OFF)
		return M6_ROUTER_MISS;
	if (model->count == M6NPU_ROUTER_ENTRIES) {
		victim = model_victim(model, key->asid);
		if (victim < 0) {
			model->counters.full++;
			return M6_ROUTER_MISS_FULL;
		}
		model_remove(model, victim);
		model->counters.evictions++;
	}
	model->entry[model->count].key = *key;
	model->entry[model->count++].value = *value;
	return M6_ROUTER_MISS;
}

static enum m6_router_found model_find(struct model *model,
				       const struct m6_router_key *key,
				       struct m6npu_expert *value)
{
	for (unsigned int i = 0; i < model->count; i++) {
		if (memcmp(&model->entry[i].key, key, sizeof(*key)))
			continue;
		*value = model->entry[i].value;
		model_remove(model, i);
		model->entry[model->count].key = *key;
		model->entry[model->count++].value = *value;
		model->counters.hits++;
		return M6_ROUTER_HIT;
	}
	model->counters.misses++;
	*value = table[key->layer][key->expert];
	if (!(value->flags & 3)) {
		model->counters.faults++;
		return M6_ROUTER_ABSENT;
	}
	return model_keep(model, key, value);
}

/* The same, but for what it counts. */
static enum m6_router_found model_prefetch(struct model *model,
					   const struct m6_router_key *key,
					   struct m6npu_expert *value)
{
	struct m6_router_counters before = model->counters;
	enum m6_router_found found = model_find(model, key, value);

	before.evictions = model->counters.evictions;
	model->counters = before;
	return found;
}

static void model_forget(struct model *model, const struct m6_router_key *key)
{
	for (unsigned int i = model->count; i--; )
		if (!memcmp(&model->entry[i].key, key, sizeof(*key)))
			model_remove(model, i);
}

static void model_invalidate(struct model *model, uint32_t asid)
{
	for (unsigned int i = model->count; i--; )
		if (asid == M6NPU_AS_INVALIDATE_ALL ||
		    model->entry[i].key.asid == asid)
			model_remove(model, i);
}

static void fill_table(unsigned int pins)
{
	for (int l = 0; l < LAYERS; l++)
		for (int e = 0; e < EXPERTS; e++)
			table[l][e] = (struct m6npu_expert) {
				.addr = l * 0x100000 + e * 64,
				.size = 64,
				.flags = rand() % 100 < 8 ? 0 :
					 (unsigned int)(rand() % 100) < pins ?
					 M6NPU_EXPERT_PINNED :
					 M6NPU_EXPERT_RESIDENT,
				.priority = rand() % 20,
			};
}

/* Skewed as experts are: low numbers more often. */
static struct m6_router_key random_key(void)
{
	int a = rand() % EXPERTS, b = rand() % EXPERTS;

	return (struct m6_router_key) {
		.asid = 1 + rand() % SPACES,
		.layer = rand() % LAYERS,
		.expert = a < b ? a : b,
	};
}

static struct m6_router router;
static struct model model;
static struct m6_router_counters mine;

/* What the host does now and then, with experts that come and go. */
static void disturb(void)
{
	struct m6_router_key key = random_key();
	uint32_t asid = rand() % (SPACES + 1);

	if (rand() % 40 == 0) {
		key = random_key();
		table[key.layer][key.expert].flags = rand() % 3;
		table[key.layer][key.expert].addr += 64;
		for (key.asid = 1; key.asid <= SPACES; key.asid++) {
			m6_router_forget(&router, &key);
			model_forget(&model, &key);
		}
	}
	if (rand() % 2000 == 0) {
		asid = asid ? asid : M6NPU_AS_INVALIDATE_ALL;
		m6_router_invalidate(&router, asid);
		model_invalidate(&model, asid);
	}
	if (rand() % 500 == 0) {
		model.quota = 1 + rand() % M6NPU_ROUTER_ENTRIES;
		m6_router_set_quota(&router, model.quota);
	}
}

/* True if the two agree, and on the truth. */
static bool look_up(void)
{
	struct m6_router_key key = random_key();
	struct m6npu_expert a = { 0 }, b = { 0 };
	enum m6_router_found found, wanted;

	if (rand() % 8) {
		found = m6_router_find(&router, &key, &loader, &a, &mine);
		wanted = model_find(&model, &key, &b);
	} else {
		found = m6_router_prefetch(&router, &key, &loader, &a, &mine);
		wanted = model_prefetch(&model, &key, &b);
	}
	return found == wanted && !memcmp(&a, &b, sizeof(a)) &&
	       !memcmp(&a, &table[key.layer][key.expert], sizeof(a));
}

static bool same_counters(void)
{
	struct m6_router_counters counters;

	m6_router_counters(&router, &counters);
	return !memcmp(&counters, &model.counters, sizeof(counters)) &&
	       !memcmp(&counters, &mine, sizeof(counters));
}

static void run(uint32_t policy, unsigned int pins, const char *name)
{
	unsigned int wrong = 0;

	memset(&model, 0, sizeof(model));
	memset(&mine, 0, sizeof(mine));
	m6_router_init(&router);
	m6_router_set_policy(&router, policy);
	model.policy = policy;
	model.quota = M6NPU_ROUTER_ENTRIES;
	srand(policy * 100 + pins);
	fill_table(pins);
	for (int i = 0; i < STEPS; i++) {
		disturb();
		wrong += !look_up();
	}
	ok(!wrong, "%s, %u%% pinned: %u lookups differ", name, pins, wrong);
	ok(same_counters(), "%s, %u%% pinned: counters", name, pins);
	ok((m6_router_occupancy(&router) & 0xffff) == model.count,
	   "%s, %u%% pinned: occupancy %u", name, pins, model.count);
	m6_router_destroy(&router);
}

static enum m6_router_found find(uint32_t asid, uint32_t layer, uint32_t expert)
{
	struct m6_router_key key = { asid, layer, expert };
	struct m6npu_expert value;

	return m6_router_find(&router, &key, &loader, &value, &mine);
}

/* Two rounds, so that the second tells what the first one left. */
static unsigned int hits_of(uint32_t asid, uint32_t layer, uint32_t count)
{
	unsigned int hits = 0;

	for (uint32_t i = 0; i < count; i++)
		hits += find(asid, layer, i) == M6_ROUTER_HIT;
	return hits;
}

static void set_layer(uint32_t layer, uint32_t state)
{
	for (uint32_t i = 0; i < EXPERTS; i++)
		table[layer][i].flags = state;
}

static void test_quota(void)
{
	m6_router_init(&router);
	set_layer(0, M6NPU_EXPERT_RESIDENT);
	set_layer(1, M6NPU_EXPERT_PINNED);
	set_layer(2, M6NPU_EXPERT_PINNED);
	ok(m6_router_quota(&router) == M6NPU_ROUTER_ENTRIES, "no quota");
	ok(m6_router_set_quota(&router, 0) == -EINVAL &&
	   m6_router_set_quota(&router, M6NPU_ROUTER_ENTRIES + 1) == -EINVAL &&
	   !m6_router_set_quota(&router, 42), "quotas that can't be");
	/* Space 1 has 40; space 2 goes through more than the cache holds. */
	hits_of(1, 0, 40);
	for (int i = 0; i < 4; i++)
		hits_of(2, i % 2 ? 1 : 0, EXPERTS);
	ok(hits_of(1, 0, 40) == 40, "who has less than the quota keeps it");
	/* Space 2 has all else, pinned; space 3 is entitled to 42 of it. */
	m6_router_invalidate(&router, 2);
	hits_of(2, 1, EXPERTS);
	ok(m6_router_occupancy(&router) == (128 | 88 << 16),
	   "what is free goes to anybody");
	hits_of(3, 0, 42);
	ok(hits_of(3, 0, 42) == 42 && hits_of(1, 0, 40) == 40 &&
	   m6_router_occupancy(&router) == (128 | 46 << 16),
	   "pins beyond the quota make room");
	m6_router_invalidate(&router, M6NPU_AS_INVALIDATE_ALL);
	hits_of(2, 1, EXPERTS);
	hits_of(3, 2, 32);
	ok(find(2, 2, 0) == M6_ROUTER_MISS_FULL &&
	   find(3, 2, 32) == M6_ROUTER_MISS && find(3, 2, 0) == M6_ROUTER_HIT,
	   "beyond it the own pins are in the way, not others'");
	m6_router_reset(&router);
	ok(m6_router_quota(&router) == M6NPU_ROUTER_ENTRIES, "reset");
	m6_router_destroy(&router);
}

static void test_forget(void)
{
	struct m6_router_key key = { 1, 0, 7 };

	m6_router_init(&router);
	set_layer(0, M6NPU_EXPERT_RESIDENT);
	hits_of(1, 0, 20);
	find(2, 0, 7);
	m6_router_forget(&router, &key);
	m6_router_forget(&router, &key);
	ok(hits_of(1, 0, 20) == 19 && find(2, 0, 7) == M6_ROUTER_HIT,
	   "one expert is forgotten, and nothing else");
	m6_router_destroy(&router);
}

static void test_edges(void)
{
	m6_router_init(&router);
	ok(m6_router_set_policy(&router, 3) == -EINVAL, "no such policy");
	ok(find(1, LAYERS, 0) == M6_ROUTER_ERROR,
	   "a table that can't be read");
	table[0][0].flags = M6NPU_EXPERT_RESIDENT;
	find(1, 0, 0);
	ok(m6_router_occupancy(&router) == 1, "one entry");
	m6_router_set_policy(&router, M6NPU_ROUTER_OFF);
	ok(m6_router_occupancy(&router) == 0, "off empties it");
	table[0][0].flags = 3;
	ok(find(1, 0, 0) == M6_ROUTER_ABSENT, "an unknown state is absent");
	m6_router_destroy(&router);
}

int main(void)
{
	static const char *const name[] = { "off", "LRU", "priority-LRU" };

	for (uint32_t policy = 0; policy < 3; policy++) {
		run(policy, 0, name[policy]);
		run(policy, 20, name[policy]);
		run(policy, 100, name[policy]);
	}
	test_quota();
	test_forget();
	test_edges();
	return done();
}
