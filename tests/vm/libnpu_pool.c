// SPDX-License-Identifier: MIT
/* libnpu on a board: shared pools, fragmented ones, windows. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <npu/npu.h>
#include "board.h"
#include "buffer.h"
#include "pool.h"
#include "size.h"
#include "span.h"
#include "window.h"

#define MIB (1ull << 20)

static struct npu_buffer *make(struct npu_pool *pool, uint64_t size)
{
	struct npu_buffer *buffer = NULL;
	uint64_t addr = 0;

	fine(npu_buffer_create(pool, size, 0, &addr, &buffer) == 0,
	     "a buffer of %s", npu_size(size).text);
	return buffer;
}

/* A word of its own at every page. */
static void stamp(struct npu_buffer *buffer)
{
	char *p = npu_buffer_map(buffer);
	uint64_t i;

	for (i = 0; i < buffer->size; i += 4096)
		memcpy(p + i, &i, sizeof(i));
}

static bool stamped(struct npu_buffer *buffer)
{
	const char *p = npu_buffer_map(buffer);
	uint64_t i;

	for (i = 0; i < buffer->size; i += 4096)
		if (memcmp(p + i, &i, sizeof(i)))
			return false;
	return true;
}

static void test_fragmented(struct npu_device *device)
{
	struct npu_buffer *low, *middle, *large;
	struct npu_defrag_report report;
	struct npu_pool *pool;
	uint64_t addr;

	if (!fine(npu_pool_create(device, 352 * MIB, 0, 1, &pool) == 0,
		  "a pool"))
		return;
	low = make(pool, 96 * MIB);
	middle = make(pool, 96 * MIB);
	stamp(middle);
	addr = middle->addr;
	npu_buffer_destroy(low);
	large = make(pool, 224 * MIB);
	ok(large && stamped(middle) && middle->addr == addr,
	   "room is put together, and what moved is as it was");
	npu_buffer_destroy(large);
	fine(npu_pool_defrag(pool, 0, &report) == 0 &&
	     report.free == 256 * MIB, "defrag by hand");
	printf("# %s -> %s, moved %u, copied %s (device %s), %.1f ms\n",
	       npu_size(report.largest_before).text,
	       npu_size(report.largest_after).text, report.buffers,
	       npu_size(report.copied).text,
	       npu_size(report.copied_device).text, report.time_ns * 1e-6);
	npu_buffer_destroy(middle);
	npu_pool_destroy(pool);
}

static void test_windows(struct npu_device *device)
{
	struct npu_span span;
	const struct npu_span *spans[] = { &span };
	struct npu_pool_info info;
	struct npu_pool *pool;
	uint32_t windows;

	if (!fine(npu_pool_create(device, 856 * MIB, 0, 1, &pool) == 0,
		  "a pool"))
		return;
	fine(npu_span_init(&span, pool, 600 * MIB, 256 * MIB,
			   NPU_BUFFER_READONLY, true) == 0 &&
	     npu_span_populate(&span, 0, 600 * MIB) == 0, "a span");
	ok(span.windows, "is aligned");
	memset(span.cpu + 511 * MIB, 0x5a, 2 * MIB);
	windows = npu_windows_map(spans, 1);
	ok(windows == 3, "%u windows", windows);
	ok(span.cpu[511 * MIB] == 0x5a && span.cpu[513 * MIB - 1] == 0x5a &&
	   !span.cpu[599 * MIB], "the contents stay");
	ok(npu_pool_info(pool, &info) == 0 && info.pinned == 600 * MIB,
	   "and are pinned");
	npu_span_clear(&span);
	ok(npu_pool_info(pool, &info) == 0 && !info.pinned && !info.used,
	   "all of it goes");
	npu_pool_destroy(pool);
}

