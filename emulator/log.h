/* SPDX-License-Identifier: MIT */
/*
 * Log lines. Cheap to call from any thread: once m6_log_start() has run, a
 * line is queued and a thread of its own writes it, so a full disk or a
 * stopped terminal never holds the device up; lines that don't fit are
 * counted and dropped.
 */
#ifndef M6_LOG_H
#define M6_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum m6_log_level {
	M6_LOG_ERROR,
	M6_LOG_WARN,
	M6_LOG_INFO,
	M6_LOG_DEBUG,
};

/* -EINVAL for an unknown name. */
int m6_log_level_parse(const char *name, enum m6_log_level *level);
void m6_log_set_level(enum m6_log_level level);
bool m6_log_enabled(enum m6_log_level level);

/* Writes to @fd from now on, by a thread. -errno. */
int m6_log_start(int fd);
/* Writes what is queued and ends the thread. */
void m6_log_stop(void);

void m6_log_line(enum m6_log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Ten lines a second and place; says how many it left out. */
struct m6_log_limit {
	atomic_uint_fast64_t second;
	atomic_uint count;
};
bool m6_log_limit(struct m6_log_limit *limit, enum m6_log_level level);

#define m6_error(...)	m6_log_line(M6_LOG_ERROR, __VA_ARGS__)
#define m6_warn(...)	m6_log_line(M6_LOG_WARN, __VA_ARGS__)
#define m6_info(...)	m6_log_line(M6_LOG_INFO, __VA_ARGS__)
#define m6_debug(...)	m6_log_line(M6_LOG_DEBUG, __VA_ARGS__)

/* For what a guest can cause as often as it likes. */
#define m6_log_limited(level, ...)					\
	do {								\
		static struct m6_log_limit limit_;			\
		if (m6_log_enabled(level) && m6_log_limit(&limit_, level)) \
			m6_log_line(level, __VA_ARGS__);		\
	} while (0)
#define m6_guest_error(...)	m6_log_limited(M6_LOG_INFO, __VA_ARGS__)

#endif
