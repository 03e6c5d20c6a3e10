// SPDX-License-Identifier: GPL-2.0-only
/* Buffers: zeroed, addressed, mapped, sealed. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "board.h"
#include "kselftest_harness.h"

FIXTURE(bo)
{
	int fd;
	uint32_t pool;
};

FIXTURE_SETUP(bo)
{
	self->fd = board_open();
	if (self->fd < 0)
		SKIP(return, "no M6 NPU");
	ASSERT_EQ(0, board_pool(self->fd, 96 * MIB, &self->pool));
}

FIXTURE_TEARDOWN(bo)
{
	if (self->fd >= 0)
		close(self->fd);
}

static bool all_bytes(const uint8_t *bytes, size_t count, uint8_t value)
{
	return bytes[0] == value && !memcmp(bytes, bytes + 1, count - 1);
}

/* Memory that was somebody's comes back as zeros. */
TEST_F(bo, zeroed)
{
	struct buffer buffer;

	for (int round = 0; round < 4; round++) {
		ASSERT_EQ(0, board_buffer(self->fd, self->pool, 2 * MIB, 0,
					  &buffer));
		EXPECT_TRUE(all_bytes(buffer.map, buffer.size, 0));
		memset(buffer.map, 0xa5, buffer.size);
		board_buffer_close(self->fd, &buffer);
	}
}

TEST_F(bo, addresses)
{
	struct buffer small, large, fixed = { .addr = 1ull << 36 };
	struct buffer again = fixed, odd = { .addr = (1ull << 36) + 12 };
	struct buffer beyond = { .addr = (1ull << 38) - PAGE };

	ASSERT_EQ(0, board_buffer(self->fd, self->pool, 100, 0, &small));
	EXPECT_EQ(PAGE, small.size);
	EXPECT_NE(0, small.addr);
	EXPECT_EQ(0, small.addr % PAGE);
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, 33 * MIB, 0, &large));
	EXPECT_EQ(0, large.addr % (32 * MIB));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, PAGE,
				  DRM_M6NPU_BO_FIXED_ADDR, &fixed));
	EXPECT_EQ(1ull << 36, fixed.addr);
	EXPECT_EQ(-EADDRINUSE,
		  board_buffer(self->fd, self->pool, PAGE,
			       DRM_M6NPU_BO_FIXED_ADDR, &again));
	EXPECT_EQ(-EINVAL, board_buffer(self->fd, self->pool, PAGE,
					DRM_M6NPU_BO_FIXED_ADDR, &odd));
	EXPECT_EQ(-EINVAL, board_buffer(self->fd, self->pool, 2 * PAGE,
					DRM_M6NPU_BO_FIXED_ADDR, &beyond));
	/* The address is free again once the buffer is gone. */
	board_buffer_close(self->fd, &fixed);
	again.addr = 1ull << 36;
	EXPECT_EQ(0, board_buffer(self->fd, self->pool, PAGE,
				  DRM_M6NPU_BO_FIXED_ADDR, &again));
}

TEST_F(bo, refused)
{
	struct drm_m6npu_bo_create args = { .size = PAGE, .pool = 0 };
	struct drm_m6npu_bo_info info = { .handle = 12345 };
	struct buffer buffer;

	EXPECT_EQ(-ENOENT, board_bo_create(self->fd, &args));
	args.pool = 99999;
	EXPECT_EQ(-ENOENT, board_bo_create(self->fd, &args));
	EXPECT_EQ(-EINVAL, board_buffer(self->fd, self->pool, 0, 0, &buffer));
	EXPECT_EQ(-ENOSPC, board_buffer(self->fd, self->pool, 97 * MIB, 0,
					&buffer));
	EXPECT_GT(0, board_buffer(self->fd, self->pool, UINT64_MAX, 0,
				  &buffer));
	EXPECT_GT(0, board_buffer(self->fd, self->pool, UINT64_MAX - PAGE, 0,
				  &buffer));
	EXPECT_EQ(-ENOENT,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_BO_INFO, &info));
}

TEST_F(bo, info)
{
	struct drm_m6npu_bo_info info = { 0 };
	struct buffer buffer;

	ASSERT_EQ(0, board_buffer(self->fd, self->pool, 3 * PAGE,
				  DRM_M6NPU_BO_DEVICE_READONLY, &buffer));
	info.handle = buffer.handle;
	ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_BO_INFO, &info));
	EXPECT_EQ(3 * PAGE, info.size);
	EXPECT_EQ(buffer.addr, info.addr);
	EXPECT_EQ(self->pool, info.pool);
	EXPECT_EQ(DRM_M6NPU_BO_DEVICE_READONLY, info.flags);
}

