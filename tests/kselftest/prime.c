// SPDX-License-Identifier: GPL-2.0-only
/*
 * dma-bufs: memory that several files and devices share. Where another
 * exporter is wanted it is udmabuf, whose pages lie all over the place.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "board.h"
#include "checker.h"
#include "kselftest_harness.h"

FIXTURE(prime)
{
	int fd, other;
	uint32_t pool, other_pool;
	int files;
	long long objects;
	struct witness witness;
};

static int count_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

/* dma-bufs of the whole system; -1 if it doesn't tell. */
static long long count_dma_bufs(void)
{
	FILE *file = fopen("/sys/kernel/debug/dma_buf/bufinfo", "re");
	long long count = -1;
	char line[512];

	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "Total %lld objects", &count);
	if (file)
		fclose(file);
	return count;
}

FIXTURE_SETUP(prime)
{
	ASSERT_TRUE(witness_begin_idle(&self->witness));
	self->files = count_files();
	self->objects = count_dma_bufs();
	self->fd = board_open();
	if (self->fd < 0)
		SKIP(return, "no M6 NPU");
	self->other = board_open();
	ASSERT_LE(0, self->other);
	ASSERT_EQ(0, board_pool(self->fd, 48 * MIB, &self->pool));
	ASSERT_EQ(0, board_pool(self->other, 48 * MIB, &self->other_pool));
}

FIXTURE_TEARDOWN(prime)
{
	const struct timespec pause = { .tv_nsec = 5 * 1000 * 1000 };

	if (self->fd < 0)
		return;
	close(self->fd);
	close(self->other);
	EXPECT_TRUE(witness_end(&self->witness));
	/* The witness has closed its log. */
	EXPECT_EQ(self->files - 1, count_files());
	for (int i = 0; i < 400 && count_dma_bufs() != self->objects; i++)
		nanosleep(&pause, NULL);
	EXPECT_EQ(self->objects, count_dma_bufs());
}

static int import(int fd, int dma_buf, struct buffer *buffer)
{
	struct drm_prime_handle args = { .fd = dma_buf };
	struct drm_m6npu_bo_info info;
	int ret = board_ioctl(fd, DRM_IOCTL_PRIME_FD_TO_HANDLE, &args);

	*buffer = (struct buffer){ 0 };
	if (!ret)
		ret = board_bo_info(fd, args.handle, &info);
	if (ret)
		return ret;
	*buffer = (struct buffer){
		.handle = args.handle,
		.size = info.size,
		.addr = info.addr,
	};
	return 0;
}

/* Exports, imports, and lets go of the dma-buf's file. */
static int share(int from, const struct buffer *buffer, int to,
		 struct buffer *imported)
{
	int dma_buf = board_export(from, buffer), ret;

	if (dma_buf < 0)
		return dma_buf;
	ret = import(to, dma_buf, imported);
	close(dma_buf);
	return ret;
}

/* The whole of one buffer into another. */
static int device_copy(int fd, uint32_t pool, const struct buffer *dst,
		       const struct buffer *src)
{
	struct buffer region[2] = { *dst, *src };

	return board_command(fd, pool, cmd_copy(0, 0, 1, 0, src->size), region,
			     2);
}

static int sync_buffer(int fd, const struct buffer *buffer, uint32_t flags)
{
	struct drm_m6npu_bo_sync args = {
		.handle = buffer->handle,
		.flags = flags,
		.size = buffer->size,
	};

	return board_ioctl(fd, DRM_IOCTL_M6NPU_BO_SYNC, &args);
}

/* ---- Between two files ---- */

