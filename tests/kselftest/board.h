/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the ioctl tests share: the device, buffers that are mapped, command
 * lists, and waiting for a job. Helpers return what the ioctl returned (0 or
 * a negative errno) and leave judging to the test.
 */
#ifndef M6_TEST_BOARD_H
#define M6_TEST_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <drm/m6npu_accel.h>
#include "m6npu_regs.h"

#define PAGE		4096ull
#define MIB		(1024ull * 1024)

/* ioctl(2), restarted upon EINTR: 0 or a negative errno. */
int board_ioctl(int fd, unsigned long request, void *arg);

/* A fresh open file of the first M6 NPU, or -1: no device. */
int board_open(void);

int board_param(int fd, uint32_t param, uint64_t *value);
int board_pool(int fd, uint64_t size, uint32_t *pool);
int board_pool_destroy(int fd, uint32_t pool);
int board_pool_info(int fd, uint32_t pool, struct drm_m6npu_pool_info *info);

struct buffer {
	uint32_t handle;
	uint64_t size;
	uint64_t addr;
	void *map;		/* NULL when not mapped */
};

/* Creates and maps. @buffer->addr is taken when DRM_M6NPU_BO_FIXED_ADDR. */
int board_buffer(int fd, uint32_t pool, uint64_t size, uint32_t flags,
		 struct buffer *buffer);
void board_buffer_close(int fd, struct buffer *buffer);
int board_bo_create(int fd, struct drm_m6npu_bo_create *args);

/* A sealed list of @count commands in a buffer of its own. */
int board_list(int fd, uint32_t pool, const struct m6npu_cmd *cmds,
	       uint32_t count, struct buffer *list);

struct job {
	struct drm_m6npu_submit args;
	struct drm_m6npu_region regions[DRM_M6NPU_MAX_REGIONS];
	struct drm_m6npu_sync out;
};

/* A job of a whole list; region @i is buffer @i. */
void board_job(struct job *job, const struct buffer *list, uint32_t count,
	       const struct buffer *regions, uint32_t region_count);
/* Submits with a syncobj of its own; its handle is in job->out.handle. */
int board_submit(int fd, struct job *job);
/* Waits for the end, then JOB_INFO. -ETIME after @timeout_ms. */
int board_wait(int fd, struct job *job, int timeout_ms,
	       struct drm_m6npu_job_info *info);
/* Both; the job's own error is in info->error. */
int board_run(int fd, struct job *job, struct drm_m6npu_job_info *info);

int board_syncobj(int fd, bool signalled, uint32_t *handle);
int board_syncobj_wait(int fd, uint32_t handle, int timeout_ms);

/* Next event of @type within @timeout_ms, others are skipped; its length. */
int board_event(int fd, uint32_t type, int timeout_ms, void *event,
		size_t size);

/* Commands, little-endian as they are written on these machines. */
struct m6npu_cmd cmd_fill(uint32_t region, uint64_t offset, uint64_t bytes,
			  uint32_t pattern);
struct m6npu_cmd cmd_copy(uint32_t dst_region, uint64_t dst,
			  uint32_t src_region, uint64_t src, uint64_t bytes);

/*
 * A line "key: number" of mem_pool_info, over all pools of the device: "total"
 * or "used" bytes; -1 if it is not there.
 */
long long board_pool_figure(const char *key);

#define BOARD_TIMEOUT_MS 60000

#endif
