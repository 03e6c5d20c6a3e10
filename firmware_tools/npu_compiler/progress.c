// SPDX-License-Identifier: MIT
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

/* A log gets a line every so many percent, a terminal a line that changes. */
#define LOG_STEP	10

static struct {
	const char *what;
	uint64_t done, total;
	unsigned int shown;
	bool terminal, active;
} state;

static void show(unsigned int percent)
{
	if (state.terminal)
		fprintf(stderr, "\r%s: %3u%%", state.what, percent);
	else
		fprintf(stderr, "npu_compiler: %s: %u%%\n", state.what,
			percent);
	state.shown = percent;
}

void progress_begin(const char *what, uint64_t total, bool always)
{
	state.what = what;
	state.done = 0;
	state.total = total ? total : 1;
	state.terminal = isatty(STDERR_FILENO);
	state.active = state.terminal || always;
	if (state.active)
		show(0);
}

void progress_add(uint64_t amount)
{
	unsigned int percent;

	state.done += amount;
	percent = state.done >= state.total ? 100 :
					      state.done * 100 / state.total;
	if (state.active &&
	    percent >= state.shown + (state.terminal ? 1 : LOG_STEP))
		show(percent);
}

void progress_end(void)
{
	if (state.active && state.terminal)
		fputc('\n', stderr);
	state.active = false;
}
