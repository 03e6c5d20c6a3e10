// SPDX-License-Identifier: GPL-2.0-only
/* Pools: made, counted, refused and given back. */
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "board.h"
#include "kselftest_harness.h"

FIXTURE(pool)
{
	int fd;
	long long total, used;
};

FIXTURE_SETUP(pool)
{
	self->fd = board_open();
	if (self->fd < 0)
		SKIP(return, "no M6 NPU");
	self->total = board_pool_figure("total");
	self->used = board_pool_figure("used");
}

FIXTURE_TEARDOWN(pool)
{
	if (self->fd < 0)
		return;
	close(self->fd);
	/* Whatever a test did: closing the file gives all of it back. */
	EXPECT_EQ(self->total, board_pool_figure("total"));
	EXPECT_EQ(self->used, board_pool_figure("used"));
}

TEST_F(pool, life)
{
	struct drm_m6npu_pool_info info;
	uint32_t pool;

	ASSERT_EQ(0, board_pool(self->fd, 16 * MIB, &pool));
	EXPECT_NE(0, pool);
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &info));
	EXPECT_EQ(16 * MIB, info.size);
	EXPECT_EQ(0, info.used);
	EXPECT_EQ(16 * MIB, info.largest_free);
	EXPECT_EQ(0, info.buffers);
	EXPECT_EQ(1, info.segments);
	if (self->total >= 0)
		EXPECT_EQ(self->total + (long long)(16 * MIB),
			  board_pool_figure("total"));
	EXPECT_EQ(0, board_pool_destroy(self->fd, pool));
	EXPECT_EQ(-ENOENT, board_pool_info(self->fd, pool, &info));
	EXPECT_EQ(-ENOENT, board_pool_destroy(self->fd, pool));
}

TEST_F(pool, sizes)
{
	struct drm_m6npu_pool_create args = { .size = 4097 };
	uint32_t pool;

	ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_POOL_CREATE, &args));
	EXPECT_EQ(8192, args.size);
	EXPECT_EQ(-EINVAL, board_pool(self->fd, 0, &pool));
	EXPECT_EQ(-EINVAL, board_pool(self->fd, (1ull << 38) + 1, &pool));
	EXPECT_EQ(-EINVAL, board_pool(self->fd, UINT64_MAX, &pool));
	/* Valid, but more than any board of ours has. */
	EXPECT_EQ(-ENOMEM, board_pool(self->fd, 1ull << 37, &pool));
	args = (struct drm_m6npu_pool_create){ .size = MIB,
					       .max_segments = 17 };
	EXPECT_EQ(-EINVAL,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_POOL_CREATE, &args));
}

/* What was refused left nothing behind, and the next one fits. */
TEST_F(pool, all_or_nothing)
{
	long long total = board_pool_figure("total");
	uint32_t pool;

	for (int i = 0; i < 10; i++)
		EXPECT_EQ(-ENOMEM, board_pool(self->fd, 1ull << 37, &pool));
	EXPECT_EQ(total, board_pool_figure("total"));
	EXPECT_EQ(0, board_pool(self->fd, 32 * MIB, &pool));
}

TEST_F(pool, many)
{
	struct drm_m6npu_pool_info info;
	uint32_t pool, count = 0;
	int ret;

	while (!(ret = board_pool(self->fd, PAGE, &pool)) && count < 100)
		count++;
	EXPECT_EQ(-ENOSPC, ret);
	EXPECT_EQ(64, count);
	ASSERT_EQ(0, board_pool_info(self->fd, 0, &info));
	EXPECT_LE(64 * PAGE, info.size);
}

