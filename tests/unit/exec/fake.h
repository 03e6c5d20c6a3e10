/* SPDX-License-Identifier: MIT */
/*
 * A job on plain memory, for tests of the execution side. Every region is an
 * allocation of its own, so that a sanitizer sees any step outside it.
 */
#ifndef M6_FAKE_H
#define M6_FAKE_H

#include "job.h"

#define FAKE_EXPERTS		64u

struct m6_job {
	const struct m6_step *current;	/* what the command sees */
	struct m6_step step;
	struct m6npu_step_token tokens[M6NPU_STEP_MAX_TOKENS];
	uint32_t out_rows[M6NPU_STEP_MAX_TOKENS];
	void *region[M6NPU_REGIONS];
	uint64_t size[M6NPU_REGIONS];
	void *expert_memory;		/* device address 0 on */
	uint64_t expert_size;
	struct m6npu_expert experts[FAKE_EXPERTS];	/* of any layer */
	uint32_t expert_code;		/* what a look-up returns */
	uint32_t looked_up;		/* experts, in all */
	bool in_sram[FAKE_EXPERTS];
	uint32_t sram_asked;		/* for experts, in all */
	uint32_t threshold;
	uint32_t prefetches;		/* commands that asked for some */
	uint32_t prefetched[M6NPU_MAX_EXPERTS_PER_LAYER];	/* the last */
	uint32_t prefetched_count;
	uint32_t prefetched_layer;
	struct m6_dry_routing dry;
	uint64_t polls_left;		/* before the job is cancelled */
};

struct m6_job *fake_create(void);
void fake_destroy(struct m6_job *job);

/* A region of zeroes in place of whatever it was. Returns its memory. */
void *fake_region(struct m6_job *job, unsigned int region, uint64_t bytes);
/* A region that holds a copy. */
void *fake_data(struct m6_job *job, unsigned int region, const void *data,
		uint64_t bytes);
/* Experts of @bytes each, back to back, all resident. Returns the memory. */
void *fake_experts(struct m6_job *job, unsigned int count, uint64_t bytes);

/* A step of @count tokens in slot 0 at positions @position and up. */
void fake_step(struct m6_job *job, uint32_t count, uint32_t position);
void fake_no_step(struct m6_job *job);

/* A command with all operands absent. */
struct m6npu_cmd fake_command(uint8_t opcode);
__le32 float_bits(float value);

/* Small and reproducible. */
uint64_t fake_random(void);
void fake_seed(uint64_t seed);
float random_float(void);		/* -1..1 */
void random_floats(float *values, uint64_t count);

/* Size of a row of weights, and rows of weights made of F32 rows. */
uint64_t weight_bytes(uint8_t type, uint64_t count);
void weight_encode(uint8_t type, const float *src, void *dst, uint64_t rows,
		   uint64_t width);
/* One weight, decoded from the format's own words. */
double weight_at(uint8_t type, const void *row, uint64_t index);
uint32_t weight_block(uint8_t type);
extern const uint8_t weight_types[];
extern const unsigned int weight_type_count;
const char *weight_name(uint8_t type);

#endif
