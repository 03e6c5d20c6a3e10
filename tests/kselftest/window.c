// SPDX-License-Identifier: GPL-2.0-only
/*
 * Windows: part of a buffer without page tables, at the same device address and
 * with the same results. They want memory at multiples of 256 MiB.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "board.h"
#include "checker.h"
#include "kselftest_harness.h"

#define WINDOW	  (256 * MIB)
#define POOL_SIZE (512 * MIB)
#define WINDOWS	  16

FIXTURE(window)
{
	int fd;
	uint32_t pool;
	struct witness witness;
};

FIXTURE_SETUP(window)
{
	struct buffer probe;

	self->fd = board_open();
	if (self->fd < 0)
		SKIP(return, "no M6 NPU");
	ASSERT_TRUE(witness_begin_idle(&self->witness));
	if (board_pool(self->fd, POOL_SIZE, &self->pool) ||
	    board_bo(self->fd, self->pool, POOL_SIZE, WINDOW, 0, &probe))
		SKIP(return, "no 512 MiB that begin at a multiple of 256 MiB");
	board_buffer_close(self->fd, &probe);
}

FIXTURE_TEARDOWN(window)
{
	if (self->fd < 0)
		return;
	close(self->fd);
	EXPECT_TRUE(witness_end(&self->witness));
}

static int window_map(int fd, const struct buffer *buffer, uint64_t offset,
		      uint64_t size, struct drm_m6npu_region_map *args)
{
	*args = (struct drm_m6npu_region_map){
		.handle = buffer->handle,
		.offset = offset,
		.size = size,
		.window = UINT32_MAX,
	};
	return board_ioctl(fd, DRM_IOCTL_M6NPU_REGION_MAP, args);
}

static int window_unmap(int fd, uint32_t window)
{
	struct drm_m6npu_region_unmap args = { .window = window };

	return board_ioctl(fd, DRM_IOCTL_M6NPU_REGION_UNMAP, &args);
}

static int aligned(int fd, uint32_t pool, uint64_t size, struct buffer *buffer)
{
	return board_bo(fd, pool, size, WINDOW, 0, buffer);
}

/* ---- What is refused ---- */

TEST_F(window, sizes)
{
	static const struct {
		uint64_t offset, size, mapped;
		int ret;
	} cases[] = {
		{ 0, 0, POOL_SIZE, 0 },
		{ WINDOW, 0, WINDOW, 0 },
		{ 0, PAGE, PAGE, 0 },
		{ WINDOW, WINDOW, WINDOW, 0 },
		{ 0, POOL_SIZE, POOL_SIZE, 0 },
		{ 0, POOL_SIZE + PAGE, 0, -EINVAL },
		{ WINDOW, WINDOW + PAGE, 0, -EINVAL },
		{ 2 * WINDOW, 0, 0, -EINVAL },
		{ 2 * WINDOW, PAGE, 0, -EINVAL },
		{ 0, 1, 0, -EINVAL },
		{ 0, PAGE + 64, 0, -EINVAL },
		{ 0, 2048 * MIB + PAGE, 0, -EINVAL },
		{ 0, UINT64_MAX, 0, -EINVAL },
		{ 0, UINT64_MAX - PAGE + 1, 0, -EINVAL },
		{ WINDOW, UINT64_MAX - WINDOW + 1, 0, -EINVAL },
		{ UINT64_MAX, 0, 0, -EINVAL },
		{ UINT64_MAX - WINDOW + 1, 2 * WINDOW, 0, -EINVAL },
	};
	struct drm_m6npu_region_map args;
	struct buffer buffer;

	ASSERT_EQ(0, aligned(self->fd, self->pool, POOL_SIZE, &buffer));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		EXPECT_EQ(cases[i].ret,
			  window_map(self->fd, &buffer, cases[i].offset,
				     cases[i].size, &args))
		{
			TH_LOG("offset %#llx size %#llx",
			       (long long)cases[i].offset,
			       (long long)cases[i].size);
		}
		if (cases[i].ret)
			continue;
		EXPECT_EQ(cases[i].mapped, args.size);
		EXPECT_GT(WINDOWS, args.window);
		EXPECT_EQ(0, window_unmap(self->fd, args.window));
	}
}

