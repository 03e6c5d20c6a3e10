// SPDX-License-Identifier: GPL-2.0-only
/*
 * Everything at once: buffers that go while jobs use them, experts that move,
 * processes that die, files that are shared, opened and closed. Whatever
 * happens to one client, each result of another is right.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "board.h"
#include "checker.h"
#include "kselftest_harness.h"

FIXTURE(stress)
{
	int fd;
	struct witness witness;
};

FIXTURE_SETUP(stress)
{
	self->fd = board_open();
	if (self->fd < 0)
		SKIP(return, "no M6 NPU");
	ASSERT_TRUE(witness_begin(&self->witness));
}

FIXTURE_TEARDOWN(stress)
{
	if (self->fd < 0)
		return;
	close(self->fd);
	EXPECT_TRUE(witness_end(&self->witness));
}

static void pause_us(long us)
{
	const struct timespec pause = { .tv_nsec = us * 1000 };

	nanosleep(&pause, NULL);
}

static bool run_threads(void *(*function)(void *), void *args, size_t size,
			unsigned int count)
{
	pthread_t thread[16];
	unsigned int begun;

	for (begun = 0; begun < count; begun++)
		if (pthread_create(&thread[begun], NULL, function,
				   (char *)args + begun * size))
			break;
	for (unsigned int i = 0; i < begun; i++)
		pthread_join(thread[i], NULL);
	return begun == count;
}

/* ---- Experts that move ---- */

#define HIDDEN	64u
#define FFN	96u
#define EXPERTS 8u
#define TOP	2u
#define ROWS	64u
#define WEIGHTS (3 * HIDDEN * FFN)

struct tensors {
	float dst[ROWS][HIDDEN];
	float src[ROWS][HIDDEN];
	int32_t ids[ROWS][TOP];
	float w[ROWS][TOP];
};

struct mover {
	int fd;
	struct buffer weights[2];
	atomic_bool stop;
	unsigned int moves;
	int error;
};

static int bind_all(int fd, uint64_t addr)
{
	struct drm_m6npu_expert entry[EXPERTS] = { 0 };
	struct drm_m6npu_expert_bind bind = {
		.entries = (uintptr_t)entry,
		.count = EXPERTS,
		.stride = sizeof(entry[0]),
	};

	for (uint32_t i = 0; i < EXPERTS; i++) {
		entry[i].expert = (uint16_t)i;
		entry[i].state = DRM_M6NPU_EXPERT_RESIDENT;
		entry[i].size = WEIGHTS * sizeof(float);
		entry[i].addr = addr + i * entry[i].size;
	}
	return board_ioctl(fd, DRM_IOCTL_M6NPU_EXPERT_BIND, &bind);
}

/* When the bind returns nobody reads the old copy: overwrite it. */
static void *mover_run(void *arg)
{
	const size_t bytes = EXPERTS * WEIGHTS * sizeof(float);
	struct mover *m = arg;
	int at = 0;

	while (!atomic_load(&m->stop) && !m->error) {
		m->error = bind_all(m->fd, m->weights[!at].addr);
		memset(m->weights[at].map, 0xff, bytes);
		pause_us(500);
		memcpy(m->weights[at].map, m->weights[!at].map, bytes);
		at = !at;
		m->moves++;
	}
	return NULL;
}

static void fill_tensors(struct tensors *t)
{
	struct rng rng = { 5 };

	for (uint32_t r = 0; r < ROWS; r++) {
		for (uint32_t i = 0; i < HIDDEN; i++)
			t->src[r][i] = (float)rng_below(&rng, 256) / 256;
		for (uint32_t k = 0; k < TOP; k++) {
			t->ids[r][k] = (int32_t)((r + k * 3) % EXPERTS);
			t->w[r][k] = 0.5f;
		}
	}
}

static struct m6npu_cmd moe_command(void)
{
	struct m6npu_cmd cmd = { .opcode = M6NPU_OP_MOE_FFN };

