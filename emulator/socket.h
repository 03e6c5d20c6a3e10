/* SPDX-License-Identifier: MIT */
#ifndef M6_SOCKET_H
#define M6_SOCKET_H

/*
 * A listening UNIX stream socket at @path, for its owner only. Replaces a
 * socket nobody listens at any more; -EADDRINUSE if somebody does, -EEXIST if
 * it is no socket.
 */
int m6_socket_listen(const char *path);

#endif
