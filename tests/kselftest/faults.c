// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the driver does when the board misbehaves. The faults come from outside:
 * tests/qemu/test_faults.py passes lines "# inject COMMAND" of our output to
 * the emulator, each followed by a spurious interrupt of the firmware's vector,
 * so that we know that it is done. On its own this program skips.
 *
 * Run with a job_timeout_ms of about a second.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "board.h"
#include "checker.h"
#include "kselftest_harness.h"

#define RINGS "/sys/kernel/debug/npu/rings"
/* A second, twice, on a busy machine. */
#define PATIENCE_NS (8 * 1000000000ull)

/* One skipped program, rather than each of its tests. */
static void __attribute__((constructor)) need_injector(void)
{
	if (getenv("M6_INJECT"))
		return;
	puts("TAP version 13\n1..0 # SKIP nobody injects faults");
	exit(KSFT_SKIP);
}

FIXTURE(faults)
{
	int fd;
	uint32_t pool;
	struct buffer data, list;
	struct witness witness;
};

FIXTURE_SETUP(faults)
{
	struct m6npu_cmd cmds[] = {
		cmd_fill(0, 0, PAGE, 7),
		cmd_fill(0, PAGE, PAGE, 8),
	};

	self->fd = board_open();
	if (self->fd < 0)
		SKIP(return, "no M6 NPU");
	ASSERT_TRUE(witness_begin_idle(&self->witness));
	ASSERT_EQ(0, board_pool(self->fd, MIB, &self->pool));
	ASSERT_EQ(0,
		  board_buffer(self->fd, self->pool, 2 * PAGE, 0, &self->data));
	ASSERT_EQ(0, board_list(self->fd, self->pool, cmds, 2, &self->list));
}

FIXTURE_TEARDOWN(faults)
{
	if (self->fd < 0)
		return;
	board_buffer_close(self->fd, &self->data);
	close(self->fd);
	EXPECT_TRUE(witness_end(&self->witness));
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void pause_ms(long ms)
{
	const struct timespec pause = { .tv_nsec = ms * 1000 * 1000 };

	nanosleep(&pause, NULL);
}

static long interrupts(const char *name)
{
	FILE *file = fopen("/proc/interrupts", "re");
	char line[1024], *at;
	long sum = -1, count;
	int used;

	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file)) {
		if (!strstr(line, name))
			continue;
		sum = 0;
		at = strchr(line, ':') + 1;
		while (sscanf(at, " %ld%n", &count, &used) == 1) {
			sum += count;
			at += used;
		}
	}
	fclose(file);
	return sum;
}

static bool inject(const char *what, long number)
{
	long before = interrupts("m6npu-firmware");
	char line[64];
	int size = snprintf(line, sizeof(line), "\n# inject %s", what);

	if (number >= 0)
		snprintf(line + size, sizeof(line) - size, " %ld", number);
	printf("%s\n", line);
	fflush(stdout);
	for (int i = 0; i < 2000; i++) {
		if (interrupts("m6npu-firmware") != before)
			return true;
		pause_ms(10);
	}
	return false;
}

/* A figure of a ring in debugfs: @column from the end. */
static long ring_figure(int ring, int column)
{
	FILE *file = fopen(RINGS, "re");
	long value[2] = { -1, -1 };
	char line[256];

	if (!file)
		return -1;
	for (int i = -1; i <= ring && fgets(line, sizeof(line), file); i++) {
		char *last = strrchr(line, ' ');

		if (i != ring)
			continue;
		value[0] = atol(last);
		while (last > line && *last == ' ')
			*last-- = '\0';
		last = strrchr(line, ' ');
		value[1] = last ? atol(last) : -1;
	}
	fclose(file);
	return value[column];
}

#define RESETS	  0
#define LOST_IRQS 1

static void on_ring(struct job *job, int ring)
{
	if (ring == M6NPU_RING_DMA)
		job->args.flags = DRM_M6NPU_SUBMIT_DMA_ENGINE;
	else
		job->args.unit_mask = 1u << ring;
}

static int run_on(int fd, const struct buffer *list, const struct buffer *data,
		  int ring, struct drm_m6npu_job_info *info)
{
	struct job job;

	board_job(&job, list, 2, data, 1);
	on_ring(&job, ring);
	return board_run(fd, &job, info);
}

static bool read_coredump(void)
{
	bool good = false;
	glob_t found;

	for (int i = 0; i < 300 && !good; i++) {
		if (glob("/sys/class/devcoredump/devcd*/data", 0, NULL,
			 &found)) {
			pause_ms(10);
			continue;
		}
		for (size_t k = 0; k < found.gl_pathc; k++) {
			char text[4096] = "";
			int fd = open(found.gl_pathv[k], O_RDWR | O_CLOEXEC);

			if (fd < 0)
				continue;
			if (read(fd, text, sizeof(text) - 1) > 0)
				good = !strncmp(text, "m6npu hang", 10) &&
				       strstr(text, "job: ");
			/* Done with it. */
			if (write(fd, "1", 1) != 1)
				good = false;
			close(fd);
		}
		globfree(&found);
	}
	return good;
}

