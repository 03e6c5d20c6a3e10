// SPDX-License-Identifier: GPL-2.0-only
/*
 * First use: whatever the memory held, a buffer is zeros to whoever sees it
 * first, by whatever way; and what nobody uses costs nothing.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "board.h"
#include "checker.h"
#include "kselftest_harness.h"

#define LARGE  (32 * MIB)
#define WINDOW (256 * MIB)
/* 1.0f, so that stale weights would show. */
#define DIRT	  0x3f800000u
#define POOL_SIZE (160 * MIB)

FIXTURE(ready)
{
	int fd;
	uint32_t pool;
	struct witness witness;
};

/* All of the pool that is free has been somebody's. */
static int make_dirty(int fd, uint32_t pool)
{
	struct drm_m6npu_pool_info info;
	struct buffer all;
	int ret = board_pool_info(fd, pool, &info);

	/* Leaves a page for the list. */
	if (!ret)
		ret = board_bo(fd, pool, info.largest_free - PAGE, PAGE, 0,
			       &all);
	if (!ret)
		ret = board_command(fd, pool, cmd_fill(0, 0, all.size, DIRT),
				    &all, 1);
	board_buffer_close(fd, &all);
	return ret;
}

FIXTURE_SETUP(ready)
{
	self->fd = board_open();
	if (self->fd < 0)
		SKIP(return, "no M6 NPU");
	ASSERT_TRUE(witness_begin_idle(&self->witness));
	ASSERT_TRUE(board_set_parameter("expert_timeout_ms", 60000));
	ASSERT_EQ(0, board_pool(self->fd, POOL_SIZE, &self->pool));
	ASSERT_EQ(0, make_dirty(self->fd, self->pool));
}

FIXTURE_TEARDOWN(ready)
{
	if (self->fd < 0)
		return;
	close(self->fd);
	EXPECT_TRUE(witness_end(&self->witness));
}

/*
 * Words of the range that are not zero to the device, or a negative errno. For
 * what the device has, so that it is not this that makes it ready.
 */
static int64_t device_not_zero(int fd, uint32_t pool,
			       const struct buffer *buffer, uint64_t offset,
			       uint64_t size)
{
	struct buffer region[2] = { *buffer };
	struct m6npu_compare_result *result;
	int64_t wrong;
	int ret;

	region[0].addr += offset;
	region[0].size = size;
	ret = board_buffer(fd, pool, PAGE, 0, &region[1]);
	if (ret)
		return ret;
	result = region[1].map;
	result->mismatches = UINT32_MAX;
	ret = board_command(fd, pool, cmd_compare(0, 0, size, 0, 1), region, 2);
	wrong = ret ? ret : (int64_t)result->mismatches;
	board_buffer_close(fd, &region[1]);
	return wrong;
}

/* ---- Ways to see a buffer first ---- */

TEST_F(ready, by_cpu)
{
	static const uint64_t sizes[] = { PAGE, 3 * PAGE, 2 * MIB + PAGE, LARGE,
					  LARGE + 5 * PAGE };
	struct buffer buffer;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		ASSERT_EQ(0, board_buffer(self->fd, self->pool, sizes[i], 0,
					  &buffer));
		EXPECT_EQ(0, board_ready(self->fd, &buffer));
		EXPECT_TRUE(bytes_are(buffer.map, buffer.size, 0));
		EXPECT_EQ((int64_t)sizes[i], board_ready(self->fd, &buffer));
		EXPECT_EQ(0, device_not_zero(self->fd, self->pool, &buffer, 0,
					     buffer.size));
		board_buffer_close(self->fd, &buffer);
	}
}

TEST_F(ready, by_job)
{
	static const uint64_t sizes[] = { PAGE, 2 * MIB + PAGE, LARGE,
					  LARGE + 5 * PAGE };
	struct buffer buffer;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		ASSERT_EQ(0, board_bo(self->fd, self->pool, sizes[i], 0, 0,
				      &buffer));
		EXPECT_EQ(0, board_ready(self->fd, &buffer));
		EXPECT_EQ(0, device_not_zero(self->fd, self->pool, &buffer, 0,
					     buffer.size));
		EXPECT_EQ((int64_t)sizes[i], board_ready(self->fd, &buffer));
		ASSERT_EQ(0, board_map(self->fd, &buffer));
		EXPECT_TRUE(bytes_are(buffer.map, buffer.size, 0));
		board_buffer_close(self->fd, &buffer);
	}
}

