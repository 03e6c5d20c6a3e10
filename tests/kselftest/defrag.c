// SPDX-License-Identifier: GPL-2.0-only
/*
 * Defragmentation: buffers are moved while everything else goes on, and nobody
 * sees more of it than that free memory is in one piece.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "board.h"
#include "checker.h"
#include "kselftest_harness.h"
#include "tenant.h"

#define LARGE	  (32 * MIB)
#define POOL_SIZE (48 * MIB)

FIXTURE(defrag)
{
	int fd;
	uint32_t pool;
	struct witness witness;
};

FIXTURE_SETUP(defrag)
{
	self->fd = board_open();
	if (self->fd < 0)
		SKIP(return, "no M6 NPU");
	ASSERT_TRUE(witness_begin_idle(&self->witness));
	/* A job that waits here waits until it is told. */
	ASSERT_TRUE(board_set_parameter("expert_timeout_ms", 60000));
	ASSERT_EQ(0, board_pool(self->fd, POOL_SIZE, &self->pool));
}

FIXTURE_TEARDOWN(defrag)
{
	if (self->fd < 0)
		return;
	close(self->fd);
	EXPECT_TRUE(witness_end(&self->witness));
}

/* Pages, each behind a hole of its own. */
static int pages_behind_holes(int fd, uint32_t pool, uint64_t hole,
			      struct buffer *page, unsigned int count)
{
	struct buffer filler[4] = { 0 };
	int ret = 0;

	for (unsigned int i = 0; !ret && i < count; i++) {
		ret = board_bo(fd, pool, hole, 0, 0, &filler[i]);
		if (!ret)
			ret = board_buffer(fd, pool, PAGE, 0, &page[i]);
		if (!ret)
			contents_write(page[i].map, PAGE, page[i].addr);
	}
	/* All at the end, or the first hole would be filled again. */
	for (unsigned int i = 0; i < count; i++)
		board_buffer_close(fd, &filler[i]);
	return ret;
}

static bool page_is_right(const struct buffer *page)
{
	return contents_are(page->map, PAGE, page->addr);
}

/* ---- What is refused ---- */

TEST_F(defrag, refused)
{
	struct drm_m6npu_pool_defrag report;
	int other = board_open();

	ASSERT_LE(0, other);
	for (int bit = 1; bit < 32; bit++)
		EXPECT_EQ(-EINVAL, board_pool_defrag(self->fd, self->pool,
						     1u << bit, &report));
	EXPECT_EQ(-ENOENT, board_pool_defrag(self->fd, 0, 0, &report));
	EXPECT_EQ(-ENOENT,
		  board_pool_defrag(self->fd, self->pool + 1, 0, &report));
	EXPECT_EQ(-ENOENT, board_pool_defrag(self->fd, UINT32_MAX, 0, &report));
	EXPECT_EQ(-ENOENT, board_pool_defrag(other, self->pool, 0, &report));
	EXPECT_EQ(0, board_pool_defrag(self->fd, self->pool,
				       DRM_M6NPU_DEFRAG_NO_DRAIN, &report));
	close(other);
}

/* An empty pool, and one without holes: nothing to do, and told so. */
TEST_F(defrag, nothing_to_do)
{
	struct drm_m6npu_pool_defrag report;
	struct buffer buffer;

	for (int i = 0; i < 2; i++) {
		uint64_t free = POOL_SIZE - i * MIB;

		memset(&report, 0xff, sizeof(report));
		report.pool = self->pool;
		report.flags = 0;
		EXPECT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_POOL_DEFRAG,
					 &report));
		EXPECT_EQ(free, report.largest_before);
		EXPECT_EQ(free, report.largest_after);
		EXPECT_EQ(free, report.free);
		EXPECT_EQ(0, report.moved);
		EXPECT_EQ(0, report.copied);
		EXPECT_EQ(0, report.copied_device);
		EXPECT_EQ(0, report.pause_ns);
		EXPECT_EQ(0, report.buffers);
		EXPECT_EQ(0, report.stayed);
		ASSERT_EQ(0,
			  board_bo(self->fd, self->pool, MIB, 0, 0, &buffer));
	}
}