	cmd.operand[0] = M6NPU_OPERAND(0, offsetof(struct tensors, dst));
	cmd.operand[1] = M6NPU_OPERAND(0, offsetof(struct tensors, src));
	cmd.operand[2] = M6NPU_OPERAND(0, offsetof(struct tensors, ids));
	cmd.operand[3] = M6NPU_OPERAND(0, offsetof(struct tensors, w));
	cmd.args.moe.rows = ROWS;
	cmd.args.moe.k = TOP;
	cmd.args.moe.experts = EXPERTS;
	cmd.args.moe.hidden = HIDDEN;
	cmd.args.moe.ffn = FFN;
	return cmd;
}

TEST_F_TIMEOUT(stress, rebind, 240)
{
	struct drm_m6npu_expert_table table = { .layers = 1,
						.experts = EXPERTS };
	struct m6npu_cmd cmds[2] = { moe_command(), moe_command() };
	static float want[ROWS][HIDDEN];
	struct mover mover = { .fd = self->fd };
	struct drm_m6npu_job_info info;
	struct buffer data[4], list;
	struct rng rng = { 3 };
	struct job job[4];
	uint32_t pool, wrong = 0;
	pthread_t thread;
	float *weights;

	/* A move may keep jobs waiting for long on a slow machine. */
	ASSERT_TRUE(board_set_parameter("expert_timeout_ms", 60000));
	ASSERT_EQ(0, board_pool(self->fd, 8 * MIB, &pool));
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, board_buffer(self->fd, pool,
					  EXPERTS * WEIGHTS * sizeof(float), 0,
					  &mover.weights[i]));
	weights = mover.weights[0].map;
	for (uint32_t i = 0; i < EXPERTS * WEIGHTS; i++)
		weights[i] = ((float)rng_below(&rng, 256) - 128) / 1024;
	memcpy(mover.weights[1].map, weights,
	       EXPERTS * WEIGHTS * sizeof(float));
	for (int i = 0; i < 4; i++) {
		ASSERT_EQ(0, board_buffer(self->fd, pool,
					  sizeof(struct tensors), 0, &data[i]));
		fill_tensors(data[i].map);
	}
	ASSERT_EQ(0, board_list(self->fd, pool, cmds, 2, &list));
	ASSERT_EQ(0,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE, &table));
	ASSERT_EQ(0, bind_all(self->fd, mover.weights[0].addr));
	board_job(&job[0], &list, 2, &data[0], 1);
	ASSERT_EQ(0, board_run(self->fd, &job[0], &info));
	ASSERT_EQ(0, info.error);
	memcpy(want, data[0].map, sizeof(want));

	ASSERT_EQ(0, pthread_create(&thread, NULL, mover_run, &mover));
	for (int round = 0; round < 60; round++) {
		for (int i = 0; i < 4; i++) {
			memset(data[i].map, 0, sizeof(want));
			board_job(&job[i], &list, 2, &data[i], 1);
			ASSERT_EQ(0, board_submit(self->fd, &job[i]));
		}
		for (int i = 0; i < 4; i++) {
			ASSERT_EQ(0, board_wait(self->fd, &job[i],
						BOARD_TIMEOUT_MS, &info));
			EXPECT_EQ(0, info.error);
			wrong += !!memcmp(data[i].map, want, sizeof(want));
		}
	}
	atomic_store(&mover.stop, true);
	pthread_join(thread, NULL);
	TH_LOG("%u moves", mover.moves);
	EXPECT_EQ(0, mover.error);
	EXPECT_LT(2, mover.moves);
	EXPECT_EQ(0, wrong);
	for (int i = 0; i < 4; i++)
		board_buffer_close(self->fd, &data[i]);
	for (int i = 0; i < 2; i++)
		board_buffer_close(self->fd, &mover.weights[i]);
}

/* ---- Buffers that go while jobs write them ---- */

