// SPDX-License-Identifier: MIT
/* The device's state as one line of JSON. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "core.h"

struct text {
	char *at;
	size_t room;
	bool full;
};

static void __attribute__((format(printf, 2, 3)))
add(struct text *text, const char *format, ...)
{
	va_list args;
	int used;

	va_start(args, format);
	used = vsnprintf(text->at, text->room, format, args);
	va_end(args);
	if (used < 0 || (size_t)used >= text->room) {
		text->full = true;
		return;
	}
	text->at += used;
	text->room -= used;
}

static const char *yes(bool value)
{
	return value ? "true" : "false";
}

static void add_clock(struct text *text, struct m6_device *dev)
{
	struct m6_clock_state c;

	m6_clock_read(&dev->clock, &c);
	add(text, "\"time_ns\":%llu,\"cycles\":%llu,\"mhz\":%u,",
	    (unsigned long long)c.now_ns, (unsigned long long)c.cycles, c.mhz);
	add(text, "\"temp_mc\":%d,\"power_mw\":%u,\"energy_uj\":%llu,",
	    c.sensor_mc, c.power_mw, (unsigned long long)c.energy_uj);
	add(text, "\"throttled\":%s,\"halted\":%s,\"dram_bytes\":%llu,",
	    yes(c.throttled), yes(c.halted), (unsigned long long)c.dram_bytes);
	add(text, "\"link\":{\"speed\":%u,\"width\":%u},", c.link_speed,
	    c.link_width);
	add(text, "\"busy_ns\":[%llu,%llu,%llu,%llu,%llu],",
	    (unsigned long long)c.busy_ns[0], (unsigned long long)c.busy_ns[1],
	    (unsigned long long)c.busy_ns[2], (unsigned long long)c.busy_ns[3],
	    (unsigned long long)c.busy_ns[4]);
}

static void add_rings(struct text *text, struct m6_device *dev)
{
	add(text, "\"rings\":[");
	for (int i = 0; i < M6NPU_RINGS; i++) {
		struct m6_ring *ring = &dev->ring[i];

		pthread_mutex_lock(&ring->lock);
		add(text, "%s{\"enabled\":%s,\"working\":%s,\"stalled\":%s,",
		    i ? "," : "", yes(ring->enabled), yes(ring->working),
		    yes(ring->stalled));
		add(text, "\"hang\":%s,\"head\":%u,\"tail\":%u,\"fence\":%llu,",
		    yes(ring->hang), ring->head, ring->tail,
		    (unsigned long long)ring->fence);
		add(text, "\"progress\":%u}", atomic_load(&ring->progress));
		pthread_mutex_unlock(&ring->lock);
	}
	add(text, "],");
}

static void add_router(struct text *text, struct m6_device *dev)
{
	uint32_t occupancy = m6_router_occupancy(&dev->router);
	struct m6_router_counters c;

	m6_router_counters(&dev->router, &c);
	add(text, "\"router\":{\"used\":%u,\"pinned\":%u,\"hits\":%llu,",
	    occupancy & 0xffff, occupancy >> 16, (unsigned long long)c.hits);
	add(text, "\"misses\":%llu,\"evictions\":%llu,\"faults\":%llu,",
	    (unsigned long long)c.misses, (unsigned long long)c.evictions,
	    (unsigned long long)c.faults);
	add(text, "\"full\":%llu,\"quota\":%u},", (unsigned long long)c.full,
	    m6_router_quota(&dev->router));
}

static void add_sram(struct text *text, struct m6_device *dev)
{
	struct m6_sram_state s;

	m6_sram_read(&dev->slots, &s);
	add(text, "\"sram\":{\"room\":%u,\"used\":%u,\"hits\":%llu,", s.room,
	    s.used, (unsigned long long)s.hits);
	add(text, "\"prefetches\":%llu},", (unsigned long long)s.fetches);
}

static void add_vectors(struct text *text, struct m6_device *dev)
{
	uint64_t raised[M6NPU_VECTORS];

	pthread_mutex_lock(&dev->irqs.lock);
	for (int i = 0; i < M6NPU_VECTORS; i++)
		raised[i] = dev->irqs.raised[i];
	pthread_mutex_unlock(&dev->irqs.lock);
	add(text, "\"vectors\":[");
	for (int i = 0; i < M6NPU_VECTORS; i++)
		add(text, "%s%llu", i ? "," : "",
		    (unsigned long long)raised[i]);
	add(text, "]");
}

int m6_device_status_json(struct m6_device *dev, char *buffer, size_t bytes)
{
	struct text text = { buffer, bytes, false };
	struct m6_exceptions_state exc;

	m6_exceptions_read(&dev->exc, &exc);
	add(&text, "{\"ok\":true,");
	add_clock(&text, dev);
	add_rings(&text, dev);
	add_router(&text, dev);
	add_sram(&text, dev);
	add(&text, "\"tlb\":{\"hits\":%llu,\"misses\":%llu},",
	    (unsigned long long)atomic_load(&dev->mmu.hits),
	    (unsigned long long)atomic_load(&dev->mmu.misses));
	add(&text, "\"stuck_bits\":%u,", atomic_load(&dev->mem.stuck.count));
	add(&text, "\"exceptions\":{\"head\":%u,\"tail\":%u,\"dropped\":%u},",
	    exc.head, exc.tail, exc.dropped);
	add_vectors(&text, dev);
	add(&text, "}");
	return text.full ? -ENOSPC : 0;
}
