// SPDX-License-Identifier: MIT
/* Pools, windows, and which pool a model takes, on a driver that is none. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <drm/m6npu_accel.h>
#include <npu/npu.h>
#include "../tap.h"
#include "buffer.h"
#include "builder.h"
#include "fake_drm.h"
#include "pool.h"
#include "window.h"

#define KIB	(1ull << 10)
#define MIB	(1ull << 20)
#define GIB	(1ull << 30)

static bool says(const char *text)
{
	return strstr(npu_error(), text);
}

/* ---- Pools ---- */

static void test_life(void)
{
	struct npu_pool *made = NULL, *opened = NULL, *own = NULL;
	struct npu_pool_info infos[4];
	struct npu_device *device;

	fake_reset();
	device = fake_open();
	ok(npu_pool_list(device, infos, 4) == 0, "no pools at first");
	ok(npu_pool_create_persistent(device, 4 * GIB, 2, GIB, &made) == 0 &&
	   npu_pool_create(device, MIB, 0, 1, &own) == 0, "two pools");
	ok(npu_pool_list(device, NULL, 0) == 2 &&
	   npu_pool_list(device, infos, 4) == 2 && infos[0].id < infos[1].id &&
	   infos[0].size == MIB && !infos[0].flags &&
	   infos[1].flags == NPU_POOL_PERSISTENT &&
	   infos[1].client_limit == GIB, "are listed");
	ok(npu_pool_open(device, infos[1].id, &opened) == 0, "and opened");
	npu_pool_destroy(opened);
	npu_pool_close(made);
	npu_pool_destroy(own);
	ok(npu_pool_list(device, infos, 4) == 1 && infos[0].size == 4 * GIB,
	   "closing destroys no pool, and opened ones stay");
	ok(npu_pool_open(device, 77, &opened) == -ENOENT && says("77") &&
	   npu_pool_open(device, 0, &opened) == -ENOENT, "none such: %s",
	   npu_error());
	ok(npu_pool_remove(device, infos[0].id) == 0 &&
	   npu_pool_list(device, infos, 4) == 0, "removed by id");
	ok(npu_pool_remove(device, 77) == -ENOENT, "once: %s", npu_error());
	npu_pool_destroy(NULL);
	npu_pool_close(NULL);
	fake_close(device);
}

static void test_vanishing(void)
{
	struct npu_device *device;
	struct npu_pool *pool;

	fake_reset();
	device = fake_open();
	npu_pool_create_persistent(device, MIB, 1, 0, &pool);
	npu_pool_close(pool);
	fake.fail_request = DRM_IOCTL_M6NPU_POOL_INFO;
	fake.fail_error = -ENOENT;
	fake.fail_after = 1;
	ok(npu_pool_list(device, NULL, 0) == 1,
	   "a pool that goes while they are listed");
	fake_close(device);
}

static void test_create_errors(void)
{
	static const struct {
		int error;
		const char *help;
	} rows[] = {
		{ -ENOMEM, "more segments" },
		{ -EDQUOT, "client_percent" },
		{ -EIO, "dmesg" },
		{ -ERANGE, "cma=" },
		{ -ENOSPC, "--release" },
		{ -EPERM, "root" },
		{ -EINVAL, "16 segments" },
	};
	struct npu_device *device;
	struct npu_pool *pool;
	unsigned int i;

	fake_reset();
	device = fake_open();
	npu_pool_create(device, 3 * GIB, 0, 1, &pool);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct npu_pool *none = NULL;

		fake.fail_request = DRM_IOCTL_M6NPU_POOL_CREATE;
		fake.fail_error = rows[i].error;
		fake.fail_after = 0;
		ok(npu_pool_create(device, 5 * GIB, 0, 1, &none) ==
		   rows[i].error && !none && says(rows[i].help) &&
		   says("5 GiB") && says("3 GiB free") && says("area 29 GiB"),
		   "%s", npu_error());
	}
	npu_pool_destroy(pool);
	fake_close(device);
}

static void test_reports(void)
{
	struct npu_defrag_report defrag;
	struct npu_flush_report flush;
	struct npu_device *device;
	struct npu_pool *pool;

	fake_reset();
	device = fake_open();
	npu_pool_create(device, GIB, 0, 1, &pool);
	ok(npu_pool_flush(pool, &flush) == 0 && flush.freed == 4096 &&
	   flush.released == 8192 && flush.largest_free == GIB, "flush");
	ok(npu_pool_defrag(pool, 0, &defrag) == 0 &&
	   defrag.largest_before == GIB && defrag.largest_after == GIB &&
	   defrag.free == GIB && !defrag.moved, "defrag");
	ok(npu_pool_defrag(pool, 1u << 9, &defrag) == -EINVAL, "flags: %s",
	   npu_error());
	fake.fail_request = DRM_IOCTL_M6NPU_POOL_DEFRAG;
	fake.fail_error = -EBUSY;
	ok(npu_pool_defrag(pool, NPU_DEFRAG_NO_DRAIN, &defrag) == -EBUSY,
	   "busy: %s", npu_error());
	npu_pool_destroy(pool);
	fake_close(device);
}