/* Memory or offset that is not aligned; the log says so. */
TEST_F(window, alignment)
{
	struct drm_m6npu_region_map args;
	struct buffer buffer, plain;
	int log = board_log();

	ASSERT_EQ(0, aligned(self->fd, self->pool, WINDOW, &buffer));
	EXPECT_EQ(-EINVAL, window_map(self->fd, &buffer, PAGE, PAGE, &args));
	EXPECT_TRUE(board_log_has(log, "PAGE_ALIGNMENT_VIOLATION"));
	EXPECT_EQ(-EINVAL, window_map(self->fd, &buffer, 32 * MIB, 0, &args));
	/* Behind it, by a page; the address may be what it wants. */
	ASSERT_EQ(0, board_bo(self->fd, self->pool, PAGE, 0, 0, &plain));
	board_buffer_close(self->fd, &buffer);
	buffer.addr = 1ull << 36;
	ASSERT_EQ(0, board_bo(self->fd, self->pool, WINDOW - PAGE, 0,
			      DRM_M6NPU_BO_FIXED_ADDR, &buffer));
	EXPECT_EQ(-EINVAL, window_map(self->fd, &plain, 0, 0, &args));
	close(log);
}

TEST_F(window, arguments)
{
	struct drm_m6npu_region_map args, good;
	struct drm_m6npu_region_unmap unmap = { .window = 0, .pad = 1 };
	struct buffer buffer, none = { .handle = 12345 };
	int other = board_open();

	ASSERT_LE(0, other);
	ASSERT_EQ(0, aligned(self->fd, self->pool, WINDOW, &buffer));
	good = (struct drm_m6npu_region_map){ .handle = buffer.handle };
	args = good;
	args.flags = 1;
	EXPECT_EQ(-EINVAL,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_REGION_MAP, &args));
	args = good;
	args.pad = 1;
	EXPECT_EQ(-EINVAL,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_REGION_MAP, &args));
	EXPECT_EQ(-ENOENT, window_map(self->fd, &none, 0, 0, &args));
	EXPECT_EQ(-ENOENT, window_map(other, &buffer, 0, 0, &args));
	/* None is open yet. */
	for (uint32_t i = 0; i < WINDOWS + 2; i++)
		EXPECT_EQ(-ENOENT, window_unmap(self->fd, i));
	EXPECT_EQ(-ENOENT, window_unmap(self->fd, UINT32_MAX));
	ASSERT_EQ(0, window_map(self->fd, &buffer, 0, 0, &args));
	unmap.window = args.window;
	EXPECT_EQ(-EINVAL,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_REGION_UNMAP, &unmap));
	/* They are each file's own. */
	EXPECT_EQ(-ENOENT, window_unmap(other, args.window));
	EXPECT_EQ(0, window_unmap(self->fd, args.window));
	EXPECT_EQ(-ENOENT, window_unmap(self->fd, args.window));
	close(other);
}

TEST_F(window, overlap)
{
	struct drm_m6npu_region_map first, second;
	struct buffer buffer;

	ASSERT_EQ(0, aligned(self->fd, self->pool, POOL_SIZE, &buffer));
	ASSERT_EQ(0, window_map(self->fd, &buffer, WINDOW, 0, &first));
	EXPECT_EQ(-EEXIST, window_map(self->fd, &buffer, WINDOW, 0, &second));
	EXPECT_EQ(-EEXIST,
		  window_map(self->fd, &buffer, WINDOW, PAGE, &second));
	EXPECT_EQ(-EEXIST, window_map(self->fd, &buffer, 0, 0, &second));
	EXPECT_EQ(-EEXIST,
		  window_map(self->fd, &buffer, 0, WINDOW + PAGE, &second));
	/* Side by side is fine. */
	EXPECT_EQ(0, window_map(self->fd, &buffer, 0, WINDOW, &second));
	EXPECT_NE(first.window, second.window);
	EXPECT_EQ(0, window_unmap(self->fd, first.window));
	EXPECT_EQ(-EEXIST, window_map(self->fd, &buffer, 0, WINDOW, &first));
	EXPECT_EQ(0, window_map(self->fd, &buffer, WINDOW, 0, &first));
}

