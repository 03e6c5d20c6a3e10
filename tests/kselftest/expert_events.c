// SPDX-License-Identifier: GPL-2.0-only
/* Experts that will probably be needed: who hears of them, and at whose cost. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "board.h"
#include "kselftest_harness.h"
#include "moe.h"

#define EXPERTS	 100
#define RESIDENT DRM_M6NPU_EXPERT_RESIDENT
#define ABSENT	 DRM_M6NPU_EXPERT_ABSENT
/* More than the device's ring of records holds. */
#define FLOOD	 1000
/* Half of 4 KiB, and the one that goes beyond. */
#define QUEUED	 (2048 / sizeof(struct drm_m6npu_event_expert_fault) + 1)

FIXTURE(expert_events)
{
	struct moe moe;
	struct buffer list;
	struct job job;
};

FIXTURE_SETUP(expert_events)
{
	int fd = board_open();

	self->moe.fd = -1;
	if (fd < 0)
		SKIP(return, "no M6 NPU");
	close(fd);
	ASSERT_EQ(0, moe_open(&self->moe, 2, EXPERTS));
}

FIXTURE_TEARDOWN(expert_events)
{
	moe_close(&self->moe);
}

/* Says that layer 1 will need the experts that layer 0 works with. */
static struct m6npu_cmd cmd_prefetch(void)
{
	struct m6npu_cmd cmd = { .opcode = M6NPU_OP_EXPERT_PREFETCH,
				 .layer = 1 };

	cmd.operand[0] = M6NPU_OPERAND(0, offsetof(struct moe_tensors, ids));
	cmd.operand[1] = M6NPU_OPERAND(0, offsetof(struct moe_tensors, ones));
	cmd.operand[2] = M6NPU_OPERAND_NONE;
	cmd.operand[3] = M6NPU_OPERAND_NONE;
	cmd.args.moe.rows = MOE_ROWS;
	cmd.args.moe.k = 1;
	cmd.args.moe.experts = EXPERTS;
	return cmd;
}

/* So many times, and then layer 0. */
static int guess(struct moe *moe, uint32_t times, uint32_t flags,
		 struct buffer *list, struct job *job)
{
	struct m6npu_cmd cmds[FLOOD + 1];
	int ret;

	for (uint32_t i = 0; i < times; i++)
		cmds[i] = cmd_prefetch();
	cmds[times] = moe_command(moe, 0);
	ret = board_list(moe->fd, moe->pool, cmds, times + 1, list);
	if (ret)
		return ret;
	moe->t->step.flags = flags;
	moe_job(moe, list, 0, times + 1, job);
	return board_submit(moe->fd, job);
}

/* The next event of any type; false if there is none now. */
static bool next_event(int fd, int timeout_ms,
		       struct drm_m6npu_event_expert_fault *event)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	return poll(&poll_fd, 1, timeout_ms) == 1 &&
	       read(fd, event, sizeof(*event)) == (ssize_t)sizeof(*event);
}

