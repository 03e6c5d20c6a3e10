// SPDX-License-Identifier: MIT
/* Messages and what they do; transport.c moves them. */
#include "vfio_user.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "vfio_user_priv.h"

#define PAGE_BYTES	4096u
#define CAPABILITIES	"{\"capabilities\":{\"max_msg_fds\":16," \
			"\"max_data_xfer_size\":1048576,\"pgsizes\":4096," \
			"\"max_dma_maps\":65535,\"write_multiple\":true}}"

struct version {
	uint16_t major;
	uint16_t minor;
};

struct dma_map {
	uint32_t argsz;
	uint32_t flags;
	uint64_t offset;
	uint64_t addr;
	uint64_t bytes;
};

#define DMA_MAP_READ	(1u << 0)
#define DMA_MAP_WRITE	(1u << 1)

struct dma_unmap {
	uint32_t argsz;
	uint32_t flags;
	uint64_t addr;
	uint64_t bytes;
};

#define DMA_UNMAP_ALL	(1u << 1)

struct region_access {
	uint64_t offset;
	uint32_t region;
	uint32_t bytes;
};

struct region_write {
	struct region_access access;
	uint8_t data[8];
};

static void vfio_user_irq(void *opaque, unsigned int vector)
{
	struct m6_vfio_user *server = opaque;
	const uint64_t one = 1;

	pthread_mutex_lock(&server->lock);
	/* A counter that is full is already waiting to be read. */
	if (server->eventfd[vector] >= 0 &&
	    write(server->eventfd[vector], &one, sizeof(one)) < 0 &&
	    errno != EAGAIN)
		m6_guest_error("vector %u: %s", vector, strerror(errno));
	pthread_mutex_unlock(&server->lock);
}

struct m6_vfio_user *m6_vfio_user_create(struct m6_device *dev)
{
	struct m6_vfio_user *server = calloc(1, sizeof(*server));

	if (!server)
		return NULL;
	server->dev = dev;
	pthread_mutex_init(&server->lock, NULL);
	for (unsigned int i = 0; i < M6NPU_VECTORS; i++)
		server->eventfd[i] = -1;
	m6_device_set_irq(dev, vfio_user_irq, server);
	return server;
}

void m6_vfio_user_destroy(struct m6_vfio_user *server)
{
	m6_device_set_irq(server->dev, NULL, NULL);
	m6_vfio_user_hangup(server);
	pthread_mutex_destroy(&server->lock);
	free(server);
}

/* Takes @fd over; -1 disarms. */
static void arm(struct m6_vfio_user *server, unsigned int vector, int fd)
{
	int old;

	if (fd >= 0)
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	pthread_mutex_lock(&server->lock);
	old = server->eventfd[vector];
	server->eventfd[vector] = fd;
	pthread_mutex_unlock(&server->lock);
	if (old >= 0)
		close(old);
}

void m6_vfio_user_hangup(struct m6_vfio_user *server)
{
	for (unsigned int i = 0; i < M6NPU_VECTORS; i++)
		arm(server, i, -1);
	m6_device_reset(server->dev);
	m6_device_dma_clear(server->dev);
	server->negotiated = false;
}

static void reply_with(struct m6_vfio_message *message, const void *data,
		       size_t bytes)
{
	memcpy(message->reply, data, bytes);
	message->reply_bytes = bytes;
}

static int handle_version(struct m6_vfio_user *server,
			  struct m6_vfio_message *message)
{
	struct version version;
	size_t text = message->bytes - sizeof(version);

	memcpy(&version, message->payload, sizeof(version));
	if (server->negotiated || version.major)
		return -EINVAL;
	if (text && message->payload[message->bytes - 1])
		return -EINVAL;
	m6_debug("client speaks %u.%u, %.*s", version.major, version.minor,
		 text > 200 ? 200 : (int)text,
		 (const char *)message->payload + sizeof(version));
	version.minor = 0;
	reply_with(message, &version, sizeof(version));
	memcpy(message->reply + sizeof(version), CAPABILITIES,
	       sizeof(CAPABILITIES));
	message->reply_bytes += sizeof(CAPABILITIES);
	server->negotiated = true;
	return 0;
}

struct host_map {
	void *host;
	size_t bytes;
};

static void unmap_host(void *opaque)
{
	struct host_map *map = opaque;

	munmap(map->host, map->bytes);
	free(map);
}

