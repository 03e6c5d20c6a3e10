// SPDX-License-Identifier: MIT
#include "storage.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

int storage_init(struct storage *storage, uint32_t mb_s, uint32_t experts)
{
	*storage = (struct storage){
		.mb_s = mb_s,
		.queue = calloc(experts, sizeof(*storage->queue)),
		.under_way = calloc(experts, sizeof(*storage->under_way)),
	};
	return storage->queue && storage->under_way ? 0 : npu_fail_memory();
}

void storage_clear(struct storage *storage)
{
	free(storage->queue);
	free(storage->under_way);
	memset(storage, 0, sizeof(*storage));
}

static void start(struct storage *storage, const struct storage_read *read)
{
	uint64_t begin = read->time_ns;
	struct storage_read *started;

	if (begin < storage->free_ns)
		begin = storage->free_ns;
	started = &storage->under_way[storage->started++];
	*started = *read;
	started->time_ns = begin;
	if (storage->mb_s)
		started->time_ns += read->bytes * 1000 / storage->mb_s;
	storage->free_ns = started->time_ns;
	storage->bytes += read->bytes;
}

static void take_off(struct storage_read *reads, uint32_t *count, uint32_t i)
{
	memmove(&reads[i], &reads[i + 1], (--*count - i) * sizeof(*reads));
}

void storage_demand(struct storage *storage, const struct storage_read *read)
{
	storage_run(storage, read->time_ns);
	start(storage, read);
}

void storage_ahead(struct storage *storage, const struct storage_read *read)
{
	storage_run(storage, read->time_ns);
	storage->queue[storage->queued++] = *read;
}

void storage_run(struct storage *storage, uint64_t ns)
{
	while (storage->queued && storage->free_ns < ns &&
	       storage->queue[0].time_ns < ns) {
		start(storage, &storage->queue[0]);
		take_off(storage->queue, &storage->queued, 0);
	}
}

bool storage_complete(struct storage *storage, uint64_t ns, uint32_t *expert)
{
	if (!storage->started || storage->under_way[0].time_ns > ns)
		return false;
	*expert = storage->under_way[0].expert;
	take_off(storage->under_way, &storage->started, 0);
	return true;
}

static bool find(const struct storage_read *reads, uint32_t count,
		 uint32_t expert, uint32_t *at)
{
	for (*at = 0; *at < count; ++*at)
		if (reads[*at].expert == expert)
			return true;
	return false;
}

bool storage_when(const struct storage *storage, uint32_t expert,
		  uint64_t *ns)
{
	uint32_t i;

	if (!find(storage->under_way, storage->started, expert, &i))
		return false;
	*ns = storage->under_way[i].time_ns;
	return true;
}

bool storage_cancel(struct storage *storage, uint32_t expert)
{
	uint32_t i;

	if (!find(storage->queue, storage->queued, expert, &i))
		return false;
	take_off(storage->queue, &storage->queued, i);
	return true;
}
