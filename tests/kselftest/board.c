// SPDX-License-Identifier: GPL-2.0-only
#include "board.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
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

int board_persistent_pool(int fd, uint64_t size, uint64_t limit,
			  uint32_t *pool)
{
	struct drm_m6npu_pool_create args = {
		.size = size,
		.flags = DRM_M6NPU_POOL_PERSISTENT,
		.client_limit = limit,
	};
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

int board_pool_flush(int fd, uint32_t pool, struct drm_m6npu_pool_flush *report)
{
	*report = (struct drm_m6npu_pool_flush){ .pool = pool };
	return board_ioctl(fd, DRM_IOCTL_M6NPU_POOL_FLUSH, report);
}

int board_pool_defrag(int fd, uint32_t pool, uint32_t flags,
		      struct drm_m6npu_pool_defrag *report)
{
	*report =
		(struct drm_m6npu_pool_defrag){ .pool = pool, .flags = flags };
	return board_ioctl(fd, DRM_IOCTL_M6NPU_POOL_DEFRAG, report);
}

int board_bo_create(int fd, struct drm_m6npu_bo_create *args)
{
	return board_ioctl(fd, DRM_IOCTL_M6NPU_BO_CREATE, args);
}

int board_bo(int fd, uint32_t pool, uint64_t size, uint64_t align,
	     uint32_t flags, struct buffer *buffer)
{
	struct drm_m6npu_bo_create create = {
		.size = size,
		.pool = pool,
		.flags = flags,
		.align = align,
		.addr = flags & DRM_M6NPU_BO_FIXED_ADDR ? buffer->addr : 0,
	};
	int ret = board_bo_create(fd, &create);

	*buffer = (struct buffer){ 0 };
	if (ret)
		return ret;
	*buffer = (struct buffer){
		.handle = create.handle,
		.size = create.size,
		.addr = create.addr,
	};
	return 0;
}

int board_bo_info(int fd, uint32_t handle, struct drm_m6npu_bo_info *info)
{
	*info = (struct drm_m6npu_bo_info){ .handle = handle };
	return board_ioctl(fd, DRM_IOCTL_M6NPU_BO_INFO, info);
}

int64_t board_ready(int fd, const struct buffer *buffer)
{
	struct drm_m6npu_bo_info info;
	int ret = board_bo_info(fd, buffer->handle, &info);

	return ret ? ret : (int64_t)info.ready;
}

int board_map(int fd, struct buffer *buffer)
{
	struct drm_m6npu_bo_info info;
	int ret = board_bo_info(fd, buffer->handle, &info);

	if (ret)
		return ret;
	buffer->map = mmap(NULL, buffer->size, PROT_READ | PROT_WRITE,
			   MAP_SHARED, fd, (off_t)info.mmap_offset);
	if (buffer->map != MAP_FAILED)
		return 0;
	buffer->map = NULL;
	return -errno;
}

int board_buffer(int fd, uint32_t pool, uint64_t size, uint32_t flags,
		 struct buffer *buffer)
{
	int ret = board_bo(fd, pool, size, 0, flags, buffer);

	return ret ? ret : board_map(fd, buffer);
}

int board_seal(int fd, const struct buffer *buffer)
{
	struct drm_m6npu_cmdlist_seal args = { .handle = buffer->handle };

	return board_ioctl(fd, DRM_IOCTL_M6NPU_CMDLIST_SEAL, &args);
}

int board_export(int fd, const struct buffer *buffer)
{
	struct drm_prime_handle args = { .handle = buffer->handle,
					 .flags = DRM_CLOEXEC | DRM_RDWR };
	int ret = board_ioctl(fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &args);

	return ret ? ret : args.fd;
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
	int ret = board_buffer(fd, pool, count * sizeof(*cmds), 0, list);

	if (ret)
		return ret;
	memcpy(list->map, cmds, count * sizeof(*cmds));
	munmap(list->map, list->size);
	list->map = NULL;
	return board_seal(fd, list);
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

int board_command(int fd, uint32_t pool, struct m6npu_cmd cmd,
		  const struct buffer *regions, uint32_t region_count)
{
	bool simple = cmd.opcode == M6NPU_OP_COPY ||
		      cmd.opcode == M6NPU_OP_FILL ||
		      cmd.opcode == M6NPU_OP_COMPARE;
	struct drm_m6npu_job_info info = { 0 };
	struct buffer list;
	struct job job;
	int ret;

	ret = board_list(fd, pool, &cmd, 1, &list);
	if (!ret) {
		board_job(&job, &list, 1, regions, region_count);
		if (simple)
			job.args.flags = DRM_M6NPU_SUBMIT_DMA_ENGINE;
		ret = board_run(fd, &job, &info);
	}
	board_buffer_close(fd, &list);
	return ret ? ret : info.error;
}

/* ---- Files for others ---- */

bool board_send_file(int to, int fd)
{
	char byte = 'x', control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec part = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &fd, sizeof(int));
	return sendmsg(to, &message, 0) == 1;
}

int board_receive_file(int from)
{
	char byte, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec part = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	int fd = -1;

	if (recvmsg(from, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	return fd;
}

/* ---- Jobs that wait ---- */

#define STALL_HIDDEN  32u
#define STALL_FFN     32u
#define STALL_WEIGHTS (3 * STALL_HIDDEN * STALL_FFN * sizeof(float))

static struct m6npu_cmd cmd_stall(void)
{
	struct m6npu_cmd cmd = { .opcode = M6NPU_OP_MOE_FFN };

	for (uint64_t i = 0; i < 4; i++)
		cmd.operand[i] = M6NPU_OPERAND(0, i * 1024);
	cmd.args.moe.rows = 1;
	cmd.args.moe.k = 1;
	cmd.args.moe.experts = 1;
	cmd.args.moe.hidden = STALL_HIDDEN;
	cmd.args.moe.ffn = STALL_FFN;
	return cmd;
}

int board_stall(int fd, uint32_t pool, struct stall *stall)
{
	struct drm_m6npu_expert_table table = { .layers = 1, .experts = 1 };
	struct drm_m6npu_event_expert_fault event;
	struct m6npu_cmd cmd = cmd_stall();
	int ret;

	*stall = (struct stall){ 0 };
	/* Zeros: expert 0, with weight 0. The expert itself is behind. */
	ret = board_bo(fd, pool, PAGE + STALL_WEIGHTS, 0, 0, &stall->data);
	if (!ret)
		ret = board_list(fd, pool, &cmd, 1, &stall->list);
	if (!ret)
		ret = board_ioctl(fd, DRM_IOCTL_M6NPU_EXPERT_TABLE, &table);
	/* The one of the last stall will do. */
	if (ret && ret != -EEXIST)
		return ret;
	board_job(&stall->job, &stall->list, 1, &stall->data, 1);
	ret = board_submit(fd, &stall->job);
	if (!ret)
		ret = board_event(fd, DRM_M6NPU_EVENT_EXPERT_FAULT,
				  BOARD_TIMEOUT_MS, &event, sizeof(event));
	return ret < 0 ? ret : 0;
}

int board_stall_end(int fd, struct stall *stall)
{
	struct drm_m6npu_expert expert = {
		.state = DRM_M6NPU_EXPERT_RESIDENT,
		.addr = stall->data.addr + PAGE,
		.size = STALL_WEIGHTS,
	};
	struct drm_m6npu_expert_bind bind = {
		.entries = (uintptr_t)&expert,
		.count = 1,
		.stride = sizeof(expert),
	};
	struct drm_m6npu_job_info info = { 0 };
	int ret;

	ret = board_ioctl(fd, DRM_IOCTL_M6NPU_EXPERT_BIND, &bind);
	if (!ret)
		ret = board_wait(fd, &stall->job, BOARD_TIMEOUT_MS, &info);
	expert = (struct drm_m6npu_expert){ .state = DRM_M6NPU_EXPERT_ABSENT };
	if (!ret)
		ret = board_ioctl(fd, DRM_IOCTL_M6NPU_EXPERT_BIND, &bind);
	board_buffer_close(fd, &stall->data);
	board_buffer_close(fd, &stall->list);
	return ret ? ret : info.error;
}

/* ---- Events and commands ---- */

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
		/* One that doesn't fit is of another type: it, and no more. */
		for (size_t room = size; !count && room < sizeof(bytes);
		     room += 8)
			count = read(fd, bytes, room);
		if (count < 0)
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

struct m6npu_cmd cmd_compare(uint32_t region, uint64_t offset, uint64_t bytes,
			     uint32_t pattern, uint32_t result_region)
{
	struct m6npu_cmd cmd = cmd_fill(region, offset, bytes, pattern);

	cmd.opcode = M6NPU_OP_COMPARE;
	cmd.operand[1] = M6NPU_OPERAND(result_region, 0);
	return cmd;
}

/* ---- Contents ---- */

static uint64_t contents_word(uint64_t seed, uint64_t index)
{
	return (seed << 32 ^ index) * 0x9e3779b97f4a7c15;
}

void contents_write(void *at, uint64_t size, uint64_t seed)
{
	uint64_t *word = at;

	for (uint64_t i = 0; i < size / sizeof(*word); i++)
		word[i] = contents_word(seed, i);
}

bool contents_are(const void *at, uint64_t size, uint64_t seed)
{
	const uint64_t *word = at;

	for (uint64_t i = 0; i < size / sizeof(*word); i++)
		if (word[i] != contents_word(seed, i))
			return false;
	return true;
}

bool bytes_are(const void *at, uint64_t size, uint8_t value)
{
	const uint8_t *bytes = at;

	return bytes[0] == value && !memcmp(bytes, bytes + 1, size - 1);
}

/* ---- The system ---- */

static bool file_number(const char *path, const char *format, long long *value)
{
	FILE *file = fopen(path, "re");
	char line[512];
	bool found = false;

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file))
		found = sscanf(line, format, value) == 1;
	fclose(file);
	return found;
}

#define PARAMETERS "/sys/module/m6npu/parameters/"

long long board_parameter(const char *name)
{
	long long value;
	char path[128];

	snprintf(path, sizeof(path), PARAMETERS "%s", name);
	return file_number(path, "%lld", &value) ? value : -1;
}

static bool file_write(const char *path, long long value)
{
	FILE *file = fopen(path, "we");
	bool written;

	if (!file)
		return false;
	written = fprintf(file, "%lld\n", value) > 0;
	return !fclose(file) && written;
}

bool board_set_parameter(const char *name, long long value)
{
	char path[128];

	snprintf(path, sizeof(path), PARAMETERS "%s", name);
	return file_write(path, value);
}

#define FAIL_ALLOC "/sys/kernel/debug/npu/fail_alloc"

bool board_fail_alloc(unsigned int nth)
{
	return file_write(FAIL_ALLOC, nth);
}

bool board_alloc_failed(void)
{
	long long left;

	return file_number(FAIL_ALLOC, "%lld", &left) && !left;
}

uint64_t board_area_size(int fd)
{
	long long kib;
	uint64_t size;

	if (!board_param(fd, DRM_M6NPU_PARAM_CMA_SIZE, &size) && size)
		return size;
	return file_number("/proc/meminfo", "CmaTotal: %lld", &kib) ?
		       (uint64_t)kib * 1024 :
		       0;
}

void board_drop_capabilities(void)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[2] = { 0 };

	syscall(SYS_capset, &head, data);
}

