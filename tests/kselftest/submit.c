// SPDX-License-Identifier: GPL-2.0-only
/* Jobs: results, order, syncobjs, and every way to be refused or to fail. */
#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "board.h"
#include "kselftest_harness.h"

FIXTURE(submit)
{
	int fd;
	uint32_t pool;
	struct buffer data[2];
};

FIXTURE_SETUP(submit)
{
	self->fd = board_open();
	if (self->fd < 0)
		SKIP(return, "no M6 NPU");
	ASSERT_EQ(0, board_pool(self->fd, 16 * MIB, &self->pool));
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, board_buffer(self->fd, self->pool, MIB, 0,
					  &self->data[i]));
}

FIXTURE_TEARDOWN(submit)
{
	if (self->fd >= 0)
		close(self->fd);
}

static bool words_are(const void *memory, uint32_t value, size_t bytes)
{
	const uint32_t *word = memory;

	for (size_t i = 0; i < bytes / 4; i++)
		if (word[i] != value)
			return false;
	return true;
}

FIXTURE_VARIANT(submit)
{
	uint32_t unit_mask;
	uint32_t flags;
};

FIXTURE_VARIANT_ADD(submit, any) { .unit_mask = 0 };
FIXTURE_VARIANT_ADD(submit, unit0) { .unit_mask = 1 };
FIXTURE_VARIANT_ADD(submit, unit3) { .unit_mask = 8 };
FIXTURE_VARIANT_ADD(submit, dma) { .flags = DRM_M6NPU_SUBMIT_DMA_ENGINE };

static void choose_engine(struct job *job,
			  const FIXTURE_VARIANT(submit) * variant)
{
	job->args.unit_mask = variant->unit_mask;
	job->args.flags = variant->flags;
}

TEST_F(submit, fill_and_copy)
{
	const struct m6npu_cmd cmds[] = {
		cmd_fill(0, 0, MIB, 0x01234567),
		cmd_copy(1, 4096, 0, 0, MIB - 4096),
		cmd_fill(0, 64, 64, 0x89abcdef),
	};
	struct drm_m6npu_job_info info;
	struct buffer list;
	struct job job;

	ASSERT_EQ(0, board_list(self->fd, self->pool, cmds, 3, &list));
	board_job(&job, &list, 3, self->data, 2);
	choose_engine(&job, variant);
	ASSERT_EQ(0, board_run(self->fd, &job, &info));
	EXPECT_EQ(0, info.error);
	EXPECT_EQ(0, info.exception);
	EXPECT_EQ(3, info.cmd_index);
	EXPECT_LT(info.begin_ns, info.end_ns);
	EXPECT_TRUE(words_are(self->data[0].map, 0x01234567, 64));
	EXPECT_TRUE(words_are((char *)self->data[0].map + 64, 0x89abcdef, 64));
	EXPECT_TRUE(words_are(self->data[1].map, 0, 4096));
	EXPECT_TRUE(words_are((char *)self->data[1].map + 4096, 0x01234567,
			      MIB - 4096));
}

/* Jobs of a file run in the order they came. */
TEST_F(submit, order)
{
	struct drm_m6npu_job_info info;
	struct buffer list[24];
	struct job job[24];

	/* Lists first: while jobs run nothing can be sealed. */
	for (uint32_t i = 0; i < 24; i++) {
		struct m6npu_cmd cmd = cmd_fill(0, i * 4, (24 - i) * 4, i);

		ASSERT_EQ(0, board_list(self->fd, self->pool, &cmd, 1,
					&list[i]));
	}
	for (uint32_t i = 0; i < 24; i++) {
		board_job(&job[i], &list[i], 1, self->data, 1);
		choose_engine(&job[i], variant);
		ASSERT_EQ(0, board_submit(self->fd, &job[i]));
		if (i)
			EXPECT_LT(job[i - 1].args.job, job[i].args.job);
	}
	for (int i = 23; i >= 0; i--) {
		ASSERT_EQ(0, board_wait(self->fd, &job[i], BOARD_TIMEOUT_MS,
					&info));
		EXPECT_EQ(0, info.error);
	}
	for (uint32_t i = 0; i < 24; i++)
		EXPECT_EQ(i, ((uint32_t *)self->data[0].map)[i]);
}

/*
 * What an ended job used is free at once: the list's memory, its pool and its
 * device addresses.
 */
