// SPDX-License-Identifier: MIT
#include "memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void m6_memory_init(struct m6_memory *mem)
{
	memset(mem, 0, sizeof(*mem));
	pthread_mutex_init(&mem->lock, NULL);
	m6_stuck_init(&mem->stuck);
}

void m6_memory_destroy(struct m6_memory *mem)
{
	m6_memory_clear(mem);
	free(mem->maps);
	m6_stuck_destroy(&mem->stuck);
	pthread_mutex_destroy(&mem->lock);
}

void m6_mapping_put(struct m6_mapping *map)
{
	if (!map || atomic_fetch_sub(&map->refs, 1) != 1)
		return;
	if (map->release)
		map->release(map->opaque);
	free(map);
}

/* Index of the first mapping that ends above @addr. */
static size_t memory_find(const struct m6_memory *mem, uint64_t addr)
{
	size_t low = 0, high = mem->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		const struct m6_mapping *map = mem->maps[mid];

		if (map->addr + (map->size - 1) < addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static int memory_insert(struct m6_memory *mem, struct m6_mapping *map)
{
	size_t at = memory_find(mem, map->addr);

	if (at < mem->count &&
	    mem->maps[at]->addr <= map->addr + (map->size - 1))
		return -EEXIST;
	if (mem->count >= M6_MAPPINGS_MAX)
		return -ENOSPC;
	if (mem->count == mem->room) {
		size_t room = mem->room ? mem->room * 2 : 64;
		void *maps = realloc(mem->maps, room * sizeof(*mem->maps));

		if (!maps)
			return -ENOMEM;
		mem->maps = maps;
		mem->room = room;
	}
	memmove(mem->maps + at + 1, mem->maps + at,
		(mem->count - at) * sizeof(*mem->maps));
	mem->maps[at] = map;
	mem->count++;
	return 0;
}

int m6_memory_map(struct m6_memory *mem, uint64_t addr, uint64_t size,
		  void *host, uint32_t flags, void (*release)(void *opaque),
		  void *opaque)
{
	struct m6_mapping *map = NULL;
	int err = -EINVAL;

	if (!size || addr + (size - 1) < addr)
		goto fail;
	err = -ENOMEM;
	map = calloc(1, sizeof(*map));
	if (!map)
		goto fail;
	*map = (struct m6_mapping) {
		.addr = addr, .size = size, .host = host, .flags = flags,
		.refs = 1, .release = release, .opaque = opaque,
	};
	pthread_mutex_lock(&mem->lock);
	err = memory_insert(mem, map);
	pthread_mutex_unlock(&mem->lock);
	if (!err)
		return 0;
fail:
	free(map);
	if (release)
		release(opaque);
	return err;
}

/* Moves mappings [first, last) out of the table; the caller puts them. */
static struct m6_mapping **memory_remove(struct m6_memory *mem, size_t first,
					 size_t last)
{
	size_t count = last - first;
	struct m6_mapping **gone = malloc(count * sizeof(*gone));

	if (!gone)
		return NULL;
	memcpy(gone, mem->maps + first, count * sizeof(*gone));
	memmove(mem->maps + first, mem->maps + last,
		(mem->count - last) * sizeof(*gone));
	mem->count -= count;
	return gone;
}

int m6_memory_unmap(struct m6_memory *mem, uint64_t addr, uint64_t size)
{
	struct m6_mapping **gone = NULL;
	size_t first, last;
	uint64_t end;
	int err = 0;

	if (!size || addr + (size - 1) < addr)
		return -EINVAL;
	end = addr + (size - 1);
	pthread_mutex_lock(&mem->lock);
	first = memory_find(mem, addr);
	for (last = first; last < mem->count; last++) {
		const struct m6_mapping *map = mem->maps[last];

		if (map->addr > end)
			break;
		if (map->addr < addr || map->addr + (map->size - 1) > end)
			err = -EINVAL;
	}
	if (!err && first == last)
		err = -ENOENT;
	if (!err) {
		gone = memory_remove(mem, first, last);
		err = gone ? 0 : -ENOMEM;
	}
	pthread_mutex_unlock(&mem->lock);
	for (size_t i = 0; gone && i < last - first; i++)
		m6_mapping_put(gone[i]);
	free(gone);
	return err;
}

void m6_memory_clear(struct m6_memory *mem)
{
	struct m6_mapping **gone;
	size_t count;

	pthread_mutex_lock(&mem->lock);
	gone = mem->maps;
	count = mem->count;
	mem->maps = NULL;
	mem->count = 0;
	mem->room = 0;
	pthread_mutex_unlock(&mem->lock);
	for (size_t i = 0; i < count; i++)
		m6_mapping_put(gone[i]);
	free(gone);
}

struct m6_mapping *m6_memory_get(struct m6_memory *mem, uint64_t addr,
				 uint32_t flags, uint8_t **host,
				 uint64_t *room)
{
	struct m6_mapping *map = NULL;
	size_t at;

	pthread_mutex_lock(&mem->lock);
	at = memory_find(mem, addr);
	if (at < mem->count && mem->maps[at]->addr <= addr &&
	    mem->maps[at]->host && (mem->maps[at]->flags & flags) == flags) {
		map = mem->maps[at];
		atomic_fetch_add(&map->refs, 1);
	}
	pthread_mutex_unlock(&mem->lock);
	if (map) {
		*host = map->host + (addr - map->addr);
		*room = map->size - (addr - map->addr);
	}
	return map;
}

enum memory_access { MEMORY_READ, MEMORY_WRITE, MEMORY_CHECK };

static int memory_access(struct m6_memory *mem, uint64_t addr, uint8_t *data,
			 uint64_t bytes, uint32_t flags,
			 enum memory_access access)
{
	while (bytes) {
		struct m6_mapping *map;
		uint8_t *host;
		uint64_t room;

		map = m6_memory_get(mem, addr, flags, &host, &room);
		if (!map)
			return -EFAULT;
		if (room > bytes)
			room = bytes;
		if (access == MEMORY_READ)
			memcpy(data, host, room);
		else if (access == MEMORY_WRITE)
			memcpy(host, data, room);
		m6_mapping_put(map);
		if (data)
			data += room;
		bytes -= room;
		addr += room;
		if (bytes && !addr)
			return -EFAULT;
	}
	return 0;
}

int m6_memory_read(struct m6_memory *mem, uint64_t addr, void *to,
		   uint64_t bytes)
{
	m6_memory_settle(mem, addr, bytes);
	return memory_access(mem, addr, to, bytes, M6_MAPPING_READ,
			     MEMORY_READ);
}

int m6_memory_write(struct m6_memory *mem, uint64_t addr, const void *from,
		    uint64_t bytes)
{
	int err = memory_access(mem, addr, (uint8_t *)from, bytes,
				M6_MAPPING_WRITE, MEMORY_WRITE);

	m6_memory_settle(mem, addr, bytes);
	return err;
}

bool m6_memory_check(struct m6_memory *mem, uint64_t addr, uint64_t bytes,
		     uint32_t flags)
{
	return !memory_access(mem, addr, NULL, bytes, flags, MEMORY_CHECK);
}

int m6_memory_load(struct m6_memory *mem, uint64_t addr, uint64_t *to,
		   unsigned int count)
{
	struct m6_mapping *map;
	uint8_t *host;
	uint64_t room;

	if (addr % sizeof(*to))
		return -EINVAL;
	m6_memory_settle(mem, addr, count * sizeof(*to));
	map = m6_memory_get(mem, addr, M6_MAPPING_READ, &host, &room);
	if (!map)
		return -EFAULT;
	if ((uintptr_t)host % sizeof(*to))
		room = 0;
	for (unsigned int i = 0; i < count && room >= (i + 1) * sizeof(*to); i++)
		to[i] = __atomic_load_n((uint64_t *)host + i, __ATOMIC_ACQUIRE);
	m6_mapping_put(map);
	return room >= count * sizeof(*to) ? 0 : -EFAULT;
}

/* The word at an aligned address, or NULL; the caller puts the mapping. */
static uint64_t *memory_word(struct m6_memory *mem, uint64_t addr,
			     uint32_t flags, struct m6_mapping **map)
{
	uint8_t *host;
	uint64_t room;

	*map = m6_memory_get(mem, addr, flags, &host, &room);
	if (!*map || room < sizeof(uint64_t) ||
	    (uintptr_t)host % sizeof(uint64_t))
		return NULL;
	return (uint64_t *)host;
}

int m6_memory_publish(struct m6_memory *mem, uint64_t addr, uint64_t value)
{
	struct m6_mapping *map;
	uint64_t *word;

	if (addr % sizeof(value))
		return -EINVAL;
	word = memory_word(mem, addr, M6_MAPPING_WRITE, &map);
	if (word)
		__atomic_store_n(word, value, __ATOMIC_RELEASE);
	m6_mapping_put(map);
	m6_memory_settle(mem, addr, sizeof(value));
	return word ? 0 : -EFAULT;
}

int m6_memory_add(struct m6_memory *mem, uint64_t addr, uint64_t value)
{
	struct m6_mapping *map;
	uint64_t *word;

	if (addr % sizeof(value))
		return -EINVAL;
	m6_memory_settle(mem, addr, sizeof(value));
	word = memory_word(mem, addr, M6_MAPPING_READ | M6_MAPPING_WRITE, &map);
	if (word)
		__atomic_fetch_add(word, value, __ATOMIC_RELAXED);
	m6_mapping_put(map);
	m6_memory_settle(mem, addr, sizeof(value));
	return word ? 0 : -EFAULT;
}
