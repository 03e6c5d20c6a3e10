// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xf86drm.h>
#include <drm/m6npu_accel.h>

#include "fake_drm.h"

#define MIB		(1ull << 20)
#define WINDOW_ALIGN	(256 * MIB)
/* Where buffers are in the file that stands for the device's. */
#define OFFSET_SHIFT	37
#define FILE_BYTES	(1ull << 45)

struct fake fake;

void fake_reset(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.cma_bytes = 32768 * MIB;
	fake.max_chunk = 1800 * MIB;
}

struct npu_device *fake_open(void)
{
	struct npu_device *device = calloc(1, sizeof(*device));

	if (device)
		device->fd = memfd_create("fake", MFD_CLOEXEC);
	if (!device || device->fd < 0 ||
	    ftruncate(device->fd, (off_t)FILE_BYTES)) {
		perror("fake device");
		exit(2);
	}
	pthread_mutex_init(&device->lock, NULL);
	strcpy(device->node, "/dev/accel/fake");
	device->router_entries = 128;
	return device;
}

void fake_close(struct npu_device *device)
{
	npu_device_close(device);
}

static struct fake_buffer *find_buffer(uint32_t handle)
{
	unsigned int i;

	for (i = 0; handle && i < FAKE_BUFFERS; i++)
		if (fake.buffers[i].handle == handle)
			return &fake.buffers[i];
	return NULL;
}

const struct fake_buffer *fake_buffer(uint32_t handle)
{
	return find_buffer(handle);
}

static struct fake_pool *find_pool(uint32_t id)
{
	unsigned int i;

	for (i = 0; id && i < FAKE_POOLS; i++)
		if (fake.pools[i].id == id)
			return &fake.pools[i];
	return NULL;
}

/* ---- Where buffers lie ---- */

static uint64_t round_up(uint64_t x, uint64_t to)
{
	return (x + to - 1) / to * to;
}

/* The lowest buffer of a pool at or above @from. */
static struct fake_buffer *next_buffer(const struct fake_pool *pool,
				       uint64_t from)
{
	struct fake_buffer *next = NULL;
	unsigned int i;

	for (i = 0; i < FAKE_BUFFERS; i++) {
		struct fake_buffer *b = &fake.buffers[i];

		if (b->handle && b->pool == pool->id && b->start >= from &&
		    (!next || b->start < next->start))
			next = b;
	}
	return next;
}

/* The lowest place, or 0. */
static uint64_t place(const struct fake_pool *pool, uint64_t size,
		      uint64_t align)
{
	uint64_t at = pool->start;

	for (;;) {
		const struct fake_buffer *b = next_buffer(pool, at);
		uint64_t end = b ? b->start : pool->start + pool->size;

		if (round_up(at, align) + size <= end)
			return round_up(at, align);
		if (!b)
			return 0;
		at = b->start + b->size;
	}
}

static void sum(const struct fake_pool *pool, int fd,
		struct drm_m6npu_pool_info *info)
{
	uint64_t at = pool->start;
	const struct fake_buffer *b;

	info->size += pool->size;
	do {
		uint64_t end;

		b = next_buffer(pool, at);
		end = b ? b->start : pool->start + pool->size;
		if (end - at > info->largest_free)
			info->largest_free = end - at;
		if (b) {
			info->used += b->size;
			info->client_used += b->owner == fd ? b->size : 0;
			info->pinned += b->pinned ? b->size : 0;
			info->buffers++;
			at = b->start + b->size;
		}
	} while (b);
}

/* ---- ioctls ---- */

static int get_param(int fd, struct drm_m6npu_get_param *arg)
{
	arg->value = arg->param == DRM_M6NPU_PARAM_CMA_SIZE ? fake.cma_bytes :
		     arg->param == DRM_M6NPU_PARAM_MAX_CHUNK ? fake.max_chunk :
							       0;
	return 0;
}

/* Pools begin 1 MiB behind a multiple of 256 MiB: the worst for windows, nearly. */
static int pool_create(int fd, struct drm_m6npu_pool_create *arg)
{
	unsigned int i = 0;

	while (i < FAKE_POOLS && fake.pools[i].id)
		i++;
	if (i == FAKE_POOLS)
		return -ENOSPC;
	arg->size = round_up(arg->size, 4096);
	if (arg->size > fake.cma_bytes)
		return -ENOMEM;
	fake.cma_bytes -= arg->size;
	fake.pools_created++;
	fake.pools[i] = (struct fake_pool){
		.start = (i + 1) * (1ull << 40) + MIB,
		.size = arg->size,
		.client_limit = arg->client_limit,
		.persistent = arg->flags & DRM_M6NPU_POOL_PERSISTENT,
	};
	fake.pools[i].id = i + 1 + (fake.pools[i].persistent ?
					    FAKE_PERSISTENT : 0);
	arg->pool = fake.pools[i].id;
	return 0;
}

