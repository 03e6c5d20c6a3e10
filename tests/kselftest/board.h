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
#include <sys/types.h>

#include <drm/m6npu_accel.h>
#include "m6npu_regs.h"

#define PAGE 4096ull
#define MIB  (1024ull * 1024)

/* ioctl(2), restarted upon EINTR: 0 or a negative errno. */
int board_ioctl(int fd, unsigned long request, void *arg);

/* A fresh open file of the first M6 NPU, or -1: no device. */
int board_open(void);

int board_param(int fd, uint32_t param, uint64_t *value);
int board_pool(int fd, uint64_t size, uint32_t *pool);
/* @limit: bytes that one file may hold, 0 = all. */
int board_persistent_pool(int fd, uint64_t size, uint64_t limit,
			  uint32_t *pool);
int board_pool_destroy(int fd, uint32_t pool);
int board_pool_info(int fd, uint32_t pool, struct drm_m6npu_pool_info *info);
int board_pool_flush(int fd, uint32_t pool,
		     struct drm_m6npu_pool_flush *report);
int board_pool_defrag(int fd, uint32_t pool, uint32_t flags,
		      struct drm_m6npu_pool_defrag *report);

struct buffer {
	uint32_t handle;
	uint64_t size;
	uint64_t addr;
	void *map; /* NULL when not mapped */
};

/* Creates and maps. @buffer->addr is taken when DRM_M6NPU_BO_FIXED_ADDR. */
int board_buffer(int fd, uint32_t pool, uint64_t size, uint32_t flags,
		 struct buffer *buffer);
void board_buffer_close(int fd, struct buffer *buffer);
int board_bo_create(int fd, struct drm_m6npu_bo_create *args);
/* Creates, but does not map, so that nothing of it is used yet. */
int board_bo(int fd, uint32_t pool, uint64_t size, uint64_t align,
	     uint32_t flags, struct buffer *buffer);
int board_bo_info(int fd, uint32_t handle, struct drm_m6npu_bo_info *info);
int board_map(int fd, struct buffer *buffer);
/* Bytes that are ready, or a negative errno. */
int64_t board_ready(int fd, const struct buffer *buffer);
int board_seal(int fd, const struct buffer *buffer);
/* A dma-buf's file, or a negative errno. */
int board_export(int fd, const struct buffer *buffer);

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

/*
 * One command on these regions, with a list of its own: 0, what was refused, or
 * the job's error. On the DMA engine if it can.
 */
int board_command(int fd, uint32_t pool, struct m6npu_cmd cmd,
		  const struct buffer *regions, uint32_t region_count);

/*
 * A job that waits for an expert: it holds its address space until it gets the
 * expert, and as long as the driver is patient.
 */
struct stall {
	struct buffer data, list;
	struct job job;
};

/* Returns when the job waits. The file has no expert table of its own. */
int board_stall(int fd, uint32_t pool, struct stall *stall);
/* Lets it end: 0 if it ended well. */
int board_stall_end(int fd, struct stall *stall);

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

struct m6npu_cmd cmd_compare(uint32_t region, uint64_t offset, uint64_t bytes,
			     uint32_t pattern, uint32_t result_region);

/* What a buffer holds: words that tell @seed and their place. */
void contents_write(void *at, uint64_t size, uint64_t seed);
bool contents_are(const void *at, uint64_t size, uint64_t seed);
/* All bytes are @value. */
bool bytes_are(const void *at, uint64_t size, uint8_t value);

/* An open file, over a socket: sent; its number here, or -1. */
bool board_send_file(int to, int fd);
int board_receive_file(int from);

/* A parameter of the module; -1 if it isn't there. */
long long board_parameter(const char *name);
bool board_set_parameter(const char *name, long long value);
/* This process's @nth allocation from now on fails, none if 0. */
bool board_fail_alloc(unsigned int nth);
/* It has. */
bool board_alloc_failed(void);
/* What the system lends to contiguous areas. */
uint64_t board_area_size(int fd);
/* For good: the calling process is nobody special any more. */
void board_drop_capabilities(void);
/* Until the thread waits for something; false if it doesn't. */
bool board_thread_waits(pid_t tid);
/* The kernel's log from here on. */
int board_log(void);
bool board_log_has(int log, const char *text);

/*
 * A line "key: number" of mem_pool_info, over all pools of the device: "total"
 * or "used" bytes; -1 if it is not there.
 */
long long board_pool_figure(const char *key);
/* This program's figure in a column of contexts, or -1. Its name has no blanks. */
long long board_figure(const char *column);

#define BOARD_TIMEOUT_MS 60000

#endif
