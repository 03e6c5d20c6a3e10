// SPDX-License-Identifier: GPL-2.0-only
/* Pools: made, counted, refused and given back. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include "board.h"
#include "kselftest_harness.h"

FIXTURE(pool)
{
	int fd;
	long long total, used, patience;
};

FIXTURE_SETUP(pool)
{
	self->patience = board_parameter("expert_timeout_ms");
	self->fd = board_open();
	if (self->fd < 0)
		SKIP(return, "no M6 NPU");
	self->total = board_pool_figure("total");
	self->used = board_pool_figure("used");
}

FIXTURE_TEARDOWN(pool)
{
	if (self->fd < 0)
		return;
	close(self->fd);
	/* Whatever a test did: closing the file gives all of it back. */
	EXPECT_EQ(self->total, board_pool_figure("total"));
	EXPECT_EQ(self->used, board_pool_figure("used"));
}

TEST_F(pool, life)
{
	struct drm_m6npu_pool_info info;
	uint32_t pool;

	ASSERT_EQ(0, board_pool(self->fd, 16 * MIB, &pool));
	EXPECT_NE(0, pool);
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &info));
	EXPECT_EQ(16 * MIB, info.size);
	EXPECT_EQ(0, info.used);
	EXPECT_EQ(16 * MIB, info.largest_free);
	EXPECT_EQ(0, info.buffers);
	EXPECT_EQ(1, info.segments);
	if (self->total >= 0)
		EXPECT_EQ(self->total + (long long)(16 * MIB),
			  board_pool_figure("total"));
	EXPECT_EQ(0, board_pool_destroy(self->fd, pool));
	EXPECT_EQ(-ENOENT, board_pool_info(self->fd, pool, &info));
	EXPECT_EQ(-ENOENT, board_pool_destroy(self->fd, pool));
}

TEST_F(pool, sizes)
{
	struct drm_m6npu_pool_create args = { .size = 4097 };
	uint32_t pool;

	ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_POOL_CREATE, &args));
	EXPECT_EQ(8192, args.size);
	EXPECT_EQ(-EINVAL, board_pool(self->fd, 0, &pool));
	EXPECT_EQ(-EINVAL, board_pool(self->fd, (1ull << 38) + 1, &pool));
	EXPECT_EQ(-EINVAL, board_pool(self->fd, UINT64_MAX, &pool));
	/* Valid, but more than any board of ours has. */
	EXPECT_EQ(-ENOMEM, board_pool(self->fd, 1ull << 37, &pool));
	args = (struct drm_m6npu_pool_create){ .size = MIB,
					       .max_segments = 17 };
	EXPECT_EQ(-EINVAL,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_POOL_CREATE, &args));
}

/* What was refused left nothing behind, and the next one fits. */
TEST_F(pool, all_or_nothing)
{
	long long total = board_pool_figure("total");
	uint32_t pool;

	for (int i = 0; i < 10; i++)
		EXPECT_EQ(-ENOMEM, board_pool(self->fd, 1ull << 37, &pool));
	EXPECT_EQ(total, board_pool_figure("total"));
	EXPECT_EQ(0, board_pool(self->fd, 32 * MIB, &pool));
}

TEST_F(pool, many)
{
	struct drm_m6npu_pool_info info;
	uint32_t pool, count = 0;
	int ret;

	while (!(ret = board_pool(self->fd, PAGE, &pool)) && count < 100)
		count++;
	EXPECT_EQ(-ENOSPC, ret);
	EXPECT_EQ(64, count);
	ASSERT_EQ(0, board_pool_info(self->fd, 0, &info));
	EXPECT_LE(64 * PAGE, info.size);
}