/* A file that is shorter than its mapping would kill whoever touches it. */
static int check_file(int fd, const struct dma_map *dma)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || dma->offset > (uint64_t)st.st_size ||
	    dma->bytes > (uint64_t)st.st_size - dma->offset)
		return -EINVAL;
	return 0;
}

static int map_file(struct m6_vfio_user *server, int fd,
		    const struct dma_map *dma)
{
	int prot = (dma->flags & DMA_MAP_READ ? PROT_READ : 0) |
		   (dma->flags & DMA_MAP_WRITE ? PROT_WRITE : 0);
	struct host_map *map;
	int err = check_file(fd, dma);

	if (err)
		return err;
	map = malloc(sizeof(*map));
	if (!map)
		return -ENOMEM;
	map->bytes = dma->bytes;
	map->host = mmap(NULL, dma->bytes, prot, MAP_SHARED | MAP_NORESERVE,
			 fd, dma->offset);
	if (map->host == MAP_FAILED) {
		err = -errno;
		free(map);
		return err;
	}
	return m6_device_dma_map(server->dev, dma->addr, dma->bytes, map->host,
				 dma->flags, unmap_host, map);
}

/* Without a file the range is known but can't be reached: QEMU's own BARs. */
static int handle_dma_map(struct m6_vfio_user *server,
			  struct m6_vfio_message *message)
{
	struct dma_map dma;
	int err;

	memcpy(&dma, message->payload, sizeof(dma));
	if (dma.argsz < sizeof(dma) || !dma.bytes ||
	    dma.flags & ~(DMA_MAP_READ | DMA_MAP_WRITE) ||
	    (dma.offset | dma.addr | dma.bytes) % PAGE_BYTES)
		return -EINVAL;
	if (message->fd_count)
		err = map_file(server, message->fds[0], &dma);
	else
		err = m6_device_dma_map(server->dev, dma.addr, dma.bytes, NULL,
					dma.flags, NULL, NULL);
	m6_debug("map %#llx, %#llx bytes, flags %#x%s: %d",
		 (unsigned long long)dma.addr, (unsigned long long)dma.bytes,
		 dma.flags, message->fd_count ? "" : ", no file", err);
	return err;
}

static int handle_dma_unmap(struct m6_vfio_user *server,
			    struct m6_vfio_message *message)
{
	struct dma_unmap dma;
	int err = 0;

	memcpy(&dma, message->payload, sizeof(dma));
	if (dma.argsz < sizeof(dma) || dma.flags & ~DMA_UNMAP_ALL)
		return -EINVAL;
	if (!(dma.flags & DMA_UNMAP_ALL))
		err = m6_device_dma_unmap(server->dev, dma.addr, dma.bytes);
	else if (dma.addr || dma.bytes)
		err = -EINVAL;
	else
		m6_device_dma_clear(server->dev);
	m6_debug("unmap %#llx, %#llx bytes: %d", (unsigned long long)dma.addr,
		 (unsigned long long)dma.bytes, err);
	if (!err)
		reply_with(message, &dma, sizeof(dma));
	return err;
}

static int handle_device_info(struct m6_vfio_user *server,
			      struct m6_vfio_message *message)
{
	const struct {
		uint32_t argsz, flags, regions, irqs;
	} info = {
		sizeof(info), VFIO_DEVICE_FLAGS_RESET | VFIO_DEVICE_FLAGS_PCI,
		VFIO_PCI_NUM_REGIONS, VFIO_PCI_NUM_IRQS,
	};

	(void)server;
	reply_with(message, &info, sizeof(info));
	return 0;
}

static uint64_t region_bytes(uint32_t region)
{
	if (region == VFIO_PCI_CONFIG_REGION_INDEX)
		return M6_CONFIG_SIZE;
	return m6_device_bar_size(region);
}

static int handle_region_info(struct m6_vfio_user *server,
			      struct m6_vfio_message *message)
{
	struct vfio_region_info info;

	(void)server;
	memcpy(&info, message->payload, sizeof(info));
	if (info.argsz < sizeof(info) || info.index >= VFIO_PCI_NUM_REGIONS)
		return -EINVAL;
	info = (struct vfio_region_info) {
		.argsz = sizeof(info),
		.index = info.index,
		.size = region_bytes(info.index),
	};
	if (info.size)
		info.flags = VFIO_REGION_INFO_FLAG_READ |
			     VFIO_REGION_INFO_FLAG_WRITE;
	reply_with(message, &info, sizeof(info));
	return 0;
}

