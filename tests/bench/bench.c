// SPDX-License-Identifier: MIT
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

const struct took bench_never = { DBL_MAX, DBL_MAX };

bool bench_fits(uint64_t bytes)
{
	return bytes + 192 * MIB <= bench_area;
}

double bench_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

void bench_must(int ret, const char *what)
{
	if (ret >= 0)
		return;
	fprintf(stderr, "bench_pools: %s: %s\n", what, strerror(-ret));
	exit(1);
}

double bench_best(double so_far, double now)
{
	return now < so_far ? now : so_far;
}

struct took bench_best_took(struct took so_far, struct took now)
{
	return (struct took){ bench_best(so_far.alloc, now.alloc),
			      bench_best(so_far.free, now.free) };
}

uint32_t bench_pool(uint64_t size)
{
	uint32_t pool;

	bench_must(board_pool(bench_fd, size, &pool), "POOL_CREATE");
	return pool;
}

void bench_pool_end(uint32_t pool)
{
	bench_must(board_pool_destroy(bench_fd, pool), "POOL_DESTROY");
}

uint32_t *bench_handles(uint32_t count)
{
	uint32_t *handle = calloc(count, sizeof(*handle));

	if (!handle)
		bench_must(-ENOMEM, "handles");
	return handle;
}

void bench_create(uint32_t pool, uint64_t bytes, uint32_t *handle,
		  uint32_t first, uint32_t step, uint32_t count)
{
	for (uint32_t i = first; i < count; i += step) {
		struct drm_m6npu_bo_create create = { .size = bytes,
						      .pool = pool };

		bench_must(board_bo_create(bench_fd, &create), "BO_CREATE");
		handle[i] = create.handle;
	}
}

void bench_close(uint32_t *handle, uint32_t first, uint32_t step,
		 uint32_t count)
{
	for (uint32_t i = first; i < count; i += step) {
		struct drm_gem_close args = { .handle = handle[i] };

		if (!handle[i])
			continue;
		bench_must(board_ioctl(bench_fd, DRM_IOCTL_GEM_CLOSE, &args),
			   "GEM_CLOSE");
		handle[i] = 0;
	}
}

void *bench_map(uint32_t handle, uint64_t bytes)
{
	struct buffer buffer = { .handle = handle, .size = bytes };

	bench_must(board_map(bench_fd, &buffer), "mmap");
	return buffer.map;
}

void bench_unmap(void *map, uint64_t bytes)
{
	munmap(map, bytes);
}

#define CMA_FILE "/sys/kernel/debug/m6_cma_bench/sequence"

/* In one write each, since that is what the module takes as one request. */
struct took bench_cma(const struct sequence *sequence)
{
	int file = open(CMA_FILE, O_RDWR | O_CLOEXEC);
	long long alloc_ns = 0, free_ns = 0;
	char line[64] = "";

	if (file < 0)
		bench_must(-errno, CMA_FILE " (is m6_cma_bench.ko loaded?)");
	snprintf(line, sizeof(line), "%" PRIu64 " %u %d", sequence->bytes,
		 sequence->count, sequence->fragmented);
	if (write(file, line, strlen(line)) < 0)
		bench_must(-errno, "cma_alloc");
	memset(line, 0, sizeof(line));
	if (pread(file, line, sizeof(line) - 1, 0) < 0 ||
	    sscanf(line, "%lld %lld", &alloc_ns, &free_ns) != 2)
		bench_must(-EIO, CMA_FILE);
	close(file);
	return (struct took){ (double)alloc_ns, (double)free_ns };
}