TEST_F(prime, two_files)
{
	struct buffer mine, theirs, out;
	struct drm_m6npu_bo_info info;

	/* Something else of theirs, so that addresses differ for sure. */
	ASSERT_EQ(0, board_buffer(self->other, self->other_pool, 3 * MIB, 0,
				  &out));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, 3 * MIB, 0, &mine));
	contents_write(mine.map, mine.size, 1);
	ASSERT_EQ(0, share(self->fd, &mine, self->other, &theirs));
	EXPECT_EQ(mine.size, theirs.size);
	EXPECT_NE(mine.addr, theirs.addr);
	ASSERT_EQ(0, board_bo_info(self->fd, mine.handle, &info));
	EXPECT_EQ(DRM_M6NPU_BO_EXPORTED, info.flags);
	EXPECT_EQ(self->pool, info.pool);
	ASSERT_EQ(0, board_bo_info(self->other, theirs.handle, &info));
	EXPECT_EQ(DRM_M6NPU_BO_IMPORTED, info.flags);
	EXPECT_EQ(0, info.pool);
	EXPECT_EQ(info.size, info.ready);
	EXPECT_EQ(PAGE, info.align);
	/* The other's jobs see what this one's CPU and jobs write. */
	ASSERT_EQ(0, device_copy(self->other, self->other_pool, &out, &theirs));
	EXPECT_TRUE(contents_are(out.map, out.size, 1));
	ASSERT_EQ(0, board_command(self->fd, self->pool,
				   cmd_fill(0, 0, mine.size, 0x5a5a5a5a), &mine,
				   1));
	ASSERT_EQ(0, device_copy(self->other, self->other_pool, &out, &theirs));
	EXPECT_TRUE(bytes_are(out.map, out.size, 0x5a));
	/* And back. */
	contents_write(out.map, out.size, 2);
	ASSERT_EQ(0, device_copy(self->other, self->other_pool, &theirs, &out));
	EXPECT_TRUE(contents_are(mine.map, mine.size, 2));
	/* It is not of their pool, nor at their address for the first. */
	EXPECT_EQ(-EFAULT, board_command(self->fd, self->pool,
					 cmd_fill(0, 0, PAGE, 1), &theirs, 1));
	board_buffer_close(self->fd, &mine);
	board_buffer_close(self->other, &out);
}

/* A file has one handle of it, and its own comes back as what it is. */
TEST_F(prime, handles)
{
	struct buffer mine, again, theirs[2];
	int dma_buf, second;

	ASSERT_EQ(0, board_bo(self->fd, self->pool, PAGE, 0, 0, &mine));
	dma_buf = board_export(self->fd, &mine);
	ASSERT_LE(0, dma_buf);
	ASSERT_EQ(0, import(self->fd, dma_buf, &again));
	EXPECT_EQ(mine.handle, again.handle);
	EXPECT_EQ(mine.addr, again.addr);
	for (int i = 0; i < 2; i++)
		ASSERT_EQ(0, import(self->other, dma_buf, &theirs[i]));
	EXPECT_EQ(theirs[0].handle, theirs[1].handle);
	EXPECT_EQ(theirs[0].addr, theirs[1].addr);
	/* Passed on, it is the same dma-buf. */
	second = board_export(self->other, &theirs[0]);
	ASSERT_LE(0, second);
	ASSERT_EQ(0, import(self->fd, second, &again));
	EXPECT_EQ(mine.handle, again.handle);
	/* Closed and imported once more. */
	board_buffer_close(self->other, &theirs[0]);
	ASSERT_EQ(0, import(self->other, second, &theirs[1]));
	EXPECT_EQ(0, board_command(self->other, self->other_pool,
				   cmd_fill(0, 0, PAGE, 8), &theirs[1], 1));
	close(dma_buf);
	close(second);
	ASSERT_EQ(0, board_map(self->fd, &mine));
	EXPECT_EQ(8, *(uint32_t *)mine.map);
	board_buffer_close(self->fd, &mine);
}

