// SPDX-License-Identifier: GPL-2.0-only
/*
 * The router cache: what it keeps, for whom, what it forgets when experts move,
 * what it counts, and how it is set.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "board.h"
#include "kselftest_harness.h"
#include "moe.h"

#define ENTRIES	 128
#define ABSENT	 DRM_M6NPU_EXPERT_ABSENT
#define RESIDENT DRM_M6NPU_EXPERT_RESIDENT
#define PINNED	 DRM_M6NPU_EXPERT_PINNED
/* Commands of a list that takes a while. */
#define PREFETCHES 8192
#define AT(member) M6NPU_OPERAND(0, offsetof(struct moe_tensors, member))

static int router_ctl(int fd, uint32_t flags, uint32_t value,
		      struct drm_m6npu_router_ctl *ctl)
{
	*ctl = (struct drm_m6npu_router_ctl){
		.flags = flags, .policy = value, .threshold = value,
	};
	return board_ioctl(fd, DRM_IOCTL_M6NPU_ROUTER_CTL, ctl);
}

static int set_policy(int fd, uint32_t policy)
{
	struct drm_m6npu_router_ctl ctl;

	return router_ctl(fd, DRM_M6NPU_ROUTER_SET_POLICY, policy, &ctl);
}

static uint32_t quota(int fd)
{
	struct drm_m6npu_router_ctl ctl;

	return router_ctl(fd, 0, 0, &ctl) ? 0 : ctl.quota;
}

FIXTURE(router)
{
	struct moe moe;
	struct drm_m6npu_job_info info;
};

FIXTURE_SETUP(router)
{
	int fd = board_open();

	self->moe.fd = -1;
	if (fd < 0)
		SKIP(return, "no M6 NPU");
	EXPECT_EQ(0, set_policy(fd, DRM_M6NPU_ROUTER_POLICY_LRU));
	close(fd);
}

FIXTURE_TEARDOWN(router)
{
	if (self->moe.fd >= 0)
		set_policy(self->moe.fd, DRM_M6NPU_ROUTER_POLICY_LRU);
	moe_close(&self->moe);
}

/* Runs experts of layer 0 and says what the lookups were. */
#define EXPECT_RUN(moe, first, count, hits, misses)                       \
	do {                                                              \
		ASSERT_EQ(0, moe_run(moe, 0, first, count, &self->info)); \
		EXPECT_EQ(0, self->info.error);                           \
		EXPECT_EQ(hits, self->info.router_hits);                  \
		EXPECT_EQ(misses, self->info.router_misses);              \
		EXPECT_TRUE(moe_right(moe, 0));                           \
	} while (0)

/* ---- Policies ---- */

TEST_F(router, off)
{
	struct moe *moe = &self->moe;

	ASSERT_EQ(0, moe_open(moe, 1, 16));
	ASSERT_EQ(0, moe_bind(moe, 0, 0, 16, RESIDENT));
	ASSERT_EQ(0, set_policy(moe->fd, DRM_M6NPU_ROUTER_POLICY_OFF));
	EXPECT_RUN(moe, 0, 16, 0, 16);
	EXPECT_RUN(moe, 0, 16, 0, 16);
}

/* What was not used for longest makes room. */
TEST_F(router, lru)
{
	struct moe *moe = &self->moe;

	ASSERT_EQ(0, moe_open(moe, 1, ENTRIES + 16));
	ASSERT_EQ(0, moe_bind(moe, 0, 0, ENTRIES + 16, RESIDENT));
	EXPECT_RUN(moe, 0, ENTRIES, 0, ENTRIES);
	EXPECT_RUN(moe, 0, ENTRIES, ENTRIES, 0);
	EXPECT_RUN(moe, 0, 16, 16, 0);
	EXPECT_RUN(moe, ENTRIES, 16, 0, 16);
	EXPECT_RUN(moe, 0, 16, 16, 0);
	EXPECT_RUN(moe, 16, 16, 0, 16);
}