static int handle_irq_info(struct m6_vfio_user *server,
			   struct m6_vfio_message *message)
{
	struct vfio_irq_info info;

	(void)server;
	memcpy(&info, message->payload, sizeof(info));
	if (info.argsz < sizeof(info) || info.index >= VFIO_PCI_NUM_IRQS)
		return -EINVAL;
	info = (struct vfio_irq_info) {
		.argsz = sizeof(info),
		.index = info.index,
	};
	if (info.index == VFIO_PCI_MSIX_IRQ_INDEX) {
		info.flags = VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE;
		info.count = M6NPU_VECTORS;
	}
	reply_with(message, &info, sizeof(info));
	return 0;
}

/* As many files as vectors, or none, which disarms them. */
static int set_eventfds(struct m6_vfio_user *server,
			struct m6_vfio_message *message,
			const struct vfio_irq_set *set)
{
	if (message->fd_count && message->fd_count != set->count)
		return -EINVAL;
	for (uint32_t i = 0; i < set->count; i++) {
		int fd = message->fd_count ? message->fds[i] : -1;

		if (message->fd_count)
			message->fds[i] = -1;
		arm(server, set->start + i, fd);
	}
	return 0;
}

static int trigger(struct m6_vfio_user *server,
		   const struct m6_vfio_message *message,
		   const struct vfio_irq_set *set)
{
	const uint8_t *wanted = message->payload + sizeof(*set);

	if (set->flags & VFIO_IRQ_SET_DATA_BOOL &&
	    message->bytes - sizeof(*set) < set->count)
		return -EINVAL;
	for (uint32_t i = 0; i < set->count; i++)
		if (set->flags & VFIO_IRQ_SET_DATA_NONE || wanted[i])
			vfio_user_irq(server, set->start + i);
	return 0;
}

static int handle_set_irqs(struct m6_vfio_user *server,
			   struct m6_vfio_message *message)
{
	struct vfio_irq_set set;
	uint32_t data, action, vectors;

	memcpy(&set, message->payload, sizeof(set));
	data = set.flags & VFIO_IRQ_SET_DATA_TYPE_MASK;
	action = set.flags & VFIO_IRQ_SET_ACTION_TYPE_MASK;
	vectors = set.index == VFIO_PCI_MSIX_IRQ_INDEX ? M6NPU_VECTORS : 0;
	if (set.argsz < sizeof(set) || set.index >= VFIO_PCI_NUM_IRQS ||
	    set.flags & ~(VFIO_IRQ_SET_DATA_TYPE_MASK |
			  VFIO_IRQ_SET_ACTION_TYPE_MASK) ||
	    set.start > vectors || set.count > vectors - set.start)
		return -EINVAL;
	if (message->fd_count && data != VFIO_IRQ_SET_DATA_EVENTFD)
		return -EINVAL;
	/* Vectors that are not there can be disarmed, and nothing else. */
	if (!set.count && data == VFIO_IRQ_SET_DATA_NONE) {
		for (uint32_t i = 0; i < vectors; i++)
			arm(server, i, -1);
		return 0;
	}
	if (action != VFIO_IRQ_SET_ACTION_TRIGGER)
		return -EINVAL;
	if (data == VFIO_IRQ_SET_DATA_EVENTFD)
		return set_eventfds(server, message, &set);
	if (data == VFIO_IRQ_SET_DATA_NONE || data == VFIO_IRQ_SET_DATA_BOOL)
		return trigger(server, message, &set);
	return -EINVAL;
}

static int region_read(struct m6_device *dev,
		       const struct region_access *access, void *data)
{
	if (access->region == VFIO_PCI_CONFIG_REGION_INDEX)
		return m6_device_config_read(dev, access->offset, data,
					     access->bytes);
	return m6_device_mmio_read(dev, access->region, access->offset, data,
				   access->bytes);
}

static int region_write(struct m6_device *dev,
			const struct region_access *access, const void *data)
{
	if (access->region == VFIO_PCI_CONFIG_REGION_INDEX)
		return m6_device_config_write(dev, access->offset, data,
					      access->bytes);
	return m6_device_mmio_write(dev, access->region, access->offset, data,
				    access->bytes);
}

static int handle_read(struct m6_vfio_user *server,
		       struct m6_vfio_message *message)
{
	struct region_access access;
	int err;

