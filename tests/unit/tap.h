/* SPDX-License-Identifier: MIT */
/*
 * Results of a unit test in TAP, for `meson test` and tests/run. A program
 * calls ok() for each thing it looks at and ends with `return done();`, which
 * prints the plan. plan() may tell the number beforehand instead; then done()
 * insists on it.
 */
#ifndef M6_TAP_H
#define M6_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static unsigned int tap_count, tap_failed, tap_planned;

static inline void plan(unsigned int count)
{
	tap_planned = count;
	printf("1..%u\n", count);
}

__attribute__((format(printf, 4, 5)))
static inline bool tap_result(bool pass, const char *file, int line,
			      const char *format, ...)
{
	va_list args;

	printf("%sok %u - ", pass ? "" : "not ", ++tap_count);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	if (!pass) {
		tap_failed++;
		printf("# at %s:%d\n", file, line);
	}
	fflush(stdout);
	return pass;
}

/* Evaluates to the condition. The rest is a printf of what it says. */
#define ok(condition, ...) \
	tap_result(condition, __FILE__, __LINE__, __VA_ARGS__)

static inline int done(void)
{
	if (!tap_planned)
		printf("1..%u\n", tap_count);
	return tap_failed || (tap_planned && tap_planned != tap_count);
}

#endif