/* A region may span buffers side by side, and holes. */
TEST_F(ready, by_job_over_several)
{
	struct buffer buffer[3] = { 0 }, span;

	for (int i = 0; i < 3; i++) {
		/* A hole of a page before the last. */
		buffer[i].addr = (1ull << 36) + MIB * i + (i == 2 ? PAGE : 0);
		ASSERT_EQ(0, board_bo(self->fd, self->pool, MIB, 0,
				      DRM_M6NPU_BO_FIXED_ADDR, &buffer[i]));
	}
	span = (struct buffer){ .addr = buffer[0].addr, .size = 2 * MIB };
	EXPECT_EQ(0,
		  device_not_zero(self->fd, self->pool, &span, 0, span.size));
	EXPECT_EQ((int64_t)MIB, board_ready(self->fd, &buffer[0]));
	EXPECT_EQ((int64_t)MIB, board_ready(self->fd, &buffer[1]));
	EXPECT_EQ(0, board_ready(self->fd, &buffer[2]));
	/* Named, if not touched: the job ends well, and all is ready. */
	span.size = 3 * MIB + PAGE;
	EXPECT_EQ(0, board_command(self->fd, self->pool,
				   cmd_fill(0, 0, PAGE, 1), &span, 1));
	EXPECT_EQ((int64_t)MIB, board_ready(self->fd, &buffer[2]));
}

/* The step block that SUBMIT is told of: no tokens, as there are none. */
TEST_F(ready, by_step)
{
	struct m6npu_cmd cmd = cmd_fill(0, 0, PAGE, 7);
	struct drm_m6npu_job_info info;
	struct buffer step, data, list;
	struct job job;

	ASSERT_EQ(0, board_bo(self->fd, self->pool, 2 * PAGE, 0, 0, &step));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, PAGE, 0, &data));
	ASSERT_EQ(0, board_list(self->fd, self->pool, &cmd, 1, &list));
	board_job(&job, &list, 1, &data, 1);
	job.args.step_addr = step.addr;
	ASSERT_EQ(0, board_run(self->fd, &job, &info));
	EXPECT_EQ(0, info.error);
	EXPECT_EQ(7, *(uint32_t *)data.map);
	EXPECT_EQ(2 * (int64_t)PAGE, board_ready(self->fd, &step));
	ASSERT_EQ(0, board_map(self->fd, &step));
	EXPECT_TRUE(bytes_are(step.map, step.size, 0));
	board_buffer_close(self->fd, &step);
	board_buffer_close(self->fd, &data);
}

#define HIDDEN 32u
#define FFN    32u

struct tensors {
	float dst[HIDDEN];
	float src[HIDDEN];
	int32_t id[16];
	float weight[16];
};

/* An expert that is bound: of zeros, so that it gives zeros. */
TEST_F(ready, by_expert)
{
	struct drm_m6npu_expert_table table = { .layers = 1, .experts = 1 };
	struct drm_m6npu_expert expert = {
		.state = DRM_M6NPU_EXPERT_RESIDENT,
		.size = 3 * HIDDEN * FFN * sizeof(float),
	};
	struct drm_m6npu_expert_bind bind = {
		.entries = (uintptr_t)&expert,
		.count = 1,
		.stride = sizeof(expert),
	};
	struct m6npu_cmd cmd = { .opcode = M6NPU_OP_MOE_FFN };
	struct buffer weights, data;
	struct tensors *t;

	ASSERT_EQ(0,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE, &table));
	ASSERT_EQ(0,
		  board_bo(self->fd, self->pool, LARGE + MIB, 0, 0, &weights));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, sizeof(*t), 0, &data));
	expert.addr = weights.addr + LARGE - PAGE;
	ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_BIND, &bind));
	EXPECT_EQ((int64_t)(LARGE + MIB), board_ready(self->fd, &weights));
	t = data.map;
	t->weight[0] = 1;
	for (uint32_t i = 0; i < HIDDEN; i++)
		t->src[i] = t->dst[i] = 1;
	cmd.operand[0] = M6NPU_OPERAND(0, offsetof(struct tensors, dst));
	cmd.operand[1] = M6NPU_OPERAND(0, offsetof(struct tensors, src));
	cmd.operand[2] = M6NPU_OPERAND(0, offsetof(struct tensors, id));
	cmd.operand[3] = M6NPU_OPERAND(0, offsetof(struct tensors, weight));
	cmd.args.moe.rows = 1;
	cmd.args.moe.k = 1;
	cmd.args.moe.experts = 1;
	cmd.args.moe.hidden = HIDDEN;
	cmd.args.moe.ffn = FFN;
	EXPECT_EQ(0, board_command(self->fd, self->pool, cmd, &data, 1));
	EXPECT_TRUE(bytes_are(t->dst, sizeof(t->dst), 0));
	board_buffer_close(self->fd, &data);
}

