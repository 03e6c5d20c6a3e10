// SPDX-License-Identifier: MIT
/*
 * Experts that come and go: room for them, who has to go, that the table never
 * names a place with other bytes in it, and what storage that fails does.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <npu/npu.h>
#include "../tap.h"
#include "buffer.h"
#include "builder.h"
#include "experts.h"
#include "fake_drm.h"
#include "pool.h"

#define KIB	1024ull
#define MIB	(1ull << 20)
#define LAYERS	4
#define EXPERTS	12
#define TOP	2
#define PLACE	4096

static bool says(const char *text)
{
	return strstr(npu_error(), text);
}

/* ---- A model's experts on the fake driver ---- */

struct trial {
	struct builder b;
	char path[64];
	struct npu_device *device;
	struct npu_pool *pool;
	struct npu_file *file;
	struct npu_preload preload;
	struct npu_layout layout;
	struct npu_experts e;
	uint64_t job;
};

static struct trial t;
static bool always_right;

static uint32_t section_index(uint32_t k)
{
	return npu_file_expert(t.file, k / t.e.experts, k % t.e.experts);
}

/* The bytes that an entry of the table names are its expert's. */
static bool right(const struct drm_m6npu_expert *x)
{
	uint32_t i = section_index(x->layer * t.e.experts + x->expert);

	if (x->state == DRM_M6NPU_EXPERT_ABSENT)
		return !x->addr && !x->size;
	return x->addr >= t.e.span.addr &&
	       x->addr + x->size <= t.e.span.addr + t.e.span.size &&
	       x->size == t.b.sections[i].loaded_bytes &&
	       !memcmp(t.e.span.cpu + (x->addr - t.e.span.addr),
		       t.b.contents[i].loaded, x->size);
}

static bool table_right(void)
{
	uint32_t k;

	for (k = 0; k < fake.layers * fake.per_layer; k++)
		if (fake.experts[k].state && !right(&fake.experts[k]))
			return false;
	return true;
}

/* Nobody was overwritten while in the table, and who gets into it is there. */
static void check_bind(const struct drm_m6npu_expert *entries, uint32_t count)
{
	uint32_t i;

	always_right &= table_right();
	for (i = 0; i < count; i++)
		always_right &= right(&entries[i]);
}

static uint32_t resident(void)
{
	uint32_t k, n = 0;

	for (k = 0; k < FAKE_EXPERTS; k++)
		n += fake.experts[k].state != DRM_M6NPU_EXPERT_ABSENT;
	return n;
}

static void begin(unsigned int layers, unsigned int experts, size_t bytes,
		  uint64_t budget, const char *preload)
{
	struct npu_layout_request request = {
		/* Experts that lie in two buffers. */
		.max_chunk = 4 * KIB + bytes / 2,
		.expert_budget = budget,
	};
	bool good;

	memset(&t, 0, sizeof(t));
	fake_reset();
	always_right = true;
	builder_init_experts(&t.b, layers, experts, bytes);
	builder_place(&t.b);
	builder_seal(&t.b);
	snprintf(t.path, sizeof(t.path), "/tmp/npu-test-experts-%d.npu",
		 getpid());
	builder_write(&t.b, t.path);
	t.device = fake_open();
	good = npu_file_open(t.path, &t.file) == 0 &&
	       npu_preload_init(&t.preload, layers, experts) == 0 &&
	       (!preload || npu_preload_parse(&t.preload, preload,
					      strlen(preload)) == 0) &&
	       npu_layout_plan(&t.layout, t.file, &request) == 0 &&
	       npu_pool_create(t.device, t.layout.pool, 0, 1, &t.pool) == 0 &&
	       npu_experts_init(&t.e, t.pool, t.file, &t.layout,
				&t.preload) == 0;
	if (!good) {
		printf("Bail out! %s\n", npu_error());
		exit(1);
	}
	fake.on_bind = check_bind;
}

static void end(void)
{
	fake.on_bind = NULL;
	npu_experts_clear(&t.e);
	npu_pool_destroy(t.pool);
	npu_preload_clear(&t.preload);
	npu_file_close(t.file);
	fake_close(t.device);
	unlink(t.path);
	builder_clear(&t.b);
}

