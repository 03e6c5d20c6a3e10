// SPDX-License-Identifier: GPL-2.0-only
#include "board.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int board_ioctl(int fd, unsigned long request, void *arg)
{
	int ret;

	do {
		ret = ioctl(fd, request, arg);
	} while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : ret;
}

int board_param(int fd, uint32_t param, uint64_t *value)
{
	struct drm_m6npu_get_param args = { .param = param };
	int ret = board_ioctl(fd, DRM_IOCTL_M6NPU_GET_PARAM, &args);

	*value = args.value;
	return ret;
}

int board_open(void)
{
	uint64_t id;
	char path[32];

	for (int i = 0; i < 8; i++) {
		int fd;

		snprintf(path, sizeof(path), "/dev/accel/accel%d", i);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (!board_param(fd, DRM_M6NPU_PARAM_DEVICE_ID, &id) &&
		    id == M6NPU_ID_VALUE)
			return fd;
		close(fd);
	}
	return -1;
}

int board_pool(int fd, uint64_t size, uint32_t *pool)
{
	struct drm_m6npu_pool_create args = { .size = size };
	int ret = board_ioctl(fd, DRM_IOCTL_M6NPU_POOL_CREATE, &args);

	*pool = args.pool;
	return ret;
}

int board_pool_destroy(int fd, uint32_t pool)
{
	struct drm_m6npu_pool_destroy args = { .pool = pool };

	return board_ioctl(fd, DRM_IOCTL_M6NPU_POOL_DESTROY, &args);
}

int board_pool_info(int fd, uint32_t pool, struct drm_m6npu_pool_info *info)
{
	*info = (struct drm_m6npu_pool_info){ .pool = pool };
	return board_ioctl(fd, DRM_IOCTL_M6NPU_POOL_INFO, info);
}

int board_bo_create(int fd, struct drm_m6npu_bo_create *args)
{
	return board_ioctl(fd, DRM_IOCTL_M6NPU_BO_CREATE, args);
}

int board_buffer(int fd, uint32_t pool, uint64_t size, uint32_t flags,
		 struct buffer *buffer)
{
	struct drm_m6npu_bo_create create = {
		.size = size,
		.pool = pool,
		.flags = flags,
		.addr = flags & DRM_M6NPU_BO_FIXED_ADDR ? buffer->addr : 0,
	};
	struct drm_m6npu_bo_info info = { 0 };
	int ret = board_bo_create(fd, &create);

	*buffer = (struct buffer){ 0 };
	if (ret)
		return ret;
	info.handle = create.handle;
	ret = board_ioctl(fd, DRM_IOCTL_M6NPU_BO_INFO, &info);
	if (ret)
		return ret;
	*buffer = (struct buffer){
		.handle = create.handle,
		.size = create.size,
		.addr = create.addr,
	};
	buffer->map = mmap(NULL, buffer->size, PROT_READ | PROT_WRITE,
			   MAP_SHARED, fd, (off_t)info.mmap_offset);
	if (buffer->map != MAP_FAILED)
		return 0;
	buffer->map = NULL;
	return -errno;
}

void board_buffer_close(int fd, struct buffer *buffer)
{
	struct drm_gem_close args = { .handle = buffer->handle };

	if (buffer->map)
		munmap(buffer->map, buffer->size);
	if (buffer->handle)
		board_ioctl(fd, DRM_IOCTL_GEM_CLOSE, &args);
	*buffer = (struct buffer){ 0 };
}

int board_list(int fd, uint32_t pool, const struct m6npu_cmd *cmds,
	       uint32_t count, struct buffer *list)
{
	struct drm_m6npu_cmdlist_seal seal = { 0 };
	int ret = board_buffer(fd, pool, count * sizeof(*cmds), 0, list);

	if (ret)
		return ret;
	memcpy(list->map, cmds, count * sizeof(*cmds));
	munmap(list->map, list->size);
	list->map = NULL;
	seal.handle = list->handle;
	return board_ioctl(fd, DRM_IOCTL_M6NPU_CMDLIST_SEAL, &seal);
}

void board_job(struct job *job, const struct buffer *list, uint32_t count,
	       const struct buffer *regions, uint32_t region_count)
{
	*job = (struct job){ 0 };
	for (uint32_t i = 0; i < region_count; i++) {
		job->regions[i].addr = regions[i].addr;
		job->regions[i].size = regions[i].size;
	}
	job->args = (struct drm_m6npu_submit){
		.cmdlist = list->handle,
		.cmd_count = count,
		.region_count = region_count,
		.region_stride = sizeof(job->regions[0]),
		.sync_stride = sizeof(job->out),
	};
}