/* A list that nobody wrote: barriers. */
TEST_F(ready, by_seal)
{
	struct drm_m6npu_job_info info;
	struct buffer list;
	struct job job;

	ASSERT_EQ(0, board_bo(self->fd, self->pool, 2 * PAGE, 0, 0, &list));
	ASSERT_EQ(0, board_seal(self->fd, &list));
	EXPECT_EQ(2 * (int64_t)PAGE, board_ready(self->fd, &list));
	EXPECT_EQ(0,
		  device_not_zero(self->fd, self->pool, &list, 0, list.size));
	board_job(&job, &list, 2 * PAGE / sizeof(struct m6npu_cmd), NULL, 0);
	ASSERT_EQ(0, board_run(self->fd, &job, &info));
	EXPECT_EQ(0, info.error);
}

/* All of it when it is shared, since another's use is not seen. */
TEST_F(ready, by_dma_buf)
{
	struct drm_prime_handle import = { 0 };
	struct buffer buffer;
	int other = board_open();
	uint8_t *map;

	ASSERT_LE(0, other);
	ASSERT_EQ(0,
		  board_bo(self->fd, self->pool, LARGE + MIB, 0, 0, &buffer));
	import.fd = board_export(self->fd, &buffer);
	ASSERT_LE(0, import.fd);
	EXPECT_EQ((int64_t)buffer.size, board_ready(self->fd, &buffer));
	map = mmap(NULL, buffer.size, PROT_READ, MAP_SHARED, import.fd, 0);
	ASSERT_NE(MAP_FAILED, (void *)map);
	EXPECT_EQ(0, board_ioctl(other, DRM_IOCTL_PRIME_FD_TO_HANDLE, &import));
	EXPECT_TRUE(bytes_are(map, buffer.size, 0));
	EXPECT_EQ(0, device_not_zero(self->fd, self->pool, &buffer, 0,
				     buffer.size));
	munmap(map, buffer.size);
	close(import.fd);
	close(other);
}

/* ---- Pieces ---- */

TEST_F(ready, pieces)
{
	struct buffer buffer;
	uint8_t *bytes;

	ASSERT_EQ(0, board_buffer(self->fd, self->pool, 3 * LARGE + PAGE, 0,
				  &buffer));
	bytes = buffer.map;
	EXPECT_EQ(0, board_ready(self->fd, &buffer));
	bytes[LARGE + 8 * MIB] = 1;
	EXPECT_EQ((int64_t)LARGE, board_ready(self->fd, &buffer));
	EXPECT_EQ(0, bytes[2 * LARGE - 1]);
	EXPECT_EQ((int64_t)LARGE, board_ready(self->fd, &buffer));
	/* The last page is a piece of its own. */
	EXPECT_EQ(0, bytes[3 * LARGE]);
	EXPECT_EQ((int64_t)(LARGE + PAGE), board_ready(self->fd, &buffer));
	/* Over the edge of two, one of which is ready: what is in it stays. */
	EXPECT_EQ(0, device_not_zero(self->fd, self->pool, &buffer,
				     LARGE - PAGE, 2 * PAGE));
	EXPECT_EQ((int64_t)(2 * LARGE + PAGE), board_ready(self->fd, &buffer));
	EXPECT_EQ(1, bytes[LARGE + 8 * MIB]);
	bytes[LARGE + 8 * MIB] = 0;
	EXPECT_TRUE(bytes_are(bytes, buffer.size, 0));
	EXPECT_EQ((int64_t)buffer.size, board_ready(self->fd, &buffer));
	board_buffer_close(self->fd, &buffer);
}