TEST_F(bo, mmap)
{
	struct drm_m6npu_bo_info info = { 0 };
	struct buffer buffer;
	uint8_t *second;
	int other;

	ASSERT_EQ(0, board_buffer(self->fd, self->pool, 4 * PAGE, 0, &buffer));
	info.handle = buffer.handle;
	ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_BO_INFO, &info));
	second = mmap(NULL, buffer.size, PROT_READ | PROT_WRITE, MAP_SHARED,
		      self->fd, (off_t)info.mmap_offset);
	ASSERT_NE(MAP_FAILED, (void *)second);
	((uint8_t *)buffer.map)[5000] = 42;
	EXPECT_EQ(42, second[5000]);
	/* Not private, not longer than the buffer, not with another file. */
	EXPECT_EQ(MAP_FAILED, mmap(NULL, buffer.size, PROT_READ, MAP_PRIVATE,
				   self->fd, (off_t)info.mmap_offset));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 64 * PAGE, PROT_READ, MAP_SHARED,
				   self->fd, (off_t)info.mmap_offset));
	other = board_open();
	EXPECT_EQ(MAP_FAILED, mmap(NULL, buffer.size, PROT_READ, MAP_SHARED,
				   other, (off_t)info.mmap_offset));
	close(other);
	/* A mapping outlives its handle. */
	munmap(buffer.map, buffer.size);
	buffer.map = NULL;
	board_buffer_close(self->fd, &buffer);
	EXPECT_EQ(42, second[5000]);
	munmap(second, 4 * PAGE);
}

TEST_F(bo, sync)
{
	struct drm_m6npu_bo_sync sync = { .flags = DRM_M6NPU_SYNC_TO_DEVICE |
						   DRM_M6NPU_SYNC_FROM_DEVICE };
	struct buffer buffer;

	ASSERT_EQ(0, board_buffer(self->fd, self->pool, 4 * PAGE, 0, &buffer));
	sync.handle = buffer.handle;
	sync.size = buffer.size;
	EXPECT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_BO_SYNC, &sync));
	sync.offset = 1;
	EXPECT_EQ(-EINVAL,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_BO_SYNC, &sync));
	sync.offset = UINT64_MAX;
	sync.size = 2;
	EXPECT_EQ(-EINVAL,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_BO_SYNC, &sync));
	sync.offset = 0;
	sync.flags = 0;
	EXPECT_EQ(-EINVAL,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_BO_SYNC, &sync));
	sync.flags = DRM_M6NPU_SYNC_TO_DEVICE;
	sync.handle = 777;
	EXPECT_EQ(-ENOENT,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_BO_SYNC, &sync));
}

static sigjmp_buf jump;

static void on_bus(int number)
{
	siglongjmp(jump, number);
}

TEST_F(bo, seal)
{
	struct drm_m6npu_cmdlist_seal seal = { 0 };
	struct drm_m6npu_bo_info info = { 0 };
	struct buffer buffer;
	volatile uint8_t *byte;
	int caught;

	ASSERT_EQ(0, board_buffer(self->fd, self->pool, PAGE, 0, &buffer));
	byte = buffer.map;
	*byte = 1;
	seal.handle = buffer.handle;
	ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_CMDLIST_SEAL,
				 &seal));
	EXPECT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_CMDLIST_SEAL,
				 &seal));
	signal(SIGBUS, on_bus);
	caught = sigsetjmp(jump, 1);
	if (!caught)
		*byte = 2;
	EXPECT_EQ(SIGBUS, caught);
	info.handle = buffer.handle;
	ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_BO_INFO, &info));
	EXPECT_EQ(DRM_M6NPU_BO_SEALED, info.flags);
	seal.handle = 777;
	EXPECT_EQ(-ENOENT, board_ioctl(self->fd, DRM_IOCTL_M6NPU_CMDLIST_SEAL,
				       &seal));
}

/* Allocation and freeing in disorder leaves no hole and no overlap. */
TEST_F_TIMEOUT(bo, churn, 180)
{
	struct drm_m6npu_pool_info info;
	struct buffer buffer[64] = { 0 };
	uint32_t seed = 1;

	for (int round = 0; round < 1500; round++) {
		struct buffer *b;

		seed = seed * 1103515245u + 12345u;
		b = &buffer[(seed >> 16) % 64];
		if (b->handle) {
			ASSERT_EQ((uintptr_t)b, *(uintptr_t *)b->map);
			ASSERT_TRUE(all_bytes((uint8_t *)b->map + 8,
					      b->size - 8,
					      (uint8_t)b->handle));
			board_buffer_close(self->fd, b);
			continue;
		}
		ASSERT_EQ(0, board_buffer(self->fd, self->pool,
					  (1 + (seed >> 20) % 16) * PAGE, 0,
					  b));
		memset(b->map, (uint8_t)b->handle, b->size);
		*(uintptr_t *)b->map = (uintptr_t)b;
	}
	for (int i = 0; i < 64; i++)
		board_buffer_close(self->fd, &buffer[i]);
	ASSERT_EQ(0, board_pool_info(self->fd, self->pool, &info));
	EXPECT_EQ(0, info.used);
	EXPECT_EQ(96 * MIB, info.largest_free);
}

TEST_HARNESS_MAIN