FIXTURE_VARIANT(faults)
{
	int ring;
};

FIXTURE_VARIANT_ADD(faults, unit0){ .ring = 0 };
FIXTURE_VARIANT_ADD(faults, unit3){ .ring = 3 };
FIXTURE_VARIANT_ADD(faults, dma){ .ring = M6NPU_RING_DMA };

/* The job that hangs is ended, the others don't notice, the unit is back. */
TEST_F_TIMEOUT(faults, hang, 120)
{
	uint32_t others = 0xf & ~(1u << variant->ring);
	struct drm_m6npu_event_exception event;
	struct drm_m6npu_job_info info;
	long resets;
	uint64_t t;

	self->witness.errors_expected = true;
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, checker_start(&self->witness.checker[i], others));
	resets = ring_figure(variant->ring, RESETS);
	ASSERT_TRUE(inject("unit-hang", variant->ring));
	t = now_ns();
	ASSERT_EQ(0, run_on(self->fd, &self->list, &self->data, variant->ring,
			    &info));
	EXPECT_GT(PATIENCE_NS, now_ns() - t);
	EXPECT_EQ(-ETIME, info.error);
	EXPECT_EQ(M6NPU_EXC_UNIT_HANG, info.exception);
	EXPECT_EQ(resets + 1, ring_figure(variant->ring, RESETS));
	EXPECT_EQ((int)sizeof(event),
		  board_event(self->fd, DRM_M6NPU_EVENT_EXCEPTION, 5000, &event,
			      sizeof(event)));
	EXPECT_TRUE(read_coredump());
	for (int i = 0; i < 3; i++) {
		memset(self->data.map, 0, 2 * PAGE);
		ASSERT_EQ(0, run_on(self->fd, &self->list, &self->data,
				    variant->ring, &info));
		EXPECT_EQ(0, info.error);
		EXPECT_EQ(8, ((uint32_t *)self->data.map)[PAGE / 2 - 1]);
	}
}

/* One that does it again and again is refused, a new file is not. */
TEST_F_TIMEOUT(faults, hang_again_and_again, 120)
{
	const struct m6npu_cmd cmds[] = {
		cmd_fill(0, 0, PAGE, 7),
		cmd_fill(0, PAGE, PAGE, 8),
	};
	struct drm_m6npu_job_info info;
	struct job job;
	int ret = 0;

	self->witness.errors_expected = true;
	ASSERT_EQ(0, checker_start(&self->witness.checker[0],
				   0xf & ~(1u << variant->ring)));
	for (int i = 0; i < 5 && !ret; i++) {
		ASSERT_TRUE(inject("unit-hang", variant->ring));
		ret = run_on(self->fd, &self->list, &self->data, variant->ring,
			     &info);
		if (!ret)
			EXPECT_EQ(-ETIME, info.error);
	}
	EXPECT_EQ(-EIO, ret);
	board_job(&job, &self->list, 2, &self->data, 1);
	EXPECT_EQ(-EIO, board_submit(self->fd, &job));
	board_buffer_close(self->fd, &self->data);
	close(self->fd);

	self->fd = board_open();
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, board_pool(self->fd, MIB, &self->pool));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, 2 * PAGE, 0,
				  &self->data));
	ASSERT_EQ(0, board_list(self->fd, self->pool, cmds, 2, &self->list));
	/* The last injection may still wait for somebody. */
	ASSERT_EQ(0, run_on(self->fd, &self->list, &self->data, variant->ring,
			    &info));
	EXPECT_TRUE(!info.error || info.error == -ETIME);
	ASSERT_EQ(0, run_on(self->fd, &self->list, &self->data, variant->ring,
			    &info));
	EXPECT_EQ(0, info.error);
}