/* ---- Contents ---- */

#define BUFFERS 600

/* By the device: all into one buffer, one after another. */
static int tenants_by_device(int fd, uint32_t pool, struct tenant *tenants)
{
	struct buffer region[2];
	int ret = board_buffer(fd, pool, 64 * PAGE, 0, &region[1]);

	for (int i = 0; !ret && i < BUFFERS; i++) {
		uint64_t size = tenants[i].buffer.size;

		if (!size)
			continue;
		region[0] = tenants[i].buffer;
		ret = board_command(fd, pool, cmd_copy(1, 0, 0, 0, size),
				    region, 2);
		if (!ret && !contents_are(region[1].map, size, tenants[i].seed))
			ret = -EILSEQ;
	}
	board_buffer_close(fd, &region[1]);
	return ret;
}

/* The first that the device may only read: it still may not write it. */
static int write_to_readonly(int fd, uint32_t pool,
			     const struct tenant *tenants)
{
	while (!tenants->readonly || !tenants->buffer.handle)
		tenants++;
	return board_command(fd, pool, cmd_fill(0, 0, PAGE, 1),
			     &tenants->buffer, 1);
}

/* Many of random size, of which some go each time: thousands of moves. */
TEST_F_TIMEOUT(defrag, contents, 240)
{
	static struct tenant tenants[BUFFERS];
	struct drm_m6npu_pool_defrag report;
	struct drm_m6npu_pool_info before, after;
	unsigned int moves = 0, rounds = 0;
	struct rng rng = { 7 };

	while (moves < 2500 && rounds < 40) {
		for (int i = 0; i < BUFFERS; i++) {
			struct tenant *tenant = &tenants[i];

			if (tenant->buffer.handle && rng_one_in(&rng, 2))
				tenant_move_out(self->fd, tenant);
		}
		ASSERT_EQ(0, board_pool_info(self->fd, self->pool, &before));
		ASSERT_EQ(0,
			  board_pool_defrag(self->fd, self->pool, 0, &report));
		ASSERT_EQ(0, board_pool_info(self->fd, self->pool, &after));
		EXPECT_EQ(before.largest_free, report.largest_before);
		EXPECT_EQ(after.largest_free, report.largest_after);
		EXPECT_EQ(before.size - before.used, report.free);
		EXPECT_EQ(before.used, after.used);
		EXPECT_EQ(before.buffers, after.buffers);
		/* Small pages everywhere: all that is free, in one piece. */
		EXPECT_EQ(report.free, report.largest_after);
		EXPECT_EQ(report.moved, report.copied);
		EXPECT_GE(report.copied, report.copied_device);
		EXPECT_LE(report.buffers * PAGE, report.moved);
		EXPECT_LE(report.pause_ns, report.time_ns);
		EXPECT_EQ(0, report.stayed);
		EXPECT_EQ(!report.buffers, !report.pause_ns);
		for (int i = 0; i < BUFFERS; i++)
			if (tenants[i].buffer.handle)
				ASSERT_TRUE(
					tenant_is_right(self->fd, &tenants[i]));
		for (int i = 0; i < BUFFERS; i++)
			if (!tenants[i].buffer.handle)
				ASSERT_EQ(0,
					  tenant_move_in(self->fd, self->pool,
							 &tenants[i], &rng));
		moves += report.buffers;
		rounds++;
	}
	TH_LOG("%u moves in %u rounds", moves, rounds);
	EXPECT_LE(2500, moves);
	for (int i = 0; i < BUFFERS; i += 2)
		tenant_move_out(self->fd, &tenants[i]);
	EXPECT_EQ(0, board_pool_defrag(self->fd, self->pool, 0, &report));
	EXPECT_LT(0, report.buffers);
	EXPECT_EQ(0, tenants_by_device(self->fd, self->pool, tenants));
	EXPECT_EQ(-EFAULT, write_to_readonly(self->fd, self->pool, tenants));
	for (int i = 0; i < BUFFERS; i++)
		tenant_move_out(self->fd, &tenants[i]);
}

