// SPDX-License-Identifier: MIT
#include "util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char message[1024];
static bool notes_ended;

int fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	return -1;
}

const char *fail_message(void)
{
	return message;
}

void note(const char *format, ...)
{
	char text[1024];
	va_list args;

	if (notes_ended)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "npu_compiler: %s\n", text);
}

void notes_end(void)
{
	notes_ended = true;
}

static void *check_memory(void *memory, size_t count, size_t size)
{
	if (!memory && count && size) {
		fprintf(stderr,
			"npu_compiler: out of memory (%zu bytes wanted); use a smaller --max-chunk-kb\n",
			count * size);
		exit(1);
	}
	return memory;
}

void *xcalloc(size_t count, size_t size)
{
	return check_memory(calloc(count, size), count, size);
}

void *xrealloc(void *old, size_t count, size_t size)
{
	return check_memory(reallocarray(old, count, size), count, size);
}

char *xstrdup(const char *text)
{
	return check_memory(strdup(text), strlen(text) + 1, 1);
}

char *xasprintf(const char *format, ...)
{
	char *text = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	return check_memory(text, strlen(format), 1);
}

static int read_all(int fd, const char *path, char *data, size_t bytes)
{
	size_t done = 0;
	ssize_t got;

	while (done < bytes) {
		got = read(fd, data + done, bytes - done);
		if (got < 0)
			return fail("cannot read %s: %s", path,
				    strerror(errno));
		if (!got)
			return fail("%s became shorter while it was read",
				    path);
		done += got;
	}
	return 0;
}

int read_file(const char *path, size_t max, char **data, size_t *bytes)
{
	struct stat st;
	int fd, ret;

	/* O_NONBLOCK: a FIFO must not hang us before fstat() says so. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st)) {
		ret = fail("cannot read %s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return ret;
	}
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > max) {
		close(fd);
		return fail("%s is not a file of at most %zu bytes", path,
			    max);
	}
	*bytes = st.st_size;
	*data = xcalloc(*bytes + 1, 1);
	ret = read_all(fd, path, *data, *bytes);
	close(fd);
	if (ret) {
		free(*data);
		*data = NULL;
	}
	return ret;
}

bool file_exists(const char *path)
{
	return !access(path, F_OK);
}
