// SPDX-License-Identifier: MIT
/*
 * Pools of physically contiguous memory.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <drm/m6npu_accel.h>

#include "device.h"
#include "error.h"
#include "pool.h"
#include "size.h"

#define CLIENT_PERCENT	"/sys/module/m6npu/parameters/client_percent"
/* Pools that go while they are listed make the list begin anew. */
#define LIST_TRIES	8

/* ---- What messages say ---- */

const struct npu_reason *npu_reason_find(const struct npu_reason *reasons,
					 size_t count, int error)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (reasons[i].error == error)
			return &reasons[i];
	return NULL;
}

/* ---- Creating ---- */

static const struct npu_reason create_reasons[] = {
	{ -ENOMEM, "no contiguous area that large is free",
	  "take a smaller pool or more segments, release others (npu_mem_pool_prealloc --info, --release), or boot with a larger cma=" },
	{ -EDQUOT, "a program may hold only a part of the contiguous area",
	  "make a persistent pool (npu_mem_pool_prealloc), raise the module's client_percent, or run with CAP_SYS_RESOURCE" },
	{ -EIO, "the memory cannot be mapped for the device",
	  "dmesg says why; take a smaller pool or more segments" },
	{ -ERANGE, "the device does not reach the memory",
	  "place the contiguous area lower, as in cma=SIZE@0-256G" },
	{ -ENOSPC, "there are too many pools",
	  "release some (npu_mem_pool_prealloc --info, --release)" },
	{ -EPERM, "a persistent pool needs CAP_SYS_ADMIN", "run it as root" },
	{ -EINVAL, "size, segments or limit is out of range",
	  "a pool has up to 256 GiB and 16 segments, and a limit per client only if it is persistent" },
};

/* "; client_percent is 50", or "" where the driver does not tell. */
static void print_percent(char *text, size_t size)
{
	FILE *f = fopen(CLIENT_PERCENT, "re");
	unsigned int percent;

	text[0] = '\0';
	if (!f)
		return;
	if (fscanf(f, "%u", &percent) == 1)
		snprintf(text, size, "; client_percent is %u", percent);
	fclose(f);
}

static int fail_create(struct npu_device *device, int error, uint64_t size)
{
	const struct npu_reason *reason = npu_reason_find(
		create_reasons,
		sizeof(create_reasons) / sizeof(create_reasons[0]), error);
	struct drm_m6npu_get_param cma = { .param = DRM_M6NPU_PARAM_CMA_SIZE };
	struct drm_m6npu_pool_info all = { 0 };
	char percent[40] = "";

	if (!reason)
		return npu_device_fail(device, error, "cannot create a pool");
	npu_device_ioctl(device, DRM_IOCTL_M6NPU_GET_PARAM, &cma);
	npu_device_ioctl(device, DRM_IOCTL_M6NPU_POOL_INFO, &all);
	if (error == -EDQUOT)
		print_percent(percent, sizeof(percent));
	return npu_fail(error,
			"no pool of %s: %s; %s (contiguous area %s; pools for this program %s, of which %s free, the largest block %s%s)",
			npu_size(size).text, reason->what, reason->help,
			cma.value ? npu_size(cma.value).text : "unknown",
			npu_size(all.size).text,
			npu_size(all.size - all.used).text,
			npu_size(all.largest_free).text, percent);
}

static int make_object(struct npu_device *device, struct npu_pool **out)
{
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return npu_fail_memory();
	(*out)->device = device;
	return 0;
}

static int create(struct npu_device *device,
		  struct drm_m6npu_pool_create *arg, struct npu_pool **out)
{
	uint64_t size = arg->size;
	struct npu_pool *pool;
	int ret;

	ret = make_object(device, &pool);
	if (ret)
		return ret;
	ret = npu_device_ioctl(device, DRM_IOCTL_M6NPU_POOL_CREATE, arg);
	if (ret) {
		free(pool);
		return fail_create(device, ret, size);
	}
	pool->id = arg->pool;
	pool->created = true;
	*out = pool;
	return 0;
}

int npu_pool_create(struct npu_device *device, uint64_t size, uint32_t flags,
		    uint32_t max_segments, struct npu_pool **out)
{
	struct drm_m6npu_pool_create arg = {
		.size = size,
		.max_segments = max_segments,
	};

	if (flags & ~NPU_POOL_PERSISTENT)
		return npu_fail(-EINVAL, "pool: unknown flags %#x", flags);
	if (flags & NPU_POOL_PERSISTENT)
		arg.flags = DRM_M6NPU_POOL_PERSISTENT;
	return create(device, &arg, out);
}