struct heir {
	uint32_t pool; /* shared */
	atomic_bool stop;
	unsigned int got, dirty;
};

/* What the other's jobs still write must never show in a new buffer. */
static void *heir_run(void *arg)
{
	struct heir *heir = arg;
	int fd = board_open();

	while (!atomic_load(&heir->stop)) {
		struct buffer buffer;
		bool dirty = false;

		if (board_buffer(fd, heir->pool, 2 * MIB, 0, &buffer)) {
			pause_us(500);
			continue;
		}
		heir->got++;
		for (int look = 0; look < 3; look++)
			for (size_t i = 0; i < 2 * MIB / 4; i += 64)
				dirty |= ((volatile uint32_t *)buffer.map)[i];
		heir->dirty += dirty;
		board_buffer_close(fd, &buffer);
	}
	close(fd);
	return NULL;
}

TEST_F_TIMEOUT(stress, close_under_load, 240)
{
	struct drm_m6npu_pool_create create = {
		.size = 12 * MIB,
		.flags = DRM_M6NPU_POOL_PERSISTENT,
	};
	struct m6npu_cmd cmd = cmd_fill(0, 0, 8 * MIB, 0xdeadbeef);
	struct drm_m6npu_job_info info;
	struct heir heir = { 0 };
	struct buffer list;
	pthread_t thread;
	uint32_t pool;
	int rounds = 0;

	ASSERT_EQ(0,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_POOL_CREATE, &create));
	heir.pool = create.pool;
	ASSERT_EQ(0, board_pool(self->fd, MIB, &pool));
	ASSERT_EQ(0, board_list(self->fd, pool, &cmd, 1, &list));
	ASSERT_EQ(0, pthread_create(&thread, NULL, heir_run, &heir));
	for (int i = 0; i < 200 && rounds < 60; i++) {
		struct buffer buffer;
		struct job job[3];

		if (board_buffer(self->fd, create.pool, 8 * MIB, 0, &buffer)) {
			pause_us(500);
			continue;
		}
		for (int k = 0; k < 3; k++) {
			board_job(&job[k], &list, 1, &buffer, 1);
			ASSERT_EQ(0, board_submit(self->fd, &job[k]));
		}
		board_buffer_close(self->fd, &buffer);
		rounds++;
		for (int k = 0; k < 3; k++) {
			ASSERT_EQ(0, board_wait(self->fd, &job[k],
						BOARD_TIMEOUT_MS, &info));
			EXPECT_EQ(0, info.error);
		}
	}
	atomic_store(&heir.stop, true);
	pthread_join(thread, NULL);
	TH_LOG("%d rounds, %u new buffers", rounds, heir.got);
	EXPECT_LT(5, rounds);
	EXPECT_LT(2, heir.got);
	EXPECT_EQ(0, heir.dirty);
	EXPECT_EQ(0, board_pool_destroy(self->fd, create.pool));
}

/* ---- One buffer, all that can be done to it ---- */

static __thread sigjmp_buf bus_jump;

static void on_bus(int number)
{
	siglongjmp(bus_jump, number);
}

static bool touch(volatile char *at)
{
	if (sigsetjmp(bus_jump, 1))
		return false;
	*at = 1;
	return true;
}

struct racer {
	int fd;
	uint32_t pool;
	unsigned int role;
	struct buffer scratch, list;
	atomic_uint *handle;
	atomic_bool *stop;
	unsigned long turns, odd;
};

static bool is_one_of(int ret, int a, int b, int c)
{
	return !ret || ret == a || ret == b || ret == c;
}

static void race_map(struct racer *r)
{
	struct drm_m6npu_bo_info info = { .handle = atomic_load(r->handle) };
	char *map;

	if (board_ioctl(r->fd, DRM_IOCTL_M6NPU_BO_INFO, &info) || !info.size)
		return;
	map = mmap(NULL, info.size, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
		   (off_t)info.mmap_offset);
	if (map == MAP_FAILED)
		return;
	for (uint64_t at = 0; at < info.size && touch(map + at); at += PAGE)
		;
	munmap(map, info.size);
}