TEST_F(pool, busy)
{
	struct drm_m6npu_pool_info info;
	struct buffer buffer;
	uint32_t pool;

	ASSERT_EQ(0, board_pool(self->fd, MIB, &pool));
	ASSERT_EQ(0, board_buffer(self->fd, pool, 8192, 0, &buffer));
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &info));
	EXPECT_EQ(8192, info.used);
	EXPECT_EQ(1, info.buffers);
	EXPECT_EQ(MIB - 8192, info.largest_free);
	EXPECT_EQ(-EBUSY, board_pool_destroy(self->fd, pool));
	board_buffer_close(self->fd, &buffer);
	EXPECT_EQ(0, board_pool_destroy(self->fd, pool));
}

/* A private pool is nobody else's. */
TEST_F(pool, private)
{
	struct drm_m6npu_pool_info info;
	int other = board_open();
	uint32_t pool;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, board_pool(self->fd, MIB, &pool));
	EXPECT_EQ(-ENOENT, board_pool_info(other, pool, &info));
	EXPECT_EQ(-ENOENT, board_pool_destroy(other, pool));
	close(other);
	EXPECT_EQ(0, board_pool_destroy(self->fd, pool));
}

TEST_F(pool, persistent)
{
	struct drm_m6npu_pool_create args = {
		.size = MIB, .flags = DRM_M6NPU_POOL_PERSISTENT,
	};
	struct drm_m6npu_pool_info info;
	struct buffer buffer;
	int other = board_open();

	ASSERT_LE(0, other);
	ASSERT_EQ(0, board_ioctl(other, DRM_IOCTL_M6NPU_POOL_CREATE, &args));
	close(other);
	ASSERT_EQ(0, board_pool_info(self->fd, args.pool, &info));
	EXPECT_EQ(DRM_M6NPU_POOL_PERSISTENT, info.flags);
	ASSERT_EQ(0, board_buffer(self->fd, args.pool, PAGE, 0, &buffer));
	EXPECT_EQ(-EBUSY, board_pool_destroy(self->fd, args.pool));
	board_buffer_close(self->fd, &buffer);
	EXPECT_EQ(0, board_pool_destroy(self->fd, args.pool));
	EXPECT_EQ(-ENOENT, board_pool_info(self->fd, args.pool, &info));
}

TEST_F(pool, needs_admin)
{
	struct drm_m6npu_pool_create args = {
		.size = MIB, .flags = DRM_M6NPU_POOL_PERSISTENT,
	};
	struct drm_m6npu_reset reset = { 0 };
	int status;
	pid_t child;

	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		int good;

		board_drop_capabilities();
		good = board_ioctl(self->fd, DRM_IOCTL_M6NPU_POOL_CREATE,
				   &args) == -EPERM &&
		       board_ioctl(self->fd, DRM_IOCTL_M6NPU_RESET, &reset) ==
			       -EPERM;
		_exit(good ? 0 : 1);
	}
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_TRUE(WIFEXITED(status) && !WEXITSTATUS(status));
}

/* The map reports holes as they are. */
TEST_F(pool, holes)
{
	struct drm_m6npu_pool_info info;
	struct buffer buffer[16];
	uint32_t pool;

	ASSERT_EQ(0, board_pool(self->fd, 16 * PAGE, &pool));
	for (int i = 0; i < 16; i++)
		ASSERT_EQ(0, board_buffer(self->fd, pool, PAGE, 0, &buffer[i]));
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &info));
	EXPECT_EQ(0, info.largest_free);
	for (int i = 0; i < 16; i += 2)
		board_buffer_close(self->fd, &buffer[i]);
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &info));
	EXPECT_EQ(8 * PAGE, info.used);
	EXPECT_EQ(PAGE, info.largest_free);
	/* As much is free, but not in one piece; then not as much. */
	EXPECT_EQ(-ENOBUFS,
		  board_buffer(self->fd, pool, 2 * PAGE, 0, &buffer[0]));
	EXPECT_EQ(-ENOBUFS,
		  board_buffer(self->fd, pool, 8 * PAGE, 0, &buffer[0]));
	EXPECT_EQ(-ENOSPC,
		  board_buffer(self->fd, pool, 9 * PAGE, 0, &buffer[0]));
	/* Mappings would keep the pool beyond the file. */
	for (int i = 1; i < 16; i += 2)
		board_buffer_close(self->fd, &buffer[i]);
}

