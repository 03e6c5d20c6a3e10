// SPDX-License-Identifier: GPL-2.0-only
/* GET_PARAM, and the rules that hold for every ioctl. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "board.h"
#include "kselftest_harness.h"

FIXTURE(param)
{
	int fd;
};

FIXTURE_SETUP(param)
{
	self->fd = board_open();
	if (self->fd < 0)
		SKIP(return, "no M6 NPU");
}

FIXTURE_TEARDOWN(param)
{
	if (self->fd >= 0)
		close(self->fd);
}

TEST_F(param, constants)
{
	static const struct {
		uint32_t param;
		uint64_t value;
	} want[] = {
		{ DRM_M6NPU_PARAM_DEVICE_ID, 0x00326d36 },
		{ DRM_M6NPU_PARAM_UNITS, 4 },
		{ DRM_M6NPU_PARAM_ROUTER_ENTRIES, 128 },
		{ DRM_M6NPU_PARAM_SRAM_SIZE, 4 << 20 },
		{ DRM_M6NPU_PARAM_VA_BITS, 38 },
		{ DRM_M6NPU_PARAM_CTX_JOBS, 0 },
		{ DRM_M6NPU_PARAM_CTX_BUSY, 0 },
	};
	uint64_t value;

	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		ASSERT_EQ(0, board_param(self->fd, want[i].param, &value));
		EXPECT_EQ(want[i].value, value)
		{
			TH_LOG("parameter %u", want[i].param);
		}
	}
}

TEST_F(param, sensors)
{
	uint64_t value;

	ASSERT_EQ(0, board_param(self->fd, DRM_M6NPU_PARAM_TEMPERATURE,
				 &value));
	EXPECT_LT(20000, (int64_t)value);
	EXPECT_GT(105000, (int64_t)value);
	ASSERT_EQ(0, board_param(self->fd, DRM_M6NPU_PARAM_FREQUENCY, &value));
	EXPECT_LE(300000000, value);
	EXPECT_GE(1200000000, value);
	ASSERT_EQ(0, board_param(self->fd, DRM_M6NPU_PARAM_FW_VERSION, &value));
	EXPECT_NE(0, value >> 24);
	ASSERT_EQ(0, board_param(self->fd, DRM_M6NPU_PARAM_MAX_CHUNK, &value));
	EXPECT_NE(0, value);
}

TEST_F(param, unknown)
{
	struct drm_m6npu_get_param pad = { .pad = 1 };
	uint64_t value;

	EXPECT_EQ(-EINVAL, board_param(self->fd, 1000, &value));
	EXPECT_EQ(-EINVAL, board_param(self->fd, UINT32_MAX, &value));
	EXPECT_EQ(-EINVAL,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_GET_PARAM, &pad));
	EXPECT_EQ(-EFAULT,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_GET_PARAM, NULL));
}

/* The ioctl with a structure of another size. */
static unsigned long with_size(unsigned long request, size_t size)
{
	unsigned long mask = (unsigned long)_IOC_SIZEMASK << _IOC_SIZESHIFT;

	return (request & ~mask) | size << _IOC_SIZESHIFT;
}

/* A structure of another size: the missing part is zero, the surplus too. */
TEST_F(param, sizes)
{
	struct {
		struct drm_m6npu_get_param known;
		uint64_t future;
	} larger = { .known.param = DRM_M6NPU_PARAM_UNITS, .future = ~0ull };
	const unsigned long request = DRM_IOCTL_M6NPU_GET_PARAM;

	EXPECT_EQ(0, board_ioctl(self->fd, with_size(request, sizeof(larger)),
				 &larger));
	EXPECT_EQ(4, larger.known.value);
	/* Too short to hold @value: asked, but not told. */
	larger.known = (struct drm_m6npu_get_param){
		.param = DRM_M6NPU_PARAM_UNITS, .value = 77,
	};
	EXPECT_EQ(0, board_ioctl(self->fd, with_size(request, 8), &larger));
	EXPECT_EQ(77, larger.known.value);
}

/*
 * A program of the time when there was no client_limit, next, align, ready,
 * quota: it is served as it was, and nothing is written behind its structures.
 */
TEST_F(param, old_program)
{
	struct drm_m6npu_pool_create pool = { .size = MIB,
					      .client_limit = MIB };
	struct drm_m6npu_bo_create bo = { .size = PAGE, .align = 12345 };
	struct drm_m6npu_pool_info pool_info = { .client_used = 77 };
	struct drm_m6npu_bo_info bo_info = { .align = 77, .ready = 78 };
	struct drm_m6npu_router_ctl router = { .threshold = 7777,
					       .quota = 77 };

	/* The limit would be refused: it is not a persistent pool. */
	EXPECT_EQ(24, offsetof(struct drm_m6npu_pool_create, client_limit));
	ASSERT_EQ(0, board_ioctl(self->fd,
				 with_size(DRM_IOCTL_M6NPU_POOL_CREATE, 24),
				 &pool));
	EXPECT_NE(0, pool.pool);
	EXPECT_EQ(MIB, pool.client_limit);
	EXPECT_EQ(40, offsetof(struct drm_m6npu_pool_info, client_used));
	pool_info.pool = pool.pool;
	ASSERT_EQ(0, board_ioctl(self->fd,
				 with_size(DRM_IOCTL_M6NPU_POOL_INFO, 40),
				 &pool_info));
	EXPECT_EQ(MIB, pool_info.size);
	EXPECT_EQ(1, pool_info.segments);
	EXPECT_EQ(77, pool_info.client_used);
	bo.pool = pool.pool;
	EXPECT_EQ(32, offsetof(struct drm_m6npu_bo_create, align));
	ASSERT_EQ(0, board_ioctl(self->fd,
				 with_size(DRM_IOCTL_M6NPU_BO_CREATE, 32),
				 &bo));
	EXPECT_NE(0, bo.handle);
	EXPECT_EQ(12345, bo.align);
	bo_info.handle = bo.handle;
	EXPECT_EQ(40, offsetof(struct drm_m6npu_bo_info, align));
	ASSERT_EQ(0, board_ioctl(self->fd,
				 with_size(DRM_IOCTL_M6NPU_BO_INFO, 40),
				 &bo_info));
	EXPECT_EQ(bo.addr, bo_info.addr);
	EXPECT_EQ(77, bo_info.align);
	EXPECT_EQ(78, bo_info.ready);
	EXPECT_EQ(64, offsetof(struct drm_m6npu_router_ctl, quota));
	ASSERT_EQ(0, board_ioctl(self->fd,
				 with_size(DRM_IOCTL_M6NPU_ROUTER_CTL, 64),
				 &router));
	/* Written, with whatever other programs have set. */
	EXPECT_GE(1000, router.threshold);
	EXPECT_EQ(77, router.quota);
}