/* What has the lowest priority makes room, however lately it was used. */
TEST_F(router, priority)
{
	struct drm_m6npu_expert entries[ENTRIES + 16];
	struct moe *moe = &self->moe;

	ASSERT_EQ(0, moe_open(moe, 1, ENTRIES + 16));
	ASSERT_EQ(0, set_policy(moe->fd,
				DRM_M6NPU_ROUTER_POLICY_PRIORITY_LRU));
	for (uint32_t i = 0; i < ENTRIES + 16; i++) {
		entries[i] = moe_entry(moe, 0, i, RESIDENT);
		entries[i].priority = i < 16 ? 1000 : 10;
	}
	ASSERT_EQ(0, moe_bind_entries(moe, entries, ENTRIES + 16));
	EXPECT_RUN(moe, 0, 16, 0, 16);
	EXPECT_RUN(moe, 16, ENTRIES - 16, 0, ENTRIES - 16);
	EXPECT_RUN(moe, ENTRIES, 16, 0, 16);
	EXPECT_RUN(moe, 0, 16, 16, 0);
	EXPECT_RUN(moe, 16, 16, 0, 16);
}

/* A change of priority alone is heard. */
TEST_F(router, new_priority)
{
	struct drm_m6npu_expert entry;
	struct moe *moe = &self->moe;

	ASSERT_EQ(0, moe_open(moe, 1, ENTRIES + 16));
	ASSERT_EQ(0, set_policy(moe->fd,
				DRM_M6NPU_ROUTER_POLICY_PRIORITY_LRU));
	ASSERT_EQ(0, moe_bind(moe, 0, 0, ENTRIES + 16, RESIDENT));
	EXPECT_RUN(moe, 0, ENTRIES, 0, ENTRIES);
	entry = moe_entry(moe, 0, 0, RESIDENT);
	entry.priority = 5;
	ASSERT_EQ(0, moe_bind_entries(moe, &entry, 1));
	EXPECT_RUN(moe, 0, 1, 0, 1);
	EXPECT_RUN(moe, 1, ENTRIES - 1, ENTRIES - 1, 0);
	EXPECT_RUN(moe, ENTRIES, 16, 0, 16);
	EXPECT_RUN(moe, 0, 1, 1, 0);
}

/* All entries are pinned: said once a job, in the log, and results are right. */
TEST_F(router, full)
{
	struct drm_m6npu_event_expert_fault event;
	struct drm_m6npu_router_ctl before, ctl;
	struct moe *moe = &self->moe;
	int log = board_log();

	ASSERT_LE(0, log);
	ASSERT_EQ(0, moe_open(moe, 1, ENTRIES + 16));
	ASSERT_EQ(0, moe_bind(moe, 0, 0, ENTRIES, PINNED));
	ASSERT_EQ(0, moe_bind(moe, 0, ENTRIES, 16, RESIDENT));
	EXPECT_RUN(moe, 0, ENTRIES, 0, ENTRIES);
	ASSERT_EQ(0, router_ctl(moe->fd, 0, 0, &before));
	EXPECT_EQ(ENTRIES, before.entries);
	EXPECT_EQ(ENTRIES, before.pinned);
	EXPECT_EQ(-ETIME, board_event(moe->fd, DRM_M6NPU_EVENT_ROUTER_FULL, 0,
				      &event, sizeof(event)));
	for (int i = 0; i < 2; i++) {
		EXPECT_RUN(moe, ENTRIES, 16, 0, 16);
		ASSERT_EQ((int)sizeof(event),
			  board_event(moe->fd, DRM_M6NPU_EVENT_ROUTER_FULL,
				      BOARD_TIMEOUT_MS, &event,
				      sizeof(event)));
		EXPECT_EQ(moe->job.args.job, event.job);
		EXPECT_EQ(0, event.layer);
		EXPECT_EQ(ENTRIES, event.expert_base);
		EXPECT_EQ(1, event.mask);
	}
	EXPECT_EQ(-ETIME, board_event(moe->fd, DRM_M6NPU_EVENT_ROUTER_FULL, 0,
				      &event, sizeof(event)));
	EXPECT_RUN(moe, 0, ENTRIES, ENTRIES, 0);
	ASSERT_EQ(0, router_ctl(moe->fd, 0, 0, &ctl));
	EXPECT_EQ(before.full + 32, ctl.full);
	EXPECT_TRUE(board_log_has(log, "expert_router_cache_miss: cache full"));
	close(log);
	/* With half of the pins gone there is room. */
	ASSERT_EQ(0, moe_bind(moe, 0, 0, ENTRIES / 2, RESIDENT));
	EXPECT_RUN(moe, ENTRIES, 16, 0, 16);
	EXPECT_RUN(moe, ENTRIES, 16, 16, 0);
}

/* ---- What is forgotten ---- */