/*
 * What the CPU writes after a move is what the device reads, and back. The
 * device has used both where they were, and nothing else makes it forget.
 */
TEST_F(defrag, writes_after)
{
	struct m6npu_cmd cmd = cmd_copy(1, 0, 0, 0, PAGE);
	struct drm_m6npu_pool_defrag report;
	struct drm_m6npu_job_info info;
	struct buffer region[2], list;
	struct job job;

	ASSERT_EQ(0, pages_behind_holes(self->fd, self->pool, 3 * PAGE, region,
					2));
	ASSERT_EQ(0, board_list(self->fd, self->pool, &cmd, 1, &list));
	for (uint64_t moved = 0; moved < 2; moved++) {
		contents_write(region[0].map, PAGE, 1234 + moved);
		board_job(&job, &list, 1, region, 2);
		/* The same unit, with what it remembers. */
		job.args.unit_mask = 1;
		ASSERT_EQ(0, board_run(self->fd, &job, &info));
		EXPECT_EQ(0, info.error);
		EXPECT_TRUE(contents_are(region[1].map, PAGE, 1234 + moved));
		if (moved)
			break;
		ASSERT_EQ(0,
			  board_pool_defrag(self->fd, self->pool, 0, &report));
		EXPECT_LE(2, report.buffers);
	}
	for (int i = 0; i < 2; i++)
		board_buffer_close(self->fd, &region[i]);
}

/* Mappings of every process follow. */
TEST_F(defrag, forked_mapping)
{
	struct drm_m6npu_pool_defrag report;
	int to_child[2], from_child[2], status;
	struct buffer page, out;
	char byte = 0;
	pid_t child;

	ASSERT_EQ(0, pipe(to_child));
	ASSERT_EQ(0, pipe(from_child));
	ASSERT_EQ(0, pages_behind_holes(self->fd, self->pool, MIB, &page, 1));
	child = fork();
	if (!child) {
		bool good = page_is_right(&page);

		/* Touched before, and after. */
		if (write(from_child[1], "x", 1) != 1 ||
		    read(to_child[0], &byte, 1) != 1)
			_exit(1);
		good &= page_is_right(&page);
		contents_write(page.map, PAGE, 99);
		_exit(good ? 0 : 2);
	}
	ASSERT_EQ(1, read(from_child[0], &byte, 1));
	ASSERT_EQ(0, board_pool_defrag(self->fd, self->pool, 0, &report));
	EXPECT_EQ(1, report.buffers);
	EXPECT_TRUE(page_is_right(&page));
	ASSERT_EQ(1, write(to_child[1], "x", 1));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_TRUE(WIFEXITED(status));
	EXPECT_EQ(0, WEXITSTATUS(status));
	EXPECT_TRUE(contents_are(page.map, PAGE, 99));
	/* It is not that both have kept the old place. */
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, PAGE, 0, &out));
	ASSERT_EQ(0, board_command(self->fd, self->pool,
				   cmd_copy(1, 0, 0, 0, PAGE),
				   (struct buffer[]){ page, out }, 2));
	EXPECT_TRUE(contents_are(out.map, PAGE, 99));
	board_buffer_close(self->fd, &out);
	board_buffer_close(self->fd, &page);
}

/*
 * Large ones go by the device, if they overlap not or by steps that are large,
 * and by the CPU if that is quicker, or if need be.
 */