bool board_thread_waits(pid_t tid)
{
	const struct timespec pause = { .tv_nsec = 1000 * 1000 };
	char path[64], line[256];

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	for (int i = 0; i < 10000; i++) {
		FILE *file = fopen(path, "re");
		char *state = NULL;

		if (file && fgets(line, sizeof(line), file))
			state = strrchr(line, ')');
		if (file)
			fclose(file);
		if (state && (state[2] == 'S' || state[2] == 'D'))
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

int board_log(void)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0)
		lseek(fd, 0, SEEK_END);
	return fd;
}

bool board_log_has(int log, const char *text)
{
	char record[8192];
	ssize_t count;

	for (;;) {
		count = read(log, record, sizeof(record) - 1);
		if (count < 0 && errno == EPIPE)
			continue; /* overwritten; on with the next */
		if (count <= 0)
			return false;
		record[count] = '\0';
		if (strstr(record, text))
			return true;
	}
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

/* Which word of a line is @wanted, or -1. */
static int column_of(char *line, const char *wanted)
{
	char *word = strtok(line, " \n");
	int i;

	for (i = 0; word && strcmp(word, wanted); i++)
		word = strtok(NULL, " \n");
	return word ? i : -1;
}

static const char *word_at(char *line, int column)
{
	char *word = strtok(line, " \n");

	while (word && column--)
		word = strtok(NULL, " \n");
	return word ?: "";
}

long long board_figure(const char *column)
{
	FILE *file = fopen("/sys/kernel/debug/npu/contexts", "re");
	char line[512], copy[512];
	long long value = -1;
	int at = -1;

	while (file && fgets(line, sizeof(line), file)) {
		if (at < 0) {
			at = column_of(line, column);
			if (at < 0)
				break;
			continue;
		}
		strcpy(copy, line);
		if (atoi(word_at(copy, 1)) == getpid())
			value = atoll(word_at(line, at));
	}
	if (file)
		fclose(file);
	return value;
}