/* One that goes takes nobody with it. */
TEST_F(router, unbind_one)
{
	struct moe *moe = &self->moe;

	ASSERT_EQ(0, moe_open(moe, 1, 100));
	ASSERT_EQ(0, moe_bind(moe, 0, 0, 100, RESIDENT));
	EXPECT_RUN(moe, 0, 100, 0, 100);
	ASSERT_EQ(0, moe_bind(moe, 0, 7, 1, ABSENT));
	EXPECT_RUN(moe, 8, 92, 92, 0);
	EXPECT_RUN(moe, 0, 7, 7, 0);
	ASSERT_EQ(0, moe_bind(moe, 0, 7, 1, RESIDENT));
	EXPECT_RUN(moe, 0, 100, 99, 1);
	/* Nor do as many as are dropped one by one. */
	ASSERT_EQ(0, moe_bind(moe, 0, 10, 32, ABSENT));
	EXPECT_RUN(moe, 50, 50, 50, 0);
	ASSERT_EQ(0, moe_bind(moe, 0, 10, 32, RESIDENT));
	EXPECT_RUN(moe, 0, 100, 68, 32);
}

/* Whatever number goes elsewhere at once, none is found where it was. */
TEST_F(router, moves)
{
	static const uint32_t counts[] = { 1, 31, 32, 33, 100 };
	struct drm_m6npu_expert entries[100];
	struct moe *moe = &self->moe;

	ASSERT_EQ(0, moe_open(moe, 2, 100));
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		ASSERT_EQ(0, moe_bind(moe, 0, 0, 100, RESIDENT));
		ASSERT_EQ(0, moe_run(moe, 0, 0, 100, &self->info));
		EXPECT_TRUE(moe_right(moe, 0));
		/* Twice what it is, where layer 1's experts are. */
		for (uint32_t e = 0; e < counts[i]; e++) {
			float *to = moe_weights(moe, 1, e);

			for (uint32_t f = 0; f < MOE_FLOATS; f++)
				to[f] = 2 * moe_weights(moe, 0, e)[f];
			entries[e] = moe_entry(moe, 1, e, PINNED);
			entries[e].layer = 0;
		}
		ASSERT_EQ(0, moe_bind_entries(moe, entries, counts[i]));
		ASSERT_EQ(0, moe_run(moe, 0, 0, counts[i], &self->info));
		EXPECT_EQ(0, self->info.error);
		for (uint32_t e = 0; e < counts[i]; e++)
			EXPECT_TRUE(moe_row_right(moe, 0, e,
						  moe_weights(moe, 1, e)));
	}
}

static int list_prefetches(struct moe *moe, uint32_t count, struct buffer *list)
{
	static struct m6npu_cmd cmds[PREFETCHES];

	for (uint32_t i = 0; i < count; i++) {
		cmds[i] = (struct m6npu_cmd){
			.opcode = M6NPU_OP_EXPERT_PREFETCH,
			.operand = { AT(ids), AT(ones), M6NPU_OPERAND_NONE,
				     M6NPU_OPERAND_NONE },
			.args.moe = { .rows = 1, .k = 1,
				      .experts = (uint16_t)moe->experts },
		};
	}
	return board_list(moe->fd, moe->pool, cmds, count, list);
}

/*
 * An expert that comes and goes again in one call, many times, while a job looks
 * for it all the time: it isn't found where it was.
 */
TEST_F(router, comes_and_goes)
{
	struct drm_m6npu_expert entries[1000];
	struct drm_m6npu_router_ctl ctl;
	struct moe *moe = &self->moe;
	struct buffer list;

	ASSERT_EQ(0, moe_open(moe, 2, 4));
	for (uint32_t i = 0; i < 1000; i++)
		entries[i] = moe_entry(moe, 0, 0, i % 2 ? ABSENT : RESIDENT);
	ASSERT_EQ(0, list_prefetches(moe, PREFETCHES, &list));
	moe_route(moe, 0, 1);
	moe_job(moe, &list, 0, PREFETCHES, &moe->job);
	ASSERT_EQ(0, board_submit(moe->fd, &moe->job));
	do {
		ASSERT_EQ(0, moe_bind_entries(moe, entries, 1000));
	} while (board_wait(moe->fd, &moe->job, 0, &self->info));
	EXPECT_EQ(0, self->info.error);
	ASSERT_EQ(0, router_ctl(moe->fd, 0, 0, &ctl));
	EXPECT_EQ(0, ctl.entries);
	entries[0] = moe_entry(moe, 1, 0, RESIDENT);
	entries[0].layer = 0;
	ASSERT_EQ(0, moe_bind_entries(moe, entries, 1));
	ASSERT_EQ(0, moe_run(moe, 0, 0, 1, &self->info));
	EXPECT_TRUE(moe_row_right(moe, 0, 0, moe_weights(moe, 1, 0)));
}