/* Pieces end at device addresses, wherever the buffer begins. */
TEST_F(ready, straddling)
{
	struct buffer buffer = { .addr = (1ull << 36) + LARGE - 3 * MIB };
	uint8_t *bytes;

	ASSERT_EQ(0, board_bo(self->fd, self->pool, 8 * MIB, 0,
			      DRM_M6NPU_BO_FIXED_ADDR, &buffer));
	ASSERT_EQ(0, board_map(self->fd, &buffer));
	bytes = buffer.map;
	EXPECT_EQ(0, bytes[3 * MIB - 1]);
	EXPECT_EQ(3 * (int64_t)MIB, board_ready(self->fd, &buffer));
	EXPECT_EQ(0, bytes[3 * MIB]);
	EXPECT_EQ(8 * (int64_t)MIB, board_ready(self->fd, &buffer));
	EXPECT_TRUE(bytes_are(bytes, buffer.size, 0));
	EXPECT_EQ(0, device_not_zero(self->fd, self->pool, &buffer, 0,
				     buffer.size));
	board_buffer_close(self->fd, &buffer);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Not the time it takes to clear even a sixteenth. */
TEST_F(ready, untouched_is_free)
{
	double begin, create, use = 0;
	struct buffer buffer;
	uint32_t pool;
	uint64_t size = 1024 * MIB;

	board_pool_destroy(self->fd, self->pool);
	while (board_pool(self->fd, size, &pool)) {
		size /= 2;
		if (size < 256 * MIB)
			SKIP(return, "no pool of 256 MiB to be had");
	}
	begin = now();
	ASSERT_EQ(0, board_buffer(self->fd, pool, size, 0, &buffer));
	create = now() - begin;
	EXPECT_EQ(0, board_ready(self->fd, &buffer));
	begin = now();
	for (uint64_t i = 0; i < size / 16; i += LARGE)
		((volatile uint8_t *)buffer.map)[i] = 1;
	use = now() - begin;
	TH_LOG("%llu MiB: %.3f ms to create, %.1f ms to use a sixteenth",
	       size / MIB, create * 1e3, use * 1e3);
	EXPECT_EQ((int64_t)size / 16, board_ready(self->fd, &buffer));
	EXPECT_LT(create, use);
	board_buffer_close(self->fd, &buffer);
}

/* ---- What a job does not reach ---- */

/* Not what was made after it was submitted, unless others use it. */
TEST_F(ready, made_after_submit)
{
	struct buffer late = { .addr = 1ull << 36 }, list;
	struct m6npu_cmd cmd = cmd_fill(0, PAGE, PAGE, 9);
	struct drm_m6npu_job_info info;
	struct stall stall;
	struct job job;

	for (int used = 0; used < 2; used++) {
		struct buffer region = { .addr = late.addr, .size = 2 * PAGE };

		ASSERT_EQ(0, board_list(self->fd, self->pool, &cmd, 1, &list));
		ASSERT_EQ(0, board_stall(self->fd, self->pool, &stall));
		board_job(&job, &list, 1, &region, 1);
		/* Behind the one that waits. */
		ASSERT_EQ(0, board_submit(self->fd, &job));
		ASSERT_EQ(0, board_bo(self->fd, self->pool, 2 * PAGE, 0,
				      DRM_M6NPU_BO_FIXED_ADDR, &late));
		ASSERT_EQ(0, board_map(self->fd, &late));
		if (used)
			EXPECT_EQ(0, *(uint32_t *)late.map);
		EXPECT_EQ(0, board_stall_end(self->fd, &stall));
		ASSERT_EQ(0,
			  board_wait(self->fd, &job, BOARD_TIMEOUT_MS, &info));
		EXPECT_EQ(used ? 0 : -EFAULT, info.error);
		if (!used) {
			EXPECT_EQ(M6NPU_EXC_MMU_PAGE_FAULT, info.exception);
			EXPECT_EQ(region.addr + PAGE,
				  info.fault_addr & ~(PAGE - 1));
			EXPECT_TRUE(bytes_are(late.map, late.size, 0));
		} else {
			EXPECT_EQ(9, ((uint32_t *)late.map)[PAGE / 4]);
		}
		board_buffer_close(self->fd, &late);
		board_buffer_close(self->fd, &list);
		late.addr = region.addr;
	}
}

/* ---- Alignment ---- */

TEST_F(ready, align)
{
	static const uint64_t refused[] = {
		1,	    2,
		64,	    2048,
		2 * PAGE,   3 * PAGE,
		MIB,	    16 * MIB,
		64 * MIB,   128 * MIB,
		512 * MIB,  1ull << 38,
		1ull << 63, UINT64_MAX,
		PAGE + 1,   LARGE + PAGE,
		LARGE - 1,  LARGE + WINDOW,
	};
	static const struct {
		uint64_t size, align, addr_align, info_align;
	} good[] = {
		{ PAGE, 0, PAGE, PAGE },
		{ PAGE, PAGE, PAGE, PAGE },
		{ PAGE, LARGE, LARGE, LARGE },
		{ LARGE, 0, LARGE, LARGE },
		{ LARGE, PAGE, LARGE, PAGE },
		{ LARGE + PAGE, 0, LARGE, PAGE },
		{ LARGE + PAGE, LARGE, LARGE, LARGE },
	};
	struct drm_m6npu_bo_info info;
	struct buffer small, buffer;

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		EXPECT_EQ(-EINVAL, board_bo(self->fd, self->pool, PAGE,
					    refused[i], 0, &buffer))
		{
			TH_LOG("align %#llx", (long long)refused[i]);
		}
	}
	/* So that nothing is aligned by luck. */
	ASSERT_EQ(0, board_bo(self->fd, self->pool, PAGE, 0, 0, &small));
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ASSERT_EQ(0, board_bo(self->fd, self->pool, good[i].size,
				      good[i].align, 0, &buffer));
		ASSERT_EQ(0, board_bo_info(self->fd, buffer.handle, &info));
		EXPECT_EQ(0, buffer.addr % good[i].addr_align);
		EXPECT_EQ(good[i].info_align, info.align)
		{
			TH_LOG("size %#llx align %#llx",
			       (long long)good[i].size,
			       (long long)good[i].align);
		}
		EXPECT_EQ(0, device_not_zero(self->fd, self->pool, &buffer, 0,
					     buffer.size));
		board_buffer_close(self->fd, &buffer);
	}
	/* Five times 32 MiB, the first of them begun: four fit. */
	for (int i = 0; i < 4; i++)
		ASSERT_EQ(0, board_bo(self->fd, self->pool, PAGE, LARGE, 0,
				      &buffer));
	EXPECT_EQ(-ENOBUFS,
		  board_bo(self->fd, self->pool, PAGE, LARGE, 0, &buffer));
	EXPECT_EQ(0, board_bo(self->fd, self->pool, PAGE, 0, 0, &buffer));
}