static void race_submit(struct racer *r, bool the_buffer)
{
	struct drm_m6npu_job_info info;
	struct buffer list = r->list;
	struct job job;
	int ret;

	if (the_buffer)
		list.handle = atomic_load(r->handle);
	board_job(&job, &list, 1, &r->scratch, 1);
	ret = board_submit(r->fd, &job);
	r->odd += !is_one_of(ret, -ENOENT, -EINVAL, 0);
	if (ret) {
		struct drm_syncobj_destroy destroy = {
			.handle = job.out.handle,
		};

		board_ioctl(r->fd, DRM_IOCTL_SYNCOBJ_DESTROY, &destroy);
		return;
	}
	/* A list that others wrote to before it was sealed is anything. */
	if (board_wait(r->fd, &job, BOARD_TIMEOUT_MS, &info))
		r->odd++;
	else if (info.error && !the_buffer)
		r->odd++;
}

static void race_turn(struct racer *r)
{
	struct drm_m6npu_cmdlist_seal seal = {
		.handle = atomic_load(r->handle),
	};
	struct drm_gem_close gem_close = { .handle = seal.handle };
	struct drm_m6npu_bo_sync sync = {
		.handle = seal.handle,
		.flags = 3,
		.size = PAGE,
	};
	struct drm_m6npu_bo_create create = { .size = 16 * PAGE,
					      .pool = r->pool };
	int ret = 0;

	switch (r->role) {
	case 0: /* a new one for all */
		ret = board_bo_create(r->fd, &create);
		atomic_store(r->handle, create.handle);
		pause_us(1000);
		gem_close.handle = create.handle;
		ret = ret ? ret :
			    board_ioctl(r->fd, DRM_IOCTL_GEM_CLOSE, &gem_close);
		r->odd += !is_one_of(ret, -EINVAL, -ENOSPC, 0);
		break;
	case 1:
		race_map(r);
		break;
	case 2:
		ret = board_ioctl(r->fd, DRM_IOCTL_M6NPU_CMDLIST_SEAL, &seal);
		r->odd += !is_one_of(ret, -ENOENT, -EBUSY, 0);
		pause_us(300);
		break;
	case 3:
		race_submit(r, true);
		break;
	case 4:
		race_submit(r, false);
		pause_us(2000);
		break;
	case 5:
		ret = board_ioctl(r->fd, DRM_IOCTL_M6NPU_BO_SYNC, &sync);
		r->odd += !is_one_of(ret, -ENOENT, 0, 0);
		if (r->turns % 7 == 0)
			ret = board_ioctl(r->fd, DRM_IOCTL_GEM_CLOSE,
					  &gem_close);
		break;
	}
}

static void *race_run(void *arg)
{
	struct racer *r = arg;

	while (!atomic_load(r->stop)) {
		race_turn(r);
		if (++r->turns == 400 && !r->role)
			atomic_store(r->stop, true);
	}
	return NULL;
}

TEST_F_TIMEOUT(stress, buffer_races, 240)
{
	struct sigaction action = { .sa_handler = on_bus };
	struct m6npu_cmd cmd = cmd_fill(0, 0, PAGE, 1);
	atomic_uint handle = 0;
	atomic_bool stop = false;
	struct racer racer[6];
	struct buffer scratch, list;
	uint32_t pool;

	sigaction(SIGBUS, &action, NULL);
	ASSERT_EQ(0, board_pool(self->fd, 4 * MIB, &pool));
	ASSERT_EQ(0, board_buffer(self->fd, pool, PAGE, 0, &scratch));
	ASSERT_EQ(0, board_list(self->fd, pool, &cmd, 1, &list));
	for (unsigned int i = 0; i < 6; i++)
		racer[i] = (struct racer){
			.fd = self->fd,
			.pool = pool,
			.role = i,
			.scratch = scratch,
			.list = list,
			.handle = &handle,
			.stop = &stop,
		};
	ASSERT_TRUE(run_threads(race_run, racer, sizeof(racer[0]), 6));
	for (int i = 0; i < 6; i++) {
		EXPECT_LT(0, racer[i].turns);
		EXPECT_EQ(0, racer[i].odd)
		{
			TH_LOG("role %d", i);
		}
	}
	board_buffer_close(self->fd, &scratch);
}