/* INVALIDATE is for the caller's own entries. */
TEST_F(router, invalidate)
{
	struct drm_m6npu_router_ctl ctl;
	struct moe *moe = &self->moe;
	struct moe other;

	ASSERT_EQ(0, moe_open(moe, 1, 20));
	ASSERT_EQ(0, moe_open(&other, 1, 20));
	ASSERT_EQ(0, moe_bind(moe, 0, 0, 20, RESIDENT));
	ASSERT_EQ(0, moe_bind(&other, 0, 0, 20, RESIDENT));
	EXPECT_RUN(moe, 0, 20, 0, 20);
	EXPECT_RUN(&other, 0, 20, 0, 20);
	ASSERT_EQ(0, router_ctl(other.fd, DRM_M6NPU_ROUTER_INVALIDATE, 0,
				&ctl));
	EXPECT_RUN(moe, 0, 20, 20, 0);
	EXPECT_RUN(&other, 0, 20, 0, 20);
	moe_close(&other);
}

/* ---- Fairness ---- */

/* One that works through 200 experts doesn't push out another's 40. */
TEST_F(router, fair)
{
	struct drm_m6npu_reset reset = { 0 };
	struct moe *moe = &self->moe;
	struct moe glutton;

	ASSERT_EQ(0, moe_open(moe, 1, 40));
	EXPECT_EQ(ENTRIES, quota(moe->fd));
	ASSERT_EQ(0, moe_open(&glutton, 1, 200));
	EXPECT_EQ(ENTRIES / 2, quota(moe->fd));
	ASSERT_EQ(0, moe_bind(moe, 0, 0, 40, RESIDENT));
	/* Pins don't help him. */
	ASSERT_EQ(0, moe_bind(&glutton, 0, 0, 200, RESIDENT));
	ASSERT_EQ(0, moe_bind(&glutton, 0, 0, 100, PINNED));
	for (int resets = 0; resets < 2; resets++) {
		ASSERT_EQ(0, moe_run(&glutton, 0, 0, 200, &self->info));
		EXPECT_RUN(moe, 0, 40, 0, 40);
		for (int i = 0; i < 3; i++) {
			ASSERT_EQ(0, moe_run(&glutton, 0, 0, 200,
					     &self->info));
			EXPECT_EQ(0, self->info.error);
			EXPECT_TRUE(moe_right(&glutton, 0));
			EXPECT_RUN(moe, 0, 40, 40, 0);
		}
		ASSERT_EQ(0, board_ioctl(moe->fd, DRM_IOCTL_M6NPU_RESET,
					 &reset));
	}
	moe_close(&glutton);
	EXPECT_EQ(ENTRIES, quota(moe->fd));
}

/* A table that goes, or its file, gives its share back. */
TEST_F(router, quota)
{
	struct drm_m6npu_expert_table none = { 0 }, table = { 1, 1 };
	int a = board_open(), b = board_open(), c = board_open();

	EXPECT_EQ(ENTRIES, quota(a));
	EXPECT_EQ(0, board_ioctl(a, DRM_IOCTL_M6NPU_EXPERT_TABLE, &table));
	EXPECT_EQ(0, board_ioctl(b, DRM_IOCTL_M6NPU_EXPERT_TABLE, &table));
	EXPECT_EQ(0, board_ioctl(c, DRM_IOCTL_M6NPU_EXPERT_TABLE, &table));
	EXPECT_EQ(ENTRIES / 3, quota(a));
	EXPECT_EQ(0, board_ioctl(c, DRM_IOCTL_M6NPU_EXPERT_TABLE, &none));
	EXPECT_EQ(0, board_ioctl(c, DRM_IOCTL_M6NPU_EXPERT_TABLE, &none));
	EXPECT_EQ(ENTRIES / 2, quota(a));
	EXPECT_EQ(-EEXIST, board_ioctl(b, DRM_IOCTL_M6NPU_EXPERT_TABLE,
				       &table));
	EXPECT_EQ(ENTRIES / 2, quota(a));
	close(b);
	EXPECT_EQ(ENTRIES, quota(a));
	close(a);
	close(c);
}