static void large_moves(struct __test_metadata *_metadata, int fd,
			uint32_t pool, bool device)
{
	static const struct {
		uint64_t distance;
		bool device;
	} cases[] = {
		{ 24 * MIB, true },
		{ 5 * MIB, true },
		{ 3 * PAGE, false },
	};
	struct drm_m6npu_pool_defrag report;
	struct buffer first, second;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ASSERT_EQ(0,
			  board_bo(fd, pool, cases[i].distance, 0, 0, &first));
		ASSERT_EQ(0, board_buffer(fd, pool, 8 * MIB, 0, &second));
		contents_write(second.map, second.size, 5 + i);
		board_buffer_close(fd, &first);
		ASSERT_EQ(0, board_pool_defrag(fd, pool, 0, &report));
		EXPECT_EQ(1, report.buffers);
		EXPECT_EQ(8 * MIB, report.moved);
		EXPECT_EQ(8 * MIB, report.copied);
		EXPECT_EQ(device && cases[i].device ? 8 * MIB : 0,
			  report.copied_device);
		TH_LOG("by %llu KiB: %llu us",
		       (long long)cases[i].distance / 1024,
		       (long long)report.time_ns / 1000);
		EXPECT_TRUE(contents_are(second.map, second.size, 5 + i));
		board_buffer_close(fd, &second);
	}
}

TEST_F(defrag, large)
{
	large_moves(_metadata, self->fd, self->pool, true);
}

/* No address space is left for the device's help. */
TEST_F(defrag, large_without_device)
{
	int fds[80], count = 0;

	while (count < 80) {
		fds[count] = board_open();
		if (fds[count] < 0)
			break;
		count++;
	}
	large_moves(_metadata, self->fd, self->pool, false);
	while (count)
		close(fds[--count]);
}

/* ---- What was not used ---- */

TEST_F(defrag, unused)
{
	struct buffer first, lazy, dirt;
	struct drm_m6npu_pool_defrag report;

	ASSERT_EQ(0, board_bo(self->fd, self->pool, 40 * MIB, 0, 0, &dirt));
	ASSERT_EQ(0, board_command(self->fd, self->pool,
				   cmd_fill(0, 0, dirt.size, 0xa5a5a5a5), &dirt,
				   1));
	board_buffer_close(self->fd, &dirt);
	ASSERT_EQ(0, board_bo(self->fd, self->pool, 8 * MIB, 0, 0, &first));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, 16 * MIB, 0, &lazy));
	board_buffer_close(self->fd, &first);
	ASSERT_EQ(0, board_pool_defrag(self->fd, self->pool, 0, &report));
	EXPECT_EQ(1, report.buffers);
	EXPECT_EQ(16 * MIB, report.moved);
	EXPECT_EQ(0, report.copied);
	EXPECT_EQ(32 * MIB, report.largest_after);
	EXPECT_EQ(0, board_ready(self->fd, &lazy));
	EXPECT_TRUE(bytes_are(lazy.map, lazy.size, 0));
	EXPECT_EQ((int64_t)lazy.size, board_ready(self->fd, &lazy));
	board_buffer_close(self->fd, &lazy);
}

/* Only the piece that was used is copied, the others are zeros afterwards. */
TEST_F(defrag, partly_used)
{
	struct drm_m6npu_pool_defrag report;
	struct drm_m6npu_bo_info info;
	struct buffer first, buffer, region[2];
	uint8_t *bytes;
	uint32_t pool;

	ASSERT_EQ(0, board_pool(self->fd, 160 * MIB, &pool));
	ASSERT_EQ(0, board_bo(self->fd, pool, LARGE, LARGE, 0, &first));
	ASSERT_EQ(0, board_buffer(self->fd, pool, 2 * LARGE, 0, &buffer));
	ASSERT_EQ(0, board_bo_info(self->fd, buffer.handle, &info));
	EXPECT_EQ(LARGE, info.align);
	bytes = buffer.map;
	contents_write(bytes + LARGE, LARGE, 3);
	board_buffer_close(self->fd, &first);
	ASSERT_EQ(0, board_pool_defrag(self->fd, pool, 0, &report));
	EXPECT_EQ(1, report.buffers);
	EXPECT_EQ(2 * LARGE, report.moved);
	EXPECT_EQ(LARGE, report.copied);
	EXPECT_EQ(report.free, report.largest_after);
	EXPECT_EQ((int64_t)LARGE, board_ready(self->fd, &buffer));
	EXPECT_TRUE(contents_are(bytes + LARGE, LARGE, 3));
	/* It keeps its alignment, and the device its large pages. */
	ASSERT_EQ(0, board_bo_info(self->fd, buffer.handle, &info));
	EXPECT_EQ(LARGE, info.align);
	EXPECT_EQ(buffer.addr, info.addr);
	region[0] = buffer;
	ASSERT_EQ(0, board_buffer(self->fd, pool, LARGE, 0, &region[1]));
	ASSERT_EQ(0, board_command(self->fd, pool,
				   cmd_copy(1, 0, 0, LARGE, LARGE), region, 2));
	EXPECT_TRUE(contents_are(region[1].map, LARGE, 3));
	EXPECT_TRUE(bytes_are(bytes, LARGE, 0));
	board_buffer_close(self->fd, &buffer);
	board_buffer_close(self->fd, &region[1]);
}