static int pool_destroy(int fd, struct drm_m6npu_pool_destroy *arg)
{
	struct fake_pool *pool = find_pool(arg->pool);

	if (!pool)
		return -ENOENT;
	if (next_buffer(pool, 0))
		return -EBUSY;
	fake.cma_bytes += pool->size;
	pool->id = 0;
	return 0;
}

static int pool_info(int fd, struct drm_m6npu_pool_info *arg)
{
	const struct fake_pool *pool = find_pool(arg->pool);
	unsigned int i;

	if (arg->pool && !pool)
		return -ENOENT;
	*arg = (struct drm_m6npu_pool_info){ .pool = arg->pool };
	for (i = 0; i < FAKE_POOLS; i++) {
		uint32_t id = fake.pools[i].id;

		if (id && (!pool || pool == &fake.pools[i]))
			sum(&fake.pools[i], fd, arg);
		if (id > arg->pool && (!arg->next || id < arg->next))
			arg->next = id;
	}
	arg->segments = 1;
	if (pool) {
		arg->client_limit = pool->client_limit;
		arg->flags = pool->persistent ? DRM_M6NPU_POOL_PERSISTENT : 0;
	}
	return 0;
}

static int pool_flush(int fd, struct drm_m6npu_pool_flush *arg)
{
	struct drm_m6npu_pool_info info = { .pool = arg->pool };
	int ret = pool_info(fd, &info);

	arg->freed = 4096;
	arg->released = 8192;
	arg->largest_free = info.largest_free;
	return ret;
}

static int pool_defrag(int fd, struct drm_m6npu_pool_defrag *arg)
{
	const struct fake_pool *pool = find_pool(arg->pool);
	struct drm_m6npu_pool_info info = { .pool = arg->pool };
	uint64_t at;
	struct fake_buffer *b;

	if (!pool)
		return -ENOENT;
	fake.defrags++;
	pool_info(fd, &info);
	arg->largest_before = info.largest_free;
	at = pool->start;
	while ((b = next_buffer(pool, at))) {
		if (b->pinned) {
			arg->stayed++;
		} else if (round_up(at, b->align) < b->start) {
			b->start = round_up(at, b->align);
			arg->moved += b->size;
			arg->buffers++;
		}
		at = b->start + b->size;
	}
	info.pool = arg->pool;
	pool_info(fd, &info);
	arg->largest_after = info.largest_free;
	arg->free = info.size - info.used;
	return 0;
}

static int bo_check(int fd, const struct fake_pool *pool,
		    const struct drm_m6npu_bo_create *arg)
{
	struct drm_m6npu_pool_info info = { .pool = pool->id };

	pool_info(fd, &info);
	if (info.size - info.used < arg->size)
		return -ENOSPC;
	if (pool->client_limit &&
	    info.client_used + arg->size > pool->client_limit)
		return -EDQUOT;
	return 0;
}

static int bo_create(int fd, struct drm_m6npu_bo_create *arg)
{
	const struct fake_pool *pool = find_pool(arg->pool);
	uint64_t align = arg->align, start;
	unsigned int i = 0;
	int ret;

	if (!pool)
		return -ENOENT;
	arg->size = round_up(arg->size, 4096);
	if (!align)
		align = arg->size < 32 * MIB ? 4096 : 32 * MIB;
	if (arg->flags & DRM_M6NPU_BO_FIXED_ADDR && arg->addr % align)
		return -EINVAL;
	ret = bo_check(fd, pool, arg);
	if (ret)
		return ret;
	start = place(pool, arg->size, align);
	/* By size, alignment is a wish only. */
	if (!start && !arg->align)
		start = place(pool, arg->size, align = 4096);
	while (i < FAKE_BUFFERS && fake.buffers[i].handle)
		i++;
	if (!start || i == FAKE_BUFFERS)
		return -ENOBUFS;
	if (!arg->addr)
		arg->addr = start;
	arg->handle = ++fake.handles;
	fake.buffers[i] = (struct fake_buffer){
		.handle = arg->handle,
		.pool = pool->id,
		.owner = fd,
		.start = start,
		.size = arg->size,
		.addr = arg->addr,
		.align = align,
	};
	return 0;
}

static int bo_info(int fd, struct drm_m6npu_bo_info *arg)
{
	const struct fake_buffer *b = find_buffer(arg->handle);

	if (!b)
		return -ENOENT;
	arg->size = b->size;
	arg->addr = b->addr;
	arg->align = b->align;
	arg->pool = b->pool;
	arg->mmap_offset = (uint64_t)b->handle << OFFSET_SHIFT;
	return 0;
}

static int gem_close(int fd, struct drm_gem_close *arg)
{
	struct fake_buffer *b = find_buffer(arg->handle);
	unsigned int i;

	if (!b)
		return -ENOENT;
	for (i = 0; i < FAKE_WINDOWS; i++)
		if (fake.windows[i].handle == arg->handle)
			fake.windows[i] = (struct fake_window){ 0 };
	b->handle = 0;
	return 0;
}