static void test_limit(struct npu_device *device)
{
	struct npu_device *other = NULL;
	struct npu_buffer *mine, *theirs = NULL;
	struct npu_pool *made, *opened = NULL;
	struct npu_pool_info info;
	uint64_t addr = 0;

	if (!fine(npu_pool_create_persistent(device, 64 * MIB, 1, 40 * MIB,
					     &made) == 0, "a persistent pool"))
		return;
	mine = make(made, 30 * MIB);
	ok(npu_buffer_create(made, 20 * MIB, 0, &addr, &theirs) == -EDQUOT,
	   "over the limit: %s", npu_error());
	fine(npu_device_open(0, &other) == 0 &&
	     npu_pool_open(other, made->id, &opened) == 0, "opened elsewhere");
	theirs = make(opened, 20 * MIB);
	ok(npu_pool_info(opened, &info) == 0 && info.client_used == 20 * MIB &&
	   info.used == 50 * MIB && info.client_limit == 40 * MIB,
	   "everybody has a share");
	ok(npu_pool_remove(other, made->id) == -EBUSY, "in use: %s",
	   npu_error());
	npu_buffer_destroy(theirs);
	npu_pool_destroy(opened);
	npu_device_close(other);
	stamp(mine);
	ok(stamped(mine), "mine is still there");
	npu_buffer_destroy(mine);
	ok(npu_pool_remove(device, made->id) == 0, "removed");
	npu_pool_close(made);
}

/* ---- A model that is moved while it runs ---- */

struct mover {
	uint32_t pool;
	atomic_bool stop;
	unsigned int rounds, moved;
	uint64_t pause_ns, copied_device;
};

/* Makes holes and closes them again, from a device of its own. */
static void *move(void *arg)
{
	struct mover *m = arg;
	struct npu_defrag_report report;
	struct npu_device *device;
	struct npu_pool *pool;

	if (npu_device_open(0, &device) ||
	    npu_pool_open(device, m->pool, &pool))
		return NULL;
	while (!atomic_load(&m->stop)) {
		if (npu_pool_defrag(pool, 0, &report))
			break;
		m->rounds++;
		m->moved += report.buffers;
		m->copied_device += report.copied_device;
		if (report.pause_ns > m->pause_ns)
			m->pause_ns = report.pause_ns;
	}
	npu_pool_close(pool);
	npu_device_close(device);
	return NULL;
}

static int generate(struct npu_model *model, int32_t *out, int count)
{
	struct npu_step_result result;
	struct npu_step_token t = { .token = 5, .out = true };
	int i;

	for (i = 0; i < count; i++) {
		t.position = (uint32_t)i;
		if (npu_model_step(model, &t, 1, &result)) {
			printf("# %s\n", npu_error());
			return -1;
		}
		out[i] = t.token = result.topk_ids[0];
	}
	return 0;
}

static void test_model(struct npu_device *device, const char *path)
{
	int32_t expected[40], answer[40];
	struct npu_model *model = NULL;
	struct npu_pool *pool;
	struct npu_model_info info = { 0 };
	struct npu_buffer *hole;
	struct mover mover = { 0 };
	pthread_t thread;

	if (!fine(npu_pool_create_persistent(device, 128 * MIB, 1, 0,
					     &pool) == 0, "a persistent pool"))
		return;
	hole = make(pool, 40 * MIB);
	fine(npu_model_load(device, path, NULL, &model) == 0,
	     "a model beside it");
	if (!model)
		return;
	npu_model_info(model, &info);
	ok(info.pool_id == pool->id, "in the pool that is there");
	generate(model, expected, 40);
	npu_buffer_destroy(hole);
	mover.pool = pool->id;
	pthread_create(&thread, NULL, move, &mover);
	ok(generate(model, answer, 40) == 0 &&
	   !memcmp(answer, expected, sizeof(answer)),
	   "answers the same while it is moved");
	atomic_store(&mover.stop, true);
	pthread_join(thread, NULL);
	ok(mover.moved > 0, "moved it was");
	printf("# %u rounds, %u moves, device copied %s, worst pause %.1f ms\n",
	       mover.rounds, mover.moved,
	       npu_size(mover.copied_device).text, mover.pause_ns * 1e-6);
	npu_model_free(model);
	ok(npu_pool_remove(device, pool->id) == 0, "removed");
	npu_pool_close(pool);
}

int main(int argc, char **argv)
{
	struct npu_device *device;

	if (!fine(npu_device_open(0, &device) == 0, "device"))
		return done();
	test_fragmented(device);
	test_windows(device);
	test_limit(device);
	if (argc > 1)
		test_model(device, argv[1]);
	npu_device_close(device);
	return done();
}
