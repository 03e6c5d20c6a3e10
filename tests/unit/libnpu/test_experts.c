// SPDX-License-Identifier: MIT
/*
 * Experts that come and go: room for them, that the table never names a place
 * with other bytes in it, and what storage that fails does.
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
#include "experts_trial.h"
#include "fake_drm.h"
#include "pool.h"

#define MIB	(1ull << 20)

static void begin(uint64_t budget, const char *preload)
{
	const struct trial_options options = {
		.budget = budget,
		.preload = preload,
	};

	trial_begin(&options);
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

	begin(0, NULL);
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
	trial_end();
}

/* ---- Bytes and table ---- */

static void test_all_resident(void)
{
	begin(0, NULL);
	ok(load_all() == 0 && trial_resident() == LAYERS * EXPERTS &&
	   trial_table_right(), "with room for all, all are there");
	ok(t.e.figures.loads == LAYERS * EXPERTS && !t.e.figures.faults,
	   "and counted");
	trial_end();
}

static void test_load_order(void)
{
	static const char config[] =
		"{\"expert_preload\":[{\"expert_id\":7,\"layer\":2,"
		"\"priority\":0.95},{\"expert_id\":3,\"priority\":0.7}]}";
	uint32_t count, stop = 3;
	uint64_t bytes;

	begin(4 * PLACE, config);
	npu_experts_chosen(&t.e, false, &count, &bytes);
	ok(count == 4 && bytes > 3 * 3800, "as many are loaded as have room");
	ok(load_all() == 0 && trial_resident() == 4 && trial_table_right() &&
	   fake.experts[2 * EXPERTS + 7].state == DRM_M6NPU_EXPERT_PINNED &&
	   fake.experts[3].state == DRM_M6NPU_EXPERT_RESIDENT,
	   "the most important");
	trial_end();
	begin(9 * PLACE, config);
	npu_experts_chosen(&t.e, true, &count, &bytes);
	ok(count == 5, "or those that are named");
	ok(npu_experts_load(&t.e, true, each_counted, &stop) == -ECANCELED,
	   "loading can be stopped");
	trial_end();
}

static void test_random(uint32_t places, unsigned int seed)
{
	uint32_t top = places < EXPERTS ? places : EXPERTS;
	unsigned int turns, worst = 0, step;
	bool good = true;
	int ret = 0;

	srand(seed);
	begin(places * PLACE, NULL);
	good &= load_all() == 0 && trial_resident() == places;
	for (step = 0; step < 60 && good; step++) {
		trial_step(1);
		for (uint32_t layer = 0; layer < LAYERS && good; layer++) {
			uint64_t needed = pick(1 + rand() % top, EXPERTS);

			ret = trial_command(layer, needed, &turns);
			worst = turns > worst ? turns : worst;
			good = !ret && trial_table_right() &&
			       trial_resident() <= places &&
			       t.e.figures.resident == trial_resident();
		}
	}
	ok(good && t.always_right,
	   "%u places: the table names the right bytes (%d, %u faults, %u turns at most)",
	   places, ret, (unsigned int)t.e.figures.faults, worst);
	ok(t.e.figures.loads == t.e.figures.faults + places &&
	   t.e.figures.evictions == t.e.figures.faults &&
	   t.e.figures.stall_ns, "figures");
	trial_end();
}

static void test_old_faults(void)
{
	unsigned int turns;

	begin(4 * PLACE, NULL);
	trial_step(1);
	ok(trial_command(0, 0xf, &turns) == 0 && turns == 1, "one turn for free places");
	t.job--;
	ok(trial_fault(1, 0xff0) == 0 && t.e.figures.faults == 4,
	   "a fault of an older job is passed over");
	t.job++;
	ok(trial_fault(0, 0x3) == 0 && t.e.figures.faults == 4,
	   "and one that was answered");
	ok(trial_fault(LAYERS, 1) == -EIO, "a layer that is not there: %s",
	   npu_error());
	ok(trial_fault(1, 0xff0) == -ENOSPC && says("budget") && trial_resident() == 4 &&
	   trial_table_right(), "more than there is room for: %s", npu_error());
	ok(trial_command(1, 0x6, &turns) == 0 && t.always_right, "the next is fine");
	trial_end();
}

/* ---- What fails ---- */

