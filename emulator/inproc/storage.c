// SPDX-License-Identifier: MIT
#include "storage.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

static bool list_init(struct storage_list *list, uint32_t experts)
{
	list->reads = calloc(experts, sizeof(*list->reads));
	return list->reads;
}

int storage_init(struct storage *storage, uint32_t mb_s, uint32_t experts)
{
	*storage = (struct storage){ .mb_s = mb_s };
	if (list_init(&storage->needed, experts) &&
	    list_init(&storage->ahead, experts) &&
	    list_init(&storage->complete, experts))
		return 0;
	storage_clear(storage);
	return npu_fail_memory();
}

void storage_clear(struct storage *storage)
{
	free(storage->needed.reads);
	free(storage->ahead.reads);
	free(storage->complete.reads);
	memset(storage, 0, sizeof(*storage));
}

static bool find(const struct storage_list *list, uint32_t expert, uint32_t *at)
{
	for (*at = 0; *at < list->count; ++*at)
		if (list->reads[*at].expert == expert)
			return true;
	return false;
}

static struct storage_read take_off(struct storage_list *list, uint32_t i)
{
	struct storage_read read = list->reads[i];

	memmove(&list->reads[i], &list->reads[i + 1],
		(--list->count - i) * sizeof(*list->reads));
	return read;
}

static struct storage_list *first_list(struct storage *storage)
{
	return storage->needed.count ? &storage->needed : &storage->ahead;
}

static void end_first(struct storage *storage, struct storage_list *list)
{
	struct storage_read read = take_off(list, 0);

	storage->now_ns += read.left_ns;
	storage->bytes += read.bytes;
	read.time_ns = storage->now_ns;
	storage->complete.reads[storage->complete.count++] = read;
}

void storage_run(struct storage *storage, uint64_t ns)
{
	struct storage_list *list = first_list(storage);

	while (list->count &&
	       storage->now_ns + list->reads[0].left_ns <= ns) {
		end_first(storage, list);
		list = first_list(storage);
	}
	if (storage->now_ns >= ns)
		return;
	if (list->count)
		list->reads[0].left_ns -= ns - storage->now_ns;
	storage->now_ns = ns;
}

static void add(struct storage *storage, struct storage_list *list,
		const struct storage_read *read)
{
	struct storage_read *added;

	storage_run(storage, read->time_ns);
	added = &list->reads[list->count++];
	*added = *read;
	added->left_ns = storage->mb_s ? read->bytes * 1000 / storage->mb_s : 0;
}

void storage_demand(struct storage *storage, const struct storage_read *read)
{
	add(storage, &storage->needed, read);
}

void storage_ahead(struct storage *storage, const struct storage_read *read)
{
	add(storage, &storage->ahead, read);
}

bool storage_hurry(struct storage *storage, uint32_t expert, uint64_t ns)
{
	uint32_t i;

	storage_run(storage, ns);
	if (!find(&storage->ahead, expert, &i))
		return false;
	storage->needed.reads[storage->needed.count++] =
		take_off(&storage->ahead, i);
	return true;
}

bool storage_complete(struct storage *storage, uint64_t ns, uint32_t *expert)
{
	storage_run(storage, ns);
	if (!storage->complete.count || storage->complete.reads[0].time_ns > ns)
		return false;
	*expert = take_off(&storage->complete, 0).expert;
	return true;
}

bool storage_when(const struct storage *storage, uint32_t expert,
		  uint64_t *ns)
{
	uint32_t at, i;

	if (!find(&storage->needed, expert, &at))
		return false;
	*ns = storage->now_ns;
	for (i = 0; i <= at; i++)
		*ns += storage->needed.reads[i].left_ns;
	return true;
}

bool storage_next(const struct storage *storage, uint64_t *ns)
{
	const struct storage_list *list = storage->needed.count ?
					  &storage->needed : &storage->ahead;

	if (storage->complete.count)
		*ns = storage->complete.reads[0].time_ns;
	else if (list->count)
		*ns = storage->now_ns + list->reads[0].left_ns;
	else
		return false;
	return true;
}

bool storage_cancel(struct storage *storage, uint32_t expert)
{
	uint32_t i;

	if (!find(&storage->ahead, expert, &i))
		return false;
	take_off(&storage->ahead, i);
	return true;
}