/* A file that goes takes its entries along, even if a buffer of it stays. */
TEST_F(router, leaves)
{
	struct drm_m6npu_router_ctl ctl;
	struct moe *moe = &self->moe;
	int fd = board_open(), exported;

	ASSERT_EQ(0, moe_open(moe, 1, 30));
	ASSERT_EQ(0, moe_bind(moe, 0, 0, 30, PINNED));
	EXPECT_RUN(moe, 0, 30, 0, 30);
	exported = board_export(moe->fd, &moe->weights);
	ASSERT_LE(0, exported);
	ASSERT_EQ(0, router_ctl(fd, 0, 0, &ctl));
	EXPECT_EQ(30, ctl.pinned);
	moe_close(moe);
	ASSERT_EQ(0, router_ctl(fd, 0, 0, &ctl));
	EXPECT_EQ(0, ctl.entries);
	EXPECT_EQ(0, ctl.pinned);
	close(exported);
	close(fd);
}

/* ---- Layers ---- */

static int layer_stats(int fd, struct drm_m6npu_layer_stats *stats,
		       uint32_t first, uint32_t *count)
{
	struct drm_m6npu_layer_stats_get args = {
		.entries = (uintptr_t)stats,
		.count = *count,
		.stride = sizeof(*stats),
		.first = first,
	};
	int ret = board_ioctl(fd, DRM_IOCTL_M6NPU_LAYER_STATS, &args);

	*count = args.count;
	return ret;
}

/* Each layer has what the jobs had that ran in it. */
TEST_F(router, layers)
{
	struct drm_m6npu_layer_stats stats[4], sum[3] = { 0 };
	struct drm_m6npu_router_ctl before, ctl;
	struct moe *moe = &self->moe;
	uint32_t count = 4, evictions = 0;

	ASSERT_EQ(0, moe_open(moe, 3, 200));
	for (uint32_t i = 0; i < 3; i++)
		ASSERT_EQ(0, moe_bind(moe, i, 0, 200, RESIDENT));
	ASSERT_EQ(0, router_ctl(moe->fd, 0, 0, &before));
	for (uint32_t i = 0; i < 20; i++) {
		uint32_t layer = i % 3;

		ASSERT_EQ(0, moe_run(moe, layer, i * 5, 10 + i, &self->info));
		EXPECT_EQ(0, self->info.error);
		sum[layer].hits += self->info.router_hits;
		sum[layer].misses += self->info.router_misses;
	}
	memset(stats, 0xff, sizeof(stats));
	ASSERT_EQ(0, layer_stats(moe->fd, stats, 0, &count));
	EXPECT_EQ(3, count);
	for (uint32_t i = 0; i < 3; i++) {
		EXPECT_LT(0, stats[i].hits);
		EXPECT_LT(0, stats[i].misses);
		EXPECT_EQ(sum[i].hits, stats[i].hits);
		EXPECT_EQ(sum[i].misses, stats[i].misses);
		EXPECT_EQ(0, stats[i].faults);
		EXPECT_EQ(0, stats[i].full);
		evictions += stats[i].evictions;
	}
	EXPECT_EQ(~0ull, stats[3].hits);
	ASSERT_EQ(0, router_ctl(moe->fd, 0, 0, &ctl));
	EXPECT_LT(0, evictions);
	EXPECT_EQ(ctl.evictions - before.evictions, evictions);
	EXPECT_EQ(ctl.hits - before.hits,
		  stats[0].hits + stats[1].hits + stats[2].hits);
}