TEST_F(ready, fixed_address)
{
	static const struct {
		uint64_t addr, size, align;
		int ret;
	} cases[] = {
		{ 1ull << 36, PAGE, LARGE, 0 },
		{ (1ull << 36) + LARGE, PAGE, LARGE, 0 },
		{ (1ull << 36) + MIB, PAGE, LARGE, -EINVAL },
		{ (1ull << 36) + MIB, PAGE, PAGE, 0 },
		{ (1ull << 36) + LARGE, PAGE, WINDOW, -EINVAL },
		/* Large buffers are aligned anyway. */
		{ (1ull << 36) + MIB, LARGE, PAGE, -EINVAL },
		{ (1ull << 36) + MIB, LARGE, 0, -EINVAL },
		{ (1ull << 36) + 4 * LARGE, LARGE, 0, 0 },
		/* Nothing lies in the first MiB, or beyond the end. */
		{ 0, PAGE, 0, -EINVAL },
		{ MIB - PAGE, PAGE, 0, -EINVAL },
		{ MIB, PAGE, 0, 0 },
		{ (1ull << 38) - PAGE, 2 * PAGE, 0, -EINVAL },
		{ 1ull << 38, PAGE, 0, -EINVAL },
		{ UINT64_MAX - PAGE + 1, PAGE, 0, -EINVAL },
	};
	struct buffer buffer;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		buffer.addr = cases[i].addr;
		EXPECT_EQ(cases[i].ret,
			  board_bo(self->fd, self->pool, cases[i].size,
				   cases[i].align, DRM_M6NPU_BO_FIXED_ADDR,
				   &buffer))
		{
			TH_LOG("address %#llx align %#llx",
			       (long long)cases[i].addr,
			       (long long)cases[i].align);
		}
		if (!cases[i].ret)
			EXPECT_EQ(cases[i].addr, buffer.addr);
	}
}

TEST_HARNESS_MAIN
