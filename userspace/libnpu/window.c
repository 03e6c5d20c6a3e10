// SPDX-License-Identifier: MIT
/*
 * Which buffers get the windows of a context, of which there are few.
 */
#include <errno.h>
#include <stdlib.h>
#include <drm/m6npu_accel.h>

#include "buffer.h"
#include "device.h"
#include "pool.h"
#include "window.h"

#define WINDOW_BYTES	(2ull << 30)

/* What one window can hold of a buffer. */
struct piece {
	const struct npu_buffer *buffer;
	uint64_t offset, size;
};

static int compare(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	if (x->size != y->size)
		return x->size > y->size ? -1 : 1;
	return x->buffer->addr + x->offset < y->buffer->addr + y->offset ? -1 :
									   1;
}

/* Stores the pieces of @buffer if @pieces is there; returns their number. */
static size_t cut(const struct npu_buffer *buffer, struct piece *pieces)
{
	uint64_t offset = 0, size;
	size_t n = 0;

	if (!buffer || buffer->align < NPU_WINDOW_ALIGN)
		return 0;
	for (; offset < buffer->size; offset += size, n++) {
		size = buffer->size - offset;
		if (size > WINDOW_BYTES)
			size = WINDOW_BYTES;
		if (pieces)
			pieces[n] = (struct piece){ buffer, offset, size };
	}
	return n;
}

static size_t cut_all(const struct npu_span *const *spans, size_t count,
		      struct piece *pieces)
{
	size_t i, n = 0;
	uint32_t k;

	for (i = 0; i < count; i++)
		for (k = 0; k < spans[i]->buffer_count; k++)
			n += cut(spans[i]->buffers[k],
				 pieces ? pieces + n : NULL);
	return n;
}

static int map(const struct piece *piece)
{
	struct drm_m6npu_region_map arg = {
		.handle = piece->buffer->handle,
		.offset = piece->offset,
		.size = piece->size,
	};

	return npu_device_ioctl(piece->buffer->pool->device,
				DRM_IOCTL_M6NPU_REGION_MAP, &arg);
}

uint32_t npu_windows_map(const struct npu_span *const *spans, size_t count)
{
	size_t i, n = cut_all(spans, count, NULL);
	struct piece *pieces = calloc(n + 1, sizeof(*pieces));
	uint32_t mapped = 0;
	int ret = 0;

	if (!pieces)
		return 0;
	cut_all(spans, count, pieces);
	qsort(pieces, n, sizeof(*pieces), compare);
	for (i = 0; i < n && ret != -ENOSPC; i++) {
		ret = map(&pieces[i]);
		mapped += !ret;
	}
	free(pieces);
	return mapped;
}