/* ---- Limits ---- */

TEST_F(pool, client_limit)
{
	struct drm_m6npu_pool_create private = { .size = MIB,
						 .client_limit = MIB };
	struct drm_m6npu_pool_info info;
	struct buffer mine, theirs, more;
	int other = board_open();
	uint32_t pool;

	ASSERT_LE(0, other);
	EXPECT_EQ(-EINVAL, board_ioctl(self->fd, DRM_IOCTL_M6NPU_POOL_CREATE,
				       &private));
	ASSERT_EQ(0, board_persistent_pool(self->fd, 20 * MIB, 8 * MIB, &pool));
	EXPECT_EQ(-EDQUOT,
		  board_bo(self->fd, pool, 8 * MIB + 1, 0, 0, &more));
	EXPECT_EQ(0, board_bo(self->fd, pool, 8 * MIB, 0, 0, &mine));
	EXPECT_EQ(-EDQUOT, board_bo(self->fd, pool, PAGE, 0, 0, &more));
	/* What one has is no business of the other. */
	EXPECT_EQ(0, board_bo(other, pool, 5 * MIB, 0, 0, &theirs));
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &info));
	EXPECT_EQ(8 * MIB, info.client_limit);
	EXPECT_EQ(8 * MIB, info.client_used);
	EXPECT_EQ(13 * MIB, info.used);
	EXPECT_EQ(2, info.buffers);
	ASSERT_EQ(0, board_pool_info(other, pool, &info));
	EXPECT_EQ(5 * MIB, info.client_used);
	/* What is given back can be had again. */
	board_buffer_close(self->fd, &mine);
	EXPECT_EQ(0, board_bo(self->fd, pool, 8 * MIB, 0, 0, &mine));
	close(other);
	board_buffer_close(self->fd, &mine);
	EXPECT_EQ(0, board_pool_destroy(self->fd, pool));
}

/* What client_percent of the contiguous area is, in whole pages. */
static uint64_t percent_of_area(int fd, unsigned int percent)
{
	struct sysinfo system;
	uint64_t area;

	if (board_param(fd, DRM_M6NPU_PARAM_CMA_SIZE, &area) || !area) {
		sysinfo(&system);
		area = (uint64_t)system.totalram * system.mem_unit;
	}
	return area * percent / 100 / PAGE * PAGE;
}

/* 0 if the pools of a file may be @limit bytes together, and no more. */
static int check_client_percent(uint64_t limit)
{
	uint32_t first, second, third;
	int fd = board_open();

	if (fd < 0 || board_pool(fd, limit - MIB, &first) ||
	    board_pool(fd, MIB, &second))
		return 1;
	if (board_pool(fd, PAGE, &third) != -EDQUOT)
		return 2;
	/* What was given back can be had again. */
	if (board_pool_destroy(fd, second) || board_pool(fd, MIB, &second))
		return 3;
	if (board_pool(fd, PAGE, &third) != -EDQUOT)
		return 4;
	/* Another file has a part of its own. */
	close(fd);
	fd = board_open();
	return fd < 0 || board_pool(fd, limit, &first) ? 5 : 0;
}

TEST_F(pool, client_percent)
{
	long long before = board_parameter("client_percent");
	uint64_t limit = percent_of_area(self->fd, 1);
	uint32_t pool;
	int status;
	pid_t child;

	EXPECT_EQ(100, before);
	ASSERT_TRUE(board_set_parameter("client_percent", 1));
	child = fork();
	if (!child) {
		board_drop_capabilities();
		_exit(check_client_percent(limit));
	}
	EXPECT_EQ(child, waitpid(child, &status, 0));
	EXPECT_TRUE(WIFEXITED(status));
	EXPECT_EQ(0, WEXITSTATUS(status));
	/* Does not bind who has CAP_SYS_RESOURCE. */
	EXPECT_EQ(0, board_pool(self->fd, limit + PAGE, &pool));
	ASSERT_TRUE(board_set_parameter("client_percent", before));
}