static int each_counted(void *user, uint64_t bytes)
{
	uint32_t *left = user;

	return *left && !--*left ? -ECANCELED : 0;
}

static int load_all(void)
{
	uint32_t never = 0;

	return npu_experts_load(&t.e, false, each_counted, &never);
}

static void new_job(void)
{
	npu_experts_begin(&t.e, ++t.job);
}

static int fault(uint32_t layer, uint64_t mask)
{
	const struct drm_m6npu_event_expert_fault event = {
		.job = t.job,
		.layer = layer,
		.mask = mask,
	};

	return npu_experts_fault(&t.e, &event);
}

static uint64_t missing_of(uint32_t layer, uint64_t needed)
{
	uint64_t missing = 0;
	uint32_t i;

	for (i = 0; i < t.e.experts; i++)
		if (needed >> i & 1 &&
		    !fake.experts[layer * t.e.experts + i].state)
			missing |= 1ull << i;
	return missing;
}

/* What the device does with a command: tells what is missing, until none is. */
static int command(uint32_t layer, uint64_t needed, unsigned int *turns)
{
	uint64_t missing;
	int ret = 0;

	for (*turns = 0; (missing = missing_of(layer, needed)) && !ret;
	     (*turns)++) {
		if (*turns > 64)
			return -ELOOP;
		ret = fault(layer, missing);
	}
	return ret;
}

static uint64_t pick(uint32_t count, uint32_t experts)
{
	uint64_t mask = 0;

	while (count) {
		uint64_t bit = 1ull << rand() % experts;

		count -= !(mask & bit);
		mask |= bit;
	}
	return mask;
}

/* ---- Room ---- */

static int plan_budget(struct npu_file *file, uint64_t budget,
		       struct npu_layout *l)
{
	struct npu_layout_request request = { .expert_budget = budget };

	return npu_layout_plan(l, file, &request);
}

static void test_budget(void)
{
	struct npu_layout l;

	begin(LAYERS, EXPERTS, 4000, 0, NULL);
	ok(t.layout.places == LAYERS * EXPERTS && !t.layout.place_bytes &&
	   t.layout.step_tokens == UINT32_MAX, "without one there is room for all");
	ok(plan_budget(t.file, TOP * PLACE - 1, &l) == -EINVAL &&
	   says("8192"), "too small: %s", npu_error());
	ok(plan_budget(t.file, TOP * PLACE, &l) == 0 && l.places == TOP &&
	   l.place_bytes == PLACE && l.experts == TOP * PLACE &&
	   l.step_tokens == 1, "the least: one token a step");
	ok(plan_budget(t.file, 11 * PLACE, &l) == 0 && l.step_tokens == 5,
	   "more: as many tokens as have room in any case");
	ok(plan_budget(t.file, 12 * PLACE + 77, &l) == 0 && l.places == 12 &&
	   l.step_tokens == UINT32_MAX, "a whole layer: any step");
	ok(l.pool < t.layout.pool, "the pool is smaller");
	ok(plan_budget(t.file, MIB, &l) == 0 && !l.place_bytes &&
	   l.places == LAYERS * EXPERTS, "more than all take: each its own");
	end();
}

/* ---- Who has to go ---- */

static void init_places(struct npu_places *p, uint32_t count)
{
	static uint16_t permille[LAYERS * EXPERTS];
	const struct npu_places_request request = {
		.layers = LAYERS,
		.experts = EXPERTS,
		.experts_per_token = TOP,
		.count = count,
		.bytes = PLACE,
		.permille = permille,
	};
	uint32_t k;

	for (k = 0; k < LAYERS * EXPERTS; k++)
		permille[k] = 500;
	if (npu_places_init(p, &request))
		exit(1);
}

/* Makes the command of @layer that waits take places for @count experts. */
static uint32_t enter(struct npu_places *p, uint32_t layer, uint32_t first,
		      uint32_t count)
{
	uint32_t k, victim = NPU_NOWHERE;

	npu_places_wait(p, layer);
	for (k = 0; k < count; k++) {
		npu_places_missed(p, layer * EXPERTS + first + k);
		if (npu_places_take(p, layer * EXPERTS + first + k, &victim) ==
		    NPU_NOWHERE)
			return NPU_NOWHERE;
	}
	return victim;
}