TEST_F(prime, refused)
{
	struct drm_prime_handle export = { .handle = 12345 };
	struct buffer plain, list, mine, theirs;
	struct drm_m6npu_region_map window = { 0 };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* What is not a dma-buf. */
	EXPECT_EQ(-EBADF, import(self->fd, -1, &theirs));
	EXPECT_EQ(-EINVAL, import(self->fd, null, &theirs));
	close(null);
	EXPECT_EQ(-ENOENT,
		  board_ioctl(self->fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &export));
	/* A list must not change, so it is nobody else's. */
	ASSERT_EQ(0, board_bo(self->fd, self->pool, PAGE, 0, 0, &list));
	ASSERT_EQ(0, board_seal(self->fd, &list));
	EXPECT_EQ(-EPERM, board_export(self->fd, &list));
	ASSERT_EQ(0, board_bo(self->fd, self->pool, PAGE, 0, 0, &mine));
	ASSERT_EQ(0, share(self->fd, &mine, self->other, &theirs));
	EXPECT_EQ(-EPERM, board_seal(self->fd, &mine));
	EXPECT_EQ(-EPERM, board_seal(self->other, &theirs));
	/* Not even when the other has let go, who may have it mapped. */
	board_buffer_close(self->other, &theirs);
	EXPECT_EQ(-EPERM, board_seal(self->fd, &mine));
	/* What is still private can be sealed. */
	ASSERT_EQ(0, board_bo(self->fd, self->pool, PAGE, 0, 0, &plain));
	EXPECT_EQ(0, board_seal(self->fd, &plain));
	/* Its memory is as it is: no windows. */
	ASSERT_EQ(0, share(self->fd, &mine, self->other, &theirs));
	window.handle = theirs.handle;
	EXPECT_EQ(-EOPNOTSUPP,
		  board_ioctl(self->other, DRM_IOCTL_M6NPU_REGION_MAP,
			      &window));
}

/* The importer has the memory as long as it wants. */
TEST_F(prime, exporter_closes)
{
	struct buffer mine, theirs, out, mapped;
	struct drm_m6npu_pool_info info;
	void *map;
	int dma_buf;

	ASSERT_EQ(0, board_buffer(self->other, self->other_pool, MIB, 0, &out));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, MIB, 0, &mine));
	contents_write(mine.map, MIB, 3);
	dma_buf = board_export(self->fd, &mine);
	ASSERT_LE(0, dma_buf);
	ASSERT_EQ(0, import(self->other, dma_buf, &theirs));
	map = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, dma_buf, 0);
	ASSERT_NE(MAP_FAILED, map);
	close(dma_buf);
	board_buffer_close(self->fd, &mine);
	/* It is still in the pool. */
	ASSERT_EQ(0, board_pool_info(self->fd, self->pool, &info));
	EXPECT_EQ(MIB, info.used);
	EXPECT_EQ(-EBUSY, board_pool_destroy(self->fd, self->pool));
	/* Somebody else uses what else the pool has. */
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, 40 * MIB, 0, &mapped));
	memset(mapped.map, 0xff, mapped.size);
	board_buffer_close(self->fd, &mapped);
	close(self->fd);
	ASSERT_EQ(0, device_copy(self->other, self->other_pool, &out, &theirs));
	EXPECT_TRUE(contents_are(out.map, MIB, 3));
	EXPECT_TRUE(contents_are(map, MIB, 3));
	contents_write(map, MIB, 4);
	ASSERT_EQ(0, device_copy(self->other, self->other_pool, &out, &theirs));
	EXPECT_TRUE(contents_are(out.map, MIB, 4));
	munmap(map, MIB);
	board_buffer_close(self->other, &out);
	/* For the end of the test. */
	self->fd = board_open();
}

/* ---- Mappings of the CPU ---- */

TEST_F(prime, mmap)
{
	struct buffer mine, theirs;
	uint8_t *bytes;
	int dma_buf;

	ASSERT_EQ(0, board_buffer(self->fd, self->pool, MIB, 0, &mine));
	contents_write(mine.map, MIB, 5);
	dma_buf = board_export(self->fd, &mine);
	ASSERT_LE(0, dma_buf);
	/* Through the dma-buf, also in part. */
	bytes = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, dma_buf, 0);
	ASSERT_NE(MAP_FAILED, (void *)bytes);
	EXPECT_TRUE(contents_are(bytes, MIB, 5));
	bytes[0] ^= 1;
	EXPECT_FALSE(contents_are(mine.map, MIB, 5));
	bytes[0] ^= 1;
	munmap(bytes, MIB);
	bytes = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, dma_buf,
		     8 * PAGE);
	ASSERT_NE(MAP_FAILED, (void *)bytes);
	EXPECT_EQ(0, memcmp(bytes, (uint8_t *)mine.map + 8 * PAGE, PAGE));
	munmap(bytes, PAGE);
	EXPECT_EQ(MAP_FAILED,
		  mmap(NULL, PAGE, PROT_READ, MAP_SHARED, dma_buf, (off_t)MIB));
	/* Through the importer's handle. */
	ASSERT_EQ(0, import(self->other, dma_buf, &theirs));
	close(dma_buf);
	ASSERT_EQ(0, board_map(self->other, &theirs));
	EXPECT_TRUE(contents_are(theirs.map, MIB, 5));
	contents_write(theirs.map, MIB, 6);
	EXPECT_TRUE(contents_are(mine.map, MIB, 6));
	/* A mapping outlives handles and files. */
	bytes = theirs.map;
	theirs.map = NULL;
	board_buffer_close(self->other, &theirs);
	board_buffer_close(self->fd, &mine);
	EXPECT_TRUE(contents_are(bytes, MIB, 6));
	munmap(bytes, MIB);
}