	memcpy(&access, message->payload, sizeof(access));
	if (!access.bytes || access.bytes > M6_VFIO_USER_MAX_DATA)
		return -EINVAL;
	err = region_read(server->dev, &access,
			  message->reply + sizeof(access));
	if (err)
		return err;
	reply_with(message, &access, sizeof(access));
	message->reply_bytes += access.bytes;
	return 0;
}

static int handle_write(struct m6_vfio_user *server,
			struct m6_vfio_message *message)
{
	struct region_access access;
	int err;

	memcpy(&access, message->payload, sizeof(access));
	if (!access.bytes || access.bytes != message->bytes - sizeof(access))
		return -EINVAL;
	err = region_write(server->dev, &access,
			   message->payload + sizeof(access));
	if (!err)
		reply_with(message, &access, sizeof(access));
	return err;
}

/* Stops at the first that is wrong, and says how many were done. */
static int handle_write_multi(struct m6_vfio_user *server,
			      struct m6_vfio_message *message)
{
	size_t room = message->bytes - sizeof(uint64_t);
	const uint8_t *at = message->payload + sizeof(uint64_t);
	struct region_write write;
	uint64_t count, done;

	memcpy(&count, message->payload, sizeof(count));
	if (room % sizeof(write) || count != room / sizeof(write))
		return -EINVAL;
	for (done = 0; done < count; done++, at += sizeof(write)) {
		memcpy(&write, at, sizeof(write));
		if (!write.access.bytes ||
		    write.access.bytes > sizeof(write.data) ||
		    region_write(server->dev, &write.access, write.data))
			break;
	}
	reply_with(message, &done, sizeof(done));
	return 0;
}

static int handle_reset(struct m6_vfio_user *server,
			struct m6_vfio_message *message)
{
	(void)message;
	m6_device_reset(server->dev);
	return 0;
}

enum command {
	COMMAND_VERSION = 1,
	COMMAND_DMA_MAP = 2,
	COMMAND_DMA_UNMAP = 3,
	COMMAND_DEVICE_INFO = 4,
	COMMAND_REGION_INFO = 5,
	COMMAND_IRQ_INFO = 7,
	COMMAND_SET_IRQS = 8,
	COMMAND_READ = 9,
	COMMAND_WRITE = 10,
	COMMAND_RESET = 13,
	COMMAND_WRITE_MULTI = 15,
};

/* Payloads shorter, and files more, than these never reach the handler. */
static const struct handler {
	int (*handle)(struct m6_vfio_user *server,
		      struct m6_vfio_message *message);
	size_t min_bytes;
	unsigned int max_fds;
} handlers[] = {
	[COMMAND_VERSION] = { handle_version, sizeof(struct version), 0 },
	[COMMAND_DMA_MAP] = { handle_dma_map, sizeof(struct dma_map), 1 },
	[COMMAND_DMA_UNMAP] = { handle_dma_unmap,
				sizeof(struct dma_unmap), 0 },
	[COMMAND_DEVICE_INFO] = { handle_device_info, 8, 0 },
	[COMMAND_REGION_INFO] = { handle_region_info,
				  sizeof(struct vfio_region_info), 0 },
	[COMMAND_IRQ_INFO] = { handle_irq_info,
			       sizeof(struct vfio_irq_info), 0 },
	[COMMAND_SET_IRQS] = { handle_set_irqs, sizeof(struct vfio_irq_set),
			       M6NPU_VECTORS },
	[COMMAND_READ] = { handle_read, sizeof(struct region_access), 0 },
	[COMMAND_WRITE] = { handle_write, sizeof(struct region_access), 0 },
	[COMMAND_RESET] = { handle_reset, 0, 0 },
	[COMMAND_WRITE_MULTI] = { handle_write_multi, sizeof(uint64_t), 0 },
};

#define HANDLERS	(sizeof(handlers) / sizeof(handlers[0]))

int m6_vfio_user_handle(struct m6_vfio_user *server,
			struct m6_vfio_message *message)
{
	const struct handler *handler;
	unsigned int command = message->header.command;

	message->reply_bytes = 0;
	if (command >= HANDLERS || !handlers[command].handle)
		return -ENOTSUP;
	handler = &handlers[command];
	if (!server->negotiated && command != COMMAND_VERSION)
		return -EINVAL;
	if (message->bytes < handler->min_bytes ||
	    message->fd_count > handler->max_fds)
		return -EINVAL;
	return handler->handle(server, message);
}