TEST_F(submit, list_freed)
{
	struct m6npu_cmd cmd = cmd_fill(0, 0, 64, 3);
	struct drm_m6npu_job_info info;
	struct buffer list;
	struct job job;
	uint32_t pool;

	for (int i = 0; i < 50; i++) {
		ASSERT_EQ(0, board_pool(self->fd, MIB, &pool));
		ASSERT_EQ(0, board_list(self->fd, pool, &cmd, 1, &list));
		board_job(&job, &list, 1, self->data, 1);
		choose_engine(&job, variant);
		ASSERT_EQ(0, board_submit(self->fd, &job));
		/* Closed while the job runs, and after it. */
		if (i & 1)
			board_buffer_close(self->fd, &list);
		ASSERT_EQ(0, board_wait(self->fd, &job, BOARD_TIMEOUT_MS,
					&info));
		EXPECT_EQ(0, info.error);
		board_buffer_close(self->fd, &list);
		ASSERT_EQ(0, board_pool_destroy(self->fd, pool));
	}
}

/* A job that fails ends alone, says why, and the next one runs. */
TEST_F(submit, failures)
{
	struct m6npu_cmd good = cmd_fill(0, 0, 64, 7);
	struct m6npu_cmd illegal = { .opcode = 0xee };
	struct m6npu_cmd bounds = cmd_fill(0, MIB - 32, 64, 7);
	struct m6npu_cmd no_region = cmd_fill(5, 0, 64, 7);
	const struct {
		struct m6npu_cmd cmd;
		int error;
		uint32_t exception;
	} cases[] = {
		{ illegal, -EINVAL, M6NPU_EXC_ILLEGAL_COMMAND },
		{ bounds, -EINVAL, M6NPU_EXC_BOUNDS },
		{ no_region, -EINVAL, M6NPU_EXC_BOUNDS },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct m6npu_cmd cmds[] = { good, cases[i].cmd, good };
		struct drm_m6npu_event_exception event;
		struct drm_m6npu_job_info info;
		struct buffer list;
		struct job job;

		ASSERT_EQ(0, board_list(self->fd, self->pool, cmds, 3, &list));
		board_job(&job, &list, 3, self->data, 1);
		choose_engine(&job, variant);
		ASSERT_EQ(0, board_run(self->fd, &job, &info));
		EXPECT_EQ(cases[i].error, info.error);
		EXPECT_EQ(cases[i].exception, info.exception);
		EXPECT_EQ(1, info.cmd_index);
		ASSERT_EQ((int)sizeof(event),
			  board_event(self->fd, DRM_M6NPU_EVENT_EXCEPTION,
				      BOARD_TIMEOUT_MS, &event,
				      sizeof(event)));
		EXPECT_EQ(job.args.job, event.job);
		EXPECT_EQ(cases[i].exception, event.code);
		EXPECT_EQ(1, event.cmd_index);
		job.args.cmd_count = 1;
		ASSERT_EQ(0, board_run(self->fd, &job, &info));
		EXPECT_EQ(0, info.error);
	}
}

TEST_F(submit, page_fault)
{
	struct m6npu_cmd cmd = cmd_fill(0, 128, 64, 7);
	struct buffer nowhere = { .addr = 0x2000000000ull, .size = MIB };
	struct drm_m6npu_job_info info;
	struct buffer list, readonly;
	struct job job;

	ASSERT_EQ(0, board_list(self->fd, self->pool, &cmd, 1, &list));
	board_job(&job, &list, 1, &nowhere, 1);
	choose_engine(&job, variant);
	ASSERT_EQ(0, board_run(self->fd, &job, &info));
	EXPECT_EQ(-EFAULT, info.error);
	EXPECT_EQ(M6NPU_EXC_MMU_PAGE_FAULT, info.exception);
	EXPECT_EQ(0x2000000000ull, info.fault_addr & ~(PAGE - 1));
	/* Nor may it write what is read-only for the device. */
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, PAGE,
				  DRM_M6NPU_BO_DEVICE_READONLY, &readonly));
	board_job(&job, &list, 1, &readonly, 1);
	choose_engine(&job, variant);
	ASSERT_EQ(0, board_run(self->fd, &job, &info));
	EXPECT_EQ(-EFAULT, info.error);
	EXPECT_TRUE(words_are(readonly.map, 0, PAGE));
	/* The list itself is read-only as well. */
	board_job(&job, &list, 1, &list, 1);
	choose_engine(&job, variant);
	ASSERT_EQ(0, board_run(self->fd, &job, &info));
	EXPECT_EQ(-EFAULT, info.error);
}

