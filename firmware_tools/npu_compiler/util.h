/* SPDX-License-Identifier: MIT */
/* Errors, notes and memory of the tools. */
#ifndef NPU_COMPILER_UTIL_H
#define NPU_COMPILER_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/*
 * Functions that can fail return 0 or -1; whoever finds the reason calls
 * fail() with one line for the user: what is wrong and what to do.
 */
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *fail_message(void);

/* One line on stderr that does not stop the work. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* No more of them: what comes has been done before. */
void notes_end(void);

/* Out of memory ends the program: there is nothing better to do here. */
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *old, size_t count, size_t size);
char *xstrdup(const char *text);
char *xasprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Whole file, NUL-terminated; larger than @max is refused. */
int read_file(const char *path, size_t max, char **data, size_t *bytes);
bool file_exists(const char *path);

static inline uint64_t align_up(uint64_t value, uint64_t align)
{
	return (value + align - 1) / align * align;
}

#endif
