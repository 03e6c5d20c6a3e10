// SPDX-License-Identifier: MIT
/* First use of buffers, when their memory is cleared. */
#include "bench.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define ROUNDS		3
/* The driver maps this much at a fault, see m6npu_gem.c. */
#define AROUND		(2 * MIB)

struct touch {
	double clear, first, again; /* ns of all buffers */
	long faults;		    /* in the first write */
};

static void touch(volatile uint8_t *at, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i += AROUND)
		at[i] = 1;
}

static long faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt + usage.ru_majflt;
}

static void touch_one(uint32_t handle, uint64_t bytes, struct touch *sum)
{
	uint8_t *map = bench_map(handle, bytes);
	double begin = bench_now(), cleared, written;
	long before;

	touch(map, bytes);
	cleared = bench_now();
	before = faults();
	memset(map, 1, bytes);
	written = bench_now();
	sum->faults += faults() - before;
	memset(map, 2, bytes);
	sum->clear += cleared - begin;
	sum->first += written - cleared;
	sum->again += bench_now() - written;
	bench_unmap(map, bytes);
}

static struct touch touch_all(uint32_t pool, uint64_t bytes, uint32_t count)
{
	uint32_t *handle = bench_handles(count);
	struct touch sum = { 0 };

	bench_create(pool, bytes, handle, 0, 1, count);
	for (uint32_t i = 0; i < count; i++)
		touch_one(handle[i], bytes, &sum);
	bench_close(handle, 0, 1, count);
	free(handle);
	return sum;
}

static void show_touch(uint64_t bytes, uint32_t count)
{
	struct touch best = { DBL_MAX, DBL_MAX, DBL_MAX, 0 };
	uint32_t pool = bench_pool(bytes * count);
	double all = (double)bytes * count;

	for (int i = 0; i < ROUNDS; i++) {
		struct touch now = touch_all(pool, bytes, count);

		best.clear = bench_best(best.clear, now.clear);
		best.first = bench_best(best.first, now.first);
		best.again = bench_best(best.again, now.again);
		best.faults = now.faults;
	}
	bench_pool_end(pool);
	printf("{\"table\": \"first_use\", \"bytes\": %" PRIu64
	       ", \"count\": %u, \"clear_mb_s\": %.1f"
	       ", \"write_mb_s\": %.1f, \"faults_page\": %.3f"
	       ", \"again_mb_s\": %.1f}\n",
	       bytes, count, all * 1e3 / best.clear, all * 1e3 / best.first,
	       (double)best.faults * PAGE / all, all * 1e3 / best.again);
}

void bench_touch(void)
{
	static const struct {
		uint64_t bytes;
		uint32_t count;
	} rows[] = {
		{ 64 * KIB, 256 }, { 2 * MIB, 32 }, { 32 * MIB, 4 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (bench_fits(rows[i].bytes * rows[i].count))
			show_touch(rows[i].bytes, rows[i].count);
}
