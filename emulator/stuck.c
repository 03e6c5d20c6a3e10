// SPDX-License-Identifier: MIT
#include "stuck.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

void m6_stuck_init(struct m6_stuck *stuck)
{
	memset(stuck, 0, sizeof(*stuck));
	pthread_mutex_init(&stuck->lock, NULL);
}

void m6_stuck_destroy(struct m6_stuck *stuck)
{
	pthread_mutex_destroy(&stuck->lock);
}

/* A number up to @end; NULL if there is none. Moves on behind it. */
static const char *parse_part(const char *text, char end, uint64_t *value)
{
	char *rest;

	if (!isdigit((unsigned char)*text))
		return NULL;
	errno = 0;
	*value = strtoull(text, &rest, 0);
	if (errno || *rest != end)
		return NULL;
	return end ? rest + 1 : rest;
}

static int check_bit(const struct m6_stuck_bit *bit)
{
	return bit->bit < 8 && bit->value < 2 ? 0 : -EINVAL;
}

int m6_stuck_parse(const char *text, struct m6_stuck_bit *bit)
{
	uint64_t number, value;

	text = parse_part(text, ':', &bit->addr);
	if (text)
		text = parse_part(text, ':', &number);
	if (text)
		text = parse_part(text, 0, &value);
	if (!text || number > 7 || value > 1)
		return -EINVAL;
	bit->bit = number;
	bit->value = value;
	return 0;
}

static struct m6_stuck_bit *find_bit(struct m6_stuck *stuck, uint64_t addr,
				     unsigned int bit)
{
	for (unsigned int i = 0; i < stuck->count; i++)
		if (stuck->bit[i].addr == addr && stuck->bit[i].bit == bit)
			return &stuck->bit[i];
	return NULL;
}

int m6_stuck_add(struct m6_stuck *stuck, const struct m6_stuck_bit *bit)
{
	struct m6_stuck_bit *known;
	int err = check_bit(bit);

	if (err)
		return err;
	pthread_mutex_lock(&stuck->lock);
	known = find_bit(stuck, bit->addr, bit->bit);
	if (known)
		*known = *bit;
	else if (stuck->count < M6_STUCK_MAX)
		stuck->bit[stuck->count++] = *bit;
	else
		err = -ENOSPC;
	pthread_mutex_unlock(&stuck->lock);
	return err;
}

int m6_stuck_remove(struct m6_stuck *stuck, uint64_t addr, unsigned int bit)
{
	struct m6_stuck_bit *known;

	pthread_mutex_lock(&stuck->lock);
	known = find_bit(stuck, addr, bit);
	if (known)
		*known = stuck->bit[--stuck->count];
	pthread_mutex_unlock(&stuck->lock);
	return known ? 0 : -ENOENT;
}

/* Atomically: the guest may be writing the other bits of the byte. */
static void force_bit(struct m6_memory *mem, const struct m6_stuck_bit *bit)
{
	const uint8_t mask = 1u << bit->bit;
	struct m6_mapping *map;
	uint8_t *host;
	uint64_t room;

	map = m6_memory_get(mem, bit->addr, M6_MAPPING_WRITE, &host, &room);
	if (!map)
		return;
	if (bit->value)
		__atomic_fetch_or(host, mask, __ATOMIC_SEQ_CST);
	else
		__atomic_fetch_and(host, (uint8_t)~mask, __ATOMIC_SEQ_CST);
	m6_mapping_put(map);
}

void m6_stuck_force(struct m6_stuck *stuck, struct m6_memory *mem,
		    uint64_t addr, uint64_t bytes)
{
	pthread_mutex_lock(&stuck->lock);
	for (unsigned int i = 0; i < stuck->count; i++)
		if (stuck->bit[i].addr - addr < bytes)
			force_bit(mem, &stuck->bit[i]);
	pthread_mutex_unlock(&stuck->lock);
}
