// SPDX-License-Identifier: MIT
/* Memory layout, choice of tiles, device addresses. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <npu/npu.h>
#include "../tap.h"
#include "buffer.h"
#include "builder.h"
#include "layout.h"
#include "span.h"

#define MIB (1ull << 20)
#define LARGE NPU_LARGE_PAGE
#define WINDOW NPU_WINDOW_ALIGN

static struct npu_file *open_tiny(struct builder *b)
{
	struct npu_file *file = NULL;
	char path[64];

	snprintf(path, sizeof(path), "/tmp/npu-test-layout-%d.npu", getpid());
	builder_place(b);
	builder_seal(b);
	builder_write(b, path);
	if (npu_file_open(path, &file))
		printf("# %s\n", npu_error());
	unlink(path);
	return file;
}

static void test_plan(void)
{
	struct npu_layout_request request = { .max_chunk = 1843200ull << 10 };
	struct npu_layout l;
	struct npu_file *file;
	struct builder b;

	builder_init(&b);
	file = open_tiny(&b);
	ok(npu_layout_plan(&l, file, &request) == 0, "plan: %s", npu_error());
	ok(l.slots == 1 && l.max_seq == 64, "defaults");
	ok(l.kv_slot_stride == 2 * 2 * 64 * 2 * 32 * 2, "KV cache in f16");
	ok(l.chunk == 1792 * MIB, "chunks are whole large pages");
	ok(l.commands == 192, "command lists");
	ok(l.experts == 3 * 1024 + 3 * 960, "experts are aligned to 64");
	ok(l.pool >= l.weights + l.scratch + l.kv + l.io + l.experts &&
	   l.pool < 128 << 10, "a small pool for a small model");

	request.slots = 3;
	request.max_seq = 10;
	request.kv_q8_0 = true;
	ok(npu_layout_plan(&l, file, &request) == 0 &&
	   l.kv_slot_stride == (2 * 2 * 10 * 68 + 63) / 64 * 64 &&
	   l.kv == 3 * l.kv_slot_stride, "KV cache in Q8_0");
	request.max_seq = 65;
	ok(npu_layout_plan(&l, file, &request) == -EINVAL,
	   "longer than the model: %s", npu_error());
	request.max_seq = 0;
	request.slots = 100000;
	ok(npu_layout_plan(&l, file, &request) == -EINVAL, "slots: %s",
	   npu_error());
	request.slots = 0;
	request.max_chunk = 5000;
	ok(npu_layout_plan(&l, file, &request) == 0 && l.chunk == 4096,
	   "small chunks");
	npu_file_close(file);
	builder_clear(&b);
}

static void test_limits(void)
{
	struct npu_layout_request request = { 0 };
	struct npu_layout l;
	struct npu_file *file;
	struct builder b;

	builder_init(&b);
	b.header.runtime.kv_layers = 4096;
	b.header.runtime.kv_heads = 4096;
	b.header.runtime.head_dim = 4096;
	b.header.runtime.context_length = 1 << 24;
	file = open_tiny(&b);
	ok(npu_layout_plan(&l, file, &request) == -ENOSPC,
	   "a KV cache beyond the address space: %s", npu_error());
	npu_file_close(file);
	builder_clear(&b);

	builder_init(&b);
	b.header.runtime.step_offset = 16384 - 32;
	file = open_tiny(&b);
	ok(npu_layout_plan(&l, file, &request) == -EBADMSG,
	   "no room for the step block: %s", npu_error());
	npu_file_close(file);
	builder_clear(&b);

	builder_init(&b);
	b.header.runtime.head_dim = 20;
	file = open_tiny(&b);
	request.kv_q8_0 = true;
	ok(npu_layout_plan(&l, file, &request) == -EINVAL,
	   "heads that Q8_0 does not suit: %s", npu_error());
	npu_file_close(file);
	builder_clear(&b);
}

static void test_large(void)
{
	struct npu_layout_request request = {
		.max_chunk = 64 * MIB,
	};
	struct npu_layout l;
	struct npu_file *file;
	struct builder b;

	builder_init(&b);
	b.header.runtime.scratch_bytes = 200 * MIB;
	file = open_tiny(&b);
	ok(npu_layout_plan(&l, file, &request) == 0 && l.chunk == 64 * MIB,
	   "chunks of whole large pages");
	ok(l.pool >= 200 * MIB, "the pool holds it");
	ok(!l.weights_windows && !l.experts_windows && !l.window_slack,
	   "small weights get no windows");
	request.max_chunk = 600 * MIB;
	ok(npu_layout_plan(&l, file, &request) == 0 && l.chunk == 512 * MIB,
	   "chunks of what windows are aligned to");
	request.max_chunk = 255 * MIB;
	ok(npu_layout_plan(&l, file, &request) == 0 && l.chunk == 224 * MIB,
	   "unless that is more than they may be");
	npu_file_close(file);
	builder_clear(&b);
}

static void test_tiles(void)
{
	struct npu_file *file;
	struct npu_tile *tiles;
	struct builder b;
	uint32_t count;
	uint64_t bytes;

	builder_init(&b);
	file = open_tiny(&b);
	tiles = npu_layout_tiles(file, &count, &bytes);
	ok(count == 2 && tiles[0].tokens == 1 && tiles[1].tokens == 4 &&
	   tiles[1].offset == 64 && tiles[1].commands == 2,
	   "tiles are sorted and packed");
	ok(npu_tile_for(tiles, count, 1)->tokens == 1 &&
	   npu_tile_for(tiles, count, 2)->tokens == 4 &&
	   npu_tile_for(tiles, count, 4)->tokens == 4 &&
	   !npu_tile_for(tiles, count, 5), "the smallest tile is taken");
	free(tiles);
	npu_file_close(file);
	builder_clear(&b);
}

static void test_addresses(void)
{
	struct npu_va va = { 0 };
	uint64_t a = 0, b = 0, c = 0, d = 0;

	ok(npu_va_take(&va, 1, LARGE, &a) == 0 && a == NPU_VA_BASE &&
	   npu_va_take(&va, 33 * MIB, LARGE, &b) == 0 && b == a + 32 * MIB &&
	   npu_va_take(&va, 32 * MIB, LARGE, &c) == 0 && c == b + 64 * MIB,
	   "addresses are aligned and do not overlap");
	npu_va_give(&va, b);
	ok(npu_va_take(&va, 65 * MIB, LARGE, &d) == 0 && d == c + 32 * MIB &&
	   npu_va_take(&va, 64 * MIB, LARGE, &d) == 0 && d == b,
	   "holes are used when they fit");
	ok(npu_va_take(&va, NPU_VA_END, LARGE, &d) == -ENOSPC,
	   "no end of them: %s", npu_error());
	npu_va_clear(&va);
}

static void test_window_addresses(void)
{
	struct npu_va va = { 0 };
	uint64_t a = 0, b = 0, c = 0, d = 0;

	ok(npu_va_take(&va, 32 * MIB, LARGE, &a) == 0 &&
	   npu_va_take(&va, 300 * MIB, WINDOW, &b) == 0 &&
	   b == NPU_VA_BASE + 256 * MIB &&
	   npu_va_take(&va, 256 * MIB, WINDOW, &c) == 0 &&
	   c == NPU_VA_BASE + 768 * MIB, "at multiples of 256 MiB");
	ok(npu_va_take(&va, 200 * MIB, LARGE, &d) == 0 &&
	   d == a + 32 * MIB, "what that leaves is used");
	npu_va_give(&va, d);
	npu_va_give(&va, b);
	/* The hole has 736 MiB, of which 512 are behind the first multiple. */
	ok(npu_va_take(&va, 512 * MIB, WINDOW, &d) == 0 && d == b,
	   "a hole is measured from where it is aligned");
	npu_va_give(&va, d);
	ok(npu_va_take(&va, 600 * MIB, WINDOW, &d) == 0 &&
	   d == c + 256 * MIB, "and not used if too small then");
	npu_va_clear(&va);
	ok(npu_va_take(&va, 1, LARGE, &a) == 0 &&
	   npu_va_take(&va, 1, LARGE, &b) == 0 &&
	   npu_va_take(&va, 1, WINDOW, &c) == 0 &&
	   npu_va_take(&va, 1, LARGE, &d) == 0 && b == a + 32 * MIB &&
	   c == a + 256 * MIB && d == a + 64 * MIB,
	   "nor one that ends before");
	npu_va_clear(&va);
}

int main(void)
{
	test_plan();
	test_limits();
	test_large();
	test_tiles();
	test_addresses();
	test_window_addresses();
	return done();
}
