// SPDX-License-Identifier: MIT
#include "temporary.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is written, and what is read to write it. */
#define MAX_FILES	2

static char *volatile unfinished[MAX_FILES];

static void remove_unfinished(void)
{
	int i;

	for (i = 0; i < MAX_FILES; i++)
		if (unfinished[i])
			unlink(unfinished[i]);
}

static void end_by_signal(int signal)
{
	remove_unfinished();
	_exit(128 + signal);
}

static void watch_for_end(void)
{
	static const int signals[] = {
		SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXCPU, SIGXFSZ,
	};
	struct sigaction action = { .sa_handler = end_by_signal }, old;
	static bool watching;
	size_t i;

	if (watching)
		return;
	watching = true;
	atexit(remove_unfinished);
	/* What the caller ignores stays ignored: nohup's SIGHUP, say. */
	for (i = 0; i < ARRAY_SIZE(signals); i++)
		if (!sigaction(signals[i], NULL, &old) &&
		    old.sa_handler != SIG_IGN)
			sigaction(signals[i], &action, NULL);
}

static void replace(char *from, char *to)
{
	int i;

	for (i = 0; i < MAX_FILES; i++)
		if (unfinished[i] == from) {
			unfinished[i] = to;
			return;
		}
}

int temporary_open(const char *path, char **temporary)
{
	mode_t mask = umask(0);
	int fd;

	umask(mask);
	watch_for_end();
	*temporary = xasprintf("%s.XXXXXX", path);
	/* Before it is there: a signal may come right behind mkstemp(). */
	replace(NULL, *temporary);
	fd = mkstemp(*temporary);
	if (fd < 0) {
		fail("cannot write beside %s: %s", path, strerror(errno));
		replace(*temporary, NULL);
		free(*temporary);
		*temporary = NULL;
		return -1;
	}
	if (!fchmod(fd, 0666 & ~mask))
		return fd;
	fail("cannot write %s: %s", *temporary, strerror(errno));
	close(fd);
	temporary_remove(*temporary);
	*temporary = NULL;
	return -1;
}

void temporary_remove(char *temporary)
{
	if (!temporary)
		return;
	unlink(temporary);
	replace(temporary, NULL);
	free(temporary);
}

int temporary_keep(char *temporary, const char *path)
{
	if (rename(temporary, path))
		return fail("cannot replace %s: %s", path, strerror(errno));
	replace(temporary, NULL);
	free(temporary);
	return 0;
}
