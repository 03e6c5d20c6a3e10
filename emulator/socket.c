// SPDX-License-Identifier: MIT
#include "socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* 0: the path is free now. */
static int clear_path(int fd, const struct sockaddr_un *addr)
{
	struct stat st;

	if (lstat(addr->sun_path, &st))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	if (!connect(fd, (const struct sockaddr *)addr, sizeof(*addr)))
		return -EADDRINUSE;
	return unlink(addr->sun_path) && errno != ENOENT ? -errno : 0;
}

static int new_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

int m6_socket_listen(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	mode_t mask;
	int fd, err;

	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, path);
	fd = new_socket();
	if (fd < 0)
		return fd;
	err = clear_path(fd, &addr);
	close(fd);
	if (err)
		return err;
	fd = new_socket();
	if (fd < 0)
		return fd;
	mask = umask(0077);
	err = bind(fd, (struct sockaddr *)&addr, sizeof(addr)) ? -errno : 0;
	umask(mask);
	if (!err && listen(fd, 8))
		err = -errno;
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}
