// SPDX-License-Identifier: MIT
/* What becomes of all figures when there are many buffers, of a page each. */
#include "bench.h"

#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

/* Few buffers are measured several times. */
#define ROUNDS		3
#define ROUNDS_UP_TO	10000
#define MOST		100000
#define INFO_CALLS	200
/* To touch each, or to have CMA allocate each, takes long. */
#define TOUCH_UP_TO	10000
#define CMA_UP_TO	10000

/* ns of many calls of a kind. */
struct calls {
	double *ns;
	uint32_t count;
};

struct growth {
	double create, create_mean; /* ns of a call */
	double close, close_mean;
	double info;
	double defrag; /* ns of all of it */
	uint32_t moves;
};

/* ---- Calls, each timed: what else the machine does hits few of them ---- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const struct calls *calls)
{
	qsort(calls->ns, calls->count, sizeof(*calls->ns), compare);
	return calls->ns[calls->count / 2];
}

static double mean(const struct calls *calls)
{
	double sum = 0;

	for (uint32_t i = 0; i < calls->count; i++)
		sum += calls->ns[i];
	return sum / calls->count;
}

static void create(uint32_t pool, uint32_t *handle, uint32_t count,
		   struct calls *calls)
{
	for (uint32_t i = 0; i < count; i++) {
		double begin = bench_now();

		bench_create(pool, PAGE, handle, i, 1, i + 1);
		calls->ns[calls->count++] = bench_now() - begin;
	}
}

static void close_some(uint32_t *handle, uint32_t first, uint32_t step,
		       uint32_t count, struct calls *calls)
{
	for (uint32_t i = first; i < count; i += step) {
		double begin = bench_now();

		bench_close(handle, i, 1, i + 1);
		calls->ns[calls->count++] = bench_now() - begin;
	}
}

static double info_ns(uint32_t pool)
{
	struct drm_m6npu_pool_info info;
	double begin = bench_now();

	for (int i = 0; i < INFO_CALLS; i++)
		bench_must(board_pool_info(bench_fd, pool, &info), "POOL_INFO");
	return (bench_now() - begin) / INFO_CALLS;
}

/* ---- A pool full of them ---- */

static void touch_all(const uint32_t *handle, uint32_t count)
{
	for (uint32_t i = 0; i < count; i += 2) {
		uint8_t *map = bench_map(handle[i], PAGE);

		*(volatile uint8_t *)map = 1;
		bench_unmap(map, PAGE);
	}
}

static struct growth grow(uint32_t count, bool touched)
{
	struct calls creates = { calloc(count, sizeof(double)), 0 };
	struct calls closes = { calloc(count, sizeof(double)), 0 };
	uint32_t *handle = bench_handles(count);
	uint32_t pool = bench_pool(count * PAGE);
	struct drm_m6npu_pool_defrag report;
	struct growth growth = { 0 };

	bench_must(creates.ns && closes.ns ? 0 : -ENOMEM, "times");
	create(pool, handle, count, &creates);
	close_some(handle, 1, 2, count, &closes);
	growth.info = info_ns(pool);
	if (touched)
		touch_all(handle, count);
	bench_must(board_pool_defrag(bench_fd, pool, 0, &report),
		   "POOL_DEFRAG");
	close_some(handle, 0, 2, count, &closes);
	bench_pool_end(pool);
	growth.moves = report.buffers;
	growth.defrag = (double)report.time_ns;
	growth.create = median(&creates);
	growth.create_mean = mean(&creates);
	growth.close = median(&closes);
	growth.close_mean = mean(&closes);
	free(handle);
	free(creates.ns);
	free(closes.ns);
	return growth;
}

/* ---- Rows ---- */

static void keep_best(struct growth *best, const struct growth *now)
{
	best->create = bench_best(best->create, now->create);
	best->create_mean = bench_best(best->create_mean, now->create_mean);
	best->close = bench_best(best->close, now->close);
	best->close_mean = bench_best(best->close_mean, now->close_mean);
	best->info = bench_best(best->info, now->info);
	best->defrag = bench_best(best->defrag, now->defrag);
	best->moves = now->moves;
}

static void show_cma(uint32_t count)
{
	const struct sequence sequence = { .bytes = PAGE, .count = count };
	struct took took = bench_cma(&sequence);

	printf(", \"cma_alloc_ns\": %.0f, \"cma_release_ns\": %.0f", took.alloc,
	       took.free);
}

static void show_growth(uint32_t count, bool touched)
{
	struct growth best = { DBL_MAX, DBL_MAX, DBL_MAX, DBL_MAX,
			       DBL_MAX, DBL_MAX, 0 };
	int rounds = count <= ROUNDS_UP_TO ? ROUNDS : 1;

	for (int i = 0; i < rounds; i++) {
		struct growth now = grow(count, touched);

		keep_best(&best, &now);
	}
	printf("{\"table\": \"growth\", \"buffers\": %u, \"memory\": \"%s\""
	       ", \"create_ns\": %.0f, \"create_mean_ns\": %.0f"
	       ", \"close_ns\": %.0f, \"close_mean_ns\": %.0f"
	       ", \"info_ns\": %.0f, \"moves\": %u, \"defrag_ns\": %.0f"
	       ", \"move_ns\": %.0f",
	       count, touched ? "used" : "untouched", best.create,
	       best.create_mean, best.close, best.close_mean, best.info,
	       best.moves, best.defrag,
	       best.defrag / (best.moves ? best.moves : 1));
	if (!touched && count <= CMA_UP_TO)
		show_cma(count);
	printf("}\n");
	fflush(stdout);
}

void bench_growth(void)
{
	for (uint32_t count = 10; count <= MOST; count *= 10)
		if (bench_fits(count * PAGE))
			show_growth(count, false);
	for (uint32_t count = 10; count <= TOUCH_UP_TO; count *= 10)
		show_growth(count, true);
}