/* And one of a time to come, which uses nothing that is not known yet. */
TEST_F(param, new_program)
{
	static const struct {
		unsigned long request;
		size_t size;
	} cases[] = {
		{ DRM_IOCTL_M6NPU_POOL_CREATE,
		  sizeof(struct drm_m6npu_pool_create) },
		{ DRM_IOCTL_M6NPU_POOL_INFO,
		  sizeof(struct drm_m6npu_pool_info) },
		{ DRM_IOCTL_M6NPU_BO_CREATE,
		  sizeof(struct drm_m6npu_bo_create) },
		{ DRM_IOCTL_M6NPU_BO_INFO, sizeof(struct drm_m6npu_bo_info) },
		{ DRM_IOCTL_M6NPU_POOL_FLUSH,
		  sizeof(struct drm_m6npu_pool_flush) },
		{ DRM_IOCTL_M6NPU_POOL_DEFRAG,
		  sizeof(struct drm_m6npu_pool_defrag) },
	};
	union {
		struct drm_m6npu_pool_create pool_create;
		struct drm_m6npu_bo_create bo_create;
		uint32_t word[64];
	} args;
	uint32_t pool = 0, handle = 0;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memset(&args, 0, sizeof(args));
		/* All but the two begin with the id or handle. */
		if (cases[i].request == DRM_IOCTL_M6NPU_POOL_CREATE) {
			args.pool_create.size = MIB;
		} else if (cases[i].request == DRM_IOCTL_M6NPU_BO_CREATE) {
			args.bo_create.size = PAGE;
			args.bo_create.pool = pool;
		} else {
			args.word[0] = cases[i].request ==
				       DRM_IOCTL_M6NPU_BO_INFO ? handle : pool;
		}
		EXPECT_EQ(0, board_ioctl(self->fd,
					 with_size(cases[i].request,
						   cases[i].size + 24),
					 &args))
		{
			TH_LOG("case %zu", i);
		}
		for (size_t w = cases[i].size / 4; w < 64; w++)
			EXPECT_EQ(0, args.word[w]);
		if (!pool)
			pool = args.pool_create.pool;
		if (cases[i].request == DRM_IOCTL_M6NPU_BO_CREATE)
			handle = args.bo_create.handle;
	}
	EXPECT_NE(0, pool);
	EXPECT_NE(0, handle);
}

/* Pads and unknown flags of every structure that has some. */
TEST_F(param, pads)
{
	static const struct {
		unsigned long request;
		size_t offset;
		const char *name;
	} cases[] = {
#define PAD(ioctl, type, field) \
	{ DRM_IOCTL_M6NPU_##ioctl, offsetof(struct drm_m6npu_##type, field), \
	  #type "." #field }
		PAD(POOL_CREATE, pool_create, pad),
		PAD(POOL_CREATE, pool_create, flags),
		PAD(POOL_DESTROY, pool_destroy, pad),
		PAD(BO_CREATE, bo_create, pad),
		PAD(BO_CREATE, bo_create, flags),
		PAD(BO_SYNC, bo_sync, flags),
		PAD(CMDLIST_SEAL, cmdlist_seal, pad),
		PAD(SUBMIT, submit, flags),
		PAD(ROUTER_CTL, router_ctl, pad),
		PAD(ROUTER_CTL, router_ctl, flags),
		PAD(LAYER_STATS, layer_stats_get, pad),
		PAD(RESET, reset, flags),
		PAD(RESET, reset, pad),
		PAD(POOL_FLUSH, pool_flush, flags),
		PAD(POOL_DEFRAG, pool_defrag, flags),
		PAD(REGION_MAP, region_map, flags),
		PAD(REGION_MAP, region_map, pad),
		PAD(REGION_UNMAP, region_unmap, pad),
#undef PAD
	};
	uint32_t bytes[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memset(bytes, 0, sizeof(bytes));
		bytes[cases[i].offset / 4] = 1u << 30;
		EXPECT_EQ(-EINVAL,
			  board_ioctl(self->fd, cases[i].request, bytes))
		{
			TH_LOG("%s", cases[i].name);
		}
	}
}

TEST_F(param, unknown_ioctl)
{
	uint32_t bytes[64] = { 0 };

	for (unsigned int nr = 0x20; nr < 0x40; nr++)
		EXPECT_GT(0, board_ioctl(self->fd,
					 DRM_IOWR(DRM_COMMAND_BASE + nr,
						  uint64_t), bytes));
}

TEST_HARNESS_MAIN
