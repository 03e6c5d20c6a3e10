/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For tests that try to break things: a client with a context of its own that
 * computes all the while and looks at each result, the kernel's log, the pools'
 * figures, and random numbers that are the same each time.
 */
#ifndef M6_TEST_CHECKER_H
#define M6_TEST_CHECKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "board.h"

struct checker {
	int fd;
	uint32_t unit_mask;
	pthread_t thread;
	bool running;
	atomic_bool stop;
	struct buffer data, weights, list;
	struct job job;
	void *reference; /* of the part that does not change */
	atomic_long jobs; /* that ended */
	atomic_long failed; /* with an error */
	atomic_long wrong; /* with another result than they should */
	int error; /* the first job's that failed, or refusal */
};

/* Begins to compute, on these units (0 = any). 0 or a negative errno. */
int checker_start(struct checker *checker, uint32_t unit_mask);
/* Waits until @jobs more have ended; false if that took very long. */
bool checker_goes_on(struct checker *checker, long jobs);
/* True if there were jobs and all of them were right; says so if not. */
bool checker_stop(struct checker *checker);

/*
 * What a test that attacks must leave as it was: two of these clients, the
 * pools, the log. An expert that never comes is waited for only shortly
 * meanwhile.
 */
struct witness {
	struct checker checker[2];
	int kmsg;
	long long total, used;
	long long patience; /* the driver's, for an expert, in ms */
	bool errors_expected; /* messages at error level are right */
};

bool witness_begin(struct witness *witness);
/* The same without clients; start them as you like. */
bool witness_begin_idle(struct witness *witness);
/* True if all is well; the attackers have closed their files. */
bool witness_end(struct witness *witness);

struct rng {
	uint64_t state;
};

static inline uint64_t rng_next(struct rng *rng)
{
	/* splitmix64 */
	uint64_t z = rng->state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* 0..@below - 1 */
static inline uint32_t rng_below(struct rng *rng, uint32_t below)
{
	return (uint32_t)((rng_next(rng) >> 32) * below >> 32);
}

static inline bool rng_one_in(struct rng *rng, uint32_t n)
{
	return !rng_below(rng, n);
}

#endif
