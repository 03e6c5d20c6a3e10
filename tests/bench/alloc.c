// SPDX-License-Identifier: MIT
/* Creation of pools, and of buffers in them, next to CMA. */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define CALLS		2000
#define POOL_ROUNDS	5
#define BUFFER_ROUNDS	3

/* ---- The way into the kernel ---- */

static double param_ns(uint32_t param)
{
	double begin = bench_now();
	uint64_t value;

	for (int i = 0; i < CALLS; i++)
		bench_must(board_param(bench_fd, param, &value), "GET_PARAM");
	return (bench_now() - begin) / CALLS;
}

void bench_ioctl(void)
{
	static const struct {
		const char *what;
		uint32_t param;
	} calls[] = {
		{ "ioctl that returns a constant", DRM_M6NPU_PARAM_VA_BITS },
		{ "ioctl that reads a device register",
		  DRM_M6NPU_PARAM_POWER },
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		printf("{\"table\": \"ioctl\", \"what\": \"%s\", \"ns\": %.0f}\n",
		       calls[i].what, param_ns(calls[i].param));
}

/* ---- Pools ---- */

static struct took pool_took(uint64_t bytes)
{
	double begin = bench_now(), created;
	uint32_t pool = bench_pool(bytes);

	created = bench_now();
	bench_pool_end(pool);
	return (struct took){ created - begin, bench_now() - created };
}

static void show_pool(uint64_t bytes)
{
	const struct sequence sequence = { .bytes = bytes, .count = 1 };
	struct took ours = bench_never, cma = bench_never;

	for (int i = 0; i < POOL_ROUNDS; i++) {
		ours = bench_best_took(ours, pool_took(bytes));
		cma = bench_best_took(cma, bench_cma(&sequence));
	}
	printf("{\"table\": \"pools\", \"bytes\": %" PRIu64
	       ", \"create_ns\": %.0f, \"cma_alloc_ns\": %.0f"
	       ", \"destroy_ns\": %.0f, \"cma_release_ns\": %.0f}\n",
	       bytes, ours.alloc, cma.alloc, ours.free, cma.free);
}

void bench_pools(void)
{
	static const uint64_t sizes[] = { MIB, 64 * MIB, 512 * MIB, 4 * GIB };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (bench_fits(sizes[i]))
			show_pool(sizes[i]);
}

/* ---- Buffers ---- */

static struct took buffers_took(const struct sequence *sequence)
{
	uint32_t first = sequence->fragmented, step = 1 + first;
	uint32_t count = sequence->count;
	uint32_t pool = bench_pool(sequence->bytes * count);
	uint32_t *handle = bench_handles(count);
	uint32_t measured = (count - first + step - 1) / step;
	double begin, created, end;

	if (sequence->fragmented) {
		bench_create(pool, sequence->bytes, handle, 0, 1, count);
		bench_close(handle, 1, 2, count);
	}
	begin = bench_now();
	bench_create(pool, sequence->bytes, handle, first, step, count);
	created = bench_now();
	bench_close(handle, first, step, count);
	end = bench_now();
	bench_close(handle, 0, 1, count);
	bench_pool_end(pool);
	free(handle);
	return (struct took){ (created - begin) / measured,
			      (end - created) / measured };
}

static void show_buffers(const struct sequence *sequence)
{
	struct took ours = bench_never, cma = bench_never;

	for (int i = 0; i < BUFFER_ROUNDS; i++) {
		ours = bench_best_took(ours, buffers_took(sequence));
		cma = bench_best_took(cma, bench_cma(sequence));
	}
	printf("{\"table\": \"buffers\", \"bytes\": %" PRIu64
	       ", \"count\": %u, \"place\": \"%s\""
	       ", \"create_ns\": %.0f, \"cma_alloc_ns\": %.0f"
	       ", \"close_ns\": %.0f, \"cma_release_ns\": %.0f}\n",
	       sequence->bytes, sequence->count,
	       sequence->fragmented ? "fragmented" : "fresh", ours.alloc,
	       cma.alloc, ours.free, cma.free);
}

void bench_buffers(void)
{
	static const struct sequence sequences[] = {
		{ 64 * KIB, 512, false }, { 64 * KIB, 512, true },
		{ 2 * MIB, 128, false }, { 2 * MIB, 128, true },
		{ 32 * MIB, 16, false }, { 32 * MIB, 16, true },
	};

	for (size_t i = 0; i < sizeof(sequences) / sizeof(sequences[0]); i++)
		if (bench_fits(sequences[i].bytes * sequences[i].count))
			show_buffers(&sequences[i]);
}
