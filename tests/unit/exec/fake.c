// SPDX-License-Identifier: MIT
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

struct m6_job *fake_create(void)
{
	struct m6_job *job = calloc(1, sizeof(*job));

	assert(job);
	job->polls_left = UINT64_MAX;
	job->threshold = 500;
	job->dry = (struct m6_dry_routing){
		.seed = 1,
		.zipf_permille = 800,
		.repeat_permille = 500,
		.topic_length = 16,
		.predict_permille = 800,
	};
	return job;
}

void fake_destroy(struct m6_job *job)
{
	for (unsigned int i = 0; i < M6NPU_REGIONS; i++)
		free(job->region[i]);
	free(job->expert_memory);
	free(job);
}

void *fake_region(struct m6_job *job, unsigned int region, uint64_t bytes)
{
	free(job->region[region]);
	job->region[region] = calloc(1, bytes);
	job->size[region] = bytes;
	assert(job->region[region]);
	return job->region[region];
}

void *fake_data(struct m6_job *job, unsigned int region, const void *data,
		uint64_t bytes)
{
	return memcpy(fake_region(job, region, bytes), data, bytes);
}

void *fake_experts(struct m6_job *job, unsigned int count, uint64_t bytes)
{
	free(job->expert_memory);
	job->expert_size = count * bytes;
	job->expert_memory = calloc(count, bytes);
	assert(job->expert_memory && count <= FAKE_EXPERTS);
	for (unsigned int i = 0; i < FAKE_EXPERTS; i++)
		job->experts[i] = (struct m6npu_expert){
			.addr = i < count ? i * bytes : 0,
			.size = i < count ? bytes : 0,
			.flags = i < count ? M6NPU_EXPERT_RESIDENT : 0,
		};
	return job->expert_memory;
}

void fake_step(struct m6_job *job, uint32_t count, uint32_t position)
{
	job->step.tokens = job->tokens;
	job->step.out_rows = job->out_rows;
	job->step.token_count = count;
	job->step.out_count = 0;
	job->step.kv_capacity = 512;
	job->step.kv_type = M6NPU_TYPE_F16;
	for (uint32_t i = 0; i < count; i++)
		job->tokens[i] = (struct m6npu_step_token){
			.position = position + i };
	job->current = &job->step;
}

void fake_no_step(struct m6_job *job)
{
	job->current = NULL;
}

struct m6npu_cmd fake_command(uint8_t opcode)
{
	struct m6npu_cmd cmd = { .opcode = opcode };

	for (unsigned int i = 0; i < 4; i++)
		cmd.operand[i] = M6NPU_OPERAND_NONE;
	return cmd;
}

__le32 float_bits(float value)
{
	__le32 bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static uint64_t random_state = 1;

void fake_seed(uint64_t seed)
{
	random_state = seed * 2 + 1;
}

/* xorshift64* */
uint64_t fake_random(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * 0x2545f4914f6cdd1dull >> 16;
}

float random_float(void)
{
	return (float)(fake_random() % 65536) / 32768.0f - 1.0f;
}

void random_floats(float *values, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		values[i] = random_float();
}

/* What the device side offers. */

const struct m6_step *m6_job_step(const struct m6_job *job)
{
	return job->current;
}

static uint64_t operand_offset(uint64_t operand)
{
	return operand & ((1ull << M6NPU_OPERAND_REGION_SHIFT) - 1);
}

uint64_t m6_job_operand_room(const struct m6_job *job, uint64_t operand)
{
	uint64_t region = operand >> M6NPU_OPERAND_REGION_SHIFT;
	uint64_t offset = operand_offset(operand);

	if (region >= M6NPU_REGIONS || offset > job->size[region])
		return 0;
	return job->size[region] - offset;
}

uint32_t m6_job_map(struct m6_job *job, uint64_t operand, uint64_t bytes,
		    bool write, struct m6_span *span)
{
	(void)write;
	*span = (struct m6_span){ NULL, bytes };
	if (!bytes)
		return 0;
	if (operand % 4)
		return M6NPU_EXC_ILLEGAL_COMMAND;
	if (m6_job_operand_room(job, operand) < bytes)
		return M6NPU_EXC_BOUNDS;
	span->host = (char *)job->region[operand >>
					 M6NPU_OPERAND_REGION_SHIFT] +
		     operand_offset(operand);
	return 0;
}

uint32_t m6_job_map_address(struct m6_job *job, uint64_t addr, uint64_t bytes,
			    struct m6_span *span)
{
	*span = (struct m6_span){ NULL, bytes };
	if (addr > job->expert_size || bytes > job->expert_size - addr)
		return M6NPU_EXC_MMU_PAGE_FAULT;
	span->host = (char *)job->expert_memory + addr;
	return 0;
}

uint32_t m6_job_experts(struct m6_job *job, uint32_t layer,
			const uint32_t *ids, uint32_t count,
			struct m6npu_expert *experts)
{
	(void)layer;
	if (job->expert_code)
		return job->expert_code;
	for (uint32_t i = 0; i < count; i++) {
		if (ids[i] >= FAKE_EXPERTS)
			return M6NPU_EXC_ILLEGAL_COMMAND;
		experts[i] = job->experts[ids[i]];
	}
	job->looked_up += count;
	return 0;
}

bool m6_job_expert_in_sram(struct m6_job *job, uint32_t layer, uint32_t id)
{
	(void)layer;
	job->sram_asked++;
	return id < FAKE_EXPERTS && job->in_sram[id];
}

uint32_t m6_job_threshold(const struct m6_job *job)
{
	return job->threshold;
}

void m6_job_prefetch(struct m6_job *job, uint32_t layer, const uint32_t *ids,
		     uint32_t count)
{
	assert(count <= M6NPU_MAX_EXPERTS_PER_LAYER);
	job->prefetches++;
	job->prefetched_layer = layer;
	job->prefetched_count = count;
	memcpy(job->prefetched, ids, count * sizeof(*ids));
}

const struct m6_dry_routing *m6_job_dry(const struct m6_job *job)
{
	return &job->dry;
}

bool m6_job_cancelled(const struct m6_job *job)
{
	struct m6_job *self = (struct m6_job *)job;

	if (!self->polls_left)
		return true;
	self->polls_left--;
	return false;
}

void m6_job_now(const struct m6_job *job, uint64_t *ns, uint64_t *cycles)
{
	(void)job;
	*ns = 0x123456789abcdefull;
	*cycles = 0xfedcba9876543210ull;
}