/* ---- Lists, experts, shared buffers ---- */

TEST_F(defrag, sealed)
{
	struct m6npu_cmd cmd = cmd_fill(0, 0, PAGE, 77);
	struct drm_m6npu_pool_defrag report;
	struct drm_m6npu_job_info info;
	struct buffer first, list, data;
	struct job job;

	ASSERT_EQ(0, board_buffer(self->fd, self->pool, PAGE, 0, &data));
	ASSERT_EQ(0, board_bo(self->fd, self->pool, MIB, 0, 0, &first));
	ASSERT_EQ(0, board_list(self->fd, self->pool, &cmd, 1, &list));
	for (int moved = 0; moved < 2; moved++) {
		memset(data.map, 0, PAGE);
		board_job(&job, &list, 1, &data, 1);
		ASSERT_EQ(0, board_run(self->fd, &job, &info));
		EXPECT_EQ(0, info.error);
		EXPECT_EQ(77, *(uint32_t *)data.map);
		if (moved)
			break;
		board_buffer_close(self->fd, &first);
		ASSERT_EQ(0,
			  board_pool_defrag(self->fd, self->pool, 0, &report));
		EXPECT_EQ(1, report.buffers);
	}
	/* It is still nothing that the device may write. */
	EXPECT_EQ(-EFAULT, board_command(self->fd, self->pool,
					 cmd_fill(0, 0, PAGE, 1), &list, 1));
	board_buffer_close(self->fd, &data);
}

/* A stall's expert is bound after the move that its buffer made meanwhile. */
TEST_F(defrag, experts)
{
	enum { HIDDEN = 32, FFN = 32 };
	struct drm_m6npu_expert_table table = { .layers = 1, .experts = 1 };
	struct drm_m6npu_expert expert = {
		.state = DRM_M6NPU_EXPERT_PINNED,
		.size = 3 * HIDDEN * FFN * sizeof(float),
	};
	struct drm_m6npu_expert_bind bind = {
		.entries = (uintptr_t)&expert,
		.count = 1,
		.stride = sizeof(expert),
	};
	struct m6npu_cmd cmd = { .opcode = M6NPU_OP_MOE_FFN };
	struct drm_m6npu_pool_defrag report;
	struct buffer first, weights, data;
	float *at, before[HIDDEN];

	ASSERT_EQ(0,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE, &table));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, PAGE, 0, &data));
	ASSERT_EQ(0, board_bo(self->fd, self->pool, MIB, 0, 0, &first));
	ASSERT_EQ(0,
		  board_buffer(self->fd, self->pool, expert.size, 0, &weights));
	for (uint32_t i = 0; i < expert.size / sizeof(float); i++)
		((float *)weights.map)[i] = (float)(i % 13) / 64 - 0.05f;
	expert.addr = weights.addr;
	ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_BIND, &bind));
	at = data.map;
	for (uint32_t i = 0; i < HIDDEN; i++)
		at[256 + i] = (float)i / 8;
	at[768] = 1;
	for (uint64_t i = 0; i < 4; i++)
		cmd.operand[i] = M6NPU_OPERAND(0, i * 1024);
	cmd.args.moe.rows = 1;
	cmd.args.moe.k = 1;
	cmd.args.moe.experts = 1;
	cmd.args.moe.hidden = HIDDEN;
	cmd.args.moe.ffn = FFN;
	ASSERT_EQ(0, board_command(self->fd, self->pool, cmd, &data, 1));
	memcpy(before, at, sizeof(before));
	EXPECT_FALSE(bytes_are(before, sizeof(before), 0));
	board_buffer_close(self->fd, &first);
	ASSERT_EQ(0, board_pool_defrag(self->fd, self->pool, 0, &report));
	EXPECT_LE(1, report.buffers);
	/* Where it was is somebody else's now. */
	ASSERT_EQ(0, board_bo(self->fd, self->pool, 2 * MIB, 0, 0, &first));
	ASSERT_EQ(0, board_command(self->fd, self->pool,
				   cmd_fill(0, 0, 2 * MIB, 0x41414141), &first,
				   1));
	memset(at, 0, sizeof(before));
	ASSERT_EQ(0, board_command(self->fd, self->pool, cmd, &data, 1));
	EXPECT_EQ(0, memcmp(before, at, sizeof(before)));
	board_buffer_close(self->fd, &weights);
	board_buffer_close(self->fd, &data);
}