static void test_bind_fails(void)
{
	unsigned int turns;

	begin(4 * PLACE, NULL);
	load_all();
	trial_step(1);
	fake.fail_request = DRM_IOCTL_M6NPU_EXPERT_BIND;
	fake.fail_error = -ENODEV;
	fake.fail_after = 0;
	ok(trial_fault(1, 0x3) == -ENODEV && trial_resident() == 4 &&
	   trial_table_right() && t.e.figures.resident == 4, "making room fails: all stay (%s)",
	   npu_error());
	fake.fail_after = 1;
	ok(trial_fault(1, 0x3) == -ENODEV && trial_resident() == 2 &&
	   trial_table_right() && t.e.figures.resident == 2, "binding fails: the places are free (%s)",
	   npu_error());
	ok(trial_command(1, 0x3, &turns) == 0 && trial_resident() == 4 &&
	   t.always_right, "and get used");
	trial_end();
}

static void overwrite(uint32_t k, const void *data, size_t size)
{
	uint64_t at = t.b.sections[trial_section(k)].offset;
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

		begin(4 * PLACE, NULL);
		load_all();
		stored = t.b.contents[trial_section(k)].stored;
		snprintf(name, sizeof(name), "expert 1.%u", i);
		overwrite(k, "altered", 7);
		trial_step(1);
		ok(trial_fault(1, 1u << i | 1u << 5) == -EBADMSG &&
		   says(name) && trial_table_right() && !fake.experts[k].state &&
		   fake.experts[EXPERTS + 5].state,
		   "altered while in use, and only that one: %s", npu_error());
		overwrite(k, stored, 7);
		trial_step(1);
		ok(trial_command(1, 1u << i | 0x60, &turns) == 0 &&
		   t.always_right && t.e.figures.resident == trial_resident(), "repaired");
		trial_end();
	}
}

static void test_truncated(void)
{
	unsigned int turns;

	begin(4 * PLACE, NULL);
	load_all();
	if (truncate(t.path, (off_t)t.b.sections[
			trial_section(3 * EXPERTS)].offset + 100))
		exit(1);
	trial_step(1);
	ok(trial_fault(3, 1) == -EBADMSG && says("truncated") && says("expert 3.0") &&
	   trial_table_right(), "truncated: %s", npu_error());
	trial_step(1);
	ok(trial_command(1, 3, &turns) == 0 && t.always_right, "what is there works");
	trial_end();
}

/* ---- Larger than a buffer may be ---- */

static uint64_t largest_buffer(void)
{
	uint64_t largest = 0;
	unsigned int i;

	for (i = 0; i < FAKE_BUFFERS; i++)
		if (fake.buffers[i].handle && fake.buffers[i].size > largest)
			largest = fake.buffers[i].size;
	return largest;
}

static void test_split(void)
{
	/* Places of three pages, in buffers of two. */
	const struct trial_options options = {
		.bytes = 9000,
		.budget = 9 * 3 * PLACE,
	};
	unsigned int turns, step;
	bool good = true;

	trial_begin(&options);
	good = load_all() == 0 && t.e.places.bytes == 3 * PLACE &&
	       t.layout.chunk == 2 * PLACE;
	for (step = 0; step < 20 && good; step++) {
		trial_step(1);
		good = trial_command(step % LAYERS, pick(TOP, EXPERTS),
				     &turns) == 0 && trial_table_right();
	}
	ok(good && t.always_right && t.e.figures.evictions,
	   "experts larger than a buffer may be are split");
	ok(largest_buffer() == t.layout.chunk, "and no buffer is larger");
	trial_end();
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
	const struct trial_options options = {
		.layers = 2,
		.experts = 3,
		.bytes = bytes,
		.budget = 2 * (bytes + 4096),
	};
	struct npu_shard list[6] = { 0 };
	struct arrivals a = { .in_order = true, .list = list };
	bool good = true;
	uint32_t k;

	trial_begin(&options);
	for (k = 0; k < 6; k++) {
		list[k].section = trial_section(k);
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
	trial_end();
}

int main(void)
{
	static const uint32_t places[] = { 2, 3, 5, 11, 12, 17, 40 };
	unsigned int i;

	test_budget();
	test_all_resident();
	test_load_order();
	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		test_random(places[i], i);
	test_old_faults();
	test_bind_fails();
	test_altered();
	test_truncated();
	test_split();
	test_large();
	return done();
}