static int region_map(int fd, struct drm_m6npu_region_map *arg)
{
	struct fake_buffer *b = find_buffer(arg->handle);
	unsigned int i = 0;

	if (!b)
		return -ENOENT;
	if (!arg->size || arg->size > 2048 * MIB ||
	    arg->offset + arg->size > b->size || arg->offset % WINDOW_ALIGN ||
	    b->start % WINDOW_ALIGN || b->addr % WINDOW_ALIGN)
		return -EINVAL;
	while (i < FAKE_WINDOWS && fake.windows[i].size)
		i++;
	if (i == FAKE_WINDOWS)
		return -ENOSPC;
	fake.windows[i] = (struct fake_window){ fd, arg->handle, arg->offset,
						arg->size };
	b->pinned = true;
	arg->window = i;
	return 0;
}

static int expert_table(int fd, struct drm_m6npu_expert_table *arg)
{
	if (arg->layers * arg->experts > FAKE_EXPERTS)
		return -EINVAL;
	fake.layers = arg->layers;
	fake.per_layer = arg->experts;
	memset(fake.experts, 0, sizeof(fake.experts));
	return 0;
}

static int expert_bind(int fd, struct drm_m6npu_expert_bind *arg)
{
	const struct drm_m6npu_expert *entries =
		(const void *)(uintptr_t)arg->entries;
	uint32_t i;

	if (fake.on_bind)
		fake.on_bind(entries, arg->count);
	for (i = 0; i < arg->count; i++)
		if (entries[i].layer >= fake.layers ||
		    entries[i].expert >= fake.per_layer)
			return -EINVAL;
	for (i = 0; i < arg->count; i++)
		fake.experts[entries[i].layer * fake.per_layer +
			     entries[i].expert] = entries[i];
	return 0;
}

/* Figures that tell layers apart. */
static int layer_stats(int fd, struct drm_m6npu_layer_stats_get *arg)
{
	uint32_t i;

	if (!fake.layers)
		return -ENXIO;
	for (i = 0; i < arg->count && arg->first + i < fake.layers; i++) {
		const struct drm_m6npu_layer_stats stats = {
			.hits = 100 + arg->first + i,
			.hints = 200 + arg->first + i,
		};

		memcpy((char *)(uintptr_t)arg->entries + i * arg->stride,
		       &stats, sizeof(stats));
	}
	arg->count = fake.layers;
	return 0;
}

static int nothing(int fd, void *arg)
{
	return 0;
}

#define ROW(request, handler) { request, (int (*)(int, void *))(void *)handler }

static const struct {
	unsigned long request;
	int (*handler)(int fd, void *arg);
} rows[] = {
	ROW(DRM_IOCTL_M6NPU_GET_PARAM, get_param),
	ROW(DRM_IOCTL_M6NPU_POOL_CREATE, pool_create),
	ROW(DRM_IOCTL_M6NPU_POOL_DESTROY, pool_destroy),
	ROW(DRM_IOCTL_M6NPU_POOL_INFO, pool_info),
	ROW(DRM_IOCTL_M6NPU_POOL_FLUSH, pool_flush),
	ROW(DRM_IOCTL_M6NPU_POOL_DEFRAG, pool_defrag),
	ROW(DRM_IOCTL_M6NPU_BO_CREATE, bo_create),
	ROW(DRM_IOCTL_M6NPU_BO_INFO, bo_info),
	ROW(DRM_IOCTL_M6NPU_BO_SYNC, nothing),
	ROW(DRM_IOCTL_M6NPU_CMDLIST_SEAL, nothing),
	ROW(DRM_IOCTL_M6NPU_EXPERT_TABLE, expert_table),
	ROW(DRM_IOCTL_M6NPU_EXPERT_BIND, expert_bind),
	ROW(DRM_IOCTL_M6NPU_LAYER_STATS, layer_stats),
	ROW(DRM_IOCTL_M6NPU_REGION_MAP, region_map),
	ROW(DRM_IOCTL_GEM_CLOSE, gem_close),
};

static int dispatch(int fd, unsigned long request, void *arg)
{
	size_t i;

	if (request == fake.fail_request && !fake.fail_after--)
		return fake.fail_error;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].request == request)
			return rows[i].handler(fd, arg);
	return -ENOTTY;
}

/* In libdrm's stead. */
int drmIoctl(int fd, unsigned long request, void *arg)
{
	int ret = dispatch(fd, request, arg);

	errno = -ret;
	return ret ? -1 : 0;
}

int drmSyncobjCreate(int fd, uint32_t flags, uint32_t *handle)
{
	*handle = 1;
	return 0;
}

int drmSyncobjDestroy(int fd, uint32_t handle)
{
	return 0;
}
