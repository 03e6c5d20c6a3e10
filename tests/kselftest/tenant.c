// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <sys/mman.h>

#include "tenant.h"

int tenant_move_in(int fd, uint32_t pool, struct tenant *tenant,
		   struct rng *rng)
{
	uint64_t size =
		(1 + rng_below(rng, rng_one_in(rng, 8) ? 64 : 16)) * PAGE;
	struct drm_m6npu_bo_info info;
	int ret;

	tenant->readonly = rng_one_in(rng, 4);
	ret = board_buffer(fd, pool, size,
			   tenant->readonly ? DRM_M6NPU_BO_DEVICE_READONLY : 0,
			   &tenant->buffer);
	if (!ret)
		ret = board_bo_info(fd, tenant->buffer.handle, &info);
	if (ret)
		return ret;
	tenant->seed = rng_next(rng) >> 40;
	contents_write(tenant->buffer.map, size, tenant->seed);
	tenant->view = mmap(NULL, size, PROT_READ, MAP_SHARED, fd,
			    (off_t)info.mmap_offset);
	return tenant->view == MAP_FAILED ? -errno : 0;
}

void tenant_move_out(int fd, struct tenant *tenant)
{
	if (tenant->view)
		munmap((void *)tenant->view, tenant->buffer.size);
	tenant->view = NULL;
	board_buffer_close(fd, &tenant->buffer);
}

bool tenant_is_right(int fd, const struct tenant *tenant)
{
	const struct buffer *buffer = &tenant->buffer;
	struct drm_m6npu_bo_info info;

	return !board_bo_info(fd, buffer->handle, &info) &&
	       info.addr == buffer->addr && info.ready == buffer->size &&
	       contents_are(buffer->map, buffer->size, tenant->seed) &&
	       contents_are(tenant->view, buffer->size, tenant->seed);
}
