// SPDX-License-Identifier: MIT
/* The protocol, over a socketpair, with clients of all kinds. */
#include <errno.h>
#include <linux/vfio.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../tap.h"
#include "device.h"
#include "vfio_user.h"

#define VERSION		1
#define DMA_MAP		2
#define DMA_UNMAP	3
#define DEVICE_INFO	4
#define REGION_INFO	5
#define IRQ_INFO	7
#define SET_IRQS	8
#define READ		9
#define WRITE		10
#define RESET		13
#define WRITE_MULTI	15

struct client {
	struct m6_device *dev;
	struct m6_vfio_user *server;
	pthread_t thread;
	int fd;
	int end;		/* the server's */
	int result;
	uint16_t id;
	uint8_t reply[8192];
	size_t reply_bytes;
};

static void *serve(void *arg)
{
	struct client *client = arg;

	client->result = m6_vfio_user_serve(client->server, client->end);
	shutdown(client->end, SHUT_RDWR);
	return NULL;
}

static void client_start(struct client *client)
{
	struct m6_profile profile;
	int pair[2];

	memset(client, 0, sizeof(*client));
	m6_profile_default(&profile);
	client->dev = m6_device_create(&(struct m6_device_config) {
		.profile = &profile, .threads = 1,
	});
	client->server = m6_vfio_user_create(client->dev);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		abort();
	client->fd = pair[0];
	client->end = pair[1];
	pthread_create(&client->thread, NULL, serve, client);
}

/* What the server returned. */
static int client_stop(struct client *client)
{
	close(client->fd);
	pthread_join(client->thread, NULL);
	close(client->end);
	m6_vfio_user_destroy(client->server);
	m6_device_destroy(client->dev);
	return client->result;
}

static void send_raw(struct client *client, const void *data, size_t bytes,
		     const int *fds, size_t fd_count)
{
	union {
		char data[CMSG_SPACE(sizeof(int) * 64)];
		struct cmsghdr align;
	} control;
	struct iovec iov = { (void *)data, bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cmsg;

	if (fd_count) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
		memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * fd_count);
	}
	sendmsg(client->fd, &msg, MSG_NOSIGNAL);
}

