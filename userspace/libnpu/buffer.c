// SPDX-License-Identifier: MIT
/*
 * Buffers: memory of a pool that the device sees at one address for life and
 * the CPU maps when it wants to.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <drm/m6npu_accel.h>

#include "buffer.h"
#include "device.h"
#include "error.h"
#include "pool.h"
#include "size.h"

static const struct npu_reason create_reasons[] = {
	{ -ENOSPC, "as much is not free",
	  "take a larger pool (npu_mem_pool_prealloc --size), fewer slots, shorter sequences or a smaller model" },
	{ -ENOBUFS, "as much is free, but in smaller blocks, also after it was defragmented",
	  "lower moe_loader/max_chunk_size_kb, or stop programs whose buffers cannot be moved" },
	{ -EDQUOT, "one program may not hold as much of it",
	  "make the pool with a larger npu_mem_pool_prealloc --client-limit, or take another one" },
	{ -EADDRINUSE, "its device address is taken",
	  "choose another one; one just given up is free when the jobs that use it ended" },
	{ -EINVAL, "size, address or alignment is out of range",
	  "addresses are multiples of 4 KiB below 2^38" },
	{ -ENOENT, "the pool was released", "make a new one" },
};

static int fail_create(struct npu_pool *pool, int error,
		       const struct drm_m6npu_bo_create *arg)
{
	const struct npu_reason *reason = npu_reason_find(
		create_reasons,
		sizeof(create_reasons) / sizeof(create_reasons[0]), error);
	struct npu_pool_info info = { 0 };
	uint64_t limit;

	if (!reason)
		return npu_device_fail(pool->device, error,
				       "cannot create a buffer");
	npu_pool_info(pool, &info);
	limit = info.client_limit ? info.client_limit : info.size;
	return npu_fail(error,
			"pool %" PRIu32 ": no buffer of %s: %s; %s (%s of %s are used, %s of them pinned, largest free block %s, here %s of at most %s)",
			pool->id, npu_size(arg->size).text, reason->what,
			reason->help, npu_size(info.used).text,
			npu_size(info.size).text, npu_size(info.pinned).text,
			npu_size(info.largest_free).text,
			npu_size(info.client_used).text, npu_size(limit).text);
}

static int get_info(struct npu_buffer *buffer)
{
	struct drm_m6npu_bo_info arg = { .handle = buffer->handle };
	int ret;

	ret = npu_device_ioctl(buffer->pool->device, DRM_IOCTL_M6NPU_BO_INFO,
			       &arg);
	if (ret)
		return npu_device_fail(buffer->pool->device, ret,
				       "cannot ask where a buffer is");
	buffer->size = arg.size;
	buffer->addr = arg.addr;
	buffer->mmap_offset = arg.mmap_offset;
	buffer->align = arg.align;
	return 0;
}

/* Room that is only in pieces is put together, once. */
static int create(struct npu_pool *pool, const struct drm_m6npu_bo_create *what,
		  struct drm_m6npu_bo_create *arg)
{
	struct drm_m6npu_pool_defrag defrag = { .pool = pool->id };
	int ret;

	*arg = *what;
	ret = npu_device_ioctl(pool->device, DRM_IOCTL_M6NPU_BO_CREATE, arg);
	if (ret != -ENOBUFS ||
	    npu_device_ioctl(pool->device, DRM_IOCTL_M6NPU_POOL_DEFRAG,
			     &defrag))
		return ret;
	*arg = *what;
	return npu_device_ioctl(pool->device, DRM_IOCTL_M6NPU_BO_CREATE, arg);
}

int npu_buffer_create(struct npu_pool *pool, uint64_t size, uint32_t flags,
		      uint64_t *addr, struct npu_buffer **out)
{
	return npu_buffer_create_aligned(pool, size, flags, 0, addr, out);
}

int npu_buffer_create_aligned(struct npu_pool *pool, uint64_t size,
			      uint32_t flags, uint64_t align, uint64_t *addr,
			      struct npu_buffer **out)
{
	struct drm_m6npu_bo_create what = {
		.size = size,
		.pool = pool->id,
		.addr = *addr,
		.align = align,
	};
	struct drm_m6npu_bo_create arg;
	struct npu_buffer *buffer;
	int ret;