/* ---- Figures ---- */

TEST_F(pool, enumerate)
{
	uint32_t private[3], persistent[2], at = 0;
	struct drm_m6npu_pool_info info;
	int other = board_open();

	ASSERT_LE(0, other);
	for (int i = 0; i < 3; i++)
		ASSERT_EQ(0, board_pool(self->fd, MIB, &private[i]));
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, board_persistent_pool(self->fd, MIB, 0, &persistent[i]));
	ASSERT_EQ(0, board_pool_destroy(self->fd, private[1]));
	const uint32_t want[] = { private[0], private[2], persistent[0],
				  persistent[1], 0 };

	for (int i = 0; i < 5; i++) {
		ASSERT_EQ(0, board_pool_info(self->fd, at, &info));
		EXPECT_EQ(want[i], info.next);
		at = info.next;
	}
	/* The sum, over all that the file may use. */
	ASSERT_EQ(0, board_pool_info(self->fd, 0, &info));
	EXPECT_EQ(4 * MIB, info.size);
	EXPECT_EQ(4, info.segments);
	ASSERT_EQ(0, board_pool_info(other, 0, &info));
	EXPECT_EQ(persistent[0], info.next);
	EXPECT_EQ(2 * MIB, info.size);
	/* From an id that is not there: refused, not skipped. */
	EXPECT_EQ(-ENOENT, board_pool_info(self->fd, private[1], &info));
	close(other);
	for (int i = 0; i < 2; i++)
		EXPECT_EQ(0, board_pool_destroy(self->fd, persistent[i]));
}

/* A buffer that was shared counts as pinned as long as it lives. */
TEST_F(pool, pinned)
{
	struct drm_m6npu_pool_info info;
	struct buffer buffer[2];
	uint32_t pool;
	int dma_buf;

	ASSERT_EQ(0, board_pool(self->fd, MIB, &pool));
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, board_bo(self->fd, pool, 3 * PAGE, 0, 0,
				      &buffer[i]));
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &info));
	EXPECT_EQ(0, info.pinned);
	dma_buf = board_export(self->fd, &buffer[1]);
	ASSERT_LE(0, dma_buf);
	close(dma_buf);
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &info));
	EXPECT_EQ(3 * PAGE, info.pinned);
	ASSERT_EQ(0, board_pool_info(self->fd, 0, &info));
	EXPECT_EQ(3 * PAGE, info.pinned);
	board_buffer_close(self->fd, &buffer[1]);
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &info));
	EXPECT_EQ(0, info.pinned);
	EXPECT_EQ(3 * PAGE, info.used);
}

static bool file_has(const char *path, const char *text)
{
	static char all[64 * 1024];
	FILE *file = fopen(path, "re");
	size_t count;

	if (!file)
		return false;
	count = fread(all, 1, sizeof(all) - 1, file);
	fclose(file);
	all[count] = '\0';
	return strstr(all, text);
}

#define EXPECT_FILE_HAS(path, ...)                       \
	do {                                             \
		char text[256];                          \
                                                         \
		snprintf(text, sizeof(text), __VA_ARGS__); \
		EXPECT_TRUE(file_has(path, text))        \
		{                                        \
			TH_LOG("no \"%s\"", text);       \
		}                                        \
	} while (0)

