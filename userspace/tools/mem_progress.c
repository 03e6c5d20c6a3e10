// SPDX-License-Identifier: MIT
#include "mem_progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define SECOND_NS	1000000000ull
/* Between two lines: so that a reader can follow. */
#define TELL_NS		(SECOND_NS / 4)

uint64_t mem_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

void mem_progress_begin(struct mem_progress *progress, bool shown,
			double total)
{
	const uint64_t now = mem_now_ns();

	*progress = (struct mem_progress){
		.shown = shown,
		.begun_ns = now,
		.told_ns = now,
		.total = total,
	};
}

void mem_progress_clear(struct mem_progress *progress)
{
	if (progress->width)
		fprintf(stderr, "\r%*s\r", (int)progress->width, "");
	progress->width = 0;
}

static void tell(struct mem_progress *p, const char *what, uint32_t iteration,
		 double seconds)
{
	double part = (double)p->done / p->total;
	uint64_t left = (uint64_t)(seconds / part * (1 - part));
	char number[32] = "", line[160];
	int width;

	if (iteration)
		snprintf(number, sizeof(number), "iteration %" PRIu32 ", ",
			 iteration);
	width = snprintf(line, sizeof(line),
			 "%5.1f %%, %.0f MB/s, %" PRIu64 ":%02" PRIu64 ":%02" PRIu64 " left, %s%s",
			 100 * part, (double)p->done / seconds / 1e6,
			 left / 3600, left / 60 % 60, left % 60, number, what);
	fprintf(stderr, "\r%-*s", (int)p->width, line);
	fflush(stderr);
	p->width = (unsigned int)width;
}

void mem_progress_add(struct mem_progress *p, const char *what,
		      uint32_t iteration, uint64_t bytes)
{
	uint64_t now;

	p->done += bytes;
	if (!p->shown)
		return;
	now = mem_now_ns();
	if (now - p->told_ns < TELL_NS || !p->done)
		return;
	p->told_ns = now;
	tell(p, what, iteration, (double)(now - p->begun_ns) / SECOND_NS);
}