/* ---- Of another driver ---- */

/* The device node, which nobody may have made. */
static int udmabuf_open(void)
{
	unsigned int major, minor;
	FILE *file;
	int fd = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	file = fopen("/sys/class/misc/udmabuf/dev", "re");
	if (!file)
		return -1;
	if (fscanf(file, "%u:%u", &major, &minor) == 2)
		mknod("/tmp/udmabuf", S_IFCHR | 0600, makedev(major, minor));
	fclose(file);
	return open("/tmp/udmabuf", O_RDWR | O_CLOEXEC);
}

/*
 * A dma-buf of @pages pages, the last of a file first, so that no two lie side
 * by side; and those pages in the order of the dma-buf.
 */
static int scattered(unsigned int pages, uint8_t **page)
{
	struct udmabuf_create_list *list;
	int memory = memfd_create("scattered", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	int device = udmabuf_open(), dma_buf = -1;
	uint8_t *map;

	list = calloc(1, sizeof(*list) + pages * sizeof(list->list[0]));
	if (device < 0 || memory < 0 || !list ||
	    ftruncate(memory, (off_t)pages * (off_t)PAGE) ||
	    fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK))
		goto out;
	map = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
		   memory, 0);
	if (map == MAP_FAILED)
		goto out;
	list->flags = UDMABUF_FLAGS_CLOEXEC;
	list->count = pages;
	for (unsigned int i = 0; i < pages; i++) {
		list->list[i].memfd = (uint32_t)memory;
		list->list[i].offset = (pages - 1 - i) * PAGE;
		list->list[i].size = PAGE;
		page[i] = map + list->list[i].offset;
		memset(page[i], 0, PAGE);
	}
	dma_buf = ioctl(device, UDMABUF_CREATE_LIST, list);
out:
	free(list);
	if (memory >= 0)
		close(memory);
	if (device >= 0)
		close(device);
	return dma_buf;
}

static void scattered_unmap(unsigned int pages, uint8_t **page)
{
	munmap(page[pages - 1], pages * PAGE);
}

#define PAGES 700

