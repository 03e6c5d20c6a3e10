/* SPDX-License-Identifier: MIT */
/* Wrong words: each is told once, all are counted. */
#ifndef MEM_REPORT_H
#define MEM_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct mem_error {
	uint64_t addr;		/* device address */
	uint32_t expected, found;
	const char *test;
	uint32_t iteration;	/* from 1 */
};

struct mem_report {
	FILE *lines;		/* where MEM_CORRUPTION_ERR goes */
	struct mem_error *errors;	/* the first of each word */
	size_t count, limit;
	bool more;		/* words than @errors has room for */
	uint64_t mismatches;	/* of all words, however often */
	uint32_t bits;		/* that were ever wrong */
	uint32_t high, low;	/* those of them that were 1, and 0 */
};

/* @limit: words to tell of. -ENOMEM */
int mem_report_init(struct mem_report *report, FILE *lines, size_t limit);
void mem_report_free(struct mem_report *report);
void mem_report_add(struct mem_report *report, const struct mem_error *error);
/* The only bit that was ever wrong, if it always read the same; else -1. */
int mem_report_stuck(const struct mem_report *report, unsigned int *value);

#endif