/* As many as there are: on so much memory, of which next to none is used. */
TEST_F(window, all_in_use)
{
	struct drm_m6npu_region_map args[WINDOWS + 1];
	struct drm_m6npu_pool_create create = {
		.size = (WINDOWS + 1) * WINDOW,
	};
	struct buffer buffer;
	uint32_t seen = 0;

	board_pool_destroy(self->fd, self->pool);
	if (board_ioctl(self->fd, DRM_IOCTL_M6NPU_POOL_CREATE, &create) ||
	    aligned(self->fd, create.pool, create.size, &buffer))
		SKIP(return, "no 4352 MiB in one piece; give the VM MEM=8G");
	for (uint32_t i = 0; i < WINDOWS; i++) {
		ASSERT_EQ(0, window_map(self->fd, &buffer, i * WINDOW, PAGE,
					&args[i]));
		seen |= 1u << args[i].window;
	}
	EXPECT_EQ(0xffff, seen);
	EXPECT_EQ(-ENOSPC, window_map(self->fd, &buffer, WINDOWS * WINDOW, PAGE,
				      &args[WINDOWS]));
	/* Taken is said rather than full. */
	EXPECT_EQ(-EEXIST,
		  window_map(self->fd, &buffer, 0, PAGE, &args[WINDOWS]));
	/* Refused ones left nothing behind that pins. */
	EXPECT_EQ(0, window_unmap(self->fd, args[7].window));
	EXPECT_EQ(0, window_map(self->fd, &buffer, WINDOWS * WINDOW, PAGE,
				&args[WINDOWS]));
	EXPECT_EQ(args[7].window, args[WINDOWS].window);
}

/* ---- What is seen ---- */

static int copy_from(int fd, uint32_t pool, const struct buffer *src,
		     uint64_t offset, struct buffer *dst)
{
	struct buffer region[2] = { *dst, *src };

	return board_command(fd, pool, cmd_copy(0, 0, 1, offset, dst->size),
			     region, 2);
}

/* The same with, without, and again with. */
TEST_F(window, results)
{
	struct drm_m6npu_region_map args;
	struct buffer buffer, out;
	uint8_t *bytes;

	ASSERT_EQ(0, aligned(self->fd, self->pool, WINDOW, &buffer));
	ASSERT_EQ(0, board_map(self->fd, &buffer));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, MIB, 0, &out));
	bytes = buffer.map;
	/* Over the end of the window, which is in the middle of a page table. */
	contents_write(bytes + 33 * MIB - PAGE, MIB, 1);
	for (int round = 0; round < 4; round++) {
		bool open = round % 2;

		if (open)
			ASSERT_EQ(0, window_map(self->fd, &buffer, 0, 33 * MIB,
						&args));
		memset(out.map, 0, out.size);
		ASSERT_EQ(0, copy_from(self->fd, self->pool, &buffer,
				       33 * MIB - PAGE, &out));
		EXPECT_TRUE(contents_are(out.map, MIB, round + 1));
		/* What the device writes is where the CPU looks for it. */
		ASSERT_EQ(0, board_command(self->fd, self->pool,
					   cmd_fill(0, 32 * MIB, 64 * PAGE,
						    0x11111111 * round),
					   &buffer, 1));
		EXPECT_TRUE(bytes_are(bytes + 32 * MIB, 64 * PAGE,
				      (uint8_t)(0x11 * round)));
		contents_write(bytes + 33 * MIB - PAGE, MIB, round + 2);
		if (open)
			ASSERT_EQ(0, window_unmap(self->fd, args.window));
	}
	board_buffer_close(self->fd, &buffer);
	board_buffer_close(self->fd, &out);
}

