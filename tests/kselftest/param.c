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

/* A structure of another size: the missing part is zero, the surplus too. */
TEST_F(param, sizes)
{
	struct {
		struct drm_m6npu_get_param known;
		uint64_t future;
	} larger = { .known.param = DRM_M6NPU_PARAM_UNITS, .future = ~0ull };
	unsigned long request = DRM_IOCTL_M6NPU_GET_PARAM;
	unsigned long sized = request & ~((unsigned long)_IOC_SIZEMASK
					  << _IOC_SIZESHIFT);

	EXPECT_EQ(0, board_ioctl(self->fd,
				 sized | sizeof(larger) << _IOC_SIZESHIFT,
				 &larger));
	EXPECT_EQ(4, larger.known.value);
	/* Too short to hold @value: asked, but not told. */
	larger.known = (struct drm_m6npu_get_param){
		.param = DRM_M6NPU_PARAM_UNITS, .value = 77,
	};
	EXPECT_EQ(0, board_ioctl(self->fd, sized | 8ul << _IOC_SIZESHIFT,
				 &larger));
	EXPECT_EQ(77, larger.known.value);
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
		PAD(RESET, reset, flags),
		PAD(RESET, reset, pad),
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