TEST_F(prime, scattered)
{
	static const unsigned int sizes[] = { 1, 2, 3, 17, PAGES };
	static uint8_t *page[PAGES];

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		unsigned int pages = sizes[s];
		/* Far off, so that nothing lies behind the other. */
		struct buffer foreign, own = { .addr = 1ull << 36 };
		bool good = true;
		int dma_buf = scattered(pages, page);

		if (dma_buf < 0 && !s)
			SKIP(return, "no udmabuf");
		ASSERT_LE(0, dma_buf);
		for (unsigned int i = 0; i < pages; i++)
			contents_write(page[i], PAGE, i + s * 1000);
		ASSERT_EQ(0, import(self->fd, dma_buf, &foreign));
		close(dma_buf);
		EXPECT_EQ(pages * PAGE, foreign.size);
		ASSERT_EQ(0, board_buffer(self->fd, self->pool, pages * PAGE,
					  DRM_M6NPU_BO_FIXED_ADDR, &own));
		EXPECT_EQ(0, sync_buffer(self->fd, &foreign,
					 DRM_M6NPU_SYNC_TO_DEVICE));
		/* As a source. */
		ASSERT_EQ(0, device_copy(self->fd, self->pool, &own, &foreign));
		for (unsigned int i = 0; i < pages; i++)
			good &= contents_are((uint8_t *)own.map + i * PAGE,
					     PAGE, i + s * 1000);
		/* Before anything is written to memory that may be others'. */
		ASSERT_TRUE(good);
		/* As a destination. */
		contents_write(own.map, own.size, 9);
		ASSERT_EQ(0, device_copy(self->fd, self->pool, &foreign, &own));
		EXPECT_EQ(0, sync_buffer(self->fd, &foreign,
					 DRM_M6NPU_SYNC_FROM_DEVICE));
		for (unsigned int i = 0; i < pages; i++)
			good &= !memcmp((uint8_t *)own.map + i * PAGE, page[i],
					PAGE);
		EXPECT_TRUE(good);
		/* Not a byte further. */
		foreign.size += PAGE;
		EXPECT_EQ(
			-EFAULT,
			board_command(self->fd, self->pool,
				      cmd_fill(0, foreign.size - PAGE, PAGE, 1),
				      &foreign, 1));
		/* And by the CPU, through our handle. */
		foreign.size -= PAGE;
		ASSERT_EQ(0, board_map(self->fd, &foreign));
		EXPECT_TRUE(contents_are(foreign.map, foreign.size, 9));
		contents_write(foreign.map, foreign.size, 10);
		EXPECT_FALSE(memcmp(foreign.map, page[0], PAGE));
		board_buffer_close(self->fd, &foreign);
		board_buffer_close(self->fd, &own);
		scattered_unmap(pages, page);
	}
}

TEST_F(prime, sync)
{
	const uint32_t both = DRM_M6NPU_SYNC_TO_DEVICE |
			      DRM_M6NPU_SYNC_FROM_DEVICE;
	struct buffer mine, theirs;

	ASSERT_EQ(0, board_bo(self->fd, self->pool, 3 * PAGE, 0, 0, &mine));
	ASSERT_EQ(0, share(self->fd, &mine, self->other, &theirs));
	for (int i = 0; i < 2; i++) {
		const struct buffer *buffer = i ? &theirs : &mine;
		struct drm_m6npu_bo_sync args = { .handle = buffer->handle,
						  .flags = both };
		int fd = i ? self->other : self->fd;

		EXPECT_EQ(0, sync_buffer(fd, buffer, both));
		EXPECT_EQ(0, sync_buffer(fd, buffer, DRM_M6NPU_SYNC_TO_DEVICE));
		EXPECT_EQ(0,
			  sync_buffer(fd, buffer, DRM_M6NPU_SYNC_FROM_DEVICE));
		EXPECT_EQ(-EINVAL, sync_buffer(fd, buffer, 0));
		EXPECT_EQ(-EINVAL, sync_buffer(fd, buffer, 4));
		args.offset = 2 * PAGE;
		args.size = PAGE;
		EXPECT_EQ(0, board_ioctl(fd, DRM_IOCTL_M6NPU_BO_SYNC, &args));
		args.size = PAGE + 1;
		EXPECT_EQ(-EINVAL,
			  board_ioctl(fd, DRM_IOCTL_M6NPU_BO_SYNC, &args));
		args.offset = UINT64_MAX;
		EXPECT_EQ(-EINVAL,
			  board_ioctl(fd, DRM_IOCTL_M6NPU_BO_SYNC, &args));
	}
}

/* ---- Processes that end ---- */

/* Imports, and has its jobs write to it for ever. */
static void use_for_ever(int dma_buf, int pipe_fd)
{
	int fd = board_open();
	struct buffer shared;
	uint32_t pool;

	if (fd < 0 || board_pool(fd, MIB, &pool) ||
	    import(fd, dma_buf, &shared))
		_exit(1);
	for (uint32_t i = 0;; i++) {
		if (board_command(fd, pool,
				  cmd_fill(0, 0, shared.size, 0x01010101),
				  &shared, 1))
			_exit(2);
		if (!i && write(pipe_fd, "x", 1) != 1)
			_exit(3);
	}
}