FIXTURE(refuse)
{
	int fd;
	uint32_t pool;
	struct buffer data, list;
	struct job job;
};

FIXTURE_SETUP(refuse)
{
	struct m6npu_cmd cmd = cmd_fill(0, 0, 64, 7);

	self->fd = board_open();
	if (self->fd < 0)
		SKIP(return, "no M6 NPU");
	ASSERT_EQ(0, board_pool(self->fd, 16 * MIB, &self->pool));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, MIB, 0, &self->data));
	ASSERT_EQ(0, board_list(self->fd, self->pool, &cmd, 1, &self->list));
	board_job(&self->job, &self->list, 1, &self->data, 1);
}

FIXTURE_TEARDOWN(refuse)
{
	if (self->fd >= 0)
		close(self->fd);
}

#define EXPECT_REFUSED(error, change)                                     \
	do {                                                              \
		struct job job = self->job;                               \
		change;                                                   \
		EXPECT_EQ(error, board_submit(self->fd, &job))            \
		{                                                         \
			TH_LOG("%s", #change);                            \
		}                                                         \
		EXPECT_EQ(0, job.args.job);                               \
	} while (0)

TEST_F(refuse, arguments)
{
	EXPECT_REFUSED(-ENOENT, job.args.cmdlist = 4242);
	EXPECT_REFUSED(-ENOENT, job.args.cmdlist = 0);
	EXPECT_REFUSED(-EINVAL, job.args.cmdlist = self->data.handle);
	EXPECT_REFUSED(-EINVAL, job.args.cmd_count = 0);
	EXPECT_REFUSED(-EINVAL, job.args.cmd_count = 65);
	EXPECT_REFUSED(-EINVAL, job.args.cmd_count = UINT32_MAX);
	EXPECT_REFUSED(-EINVAL, job.args.cmd_offset = 32);
	EXPECT_REFUSED(-EINVAL, job.args.cmd_offset = 4096);
	EXPECT_REFUSED(-EINVAL, job.args.cmd_offset = UINT64_MAX - 63);
	EXPECT_REFUSED(-EINVAL, job.args.region_count = 9);
	EXPECT_REFUSED(-EINVAL, job.args.region_stride = 0);
	EXPECT_REFUSED(-EINVAL, job.regions[0].addr = 4);
	EXPECT_REFUSED(-EINVAL, job.regions[0].addr = 1ull << 38);
	EXPECT_REFUSED(-EINVAL, job.regions[0].size = UINT64_MAX);
	EXPECT_REFUSED(-EINVAL, job.args.step_addr = 1ull << 38);
	EXPECT_REFUSED(-EINVAL, job.args.unit_mask = 0x10);
	EXPECT_REFUSED(-EINVAL, job.args.priority = 3);
	EXPECT_REFUSED(-EINVAL, job.args.flags = 2);
	EXPECT_REFUSED(-EINVAL, job.args.in_sync_count = 65);
	EXPECT_REFUSED(-EFAULT, job.args.in_sync_count = 1);
	EXPECT_REFUSED(-EINVAL, job.out.flags = 2);
	EXPECT_REFUSED(-EINVAL, job.out.point = 5);
	EXPECT_REFUSED(-ENOENT, job.out.handle = 4242);
}

/* After all refusals the right one goes through. */
TEST_F(refuse, then_accept)
{
	struct drm_m6npu_job_info info;

	EXPECT_REFUSED(-EINVAL, job.args.cmd_count = 0);
	ASSERT_EQ(0, board_run(self->fd, &self->job, &info));
	EXPECT_EQ(0, info.error);
	EXPECT_EQ(7, *(uint32_t *)self->data.map);
}

/* With the address space's end in reach, and a buffer that nobody used yet. */
TEST_F(refuse, step_at_the_end)
{
	struct drm_m6npu_job_info info;
	struct buffer unused;

	ASSERT_EQ(0, board_bo(self->fd, self->pool, MIB, 0, 0, &unused));
	self->job.args.step_addr = (1ull << 38) - 64;
	ASSERT_EQ(0, board_run(self->fd, &self->job, &info));
	EXPECT_EQ(-EFAULT, info.error);
	self->job.args.step_addr = 0;
	self->job.regions[1].addr = (1ull << 38) - 64;
	self->job.regions[1].size = 64;
	self->job.args.region_count = 2;
	ASSERT_EQ(0, board_run(self->fd, &self->job, &info));
	EXPECT_EQ(0, info.error);
}

TEST_F(refuse, priority)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct none[2] = { 0 };
	struct drm_m6npu_job_info info;
	int status;
	pid_t child;

	self->job.args.priority = DRM_M6NPU_PRIORITY_HIGH;
	ASSERT_EQ(0, board_run(self->fd, &self->job, &info));
	EXPECT_EQ(0, info.error);
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		syscall(SYS_capset, &head, none);
		_exit(board_submit(self->fd, &self->job) == -EPERM ? 0 : 1);
	}
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_TRUE(WIFEXITED(status) && !WEXITSTATUS(status));
}