#define EXPECT_EVENT(kind, in_layer, from, which)                       \
	do {                                                             \
		struct drm_m6npu_event_expert_fault event = { 0 };       \
                                                                         \
		ASSERT_TRUE(next_event(self->moe.fd, BOARD_TIMEOUT_MS,   \
				       &event));                         \
		EXPECT_EQ(DRM_M6NPU_EVENT_##kind, event.base.type);      \
		EXPECT_EQ(self->job.args.job, event.job);                \
		EXPECT_EQ(in_layer, event.layer);                        \
		EXPECT_EQ(from, event.expert_base);                      \
		EXPECT_EQ(which, event.mask);                            \
	} while (0)

/* Gives the job what it waits for, and sees that it was the right thing. */
static void finish(struct __test_metadata *_metadata, struct moe *moe,
		   struct job *job)
{
	struct drm_m6npu_job_info info;

	ASSERT_EQ(0, moe_bind(moe, 0, 0, EXPERTS, RESIDENT));
	ASSERT_EQ(0, board_wait(moe->fd, job, BOARD_TIMEOUT_MS, &info));
	EXPECT_EQ(0, info.error);
	EXPECT_TRUE(moe_right(moe, 0));
}

TEST_F(expert_events, not_asked)
{
	struct drm_m6npu_event_expert_fault event;
	struct moe *moe = &self->moe;

	moe_route(moe, 10, 20);
	ASSERT_EQ(0, guess(moe, 3, 0, &self->list, &self->job));
	EXPECT_EVENT(EXPERT_FAULT, 0, 0, 0xfffffull << 10);
	finish(_metadata, moe, &self->job);
	EXPECT_FALSE(next_event(moe->fd, 0, &event));
}

/* Names those that are absent, before the job waits, and to nobody else. */
TEST_F(expert_events, asked)
{
	struct drm_m6npu_event_expert_fault event;
	struct moe *moe = &self->moe;
	int other = board_open();

	ASSERT_LE(0, other);
	ASSERT_EQ(0, moe_bind(moe, 1, 20, 10, RESIDENT));
	moe_route(moe, 10, 80);
	ASSERT_EQ(0, guess(moe, 1, M6NPU_STEP_HINTS, &self->list, &self->job));
	EXPECT_EVENT(EXPERT_HINT, 1, 0,
		     ~0ull << 10 & ~(0x3ffull << 20));
	EXPECT_EVENT(EXPERT_HINT, 1, 64, (1ull << 26) - 1);
	EXPECT_EVENT(EXPERT_FAULT, 0, 0, ~0ull << 10);
	EXPECT_EVENT(EXPERT_FAULT, 0, 64, (1ull << 26) - 1);
	finish(_metadata, moe, &self->job);
	EXPECT_FALSE(next_event(moe->fd, 0, &event));
	EXPECT_FALSE(next_event(other, 0, &event));
	close(other);
}

/* Until a ring says that its job waits. Events would be read, so not by them. */
static bool wait_stalled(void)
{
	const struct timespec pause = { .tv_nsec = 1000 * 1000 };
	char line[512];
	bool found = false;
	FILE *file;

	for (int i = 0; i < BOARD_TIMEOUT_MS && !found; i++) {
		file = fopen("/sys/kernel/debug/npu/rings", "re");
		if (!file)
			return false;
		while (fgets(line, sizeof(line), file))
			found |= strstr(line, " stalled ") != NULL;
		fclose(file);
		nanosleep(&pause, NULL);
	}
	return found;
}

/* Nobody reads: hints leave half of the space to faults. */
TEST_F(expert_events, leave_room)
{
	struct drm_m6npu_event_expert_fault event;
	struct moe *moe = &self->moe;
	const uint32_t times = QUEUED + 12;

	moe_route(moe, 0, 10);
	ASSERT_EQ(0, guess(moe, times, M6NPU_STEP_HINTS, &self->list,
			   &self->job));
	ASSERT_TRUE(wait_stalled());
	EXPECT_EQ(12, board_figure("hints_lost"));
	for (uint32_t i = 0; i < QUEUED; i++)
		EXPECT_EVENT(EXPERT_HINT, 1, 0, 0x3ff);
	EXPECT_EVENT(EXPERT_FAULT, 0, 0, 0x3ff);
	EXPECT_FALSE(next_event(moe->fd, 0, &event));
	finish(_metadata, moe, &self->job);
}

/* So many at once that records are lost: the fault comes all the same. */
TEST_F(expert_events, flood)
{
	struct drm_m6npu_event_expert_fault event;
	struct moe *moe = &self->moe;

	moe_route(moe, 0, 10);
	ASSERT_EQ(0, guess(moe, FLOOD, M6NPU_STEP_HINTS, &self->list,
			   &self->job));
	/* Sooner than the look at jobs that take long, after 15 s. */
	ASSERT_EQ((int)sizeof(event),
		  board_event(moe->fd, DRM_M6NPU_EVENT_EXPERT_FAULT, 10000,
			      &event, sizeof(event)));
	EXPECT_EQ(0x3ff, event.mask);
	finish(_metadata, moe, &self->job);
}

TEST_HARNESS_MAIN