/* What others may have mapped stays, also when they let go. */
TEST_F(defrag, exported_stays)
{
	struct drm_m6npu_pool_defrag report;
	struct buffer page[2];
	int dma_buf;

	ASSERT_EQ(0, pages_behind_holes(self->fd, self->pool, MIB, page, 2));
	dma_buf = board_export(self->fd, &page[0]);
	ASSERT_LE(0, dma_buf);
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(0,
			  board_pool_defrag(self->fd, self->pool, 0, &report));
		EXPECT_EQ(1, report.stayed);
		EXPECT_EQ(i ? 0 : 1, report.buffers);
		/* The one in front of it is what is left below. */
		EXPECT_EQ(report.free - MIB + PAGE, report.largest_after);
		if (!i)
			close(dma_buf);
	}
	for (int i = 0; i < 2; i++) {
		EXPECT_TRUE(page_is_right(&page[i]));
		board_buffer_close(self->fd, &page[i]);
	}
	EXPECT_EQ(0, board_pool_defrag(self->fd, self->pool, 0, &report));
	EXPECT_EQ(0, report.stayed);
}

/* ---- Jobs that run ---- */

TEST_F(defrag, no_drain)
{
	struct drm_m6npu_pool_defrag report;
	struct buffer page;
	struct stall stall;

	ASSERT_EQ(0, pages_behind_holes(self->fd, self->pool, MIB, &page, 1));
	ASSERT_EQ(0, board_stall(self->fd, self->pool, &stall));
	EXPECT_EQ(-EBUSY,
		  board_pool_defrag(self->fd, self->pool,
				    DRM_M6NPU_DEFRAG_NO_DRAIN, &report));
	/* The report says what was done. */
	EXPECT_EQ(0, report.buffers);
	EXPECT_LT(0, report.free);
	EXPECT_EQ(report.largest_before, report.largest_after);
	EXPECT_LT(0, report.largest_before);
	EXPECT_EQ(0, board_stall_end(self->fd, &stall));
	EXPECT_EQ(0, board_pool_defrag(self->fd, self->pool,
				       DRM_M6NPU_DEFRAG_NO_DRAIN, &report));
	EXPECT_EQ(1, report.buffers);
	EXPECT_EQ(report.free, report.largest_after);
	EXPECT_TRUE(page_is_right(&page));
	board_buffer_close(self->fd, &page);
}