TEST_F(refuse, job_info)
{
	struct drm_m6npu_job_info info = { .job = 1 };

	EXPECT_EQ(-ENOENT,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_JOB_INFO, &info));
	for (int i = 0; i < 66; i++)
		ASSERT_EQ(0, board_run(self->fd, &self->job, &info));
	EXPECT_EQ(66, info.job);
	info.job = 1;
	EXPECT_EQ(-ENOENT,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_JOB_INFO, &info));
	info.job = 4;
	EXPECT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_JOB_INFO, &info));
}

/* A job waits for its in-syncs, binary and timeline. */
TEST_F(refuse, in_syncs)
{
	struct drm_m6npu_sync wait[2] = { 0 };
	struct drm_syncobj_timeline_array point = { 0 };
	struct drm_m6npu_job_info info = { 0 };
	uint64_t seven = 7;

	ASSERT_EQ(0, board_syncobj(self->fd, false, &wait[0].handle));
	self->job.args.in_syncs = (uintptr_t)wait;
	self->job.args.in_sync_count = 1;
	/* Nothing to wait for yet: that is the caller's mistake. */
	EXPECT_GT(0, board_submit(self->fd, &self->job));

	ASSERT_EQ(0, board_syncobj(self->fd, true, &wait[0].handle));
	ASSERT_EQ(0, board_syncobj(self->fd, false, &wait[1].handle));
	wait[1].flags = DRM_M6NPU_SYNC_TIMELINE;
	wait[1].point = 7;
	point.handles = (uintptr_t)&wait[1].handle;
	point.points = (uintptr_t)&seven;
	point.count_handles = 1;
	ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL,
				 &point));
	self->job.args.in_sync_count = 2;
	ASSERT_EQ(0, board_run(self->fd, &self->job, &info));
	EXPECT_EQ(0, info.error);
}

/* Results of one context don't depend on what another one does wrong. */
static const char *disturb_loop(volatile bool *stop)
{
	struct m6npu_cmd bad = { .opcode = 0xee };
	struct drm_m6npu_job_info info;
	struct buffer list, data;
	int fd = board_open();
	uint32_t pool;
	struct job job;

	if (board_pool(fd, MIB, &pool) ||
	    board_buffer(fd, pool, PAGE, 0, &data) ||
	    board_list(fd, pool, &bad, 1, &list))
		return "setup";
	while (!*stop) {
		board_job(&job, &list, 1, &data, 1);
		if (board_run(fd, &job, &info) || info.error != -EINVAL)
			return "run";
	}
	close(fd);
	return NULL;
}

static void *disturb(void *stop)
{
	return (void *)disturb_loop(stop);
}

TEST_F_TIMEOUT(refuse, isolation, 120)
{
	struct drm_m6npu_job_info info;
	volatile bool stop = false;
	pthread_t thread[3];
	void *result;

	for (int i = 0; i < 3; i++)
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, disturb,
					    (void *)&stop));
	for (uint32_t i = 0; i < 200; i++) {
		*(uint32_t *)self->data.map = 0;
		ASSERT_EQ(0, board_run(self->fd, &self->job, &info));
		ASSERT_EQ(0, info.error);
		ASSERT_EQ(7, *(uint32_t *)self->data.map);
	}
	stop = true;
	for (int i = 0; i < 3; i++) {
		pthread_join(thread[i], &result);
		EXPECT_EQ(NULL, result);
	}
}

TEST_HARNESS_MAIN