/* ---- Pools ---- */

struct swimmer {
	int fd;
	struct rng rng;
	unsigned int odd;
};

/* Same few ids for all: created, used, destroyed under each other's feet. */
static void *swimmer_run(void *arg)
{
	struct swimmer *s = arg;

	for (int i = 0; i < 120; i++) {
		uint32_t pool = 1 + rng_below(&s->rng, 4);
		struct drm_m6npu_pool_info info;
		struct buffer buffer;
		uint32_t made;
		int ret;

		ret = board_pool(s->fd, 16 * PAGE, &made);
		s->odd += !is_one_of(ret, -ENOSPC, 0, 0);
		ret = board_buffer(s->fd, pool, 3 * PAGE, 0, &buffer);
		s->odd += !is_one_of(ret, -ENOENT, -ENOSPC, 0);
		if (!ret) {
			memset(buffer.map, 1, buffer.size);
			board_buffer_close(s->fd, &buffer);
		}
		ret = board_pool_info(s->fd, rng_below(&s->rng, 5), &info);
		s->odd += !is_one_of(ret, -ENOENT, 0, 0);
		ret = board_pool_destroy(s->fd, pool);
		s->odd += !is_one_of(ret, -ENOENT, -EBUSY, 0);
	}
	return NULL;
}

TEST_F_TIMEOUT(stress, pool_races, 240)
{
	struct swimmer swimmer[4];

	for (uint32_t i = 0; i < 4; i++)
		swimmer[i] =
			(struct swimmer){ .fd = self->fd, .rng = { i + 1 } };
	ASSERT_TRUE(run_threads(swimmer_run, swimmer, sizeof(swimmer[0]), 4));
	for (int i = 0; i < 4; i++)
		EXPECT_EQ(0, swimmer[i].odd);
}

/* ---- Processes ---- */

/* Does a bit of everything until it is killed. */
static void client(void)
{
	struct drm_m6npu_expert_table table = { .layers = 1, .experts = 8 };
	struct m6npu_cmd moe = moe_command();
	struct m6npu_cmd fill = cmd_fill(0, 0, 2 * MIB, 9);

	for (;;) {
		struct buffer data, lists[2];
		struct job job;
		int fd = board_open();
		uint32_t pool;

		if (fd < 0 || board_pool(fd, 4 * MIB, &pool) ||
		    board_buffer(fd, pool, 2 * MIB, 0, &data) ||
		    board_list(fd, pool, &fill, 1, &lists[0]) ||
		    board_list(fd, pool, &moe, 1, &lists[1]) ||
		    board_ioctl(fd, DRM_IOCTL_M6NPU_EXPERT_TABLE, &table))
			_exit(1);
		memset(data.map, 0, PAGE);
		for (int i = 0; i < 12; i++) {
			/* The last waits for an expert that never comes. */
			board_job(&job, &lists[i == 11], 1, &data, 1);
			job.args.flags = i % 3 ? 0 :
						 DRM_M6NPU_SUBMIT_DMA_ENGINE;
			if (i == 11)
				job.args.flags = 0;
			if (board_submit(fd, &job))
				_exit(1);
		}
		board_syncobj_wait(fd, job.out.handle, 5);
		board_buffer_close(fd, &data);
		close(fd);
	}
}