/* ---- Fragmented pools ---- */

static struct npu_buffer *make(struct npu_pool *pool, uint64_t size)
{
	struct npu_buffer *buffer = NULL;
	uint64_t addr = 0;

	if (npu_buffer_create(pool, size, 0, &addr, &buffer))
		printf("# %s\n", npu_error());
	return buffer;
}

/* A pool of 352 MiB, with a buffer in its middle. */
static struct npu_buffer *fragment(struct npu_pool *pool)
{
	struct npu_buffer *low = make(pool, 96 * MIB);
	struct npu_buffer *middle = make(pool, 96 * MIB);

	npu_buffer_destroy(low);
	return middle;
}

static void test_fragmented(void)
{
	struct npu_buffer *middle, *large;
	struct npu_device *device;
	struct npu_pool *pool;
	uint64_t addr = 0;

	fake_reset();
	device = fake_open();
	npu_pool_create(device, 352 * MIB, 0, 1, &pool);
	middle = fragment(pool);
	large = make(pool, 200 * MIB);
	ok(large && fake.defrags == 1, "a fragmented pool is put in order");
	ok(npu_buffer_create(pool, 100 * MIB, 0, &addr, &large) == -ENOSPC &&
	   says("100 MiB") && says("296 MiB of 352 MiB") && says("--size"),
	   "a full one is not: %s", npu_error());
	npu_buffer_destroy(large);

	/* Again, and now nothing may move. */
	npu_buffer_destroy(middle);
	middle = fragment(pool);
	fake.defrags = 0;
	((struct fake_buffer *)fake_buffer(middle->handle))->pinned = true;
	ok(npu_buffer_create(pool, 200 * MIB, 0, &addr, &large) == -ENOBUFS &&
	   fake.defrags == 1 && says("96 MiB of them pinned") &&
	   says("max_chunk_size_kb"), "tried once: %s", npu_error());
	npu_buffer_destroy(middle);
	npu_pool_destroy(pool);
	fake_close(device);
}

static void test_buffer_errors(void)
{
	static const struct {
		int error;
		const char *help;
	} rows[] = {
		{ -EDQUOT, "--client-limit" },
		{ -EADDRINUSE, "choose another" },
		{ -EINVAL, "4 KiB" },
		{ -ENOENT, "released" },
	};
	struct npu_device *device;
	struct npu_buffer *none;
	struct npu_pool *pool;
	uint64_t addr = 0;
	unsigned int i;

	fake_reset();
	device = fake_open();
	npu_pool_create_persistent(device, 2 * GIB, 1, GIB, &pool);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		fake.fail_request = DRM_IOCTL_M6NPU_BO_CREATE;
		fake.fail_error = rows[i].error;
		fake.fail_after = 0;
		ok(npu_buffer_create(pool, 12345 << 10, 0, &addr, &none) ==
		   rows[i].error && says(rows[i].help) && says("12.06 MiB") &&
		   says("at most 1 GiB"), "%s", npu_error());
	}
	npu_pool_destroy(pool);
	fake_close(device);
}

/* ---- Windows ---- */

static bool aligned(const struct npu_span *span)
{
	uint32_t i;

	for (i = 0; i < span->buffer_count; i++) {
		const struct npu_buffer *b = span->buffers[i];

		if (b->addr % NPU_WINDOW_ALIGN ||
		    b->addr != span->addr + i * span->chunk ||
		    fake_buffer(b->handle)->start % NPU_WINDOW_ALIGN)
			return false;
	}
	return true;
}

/*
 * A span of @size in buffers of @chunk, in a pool with @slack more, and the
 * windows that it gets.
 */
static uint32_t map_span(struct npu_device *device, struct npu_span *span,
			 uint64_t size, uint64_t chunk, uint64_t slack)
{
	const struct npu_span *spans[] = { span };
	struct npu_pool *pool;

	if (npu_pool_create(device, size + slack, 0, 1, &pool) ||
	    npu_span_init(span, pool, size, chunk, NPU_BUFFER_READONLY, true) ||
	    npu_span_populate(span, 0, size)) {
		printf("# %s\n", npu_error());
		exit(1);
	}
	return npu_windows_map(spans, 1);
}

static void clear_span(struct npu_span *span)
{
	struct npu_pool *pool = span->pool;

	npu_span_clear(span);
	npu_pool_destroy(pool);
}

