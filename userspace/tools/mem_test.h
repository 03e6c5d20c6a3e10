/* SPDX-License-Identifier: MIT */
/*
 * The tests. A pass goes over all memory before the next one begins, so that
 * what is read was written a while ago, out of caches, and is wrong if two
 * addresses mean one cell. Only the walking bits take one piece at a time.
 */
#ifndef MEM_TEST_H
#define MEM_TEST_H

#include <signal.h>
#include <stdint.h>

#include "mem_area.h"
#include "mem_device.h"
#include "mem_progress.h"
#include "mem_report.h"

struct mem_test {
	struct mem_area *area;
	struct mem_device *device;
	struct mem_report *report;
	struct mem_progress *progress;
	const volatile sig_atomic_t *stop;
	uint32_t iteration;	/* from 1 */
};

/* Bytes read or written for each byte of memory in an iteration. */
uint64_t mem_test_passes(void);
/*
 * One iteration: 0, -EINTR if it was stopped, or an error that kept it from
 * testing. Wrong words are no error, but reported.
 */
int mem_test_run(struct mem_test *test);

#endif