/* Faults are counted, too; and the next table begins with nothing. */
TEST_F(router, layer_faults)
{
	struct drm_m6npu_expert_table none = { 0 }, table = { 2, 10 };
	struct drm_m6npu_event_expert_fault event;
	struct drm_m6npu_layer_stats stats[2];
	struct moe *moe = &self->moe;
	uint32_t count = 2;

	ASSERT_EQ(0, moe_open(moe, 2, 10));
	moe_route(moe, 0, 10);
	moe_job(moe, &moe->list, 1, 1, &moe->job);
	ASSERT_EQ(0, board_submit(moe->fd, &moe->job));
	ASSERT_EQ((int)sizeof(event),
		  board_event(moe->fd, DRM_M6NPU_EVENT_EXPERT_FAULT,
			      BOARD_TIMEOUT_MS, &event, sizeof(event)));
	EXPECT_EQ(0x3ff, event.mask);
	ASSERT_EQ(0, moe_bind(moe, 1, 0, 10, RESIDENT));
	ASSERT_EQ(0, board_wait(moe->fd, &moe->job, BOARD_TIMEOUT_MS,
				&self->info));
	EXPECT_EQ(0, self->info.error);
	ASSERT_EQ(0, layer_stats(moe->fd, stats, 0, &count));
	EXPECT_EQ(0, stats[0].misses);
	EXPECT_EQ(10, stats[1].faults);
	EXPECT_EQ(10, self->info.expert_faults);
	EXPECT_EQ(self->info.router_misses, stats[1].misses);
	ASSERT_EQ(0, board_ioctl(moe->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE,
				 &none));
	EXPECT_EQ(-ENXIO, layer_stats(moe->fd, stats, 0, &count));
	ASSERT_EQ(0, board_ioctl(moe->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE,
				 &table));
	ASSERT_EQ(0, layer_stats(moe->fd, stats, 0, &count));
	EXPECT_EQ(2, count);
	EXPECT_EQ(0, stats[1].misses);
	EXPECT_EQ(0, stats[1].faults);
	/* And what comes then goes there. */
	ASSERT_EQ(0, moe_bind(moe, 1, 0, 10, RESIDENT));
	ASSERT_EQ(0, moe_run(moe, 1, 0, 10, &self->info));
	EXPECT_EQ(0, self->info.error);
	ASSERT_EQ(0, layer_stats(moe->fd, stats, 0, &count));
	EXPECT_EQ(10, stats[1].misses);
}

/* Programs that know less, or more, than this kernel. */
TEST_F(router, layer_strides)
{
	struct drm_m6npu_layer_stats stats[2];
	struct drm_m6npu_layer_stats_get args, good = {
		.entries = (uintptr_t)stats,
		.count = 2,
		.stride = sizeof(stats[0]),
	};
	struct {
		struct drm_m6npu_layer_stats known;
		uint64_t later;
	} newer[2];
	struct moe *moe = &self->moe;
	uint64_t hits[2] = { 77, 77 };

#define EXPECT_STATS(error, change)                                       \
	do {                                                              \
		args = good;                                              \
		change;                                                   \
		EXPECT_EQ(error, board_ioctl(moe->fd,                     \
				DRM_IOCTL_M6NPU_LAYER_STATS, &args))      \
		{                                                         \
			TH_LOG("%s", #change);                            \
		}                                                         \
	} while (0)
	ASSERT_EQ(0, moe_open(moe, 2, 8));
	ASSERT_EQ(0, moe_bind(moe, 1, 0, 8, RESIDENT));
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, moe_run(moe, 1, 0, 8, &self->info));
	EXPECT_STATS(0, (void)0);
	EXPECT_EQ(8, stats[1].hits);
	EXPECT_STATS(0, args.entries = (uintptr_t)hits; args.stride = 8);
	EXPECT_EQ(0, hits[0]);
	EXPECT_EQ(8, hits[1]);
	memset(newer, 0xff, sizeof(newer));
	EXPECT_STATS(0, args.entries = (uintptr_t)newer; args.stride = 72);
	EXPECT_EQ(8, newer[1].known.hits);
	EXPECT_EQ(8, newer[1].known.misses);
	EXPECT_EQ(0, newer[1].later);
	/* From the second layer on, and from behind the last. */
	EXPECT_STATS(0, args.first = 1);
	EXPECT_EQ(8, stats[0].hits);
	EXPECT_EQ(2, args.count);
	EXPECT_STATS(0, args.first = ~0u; args.entries = 8);
	EXPECT_EQ(2, args.count);
	EXPECT_STATS(0, args.count = 0; args.entries = 0);
	EXPECT_EQ(2, args.count);
	EXPECT_STATS(-EINVAL, args.stride = 0);
	EXPECT_STATS(-EINVAL, args.stride = 4);
	EXPECT_STATS(-EINVAL, args.stride = 60);
	EXPECT_STATS(-EINVAL, args.stride = 4104);
	EXPECT_STATS(-EINVAL, args.pad = 1);
	EXPECT_STATS(-EFAULT, args.entries = 8);
#undef EXPECT_STATS
}