static void test_layers(void)
{
	uint32_t at, layer, victim;
	struct npu_places p;
	bool good = true;

	for (at = 0; at < LAYERS; at++) {
		init_places(&p, LAYERS * 2);
		npu_places_begin(&p);
		for (layer = 0; layer < LAYERS; layer++)
			enter(&p, layer, 0, 2);
		npu_places_begin(&p);
		victim = enter(&p, at, 5, 1);
		good &= victim / EXPERTS == (at + LAYERS - 1) % LAYERS;
		npu_places_clear(&p);
	}
	ok(good, "of equals, the layer just done goes first");
}

static void test_pins(void)
{
	struct npu_places p;
	uint32_t k, victim, pinned = 0;

	init_places(&p, 4);
	for (k = 0; k < 3; k++)
		p.uses[k].pinned = true;
	npu_places_begin(&p);
	enter(&p, 0, 0, 4);
	for (k = 1; k < 9; k++) {
		npu_places_begin(&p);
		victim = enter(&p, 1 + k % 3, k, 1);
		pinned += p.uses[victim].pinned;
	}
	ok(!pinned, "pinned ones stay as long as there are others");
	npu_places_begin(&p);
	victim = enter(&p, 3, 9, 2);
	ok(victim < 3, "and go when there are none");
	npu_places_clear(&p);
}

static void test_habits(void)
{
	struct npu_places p;
	uint32_t k, victim;

	/* Expert 0 is missed in every step, the others are unknown. */
	init_places(&p, 3);
	for (k = 0; k < 20; k++) {
		npu_places_begin(&p);
		npu_places_wait(&p, 0);
		if (p.uses[0].place == NPU_NOWHERE) {
			npu_places_missed(&p, 0);
			npu_places_take(&p, 0, &victim);
		}
		npu_places_give(&p, 0);
	}
	npu_places_begin(&p);
	enter(&p, 0, 0, 3);
	npu_places_begin(&p);
	victim = enter(&p, 0, 5, 1);
	ok(victim == 1 || victim == 2, "what is often missed stays (%u goes)",
	   victim);
	npu_places_clear(&p);
}

static void test_recency(void)
{
	struct npu_places p;
	uint32_t k, victim;

	init_places(&p, 3);
	npu_places_begin(&p);
	enter(&p, 0, 0, 3);
	for (k = 0; k < 10; k++)
		npu_places_begin(&p);
	p.uses[0].since = p.step;
	p.uses[2].since = p.step;
	ok(enter(&p, 0, 5, 1) == 1, "of equals, what came long ago goes first");
	npu_places_clear(&p);
	/* A priority is a chance before anything is known. */
	init_places(&p, 3);
	for (k = 0; k < 3; k++)
		p.uses[k].prior *= k == 2 ? 0.2 : 1.8;
	npu_places_begin(&p);
	enter(&p, 0, 0, 3);
	npu_places_begin(&p);
	victim = enter(&p, 0, 5, 1);
	ok(victim == 2, "and what has the lowest priority");
	npu_places_clear(&p);
}

static void test_same_command(void)
{
	struct npu_places p;
	uint32_t victim;

	init_places(&p, 3);
	npu_places_begin(&p);
	ok(enter(&p, 0, 0, 3) == NPU_NOWHERE && p.free_count == 0 &&
	   npu_places_take(&p, 5, &victim) == NPU_NOWHERE,
	   "nobody goes for the command they came for");
	ok(enter(&p, 1, 0, 1) < EXPERTS, "but for the next");
	npu_places_clear(&p);
}

/* ---- Bytes and table ---- */

static void test_all_resident(void)
{
	begin(LAYERS, EXPERTS, 4000, 0, NULL);
	ok(load_all() == 0 && resident() == LAYERS * EXPERTS && table_right(),
	   "with room for all, all are there");
	ok(t.e.figures.loads == LAYERS * EXPERTS && !t.e.figures.faults,
	   "and counted");
	end();
}

