/* SPDX-License-Identifier: MIT */
/*
 * The server side of the vfio-user protocol: one client at a time, over a
 * stream socket. Whatever the client sends, the worst that happens to it is an
 * error or the end of its connection.
 */
#ifndef M6_VFIO_USER_H
#define M6_VFIO_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device.h"

#define M6_VFIO_USER_MAX_FDS	16
#define M6_VFIO_USER_MAX_DATA	(1024 * 1024)
/* Payload of a message: the data of a region access, and its header. */
#define M6_VFIO_USER_MAX_BYTES	(M6_VFIO_USER_MAX_DATA + 4096)

struct m6_vfio_header {
	uint16_t id;
	uint16_t command;
	uint32_t bytes;		/* with this header */
	uint32_t flags;
	uint32_t error;
};

#define M6_VFIO_FLAG_TYPE	0xfu
#define M6_VFIO_FLAG_REPLY	1u
#define M6_VFIO_FLAG_NO_REPLY	(1u << 4)
#define M6_VFIO_FLAG_ERROR	(1u << 5)

/*
 * One message and the answer to it. The handler sets an fd that it keeps to
 * -1; the caller closes the others.
 */
struct m6_vfio_message {
	struct m6_vfio_header header;
	const uint8_t *payload;
	size_t bytes;
	int fds[M6_VFIO_USER_MAX_FDS];
	unsigned int fd_count;
	uint8_t *reply;			/* M6_VFIO_USER_MAX_BYTES */
	size_t reply_bytes;
};

struct m6_vfio_user;

struct m6_vfio_user *m6_vfio_user_create(struct m6_device *dev);
void m6_vfio_user_destroy(struct m6_vfio_user *server);

/* Serves the client on @fd until it goes. 0, or -errno if it had to go. */
int m6_vfio_user_serve(struct m6_vfio_user *server, int fd);

/* For tests: handles a message as if it had arrived. 0 or -errno. */
int m6_vfio_user_handle(struct m6_vfio_user *server,
			struct m6_vfio_message *message);
/* For tests: what happens when a client goes. */
void m6_vfio_user_hangup(struct m6_vfio_user *server);

#endif
