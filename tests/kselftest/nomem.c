// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory that runs out at each place where an ioctl wants some: it fails, leaves
 * nothing behind, and works the next time.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "board.h"
#include "checker.h"
#include "kselftest_harness.h"

#define LARGE (32 * MIB)
/* More than any ioctl has. */
#define MOST_PLACES 64

FIXTURE(nomem)
{
	struct witness witness;
};

FIXTURE_SETUP(nomem)
{
	int fd = board_open();

	if (fd < 0)
		SKIP(return, "no M6 NPU");
	close(fd);
	ASSERT_TRUE(witness_begin_idle(&self->witness));
	if (!board_fail_alloc(0))
		SKIP(return, "no fail_alloc in debugfs");
}

FIXTURE_TEARDOWN(nomem)
{
	EXPECT_TRUE(witness_end(&self->witness));
}

/* What is prepared for an action, and what it makes. */
struct scene {
	int fd, other;
	uint32_t pool;
	struct buffer list, data, out;
	struct job job;
	int file;
	struct drm_m6npu_pool_defrag report;
};

struct action {
	const char *name;
	int (*act)(struct scene *scene);
	void (*undo)(struct scene *scene);
	/* What it may return beside -ENOMEM when an allocation failed. */
	int also;
};

/* ---- The actions ---- */

static int act_open(struct scene *s)
{
	s->file = board_open();
	return s->file < 0 ? -ENOMEM : 0;
}

static void undo_file(struct scene *s)
{
	close(s->file);
}

static int act_pool(struct scene *s)
{
	uint32_t pool;
	int ret = board_pool(s->fd, MIB, &pool);

	s->file = (int)pool;
	return ret;
}

static void undo_pool(struct scene *s)
{
	board_pool_destroy(s->fd, (uint32_t)s->file);
}

static int act_small(struct scene *s)
{
	return board_bo(s->fd, s->pool, PAGE, 0, 0, &s->out);
}

/* On page tables that did not exist. */
static int act_far(struct scene *s)
{
	s->out.addr = 7ull << 35;
	return board_bo(s->fd, s->pool, PAGE, 0, DRM_M6NPU_BO_FIXED_ADDR,
			&s->out);
}

/* On several. */
static int act_large(struct scene *s)
{
	return board_bo(s->fd, s->pool, 2 * LARGE + PAGE, PAGE, 0, &s->out);
}

static void undo_out(struct scene *s)
{
	board_buffer_close(s->fd, &s->out);
}

static int act_table(struct scene *s)
{
	struct drm_m6npu_expert_table table = { .layers = 3, .experts = 5 };

	return board_ioctl(s->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE, &table);
}

static void undo_table(struct scene *s)
{
	struct drm_m6npu_expert_table none = { 0 };

	board_ioctl(s->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE, &none);
}

static int act_bind(struct scene *s)
{
	struct drm_m6npu_expert expert = {
		.state = DRM_M6NPU_EXPERT_RESIDENT,
		.addr = s->data.addr,
		.size = PAGE,
	};
	struct drm_m6npu_expert_bind bind = {
		.entries = (uintptr_t)&expert,
		.count = 1,
		.stride = sizeof(expert),
	};
	int ret;

	/* A table of its own, which can be there already. */
	ret = act_table(s);
	if (ret && ret != -EEXIST)
		return ret;
	return board_ioctl(s->fd, DRM_IOCTL_M6NPU_EXPERT_BIND, &bind);
}

static int act_submit(struct scene *s)
{
	s->job.args.flags = 0;
	return board_submit(s->fd, &s->job);
}

static int act_submit_dma(struct scene *s)
{
	s->job.args.flags = DRM_M6NPU_SUBMIT_DMA_ENGINE;
	return board_submit(s->fd, &s->job);
}

/* On a queue of its own, to a timeline. */
static int act_submit_timeline(struct scene *s)
{
	s->job.args.flags = 0;
	s->job.args.unit_mask = 5;
	s->job.out.flags = DRM_M6NPU_SYNC_TIMELINE;
	s->job.out.point++;
	return board_submit(s->fd, &s->job);
}

static void undo_submit(struct scene *s)
{
	struct drm_m6npu_job_info info;

	if (!s->job.out.point)
		board_wait(s->fd, &s->job, BOARD_TIMEOUT_MS, &info);
}

