// SPDX-License-Identifier: MIT
#include "log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	int priority;	/* syslog's, as sd-daemon(3) prefixes have it */
} levels[] = {
	[LOG_LEVEL_ERROR] = { "error", 3 },
	[LOG_LEVEL_WARN] = { "warn", 4 },
	[LOG_LEVEL_INFO] = { "info", 6 },
	[LOG_LEVEL_DEBUG] = { "debug", 7 },
};

static atomic_int threshold = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
	atomic_store(&threshold, (int)level);
}

int log_level_parse(const char *name)
{
	for (int i = 0; i <= LOG_LEVEL_DEBUG; i++)
		if (!strcmp(name, levels[i].name))
			return i;
	return -1;
}

void log_line(enum log_level level, const char *format, ...)
{
	char line[1024];
	va_list args;

	if ((int)level > atomic_load(&threshold))
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	/* One write, so that lines of threads don't mix. */
	if (getenv("JOURNAL_STREAM"))
		fprintf(stderr, "<%d>%s\n", levels[level].priority, line);
	else
		fprintf(stderr, "npu_server: %s: %s\n", levels[level].name,
			line);
}
