// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>

#include "../tap.h"
#include "exception.h"

#define BASE	0x1000u
#define SIZE	16

static _Alignas(64) struct m6npu_exception ring[SIZE];

static bool post(struct m6_exceptions *exc, uint64_t addr)
{
	struct m6npu_exception record = { .code = 0x1a, .addr = addr };

	return m6_exceptions_post(exc, &record);
}

static struct m6_exceptions_state state(struct m6_exceptions *exc)
{
	struct m6_exceptions_state now;

	m6_exceptions_read(exc, &now);
	return now;
}

int main(void)
{
	struct m6_memory mem;
	struct m6_exceptions exc;
	bool good = true;

	m6_memory_init(&mem);
	m6_memory_map(&mem, BASE, sizeof(ring), ring,
		      M6_MAPPING_READ | M6_MAPPING_WRITE, NULL, NULL);
	m6_exceptions_init(&exc, &mem);
	ok(!post(&exc, 1) && state(&exc).dropped == 1, "off: dropped");
	ok(m6_exceptions_set_size(&exc, 8) == -EINVAL &&
	   m6_exceptions_set_size(&exc, 24) == -EINVAL &&
	   m6_exceptions_set_size(&exc, 8192) == -EINVAL, "sizes refused");
	ok(!m6_exceptions_set_size(&exc, SIZE), "a size");
	ok(!post(&exc, 1), "still off before a restart");
	m6_exceptions_restart(&exc, BASE);
	ok(!state(&exc).tail && !state(&exc).dropped, "empty");
	for (uint64_t i = 0; i < SIZE; i++)
		good = good && post(&exc, i);
	for (uint64_t i = 0; i < SIZE; i++)
		good = good && ring[i].seq == i + 1 && ring[i].addr == i &&
		       ring[i].code == 0x1a;
	ok(good, "%d records, numbered from 1", SIZE);
	ok(!post(&exc, 99) && state(&exc).dropped == 1 &&
	   state(&exc).tail == SIZE, "full: dropped");
	m6_exceptions_set_head(&exc, 3);
	ok(post(&exc, 100) && ring[0].seq == SIZE + 1 && ring[0].addr == 100,
	   "wraps");
	m6_exceptions_set_head(&exc, 1000);
	ok(!post(&exc, 1), "a head from nowhere counts as full");
	m6_exceptions_restart(&exc, BASE);
	ok(post(&exc, 7) && ring[0].seq == 1, "a restart counts from 1");
	m6_exceptions_restart(&exc, 0x100000);
	ok(!post(&exc, 1) && state(&exc).dropped == 1, "no memory: dropped");
	m6_exceptions_reset(&exc);
	ok(!state(&exc).size && !state(&exc).dropped, "reset");
	m6_exceptions_destroy(&exc);
	m6_memory_destroy(&mem);
	return done();
}
