// SPDX-License-Identifier: MIT
#include "fake_npu.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <m6npu_regs.h>

#define BUFFERS_MAX	256
#define PERSISTENT_ID	0x10000

struct npu_pool {
	uint64_t size, used;
	bool persistent;
};

struct npu_buffer {
	struct npu_pool *pool;
	uint64_t addr, size;
	char *cpu;
	bool sealed;
};

struct fake fake;

static struct npu_buffer *buffers[BUFFERS_MAX];
static uint64_t next_addr = 0x1fff000;	/* so that not all is aligned */

const char *npu_error(void)
{
	return "fake";
}

int npu_device_info(struct npu_device *device, struct npu_device_info *info)
{
	*info = (struct npu_device_info){
		.cma_bytes = fake.area_unknown ? 0 : fake.area,
	};
	return 0;
}

/* ---- Pools ---- */

int npu_pool_create(struct npu_device *device, uint64_t size, uint32_t flags,
		    uint32_t max_segments, struct npu_pool **pool)
{
	if (!size || size > 1ull << M6NPU_VA_BITS)
		return -EINVAL;
	if (size > fake.area - fake.taken || (fake.piece && size > fake.piece))
		return -ENOMEM;
	fake.taken += size;
	fake.pools++;
	*pool = calloc(1, sizeof(**pool));
	(*pool)->size = size;
	return 0;
}

int npu_pool_list(struct npu_device *device, struct npu_pool_info *infos,
		  size_t max)
{
	if (fake.persistent && max)
		infos[0] = (struct npu_pool_info){
			.id = PERSISTENT_ID, .flags = NPU_POOL_PERSISTENT,
			.size = fake.persistent,
			.largest_free = fake.persistent,
		};
	return fake.persistent != 0;
}

int npu_pool_open(struct npu_device *device, uint32_t id,
		  struct npu_pool **pool)
{
	if (id != PERSISTENT_ID)
		return -ENOENT;
	fake.pools++;
	*pool = calloc(1, sizeof(**pool));
	(*pool)->size = fake.persistent;
	(*pool)->persistent = true;
	return 0;
}

void npu_pool_destroy(struct npu_pool *pool)
{
	if (!pool->persistent)
		fake.taken -= pool->size;
	fake.pools--;
	free(pool);
}

int npu_pool_info(struct npu_pool *pool, struct npu_pool_info *info)
{
	*info = (struct npu_pool_info){
		.size = pool->size, .used = pool->used,
		.largest_free = pool->size - pool->used,
	};
	return 0;
}

/* ---- Buffers ---- */

int npu_buffer_create(struct npu_pool *pool, uint64_t size, uint32_t flags,
		      uint64_t *addr, struct npu_buffer **buffer)
{
	unsigned int slot = 0;

	size = (size + 4095) / 4096 * 4096;
	if (size > pool->size - pool->used)
		return -ENOSPC;
	while (buffers[slot])
		if (++slot == BUFFERS_MAX)
			abort();
	*buffer = calloc(1, sizeof(**buffer));
	**buffer = (struct npu_buffer){
		.pool = pool, .addr = next_addr, .size = size,
		.cpu = aligned_alloc(4096, size),
	};
	next_addr += size;
	pool->used += size;
	fake.buffers++;
	buffers[slot] = *buffer;
	*addr = (*buffer)->addr;
	return 0;
}

void npu_buffer_destroy(struct npu_buffer *buffer)
{
	for (unsigned int i = 0; i < BUFFERS_MAX; i++)
		if (buffers[i] == buffer)
			buffers[i] = NULL;
	buffer->pool->used -= buffer->size;
	fake.buffers--;
	free(buffer->cpu);
	free(buffer);
}

void *npu_buffer_map(struct npu_buffer *buffer)
{
	return buffer->sealed ? NULL : buffer->cpu;
}

uint64_t npu_buffer_addr(const struct npu_buffer *buffer)
{
	return buffer->addr;
}

uint64_t npu_buffer_size(const struct npu_buffer *buffer)
{
	return buffer->size;
}

int npu_buffer_seal(struct npu_buffer *buffer)
{
	buffer->sealed = true;
	return 0;
}