TEST_F(pool, fdinfo)
{
	struct buffer buffer[2];
	uint32_t pool[2];
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", self->fd);
	ASSERT_EQ(0, board_pool(self->fd, MIB, &pool[0]));
	ASSERT_EQ(0, board_persistent_pool(self->fd, MIB, 0, &pool[1]));
	ASSERT_EQ(0, board_bo(self->fd, pool[0], 12 * 1024, 0, 0, &buffer[0]));
	ASSERT_EQ(0, board_bo(self->fd, pool[1], 64 * 1024, 0, 0, &buffer[1]));
	EXPECT_FILE_HAS(path, "m6npu-pool-%u:\t12 KiB\n", pool[0]);
	EXPECT_FILE_HAS(path, "m6npu-pool-%u:\t64 KiB\n", pool[1]);
	board_buffer_close(self->fd, &buffer[1]);
	EXPECT_FALSE(file_has(path, "64 KiB"));
	EXPECT_EQ(0, board_pool_destroy(self->fd, pool[1]));
}

#define POOLS "/sys/kernel/debug/npu/mem_pool_info"

TEST_F(pool, debugfs)
{
	struct drm_m6npu_pool_defrag report;
	struct buffer buffer[4];
	int other = board_open(), dma_buf;
	uint32_t pool;

	ASSERT_LE(0, other);
	if (self->total < 0)
		SKIP(return, "no debugfs");
	ASSERT_EQ(0, board_persistent_pool(self->fd, 8 * PAGE, 6 * PAGE, &pool));
	for (int i = 0; i < 4; i++)
		ASSERT_EQ(0, board_bo(i == 3 ? other : self->fd, pool,
				      i == 3 ? 2 * PAGE : PAGE, 0, 0,
				      &buffer[i]));
	board_buffer_close(self->fd, &buffer[1]);
	dma_buf = board_export(self->fd, &buffer[2]);
	ASSERT_LE(0, dma_buf);
	close(dma_buf);
	EXPECT_FILE_HAS(POOLS, "pool %u: persistent, owner %d (", pool,
			getpid());
	EXPECT_FILE_HAS(POOLS, "size %llu, used %llu, largest_free_block %llu, buffers 3 (0 dying), segments 1, pinned %llu\n",
			8 * PAGE, 4 * PAGE, 3 * PAGE, PAGE);
	EXPECT_FILE_HAS(POOLS, "client_limit %llu\n", 6 * PAGE);
	EXPECT_FILE_HAS(POOLS, "): used %llu, buffers 2\n", 2 * PAGE);
	EXPECT_FILE_HAS(POOLS, "): used %llu, buffers 1\n", 2 * PAGE);
	EXPECT_FILE_HAS(POOLS, "|#.P##...| 4 KiB each");
	EXPECT_FALSE(file_has(POOLS, "  defrag:"));
	EXPECT_EQ(0, board_pool_defrag(self->fd, pool, 0, &report));
	EXPECT_FILE_HAS(POOLS, "  defrag: runs 1, moved ");
	close(other);
	board_buffer_close(self->fd, &buffer[0]);
	board_buffer_close(self->fd, &buffer[2]);
	EXPECT_EQ(0, board_pool_destroy(self->fd, pool));
}

/* ---- Flush ---- */

TEST_F(pool, flush_refused)
{
	struct drm_m6npu_pool_flush args;
	uint32_t pool;
	int status;
	pid_t child;

	ASSERT_EQ(0, board_pool(self->fd, MIB, &pool));
	args = (struct drm_m6npu_pool_flush){ .pool = pool, .flags = 1 };
	EXPECT_EQ(-EINVAL,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_POOL_FLUSH, &args));
	EXPECT_EQ(-ENOENT, board_pool_flush(self->fd, 0, &args));
	EXPECT_EQ(-ENOENT, board_pool_flush(self->fd, pool + 1, &args));
	EXPECT_EQ(0, board_pool_flush(self->fd, pool, &args));
	EXPECT_EQ(0, args.freed);
	EXPECT_EQ(0, args.released);
	EXPECT_EQ(MIB, args.largest_free);
	ASSERT_EQ(0, board_persistent_pool(self->fd, MIB, 0, &pool));
	child = fork();
	if (!child) {
		board_drop_capabilities();
		_exit(board_pool_flush(self->fd, pool, &args) == -EPERM ? 0 :
									  1);
	}
	EXPECT_EQ(child, waitpid(child, &status, 0));
	EXPECT_TRUE(WIFEXITED(status) && !WEXITSTATUS(status));
	EXPECT_EQ(0, board_pool_flush(self->fd, pool, &args));
	EXPECT_EQ(0, board_pool_destroy(self->fd, pool));
}

