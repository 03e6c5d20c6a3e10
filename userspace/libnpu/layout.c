// SPDX-License-Identifier: MIT
/*
 * Memory layout of a model.
 *
 * One pool holds all of it: static weights, experts, KV cache, activations,
 * step block and results, command lists. Each part is a range of device
 * addresses over buffers no larger than the device's chunk limit.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "buffer.h"
#include "error.h"
#include "job_format.h"
#include "layout.h"
#include "span.h"

#define PAGE		4096ull
/* Weights of experts, and command lists, are read from multiples of this. */
#define ALIGN		64ull
#define MAX_BYTES	(NPU_VA_END - NPU_VA_BASE)
#define DEFAULT_CHUNK	(1843200ull << 10)
#define MAX_SLOTS	4096

static uint64_t round_up(uint64_t x, uint64_t to)
{
	return (x + to - 1) / to * to;
}

/*
 * Large pages where chunks are large enough for them, and so that the next
 * buffer can begin where a window can where they are large enough for that.
 */
static uint64_t chunk_size(uint64_t max)
{
	if (!max)
		max = DEFAULT_CHUNK;
	if (max >= NPU_WINDOW_ALIGN)
		return max / NPU_WINDOW_ALIGN * NPU_WINDOW_ALIGN;
	if (max >= NPU_LARGE_PAGE)
		return max / NPU_LARGE_PAGE * NPU_LARGE_PAGE;
	return max < PAGE ? PAGE : max / PAGE * PAGE;
}

/* Pool space for a part; large buffers lie on large pages. */
static uint64_t pool_bytes(uint64_t size, uint64_t chunk)
{
	uint64_t rest = size % chunk;

	return size - rest +
	       round_up(rest, rest >= NPU_LARGE_PAGE ? NPU_LARGE_PAGE : PAGE);
}

static uint64_t kv_row_bytes(const struct npu_runtime *r, bool q8_0)
{
	uint64_t elements = (uint64_t)r->kv_heads * r->head_dim;

	/* A Q8_0 block: a half-precision scale and 32 elements. */
	return q8_0 ? elements / 32 * 34 : elements * 2;
}

static int plan_kv(struct npu_layout *l, const struct npu_runtime *r,
		   const struct npu_layout_request *request)
{
	uint64_t rows;

	l->slots = request->slots ? request->slots : 1;
	l->max_seq = request->max_seq ? request->max_seq : r->context_length;
	if (l->slots > MAX_SLOTS)
		return npu_fail(-EINVAL, "%" PRIu32 " slots; at most %d",
				l->slots, MAX_SLOTS);
	if (l->max_seq > r->context_length)
		return npu_fail(-EINVAL,
				"sequences of %" PRIu32 " tokens; the model is made for %" PRIu32,
				l->max_seq, r->context_length);
	if (request->kv_q8_0 && r->head_dim % 32)
		return npu_fail(-EINVAL,
				"a Q8_0 KV cache needs heads of a multiple of 32; the model's have %" PRIu32,
				r->head_dim);
	/* Below 2^12 * 2 * 2^24 * 2^12 * 2^12 * 2: no overflow of 64 bits. */
	rows = 2ull * r->kv_layers * l->max_seq;
	l->kv_slot_stride = round_up(rows * kv_row_bytes(r, request->kv_q8_0),
				     ALIGN);
	if (l->kv_slot_stride > MAX_BYTES / l->slots)
		return npu_fail(-ENOSPC,
				"KV cache of %" PRIu32 " slots and %" PRIu32 " positions is larger than the device's address space",
				l->slots, l->max_seq);
	l->kv = l->kv_slot_stride * l->slots;
	return 0;
}

/* Where a part begins, up to a window's alignment of the pool may be lost. */
static bool plan_windows(struct npu_layout *l, uint64_t size)
{
	if (size < NPU_WINDOW_ALIGN || l->chunk < NPU_WINDOW_ALIGN)
		return false;
	l->window_slack += NPU_WINDOW_ALIGN;
	return true;
}

static void plan_pool(struct npu_layout *l)
{
	uint64_t largest = l->weights;

	l->pool = pool_bytes(l->weights, l->chunk) +
		  pool_bytes(l->scratch, l->chunk) +
		  pool_bytes(l->kv, l->chunk) + pool_bytes(l->io, l->chunk) +
		  pool_bytes(l->experts, l->chunk) +
		  pool_bytes(l->low, l->chunk) +
		  round_up(l->commands, PAGE);
	if (l->kv > largest)
		largest = l->kv;
	if (l->experts > largest)
		largest = l->experts;
	if (l->low > largest)
		largest = l->low;
	/* The pool may begin, and small buffers end, off a large page. */
	if (largest >= NPU_LARGE_PAGE)
		l->pool += 2 * NPU_LARGE_PAGE;
}

static uint64_t largest_expert(const struct npu_file *file)
{
	uint64_t largest = 0;
	int64_t i = -1;

	while ((i = npu_file_find(file, NPU_SECTION_EXPERT,
				  (uint32_t)(i + 1))) >= 0) {
		uint64_t n = npu_file_section(file, (uint32_t)i)->loaded_bytes;

		largest = n > largest ? n : largest;
	}
	return largest;
}

/*
 * A command wants all experts of its tokens at once. So there are places for
 * those of one token at least, and a step has no more tokens than there are
 * places for in the worst case.
 */
