// SPDX-License-Identifier: GPL-2.0-only
/*
 * Defragmentation among many: other processes and threads work in the same pool,
 * are killed, or have the device reset, while buffers are moved.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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
#include "tenant.h"

#define POOL_SIZE (48 * MIB)

FIXTURE(crowd)
{
	int fd;
	uint32_t pool;
	struct witness witness;
};

FIXTURE_SETUP(crowd)
{
	self->fd = board_open();
	if (self->fd < 0)
		SKIP(return, "no M6 NPU");
	ASSERT_TRUE(witness_begin_idle(&self->witness));
	/* A job that waits here waits until it is told. */
	ASSERT_TRUE(board_set_parameter("expert_timeout_ms", 60000));
	ASSERT_EQ(0, board_pool(self->fd, POOL_SIZE, &self->pool));
}

FIXTURE_TEARDOWN(crowd)
{
	if (self->fd < 0)
		return;
	close(self->fd);
	EXPECT_TRUE(witness_end(&self->witness));
}

/* ---- Many at once ---- */

/* Buffers come and go, each checked by CPU and device. 0, or what went wrong. */
static int churn(int fd, uint32_t pool, uint64_t seed, unsigned int rounds)
{
	struct rng rng = { seed };
	struct tenant tenants[24] = { 0 };
	int ret = 0;

	for (unsigned int i = 0; !ret && i < rounds; i++) {
		struct tenant *a = &tenants[rng_below(&rng, 24)];
		struct tenant *b = &tenants[rng_below(&rng, 24)];

		if (a->buffer.handle && rng_one_in(&rng, 2)) {
			if (!tenant_is_right(fd, a))
				ret = -EILSEQ;
			tenant_move_out(fd, a);
		} else if (!a->buffer.handle) {
			ret = tenant_move_in(fd, pool, a, &rng);
		}
		if (!ret && b->buffer.handle) {
			struct buffer region[2] = { b->buffer };
			uint64_t size = b->buffer.size;

			ret = board_buffer(fd, pool, size, 0, &region[1]);
			if (!ret)
				ret = board_command(fd, pool,
						    cmd_copy(1, 0, 0, 0, size),
						    region, 2);
			if (!ret && !contents_are(region[1].map, size, b->seed))
				ret = -EILSEQ;
			board_buffer_close(fd, &region[1]);
		}
	}
	for (int i = 0; i < 24; i++)
		tenant_move_out(fd, &tenants[i]);
	return ret;
}

/* Two processes work in a pool that a third has put in order all the while. */
TEST_F_TIMEOUT(crowd, two_processes, 240)
{
	struct drm_m6npu_pool_defrag report;
	unsigned int moves = 0, calls = 0;
	uint32_t pool;
	pid_t child[2];
	int left = 2;

	ASSERT_EQ(0, board_persistent_pool(self->fd, 8 * MIB, 0, &pool));
	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		child[i] = fork();
		ASSERT_LE(0, child[i]);
		if (!child[i]) {
			int fd = board_open();

			_exit(fd < 0 ? 1 : -churn(fd, pool, 11 + i, 150));
		}
	}
	while (left) {
		ASSERT_EQ(0, board_pool_defrag(self->fd, pool, 0, &report));
		moves += report.buffers;
		calls++;
		for (int i = 0; i < 2; i++) {
			int status;

			if (!child[i] ||
			    waitpid(child[i], &status, WNOHANG) != child[i])
				continue;
			EXPECT_TRUE(WIFEXITED(status));
			EXPECT_EQ(0, WEXITSTATUS(status));
			child[i] = 0;
			left--;
		}
	}
	TH_LOG("%u moves in %u calls", moves, calls);
	EXPECT_LT(20, moves);
	EXPECT_EQ(0, board_pool_destroy(self->fd, pool));
}

struct racer {
	int fd;
	uint32_t pool;
	atomic_bool stop;
	uint64_t seed;
	struct buffer *shared;
	unsigned int done;
	int error;
};

static void *racer_churns(void *arg)
{
	struct racer *r = arg;

	r->error = churn(r->fd, r->pool, r->seed, 80);
	r->done = 80;
	return NULL;
}

/* Looks at, and writes to, a buffer that is under way. */
static void *racer_touches(void *arg)
{
	struct racer *r = arg;
	uint64_t size = r->shared->size, round = 0;

	while (!atomic_load(&r->stop) && !r->error) {
		if (!contents_are(r->shared->map, size, round))
			r->error = -EILSEQ;
		contents_write(r->shared->map, size, ++round);
		r->done++;
	}
	return NULL;
}