TEST_F(pool, busy)
{
	struct drm_m6npu_pool_info info;
	struct buffer buffer;
	uint32_t pool;

	ASSERT_EQ(0, board_pool(self->fd, MIB, &pool));
	ASSERT_EQ(0, board_buffer(self->fd, pool, 8192, 0, &buffer));
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &info));
	EXPECT_EQ(8192, info.used);
	EXPECT_EQ(1, info.buffers);
	EXPECT_EQ(MIB - 8192, info.largest_free);
	EXPECT_EQ(-EBUSY, board_pool_destroy(self->fd, pool));
	board_buffer_close(self->fd, &buffer);
	EXPECT_EQ(0, board_pool_destroy(self->fd, pool));
}

/* A private pool is nobody else's. */
TEST_F(pool, private)
{
	struct drm_m6npu_pool_info info;
	int other = board_open();
	uint32_t pool;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, board_pool(self->fd, MIB, &pool));
	EXPECT_EQ(-ENOENT, board_pool_info(other, pool, &info));
	EXPECT_EQ(-ENOENT, board_pool_destroy(other, pool));
	close(other);
	EXPECT_EQ(0, board_pool_destroy(self->fd, pool));
}

TEST_F(pool, persistent)
{
	struct drm_m6npu_pool_create args = {
		.size = MIB, .flags = DRM_M6NPU_POOL_PERSISTENT,
	};
	struct drm_m6npu_pool_info info;
	struct buffer buffer;
	int other = board_open();

	ASSERT_LE(0, other);
	ASSERT_EQ(0, board_ioctl(other, DRM_IOCTL_M6NPU_POOL_CREATE, &args));
	close(other);
	ASSERT_EQ(0, board_pool_info(self->fd, args.pool, &info));
	EXPECT_EQ(DRM_M6NPU_POOL_PERSISTENT, info.flags);
	ASSERT_EQ(0, board_buffer(self->fd, args.pool, PAGE, 0, &buffer));
	EXPECT_EQ(-EBUSY, board_pool_destroy(self->fd, args.pool));
	board_buffer_close(self->fd, &buffer);
	EXPECT_EQ(0, board_pool_destroy(self->fd, args.pool));
	EXPECT_EQ(-ENOENT, board_pool_info(self->fd, args.pool, &info));
}

static void drop_admin(void)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[2] = { 0 };

	syscall(SYS_capset, &head, data);
}

TEST_F(pool, needs_admin)
{
	struct drm_m6npu_pool_create args = {
		.size = MIB, .flags = DRM_M6NPU_POOL_PERSISTENT,
	};
	struct drm_m6npu_reset reset = { 0 };
	int status;
	pid_t child;

	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		int good;

		drop_admin();
		good = board_ioctl(self->fd, DRM_IOCTL_M6NPU_POOL_CREATE,
				   &args) == -EPERM &&
		       board_ioctl(self->fd, DRM_IOCTL_M6NPU_RESET, &reset) ==
			       -EPERM;
		_exit(good ? 0 : 1);
	}
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_TRUE(WIFEXITED(status) && !WEXITSTATUS(status));
}

/* The map reports holes as they are. */
TEST_F(pool, holes)
{
	struct drm_m6npu_pool_info info;
	struct buffer buffer[16];
	uint32_t pool;

	ASSERT_EQ(0, board_pool(self->fd, 16 * PAGE, &pool));
	for (int i = 0; i < 16; i++)
		ASSERT_EQ(0, board_buffer(self->fd, pool, PAGE, 0, &buffer[i]));
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &info));
	EXPECT_EQ(0, info.largest_free);
	for (int i = 0; i < 16; i += 2)
		board_buffer_close(self->fd, &buffer[i]);
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &info));
	EXPECT_EQ(8 * PAGE, info.used);
	EXPECT_EQ(PAGE, info.largest_free);
	EXPECT_EQ(-ENOSPC,
		  board_buffer(self->fd, pool, 2 * PAGE, 0, &buffer[0]));
	/* Mappings would keep the pool beyond the file. */
	for (int i = 1; i < 16; i += 2)
		board_buffer_close(self->fd, &buffer[i]);
}

TEST_HARNESS_MAIN
