// SPDX-License-Identifier: MIT
/* libnpu on a board: device, pools, buffers, router. */
#include <errno.h>
#include <string.h>

#include <npu/npu.h>
#include "board.h"

#define MIB (1ull << 20)

static void test_open(void)
{
	struct npu_device *device;

	ok(npu_device_open(200, &device) == -ENOENT &&
	   strstr(npu_error(), "no such NPU"), "no such device: %s",
	   npu_error());
	ok(npu_device_open(-1, &device) == -ENOENT, "no such number: %s",
	   npu_error());
}

static void test_pools(struct npu_device *device)
{
	struct npu_pool_info info;
	struct npu_pool *pool;

	ok(npu_pool_create(device, 1ull << 37, 0, 1, &pool) == -ENOMEM,
	   "a pool that is too large: %s", npu_error());
	ok(npu_pool_create(device, MIB, 1u << 7, 1, &pool) == -EINVAL,
	   "unknown flags: %s", npu_error());
	if (!fine(npu_pool_create(device, 8 * MIB, 0, 1, &pool) == 0,
		"a pool"))
		return;
	ok(npu_pool_info(pool, &info) == 0 && info.size == 8 * MIB &&
	   info.used == 0 && info.largest_free == 8 * MIB &&
	   info.segments == 1, "is empty and in one piece");
	npu_pool_destroy(pool);
}

static void test_one_buffer(struct npu_pool *pool)
{
	uint64_t addr = 0, other = 1ull << 35;
	struct npu_buffer *buffer, *fixed;
	unsigned char *p;

	if (!fine(npu_buffer_create(pool, 5000, 0, &addr, &buffer) == 0,
		"a buffer"))
		return;
	ok(npu_buffer_size(buffer) == 8192 && addr &&
	   npu_buffer_addr(buffer) == addr, "has whole pages and an address");
	p = npu_buffer_map(buffer);
	if (ok(p && !p[0] && !p[8191], "is mapped and zeroed"))
		memset(p, 0x5a, 8192);
	ok(npu_buffer_map(buffer) == p, "is mapped once");
	fine(npu_buffer_sync_to_device(buffer, 0, 8192) == 0 &&
	   npu_buffer_sync_from_device(buffer, 100, 200) == 0, "sync");
	ok(npu_buffer_sync_to_device(buffer, 8000, 8192) == -EINVAL,
	   "sync beyond its end: %s", npu_error());
	npu_buffer_unmap(buffer);
	p = npu_buffer_map(buffer);
	ok(p && p[4095] == 0x5a, "keeps its contents");
	fine(npu_buffer_create(pool, 4096, NPU_BUFFER_READONLY, &other,
			     &fixed) == 0 && other == 1ull << 35,
	   "a buffer where the caller wants it");
	ok(npu_buffer_create(pool, 4096, 0, &addr, &(struct npu_buffer *){ 0 })
	   == -EADDRINUSE, "not on top of another: %s", npu_error());
	npu_buffer_destroy(fixed);
	npu_buffer_destroy(buffer);
}

static void test_buffers(struct npu_device *device)
{
	struct npu_pool_info info;
	struct npu_buffer *buffer;
	struct npu_pool *pool;
	uint64_t addr = 0;

	if (npu_pool_create(device, 4 * MIB, 0, 1, &pool))
		return;
	ok(npu_buffer_create(pool, 5 * MIB, 0, &addr, &buffer) == -ENOSPC,
	   "a buffer larger than its pool: %s", npu_error());
	test_one_buffer(pool);
	ok(npu_pool_info(pool, &info) == 0 && !info.used && !info.buffers,
	   "buffers go back to the pool");
	npu_pool_destroy(pool);
}

static void test_device(struct npu_device *device)
{
	struct npu_device_info info;

	if (!fine(npu_device_info(device, &info) == 0, "figures"))
		return;
	printf("# %s firmware %s, %u units, %.1f C, %u mW, %llu MHz\n",
	       info.node, info.firmware, info.units,
	       info.temperature_mc / 1000.0, info.power_mw,
	       (unsigned long long)info.frequency_hz / 1000000);
	ok(!strcmp(info.node, "/dev/accel/accel0") && info.units == 4 &&
	   info.router_entries == 128 && info.sram_bytes == 4 << 20 &&
	   info.firmware[0] && info.max_chunk_bytes, "of the hardware");
	ok(info.temperature_mc > 0 && info.temperature_mc < 105000 &&
	   info.frequency_hz >= 300000000 && info.frequency_hz <= 1200000000,
	   "of the moment");
	ok(npu_device_fd(device) >= 0, "the file descriptor");
}

static void test_router(struct npu_device *device)
{
	struct npu_router_stats stats;

	fine(npu_router_set(device, NPU_ROUTER_PRIORITY_LRU) == 0 &&
	   npu_router_set_threshold(device, 850) == 0, "router set");
	ok(npu_router_stats(device, &stats) == 0 &&
	   stats.policy == NPU_ROUTER_PRIORITY_LRU &&
	   stats.threshold_permille == 850, "and read back");
	ok(npu_router_set_threshold(device, 1001) == -EINVAL, "threshold: %s",
	   npu_error());
	ok(npu_router_set(device, (enum npu_router_policy)9) == -EINVAL,
	   "policy: %s", npu_error());
	ok(npu_router_set(device, NPU_ROUTER_LRU) == 0 &&
	   npu_router_set_threshold(device, 950) == 0, "router set back");
}

int main(void)
{
	struct npu_device *device;

	test_open();
	if (!fine(npu_device_open(0, &device) == 0, "device"))
		return done();
	test_device(device);
	test_pools(device);
	test_buffers(device);
	test_router(device);
	npu_device_close(device);
	return done();
}