/* Makes and uses buffers first, which clears them, while all moves. */
static void *racer_uses(void *arg)
{
	struct racer *r = arg;
	struct buffer buffer;

	while (!atomic_load(&r->stop) && !r->error) {
		r->error = board_buffer(r->fd, r->pool, 9 * PAGE, 0, &buffer);
		if (r->error)
			break;
		if (!bytes_are(buffer.map, buffer.size, 0))
			r->error = -EILSEQ;
		memset(buffer.map, 0xee, buffer.size);
		board_buffer_close(r->fd, &buffer);
		r->done++;
	}
	return NULL;
}

/* Shares what is under way, which stays from then on. */
static void *racer_shares(void *arg)
{
	struct racer *r = arg;
	struct buffer buffer;

	for (uint64_t i = 0; !atomic_load(&r->stop) && !r->error; i++) {
		const void *map;
		int dma_buf;

		r->error = board_buffer(r->fd, r->pool, 5 * PAGE, 0, &buffer);
		if (r->error)
			break;
		contents_write(buffer.map, buffer.size, i);
		dma_buf = board_export(r->fd, &buffer);
		map = mmap(NULL, buffer.size, PROT_READ, MAP_SHARED, dma_buf,
			   0);
		if (map == MAP_FAILED)
			r->error = -errno;
		else if (!contents_are(map, buffer.size, i) ||
			 !contents_are(buffer.map, buffer.size, i))
			r->error = -EILSEQ;
		if (map != MAP_FAILED)
			munmap((void *)map, buffer.size);
		close(dma_buf);
		board_buffer_close(r->fd, &buffer);
		r->done++;
	}
	return NULL;
}

static void *racer_flushes(void *arg)
{
	struct racer *r = arg;
	struct drm_m6npu_pool_flush report;

	while (!atomic_load(&r->stop) && !r->error) {
		r->error = board_pool_flush(r->fd, r->pool, &report);
		r->done++;
	}
	return NULL;
}

static void *racer_defrags(void *arg)
{
	struct racer *r = arg;
	struct drm_m6npu_pool_defrag report;

	while (!atomic_load(&r->stop) && !r->error) {
		r->error = board_pool_defrag(r->fd, r->pool, 0, &report);
		r->done += report.buffers;
	}
	return NULL;
}

TEST_F_TIMEOUT(crowd, threads, 240)
{
	void *(*const run[])(void *) = {
		racer_churns,  racer_touches, racer_uses,    racer_shares,
		racer_flushes, racer_defrags, racer_defrags,
	};
	enum { RACERS = sizeof(run) / sizeof(run[0]) };
	struct racer racer[RACERS] = { 0 };
	struct buffer first, shared;
	pthread_t thread[RACERS];
	int other = board_open();
	uint32_t pool;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, board_persistent_pool(self->fd, 16 * MIB, 0, &pool));
	ASSERT_EQ(0, board_bo(self->fd, pool, PAGE, 0, 0, &first));
	ASSERT_EQ(0, board_buffer(self->fd, pool, 33 * PAGE, 0, &shared));
	contents_write(shared.map, shared.size, 0);
	board_buffer_close(self->fd, &first);
	for (int i = 0; i < RACERS; i++) {
		/* The last one is not one of those that are moved. */
		racer[i].fd = i == RACERS - 1 ? other : self->fd;
		racer[i].pool = pool;
		racer[i].seed = 21;
		racer[i].shared = &shared;
		ASSERT_EQ(0,
			  pthread_create(&thread[i], NULL, run[i], &racer[i]));
	}
	/* The first has a given number of things to do. */
	for (int i = 0; i < RACERS; i++) {
		pthread_join(thread[i], NULL);
		for (int j = i; j < RACERS; j++)
			atomic_store(&racer[j].stop, true);
		EXPECT_EQ(0, racer[i].error);
		EXPECT_LT(0, racer[i].done)
		{
			TH_LOG("thread %d", i);
		}
	}
	TH_LOG("%u touched, %u used first, %u shared, %u + %u moves",
	       racer[1].done, racer[2].done, racer[3].done, racer[5].done,
	       racer[6].done);
	close(other);
	board_buffer_close(self->fd, &shared);
	EXPECT_EQ(0, board_pool_destroy(self->fd, pool));
}

/* ---- Ends of all kinds ---- */