static void test_windows(void)
{
	struct npu_device *device;
	struct npu_span span;
	uint64_t addr;

	fake_reset();
	device = fake_open();
	/* So that the next address is no multiple of 256 MiB. */
	npu_va_take(&device->va, 1, NPU_LARGE_PAGE, &addr);
	ok(map_span(device, &span, 4000 * MIB, 1792 * MIB, 256 * MIB) == 3 &&
	   aligned(&span), "buffers side by side, each behind a window");
	ok(fake.windows[0].size == 1792 * MIB &&
	   fake.windows[2].size == 416 * MIB, "the largest first");
	clear_span(&span);
	ok(!fake.windows[0].size && !fake.windows[2].size, "gone with them");

	ok(map_span(device, &span, 5 * GIB, 8 * GIB, 256 * MIB) == 3 &&
	   fake.windows[0].size == 2 * GIB && fake.windows[1].offset == 2 * GIB &&
	   fake.windows[2].size == GIB,
	   "a buffer larger than a window gets several");
	clear_span(&span);

	ok(map_span(device, &span, 18 * 256 * MIB, 256 * MIB, 256 * MIB) ==
	   16 && aligned(&span), "as many as there are");
	clear_span(&span);

	ok(map_span(device, &span, 512 * MIB, 512 * MIB, 0) == 0 &&
	   !span.windows, "no room to align: a span without windows");
	clear_span(&span);
	fake_close(device);
}

/* ---- Models ---- */

static char model_path[64];

/* With @more bytes of weights, zeros. */
static void write_model(uint64_t more)
{
	char *zeros = more ? calloc(1, more) : NULL;
	struct builder b;

	snprintf(model_path, sizeof(model_path),
		 "/tmp/npu-test-pool-%d.npu", getpid());
	builder_init(&b);
	/* Large enough that a pool can be too small for it. */
	b.header.runtime.scratch_bytes = 200 * MIB;
	if (zeros) {
		builder_add(&b, NPU_SECTION_STATIC, NPU_ENCODING_ZSTD, zeros,
			    more)->dest = b.header.runtime.weights_bytes;
		b.header.runtime.weights_bytes += more;
		b.header.runtime.chunk_bytes = (uint32_t)more;
	}
	free(zeros);
	builder_place(&b);
	builder_seal(&b);
	builder_write(&b, model_path);
	builder_clear(&b);
}

static struct npu_model *load(struct npu_device *device, bool private_pool,
			      struct npu_model_info *info)
{
	const struct npu_model_options options = {
		.size = sizeof(options),
		.private_pool = private_pool,
	};
	struct npu_model *model = NULL;

	memset(info, 0, sizeof(*info));
	if (npu_model_load(device, model_path, &options, &model))
		printf("# %s\n", npu_error());
	else
		npu_model_info(model, info);
	return model;
}

static uint32_t preallocate(struct npu_device *device, uint64_t size,
			    uint64_t limit)
{
	struct npu_pool *pool;
	uint32_t id = 0;

	if (npu_pool_create_persistent(device, size, 1, limit, &pool)) {
		printf("# %s\n", npu_error());
	} else {
		id = pool->id;
		npu_pool_close(pool);
	}
	fake.pools_created = 0;
	return id;
}

static void test_shared(void)
{
	struct npu_device *device, *other;
	struct npu_model *model, *second;
	struct npu_model_info info;
	struct npu_pool_info pool;
	uint32_t id;

	fake_reset();
	device = fake_open();
	other = fake_open();
	model = load(device, false, &info);
	ok(model && fake.pools_created == 1, "a pool of its own");
	npu_model_free(model);
	ok(npu_pool_list(device, NULL, 0) == 0, "that goes with it");

	id = preallocate(device, GIB, 0);
	model = load(device, false, &info);
	ok(model && info.pool_id == id && info.pool_bytes == GIB &&
	   !fake.pools_created, "a preallocated pool is taken");
	second = load(other, false, &info);
	ok(second && info.pool_id == id && !fake.pools_created,
	   "by several programs");
	npu_model_free(second);
	second = load(other, true, &info);
	ok(second && info.pool_id != id && fake.pools_created == 1,
	   "unless they want their own");
	npu_model_free(second);
	npu_model_free(model);
	ok(npu_pool_list(device, &pool, 1) == 1 && pool.id == id &&
	   !pool.buffers, "it stays, empty");
	fake_close(other);
	fake_close(device);
}

