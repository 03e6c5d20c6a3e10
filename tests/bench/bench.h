/* SPDX-License-Identifier: MIT */
/*
 * Figures of the driver's pools, on the board, next to those of a peer in the
 * same run. Each bench_*() prints lines of JSON, which tests/bench/run makes
 * tables of; its TABLES say what the keys mean. Where anything fails the program
 * ends.
 */
#ifndef BENCH_H
#define BENCH_H

#include "../kselftest/board.h"

#define KIB		1024ull
#define GIB		(1024 * MIB)

/*
 * What is allocated and freed, in a pool or by its peer: @count pieces, all of
 * them; or, if @fragmented, every other one again after all were taken.
 */
struct sequence {
	uint64_t bytes; /* of each piece */
	uint32_t count;
	bool fragmented;
};

/* ns of one call, mean of a sequence. */
struct took {
	double alloc, free;
};

/* The open file of the device, and how much can be in pools. */
extern int bench_fd;
extern uint64_t bench_area;

/* So much fits, with room for what the system keeps in the area. */
bool bench_fits(uint64_t bytes);
double bench_now(void); /* ns */
/* Ends the program if @ret is a negative errno. */
void bench_must(int ret, const char *what);
/* The better of two. */
double bench_best(double so_far, double now);
struct took bench_best_took(struct took so_far, struct took now);
extern const struct took bench_never;

uint32_t bench_pool(uint64_t size);
void bench_pool_end(uint32_t pool);
/* Every @step-th of @count buffers from @first on, 0 being none. */
void bench_create(uint32_t pool, uint64_t bytes, uint32_t *handle,
		  uint32_t first, uint32_t step, uint32_t count);
void bench_close(uint32_t *handle, uint32_t first, uint32_t step,
		 uint32_t count);
void *bench_map(uint32_t handle, uint64_t bytes);
void bench_unmap(void *map, uint64_t bytes);
uint32_t *bench_handles(uint32_t count);

/* The same sequence by m6_cma_bench.ko. */
struct took bench_cma(const struct sequence *sequence);

void bench_ioctl(void);
void bench_pools(void);
void bench_buffers(void);
void bench_touch(void);
void bench_defrag(void);
void bench_growth(void);

#endif
