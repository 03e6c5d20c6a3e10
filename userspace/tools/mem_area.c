// SPDX-License-Identifier: MIT
#include "mem_area.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

/* What a device can address is more than there is. */
#define ADDRESSABLE	(1ull << 38)
/* A file may have that many, and a pool that many segments. */
#define POOLS_MAX	64
#define SEGMENTS_MAX	16
/* Not worth a pool. */
#define POOL_MIN	(64u << 10)
/* Clearing one takes a moment, between two looks at whether to stop. */
#define BUFFER_MAX	(64u << 20)

static uint64_t lower(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t half(uint64_t bytes)
{
	return bytes / 2 / MEM_PIECE_MIN * MEM_PIECE_MIN;
}

/* Somebody else has it, or there never was as much: less may do. */
static bool too_much(int error)
{
	return error == -ENOMEM || error == -ENOSPC || error == -ENOBUFS ||
	       error == -EDQUOT;
}

/* Room for one more element of @size bytes. */
static int grow(void *array, size_t count, size_t *room, size_t size)
{
	void **data = array;
	size_t more = *room ? 2 * *room : 64;
	void *bigger;

	if (count < *room)
		return 0;
	bigger = realloc(*data, more * size);
	if (!bigger)
		return -ENOMEM;
	*data = bigger;
	*room = more;
	return 0;
}

/* ---- Pools ---- */

/* The largest pool that can be had, then the largest of what is left, ... */
static int create_pools(struct mem_area *area, uint64_t bytes)
{
	uint64_t chunk = bytes;
	int ret;

	while (bytes >= POOL_MIN && chunk >= POOL_MIN &&
	       area->pool_count < POOLS_MAX) {
		chunk = lower(chunk, bytes);
		ret = npu_pool_create(area->device, chunk, 0, SEGMENTS_MAX,
				      &area->pools[area->pool_count]);
		if (ret && !too_much(ret))
			return ret;
		if (ret) {
			chunk = half(chunk);
			continue;
		}
		area->pool_count++;
		area->reserved += chunk;
		bytes -= chunk;
	}
	return 0;
}

static int open_persistent(struct mem_area *area)
{
	struct npu_pool_info infos[POOLS_MAX];
	int ret, count, i;

	count = npu_pool_list(area->device, infos, POOLS_MAX);
	if (count < 0)
		return count;
	for (i = 0; i < count && i < POOLS_MAX; i++) {
		if (infos[i].largest_free < MEM_PIECE_MIN)
			continue;
		ret = npu_pool_open(area->device, infos[i].id,
				    &area->pools[area->pool_count]);
		if (ret == -ENOENT)
			continue;
		if (ret)
			return ret;
		area->pool_count++;
		area->reserved += infos[i].size - infos[i].used;
	}
	return 0;
}

int mem_area_reserve(struct mem_area *area, struct npu_device *device,
		     uint64_t bytes)
{
	struct npu_device_info info;
	int ret;

	*area = (struct mem_area){ .device = device };
	ret = npu_device_info(device, &info);
	if (ret)
		return ret;
	/* Beyond it, pools are made of memory that the system wants itself. */
	bytes = lower(bytes, info.cma_bytes ? info.cma_bytes : ADDRESSABLE);
	area->pools = calloc(POOLS_MAX, sizeof(area->pools[0]));
	if (!area->pools)
		return -ENOMEM;
	ret = create_pools(area, bytes);
	if (!ret && !area->pool_count)
		ret = open_persistent(area);
	if (!ret && !area->pool_count)
		ret = -ENOMEM;
	return ret;
}

/* ---- Buffers ---- */

static int add_buffer(struct mem_area *area, struct npu_pool *pool,
		      uint64_t size, struct npu_buffer **buffer)
{
	uint64_t addr = 0;
	int ret;

	ret = grow(&area->buffers, area->buffer_count, &area->buffer_room,
		   sizeof(area->buffers[0]));
	if (!ret)
		ret = npu_buffer_create(pool, size, 0, &addr, buffer);
	if (!ret)
		area->buffers[area->buffer_count++] = *buffer;
	return ret;
}

int mem_area_buffer(struct mem_area *area, uint64_t size,
		    struct npu_buffer **buffer)
{
	int ret = -ENOSPC;
	size_t i;

	for (i = 0; i < area->pool_count && too_much(ret); i++)
		ret = add_buffer(area, area->pools[i], size, buffer);
	return ret;
}

/* The largest power of two in both @bytes and @addr. */
static uint32_t piece_size(uint64_t addr, uint64_t bytes)
{
	uint32_t size = MEM_PIECE;

	while (addr % size || size > bytes)
		size /= 2;
	return size;
}

static int cut_buffer(struct mem_area *area, struct npu_buffer *buffer)
{
	uint64_t size = npu_buffer_size(buffer), at;
	char *cpu = npu_buffer_map(buffer);

	if (!cpu)
		return -ENOMEM;
	for (at = 0; at < size; at += area->pieces[area->piece_count++].size) {
		uint64_t addr = npu_buffer_addr(buffer) + at;
		int ret = grow(&area->pieces, area->piece_count,
			       &area->piece_room, sizeof(area->pieces[0]));

		if (ret)
			return ret;
		area->pieces[area->piece_count] = (struct mem_piece){
			.buffer = buffer,
			.offset = at,
			.addr = addr,
			.size = piece_size(addr, size - at),
			.cpu = (uint32_t *)(cpu + at),
		};
	}
	area->bytes += size;
	return 0;
}

/* As large as it can be had, up to @bytes. 0: the pool is full. */
static int take_buffer(struct mem_area *area, struct npu_pool *pool,
		       uint64_t bytes, uint64_t *taken)
{
	struct npu_pool_info info;
	struct npu_buffer *buffer;
	uint64_t size;
	int ret;

	*taken = 0;
	ret = npu_pool_info(pool, &info);
	if (ret)
		return ret;
	size = lower(lower(bytes, info.largest_free), BUFFER_MAX);
	for (; size >= MEM_PIECE_MIN; size = half(size)) {
		ret = add_buffer(area, pool, size, &buffer);
		if (ret && !too_much(ret))
			return ret;
		if (ret)
			continue;
		*taken = npu_buffer_size(buffer);
		return cut_buffer(area, buffer);
	}
	return 0;
}

int mem_area_fill(struct mem_area *area, uint64_t bytes,
		  void (*progress)(void *user, uint64_t done), void *user,
		  const volatile sig_atomic_t *stop)
{
	size_t pool = 0;
	uint64_t taken;
	int ret;

	while (pool < area->pool_count && area->bytes < bytes && !*stop) {
		progress(user, area->bytes);
		ret = take_buffer(area, area->pools[pool], bytes - area->bytes,
				  &taken);
		if (ret)
			return ret;
		if (!taken)
			pool++;
	}
	return area->bytes || *stop ? 0 : -ENOMEM;
}

void mem_area_free(struct mem_area *area)
{
	while (area->buffer_count)
		npu_buffer_destroy(area->buffers[--area->buffer_count]);
	while (area->pool_count)
		npu_pool_destroy(area->pools[--area->pool_count]);
	free(area->pieces);
	free(area->buffers);
	free(area->pools);
}
