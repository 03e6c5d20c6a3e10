// SPDX-License-Identifier: MIT
/*
 * A persistent pool with room in it, but only in small holes.
 *
 * Usage: crowd BYTES
 *
 * Makes a pool in which BYTES are free, rounded up to whole holes, between
 * buffers of its own that hold something. Says so in a line, and waits. After
 * SIGTERM it looks whether they still hold the same and gives the pool back;
 * the exit status tells.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kselftest/board.h"

/* Of a hole, and of what is between two. */
#define PIECE	(64 * 1024ull)

static int fd;
static uint32_t pool;

static int fail(const char *what, int ret)
{
	fprintf(stderr, "crowd: %s: %s\n", what, strerror(-ret));
	return 1;
}

static int make_pool(uint64_t size)
{
	struct drm_m6npu_pool_create create = {
		.size = size, .flags = DRM_M6NPU_POOL_PERSISTENT,
	};
	int ret = board_ioctl(fd, DRM_IOCTL_M6NPU_POOL_CREATE, &create);

	pool = create.pool;
	return ret;
}

/* Every other piece is kept, the others are only there to be closed. */
static int fill(struct buffer *kept, struct buffer *between, uint32_t holes)
{
	int ret = 0;

	for (uint32_t i = 0; i < holes && !ret; i++) {
		ret = board_bo(fd, pool, PIECE, 0, 0, &between[i]);
		if (!ret)
			ret = board_buffer(fd, pool, PIECE, 0, &kept[i]);
		if (!ret)
			contents_write(kept[i].map, PIECE, i);
	}
	for (uint32_t i = 0; i < holes; i++)
		board_buffer_close(fd, &between[i]);
	return ret;
}

static uint32_t count_spoilt(const struct buffer *kept, uint32_t holes)
{
	uint32_t spoilt = 0;

	for (uint32_t i = 0; i < holes; i++)
		spoilt += !contents_are(kept[i].map, PIECE, i);
	return spoilt;
}

static void wait_for_end(void)
{
	sigset_t signals;
	int got;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	printf("crowd: pool %u\n", pool);
	fflush(stdout);
	sigwait(&signals, &got);
}

int main(int argc, char **argv)
{
	uint64_t bytes = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
	uint32_t holes = (uint32_t)((bytes + PIECE - 1) / PIECE), spoilt;
	struct buffer *kept = calloc(holes, sizeof(*kept));
	struct buffer *between = calloc(holes, sizeof(*between));
	int ret;

	if (!holes || !kept || !between) {
		fprintf(stderr, "Usage: crowd BYTES\n");
		return 2;
	}
	fd = board_open();
	if (fd < 0)
		return fail("no M6 NPU", fd);
	ret = make_pool(2 * holes * PIECE);
	if (!ret)
		ret = fill(kept, between, holes);
	if (ret)
		return fail("pool", ret);
	wait_for_end();
	spoilt = count_spoilt(kept, holes);
	for (uint32_t i = 0; i < holes; i++)
		board_buffer_close(fd, &kept[i]);
	ret = board_pool_destroy(fd, pool);
	if (ret)
		return fail("pool is not given back", ret);
	printf("crowd: %u of %u buffers hold something else\n", spoilt, holes);
	return spoilt ? 1 : 0;
}