int npu_pool_create_persistent(struct npu_device *device, uint64_t size,
			       uint32_t max_segments, uint64_t client_limit,
			       struct npu_pool **out)
{
	struct drm_m6npu_pool_create arg = {
		.size = size,
		.flags = DRM_M6NPU_POOL_PERSISTENT,
		.max_segments = max_segments,
		.client_limit = client_limit,
	};

	return create(device, &arg, out);
}

/* ---- Those that are there ---- */

static int fail_missing(uint32_t id)
{
	return npu_fail(-ENOENT,
			"there is no pool %" PRIu32 "; npu_mem_pool_prealloc --info shows those there are",
			id);
}

static int get_info(const struct npu_device *device, uint32_t id,
		    struct npu_pool_info *info, uint32_t *next)
{
	struct drm_m6npu_pool_info arg = { .pool = id };
	int ret;

	ret = npu_device_ioctl(device, DRM_IOCTL_M6NPU_POOL_INFO, &arg);
	if (ret == -ENOENT)
		return fail_missing(id);
	if (ret)
		return npu_device_fail(device, ret,
				       "cannot ask for a pool's figures");
	*info = (struct npu_pool_info){
		.id = id,
		.flags = arg.flags & DRM_M6NPU_POOL_PERSISTENT ?
				 NPU_POOL_PERSISTENT : 0,
		.size = arg.size,
		.used = arg.used,
		.largest_free = arg.largest_free,
		.buffers = arg.buffers,
		.segments = arg.segments,
		.client_used = arg.client_used,
		.client_limit = arg.client_limit,
		.pinned = arg.pinned,
	};
	*next = arg.next;
	return 0;
}

int npu_pool_info(struct npu_pool *pool, struct npu_pool_info *info)
{
	uint32_t next;

	return get_info(pool->device, pool->id, info, &next);
}

static int list_once(struct npu_device *device, struct npu_pool_info *infos,
		     size_t max)
{
	struct npu_pool_info info;
	uint32_t id = 0, next;
	int ret, count = 0;

	ret = get_info(device, 0, &info, &next);
	/* Rising, so that it ends. */
	while (!ret && next > id) {
		id = next;
		ret = get_info(device, id, &info, &next);
		if (!ret && (size_t)count < max)
			infos[count] = info;
		count += !ret;
	}
	return ret ? ret : count;
}

int npu_pool_list(struct npu_device *device, struct npu_pool_info *infos,
		  size_t max)
{
	int tries, ret = -ENOENT;

	for (tries = 0; tries < LIST_TRIES && ret == -ENOENT; tries++)
		ret = list_once(device, infos, max);
	return ret;
}

int npu_pool_open(struct npu_device *device, uint32_t id, struct npu_pool **out)
{
	struct npu_pool_info info;
	uint32_t next;
	int ret;

	/* The kernel takes 0 as all of them. */
	if (!id)
		return fail_missing(id);
	ret = get_info(device, id, &info, &next);
	if (!ret)
		ret = make_object(device, out);
	if (!ret)
		(*out)->id = id;
	return ret;
}

/* Bytes that a buffer of this open device can still have in it, in pieces. */
static uint64_t room(const struct npu_pool_info *info)
{
	uint64_t room = info->size - info->used;

	if (!info->client_limit)
		return room;
	if (info->client_used >= info->client_limit)
		return 0;
	if (room > info->client_limit - info->client_used)
		room = info->client_limit - info->client_used;
	return room;
}

static const struct npu_pool_info *choose(const struct npu_pool_info *infos,
					  int count, uint64_t need)
{
	const struct npu_pool_info *best = NULL;
	int i;

	for (i = 0; i < count; i++) {
		const struct npu_pool_info *p = &infos[i];

		if (!(p->flags & NPU_POOL_PERSISTENT) || room(p) < need)
			continue;
		if (!best || p->largest_free > best->largest_free)
			best = p;
	}
	return best;
}

int npu_pool_find(struct npu_device *device, uint64_t need,
		  struct npu_pool **out)
{
	struct npu_pool_info infos[128];
	struct npu_defrag_report report;
	const struct npu_pool_info *best;
	int count, ret;

