// SPDX-License-Identifier: MIT
#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES	512
#define QUEUE_BYTES	(256 * 1024)
#define LINES_A_SECOND	10

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	bool running;
	bool stop;
	int fd;
	uint64_t dropped;
	size_t used;
	char queue[QUEUE_BYTES];
} log_state = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.wake = PTHREAD_COND_INITIALIZER,
	.fd = STDERR_FILENO,
};

static atomic_int log_level = M6_LOG_WARN;

static const char *const level_names[] = {
	[M6_LOG_ERROR] = "error",
	[M6_LOG_WARN] = "warn",
	[M6_LOG_INFO] = "info",
	[M6_LOG_DEBUG] = "debug",
};

int m6_log_level_parse(const char *name, enum m6_log_level *level)
{
	for (int i = M6_LOG_ERROR; i <= M6_LOG_DEBUG; i++) {
		if (!strcmp(name, level_names[i])) {
			*level = i;
			return 0;
		}
	}
	return -EINVAL;
}

void m6_log_set_level(enum m6_log_level level)
{
	atomic_store(&log_level, level);
}

bool m6_log_enabled(enum m6_log_level level)
{
	return (int)level <= atomic_load_explicit(&log_level,
						  memory_order_relaxed);
}

static void write_all(int fd, const char *text, size_t bytes)
{
	while (bytes) {
		ssize_t done = write(fd, text, bytes);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return;
		text += done;
		bytes -= done;
	}
}

/* Takes the whole queue at once: the writer may block, the queue may not. */
static void *log_thread(void *unused)
{
	static char out[QUEUE_BYTES];
	char note[64];

	(void)unused;
	pthread_mutex_lock(&log_state.lock);
	while (!log_state.stop || log_state.used) {
		size_t used = log_state.used;
		uint64_t dropped = log_state.dropped;

		if (!used) {
			pthread_cond_wait(&log_state.wake, &log_state.lock);
			continue;
		}
		memcpy(out, log_state.queue, used);
		log_state.used = 0;
		log_state.dropped = 0;
		pthread_mutex_unlock(&log_state.lock);
		write_all(log_state.fd, out, used);
		if (dropped) {
			int n = snprintf(note, sizeof(note),
					 "(%llu log lines lost)\n",
					 (unsigned long long)dropped);
			write_all(log_state.fd, note, n);
		}
		pthread_mutex_lock(&log_state.lock);
	}
	pthread_mutex_unlock(&log_state.lock);
	return NULL;
}

int m6_log_start(int fd)
{
	int err;

	log_state.fd = fd;
	log_state.stop = false;
	err = pthread_create(&log_state.thread, NULL, log_thread, NULL);
	if (err)
		return -err;
	pthread_mutex_lock(&log_state.lock);
	log_state.running = true;
	pthread_mutex_unlock(&log_state.lock);
	return 0;
}

void m6_log_stop(void)
{
	pthread_mutex_lock(&log_state.lock);
	if (!log_state.running) {
		pthread_mutex_unlock(&log_state.lock);
		return;
	}
	log_state.running = false;
	log_state.stop = true;
	pthread_cond_signal(&log_state.wake);
	pthread_mutex_unlock(&log_state.lock);
	pthread_join(log_state.thread, NULL);
}

static void log_emit(const char *line, size_t bytes)
{
	pthread_mutex_lock(&log_state.lock);
	if (!log_state.running) {
		write_all(log_state.fd, line, bytes);
	} else if (log_state.used + bytes > sizeof(log_state.queue)) {
		log_state.dropped++;
	} else {
		memcpy(log_state.queue + log_state.used, line, bytes);
		log_state.used += bytes;
		pthread_cond_signal(&log_state.wake);
	}
	pthread_mutex_unlock(&log_state.lock);
}

void m6_log_line(enum m6_log_level level, const char *format, ...)
{
	char line[LINE_MAX_BYTES];
	struct timespec now;
	va_list args;
	int used, more;

	if (!m6_log_enabled(level))
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	used = snprintf(line, sizeof(line), "[%6lld.%06ld] m6-emulator %s: ",
			(long long)now.tv_sec, now.tv_nsec / 1000,
			level_names[level]);
	va_start(args, format);
	more = vsnprintf(line + used, sizeof(line) - used - 1, format, args);
	va_end(args);
	if (more < 0)
		return;
	used += more;
	if (used > (int)sizeof(line) - 2)
		used = sizeof(line) - 2;
	line[used++] = '\n';
	log_emit(line, used);
}

bool m6_log_limit(struct m6_log_limit *limit, enum m6_log_level level)
{
	struct timespec now;
	unsigned int count;
	uint64_t last;

	clock_gettime(CLOCK_MONOTONIC, &now);
	last = atomic_exchange(&limit->second, (uint64_t)now.tv_sec);
	if (last != (uint64_t)now.tv_sec) {
		count = atomic_exchange(&limit->count, 0);
		if (count > LINES_A_SECOND)
			m6_log_line(level, "(%u similar lines left out)",
				    count - LINES_A_SECOND);
	}
	return atomic_fetch_add(&limit->count, 1) < LINES_A_SECOND;
}
