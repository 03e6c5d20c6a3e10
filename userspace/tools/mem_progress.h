/* SPDX-License-Identifier: MIT */
/* A line on a terminal's standard error: how far, how fast, how long yet. */
#ifndef MEM_PROGRESS_H
#define MEM_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct mem_progress {
	bool shown;
	unsigned int width;	/* of the line that is there */
	uint64_t begun_ns, told_ns;
	uint64_t done;		/* bytes read or written */
	double total;		/* which 64 bits may not hold */
};

uint64_t mem_now_ns(void);

void mem_progress_begin(struct mem_progress *progress, bool shown,
			double total);
/* @what is done now, and @bytes more of it. @iteration 0: of none. */
void mem_progress_add(struct mem_progress *progress, const char *what,
		      uint32_t iteration, uint64_t bytes);
/* Takes the line away, for others to write theirs. */
void mem_progress_clear(struct mem_progress *progress);

#endif