struct flusher {
	int fd;
	uint32_t pool;
	atomic_int tid;
	struct drm_m6npu_pool_flush report;
	int ret;
};

static void *flusher_run(void *arg)
{
	struct flusher *f = arg;

	atomic_store(&f->tid, gettid());
	f->report = (struct drm_m6npu_pool_flush){ .pool = f->pool };
	/* Not restarted. */
	f->ret = ioctl(f->fd, DRM_IOCTL_M6NPU_POOL_FLUSH, &f->report);
	if (f->ret)
		f->ret = -errno;
	return NULL;
}

static bool flusher_start(struct flusher *f, pthread_t *thread)
{
	if (pthread_create(thread, NULL, flusher_run, f))
		return false;
	while (!atomic_load(&f->tid))
		sched_yield();
	return board_thread_waits(atomic_load(&f->tid));
}

static void on_signal(int number)
{
	(void)number;
}

/* A closed buffer that a job may still use is waited for. */
TEST_F(pool, flush_waits)
{
	struct flusher f = { .fd = self->fd }, g = f;
	struct sigaction action = { .sa_handler = on_signal };
	struct buffer victim, kept;
	struct drm_m6npu_pool_info info;
	struct stall stall;
	pthread_t thread;

	ASSERT_EQ(0, sigaction(SIGUSR1, &action, NULL));
	ASSERT_EQ(0, board_pool(self->fd, 4 * MIB, &f.pool));
	ASSERT_EQ(0, board_bo(self->fd, f.pool, MIB, 0, 0, &victim));
	ASSERT_EQ(0, board_bo(self->fd, f.pool, MIB, 0, 0, &kept));
	ASSERT_EQ(0, board_stall(self->fd, f.pool, &stall));
	board_buffer_close(self->fd, &victim);
	if (self->total >= 0)
		EXPECT_TRUE(file_has(POOLS, "(1 dying)"));
	/* A signal ends the wait, but not what it waits for. */
	g.pool = f.pool;
	ASSERT_TRUE(flusher_start(&g, &thread));
	pthread_kill(thread, SIGUSR1);
	pthread_join(thread, NULL);
	EXPECT_EQ(-EINTR, g.ret);
	ASSERT_TRUE(flusher_start(&f, &thread));
	ASSERT_EQ(0, board_pool_info(self->fd, f.pool, &info));
	EXPECT_LE(2 * MIB, info.used);
	EXPECT_EQ(0, board_stall_end(self->fd, &stall));
	pthread_join(thread, NULL);
	EXPECT_EQ(0, f.ret);
	EXPECT_EQ(MIB, f.report.freed);
	EXPECT_EQ(0, f.report.released);
	ASSERT_EQ(0, board_pool_info(self->fd, f.pool, &info));
	EXPECT_EQ(MIB, info.used);
}

/*
 * A full pool waits for closed buffers as well, but not for ever. Their device
 * addresses are taken until then.
 */
