/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A client with an expert table. In its jobs experts of one layer or of all work
 * on rows, one on each; which ones is said job by job.
 */
#ifndef M6_TEST_MOE_H
#define M6_TEST_MOE_H

#include "board.h"

#define MOE_HIDDEN	32
#define MOE_FFN		16
#define MOE_FLOATS	(3 * MOE_HIDDEN * MOE_FFN)
#define MOE_BYTES	(MOE_FLOATS * sizeof(float))
#define MOE_ROWS	256
#define MOE_LAYERS	4

/* Of the data buffer, region 0. */
struct moe_tensors {
	float dst[MOE_LAYERS][MOE_ROWS][MOE_HIDDEN];
	float src[MOE_ROWS][MOE_HIDDEN];
	int32_t ids[MOE_ROWS];
	float ones[MOE_ROWS];
	struct m6npu_step step; /* and MOE_ROWS tokens behind it */
};

struct moe {
	int fd;
	uint32_t pool, layers, experts;
	struct buffer data, weights, list;
	struct moe_tensors *t;
	struct job job;
};

/* Deterministic, multiples of 1/256 from -1/2 to 1/2. */
float moe_value(uint32_t seed, uint32_t index);
/* What an expert makes of a row, in double precision. */
double moe_expected(const float *weights, const float *src, uint32_t column);

/* With a table in which all are absent. Up to MOE_LAYERS and MOE_ROWS. */
int moe_open(struct moe *moe, uint32_t layers, uint32_t experts);
void moe_close(struct moe *moe);

/* An entry for an expert in its place, and all of a range. */
struct drm_m6npu_expert moe_entry(const struct moe *moe, uint32_t layer,
				  uint32_t expert, uint32_t state);
int moe_bind_entries(const struct moe *moe, struct drm_m6npu_expert *entries,
		     uint32_t count);
int moe_bind(const struct moe *moe, uint32_t layer, uint32_t first,
	     uint32_t count, uint32_t state);
float *moe_weights(const struct moe *moe, uint32_t layer, uint32_t expert);

/* What a job does in a layer. */
struct m6npu_cmd moe_command(const struct moe *moe, uint32_t layer);
/* @count experts from @first on, each on a row. */
void moe_route(struct moe *moe, uint32_t first, uint32_t count);
/* A job of commands @first.. of a list, with the step block. */
void moe_job(struct moe *moe, const struct buffer *list, uint32_t first,
	     uint32_t count, struct job *job);
/* Runs such a job of one layer; the job's own error is in info->error. */
int moe_run(struct moe *moe, uint32_t layer, uint32_t first, uint32_t count,
	    struct drm_m6npu_job_info *info);
/* Is a row of a layer what this expert makes of it; and are all rows right? */
bool moe_row_right(const struct moe *moe, uint32_t layer, uint32_t row,
		   const float *weights);
bool moe_right(const struct moe *moe, uint32_t layer);

#endif