/* A job that does not end keeps its buffers, those of others are moved. */
TEST_F(defrag, stuck)
{
	struct drm_m6npu_pool_defrag report;
	struct buffer mine[2], theirs, filler;
	struct drm_m6npu_pool_info info;
	int other = board_open();
	struct stall stall;
	uint32_t pool;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, board_persistent_pool(self->fd, POOL_SIZE, 0, &pool));
	ASSERT_EQ(0, pages_behind_holes(self->fd, pool, MIB, mine, 2));
	ASSERT_EQ(0, board_bo(self->fd, pool, 2 * MIB, 0, 0, &filler));
	ASSERT_EQ(0, board_buffer(other, pool, 2 * MIB, 0, &theirs));
	contents_write(theirs.map, theirs.size, 8);
	board_buffer_close(self->fd, &filler);
	ASSERT_EQ(0, board_stall(other, pool, &stall));
	ASSERT_EQ(0, board_pool_info(other, pool, &info));
	EXPECT_EQ(0, board_pool_defrag(self->fd, pool, 0, &report));
	TH_LOG("%.3f s, paused %.3f s, %u moved, %u stayed",
	       (double)report.time_ns * 1e-9, (double)report.pause_ns * 1e-9,
	       report.buffers, report.stayed);
	EXPECT_LE(1, report.buffers);
	EXPECT_EQ(info.buffers - 2, report.stayed);
	EXPECT_LE(1900000000, report.time_ns);
	EXPECT_GE(8000000000, report.time_ns);
	for (int i = 0; i < 2; i++)
		EXPECT_TRUE(page_is_right(&mine[i]));
	EXPECT_TRUE(contents_are(theirs.map, theirs.size, 8));
	/* It waits for its expert as if nothing had been. */
	EXPECT_EQ(0, board_stall_end(other, &stall));
	EXPECT_EQ(0, board_pool_defrag(self->fd, pool, 0, &report));
	EXPECT_EQ(0, report.stayed);
	EXPECT_EQ(report.free, report.largest_after);
	EXPECT_TRUE(contents_are(theirs.map, theirs.size, 8));
	for (int i = 0; i < 2; i++)
		board_buffer_close(self->fd, &mine[i]);
	board_buffer_close(other, &theirs);
	close(other);
	EXPECT_EQ(0, board_pool_destroy(self->fd, pool));
}

struct caller {
	int fd;
	uint32_t pool;
	atomic_int tid;
	struct drm_m6npu_pool_defrag report;
	int ret;
};

static void *caller_run(void *arg)
{
	struct caller *c = arg;

	c->report = (struct drm_m6npu_pool_defrag){ .pool = c->pool };
	atomic_store(&c->tid, gettid());
	/* Not restarted. */
	c->ret = ioctl(c->fd, DRM_IOCTL_M6NPU_POOL_DEFRAG, &c->report);
	if (c->ret)
		c->ret = -errno;
	return NULL;
}

static void on_signal(int number)
{
	(void)number;
}

TEST_F(defrag, interrupted)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct caller c = { .fd = self->fd, .pool = self->pool };
	struct drm_m6npu_pool_defrag report;
	struct buffer page;
	struct stall stall;
	pthread_t thread;

	ASSERT_EQ(0, sigaction(SIGUSR1, &action, NULL));
	ASSERT_EQ(0, pages_behind_holes(self->fd, self->pool, MIB, &page, 1));
	ASSERT_EQ(0, board_stall(self->fd, self->pool, &stall));
	ASSERT_EQ(0, pthread_create(&thread, NULL, caller_run, &c));
	while (!atomic_load(&c.tid))
		sched_yield();
	ASSERT_TRUE(board_thread_waits(atomic_load(&c.tid)));
	pthread_kill(thread, SIGUSR1);
	pthread_join(thread, NULL);
	EXPECT_EQ(-EINTR, c.ret);
	EXPECT_EQ(0, c.report.buffers);
	EXPECT_LT(0, c.report.largest_before);
	EXPECT_EQ(c.report.largest_before, c.report.largest_after);
	EXPECT_LT(0, c.report.time_ns);
	EXPECT_GT(1900000000, c.report.time_ns);
	EXPECT_EQ(0, board_stall_end(self->fd, &stall));
	EXPECT_EQ(0, board_pool_defrag(self->fd, self->pool, 0, &report));
	EXPECT_EQ(1, report.buffers);
	board_buffer_close(self->fd, &page);
}