TEST_F(pool, full_but_for_dying)
{
	struct buffer victim, next;
	struct stall stall;
	uint32_t pool, full;

	ASSERT_TRUE(board_set_parameter("expert_timeout_ms", 60000));
	ASSERT_EQ(0, board_pool(self->fd, MIB, &pool));
	ASSERT_EQ(0, board_pool(self->fd, MIB, &full));
	ASSERT_EQ(0, board_bo(self->fd, full, MIB, 0, 0, &victim));
	EXPECT_EQ(-ENOSPC, board_bo(self->fd, full, PAGE, 0, 0, &next));
	ASSERT_EQ(0, board_stall(self->fd, pool, &stall));
	next.addr = victim.addr;
	board_buffer_close(self->fd, &victim);
	EXPECT_EQ(-EADDRINUSE,
		  board_bo(self->fd, full, PAGE, 0, DRM_M6NPU_BO_FIXED_ADDR,
			   &next));
	EXPECT_EQ(-ENOSPC, board_bo(self->fd, full, PAGE, 0, 0, &next));
	EXPECT_EQ(0, board_stall_end(self->fd, &stall));
	EXPECT_EQ(0, board_bo(self->fd, full, MIB, 0, 0, &next));
	ASSERT_TRUE(board_set_parameter("expert_timeout_ms", self->patience));
}

/* Not fooled by buffers of others that come and go meanwhile. */
TEST_F(pool, flush_waits_for_the_right)
{
	struct flusher f = { .fd = self->fd };
	struct buffer victim, passing;
	int other = board_open();
	struct stall stall;
	pthread_t thread;
	uint32_t pool;

	ASSERT_LE(0, other);
	ASSERT_EQ(0, board_pool(self->fd, MIB, &pool));
	ASSERT_EQ(0, board_persistent_pool(self->fd, 8 * MIB, 0, &f.pool));
	ASSERT_EQ(0, board_bo(self->fd, f.pool, MIB, 0, 0, &victim));
	ASSERT_EQ(0, board_stall(self->fd, pool, &stall));
	board_buffer_close(self->fd, &victim);
	ASSERT_TRUE(flusher_start(&f, &thread));
	for (int i = 0; i < 8; i++) {
		ASSERT_EQ(0, board_bo(other, f.pool, PAGE, 0, 0, &passing));
		board_buffer_close(other, &passing);
	}
	ASSERT_TRUE(board_thread_waits(atomic_load(&f.tid)));
	EXPECT_EQ(0, board_stall_end(self->fd, &stall));
	pthread_join(thread, NULL);
	EXPECT_EQ(0, f.ret);
	EXPECT_EQ(MIB, f.report.freed);
	EXPECT_EQ(8 * MIB, f.report.largest_free);
	close(other);
	EXPECT_EQ(0, board_pool_destroy(self->fd, f.pool));
}

/*
 * A pool that cannot be had in one piece: all of the contiguous area, and some
 * of what is not in it.
 */
static int pool_in_segments(int fd, unsigned int max_segments, uint32_t *pool,
			    uint64_t *size)
{
	struct drm_m6npu_pool_create args = {
		.size = board_area_size(fd) + 128 * MIB,
		.max_segments = max_segments,
	};
	int ret = board_ioctl(fd, DRM_IOCTL_M6NPU_POOL_CREATE, &args);

	*pool = args.pool;
	*size = args.size;
	return ret;
}

