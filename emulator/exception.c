// SPDX-License-Identifier: MIT
#include "exception.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

void m6_exceptions_init(struct m6_exceptions *exc, struct m6_memory *mem)
{
	memset(exc, 0, sizeof(*exc));
	pthread_mutex_init(&exc->lock, NULL);
	exc->mem = mem;
}

void m6_exceptions_destroy(struct m6_exceptions *exc)
{
	pthread_mutex_destroy(&exc->lock);
}

void m6_exceptions_reset(struct m6_exceptions *exc)
{
	m6_exceptions_restart(exc, 0);
	pthread_mutex_lock(&exc->lock);
	exc->size = 0;
	pthread_mutex_unlock(&exc->lock);
}

int m6_exceptions_set_size(struct m6_exceptions *exc, uint32_t size)
{
	if (size < M6_EXCEPTION_RING_MIN || size > M6_EXCEPTION_RING_MAX ||
	    size & (size - 1))
		return -EINVAL;
	pthread_mutex_lock(&exc->lock);
	exc->size = size;
	pthread_mutex_unlock(&exc->lock);
	return 0;
}

void m6_exceptions_restart(struct m6_exceptions *exc, uint64_t base)
{
	pthread_mutex_lock(&exc->lock);
	exc->base = base;
	exc->entries = base ? exc->size : 0;
	exc->head = 0;
	exc->tail = 0;
	exc->dropped = 0;
	pthread_mutex_unlock(&exc->lock);
}

void m6_exceptions_set_head(struct m6_exceptions *exc, uint32_t head)
{
	pthread_mutex_lock(&exc->lock);
	exc->head = head;
	pthread_mutex_unlock(&exc->lock);
}

void m6_exceptions_read(struct m6_exceptions *exc,
			struct m6_exceptions_state *state)
{
	pthread_mutex_lock(&exc->lock);
	*state = (struct m6_exceptions_state) {
		.size = exc->size,
		.head = exc->head,
		.tail = exc->tail,
		.dropped = exc->dropped,
	};
	pthread_mutex_unlock(&exc->lock);
}

static bool exceptions_write(struct m6_exceptions *exc,
			     struct m6npu_exception *record)
{
	uint64_t addr;

	/* A head the host made up counts as a full ring. */
	if (!exc->entries || exc->tail - exc->head >= exc->entries)
		return false;
	addr = exc->base + (uint64_t)(exc->tail % exc->entries) *
			   sizeof(*record);
	record->seq = (uint64_t)exc->tail + 1;
	if (m6_memory_write(exc->mem, addr + sizeof(record->seq),
			    (char *)record + sizeof(record->seq),
			    sizeof(*record) - sizeof(record->seq)))
		return false;
	return !m6_memory_publish(exc->mem, addr, record->seq);
}

bool m6_exceptions_post(struct m6_exceptions *exc,
			struct m6npu_exception *record)
{
	bool written;

	_Static_assert(offsetof(struct m6npu_exception, seq) == 0,
		       "seq is stored by itself, last");
	_Static_assert(sizeof(struct m6npu_exception) == 64, "record size");
	pthread_mutex_lock(&exc->lock);
	written = exceptions_write(exc, record);
	if (written)
		exc->tail++;
	else
		exc->dropped++;
	pthread_mutex_unlock(&exc->lock);
	return written;
}