int board_syncobj(int fd, bool signalled, uint32_t *handle)
{
	struct drm_syncobj_create args = {
		.flags = signalled ? DRM_SYNCOBJ_CREATE_SIGNALED : 0,
	};
	int ret = board_ioctl(fd, DRM_IOCTL_SYNCOBJ_CREATE, &args);

	*handle = args.handle;
	return ret;
}

static int64_t deadline(int timeout_ms)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec +
	       (int64_t)timeout_ms * 1000000;
}

int board_syncobj_wait(int fd, uint32_t handle, int timeout_ms)
{
	struct drm_syncobj_wait args = {
		.handles = (uintptr_t)&handle,
		.count_handles = 1,
		.timeout_nsec = deadline(timeout_ms),
	};

	return board_ioctl(fd, DRM_IOCTL_SYNCOBJ_WAIT, &args);
}

int board_submit(int fd, struct job *job)
{
	int ret = 0;

	if (!job->out.handle)
		ret = board_syncobj(fd, false, &job->out.handle);
	if (ret)
		return ret;
	/* Here, not in board_job(): the structure may have been copied. */
	job->args.regions = (uintptr_t)job->regions;
	job->args.out_syncs = (uintptr_t)&job->out;
	job->args.out_sync_count = 1;
	return board_ioctl(fd, DRM_IOCTL_M6NPU_SUBMIT, &job->args);
}

int board_wait(int fd, struct job *job, int timeout_ms,
	       struct drm_m6npu_job_info *info)
{
	struct drm_syncobj_destroy destroy = { .handle = job->out.handle };
	int ret = board_syncobj_wait(fd, job->out.handle, timeout_ms);

	if (ret < 0)
		return ret;
	board_ioctl(fd, DRM_IOCTL_SYNCOBJ_DESTROY, &destroy);
	job->out.handle = 0;
	*info = (struct drm_m6npu_job_info){ .job = job->args.job };
	return board_ioctl(fd, DRM_IOCTL_M6NPU_JOB_INFO, info);
}

int board_run(int fd, struct job *job, struct drm_m6npu_job_info *info)
{
	int ret = board_submit(fd, job);

	return ret ? ret : board_wait(fd, job, BOARD_TIMEOUT_MS, info);
}

int board_event(int fd, uint32_t type, int timeout_ms, void *event, size_t size)
{
	int64_t until = deadline(timeout_ms);
	char bytes[4096];

	for (;;) {
		int left = (int)((until - deadline(0)) / 1000000);
		struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
		ssize_t count, at = 0;

		if (left < 0 || poll(&poll_fd, 1, left) <= 0)
			return -ETIME;
		/* Room for one event only, so that none behind it is lost. */
		count = read(fd, bytes, size);
		if (count < 0)
			return -errno;
		while (at + (ssize_t)sizeof(struct drm_event) <= count) {
			struct drm_event *head = (void *)(bytes + at);

			if (head->type == type && head->length <= size) {
				memcpy(event, head, head->length);
				return (int)head->length;
			}
			at += head->length;
		}
		/* One that doesn't fit is of another type: drain it. */
		if (!count && read(fd, bytes, sizeof(bytes)) < 0)
			return -errno;
	}
}

struct m6npu_cmd cmd_fill(uint32_t region, uint64_t offset, uint64_t bytes,
			  uint32_t pattern)
{
	struct m6npu_cmd cmd = { .opcode = M6NPU_OP_FILL };

	cmd.operand[0] = M6NPU_OPERAND(region, offset);
	for (int i = 1; i < 4; i++)
		cmd.operand[i] = M6NPU_OPERAND_NONE;
	cmd.args.mem.bytes = bytes;
	cmd.args.mem.pattern = pattern;
	return cmd;
}

struct m6npu_cmd cmd_copy(uint32_t dst_region, uint64_t dst,
			  uint32_t src_region, uint64_t src, uint64_t bytes)
{
	struct m6npu_cmd cmd = { .opcode = M6NPU_OP_COPY };

	cmd.operand[0] = M6NPU_OPERAND(dst_region, dst);
	cmd.operand[1] = M6NPU_OPERAND(src_region, src);
	cmd.operand[2] = M6NPU_OPERAND_NONE;
	cmd.operand[3] = M6NPU_OPERAND_NONE;
	cmd.args.mem.bytes = bytes;
	return cmd;
}

long long board_pool_figure(const char *key)
{
	FILE *file = fopen("/sys/kernel/debug/npu/mem_pool_info", "re");
	size_t bytes = strlen(key);
	long long value = -1;
	char line[512];

	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, key, bytes) && line[bytes] == ':')
			sscanf(line + bytes + 1, "%lld", &value);
	fclose(file);
	return value;
}