/* Killed with a job that hangs, and others behind it. */
TEST_F_TIMEOUT(faults, hang_and_die, 120)
{
	struct drm_m6npu_job_info info;
	int ends[2], status;
	char byte;
	pid_t child;

	self->witness.errors_expected = true;
	ASSERT_EQ(0, checker_start(&self->witness.checker[0],
				   0xf & ~(1u << variant->ring)));
	ASSERT_TRUE(inject("unit-hang", variant->ring));
	ASSERT_EQ(0, pipe(ends));
	fflush(stdout);
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		struct m6npu_cmd cmd = cmd_fill(0, 0, PAGE, 1);
		int fd = board_open();
		struct buffer data, list;
		uint32_t pool;

		if (board_pool(fd, MIB, &pool) ||
		    board_buffer(fd, pool, PAGE, 0, &data) ||
		    board_list(fd, pool, &cmd, 1, &list))
			_exit(1);
		for (int i = 0; i < 8; i++) {
			struct job job;

			board_job(&job, &list, 1, &data, 1);
			on_ring(&job, variant->ring);
			if (board_submit(fd, &job))
				_exit(1);
		}
		if (write(ends[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	close(ends[1]);
	ASSERT_EQ(1, read(ends[0], &byte, 1));
	kill(child, SIGKILL);
	ASSERT_EQ(child, waitpid(child, &status, 0));
	ASSERT_EQ(0, run_on(self->fd, &self->list, &self->data, variant->ring,
			    &info));
	EXPECT_EQ(0, info.error);
}

/* The full reset, while a job hangs that nobody has noticed yet. */
TEST_F_TIMEOUT(faults, reset_with_hung_job, 120)
{
	struct drm_m6npu_reset reset = { 0 };
	struct drm_m6npu_job_info info;
	struct job job;

	self->witness.errors_expected = true;
	ASSERT_TRUE(inject("unit-hang", variant->ring));
	board_job(&job, &self->list, 2, &self->data, 1);
	on_ring(&job, variant->ring);
	ASSERT_EQ(0, board_submit(self->fd, &job));
	pause_ms(50);
	EXPECT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_RESET, &reset));
	ASSERT_EQ(0, board_wait(self->fd, &job, BOARD_TIMEOUT_MS, &info));
	EXPECT_EQ(-EIO, info.error);
	ASSERT_EQ(0, run_on(self->fd, &self->list, &self->data, variant->ring,
			    &info));
	EXPECT_EQ(0, info.error);
}

/* An interrupt that is lost costs time, and nothing else. */
TEST_F_TIMEOUT(faults, lost_interrupt, 120)
{
	struct drm_m6npu_job_info info;
	long vector, lost;
	uint64_t t;

	vector = variant->ring == M6NPU_RING_DMA ?
			 M6NPU_VEC_DMA :
			 M6NPU_VEC_UNIT(variant->ring);
	lost = ring_figure(variant->ring, LOST_IRQS);
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, checker_start(&self->witness.checker[i],
					   0xf & ~(1u << variant->ring)));
	ASSERT_TRUE(inject("lost-irq", vector));
	t = now_ns();
	ASSERT_EQ(0, run_on(self->fd, &self->list, &self->data, variant->ring,
			    &info));
	EXPECT_GT(PATIENCE_NS, now_ns() - t);
	EXPECT_EQ(0, info.error);
	EXPECT_EQ(8, ((uint32_t *)self->data.map)[PAGE / 2 - 1]);
	EXPECT_EQ(lost + 1, ring_figure(variant->ring, LOST_IRQS));
}

TEST_F_TIMEOUT(faults, spurious_interrupts, 120)
{
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, checker_start(&self->witness.checker[i], 0));
	for (long vector = 0; vector < M6NPU_VECTORS; vector++)
		ASSERT_TRUE(inject("spurious-irq", vector));
	EXPECT_TRUE(checker_goes_on(&self->witness.checker[0], 5));
}

/* The next translation fails, of a job that did nothing wrong. */
TEST_F_TIMEOUT(faults, mmu_fault, 120)
{
	struct drm_m6npu_job_info info;

	ASSERT_TRUE(inject("mmu-fault", -1));
	ASSERT_EQ(0, run_on(self->fd, &self->list, &self->data, variant->ring,
			    &info));
	EXPECT_EQ(-EFAULT, info.error);
	EXPECT_EQ(M6NPU_EXC_MMU_PAGE_FAULT, info.exception);
	ASSERT_EQ(0, run_on(self->fd, &self->list, &self->data, variant->ring,
			    &info));
	EXPECT_EQ(0, info.error);
}

/* The interrupt that tells of a missing expert is lost; the job ends anyway. */
TEST_F_TIMEOUT(faults, lost_expert_interrupt, 120)
{
	struct drm_m6npu_expert_table table = { .layers = 1, .experts = 4 };
	struct m6npu_cmd cmd = { .opcode = M6NPU_OP_MOE_FFN };
	struct drm_m6npu_event_expert_fault event;
	struct drm_m6npu_job_info info;
	struct buffer list;
	struct job job;

	if (variant->ring == M6NPU_RING_DMA)
		SKIP(return, "not on the DMA engine");
	for (int i = 0; i < 4; i++)
		cmd.operand[i] = M6NPU_OPERAND(0, i * 1024);
	cmd.args.moe.rows = 1;
	cmd.args.moe.k = 1;
	cmd.args.moe.experts = 4;
	cmd.args.moe.hidden = 32;
	cmd.args.moe.ffn = 32;
	ASSERT_EQ(0, board_list(self->fd, self->pool, &cmd, 1, &list));
	ASSERT_EQ(0,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE, &table));
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, checker_start(&self->witness.checker[i],
					   0xf & ~(1u << variant->ring)));
	ASSERT_TRUE(inject("lost-irq", M6NPU_VEC_EXPERT));
	board_job(&job, &list, 1, &self->data, 1);
	on_ring(&job, variant->ring);
	ASSERT_EQ(0, board_submit(self->fd, &job));
	EXPECT_EQ((int)sizeof(event),
		  board_event(self->fd, DRM_M6NPU_EVENT_EXPERT_FAULT, 8000,
			      &event, sizeof(event)));
	ASSERT_EQ(0, board_wait(self->fd, &job, BOARD_TIMEOUT_MS, &info));
	EXPECT_EQ(-ETIME, info.error);
	ASSERT_EQ(0, run_on(self->fd, &self->list, &self->data, variant->ring,
			    &info));
	EXPECT_EQ(0, info.error);
}

TEST_HARNESS_MAIN