/* Memory that was somebody's is cleared before a window shows it. */
TEST_F(window, cleared)
{
	struct drm_m6npu_region_map args;
	struct buffer buffer, out;

	ASSERT_EQ(0, aligned(self->fd, self->pool, WINDOW, &buffer));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, 64 * MIB, 0, &out));
	ASSERT_EQ(0, board_command(self->fd, self->pool,
				   cmd_fill(0, 0, 64 * MIB, 0xa5a5a5a5),
				   &buffer, 1));
	board_buffer_close(self->fd, &buffer);
	ASSERT_EQ(0, aligned(self->fd, self->pool, WINDOW, &buffer));
	EXPECT_EQ(0, board_ready(self->fd, &buffer));
	ASSERT_EQ(0, window_map(self->fd, &buffer, 0, 40 * MIB, &args));
	/* In pieces, and not more than need be. */
	EXPECT_EQ(64 * (int64_t)MIB, board_ready(self->fd, &buffer));
	ASSERT_EQ(0, copy_from(self->fd, self->pool, &buffer, 0, &out));
	EXPECT_TRUE(bytes_are(out.map, out.size, 0));
	board_buffer_close(self->fd, &out);
}

/* Its device may only read it, through the window as well. */
TEST_F(window, readonly)
{
	struct drm_m6npu_region_map args;
	struct drm_m6npu_job_info info;
	struct m6npu_cmd cmd = cmd_fill(0, PAGE, PAGE, 1);
	struct buffer buffer, out, list;
	struct job job;

	ASSERT_EQ(0, board_bo(self->fd, self->pool, WINDOW, WINDOW,
			      DRM_M6NPU_BO_DEVICE_READONLY, &buffer));
	ASSERT_EQ(0, board_map(self->fd, &buffer));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, MIB, 0, &out));
	contents_write(buffer.map, MIB, 6);
	ASSERT_EQ(0, board_list(self->fd, self->pool, &cmd, 1, &list));
	ASSERT_EQ(0, window_map(self->fd, &buffer, 0, 0, &args));
	ASSERT_EQ(0, copy_from(self->fd, self->pool, &buffer, 0, &out));
	EXPECT_TRUE(contents_are(out.map, MIB, 6));
	board_job(&job, &list, 1, &buffer, 1);
	ASSERT_EQ(0, board_run(self->fd, &job, &info));
	EXPECT_EQ(-EFAULT, info.error);
	EXPECT_EQ(M6NPU_EXC_MMU_PAGE_FAULT, info.exception);
	EXPECT_EQ(buffer.addr + PAGE, info.fault_addr & ~(PAGE - 1));
	EXPECT_TRUE(contents_are(buffer.map, MIB, 6));
	board_buffer_close(self->fd, &buffer);
	board_buffer_close(self->fd, &out);
}

/* A list is not sealed under a window, nor written through a later one. */
TEST_F(window, sealed)
{
	struct drm_m6npu_region_map args;
	struct buffer list;

	ASSERT_EQ(0, aligned(self->fd, self->pool, PAGE, &list));
	ASSERT_EQ(0, window_map(self->fd, &list, 0, 0, &args));
	EXPECT_EQ(-EBUSY, board_seal(self->fd, &list));
	ASSERT_EQ(0, window_unmap(self->fd, args.window));
	EXPECT_EQ(0, board_seal(self->fd, &list));
	ASSERT_EQ(0, window_map(self->fd, &list, 0, 0, &args));
	EXPECT_EQ(-EFAULT, board_command(self->fd, self->pool,
					 cmd_fill(0, 0, PAGE, 1), &list, 1));
}

/* ---- How long ---- */

/* The window goes with its buffer: others at its address are themselves. */
TEST_F(window, goes_with_buffer)
{
	struct drm_m6npu_region_map args;
	struct buffer buffer = { .addr = 1ull << 36 }, next, keeper;

	ASSERT_EQ(0, board_bo(self->fd, self->pool, PAGE, WINDOW,
			      DRM_M6NPU_BO_FIXED_ADDR, &buffer));
	ASSERT_EQ(0, window_map(self->fd, &buffer, 0, 0, &args));
	next.addr = buffer.addr;
	board_buffer_close(self->fd, &buffer);
	EXPECT_EQ(-ENOENT, window_unmap(self->fd, args.window));
	/* Takes the memory, so that the next one lies elsewhere. */
	ASSERT_EQ(0, aligned(self->fd, self->pool, PAGE, &keeper));
	ASSERT_EQ(0, board_map(self->fd, &keeper));
	ASSERT_EQ(0, board_bo(self->fd, self->pool, PAGE, 0,
			      DRM_M6NPU_BO_FIXED_ADDR, &next));
	ASSERT_EQ(0, board_map(self->fd, &next));
	EXPECT_TRUE(bytes_are(keeper.map, PAGE, 0));
	ASSERT_EQ(0, board_command(self->fd, self->pool,
				   cmd_fill(0, 0, PAGE, 0x77777777), &next, 1));
	EXPECT_TRUE(bytes_are(next.map, PAGE, 0x77));
	EXPECT_TRUE(bytes_are(keeper.map, PAGE, 0));
	board_buffer_close(self->fd, &next);
	board_buffer_close(self->fd, &keeper);
	/* And nobody else's: of what is not there at all. */
	EXPECT_EQ(-EFAULT,
		  board_command(self->fd, self->pool, cmd_fill(0, 0, PAGE, 1),
				&(struct buffer){ .addr = 1ull << 36,
						  .size = PAGE },
				1));
}