TEST_F_TIMEOUT(prime, importer_killed, 120)
{
	struct buffer mine;
	int dma_buf, fds[2], status;
	pid_t child;
	char byte;

	ASSERT_EQ(0, board_buffer(self->fd, self->pool, 4 * MIB, 0, &mine));
	dma_buf = board_export(self->fd, &mine);
	ASSERT_LE(0, dma_buf);
	for (int i = 0; i < 4; i++) {
		memset(mine.map, 0, mine.size);
		ASSERT_EQ(0, pipe(fds));
		fflush(stdout);
		child = fork();
		if (!child)
			use_for_ever(dma_buf, fds[1]);
		close(fds[1]);
		ASSERT_EQ(1, read(fds[0], &byte, 1));
		close(fds[0]);
		kill(child, SIGKILL);
		ASSERT_EQ(child, waitpid(child, &status, 0));
		ASSERT_TRUE(WIFSIGNALED(status));
		EXPECT_TRUE(bytes_are(mine.map, mine.size, 1));
	}
	close(dma_buf);
	/* It is ours, as before. */
	EXPECT_EQ(0, board_command(self->fd, self->pool,
				   cmd_fill(0, 0, mine.size, 0x02020202), &mine,
				   1));
	EXPECT_TRUE(bytes_are(mine.map, mine.size, 2));
	board_buffer_close(self->fd, &mine);
}

static void export_and_die(int to, int how)
{
	int fd = board_open(), dma_buf;
	struct buffer mine;
	uint32_t pool;

	if (fd < 0 || board_pool(fd, MIB, &pool) ||
	    board_buffer(fd, pool, 5 * PAGE, 0, &mine))
		_exit(1);
	contents_write(mine.map, mine.size, 42);
	dma_buf = board_export(fd, &mine);
	if (dma_buf < 0 || !board_send_file(to, dma_buf))
		_exit(2);
	raise(how);
}

TEST_F_TIMEOUT(prime, exporter_killed, 120)
{
	struct buffer theirs, out;
	int ends[2], status, dma_buf;
	pid_t child;

	ASSERT_EQ(0, board_buffer(self->fd, self->pool, 5 * PAGE, 0, &out));
	for (int late = 0; late < 2; late++) {
		ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
		fflush(stdout);
		child = fork();
		if (!child)
			export_and_die(ends[1], late ? SIGKILL : SIGTERM);
		dma_buf = board_receive_file(ends[0]);
		ASSERT_LE(0, dma_buf);
		if (!late)
			ASSERT_EQ(child, waitpid(child, &status, 0));
		memset(out.map, 0, out.size);
		ASSERT_EQ(0, import(self->fd, dma_buf, &theirs));
		if (late)
			ASSERT_EQ(child, waitpid(child, &status, 0));
		EXPECT_TRUE(WIFSIGNALED(status));
		close(dma_buf);
		ASSERT_EQ(0, device_copy(self->fd, self->pool, &out, &theirs));
		EXPECT_TRUE(contents_are(out.map, out.size, 42));
		board_buffer_close(self->fd, &theirs);
		close(ends[0]);
		close(ends[1]);
	}
	board_buffer_close(self->fd, &out);
}

/* An importer closes while its jobs still write: they keep the memory. */
TEST_F(prime, close_while_running)
{
	const struct timespec pause = { .tv_nsec = 5 * 1000 * 1000 };
	struct drm_m6npu_pool_info info;
	struct buffer mine, theirs;
	struct stall stall;

	ASSERT_TRUE(board_set_parameter("expert_timeout_ms", 60000));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, MIB, 0, &mine));
	ASSERT_EQ(0, share(self->fd, &mine, self->other, &theirs));
	ASSERT_EQ(0, board_stall(self->other, self->other_pool, &stall));
	board_buffer_close(self->other, &theirs);
	board_buffer_close(self->fd, &mine);
	ASSERT_EQ(0, board_pool_info(self->fd, self->pool, &info));
	EXPECT_EQ(MIB, info.used);
	EXPECT_EQ(0, board_stall_end(self->other, &stall));
	/* The kernel lets go of a dma-buf's file in its own time. */
	for (int i = 0; i < 1000 && info.used; i++) {
		nanosleep(&pause, NULL);
		ASSERT_EQ(0, board_pool_info(self->fd, self->pool, &info));
	}
	EXPECT_EQ(0, info.used);
}

TEST_HARNESS_MAIN