TEST_F_TIMEOUT(stress, killed, 240)
{
	struct rng rng = { 8 };

	fflush(stdout);
	for (int round = 0; round < 12; round++) {
		pid_t child[3];
		int status;

		for (int i = 0; i < 3; i++) {
			child[i] = fork();
			ASSERT_LE(0, child[i]);
			if (!child[i])
				client();
		}
		for (int i = 0; i < 3; i++) {
			pause_us(rng_below(&rng, 120000));
			kill(child[i], SIGKILL);
		}
		for (int i = 0; i < 3; i++) {
			ASSERT_EQ(child[i], waitpid(child[i], &status, 0));
			EXPECT_TRUE(WIFSIGNALED(status));
		}
	}
	EXPECT_TRUE(checker_goes_on(&self->witness.checker[0], 5));
}

static int fill_on(int fd, uint32_t pool, uint32_t pattern)
{
	struct m6npu_cmd cmd = cmd_fill(0, 0, PAGE, pattern);
	struct drm_m6npu_job_info info;
	struct buffer data, list;
	struct job job;
	int ret;

	ret = board_buffer(fd, pool, PAGE, 0, &data);
	/* Somebody else's jobs may be running on this file. */
	for (int i = 0; !ret && i < 1000; i++) {
		ret = board_list(fd, pool, &cmd, 1, &list);
		if (ret != -EBUSY)
			break;
		ret = 0;
		board_buffer_close(fd, &list);
		pause_us(1000);
	}
	if (ret)
		return ret;
	board_job(&job, &list, 1, &data, 1);
	ret = board_run(fd, &job, &info);
	if (!ret)
		ret = info.error;
	if (!ret && ((uint32_t *)data.map)[PAGE / 4 - 1] != pattern)
		ret = -EILSEQ;
	board_buffer_close(fd, &data);
	board_buffer_close(fd, &list);
	return ret;
}

/* A child uses the file it inherited, and closes or dies; the parent goes on. */
TEST_F_TIMEOUT(stress, forked, 240)
{
	uint32_t pool;

	ASSERT_EQ(0, board_pool(self->fd, MIB, &pool));
	fflush(stdout);
	for (int round = 0; round < 10; round++) {
		pid_t child = fork();
		int status;

		ASSERT_LE(0, child);
		if (!child) {
			for (int i = 0; i < 3; i++)
				if (fill_on(self->fd, pool, 100 + i))
					_exit(1);
			if (round % 2)
				raise(SIGKILL);
			close(self->fd);
			_exit(0);
		}
		for (int i = 0; i < 3; i++)
			EXPECT_EQ(0, fill_on(self->fd, pool, 200 + i));
		ASSERT_EQ(child, waitpid(child, &status, 0));
		EXPECT_TRUE(round % 2 ?
				    WIFSIGNALED(status) :
				    WIFEXITED(status) && !WEXITSTATUS(status));
	}
	EXPECT_EQ(0, fill_on(self->fd, pool, 7));
}

/* A context whose maker is dead lives in whoever holds the file. */
TEST_F_TIMEOUT(stress, passed_on, 240)
{
	int ends[2], status;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	fflush(stdout);
	for (int round = 0; round < 6; round++) {
		pid_t child = fork();
		uint32_t pool = 1;
		int fd;

		ASSERT_LE(0, child);
		if (!child) {
			fd = board_open();
			if (fd < 0 || board_pool(fd, MIB, &pool) ||
			    fill_on(fd, pool, 1) || !board_send_file(ends[1], fd))
				_exit(1);
			raise(SIGKILL);
		}
		ASSERT_EQ(child, waitpid(child, &status, 0));
		ASSERT_TRUE(WIFSIGNALED(status));
		fd = board_receive_file(ends[0]);
		ASSERT_LE(0, fd);
		EXPECT_EQ(0, fill_on(fd, pool, 2));
		close(fd);
	}
	/* One in flight that nobody ever receives. */
	ASSERT_TRUE(board_send_file(ends[1], self->fd));
	close(ends[0]);
	close(ends[1]);
}

