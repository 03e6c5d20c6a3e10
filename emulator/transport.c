// SPDX-License-Identifier: MIT
/* Messages in and out of a stream socket, with the files they carry. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"
#include "vfio_user_priv.h"

union control {
	char data[CMSG_SPACE(sizeof(int) * M6_VFIO_USER_MAX_FDS)];
	struct cmsghdr align;
};

static void close_fds(struct m6_vfio_message *message)
{
	for (unsigned int i = 0; i < message->fd_count; i++)
		if (message->fds[i] >= 0)
			close(message->fds[i]);
	message->fd_count = 0;
}

/* 0, -ECONNRESET at the end of the stream, or -errno. */
static int receive_all(int fd, void *data, size_t bytes)
{
	uint8_t *at = data;

	while (bytes) {
		ssize_t done = recv(fd, at, bytes, 0);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		if (!done)
			return -ECONNRESET;
		at += done;
		bytes -= done;
	}
	return 0;
}

static void take_fds(struct msghdr *msg, struct m6_vfio_message *message)
{
	struct cmsghdr *cmsg;

	for (cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
		size_t count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (cmsg->cmsg_level != SOL_SOCKET ||
		    cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int),
			       sizeof(fd));
			if (message->fd_count < M6_VFIO_USER_MAX_FDS)
				message->fds[message->fd_count++] = fd;
			else
				close(fd);
		}
	}
}

/* The header, and the files that came with its first byte. */
static int receive_header(int fd, struct m6_vfio_message *message,
			  bool *truncated)
{
	union control control;
	struct iovec iov = { &message->header, sizeof(message->header) };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t done;

	do {
		done = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
	} while (done < 0 && errno == EINTR);
	if (done < 0)
		return -errno;
	take_fds(&msg, message);
	*truncated = msg.msg_flags & MSG_CTRUNC;
	if (!done)
		return -ECONNRESET;
	return receive_all(fd, (char *)&message->header + done,
			   sizeof(message->header) - done);
}

/* @refused: what to answer instead of handling it. */
static int receive(struct m6_vfio_user *server, int fd,
		   struct m6_vfio_message *message, int *refused)
{
	const size_t head = sizeof(message->header);
	bool truncated = false;
	int err;

	err = receive_header(fd, message, &truncated);
	if (err)
		return err;
	/* Without a believable length there is no next message to find. */
	if (message->header.bytes < head ||
	    message->header.bytes - head > sizeof(server->in))
		return -EMSGSIZE;
	message->payload = server->in;
	message->bytes = message->header.bytes - head;
	*refused = truncated ? -EINVAL : 0;
	return receive_all(fd, server->in, message->bytes);
}

static int send_reply(int fd, const struct m6_vfio_message *message, int err)
{
	struct m6_vfio_header header = {
		.id = message->header.id,
		.command = message->header.command,
		.flags = M6_VFIO_FLAG_REPLY | (err ? M6_VFIO_FLAG_ERROR : 0),
		.error = -err,
	};
	struct iovec iov[2] = {
		{ &header, sizeof(header) },
		{ message->reply, err ? 0 : message->reply_bytes },
	};
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
	size_t left = iov[0].iov_len + iov[1].iov_len;

	header.bytes = left;
	while (left) {
		ssize_t done = sendmsg(fd, &msg, MSG_NOSIGNAL);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		left -= done;
		for (int i = 0; i < 2; i++) {
			size_t part = (size_t)done < iov[i].iov_len ?
				      (size_t)done : iov[i].iov_len;

			iov[i].iov_base = (char *)iov[i].iov_base + part;
			iov[i].iov_len -= part;
			done -= part;
		}
	}
	return 0;
}

static int serve_one(struct m6_vfio_user *server, int fd)
{
	struct m6_vfio_message message = { .reply = server->out };
	int err, result = 0;
	uint32_t flags;

	err = receive(server, fd, &message, &result);
	flags = message.header.flags;
	/* We ask nothing, so a reply is to be ignored. */
	if (!err && !(flags & M6_VFIO_FLAG_TYPE)) {
		if (!result)
			result = m6_vfio_user_handle(server, &message);
		if (result)
			m6_guest_error("vfio-user command %u: %s",
				       message.header.command,
				       strerror(-result));
		if (!(flags & M6_VFIO_FLAG_NO_REPLY))
			err = send_reply(fd, &message, result);
		/* Who can't agree on a version has nothing more to say. */
		if (!err && result && !server->negotiated)
			err = -EPROTO;
	}
	close_fds(&message);
	return err;
}

int m6_vfio_user_serve(struct m6_vfio_user *server, int fd)
{
	int err;

	do {
		err = serve_one(server, fd);
	} while (!err);
	m6_vfio_user_hangup(server);
	return err == -ECONNRESET ? 0 : err;
}