	*out = NULL;
	count = npu_pool_list(device, infos,
			      sizeof(infos) / sizeof(infos[0]));
	if (count < 0)
		return count;
	if (count > (int)(sizeof(infos) / sizeof(infos[0])))
		count = sizeof(infos) / sizeof(infos[0]);
	best = choose(infos, count, need);
	if (!best)
		return 0;
	ret = npu_pool_open(device, best->id, out);
	/* What it does not bring about, allocating will find. */
	if (!ret && best->largest_free < need)
		npu_pool_defrag(*out, 0, &report);
	return ret == -ENOENT ? 0 : ret;
}

/* ---- The end ---- */

void npu_pool_close(struct npu_pool *pool)
{
	free(pool);
}

void npu_pool_destroy(struct npu_pool *pool)
{
	struct drm_m6npu_pool_destroy arg;

	if (!pool)
		return;
	/* What still has buffers goes when the device file is closed. */
	arg = (struct drm_m6npu_pool_destroy){ .pool = pool->id };
	if (pool->created)
		npu_device_ioctl(pool->device, DRM_IOCTL_M6NPU_POOL_DESTROY,
				 &arg);
	npu_pool_close(pool);
}

int npu_pool_remove(struct npu_device *device, uint32_t id)
{
	struct drm_m6npu_pool_destroy arg = { .pool = id };
	struct npu_pool_info info;
	uint32_t next;
	int ret;

	ret = npu_device_ioctl(device, DRM_IOCTL_M6NPU_POOL_DESTROY, &arg);
	switch (ret) {
	case 0:
		return 0;
	case -ENOENT:
		return fail_missing(id);
	case -EPERM:
		return npu_fail(ret,
				"pool %" PRIu32 " is persistent: only root (CAP_SYS_ADMIN) can release it",
				id);
	case -EBUSY:
		if (get_info(device, id, &info, &next))
			return -ENOENT;
		return npu_fail(ret,
				"pool %" PRIu32 " still holds %" PRIu32 " buffers of %s; stop the programs that use it first (/sys/kernel/debug/npu/contexts names them)",
				id, info.buffers, npu_size(info.used).text);
	default:
		return npu_device_fail(device, ret, "cannot release a pool");
	}
}

/* ---- Upkeep ---- */

int npu_pool_flush(struct npu_pool *pool, struct npu_flush_report *report)
{
	struct drm_m6npu_pool_flush arg = { .pool = pool->id };
	int ret;

	ret = npu_device_ioctl(pool->device, DRM_IOCTL_M6NPU_POOL_FLUSH, &arg);
	*report = (struct npu_flush_report){
		.freed = arg.freed,
		.released = arg.released,
		.largest_free = arg.largest_free,
	};
	if (ret == -ENOENT)
		return fail_missing(pool->id);
	if (ret == -EPERM)
		return npu_fail(ret,
				"pool %" PRIu32 " is persistent: only root (CAP_SYS_ADMIN) can flush it",
				pool->id);
	return ret ? npu_device_fail(pool->device, ret, "cannot flush a pool") :
		     0;
}

int npu_pool_defrag(struct npu_pool *pool, uint32_t flags,
		    struct npu_defrag_report *report)
{
	struct drm_m6npu_pool_defrag arg = { .pool = pool->id };
	int ret;

	*report = (struct npu_defrag_report){ 0 };
	if (flags & ~NPU_DEFRAG_NO_DRAIN)
		return npu_fail(-EINVAL, "defrag: unknown flags %#x", flags);
	if (flags & NPU_DEFRAG_NO_DRAIN)
		arg.flags = DRM_M6NPU_DEFRAG_NO_DRAIN;
	ret = npu_device_ioctl(pool->device, DRM_IOCTL_M6NPU_POOL_DEFRAG, &arg);
	*report = (struct npu_defrag_report){
		.largest_before = arg.largest_before,
		.largest_after = arg.largest_after,
		.free = arg.free,
		.moved = arg.moved,
		.copied = arg.copied,
		.copied_device = arg.copied_device,
		.time_ns = arg.time_ns,
		.pause_ns = arg.pause_ns,
		.buffers = arg.buffers,
		.stayed = arg.stayed,
	};
	if (ret == -ENOENT)
		return fail_missing(pool->id);
	if (ret == -EBUSY)
		return npu_fail(ret,
				"pool %" PRIu32 " is used by jobs that would have to be waited for; let it wait, or try again when they ended",
				pool->id);
	return ret ? npu_device_fail(pool->device, ret,
				     "cannot defragment a pool") : 0;
}