static int check_range(const struct npu_buffer *buffer, uint64_t offset,
		       uint64_t size)
{
	return offset <= buffer->size && size <= buffer->size - offset ?
	       0 : -EINVAL;
}

int npu_buffer_sync_to_device(struct npu_buffer *buffer, uint64_t offset,
			      uint64_t size)
{
	return check_range(buffer, offset, size);
}

int npu_buffer_sync_from_device(struct npu_buffer *buffer, uint64_t offset,
				uint64_t size)
{
	return check_range(buffer, offset, size);
}

/* ---- Jobs ---- */

static char *memory(uint64_t addr, uint64_t size)
{
	for (unsigned int i = 0; i < BUFFERS_MAX; i++) {
		struct npu_buffer *b = buffers[i];

		if (b && addr >= b->addr && addr - b->addr < b->size &&
		    size <= b->size - (addr - b->addr))
			return b->cpu + (addr - b->addr);
	}
	return NULL;
}

static char *operand(const struct npu_job *job, const struct m6npu_cmd *cmd,
		     unsigned int i, uint64_t size)
{
	uint64_t value = le64toh(cmd->operand[i]);
	uint64_t region = value >> M6NPU_OPERAND_REGION_SHIFT;
	uint64_t offset = value & M6NPU_OPERAND_OFFSET_MASK;

	if (region >= job->region_count || job->regions[region].addr % 64 ||
	    offset + size > job->regions[region].size)
		return NULL;
	return memory(job->regions[region].addr + offset, size);
}

static void force(void)
{
	uint32_t *word = fake.stuck_addr ?
			 (void *)memory(fake.stuck_addr, sizeof(*word)) : NULL;

	if (word)
		*word = (*word & ~fake.stuck_mask) |
			(fake.stuck_value & fake.stuck_mask);
}

static void compare(const uint32_t *words, uint64_t count, uint32_t pattern,
		    struct m6npu_compare_result *result)
{
	const char *misread = fake.misread ? memory(fake.misread, 4) : NULL;

	*result = (struct m6npu_compare_result){ .expected = pattern };
	for (uint64_t i = 0; i < count; i++) {
		uint32_t word = words[i];

		if ((const char *)&words[i] == misread)
			word ^= 1;
		if (word == pattern || result->mismatches++)
			continue;
		result->first_offset = 4 * i;
		result->found = word;
	}
}

static int run_command(const struct npu_job *job, const struct m6npu_cmd *cmd)
{
	uint64_t bytes = le64toh(cmd->args.mem.bytes);
	uint32_t pattern = le32toh(cmd->args.mem.pattern);
	char *first = operand(job, cmd, 0, bytes), *second;

	second = cmd->opcode == M6NPU_OP_FILL ? first :
		 operand(job, cmd, 1, cmd->opcode == M6NPU_OP_COPY ? bytes :
			 sizeof(struct m6npu_compare_result));
	if (!first || !second)
		return -EFAULT;
	force();
	if (cmd->opcode == M6NPU_OP_FILL)
		for (uint64_t i = 0; i < bytes / 4; i++)
			((uint32_t *)first)[i] = pattern;
	else if (cmd->opcode == M6NPU_OP_COPY)
		memcpy(first, second, bytes);
	else if (cmd->opcode == M6NPU_OP_COMPARE)
		compare((uint32_t *)first, bytes / 4, pattern, (void *)second);
	else
		return -EINVAL;
	force();
	return 0;
}

int npu_job_run(struct npu_device *device, const struct npu_job *job,
		uint64_t *device_ns)
{
	const struct m6npu_cmd *cmds;
	int ret = fake.job_error;

	fake.jobs++;
	if (!job->commands->sealed || job->flags != NPU_JOB_DMA_ENGINE ||
	    check_range(job->commands, job->offset, job->count * sizeof(*cmds)))
		return -EINVAL;
	cmds = (void *)(job->commands->cpu + job->offset);
	for (uint32_t i = 0; i < job->count && !ret; i++)
		ret = run_command(job, &cmds[i]);
	return ret;
}
