// SPDX-License-Identifier: GPL-2.0-only
#include "moe.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define AT(member) M6NPU_OPERAND(0, offsetof(struct moe_tensors, member))

float moe_value(uint32_t seed, uint32_t index)
{
	uint32_t mix = seed * 7919 + index * 104729 + 12345;

	mix = (mix ^ mix >> 13) * 0x5bd1e995;
	return (float)((int)(mix >> 16 & 0xff) - 128) / 256;
}

static double dot(const float *a, const float *b, uint32_t count)
{
	double sum = 0;

	for (uint32_t i = 0; i < count; i++)
		sum += (double)a[i] * b[i];
	return sum;
}

/* The formula of regs.h. */
double moe_expected(const float *weights, const float *src, uint32_t column)
{
	const float *up = weights + MOE_FFN * MOE_HIDDEN;
	const float *down = up + MOE_FFN * MOE_HIDDEN;
	double out = 0;

	for (uint32_t f = 0; f < MOE_FFN; f++) {
		double gate = dot(weights + f * MOE_HIDDEN, src, MOE_HIDDEN);

		out += down[column * MOE_FFN + f] * gate / (1 + exp(-gate)) *
		       dot(up + f * MOE_HIDDEN, src, MOE_HIDDEN);
	}
	return out;
}

/* For all rows; the step block says how many there are. */
struct m6npu_cmd moe_command(const struct moe *moe, uint32_t layer)
{
	struct m6npu_cmd cmd = { .opcode = M6NPU_OP_MOE_FFN,
				 .layer = (uint16_t)layer };

	cmd.operand[0] = AT(dst) + layer * sizeof(moe->t->dst[0]);
	cmd.operand[1] = AT(src);
	cmd.operand[2] = AT(ids);
	cmd.operand[3] = AT(ones);
	cmd.args.moe.rows = MOE_ROWS;
	cmd.args.moe.k = 1;
	cmd.args.moe.experts = (uint16_t)moe->experts;
	cmd.args.moe.hidden = MOE_HIDDEN;
	cmd.args.moe.ffn = MOE_FFN;
	cmd.args.moe.act = M6NPU_ACT_SILU;
	return cmd;
}

static int take_buffers(struct moe *moe)
{
	struct m6npu_cmd cmds[MOE_LAYERS];
	uint64_t bytes = (uint64_t)moe->layers * moe->experts * MOE_BYTES;
	int ret;

	for (uint32_t i = 0; i < moe->layers; i++)
		cmds[i] = moe_command(moe, i);
	ret = board_pool(moe->fd, bytes + 2 * MIB, &moe->pool);
	if (!ret)
		ret = board_buffer(moe->fd, moe->pool,
				   sizeof(*moe->t) +
					   MOE_ROWS *
						   sizeof(moe->t->step.tokens[0]),
				   0, &moe->data);
	if (!ret)
		ret = board_buffer(moe->fd, moe->pool, bytes, 0,
				   &moe->weights);
	if (!ret)
		ret = board_list(moe->fd, moe->pool, cmds, moe->layers,
				 &moe->list);
	return ret;
}

static void fill(struct moe *moe)
{
	uint32_t count = moe->layers * moe->experts * MOE_FLOATS;
	float *weights = moe->weights.map;

	moe->t = moe->data.map;
	for (uint32_t i = 0; i < count; i++)
		weights[i] = moe_value(i / MOE_FLOATS, i % MOE_FLOATS);
	for (uint32_t r = 0; r < MOE_ROWS; r++) {
		moe->t->ones[r] = 1;
		for (uint32_t i = 0; i < MOE_HIDDEN; i++)
			moe->t->src[r][i] = moe_value(10000 + r, i);
	}
}

int moe_open(struct moe *moe, uint32_t layers, uint32_t experts)
{
	struct drm_m6npu_expert_table table = { layers, experts };
	int ret;

	*moe = (struct moe){ .fd = board_open(), .layers = layers,
			     .experts = experts };
	if (moe->fd < 0)
		return -1;
	ret = take_buffers(moe);
	if (!ret)
		ret = board_ioctl(moe->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE,
				  &table);
	if (!ret)
		fill(moe);
	return ret;
}

void moe_close(struct moe *moe)
{
	if (moe->data.map)
		munmap(moe->data.map, moe->data.size);
	if (moe->weights.map)
		munmap(moe->weights.map, moe->weights.size);
	if (moe->fd >= 0)
		close(moe->fd);
	moe->fd = -1;
}

static uint64_t place(const struct moe *moe, uint32_t layer, uint32_t expert)
{
	return (uint64_t)(layer * moe->experts + expert) * MOE_BYTES;
}

float *moe_weights(const struct moe *moe, uint32_t layer, uint32_t expert)
{
	return (void *)((char *)moe->weights.map + place(moe, layer, expert));
}

struct drm_m6npu_expert moe_entry(const struct moe *moe, uint32_t layer,
				  uint32_t expert, uint32_t state)
{
	struct drm_m6npu_expert entry = {
		.layer = (uint16_t)layer,
		.expert = (uint16_t)expert,
		.state = state,
	};

	if (state == DRM_M6NPU_EXPERT_ABSENT)
		return entry;
	entry.addr = moe->weights.addr + place(moe, layer, expert);
	entry.size = MOE_BYTES;
	return entry;
}

int moe_bind_entries(const struct moe *moe, struct drm_m6npu_expert *entries,
		     uint32_t count)
{
	struct drm_m6npu_expert_bind bind = {
		.entries = (uintptr_t)entries,
		.count = count,
		.stride = sizeof(*entries),
	};

	return board_ioctl(moe->fd, DRM_IOCTL_M6NPU_EXPERT_BIND, &bind);
}

int moe_bind(const struct moe *moe, uint32_t layer, uint32_t first,
	     uint32_t count, uint32_t state)
{
	struct drm_m6npu_expert entries[MOE_ROWS];

	for (uint32_t i = 0; i < count; i++)
		entries[i] = moe_entry(moe, layer, first + i, state);
	return moe_bind_entries(moe, entries, count);
}

void moe_route(struct moe *moe, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		moe->t->ids[i] = (int32_t)(first + i);
	moe->t->step.token_count = count;
}

void moe_job(struct moe *moe, const struct buffer *list, uint32_t first,
	     uint32_t count, struct job *job)
{
	board_job(job, list, count, &moe->data, 1);
	job->args.cmd_offset = first * sizeof(struct m6npu_cmd);
	job->args.step_addr = moe->data.addr + offsetof(struct moe_tensors,
							step);
}

int moe_run(struct moe *moe, uint32_t layer, uint32_t first, uint32_t count,
	    struct drm_m6npu_job_info *info)
{
	moe_route(moe, first, count);
	moe_job(moe, &moe->list, layer, 1, &moe->job);
	return board_run(moe->fd, &moe->job, info);
}

bool moe_row_right(const struct moe *moe, uint32_t layer, uint32_t row,
		   const float *weights)
{
	const struct moe_tensors *t = moe->t;

	for (uint32_t c = 0; c < MOE_HIDDEN; c++)
		if (fabs(t->dst[layer][row][c] -
			 moe_expected(weights, t->src[row], c)) > 1e-4)
			return false;
	return true;
}

bool moe_right(const struct moe *moe, uint32_t layer)
{
	const struct moe_tensors *t = moe->t;

	for (uint32_t r = 0; r < t->step.token_count; r++)
		if (!moe_row_right(moe, layer, r,
				   moe_weights(moe, layer,
					       (uint32_t)t->ids[r])))
			return false;
	return true;
}