TEST_F(pool, segments)
{
	struct drm_m6npu_pool_info info;
	struct drm_m6npu_pool_flush report;
	uint32_t pool, segments, one;
	struct buffer buffer;
	uint64_t size;

	EXPECT_EQ(-ENOMEM, pool_in_segments(self->fd, 0, &pool, &size));
	EXPECT_EQ(-ENOMEM, pool_in_segments(self->fd, 1, &pool, &size));
	if (pool_in_segments(self->fd, 16, &pool, &size))
		SKIP(return, "the machine's memory is too small");
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &info));
	TH_LOG("%llu MiB in %u segments", size / MIB, info.segments);
	EXPECT_EQ(size, info.size);
	EXPECT_LT(1, info.segments);
	EXPECT_GE(16, info.segments);
	EXPECT_GT(size, info.largest_free);
	segments = info.segments;
	/* Larger than any segment: there is as much, but not in one piece. */
	EXPECT_EQ(-ENOBUFS, board_bo(self->fd, pool, info.largest_free + PAGE,
				     0, 0, &buffer));
	EXPECT_EQ(-ENOSPC, board_bo(self->fd, pool, size + PAGE, 0, 0,
				    &buffer));
	if (self->total >= 0) {
		EXPECT_EQ(self->total + (long long)size,
			  board_pool_figure("total"));
		EXPECT_FILE_HAS(POOLS, "  segment %u: ", segments - 1);
	}
	/* One of them is kept, the one that holds something if any does. */
	ASSERT_EQ(0, board_bo(self->fd, pool, PAGE, 0, 0, &buffer));
	EXPECT_EQ(0, board_pool_flush(self->fd, pool, &report));
	EXPECT_LT(0, report.released);
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &info));
	EXPECT_EQ(1, info.segments);
	EXPECT_EQ(size - report.released, info.size);
	EXPECT_EQ(info.largest_free, report.largest_free);
	EXPECT_EQ(info.size - PAGE, info.largest_free);
	if (self->total >= 0)
		EXPECT_EQ(self->total + (long long)info.size,
			  board_pool_figure("total"));
	/* What was given back can be had again. */
	EXPECT_EQ(0, board_pool(self->fd, report.released / 4, &one));
	/* An empty pool keeps one as well. */
	board_buffer_close(self->fd, &buffer);
	EXPECT_EQ(0, board_pool_flush(self->fd, pool, &report));
	EXPECT_EQ(0, report.released);
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &info));
	EXPECT_EQ(1, info.segments);
}

/* ---- What failed left nothing behind ---- */

TEST_F(pool, failures_leave_nothing)
{
	struct buffer taken, buffer = { 0 };
	struct drm_m6npu_pool_info before, after;
	uint32_t pool, count = 0, id[70];
	int ret;

	while (count < 70) {
		ret = board_persistent_pool(self->fd, PAGE, 0, &id[count]);
		if (ret)
			break;
		count++;
	}
	EXPECT_EQ(-ENOSPC, ret);
	EXPECT_GE(64, count);
	while (count)
		EXPECT_EQ(0, board_pool_destroy(self->fd, id[--count]));

	ASSERT_EQ(0, board_pool(self->fd, 4 * MIB, &pool));
	ASSERT_EQ(0, board_bo(self->fd, pool, MIB, 0, 0, &taken));
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &before));
	for (int i = 0; i < 100; i++) {
		buffer.addr = taken.addr + MIB - PAGE;
		EXPECT_EQ(-EADDRINUSE,
			  board_bo(self->fd, pool, 2 * PAGE, 0,
				   DRM_M6NPU_BO_FIXED_ADDR, &buffer));
		EXPECT_EQ(-ENOSPC, board_bo(self->fd, pool, 4 * MIB, 0, 0,
					    &buffer));
		EXPECT_EQ(-EINVAL, board_bo(self->fd, pool, MIB, 8192, 0,
					    &buffer));
		EXPECT_EQ(-ENOENT, board_bo(self->fd, pool + 1, MIB, 0, 0,
					    &buffer));
	}
	ASSERT_EQ(0, board_pool_info(self->fd, pool, &after));
	EXPECT_EQ(0, memcmp(&before, &after, sizeof(after)));
	/* Nor are the device addresses of a buffer that was not made taken. */
	buffer.addr = 1ull << 36;
	EXPECT_EQ(-ENOSPC, board_bo(self->fd, pool, 4 * MIB, 0,
				    DRM_M6NPU_BO_FIXED_ADDR, &buffer));
	buffer.addr = 1ull << 36;
	EXPECT_EQ(0, board_bo(self->fd, pool, MIB, 0, DRM_M6NPU_BO_FIXED_ADDR,
			      &buffer));
}

TEST_HARNESS_MAIN
