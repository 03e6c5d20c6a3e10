// SPDX-License-Identifier: GPL-2.0-only
/* A process that ends, however it ends, leaves nothing behind. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "board.h"
#include "kselftest_harness.h"

FIXTURE(life)
{
	int fd;
	long long total, used;
};

FIXTURE_SETUP(life)
{
	self->fd = board_open();
	if (self->fd < 0)
		SKIP(return, "no M6 NPU");
	self->total = board_pool_figure("total");
	self->used = board_pool_figure("used");
	if (self->total < 0)
		SKIP(return, "no debugfs");
}

FIXTURE_TEARDOWN(life)
{
	if (self->fd >= 0)
		close(self->fd);
}

/* What a killed process held is freed when its last job ended: wait for it. */
static bool nothing_left(long long total, long long used)
{
	const struct timespec pause = { .tv_nsec = 10 * 1000 * 1000 };

	for (int i = 0; i < 3000; i++) {
		if (board_pool_figure("total") == total &&
		    board_pool_figure("used") == used)
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

/* Submits for ever, tells through @pipe_fd that it has begun. */
static void work(int pipe_fd, bool stall)
{
	struct drm_m6npu_expert_table table = { .layers = 1, .experts = 4 };
	struct m6npu_cmd cmd = cmd_fill(0, 0, 8 * MIB, 3);
	int fd = board_open();
	struct buffer data, list;
	uint32_t pool;
	struct job job;

	if (board_pool(fd, 24 * MIB, &pool) ||
	    board_buffer(fd, pool, 8 * MIB, 0, &data) ||
	    board_ioctl(fd, DRM_IOCTL_M6NPU_EXPERT_TABLE, &table))
		_exit(1);
	if (stall) {
		memset(&cmd, 0, sizeof(cmd));
		cmd.opcode = M6NPU_OP_MOE_FFN;
		for (int i = 0; i < 4; i++)
			cmd.operand[i] = M6NPU_OPERAND(0, i * 4096);
		cmd.args.moe.rows = 1;
		cmd.args.moe.k = 1;
		cmd.args.moe.experts = 4;
		cmd.args.moe.hidden = 32;
		cmd.args.moe.ffn = 32;
	}
	if (board_list(fd, pool, &cmd, 1, &list))
		_exit(1);
	for (int i = 0;; i++) {
		struct drm_m6npu_job_info info;

		board_job(&job, &list, 1, &data, 1);
		if (board_submit(fd, &job))
			_exit(1);
		if (i == 8 && write(pipe_fd, "x", 1) != 1)
			_exit(1);
		if (i >= 8)
			board_wait(fd, &job, BOARD_TIMEOUT_MS, &info);
	}
}

static bool kill_worker(bool stall)
{
	int fds[2], status;
	char byte;
	pid_t child;

	if (pipe(fds))
		return false;
	child = fork();
	if (!child)
		work(fds[1], stall);
	close(fds[1]);
	if (read(fds[0], &byte, 1) != 1)
		return false;
	close(fds[0]);
	kill(child, SIGKILL);
	return waitpid(child, &status, 0) == child && WIFSIGNALED(status);
}

TEST_F_TIMEOUT(life, kill_running, 120)
{
	for (int i = 0; i < 5; i++)
		ASSERT_TRUE(kill_worker(false));
	EXPECT_TRUE(nothing_left(self->total, self->used));
}

TEST_F_TIMEOUT(life, kill_stalled, 120)
{
	for (int i = 0; i < 3; i++)
		ASSERT_TRUE(kill_worker(true));
	EXPECT_TRUE(nothing_left(self->total, self->used));
}

/* And the device goes on as if nothing had been. */
TEST_F_TIMEOUT(life, works_afterwards, 120)
{
	struct m6npu_cmd cmd = cmd_fill(0, 0, PAGE, 5);
	struct drm_m6npu_job_info info;
	struct buffer data, list;
	uint32_t pool;
	struct job job;

	ASSERT_TRUE(kill_worker(true));
	ASSERT_TRUE(kill_worker(false));
	ASSERT_EQ(0, board_pool(self->fd, MIB, &pool));
	ASSERT_EQ(0, board_buffer(self->fd, pool, PAGE, 0, &data));
	ASSERT_EQ(0, board_list(self->fd, pool, &cmd, 1, &list));
	for (uint32_t unit = 0; unit < 4; unit++) {
		board_job(&job, &list, 1, &data, 1);
		job.args.unit_mask = 1u << unit;
		memset(data.map, 0, PAGE);
		ASSERT_EQ(0, board_run(self->fd, &job, &info));
		EXPECT_EQ(0, info.error);
		EXPECT_EQ(5, *(uint32_t *)data.map);
	}
}

TEST_F_TIMEOUT(life, open_close, 120)
{
	uint32_t pool;

	for (int i = 0; i < 200; i++) {
		int fd = board_open();

		ASSERT_LE(0, fd);
		if (i % 4 == 0)
			ASSERT_EQ(0, board_pool(fd, MIB, &pool));
		close(fd);
	}
	EXPECT_TRUE(nothing_left(self->total, self->used));
}

/* More files than address spaces: the surplus is refused, not broken. */
TEST_F_TIMEOUT(life, many_files, 120)
{
	int fds[80], count = 0;

	while (count < 80) {
		fds[count] = board_open();
		if (fds[count] < 0)
			break;
		count++;
	}
	EXPECT_LE(60, count);
	EXPECT_GE(63, count);
	while (count)
		close(fds[--count]);
	fds[0] = board_open();
	EXPECT_LE(0, fds[0]);
	close(fds[0]);
}

/* A reset hits nobody but the jobs on the device. */
TEST_F_TIMEOUT(life, reset, 120)
{
	struct m6npu_cmd cmd = cmd_fill(0, 0, PAGE, 6);
	struct drm_m6npu_reset reset = { 0 };
	struct drm_m6npu_job_info info;
	struct buffer data, list;
	uint32_t pool;
	struct job job;

	ASSERT_EQ(0, board_pool(self->fd, MIB, &pool));
	ASSERT_EQ(0, board_buffer(self->fd, pool, PAGE, 0, &data));
	ASSERT_EQ(0, board_list(self->fd, pool, &cmd, 1, &list));
	for (int i = 0; i < 5; i++) {
		ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_RESET,
					 &reset));
		memset(data.map, 0, PAGE);
		board_job(&job, &list, 1, &data, 1);
		ASSERT_EQ(0, board_run(self->fd, &job, &info));
		EXPECT_EQ(0, info.error);
		EXPECT_EQ(6, *(uint32_t *)data.map);
	}
}

TEST_HARNESS_MAIN
