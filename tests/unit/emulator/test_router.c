// SPDX-License-Identifier: MIT
/* The router cache against a model that is too simple to be wrong. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "router.h"
#include "sram.h"

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

/* A list in order of use, the most recent last. */
struct model {
	struct {
		struct m6_router_key key;
		struct m6npu_expert value;
	} entry[M6NPU_ROUTER_ENTRIES];
	unsigned int count;
	uint32_t policy;
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

static int model_victim(const struct model *model)
{
	int victim = -1;

	for (unsigned int i = 0; i < model->count; i++) {
		const struct m6npu_expert *value = &model->entry[i].value;

		if (pinned(value))
			continue;
		if (victim < 0)
			victim = i;
		else if (model->policy == M6NPU_ROUTER_PRIORITY_LRU &&
			 value->priority <
			 model->entry[victim].value.priority)
			victim = i;
	}
	return victim;
}

static enum m6_router_found model_find(struct model *model,
				       const struct m6_router_key *key,
				       struct m6npu_expert *value)
{
	int victim;

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
	if (model->policy == M6NPU_ROUTER_OFF)
		return M6_ROUTER_MISS;
	if (model->count == M6NPU_ROUTER_ENTRIES) {
		victim = model_victim(model);
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
		.asid = 1 + rand() % 2,
		.layer = rand() % LAYERS,
		.expert = a < b ? a : b,
	};
}

static bool same_counters(struct m6_router *router, const struct model *model)
{
	struct m6_router_counters counters;

	m6_router_counters(router, &counters);
	return !memcmp(&counters, &model->counters, sizeof(counters));
}

static void run(uint32_t policy, unsigned int pins, const char *name)
{
	static struct m6_router router;
	static struct model model;
	unsigned int wrong = 0;

	memset(&model, 0, sizeof(model));
	m6_router_init(&router);
	m6_router_set_policy(&router, policy);
	model.policy = policy;
	srand(policy * 100 + pins);
	fill_table(pins);
	for (int i = 0; i < STEPS; i++) {
		struct m6_router_key key = random_key();
		struct m6npu_expert a = { 0 }, b = { 0 };
		uint32_t asid = rand() % 3;

		if (rand() % 2000 == 0) {
			asid = asid ? asid : M6NPU_AS_INVALIDATE_ALL;
			m6_router_invalidate(&router, asid);
			model_invalidate(&model, asid);
		}
		wrong += m6_router_find(&router, &key, load, NULL, &a) !=
			 model_find(&model, &key, &b);
		wrong += memcmp(&a, &b, sizeof(a)) != 0;
	}
	ok(!wrong, "%s, %u%% pinned: %u lookups differ", name, pins, wrong);
	ok(same_counters(&router, &model), "%s, %u%% pinned: counters", name,
	   pins);
	ok((m6_router_occupancy(&router) & 0xffff) == model.count,
	   "%s, %u%% pinned: occupancy %u", name, pins, model.count);
	m6_router_destroy(&router);
}

static void test_edges(void)
{
	static struct m6_router router;
	struct m6_router_key key = { 1, LAYERS, 0 };
	struct m6npu_expert value;

	m6_router_init(&router);
	ok(m6_router_set_policy(&router, 3) == -EINVAL, "no such policy");
	ok(m6_router_find(&router, &key, load, NULL, &value) ==
	   M6_ROUTER_ERROR, "a table that can't be read");
	key.layer = 0;
	table[0][0].flags = M6NPU_EXPERT_RESIDENT;
	m6_router_find(&router, &key, load, NULL, &value);
	ok(m6_router_occupancy(&router) == 1, "one entry");
	m6_router_set_policy(&router, M6NPU_ROUTER_OFF);
	ok(m6_router_occupancy(&router) == 0, "off empties it");
	table[0][0].flags = 3;
	ok(m6_router_find(&router, &key, load, NULL, &value) ==
	   M6_ROUTER_ABSENT, "an unknown state is absent");
	m6_router_destroy(&router);
}

/* Two experts of 1.9 MB fit, as they do on the board. */
static void test_sram(void)
{
	const uint32_t bytes = 1900000;
	struct m6_router_key key[3] = { { 1, 0, 0 }, { 1, 0, 1 }, { 2, 0, 0 } };
	struct m6_sram sram;

	m6_sram_init(&sram, 4u << 20);
	ok(m6_sram_add(&sram, &key[0], bytes) &&
	   m6_sram_add(&sram, &key[1], bytes) &&
	   !m6_sram_add(&sram, &key[0], bytes), "two experts in SRAM");
	ok(m6_sram_add(&sram, &key[2], bytes) &&
	   m6_sram_holds(&sram, &key[0]) && !m6_sram_holds(&sram, &key[1]),
	   "the third takes the older one's place");
	ok(!m6_sram_add(&sram, &key[1], (4u << 20) + 1) &&
	   !m6_sram_add(&sram, &key[1], 0), "what can't be");
	m6_sram_invalidate(&sram, 2);
	ok(m6_sram_holds(&sram, &key[0]) && !m6_sram_holds(&sram, &key[2]),
	   "invalidate");
	m6_sram_resize(&sram, bytes - 1);
	ok(!m6_sram_holds(&sram, &key[0]) &&
	   !m6_sram_add(&sram, &key[0], bytes), "less room");
	for (uint16_t i = 0; i < 1000; i++) {
		key[0].expert = i;
		m6_sram_add(&sram, &key[0], 64);
	}
	ok(m6_sram_holds(&sram, &key[0]) &&
	   sram.used == M6_SRAM_SLOTS * 64, "no more than there are slots");
	m6_sram_destroy(&sram);
}

int main(void)
{
	static const char *const name[] = { "off", "LRU", "priority-LRU" };

	for (uint32_t policy = 0; policy < 3; policy++) {
		run(policy, 0, name[policy]);
		run(policy, 20, name[policy]);
		run(policy, 100, name[policy]);
	}
	test_edges();
	test_sram();
	return done();
}