/* Says through the pipe that it is at it, then goes on for ever. */
static void moves_for_ever(int pipe_fd, uint32_t pool, bool defrags)
{
	struct drm_m6npu_pool_defrag report;
	int fd = board_open();

	for (uint64_t i = 0;; i++) {
		int ret = defrags ? board_pool_defrag(fd, pool, 0, &report) :
				    churn(fd, pool, i, 30);

		if (ret || (!i && write(pipe_fd, "x", 1) != 1))
			_exit(1);
	}
}

static bool kill_mover(uint32_t pool, bool defrags, long us)
{
	const struct timespec pause = { .tv_nsec = us * 1000 };
	int fds[2], status;
	char byte;
	pid_t child;

	if (pipe(fds))
		return false;
	fflush(stdout);
	child = fork();
	if (!child)
		moves_for_ever(fds[1], pool, defrags);
	close(fds[1]);
	if (read(fds[0], &byte, 1) != 1)
		return false;
	close(fds[0]);
	/* Another point of its work each time. */
	nanosleep(&pause, NULL);
	kill(child, SIGKILL);
	return waitpid(child, &status, 0) == child && WIFSIGNALED(status);
}

TEST_F_TIMEOUT(crowd, killed, 240)
{
	struct racer racer[2] = { 0 };
	struct drm_m6npu_pool_info info;
	pthread_t thread[2];
	uint32_t pool;

	ASSERT_EQ(0, board_persistent_pool(self->fd, 16 * MIB, 0, &pool));
	for (int i = 0; i < 2; i++) {
		racer[i].fd = self->fd;
		racer[i].pool = pool;
		ASSERT_EQ(0, pthread_create(&thread[i], NULL,
					    i ? racer_uses : racer_defrags,
					    &racer[i]));
	}
	for (int i = 0; i < 4; i++) {
		EXPECT_TRUE(kill_mover(pool, true, 700 * i));
		EXPECT_TRUE(kill_mover(pool, false, 1300 * i));
	}
	for (int i = 0; i < 2; i++) {
		atomic_store(&racer[i].stop, true);
		pthread_join(thread[i], NULL);
		EXPECT_EQ(0, racer[i].error);
	}
	/* What the dead held is given back as soon as their jobs end. */
	for (int i = 0; i < 1000; i++) {
		const struct timespec pause = { .tv_nsec = 5 * 1000 * 1000 };

		ASSERT_EQ(0, board_pool_info(self->fd, pool, &info));
		if (!info.buffers)
			break;
		nanosleep(&pause, NULL);
	}
	EXPECT_EQ(0, info.used);
	EXPECT_EQ(16 * MIB, info.largest_free);
	EXPECT_EQ(0, board_pool_destroy(self->fd, pool));
}

static void *resets(void *arg)
{
	atomic_bool *stop = arg;
	int fd = open("/sys/kernel/debug/npu/inject", O_WRONLY | O_CLOEXEC);
	const struct timespec pause = { .tv_nsec = 20 * 1000 * 1000 };

	while (fd >= 0 && !atomic_load(stop)) {
		if (write(fd, "reset", 5) != 5)
			break;
		nanosleep(&pause, NULL);
	}
	close(fd);
	return NULL;
}

/* The device is reset over and over while it copies: the CPU does the rest. */
TEST_F_TIMEOUT(crowd, reset_meanwhile, 240)
{
	struct drm_m6npu_pool_defrag report;
	struct buffer first, second;
	atomic_bool stop = false;
	pthread_t thread;
	uint64_t device = 0, all = 0;

	self->witness.errors_expected = true;
	ASSERT_EQ(0, pthread_create(&thread, NULL, resets, &stop));
	for (uint64_t i = 0; i < 12; i++) {
		ASSERT_EQ(0, board_bo(self->fd, self->pool,
				      i % 2 ? 16 * MIB : 300 * PAGE, 0, 0,
				      &first));
		ASSERT_EQ(0, board_buffer(self->fd, self->pool, 12 * MIB, 0,
					  &second));
		contents_write(second.map, second.size, i);
		board_buffer_close(self->fd, &first);
		ASSERT_EQ(0,
			  board_pool_defrag(self->fd, self->pool, 0, &report));
		EXPECT_EQ(1, report.buffers);
		device += report.copied_device;
		all += report.copied;
		EXPECT_TRUE(contents_are(second.map, second.size, i));
		board_buffer_close(self->fd, &second);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	TH_LOG("%llu of %llu MiB by the device", (long long)(device / MIB),
	       (long long)(all / MIB));
}

TEST_HARNESS_MAIN
