// SPDX-License-Identifier: GPL-2.0-only
/*
 * Four processes whose jobs wait for experts, on all four units at once. One is
 * killed while its job waits; the others don't notice.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "board.h"
#include "checker.h"
#include "kselftest_harness.h"
#include "moe.h"

#define PROCESSES 4
#define EXPERTS	  48
#define RESIDENT  DRM_M6NPU_EXPERT_RESIDENT
#define ABSENT	  DRM_M6NPU_EXPERT_ABSENT

/* What processes say to each other. */
struct board {
	atomic_long rounds[PROCESSES];
	atomic_bool stop;
};

FIXTURE(expert_crowd)
{
	struct witness witness;
	struct board *board;
	pid_t child[PROCESSES];
};

FIXTURE_SETUP(expert_crowd)
{
	int fd = board_open();

	if (fd < 0)
		SKIP(return, "no M6 NPU");
	close(fd);
	ASSERT_TRUE(witness_begin_idle(&self->witness));
	/* However slow the machine is, and until a job's owner is killed. */
	ASSERT_TRUE(board_set_parameter("expert_timeout_ms", 60000));
	self->board = mmap(NULL, sizeof(*self->board), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->board);
}

FIXTURE_TEARDOWN(expert_crowd)
{
	for (int i = 0; i < PROCESSES; i++)
		if (self->child[i] > 0) {
			kill(self->child[i], SIGKILL);
			waitpid(self->child[i], NULL, 0);
		}
	EXPECT_TRUE(witness_end(&self->witness));
}

static bool wait_fault(struct moe *moe,
		       struct drm_m6npu_event_expert_fault *event)
{
	return board_event(moe->fd, DRM_M6NPU_EVENT_EXPERT_FAULT,
			   BOARD_TIMEOUT_MS, event, sizeof(*event)) ==
	       (int)sizeof(*event);
}

/* Binds some of the experts that are missing, until none is. */
static bool serve_faults(struct moe *moe, uint64_t missing, struct rng *rng)
{
	struct drm_m6npu_event_expert_fault event;
	struct drm_m6npu_expert entry[EXPERTS];

	while (missing) {
		uint32_t count = 0;

		if (!wait_fault(moe, &event))
			return false;
		/* Events of earlier faults name some that have come since. */
		for (uint32_t i = 0; i < EXPERTS; i++) {
			if (!(event.mask & missing & 1ull << i) ||
			    rng_one_in(rng, 2))
				continue;
			entry[count++] = moe_entry(moe, 0, i, RESIDENT);
			missing &= ~(1ull << i);
		}
		/* Also if there are none, so that it is said again. */
		if (!count)
			entry[count++] = moe_entry(moe, 1, 0, RESIDENT);
		if (moe_bind_entries(moe, entry, count))
			return false;
	}
	return true;
}

/* A job that finds all of its experts absent, on a unit of its own or any. */
static bool begin_round(struct moe *moe, uint32_t unit_mask, uint32_t first,
			uint32_t count)
{
	moe_route(moe, first, count);
	memset(moe->t->dst, 0, sizeof(moe->t->dst));
	moe_job(moe, &moe->list, 0, 1, &moe->job);
	moe->job.args.unit_mask = unit_mask;
	return !moe_bind(moe, 0, 0, EXPERTS, ABSENT) &&
	       !board_submit(moe->fd, &moe->job);
}

static bool round_right(struct moe *moe, uint32_t unit_mask, struct rng *rng)
{
	uint32_t count = 1 + rng_below(rng, 12);
	uint32_t first = rng_below(rng, EXPERTS - count);
	struct drm_m6npu_job_info info;

	return begin_round(moe, unit_mask, first, count) &&
	       serve_faults(moe, ((1ull << count) - 1) << first, rng) &&
	       !board_wait(moe->fd, &moe->job, BOARD_TIMEOUT_MS, &info) &&
	       !info.error && info.expert_faults >= count &&
	       moe_right(moe, 0);
}

/* Exit status: 0, or which round went wrong. */
static int work(struct board *board, unsigned int index)
{
	struct rng rng = { index + 1 };
	struct moe moe;

	if (moe_open(&moe, 2, EXPERTS))
		return 100;
	for (int i = 1; !atomic_load(&board->stop); i++) {
		if (!round_right(&moe, i % 2 ? 1u << index : 0, &rng))
			return i < 99 ? i : 99;
		atomic_fetch_add(&board->rounds[index], 1);
	}
	moe_close(&moe);
	return 0;
}

/* Says when its job waits, and does nothing about it. */
static void wait_for_death(struct board *board, unsigned int index)
{
	struct drm_m6npu_event_expert_fault event;
	struct moe moe;

	if (moe_open(&moe, 2, EXPERTS) ||
	    !begin_round(&moe, 1u << index, 0, 8) || !wait_fault(&moe, &event))
		_exit(1);
	atomic_fetch_add(&board->rounds[index], 1);
	for (;;)
		pause();
}

/* Until a process has done that many more rounds. */
static bool goes_on(struct board *board, unsigned int index, long rounds)
{
	const struct timespec pause = { .tv_nsec = 1000 * 1000 };
	long goal = atomic_load(&board->rounds[index]) + rounds;

	for (int i = 0; i < BOARD_TIMEOUT_MS; i++) {
		if (atomic_load(&board->rounds[index]) >= goal)
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

static uint32_t quota(void)
{
	struct drm_m6npu_router_ctl ctl = { 0 };
	int fd = board_open();

	board_ioctl(fd, DRM_IOCTL_M6NPU_ROUTER_CTL, &ctl);
	close(fd);
	return ctl.quota;
}

TEST_F_TIMEOUT(expert_crowd, killed, 240)
{
	const unsigned int victim = PROCESSES - 1;
	int status;

	fflush(stdout);
	for (unsigned int i = 0; i < victim; i++) {
		self->child[i] = fork();
		ASSERT_LE(0, self->child[i]);
		if (!self->child[i])
			_exit(work(self->board, i));
	}
	/* All have tables by then. */
	for (unsigned int i = 0; i < victim; i++)
		EXPECT_TRUE(goes_on(self->board, i, 1));
	for (int kills = 0; kills < 5; kills++) {
		self->child[victim] = fork();
		ASSERT_LE(0, self->child[victim]);
		if (!self->child[victim])
			wait_for_death(self->board, victim);
		EXPECT_TRUE(goes_on(self->board, victim, 1));
		EXPECT_EQ(128 / PROCESSES, quota());
		EXPECT_EQ(0, kill(self->child[victim], SIGKILL));
		EXPECT_EQ(self->child[victim],
			  waitpid(self->child[victim], &status, 0));
		self->child[victim] = 0;
		EXPECT_TRUE(WIFSIGNALED(status));
		EXPECT_EQ(128 / victim, quota());
		for (unsigned int i = 0; i < victim; i++)
			EXPECT_TRUE(goes_on(self->board, i, 3));
	}
	atomic_store(&self->board->stop, true);
	for (unsigned int i = 0; i < victim; i++) {
		EXPECT_EQ(self->child[i],
			  waitpid(self->child[i], &status, 0));
		self->child[i] = 0;
		EXPECT_EQ(0, status)
		{
			TH_LOG("process %u: round %d", i, WEXITSTATUS(status));
		}
	}
	EXPECT_EQ(128, quota());
}

TEST_HARNESS_MAIN
