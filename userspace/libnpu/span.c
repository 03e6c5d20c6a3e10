// SPDX-License-Identifier: MIT
/*
 * Spans of device memory, and the device addresses they take.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "buffer.h"
#include "device.h"
#include "error.h"
#include "pool.h"
#include "span.h"

/* ---- Addresses ---- */

static int insert(struct npu_va *va, size_t at, uint64_t addr, uint64_t size)
{
	if (va->count == va->room) {
		size_t room = va->room ? 2 * va->room : 16;
		struct npu_va_range *p;

		p = realloc(va->ranges, room * sizeof(*p));
		if (!p)
			return npu_fail_memory();
		va->ranges = p;
		va->room = room;
	}
	memmove(va->ranges + at + 1, va->ranges + at,
		(va->count - at) * sizeof(*va->ranges));
	va->ranges[at] = (struct npu_va_range){ addr, size };
	va->count++;
	return 0;
}

static uint64_t round_up(uint64_t x, uint64_t to)
{
	return (x + to - 1) / to * to;
}

int npu_va_take(struct npu_va *va, uint64_t size, uint64_t align,
		uint64_t *addr)
{
	uint64_t at = NPU_VA_BASE, next;
	size_t i;
	int ret;

	size = round_up(size, NPU_LARGE_PAGE);
	for (i = 0; i <= va->count; i++) {
		next = i < va->count ? va->ranges[i].addr : NPU_VA_END;
		at = round_up(at, align);
		if (next >= at && next - at >= size) {
			ret = insert(va, i, at, size);
			*addr = at;
			return ret;
		}
		at = next + (i < va->count ? va->ranges[i].size : 0);
	}
	return npu_fail(-ENOSPC, "no %" PRIu64 " bytes of device addresses left",
			size);
}

void npu_va_give(struct npu_va *va, uint64_t addr)
{
	size_t i;

	for (i = 0; i < va->count; i++) {
		if (va->ranges[i].addr != addr)
			continue;
		va->count--;
		memmove(va->ranges + i, va->ranges + i + 1,
			(va->count - i) * sizeof(*va->ranges));
		return;
	}
}

void npu_va_clear(struct npu_va *va)
{
	free(va->ranges);
	*va = (struct npu_va){ 0 };
}

/* ---- Spans ---- */

static int take_addresses(struct npu_span *span)
{
	struct npu_device *device = span->pool->device;
	int ret;

	pthread_mutex_lock(&device->lock);
	ret = npu_va_take(&device->va, span->size,
			  span->windows ? NPU_WINDOW_ALIGN : NPU_LARGE_PAGE,
			  &span->addr);
	pthread_mutex_unlock(&device->lock);
	return ret;
}

int npu_span_init(struct npu_span *span, struct npu_pool *pool, uint64_t size,
		  uint64_t chunk, uint32_t flags, bool windows)
{
	uint64_t count = (size + chunk - 1) / chunk;
	void *cpu;
	int ret;

	*span = (struct npu_span){
		.pool = pool,
		.size = size,
		.chunk = chunk,
		.flags = flags,
		.windows = windows,
	};
	span->buffers = calloc(count, sizeof(*span->buffers));
	if (!span->buffers)
		return npu_fail_memory();
	span->buffer_count = (uint32_t)count;
	ret = take_addresses(span);
	if (ret)
		goto fail;
	/* Only addresses: buffers are mapped over it one by one. */
	cpu = mmap(NULL, count * chunk, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (cpu == MAP_FAILED) {
		ret = npu_fail(-errno, "no %" PRIu64 " bytes of address space",
			       count * chunk);
		goto fail;
	}
	span->cpu = cpu;
	return 0;
fail:
	npu_span_clear(span);
	return ret;
}

void npu_span_unmap(struct npu_span *span)
{
	if (span->cpu)
		munmap(span->cpu, span->buffer_count * span->chunk);
	span->cpu = NULL;
}

void npu_span_clear(struct npu_span *span)
{
	uint32_t i;

	if (!span->pool)
		return;
	npu_span_unmap(span);
	for (i = 0; i < span->buffer_count; i++)
		npu_buffer_destroy(span->buffers[i]);
	free(span->buffers);
	if (span->addr) {
		pthread_mutex_lock(&span->pool->device->lock);
		npu_va_give(&span->pool->device->va, span->addr);
		pthread_mutex_unlock(&span->pool->device->lock);
	}
	*span = (struct npu_span){ 0 };
}

/* Windows only save time: a pool without room for aligned buffers does too. */
static int create_buffer(struct npu_span *span, uint64_t offset,
			 struct npu_buffer **buffer)
{
	uint64_t addr = span->addr + offset;
	uint64_t left = span->size - offset;
	uint64_t size = left < span->chunk ? left : span->chunk;
	int ret;

	if (span->windows) {
		ret = npu_buffer_create_aligned(span->pool, size, span->flags,
						NPU_WINDOW_ALIGN, &addr,
						buffer);
		if (ret != -ENOBUFS)
			return ret;
		span->windows = false;
	}
	return npu_buffer_create(span->pool, size, span->flags, &addr, buffer);
}

static int populate_one(struct npu_span *span, uint32_t i)
{
	uint64_t offset = i * span->chunk;
	struct npu_buffer *buffer;
	int ret;

	if (span->buffers[i])
		return 0;
	ret = create_buffer(span, offset, &buffer);
	if (ret)
		return ret;
	ret = npu_buffer_map_at(buffer, span->cpu + offset);
	if (ret) {
		npu_buffer_destroy(buffer);
		return ret;
	}
	span->buffers[i] = buffer;
	return 0;
}

int npu_span_populate(struct npu_span *span, uint64_t offset, uint64_t size)
{
	uint32_t i;
	int ret;

	if (!size)
		return 0;
	for (i = (uint32_t)(offset / span->chunk);
	     i <= (offset + size - 1) / span->chunk; i++) {
		ret = populate_one(span, i);
		if (ret)
			return ret;
	}
	return 0;
}

static int sync_span(struct npu_span *span, uint64_t offset, uint64_t size,
		     int (*sync)(struct npu_buffer *, uint64_t, uint64_t))
{
	int ret = 0;

	while (size && !ret) {
		uint64_t start = offset % span->chunk;
		uint64_t n = span->chunk - start;

		if (n > size)
			n = size;
		ret = sync(span->buffers[offset / span->chunk], start, n);
		offset += n;
		size -= n;
	}
	return ret;
}

int npu_span_sync_to_device(struct npu_span *span, uint64_t offset,
			    uint64_t size)
{
	return sync_span(span, offset, size, npu_buffer_sync_to_device);
}

int npu_span_sync_from_device(struct npu_span *span, uint64_t offset,
			      uint64_t size)
{
	return sync_span(span, offset, size, npu_buffer_sync_from_device);
}
