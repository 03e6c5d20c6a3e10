// SPDX-License-Identifier: MIT
/*
 * A vfio-user client that sends anything. The first byte chooses between raw
 * bytes through a socket and well-framed messages with files.
 */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "device.h"
#include "input.h"
#include "vfio_user.h"

#define FILE_BYTES	(1u << 20)

static struct m6_device *dev;
static struct m6_vfio_user *server;
static uint8_t reply[M6_VFIO_USER_MAX_BYTES];
static int ram = -1;

static void setup(void)
{
	struct m6_profile profile;

	m6_profile_default(&profile);
	dev = m6_device_create(&(struct m6_device_config) {
		.profile = &profile, .threads = 1,
	});
	server = m6_vfio_user_create(dev);
	ram = memfd_create("ram", MFD_CLOEXEC);
	if (!dev || !server || ftruncate(ram, FILE_BYTES))
		abort();
}

static void raw(struct input *input)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		abort();
	/* What does not fit into the socket's buffer is not sent. */
	send(pair[0], input->data, input->bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
	shutdown(pair[0], SHUT_WR);
	m6_vfio_user_serve(server, pair[1]);
	close(pair[0]);
	close(pair[1]);
}

static void add_files(struct m6_vfio_message *message, uint8_t count)
{
	while (message->fd_count < count % (M6_VFIO_USER_MAX_FDS + 1)) {
		int fd = count & 0x80 ? dup(ram) :
			 eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

		message->fds[message->fd_count++] = fd;
	}
}

static void one_message(struct input *input)
{
	static uint8_t payload[4096];
	struct m6_vfio_message message = { .reply = reply };

	message.header.command = input_u8(input) % 17;
	add_files(&message, input_u8(input));
	message.bytes = input_u16(input) % sizeof(payload);
	if (message.bytes > input->bytes)
		message.bytes = input->bytes;
	input_take(input, payload, message.bytes);
	message.payload = payload;
	m6_vfio_user_handle(server, &message);
	if (message.reply_bytes > sizeof(reply))
		abort();
	for (unsigned int i = 0; i < message.fd_count; i++)
		if (message.fds[i] >= 0)
			close(message.fds[i]);
}

static void framed(struct input *input)
{
	struct m6_vfio_message hello = {
		.header.command = 1, .payload = (const uint8_t *)"\0\0\0",
		.bytes = 4, .reply = reply,
	};

	m6_vfio_user_handle(server, &hello);
	while (input->bytes)
		one_message(input);
	m6_vfio_user_hangup(server);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct input input = { data, bytes };

	if (!dev)
		setup();
	if (input_u8(&input) & 1)
		raw(&input);
	else
		framed(&input);
	if (!m6_device_wait_idle(dev, 20000))
		abort();
	return 0;
}