/* Our lines of debugfs router_layers, with their hits, or -1. */
static int layer_lines(pid_t pid, unsigned long long *hits)
{
	FILE *file = fopen("/sys/kernel/debug/npu/router_layers", "re");
	unsigned long long count;
	char line[512];
	int lines = 0, owner;

	*hits = 0;
	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%*u %d %*s %*u %llu", &owner, &count) != 2 ||
		    owner != pid)
			continue;
		lines++;
		*hits += count;
	}
	fclose(file);
	return lines;
}

TEST_F(router, layer_table)
{
	struct moe *moe = &self->moe;
	unsigned long long hits;

	ASSERT_EQ(0, moe_open(moe, 3, 8));
	EXPECT_EQ(0, layer_lines(getpid(), &hits));
	ASSERT_EQ(0, moe_bind(moe, 0, 0, 8, RESIDENT));
	ASSERT_EQ(0, moe_bind(moe, 2, 0, 8, RESIDENT));
	for (int i = 0; i < 4; i++)
		ASSERT_EQ(0, moe_run(moe, i % 2 * 2, 0, 8, &self->info));
	EXPECT_EQ(2, layer_lines(getpid(), &hits));
	EXPECT_EQ(16, hits);
	moe_close(moe);
	EXPECT_EQ(0, layer_lines(getpid(), &hits));
}

/* ---- sysfs ---- */