static void test_load_order(void)
{
	static const char config[] =
		"{\"expert_preload\":[{\"expert_id\":7,\"layer\":2,"
		"\"priority\":0.95},{\"expert_id\":3,\"priority\":0.7}]}";
	uint32_t count, stop = 3;
	uint64_t bytes;

	begin(LAYERS, EXPERTS, 4000, 4 * PLACE, config);
	npu_experts_chosen(&t.e, false, &count, &bytes);
	ok(count == 4 && bytes > 3 * 3800, "as many are loaded as have room");
	ok(load_all() == 0 && resident() == 4 && table_right() &&
	   fake.experts[2 * EXPERTS + 7].state == DRM_M6NPU_EXPERT_PINNED &&
	   fake.experts[3].state == DRM_M6NPU_EXPERT_RESIDENT,
	   "the most important");
	end();
	begin(LAYERS, EXPERTS, 4000, 9 * PLACE, config);
	npu_experts_chosen(&t.e, true, &count, &bytes);
	ok(count == 5, "or those that are named");
	ok(npu_experts_load(&t.e, true, each_counted, &stop) == -ECANCELED,
	   "loading can be stopped");
	end();
}

static void test_random(uint32_t places, unsigned int seed)
{
	uint32_t top = places < EXPERTS ? places : EXPERTS;
	unsigned int turns, worst = 0, step;
	bool good = true;
	int ret = 0;

	srand(seed);
	begin(LAYERS, EXPERTS, 4000, places * PLACE, NULL);
	good &= load_all() == 0 && resident() == places;
	for (step = 0; step < 60 && good; step++) {
		new_job();
		for (uint32_t layer = 0; layer < LAYERS && good; layer++) {
			uint64_t needed = pick(1 + rand() % top, EXPERTS);

			ret = command(layer, needed, &turns);
			worst = turns > worst ? turns : worst;
			good = !ret && table_right() && resident() <= places &&
			       t.e.figures.resident == resident();
		}
	}
	ok(good && always_right,
	   "%u places: the table names the right bytes (%d, %u faults, %u turns at most)",
	   places, ret, (unsigned int)t.e.figures.faults, worst);
	ok(t.e.figures.loads == t.e.figures.faults + places &&
	   t.e.figures.evictions == t.e.figures.faults &&
	   t.e.figures.stall_ns, "figures");
	end();
}

static void test_old_faults(void)
{
	unsigned int turns;

	begin(LAYERS, EXPERTS, 4000, 4 * PLACE, NULL);
	new_job();
	ok(command(0, 0xf, &turns) == 0 && turns == 1, "one turn for free places");
	t.job--;
	ok(fault(1, 0xff0) == 0 && t.e.figures.faults == 4,
	   "a fault of an older job is passed over");
	t.job++;
	ok(fault(0, 0x3) == 0 && t.e.figures.faults == 4,
	   "and one that was answered");
	ok(fault(LAYERS, 1) == -EIO, "a layer that is not there: %s",
	   npu_error());
	ok(fault(1, 0xff0) == -ENOSPC && says("budget") && resident() == 4 &&
	   table_right(), "more than there is room for: %s", npu_error());
	ok(command(1, 0x6, &turns) == 0 && always_right, "the next is fine");
	end();
}

/* ---- What fails ---- */

static void test_bind_fails(void)
{
	unsigned int turns;

	begin(LAYERS, EXPERTS, 4000, 4 * PLACE, NULL);
	load_all();
	new_job();
	fake.fail_request = DRM_IOCTL_M6NPU_EXPERT_BIND;
	fake.fail_error = -ENODEV;
	fake.fail_after = 0;
	ok(fault(1, 0x3) == -ENODEV && resident() == 4 && table_right() &&
	   t.e.figures.resident == 4, "making room fails: all stay (%s)",
	   npu_error());
	fake.fail_after = 1;
	ok(fault(1, 0x3) == -ENODEV && resident() == 2 && table_right() &&
	   t.e.figures.resident == 2, "binding fails: the places are free (%s)",
	   npu_error());
	ok(command(1, 0x3, &turns) == 0 && resident() == 4 && always_right,
	   "and get used");
	end();
}