/* A job that is submitted meanwhile waits its turn, and sees nothing of it. */
TEST_F(defrag, submit_waits)
{
	struct caller c = { .fd = self->fd, .pool = self->pool };
	struct m6npu_cmd cmd = cmd_fill(0, 0, PAGE, 4);
	struct drm_m6npu_job_info info;
	struct buffer page, list;
	struct stall stall;
	pthread_t thread;
	struct job job;

	ASSERT_EQ(0, board_list(self->fd, self->pool, &cmd, 1, &list));
	ASSERT_EQ(0, pages_behind_holes(self->fd, self->pool, MIB, &page, 1));
	ASSERT_EQ(0, board_stall(self->fd, self->pool, &stall));
	ASSERT_EQ(0, pthread_create(&thread, NULL, caller_run, &c));
	while (!atomic_load(&c.tid))
		sched_yield();
	ASSERT_TRUE(board_thread_waits(atomic_load(&c.tid)));
	/* The gate opens when the job in front turns out not to end. */
	board_job(&job, &list, 1, &page, 1);
	ASSERT_EQ(0, board_submit(self->fd, &job));
	EXPECT_EQ(0, board_stall_end(self->fd, &stall));
	ASSERT_EQ(0, board_wait(self->fd, &job, BOARD_TIMEOUT_MS, &info));
	EXPECT_EQ(0, info.error);
	EXPECT_EQ(4, *(uint32_t *)page.map);
	pthread_join(thread, NULL);
	EXPECT_EQ(0, c.ret);
	board_buffer_close(self->fd, &page);
}

/* ---- Several segments ---- */

/* Blocks come down from the highest segment, which can then be given back. */
TEST_F_TIMEOUT(defrag, segments, 240)
{
	struct drm_m6npu_pool_create args = {
		.size = board_area_size(self->fd) + 128 * MIB,
		.max_segments = 16,
	};
	struct drm_m6npu_pool_defrag report;
	struct drm_m6npu_pool_info info;
	struct drm_m6npu_pool_flush flush;
	const uint64_t step = args.size / 64 / MIB * MIB;
	struct buffer low[80], high[4];
	unsigned int count = 0, highs = 0;

	if (board_ioctl(self->fd, DRM_IOCTL_M6NPU_POOL_CREATE, &args))
		SKIP(return, "the machine's memory is too small");
	ASSERT_EQ(0, board_pool_info(self->fd, args.pool, &info));
	ASSERT_LT(1, info.segments);
	/* From the lowest segment up, and nothing of it is used. */
	while (count < 80 &&
	       !board_bo(self->fd, args.pool, step, PAGE, 0, &low[count]))
		count++;
	ASSERT_LT(8, count);
	ASSERT_GT(80, count);
	/* The last ones, of the highest, hold something. */
	for (; highs < 4; highs++) {
		high[highs] = low[--count];
		ASSERT_EQ(0, board_map(self->fd, &high[highs]));
		contents_write(high[highs].map, MIB, highs);
	}
	while (count)
		board_buffer_close(self->fd, &low[--count]);
	ASSERT_EQ(0, board_pool_defrag(self->fd, args.pool, 0, &report));
	EXPECT_LE(4, report.buffers);
	ASSERT_EQ(0, board_pool_flush(self->fd, args.pool, &flush));
	TH_LOG("%u segments, %llu MiB released of %llu", info.segments,
	       (long long)(flush.released / MIB), (long long)(info.size / MIB));
	ASSERT_EQ(0, board_pool_info(self->fd, args.pool, &info));
	EXPECT_EQ(1, info.segments);
	EXPECT_EQ(args.size - flush.released, info.size);
	EXPECT_EQ(info.size - 4 * step, info.largest_free);
	for (uint64_t i = 0; i < highs; i++) {
		EXPECT_TRUE(contents_are(high[i].map, MIB, i));
		EXPECT_TRUE(
			bytes_are((uint8_t *)high[i].map + MIB, step - MIB, 0));
		board_buffer_close(self->fd, &high[i]);
	}
}

TEST_HARNESS_MAIN