static int open_attribute(int fd, const char *name, int flags)
{
	char link[64], node[64], path[128];
	ssize_t bytes;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	bytes = readlink(link, node, sizeof(node) - 1);
	if (bytes < 0)
		return -errno;
	node[bytes] = '\0';
	snprintf(path, sizeof(path),
		 "/sys/class/accel/%s/device/expert_router/%s",
		 strrchr(node, '/') + 1, name);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static bool attribute_is(int fd, const char *name, const char *value)
{
	int file = open_attribute(fd, name, O_RDONLY);
	char text[64] = "";
	ssize_t bytes;

	if (file < 0)
		return false;
	bytes = read(file, text, sizeof(text) - 1);
	close(file);
	return bytes > 0 && text[bytes - 1] == '\n' &&
	       !strncmp(text, value, (size_t)bytes - 1) &&
	       strlen(value) == (size_t)bytes - 1;
}

static bool attribute_equals(int fd, const char *name, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return attribute_is(fd, name, text);
}

static int set_attribute(int fd, const char *name, const char *value)
{
	int file = open_attribute(fd, name, O_WRONLY), ret = 0;

	if (file < 0)
		return file;
	if (write(file, value, strlen(value)) < 0)
		ret = -errno;
	close(file);
	return ret;
}

TEST_F(router, sysfs)
{
	static const char *const policies[] = { "off", "lru", "priority-lru" };
	struct drm_m6npu_router_ctl ctl;
	struct moe *moe = &self->moe;

	ASSERT_EQ(0, moe_open(moe, 1, ENTRIES + 8));
	ASSERT_EQ(0, moe_bind(moe, 0, 0, ENTRIES + 8, RESIDENT));
	ASSERT_EQ(0, moe_bind(moe, 0, 0, 5, PINNED));
	EXPECT_RUN(moe, 0, ENTRIES + 8, 0, ENTRIES + 8);
	EXPECT_RUN(moe, 0, 5, 5, 0);
	ASSERT_EQ(0, router_ctl(moe->fd, 0, 0, &ctl));
	EXPECT_TRUE(attribute_is(moe->fd, "policy", "lru"));
	EXPECT_TRUE(attribute_equals(moe->fd, "threshold", ctl.threshold));
	EXPECT_TRUE(attribute_equals(moe->fd, "quota", ENTRIES));
	EXPECT_TRUE(attribute_equals(moe->fd, "entries", ENTRIES));
	EXPECT_TRUE(attribute_equals(moe->fd, "pinned", 5));
	EXPECT_TRUE(attribute_equals(moe->fd, "hits", ctl.hits));
	EXPECT_TRUE(attribute_equals(moe->fd, "misses", ctl.misses));
	EXPECT_TRUE(attribute_equals(moe->fd, "evictions", ctl.evictions));
	EXPECT_TRUE(attribute_equals(moe->fd, "faults", ctl.faults));
	EXPECT_TRUE(attribute_equals(moe->fd, "full", ctl.full));
	EXPECT_EQ(-EACCES, set_attribute(moe->fd, "hits", "0"));
	for (uint32_t i = 0; i < 3; i++) {
		EXPECT_EQ(0, set_attribute(moe->fd, "policy", policies[i]));
		EXPECT_TRUE(attribute_is(moe->fd, "policy", policies[i]));
		ASSERT_EQ(0, router_ctl(moe->fd, 0, 0, &ctl));
		EXPECT_EQ(i, ctl.policy);
	}
	EXPECT_EQ(0, set_attribute(moe->fd, "policy", "lru\n"));
	EXPECT_EQ(-EINVAL, set_attribute(moe->fd, "policy", "fifo"));
	EXPECT_EQ(-EINVAL, set_attribute(moe->fd, "policy", "1"));
	EXPECT_TRUE(attribute_is(moe->fd, "policy", "lru"));
	EXPECT_EQ(0, set_attribute(moe->fd, "threshold", "300\n"));
	EXPECT_EQ(-EINVAL, set_attribute(moe->fd, "threshold", "1001"));
	EXPECT_EQ(-EINVAL, set_attribute(moe->fd, "threshold", "-1"));
	EXPECT_EQ(-EINVAL, set_attribute(moe->fd, "threshold", "0.5"));
	EXPECT_EQ(-ERANGE, set_attribute(moe->fd, "threshold", "99999999999"));
	EXPECT_TRUE(attribute_equals(moe->fd, "threshold", 300));
	EXPECT_EQ(0, set_attribute(moe->fd, "threshold", "950"));
}

/* What the layer was asked for ahead by a guess of 0.6. */
static uint64_t hints_after(struct moe *moe, struct buffer *list)
{
	struct drm_m6npu_layer_stats stats;
	struct drm_m6npu_job_info info;
	uint32_t count = 1;

	moe_job(moe, list, 0, 1, &moe->job);
	if (board_run(moe->fd, &moe->job, &info) || info.error ||
	    layer_stats(moe->fd, &stats, 0, &count))
		return ~0ull;
	return stats.hints;
}

/* It is the device that compares, with what it was told, also after a reset. */
TEST_F(router, threshold)
{
	struct drm_m6npu_reset reset = { 0 };
	struct drm_m6npu_router_ctl ctl;
	struct moe *moe = &self->moe;
	struct buffer list;

	ASSERT_EQ(0, moe_open(moe, 1, 4));
	ASSERT_EQ(0, list_prefetches(moe, 1, &list));
	moe_route(moe, 0, 1);
	moe->t->ones[0] = 0.6f;
	moe->t->step.flags = M6NPU_STEP_HINTS;
	ASSERT_EQ(0, router_ctl(moe->fd, DRM_M6NPU_ROUTER_SET_THRESHOLD, 700,
				&ctl));
	EXPECT_EQ(700, ctl.threshold);
	EXPECT_EQ(0, hints_after(moe, &list));
	EXPECT_EQ(0, set_attribute(moe->fd, "threshold", "500"));
	EXPECT_EQ(1, hints_after(moe, &list));
	ASSERT_EQ(0, board_ioctl(moe->fd, DRM_IOCTL_M6NPU_RESET, &reset));
	EXPECT_EQ(2, hints_after(moe, &list));
	EXPECT_EQ(0, set_attribute(moe->fd, "threshold", "950"));
	EXPECT_EQ(2, hints_after(moe, &list));
}

/* Settings survive a reset of the device. */
TEST_F(router, reset)
{
	struct drm_m6npu_reset reset = { 0 };
	struct moe *moe = &self->moe;

	ASSERT_EQ(0, moe_open(moe, 1, 8));
	ASSERT_EQ(0, moe_bind(moe, 0, 0, 8, RESIDENT));
	ASSERT_EQ(0, set_policy(moe->fd, DRM_M6NPU_ROUTER_POLICY_OFF));
	ASSERT_EQ(0, board_ioctl(moe->fd, DRM_IOCTL_M6NPU_RESET, &reset));
	EXPECT_RUN(moe, 0, 8, 0, 8);
	EXPECT_RUN(moe, 0, 8, 0, 8);
	ASSERT_EQ(0, set_policy(moe->fd, DRM_M6NPU_ROUTER_POLICY_LRU));
	EXPECT_RUN(moe, 0, 8, 0, 8);
	EXPECT_RUN(moe, 0, 8, 8, 0);
}

TEST_HARNESS_MAIN