static void overwrite(uint32_t k, const void *data, size_t size)
{
	uint64_t at = t.b.sections[section_index(k)].offset;
	int fd = open(t.path, O_WRONLY);

	if (fd < 0 || pwrite(fd, data, size, (off_t)at) != (ssize_t)size)
		exit(1);
	close(fd);
}

static void test_altered(void)
{
	uint32_t i;
	unsigned int turns;

	/* Raw, LZ4 and zstd. */
	for (i = 0; i < 3; i++) {
		uint32_t k = EXPERTS + i;
		uint8_t *stored;
		char name[32];

		begin(LAYERS, EXPERTS, 4000, 4 * PLACE, NULL);
		load_all();
		stored = t.b.contents[section_index(k)].stored;
		snprintf(name, sizeof(name), "expert 1.%u", i);
		overwrite(k, "altered", 7);
		new_job();
		ok(fault(1, 1u << i | 1u << 5) == -EBADMSG && says(name) &&
		   table_right() && !fake.experts[k].state &&
		   fake.experts[EXPERTS + 5].state,
		   "altered while in use, and only that one: %s", npu_error());
		overwrite(k, stored, 7);
		new_job();
		ok(command(1, 1u << i | 0x60, &turns) == 0 && always_right &&
		   t.e.figures.resident == resident(), "repaired");
		end();
	}
}

static void test_truncated(void)
{
	unsigned int turns;

	begin(LAYERS, EXPERTS, 4000, 4 * PLACE, NULL);
	load_all();
	if (truncate(t.path, (off_t)t.b.sections[
			section_index(3 * EXPERTS)].offset + 100))
		exit(1);
	new_job();
	ok(fault(3, 1) == -EBADMSG && says("truncated") && says("expert 3.0") &&
	   table_right(), "truncated: %s", npu_error());
	new_job();
	ok(command(1, 3, &turns) == 0 && always_right, "what is there works");
	end();
}

/* ---- Shards of several pieces ---- */

struct arrivals {
	uint32_t n, stop_after;
	bool in_order;
	struct npu_shard *list;
};

static int arrive(void *user, struct npu_shard *shard)
{
	struct arrivals *a = user;

	a->in_order &= shard == &a->list[a->n++];
	return a->n == a->stop_after ? -ECANCELED : 0;
}

static void test_large(void)
{
	const size_t bytes = 3 * MIB + 12345;
	struct npu_shard list[6] = { 0 };
	struct arrivals a = { .in_order = true, .list = list };
	bool good = true;
	uint32_t k;

	begin(2, 3, bytes, 2 * (bytes + 4096), NULL);
	for (k = 0; k < 6; k++) {
		list[k].section = section_index(k);
		list[k].cap = t.b.sections[list[k].section].loaded_bytes;
		list[k].dst = malloc(list[k].cap);
	}
	ok(npu_shards_read(t.e.shards, list, 6, arrive, &a) == 0 && a.n == 6 &&
	   a.in_order, "all arrive, in order");
	for (k = 0; k < 6; k++)
		good &= !list[k].error &&
			!memcmp(list[k].dst,
				t.b.contents[list[k].section].loaded,
				list[k].cap);
	ok(good, "with the right bytes");
	a = (struct arrivals){ .in_order = true, .list = list,
			       .stop_after = 2 };
	ok(npu_shards_read(t.e.shards, list, 6, arrive, &a) == -ECANCELED &&
	   a.n == 2, "and can be stopped");
	for (k = 0; k < 6; k++)
		free(list[k].dst);
	end();
}

int main(void)
{
	static const uint32_t places[] = { 2, 3, 5, 11, 12, 17, 40 };
	unsigned int i;

	test_budget();
	test_layers();
	test_pins();
	test_habits();
	test_recency();
	test_same_command();
	test_all_resident();
	test_load_order();
	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		test_random(places[i], i);
	test_old_faults();
	test_bind_fails();
	test_altered();
	test_truncated();
	test_large();
	return done();
}