/* More files than there are address spaces, over and over. */
static void *storm_run(void *arg)
{
	unsigned int *refused = arg;
	int fds[40];

	for (int round = 0; round < 8; round++) {
		int count = 0;

		while (count < 40) {
			fds[count] = board_open();
			if (fds[count] >= 0)
				count++;
			else if ((*refused)++ % 8 == 7)
				break;
		}
		while (count)
			close(fds[--count]);
	}
	return NULL;
}

TEST_F_TIMEOUT(stress, open_storm, 240)
{
	unsigned int refused[3] = { 0 };

	ASSERT_TRUE(run_threads(storm_run, refused, sizeof(refused[0]), 3));
	EXPECT_LT(0, refused[0] + refused[1] + refused[2]);
	for (int i = 0; i < 2; i++)
		EXPECT_TRUE(checker_goes_on(&self->witness.checker[i], 3));
}

/* ---- Jobs ---- */

struct asker {
	int fd;
	atomic_bool stop;
	unsigned long asked, odd;
};

static void *asker_run(void *arg)
{
	struct asker *a = arg;
	struct rng rng = { 4 };

	while (!atomic_load(&a->stop)) {
		struct drm_m6npu_job_info info = {
			.job = rng_below(&rng, 700),
		};
		uint64_t job = info.job;
		int ret = board_ioctl(a->fd, DRM_IOCTL_M6NPU_JOB_INFO, &info);

		a->asked++;
		a->odd += !is_one_of(ret, -ENOENT, -EBUSY, 0);
		if (!ret)
			a->odd += info.job != job || info.error ||
				  info.end_ns < info.begin_ns;
	}
	return NULL;
}

/* All syncobjs a job may have, binary and timeline; others ask about jobs. */
TEST_F_TIMEOUT(stress, many_syncobjs, 240)
{
	struct drm_m6npu_sync out[DRM_M6NPU_MAX_SYNCS] = { 0 };
	struct m6npu_cmd cmd = cmd_fill(0, 0, PAGE, 3);
	struct asker asker[2] = { { self->fd }, { self->fd } };
	struct buffer data, list;
	pthread_t thread[2];
	uint64_t last = 0;
	uint32_t pool;

	ASSERT_EQ(0, board_pool(self->fd, MIB, &pool));
	ASSERT_EQ(0, board_buffer(self->fd, pool, PAGE, 0, &data));
	ASSERT_EQ(0, board_list(self->fd, pool, &cmd, 1, &list));
	for (int i = 0; i < DRM_M6NPU_MAX_SYNCS; i++)
		ASSERT_EQ(0, board_syncobj(self->fd, true, &out[i].handle));
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, asker_run,
					    &asker[i]));
	for (uint32_t round = 1; round <= 300; round++) {
		struct job job;

		board_job(&job, &list, 1, &data, 1);
		for (int i = 0; i < DRM_M6NPU_MAX_SYNCS; i++) {
			out[i].flags = i % 2 ? DRM_M6NPU_SYNC_TIMELINE : 0;
			out[i].point = i % 2 ? round : 0;
		}
		job.args.regions = (uintptr_t)job.regions;
		job.args.out_syncs = (uintptr_t)out;
		job.args.out_sync_count = DRM_M6NPU_MAX_SYNCS;
		/* The even ones hold the fence of the job before. */
		job.args.in_syncs = (uintptr_t)out;
		job.args.in_sync_count = 1;
		ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_SUBMIT,
					 &job.args));
		EXPECT_LT(last, job.args.job);
		last = job.args.job;
	}
	for (int i = 0; i < DRM_M6NPU_MAX_SYNCS; i += 2)
		EXPECT_EQ(0, board_syncobj_wait(self->fd, out[i].handle,
						BOARD_TIMEOUT_MS));
	for (int i = 0; i < 2; i++) {
		atomic_store(&asker[i].stop, true);
		pthread_join(thread[i], NULL);
		EXPECT_LT(0, asker[i].asked);
		EXPECT_EQ(0, asker[i].odd);
	}
	board_buffer_close(self->fd, &data);
}