	if (flags & ~NPU_BUFFER_READONLY)
		return npu_fail(-EINVAL, "buffer: unknown flags %#x", flags);
	if (*addr)
		what.flags |= DRM_M6NPU_BO_FIXED_ADDR;
	if (flags & NPU_BUFFER_READONLY)
		what.flags |= DRM_M6NPU_BO_DEVICE_READONLY;
	buffer = calloc(1, sizeof(*buffer));
	if (!buffer)
		return npu_fail_memory();
	ret = create(pool, &what, &arg);
	if (ret) {
		free(buffer);
		return fail_create(pool, ret, &what);
	}
	buffer->pool = pool;
	buffer->handle = arg.handle;
	ret = get_info(buffer);
	if (ret) {
		npu_buffer_destroy(buffer);
		return ret;
	}
	*addr = buffer->addr;
	*out = buffer;
	return 0;
}

void npu_buffer_destroy(struct npu_buffer *buffer)
{
	struct drm_gem_close arg;

	if (!buffer)
		return;
	npu_buffer_unmap(buffer);
	arg = (struct drm_gem_close){ .handle = buffer->handle };
	npu_device_ioctl(buffer->pool->device, DRM_IOCTL_GEM_CLOSE, &arg);
	free(buffer);
}

static void *map(struct npu_buffer *buffer, void *at, int flags)
{
	void *cpu;

	cpu = mmap(at, buffer->size, PROT_READ | PROT_WRITE, MAP_SHARED | flags,
		   npu_device_fd(buffer->pool->device),
		   (off_t)buffer->mmap_offset);
	if (cpu == MAP_FAILED) {
		npu_fail(-errno, "cannot map a buffer of %" PRIu64 " bytes: %s",
			 buffer->size, strerror(errno));
		return NULL;
	}
	return cpu;
}

void *npu_buffer_map(struct npu_buffer *buffer)
{
	if (!buffer->cpu)
		buffer->cpu = map(buffer, NULL, 0);
	return buffer->cpu;
}

int npu_buffer_map_at(struct npu_buffer *buffer, void *cpu)
{
	errno = 0;
	if (!map(buffer, cpu, MAP_FIXED))
		return errno ? -errno : -ENOMEM;
	return 0;
}

void npu_buffer_unmap(struct npu_buffer *buffer)
{
	if (buffer->cpu)
		munmap(buffer->cpu, buffer->size);
	buffer->cpu = NULL;
}

uint64_t npu_buffer_addr(const struct npu_buffer *buffer)
{
	return buffer->addr;
}

uint64_t npu_buffer_size(const struct npu_buffer *buffer)
{
	return buffer->size;
}

static int sync_range(struct npu_buffer *buffer, uint32_t flags,
		      uint64_t offset, uint64_t size)
{
	struct drm_m6npu_bo_sync arg = {
		.handle = buffer->handle,
		.flags = flags,
		.offset = offset,
		.size = size,
	};
	int ret;

	ret = npu_device_ioctl(buffer->pool->device, DRM_IOCTL_M6NPU_BO_SYNC,
			       &arg);
	if (ret)
		return npu_device_fail(buffer->pool->device, ret,
				       "cannot synchronize a buffer");
	return 0;
}

int npu_buffer_sync_to_device(struct npu_buffer *buffer, uint64_t offset,
			      uint64_t size)
{
	return sync_range(buffer, DRM_M6NPU_SYNC_TO_DEVICE, offset, size);
}

int npu_buffer_sync_from_device(struct npu_buffer *buffer, uint64_t offset,
				uint64_t size)
{
	return sync_range(buffer, DRM_M6NPU_SYNC_FROM_DEVICE, offset, size);
}

int npu_buffer_seal(struct npu_buffer *buffer)
{
	struct drm_m6npu_cmdlist_seal arg = { .handle = buffer->handle };
	int ret;

	npu_buffer_unmap(buffer);
	ret = npu_device_ioctl(buffer->pool->device,
			       DRM_IOCTL_M6NPU_CMDLIST_SEAL, &arg);
	if (ret)
		return npu_device_fail(buffer->pool->device, ret,
				       "cannot seal the command lists");
	return 0;
}