static int act_import(struct scene *s)
{
	struct drm_prime_handle args = { 0 };
	int dma_buf = board_export(s->fd, &s->data), ret;

	if (dma_buf < 0)
		return dma_buf;
	args.fd = dma_buf;
	ret = board_ioctl(s->other, DRM_IOCTL_PRIME_FD_TO_HANDLE, &args);
	close(dma_buf);
	s->out.handle = args.handle;
	return ret;
}

static void undo_import(struct scene *s)
{
	board_buffer_close(s->other, &s->out);
}

/* Large enough for the device to help; without help it works as well. */
static int act_defrag(struct scene *s)
{
	return board_pool_defrag(s->fd, s->pool, 0, &s->report);
}

static void undo_nothing(struct scene *s)
{
	(void)s;
}

/* ---- Each place, one after another ---- */

static int scene_begin(struct scene *s)
{
	struct m6npu_cmd cmd = cmd_fill(0, 0, PAGE, 6);
	struct buffer first = { 0 };
	int ret;

	*s = (struct scene){ .fd = board_open(), .other = board_open() };
	if (s->fd < 0 || s->other < 0)
		return -ENODEV;
	ret = board_pool(s->fd, 96 * MIB, &s->pool);
	if (!ret)
		ret = board_list(s->fd, s->pool, &cmd, 1, &s->list);
	if (!ret)
		ret = board_bo(s->fd, s->pool, 16 * MIB, 0, 0, &first);
	if (!ret)
		ret = board_buffer(s->fd, s->pool, 8 * MIB, 0, &s->data);
	if (ret)
		return ret;
	board_buffer_close(s->fd, &first);
	contents_write(s->data.map, s->data.size, 17);
	board_job(&s->job, &s->list, 1, &s->data, 1);
	return board_syncobj(s->fd, false, &s->job.out.handle);
}

static void scene_end(struct scene *s)
{
	board_buffer_close(s->fd, &s->data);
	close(s->fd);
	close(s->other);
}

static void fail_each(struct __test_metadata *_metadata,
		      const struct action *action)
{
	struct drm_m6npu_pool_info before, after;
	unsigned int nth, failed = 0;
	struct scene scene;
	bool hit = true;
	int ret;

	for (nth = 1; hit && nth <= MOST_PLACES; nth++) {
		ASSERT_EQ(0, scene_begin(&scene));
		ASSERT_EQ(0, board_pool_info(scene.fd, scene.pool, &before));
		ASSERT_TRUE(board_fail_alloc(nth));
		ret = action->act(&scene);
		hit = board_alloc_failed();
		ASSERT_TRUE(board_fail_alloc(0));
		failed += hit && ret;
		EXPECT_TRUE(!ret ||
			    (hit && (ret == -ENOMEM || ret == action->also)))
		{
			TH_LOG("%s, place %u: %d", action->name, nth, ret);
		}
		/* It works the next time, and in the same place. */
		if (ret) {
			EXPECT_EQ(0, action->act(&scene))
			{
				TH_LOG("%s, after place %u", action->name, nth);
			}
		}
		EXPECT_TRUE(action->act == act_submit ||
			    action->act == act_submit_dma ||
			    action->act == act_submit_timeline ||
			    contents_are(scene.data.map, scene.data.size, 17));
		action->undo(&scene);
		ASSERT_EQ(0, board_pool_info(scene.fd, scene.pool, &after));
		EXPECT_EQ(before.used, after.used);
		EXPECT_EQ(before.buffers, after.buffers);
		scene_end(&scene);
	}
	EXPECT_FALSE(hit);
	TH_LOG("%s: %u places, %u of them made it fail", action->name, nth - 2,
	       failed);
	EXPECT_LT(2, nth);
}

static const struct action actions[] = {
	{ "open", act_open, undo_file },
	/* The last place is where the bus might refuse. */
	{ "POOL_CREATE", act_pool, undo_pool, -EIO },
	{ "BO_CREATE of a page", act_small, undo_out },
	{ "BO_CREATE far off", act_far, undo_out },
	{ "BO_CREATE of many pages", act_large, undo_out },
	{ "EXPERT_TABLE", act_table, undo_table },
	{ "EXPERT_BIND", act_bind, undo_table },
	{ "SUBMIT", act_submit, undo_submit },
	{ "SUBMIT to the DMA engine", act_submit_dma, undo_submit },
	{ "SUBMIT with a timeline", act_submit_timeline, undo_submit },
	{ "import", act_import, undo_import },
	{ "POOL_DEFRAG", act_defrag, undo_nothing },
};

TEST_F_TIMEOUT(nomem, ioctls, 240)
{
	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
		fail_each(_metadata, &actions[i]);
}

TEST_HARNESS_MAIN