/* More than may be queued: refused, and the rest is dropped with the file. */
TEST_F_TIMEOUT(stress, flood, 240)
{
	struct m6npu_cmd cmd = cmd_fill(0, 0, MIB, 3);
	struct buffer data, list;
	int fd = board_open(), ret = 0, count = 0;
	uint32_t pool;
	struct job job;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, board_pool(fd, 2 * MIB, &pool));
	ASSERT_EQ(0, board_buffer(fd, pool, MIB, 0, &data));
	ASSERT_EQ(0, board_list(fd, pool, &cmd, 1, &list));
	board_job(&job, &list, 1, &data, 1);
	for (; !ret && count < 3000; count++) {
		job.args.unit_mask = 1u << count % 4;
		ret = board_submit(fd, &job);
	}
	TH_LOG("%d jobs, then %d", count, ret);
	EXPECT_TRUE(!ret || ret == -EAGAIN);
	EXPECT_TRUE(checker_goes_on(&self->witness.checker[0], 3));
	munmap(data.map, data.size);
	close(fd);
}

/* ---- Events ---- */

TEST_F_TIMEOUT(stress, events, 240)
{
	struct drm_m6npu_event_exception event;
	struct m6npu_cmd cmd = { .opcode = 0xee };
	struct drm_m6npu_job_info info;
	struct pollfd poll_fd = { .fd = self->fd, .events = POLLIN };
	char bytes[sizeof(event) * 2 - 1];
	void *hole =
		mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct buffer list;
	unsigned int seen = 0;
	uint32_t pool;
	struct job job;

	ASSERT_EQ(0, fcntl(self->fd, F_SETFL, O_NONBLOCK));
	EXPECT_EQ(0, poll(&poll_fd, 1, 0));
	EXPECT_EQ(-1, read(self->fd, &event, sizeof(event)));
	EXPECT_EQ(EAGAIN, errno);
	ASSERT_EQ(0, board_pool(self->fd, MIB, &pool));
	ASSERT_EQ(0, board_list(self->fd, pool, &cmd, 1, &list));
	/* More than the queue has room for. */
	for (int i = 0; i < 200; i++) {
		board_job(&job, &list, 1, NULL, 0);
		ASSERT_EQ(0, board_run(self->fd, &job, &info));
		EXPECT_EQ(-EINVAL, info.error);
	}
	EXPECT_EQ(1, poll(&poll_fd, 1, BOARD_TIMEOUT_MS));
	/* Too short for one: nothing is read, nothing is lost. */
	for (size_t size = 0; size < sizeof(event); size++)
		EXPECT_EQ(0, read(self->fd, bytes, size));
	EXPECT_EQ(-1, read(self->fd, hole, sizeof(event)));
	EXPECT_EQ(EFAULT, errno);
	/* Whole ones only. */
	for (;;) {
		ssize_t count = read(self->fd, bytes, sizeof(bytes));

		if (count <= 0)
			break;
		ASSERT_EQ((ssize_t)sizeof(event), count);
		memcpy(&event, bytes, sizeof(event));
		EXPECT_EQ(DRM_M6NPU_EVENT_EXCEPTION, event.base.type);
		EXPECT_EQ(sizeof(event), event.base.length);
		EXPECT_EQ(M6NPU_EXC_ILLEGAL_COMMAND, event.code);
		seen++;
	}
	EXPECT_LT(8, seen);
	EXPECT_EQ(0, poll(&poll_fd, 1, 0));
	/* There is room again. */
	ASSERT_EQ(0, board_run(self->fd, &job, &info));
	EXPECT_EQ(1, poll(&poll_fd, 1, BOARD_TIMEOUT_MS));
}

TEST_HARNESS_MAIN