static bool receive_all(int fd, void *data, size_t bytes)
{
	return recv(fd, data, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* The error in the reply (0: none), or -1 if the connection ended. */
static int receive_reply(struct client *client)
{
	struct m6_vfio_header header;

	if (!receive_all(client->fd, &header, sizeof(header)))
		return -1;
	client->reply_bytes = header.bytes - sizeof(header);
	if (client->reply_bytes > sizeof(client->reply) ||
	    header.id != client->id || !(header.flags & M6_VFIO_FLAG_REPLY))
		return -1;
	if (client->reply_bytes &&
	    !receive_all(client->fd, client->reply, client->reply_bytes))
		return -1;
	return header.flags & M6_VFIO_FLAG_ERROR ? (int)header.error : 0;
}

static void post(struct client *client, uint16_t command, const void *payload,
		 size_t bytes, const int *fds, size_t fd_count, uint32_t flags)
{
	struct m6_vfio_header header = {
		.id = ++client->id, .command = command,
		.bytes = sizeof(header) + bytes, .flags = flags,
	};
	char message[8192 + sizeof(header)];

	memcpy(message, &header, sizeof(header));
	if (bytes)
		memcpy(message + sizeof(header), payload, bytes);
	send_raw(client, message, sizeof(header) + bytes, fds, fd_count);
}

static int call(struct client *client, uint16_t command, const void *payload,
		size_t bytes, const int *fds, size_t fd_count)
{
	post(client, command, payload, bytes, fds, fd_count, 0);
	return receive_reply(client);
}

static int negotiate(struct client *client)
{
	static const char hello[] = "\0\0\0\0{\"capabilities\":{}}";

	return call(client, VERSION, hello, sizeof(hello), NULL, 0);
}

struct access {
	uint64_t offset;
	uint32_t region;
	uint32_t bytes;
	uint8_t data[64];
};

static int read_region(struct client *client, uint32_t region,
		       uint64_t offset, uint32_t bytes)
{
	struct access access = { offset, region, bytes, { 0 } };

	return call(client, READ, &access, 16, NULL, 0);
}

static uint32_t reply32(const struct client *client, size_t at)
{
	uint32_t value;

	memcpy(&value, client->reply + at, sizeof(value));
	return value;
}

static void test_version(void)
{
	struct client client;
	uint16_t old[2] = { 1, 0 };

	client_start(&client);
	ok(!negotiate(&client) && !reply32(&client, 0) &&
	   strstr((char *)client.reply + 4, "\"max_msg_fds\":16"), "version");
	ok(negotiate(&client) == EINVAL, "not twice");
	ok(!client_stop(&client), "an orderly end");

	client_start(&client);
	ok(read_region(&client, 0, 0, 4) == EINVAL &&
	   receive_reply(&client) == -1, "nothing before it");
	ok(client_stop(&client) == -EPROTO, "and the end");

	client_start(&client);
	ok(call(&client, VERSION, old, 4, NULL, 0) == EINVAL &&
	   receive_reply(&client) == -1, "another major version");
	client_stop(&client);

	client_start(&client);
	ok(call(&client, VERSION, "\0\0\0\0{}", 6, NULL, 0) == EINVAL,
	   "text without its end");
	client_stop(&client);
}

static void test_info(struct client *client)
{
	struct vfio_region_info region = { .argsz = sizeof(region) };
	struct vfio_irq_info irq = { .argsz = sizeof(irq) };
	uint32_t info[4] = { 16 };
	static const uint64_t sizes[9] = {
		0x10000, 0, 0x400000, 0, 0x4000, 0, 0, 4096, 0,
	};
	unsigned int wrong = 0;

	ok(!call(client, DEVICE_INFO, info, 16, NULL, 0) &&
	   reply32(client, 4) == (VFIO_DEVICE_FLAGS_RESET |
	   VFIO_DEVICE_FLAGS_PCI) && reply32(client, 8) == 9, "device info");
	for (region.index = 0; region.index < 9; region.index++) {
		struct vfio_region_info got;

		wrong += call(client, REGION_INFO, &region, sizeof(region),
			      NULL, 0) != 0;
		memcpy(&got, client->reply, sizeof(got));
		wrong += got.size != sizes[region.index] ||
			 got.flags & VFIO_REGION_INFO_FLAG_MMAP;
	}
	ok(!wrong, "regions");
	ok(call(client, REGION_INFO, &region, sizeof(region), NULL, 0) ==
	   EINVAL, "region 9");
	for (irq.index = 0; irq.index < 5; irq.index++) {
		wrong += call(client, IRQ_INFO, &irq, sizeof(irq), NULL, 0);
		wrong += reply32(client, 12) != (irq.index == 2 ? 8 : 0);
	}
	ok(!wrong, "interrupts");
	ok(call(client, IRQ_INFO, &irq, sizeof(irq), NULL, 0) == EINVAL,
	   "interrupt type 5");
}

static void test_access(struct client *client)
{
	struct access access = { M6NPU_REG_SCRATCH, 0, 4, { 1, 2, 3, 4 } };
	struct {
		uint64_t count;
		struct {
			uint64_t offset;
			uint32_t region, bytes;
			uint64_t data;
		} write[3];
	} multi = { 3, {
		{ M6NPU_REG_SCRATCH, 0, 4, 5 },
		{ M6NPU_REG_SCRATCH, 0, 4, 6 },
		{ 0x10000, 0, 4, 7 },
	} };

	ok(!read_region(client, 0, 0, 4) &&
	   reply32(client, 16) == M6NPU_ID_VALUE, "read a register");
	ok(!read_region(client, 7, 0, 64) &&
	   reply32(client, 16) == M6NPU_ID_VALUE, "read configuration");
	post(client, WRITE, &access, 20, NULL, 0, M6_VFIO_FLAG_NO_REPLY);
	ok(!read_region(client, 0, M6NPU_REG_SCRATCH, 4) &&
	   reply32(client, 16) == 0x04030201, "a posted write");
	ok(!call(client, WRITE_MULTI, &multi, sizeof(multi), NULL, 0) &&
	   reply32(client, 0) == 2, "several writes, as many as were good");
	ok(!read_region(client, 0, M6NPU_REG_SCRATCH, 4) &&
	   reply32(client, 16) == 6, "in order");
	multi.count = 4;
	ok(call(client, WRITE_MULTI, &multi, sizeof(multi), NULL, 0) ==
	   EINVAL, "more than there are");
	multi.count = 1ull << 60;
	ok(call(client, WRITE_MULTI, &multi, sizeof(multi), NULL, 0) ==
	   EINVAL, "far more");
	ok(read_region(client, 0, 0, 0) == EINVAL &&
	   read_region(client, 0, 0xfffe, 4) == EINVAL &&
	   read_region(client, 0, ~0ull, 4) == EINVAL &&
	   read_region(client, 1, 0, 4) == EINVAL &&
	   read_region(client, 8, 0, 4) == EINVAL &&
	   read_region(client, 7, 4095, 2) == EINVAL &&
	   read_region(client, ~0u, 0, 4) == EINVAL &&
	   read_region(client, 2, 0, 0x7fffffff) == EINVAL, "bad reads");
	access.bytes = 64;
	ok(call(client, WRITE, &access, 20, NULL, 0) == EINVAL,
	   "a write shorter than it says");
	ok(!read_region(client, 2, 4096, 4096), "4 KiB of SRAM");
	ok(!call(client, RESET, NULL, 0, NULL, 0) &&
	   !read_region(client, 0, M6NPU_REG_SCRATCH, 4) &&
	   !reply32(client, 16), "reset");
	ok(call(client, 14, NULL, 0, NULL, 0) == ENOTSUP &&
	   call(client, 0xffff, NULL, 0, NULL, 0) == ENOTSUP, "unknown");
}

struct dma {
	uint32_t argsz, flags;
	uint64_t offset, addr, bytes;
};

static int map(struct client *client, struct dma dma, int fd)
{
	dma.argsz = sizeof(dma);
	return call(client, DMA_MAP, &dma, sizeof(dma), &fd, fd >= 0);
}

static int unmap(struct client *client, uint64_t addr, uint64_t bytes,
		 uint32_t flags)
{
	struct {
		uint32_t argsz, flags;
		uint64_t addr, bytes;
	} dma = { sizeof(dma), flags, addr, bytes };

	return call(client, DMA_UNMAP, &dma, sizeof(dma), NULL, 0);
}

static void test_dma(struct client *client)
{
	const struct dma good = { .flags = 3, .addr = 0x40000000,
				  .bytes = 0x100000 };
	struct dma bad = good;
	int fd = memfd_create("ram", 0), two[2], pipes[2];

	if (ftruncate(fd, 0x100000) || pipe(pipes))
		abort();
	ok(!map(client, good, fd), "map");
	ok(map(client, good, fd) == EEXIST, "not twice");
	ok(unmap(client, 0x40001000, 0x1000, 0) == EINVAL, "unmap a part");
	ok(unmap(client, 0x90000000, 0x1000, 0) == ENOENT, "unmap nothing");
	ok(!unmap(client, 0x40000000, 0x100000, 0), "unmap");
	bad.bytes = 0x200000;
	ok(map(client, bad, fd) == EINVAL, "more than the file has");
	bad = good;
	bad.offset = 0x1000;
	ok(map(client, bad, fd) == EINVAL, "from further on");
	bad.offset = ~0xfffull;
	ok(map(client, bad, fd) == EINVAL, "from beyond the end of numbers");
	bad = good;
	bad.addr = ~0xfffull;
	ok(map(client, bad, fd) == EINVAL, "up to beyond the end of addresses");
	bad = good;
	bad.bytes = 0;
	ok(map(client, bad, fd) == EINVAL, "nothing");
	bad.bytes = 0x1001;
	ok(map(client, bad, fd) == EINVAL, "a page and a byte");
	bad = good;
	bad.flags = 7;
	ok(map(client, bad, fd) == EINVAL, "unknown flags");
	ok(map(client, good, pipes[0]) == EINVAL, "a pipe");
	two[0] = two[1] = fd;
	bad = good;
	bad.argsz = sizeof(bad);
	ok(call(client, DMA_MAP, &bad, sizeof(bad), two, 2) == EINVAL,
	   "two files");
	ok(call(client, DMA_MAP, &bad, 8, &fd, 1) == EINVAL, "half a message");
	ok(!map(client, good, -1), "without a file");
	ok(!unmap(client, 0, 0, 2), "unmap all");
	ok(!map(client, good, fd), "all were gone");
	close(fd);
	close(pipes[0]);
	close(pipes[1]);
}

static int set_irqs(struct client *client, uint32_t flags, uint32_t index,
		    uint32_t start, uint32_t count, const int *fds,
		    size_t fd_count)
{
	struct vfio_irq_set set = {
		.argsz = sizeof(set), .flags = flags, .index = index,
		.start = start, .count = count,
	};

	return call(client, SET_IRQS, &set, sizeof(set), fds, fd_count);
}

static uint64_t taken(int fd)
{
	uint64_t count = 0;

	return read(fd, &count, sizeof(count)) == sizeof(count) ? count : 0;
}

static void test_irqs(struct client *client)
{
	const uint32_t event = VFIO_IRQ_SET_DATA_EVENTFD |
			       VFIO_IRQ_SET_ACTION_TRIGGER;
	const uint32_t none = VFIO_IRQ_SET_DATA_NONE |
			      VFIO_IRQ_SET_ACTION_TRIGGER;
	int fd[8], many[20];

	for (int i = 0; i < 8; i++)
		fd[i] = eventfd(0, EFD_NONBLOCK);
	for (int i = 0; i < 20; i++)
		many[i] = fd[0];
	/* QEMU's order. */
	ok(!set_irqs(client, event, 2, 0, 1, NULL, 0), "one without a file");
	ok(!set_irqs(client, none, 2, 0, 0, NULL, 0), "disable all");
	ok(!set_irqs(client, event, 2, 0, 8, fd, 8), "eight files");
	m6_device_inject_spurious_irq(client->dev, 3);
	m6_device_inject_spurious_irq(client->dev, 3);
	ok(taken(fd[3]) == 2 && !taken(fd[2]), "a vector arrives");
	ok(!set_irqs(client, event, 2, 3, 1, NULL, 0), "disarm one");
	m6_device_inject_spurious_irq(client->dev, 3);
	m6_device_inject_spurious_irq(client->dev, 4);
	ok(!taken(fd[3]) && taken(fd[4]) == 1, "only that");
	ok(!set_irqs(client, none, 2, 4, 2, NULL, 0) && taken(fd[5]) == 1,
	   "trigger by hand");
	ok(set_irqs(client, event, 2, 0, 9, many, 9) == EINVAL &&
	   set_irqs(client, event, 2, 8, 1, fd, 1) == EINVAL &&
	   set_irqs(client, event, 2, ~0u, 2, fd, 2) == EINVAL &&
	   set_irqs(client, event, 2, 0, ~0u, fd, 1) == EINVAL &&
	   set_irqs(client, event, 2, 0, 8, fd, 3) == EINVAL &&
	   set_irqs(client, event, 5, 0, 1, fd, 1) == EINVAL &&
	   set_irqs(client, event, 0, 0, 1, fd, 1) == EINVAL &&
	   set_irqs(client, none, 2, 0, 1, fd, 1) == EINVAL &&
	   set_irqs(client, 0xffff, 2, 0, 1, fd, 1) == EINVAL &&
	   set_irqs(client, event, 2, 0, 8, many, 20) == EINVAL,
	   "bad sets");
	ok(!set_irqs(client, none, 2, 0, 0, NULL, 0), "and none are armed");
	m6_device_inject_spurious_irq(client->dev, 1);
	ok(!taken(fd[1]), "so none arrives");
	for (int i = 0; i < 8; i++)
		close(fd[i]);
}

static void test_transport(void)
{
	struct m6_vfio_header header = { 1, READ, 0, 0, 0 };
	struct client client;
	uint8_t noise[64];

	client_start(&client);
	negotiate(&client);
	header.bytes = 15;
	send_raw(&client, &header, sizeof(header), NULL, 0);
	ok(receive_reply(&client) == -1 && client_stop(&client) == -EMSGSIZE,
	   "a length below the header's");

	client_start(&client);
	negotiate(&client);
	header.bytes = 0x7fffffff;
	send_raw(&client, &header, sizeof(header), NULL, 0);
	ok(receive_reply(&client) == -1 && client_stop(&client) == -EMSGSIZE,
	   "a huge length");

	client_start(&client);
	negotiate(&client);
	header.bytes = 32;
	send_raw(&client, &header, 7, NULL, 0);
	ok(!client_stop(&client), "the end in the middle of a header");

	client_start(&client);
	negotiate(&client);
	send_raw(&client, &header, sizeof(header), NULL, 0);
	send_raw(&client, noise, 3, NULL, 0);
	ok(!client_stop(&client), "the end in the middle of a message");

	client_start(&client);
	negotiate(&client);
	for (size_t i = 0; i < 16; i++)
		send_raw(&client, (char *)&header + i, 1, NULL, 0);
	memset(noise, 0, sizeof(noise));
	noise[12] = 4;
	client.id = 1;
	for (size_t i = 0; i < 16; i++)
		send_raw(&client, noise + i, 1, NULL, 0);
	ok(!receive_reply(&client) && reply32(&client, 16) == M6NPU_ID_VALUE,
	   "a message in single bytes");
	post(&client, READ, noise, 16, NULL, 0, M6_VFIO_FLAG_REPLY);
	ok(!read_region(&client, 0, 0, 4), "a reply to nothing is ignored");
	ok(!client_stop(&client), "an orderly end");

	srand(1);
	for (int i = 0; i < 50; i++) {
		client_start(&client);
		if (i % 2)
			negotiate(&client);
		for (size_t j = 0; j < sizeof(noise); j++)
			noise[j] = rand();
		/* A believable length, so that it is read on. */
		noise[5] = noise[6] = noise[7] = 0;
		noise[4] = 16 + rand() % 48;
		send_raw(&client, noise, sizeof(noise), NULL, 0);
		client_stop(&client);
	}
	ok(true, "noise");
}

int main(void)
{
	struct client client;

	test_version();
	client_start(&client);
	negotiate(&client);
	test_info(&client);
	test_access(&client);
	test_dma(&client);
	test_irqs(&client);
	ok(!client_stop(&client), "an orderly end");
	test_transport();
	return done();
}
