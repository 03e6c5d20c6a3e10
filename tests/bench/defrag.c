// SPDX-License-Identifier: MIT
/* Moving what is in buffers, next to memcpy(). */
#include "bench.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COPY_NS		3e8

struct layout {
	uint64_t bytes; /* of each buffer */
	uint32_t count; /* every other one of them is closed */
	int rounds;
};

static void fill(uint32_t handle, uint64_t bytes)
{
	void *map = bench_map(handle, bytes);

	memset(map, 0x5a, bytes);
	bench_unmap(map, bytes);
}

/* One run, whose report is kept if it was the fastest, but for the pause. */
static void defrag_once(uint32_t pool, const struct layout *layout,
			struct drm_m6npu_pool_defrag *best)
{
	uint32_t *handle = bench_handles(layout->count);
	struct drm_m6npu_pool_defrag report;
	uint64_t pause = best->pause_ns;

	bench_create(pool, layout->bytes, handle, 0, 1, layout->count);
	bench_close(handle, 0, 2, layout->count);
	for (uint32_t i = 1; i < layout->count; i += 2)
		fill(handle[i], layout->bytes);
	bench_must(board_pool_defrag(bench_fd, pool, 0, &report),
		   "POOL_DEFRAG");
	bench_close(handle, 0, 1, layout->count);
	free(handle);
	if (report.pause_ns > pause)
		pause = report.pause_ns;
	if (!best->copied ||
	    (double)report.copied / (double)report.time_ns >
		    (double)best->copied / (double)best->time_ns)
		*best = report;
	best->pause_ns = pause;
}

/* ns of a memcpy() from one buffer to another, both in use already. */
static double copy_ns(uint32_t pool, uint64_t bytes)
{
	double until, best = DBL_MAX;
	uint32_t handle[2];
	void *map[2];

	bench_create(pool, bytes, handle, 0, 1, 2);
	for (int i = 0; i < 2; i++) {
		map[i] = bench_map(handle[i], bytes);
		memset(map[i], i, bytes);
	}
	until = bench_now() + COPY_NS;
	do {
		double begin = bench_now();

		memcpy(map[0], map[1], bytes);
		best = bench_best(best, bench_now() - begin);
	} while (bench_now() < until);
	for (int i = 0; i < 2; i++)
		bench_unmap(map[i], bytes);
	bench_close(handle, 0, 1, 2);
	return best;
}

static void show_defrag(const struct layout *layout)
{
	uint32_t pool = bench_pool(layout->bytes * layout->count);
	struct drm_m6npu_pool_defrag best = { 0 };
	double copy;

	for (int i = 0; i < layout->rounds; i++)
		defrag_once(pool, layout, &best);
	copy = copy_ns(pool, layout->bytes);
	bench_pool_end(pool);
	printf("{\"table\": \"defrag\", \"bytes\": %" PRIu64
	       ", \"moves\": %u, \"stayed\": %u, \"copied\": %" PRIu64
	       ", \"copied_device\": %" PRIu64 ", \"time_ns\": %" PRIu64
	       ", \"pause_ns\": %" PRIu64 ", \"copied_mb_s\": %.1f"
	       ", \"memcpy_mb_s\": %.1f}\n",
	       layout->bytes, best.buffers, best.stayed, (uint64_t)best.copied,
	       (uint64_t)best.copied_device, (uint64_t)best.time_ns,
	       (uint64_t)best.pause_ns,
	       (double)best.copied * 1e3 / (double)best.time_ns,
	       (double)layout->bytes * 1e3 / copy);
}

void bench_defrag(void)
{
	static const struct layout layouts[] = {
		{ 64 * KIB, 1024, 3 },
		{ MIB, 128, 3 },
		{ 32 * MIB, 16, 2 },
		{ 256 * MIB, 3, 2 },
	};

	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (bench_fits(layouts[i].bytes * layouts[i].count))
			show_defrag(&layouts[i]);
}