static int plan_places(struct npu_layout *l, const struct npu_file *file,
		       uint64_t budget)
{
	const struct npu_runtime *r = &npu_file_header(file)->runtime;
	uint64_t bytes = round_up(largest_expert(file), PAGE);
	uint32_t top = r->experts_per_token;

	l->places = r->expert_layers * r->experts;
	l->step_tokens = UINT32_MAX;
	if (!budget || !l->places || budget >= l->experts)
		return 0;
	if (budget / bytes < top)
		return npu_fail(-EINVAL,
				"an expert budget of %" PRIu64 " bytes is too small: a token of this model takes %" PRIu32 " experts of %" PRIu64 " bytes, %" PRIu64 " together",
				budget, top, bytes, top * bytes);
	/* Below what all take, so below their number. */
	l->places = (uint32_t)(budget / bytes);
	l->place_bytes = bytes;
	l->experts = l->places * bytes;
	if (l->places < r->experts)
		l->step_tokens = l->places / top;
	return 0;
}

/* All copies, when there may be experts that they stand in for. */
static int plan_low(struct npu_layout *l, const struct npu_file *file,
		    const struct npu_layout_request *request)
{
	uint64_t *offsets;

	l->experts_come = l->places &&
			  (l->place_bytes || request->experts_on_demand);
	if (!request->expert_fallback)
		return 0;
	if (!npu_file_header(file)->runtime.low_expert_bytes)
		return npu_fail(-ENOTSUP,
				"the model has no experts of lower precision to fall back on; compile it with --expert-fallback");
	if (!l->experts_come)
		return 0;
	offsets = npu_layout_experts(file, NPU_SECTION_EXPERT_LOW, &l->low);
	free(offsets);
	return offsets ? 0 : npu_fail_memory();
}

int npu_layout_plan(struct npu_layout *l, const struct npu_file *file,
		    const struct npu_layout_request *request)
{
	const struct npu_runtime *r = &npu_file_header(file)->runtime;
	struct npu_tile *tiles;
	uint64_t *offsets;
	uint32_t count;
	int ret;

	*l = (struct npu_layout){
		.weights = r->weights_bytes,
		.scratch = r->scratch_bytes,
		.io = r->io_bytes,
		.chunk = chunk_size(request->max_chunk),
	};
	if (r->max_tile > npu_step_max_tokens() ||
	    npu_step_block_bytes(r->max_tile) > r->io_bytes - r->step_offset)
		return npu_fail(-EBADMSG,
				"header: no room for a step block of %" PRIu32 " tokens",
				r->max_tile);
	ret = plan_kv(l, r, request);
	if (ret)
		return ret;
	tiles = npu_layout_tiles(file, &count, &l->commands);
	offsets = npu_layout_experts(file, NPU_SECTION_EXPERT, &l->experts);
	free(tiles);
	free(offsets);
	if (!tiles || !offsets)
		return npu_fail_memory();
	ret = plan_places(l, file, request->expert_budget);
	if (!ret)
		ret = plan_low(l, file, request);
	if (ret)
		return ret;
	plan_pool(l);
	l->weights_windows = plan_windows(l, l->weights);
	/* A window clears what is behind it: not for experts yet to come. */
	l->experts_windows = !l->experts_come && plan_windows(l, l->experts);
	if (l->experts > MAX_BYTES || l->pool > MAX_BYTES)
		return npu_fail(-ENOSPC,
				"model of %" PRIu64 " bytes is larger than the device's address space",
				l->pool);
	return 0;
}

static int compare_tiles(const void *a, const void *b)
{
	const struct npu_tile *x = a, *y = b;

	return x->tokens < y->tokens ? -1 : x->tokens > y->tokens;
}

struct npu_tile *npu_layout_tiles(const struct npu_file *file,
				  uint32_t *count, uint64_t *bytes)
{
	struct npu_tile *tiles;
	uint32_t n = 0, k;
	int64_t i = -1;

	while ((i = npu_file_find(file, NPU_SECTION_COMMANDS,
				  (uint32_t)(i + 1))) >= 0)
		n++;
	tiles = calloc(n + 1, sizeof(*tiles));
	if (!tiles)
		return NULL;
	for (k = 0, i = -1; k < n; k++) {
		const struct npu_section *s;

		i = npu_file_find(file, NPU_SECTION_COMMANDS,
				  (uint32_t)(i + 1));
		s = npu_file_section(file, (uint32_t)i);
		tiles[k].tokens = s->tile;
		tiles[k].commands = (uint32_t)(s->loaded_bytes / ALIGN);
		tiles[k].section = (uint32_t)i;
	}
	qsort(tiles, n, sizeof(*tiles), compare_tiles);
	*bytes = 0;
	for (k = 0; k < n; k++) {
		tiles[k].offset = *bytes;
		*bytes += tiles[k].commands * ALIGN;
	}
	*count = n;
	return tiles;
}

const struct npu_tile *npu_tile_for(const struct npu_tile *tiles,
				    uint32_t count, uint32_t tokens)
{
	uint32_t k;

	for (k = 0; k < count; k++)
		if (tiles[k].tokens >= tokens)
			return &tiles[k];
	return NULL;
}

uint64_t *npu_layout_experts(const struct npu_file *file,
			     enum npu_section_type type, uint64_t *bytes)
{
	const struct npu_runtime *r = &npu_file_header(file)->runtime;
	uint32_t (*find)(const struct npu_file *, uint32_t, uint32_t) =
		type == NPU_SECTION_EXPERT ? npu_file_expert :
					     npu_file_expert_low;
	uint32_t layer, expert, k = 0;
	uint64_t *offsets;

	*bytes = 0;
	offsets = calloc((size_t)r->expert_layers * r->experts + 1,
			 sizeof(*offsets));
	if (!offsets)
		return NULL;
	for (layer = 0; layer < r->expert_layers; layer++) {
		for (expert = 0; expert < r->experts; expert++) {
			uint32_t i = find(file, layer, expert);

			offsets[k++] = *bytes;
			*bytes += round_up(
				npu_file_section(file, i)->loaded_bytes, ALIGN);
		}
	}
	return offsets;
}
