/* SPDX-License-Identifier: MIT */
/* Experts and rows for them, for the tests of MOE_FFN and its kin. */
#ifndef M6_TEST_MOE_H
#define M6_TEST_MOE_H

#include "fake.h"

/* Regions. Grouped commands write to PAIRS and have MEMBERS. */
enum { DST, SRC, IDS, WEIGHTS, PAIRS, MEMBERS };

struct moe {
	uint32_t rows, k, experts, hidden, ffn, act;
	uint8_t type[3];		/* gate, up, down */
	bool accumulate;
};

uint64_t moe_align(uint64_t bytes);
uint64_t moe_matrix_at(const struct moe *m, unsigned int matrix);
uint64_t moe_expert_bytes(const struct moe *m);
/* From one expert to the next, as moe_experts() puts them. */
uint64_t moe_stride(const struct moe *m);

/* One expert of random weights. */
void moe_fill_expert(const struct moe *m, uint8_t *memory);
void moe_experts(struct m6_job *job, const struct moe *m);
/* Random rows, weights and ids, and what will be overwritten. */
void moe_rows(struct m6_job *job, const struct moe *m);

/* Token by token. */
struct m6npu_cmd moe_command(const struct moe *m);
/* Those of @count experts: their ids are put at @first of the members. */
struct m6npu_cmd moe_grouped(struct m6_job *job, const struct moe *m,
			     uint32_t first, const int32_t *ids,
			     uint32_t count, uint32_t capacity);
struct m6npu_cmd moe_combine(const struct moe *m);

/* Largest error of DST, which held @before, relative to its values. */
double moe_error(const struct m6_job *job, const struct moe *m,
		 const float *before);

#endif