static void test_unsuitable(void)
{
	struct npu_device *device;
	struct npu_model_info info;
	struct npu_model *model;
	uint32_t small, limited, large;

	fake_reset();
	device = fake_open();
	small = preallocate(device, 100 * MIB, 0);
	limited = preallocate(device, 4 * GIB, 50 * MIB);
	model = load(device, false, &info);
	ok(small && limited && model && fake.pools_created == 1,
	   "pools that are too small or would be over their limit");
	npu_model_free(model);
	preallocate(device, GIB, 0);
	large = preallocate(device, 2 * GIB, 0);
	preallocate(device, GIB, 0);
	model = load(device, false, &info);
	ok(model && info.pool_id == large, "the one with the largest block");
	npu_model_free(model);
	/* Between the look and the taking, somebody else was faster. */
	fake.fail_request = DRM_IOCTL_M6NPU_BO_CREATE;
	fake.fail_error = -ENOSPC;
	fake.fail_after = 4;
	model = load(device, false, &info);
	ok(model && info.pool_id != large && fake.pools_created == 1,
	   "what does not work out goes on in an own pool");
	npu_model_free(model);
	ok(npu_pool_list(device, NULL, 0) == 5, "and nothing stays behind");
	/* No room anywhere. */
	npu_pool_remove(device, large);
	fake.cma_bytes = MIB;
	fake.fail_request = DRM_IOCTL_M6NPU_BO_CREATE;
	fake.fail_after = 0;
	ok(!load(device, false, &info), "no room anywhere: %s", npu_error());
	fake_close(device);
}

static void test_shared_fragmented(void)
{
	struct npu_buffer *low, *middle;
	struct npu_device *device;
	struct npu_model_info info;
	struct npu_model *model;
	struct npu_pool *pool;
	uint32_t id;

	fake_reset();
	device = fake_open();
	id = preallocate(device, 500 * MIB, 0);
	npu_pool_open(device, id, &pool);
	/* 191 MiB free, 96 used, 213 free; the model needs 224. */
	low = make(pool, 160 * MIB);
	middle = make(pool, 96 * MIB);
	npu_buffer_destroy(low);
	model = load(device, false, &info);
	ok(model && info.pool_id == id && fake.defrags == 1 &&
	   !fake.pools_created, "a fragmented one is defragmented");
	npu_model_free(model);
	npu_buffer_destroy(middle);
	npu_pool_close(pool);
	fake_close(device);
}

/* What the options for reading ahead come to. */
static void test_thresholds(void)
{
	static const struct {
		bool on_demand;
		uint32_t permille, low, high, want;
		const char *what;
	} cases[] = {
		{ false, 0, 0, 0, 0, "all there: the device's own" },
		{ false, 700, 0, 0, 700, "all there: what is asked for" },
		{ false, 0, 300, 900, NPU_PREFETCH_DEFAULT,
		  "all there: the default within limits" },
		{ true, 0, 0, 0, NPU_PREFETCH_DEFAULT, "the default" },
		{ true, 0, 300, 700, 700, "limited" },
		{ true, NPU_PREFETCH_OFF, 0, 0, NPU_PREFETCH_OFF, "none" },
	};
	struct npu_device *device;
	size_t i;

	fake_reset();
	device = fake_open();
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct npu_model_options options = {
			.size = sizeof(options),
			.experts_on_demand = cases[i].on_demand,
			.prefetch_permille = cases[i].permille,
			.prefetch_low = cases[i].low,
			.prefetch_high = cases[i].high,
		};
		struct npu_model_info info = { 0 };
		struct npu_model *model = NULL;

		if (!npu_model_load(device, model_path, &options, &model))
			npu_model_info(model, &info);
		ok(model && info.prefetch_permille == cases[i].want,
		   "threshold, %s", cases[i].what);
		npu_model_free(model);
	}
	fake_close(device);
}

static void test_model_windows(void)
{
	struct npu_device *device;
	struct npu_model_info info;
	struct npu_model *model;
	uint64_t large;

	fake_reset();
	device = fake_open();
	model = load(device, false, &info);
	ok(model && info.windows == 1 &&
	   fake.windows[0].size == 256 * MIB + 12 * KIB,
	   "large weights get a window");
	npu_model_free(model);
	/* Room for the model, but not for aligning as well. */
	large = info.pool_bytes;
	fake.cma_bytes = large - MIB;
	model = load(device, false, &info);
	ok(model && info.pool_bytes == large - 256 * MIB,
	   "the pool may be smaller than that wants");
	npu_model_free(model);
	fake_close(device);
}

int main(void)
{
	test_life();
	test_vanishing();
	test_create_errors();
	test_reports();
	test_fragmented();
	test_buffer_errors();
	test_windows();
	write_model(0);
	test_shared();
	test_unsuitable();
	test_shared_fragmented();
	test_thresholds();
	write_model(256 * MIB);
	test_model_windows();
	unlink(model_path);
	return done();
}