/* Not moved while a window shows it, and moved when none does. */
TEST_F(window, stays)
{
	struct drm_m6npu_pool_defrag report;
	struct drm_m6npu_region_map args, refused;
	struct drm_m6npu_pool_info info;
	struct buffer first, buffer, out;

	ASSERT_EQ(0, aligned(self->fd, self->pool, WINDOW, &first));
	ASSERT_EQ(0, aligned(self->fd, self->pool, 96 * MIB, &buffer));
	ASSERT_EQ(0, board_map(self->fd, &buffer));
	contents_write(buffer.map, MIB, 12);
	board_buffer_close(self->fd, &first);
	ASSERT_EQ(0, window_map(self->fd, &buffer, 0, PAGE, &args));
	ASSERT_EQ(0, board_pool_info(self->fd, self->pool, &info));
	EXPECT_EQ(96 * MIB, info.pinned);
	ASSERT_EQ(0, board_pool_defrag(self->fd, self->pool, 0, &report));
	EXPECT_EQ(1, report.stayed);
	EXPECT_EQ(0, report.buffers);
	EXPECT_EQ(WINDOW, report.largest_after);
	/* One that was refused does not keep it. */
	EXPECT_EQ(-EEXIST, window_map(self->fd, &buffer, 0, 0, &refused));
	ASSERT_EQ(0, window_unmap(self->fd, args.window));
	ASSERT_EQ(0, board_pool_info(self->fd, self->pool, &info));
	EXPECT_EQ(0, info.pinned);
	ASSERT_EQ(0, board_pool_defrag(self->fd, self->pool, 0, &report));
	EXPECT_EQ(0, report.stayed);
	EXPECT_EQ(1, report.buffers);
	EXPECT_EQ(POOL_SIZE - 96 * MIB, report.largest_after);
	/* It is aligned where it is now, too. */
	ASSERT_EQ(0, window_map(self->fd, &buffer, 0, 0, &args));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, MIB, 0, &out));
	ASSERT_EQ(0, copy_from(self->fd, self->pool, &buffer, 0, &out));
	EXPECT_TRUE(contents_are(out.map, MIB, 12));
	board_buffer_close(self->fd, &buffer);
	board_buffer_close(self->fd, &out);
}

/* A device that was reset has the windows it had. */
TEST_F(window, reset)
{
	struct drm_m6npu_reset reset = { 0 };
	struct drm_m6npu_region_map args;
	struct buffer buffer, out;

	self->witness.errors_expected = true;
	ASSERT_EQ(0, aligned(self->fd, self->pool, WINDOW, &buffer));
	ASSERT_EQ(0, board_map(self->fd, &buffer));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, MIB, 0, &out));
	contents_write(buffer.map, MIB, 15);
	ASSERT_EQ(0, window_map(self->fd, &buffer, 0, 0, &args));
	ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_RESET, &reset));
	ASSERT_EQ(0, copy_from(self->fd, self->pool, &buffer, 0, &out));
	EXPECT_TRUE(contents_are(out.map, MIB, 15));
	EXPECT_EQ(0, window_unmap(self->fd, args.window));
	board_buffer_close(self->fd, &buffer);
	board_buffer_close(self->fd, &out);
}

TEST_HARNESS_MAIN
