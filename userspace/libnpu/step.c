// SPDX-License-Identifier: MIT
/*
 * One step: tokens in, logits out.
 *
 * The step block is written, one job is submitted, and the thread sleeps in
 * one poll(2) for all that can happen: the job ends (its syncobj writes to an
 * eventfd), it waits for experts or will soon want some (events on the device
 * file), which are then brought in, or some have come.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xf86drm.h>
#include <drm/m6npu_accel.h>

#include "device.h"
#include "error.h"
#include "event.h"
#include "model.h"

/* ---- Checks ---- */

static int check_token(const struct npu_model *m, const struct npu_step_token *t,
		       uint32_t i)
{
	if (t->token < 0 || (uint32_t)t->token >= m->runtime.vocab)
		return npu_fail(-EINVAL, "step: token %" PRIu32 " has the id %"
				PRId32 "; the vocabulary has %" PRIu32, i,
				t->token, m->runtime.vocab);
	if (t->slot >= m->layout.slots)
		return npu_fail(-EINVAL, "step: token %" PRIu32
				" is for slot %" PRIu32 " of %" PRIu32, i,
				t->slot, m->layout.slots);
	if (t->position >= m->layout.max_seq)
		return npu_fail(-EINVAL, "step: token %" PRIu32
				" is at position %" PRIu32 " of %" PRIu32, i,
				t->position, m->layout.max_seq);
	return 0;
}

/* Position that follows the slot's last token before @i in this step. */
static int64_t next_position(const struct npu_step_token *tokens, uint32_t i)
{
	uint32_t k;

	for (k = i; k-- > 0;)
		if (tokens[k].slot == tokens[i].slot)
			return (int64_t)tokens[k].position + 1;
	return -1;
}

static int check_positions(const struct npu_model *m,
			   const struct npu_step_token *tokens, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++) {
		int64_t next = next_position(tokens, i);
		uint32_t filled = m->filled[tokens[i].slot];

		if (next < 0 ? tokens[i].position <= filled :
			       tokens[i].position == next)
			continue;
		return npu_fail(-EINVAL, "step: token %" PRIu32
				" of slot %" PRIu32 " is at position %" PRIu32
				", expected %" PRId64, i, tokens[i].slot,
				tokens[i].position,
				next < 0 ? (int64_t)filled : next);
	}
	return 0;
}

int npu_model_check_step(const struct npu_model *m,
			 const struct npu_step_token *tokens, uint32_t count)
{
	uint32_t i, out = 0;
	int ret;

	if (!count || count > m->runtime.max_tile)
		return npu_fail(-EINVAL, "step: %" PRIu32
				" tokens, not 1 to %" PRIu32, count,
				m->runtime.max_tile);
	for (i = 0; i < count; i++) {
		ret = check_token(m, &tokens[i], i);
		if (ret)
			return ret;
		out += tokens[i].out;
	}
	if (out > m->runtime.max_out)
		return npu_fail(-EINVAL, "step: logits of %" PRIu32
				" tokens are wanted; at most %" PRIu32, out,
				m->runtime.max_out);
	return check_positions(m, tokens, count);
}

/* ---- The job ---- */

static int submit(struct npu_model *m, const struct npu_tile *tile,
		  uint64_t *job)
{
	const struct drm_m6npu_region regions[NPU_REGION_COUNT] = {
		[NPU_REGION_WEIGHTS] = { m->weights.addr, m->weights.size },
		[NPU_REGION_SCRATCH] = { m->scratch.addr, m->scratch.size },
		[NPU_REGION_KV] = { m->kv.addr, m->kv.size },
		[NPU_REGION_IO] = { m->io.addr, m->io.size },
	};
	const struct drm_m6npu_sync done = { .handle = m->syncobj };
	struct drm_m6npu_submit arg = {
		.cmdlist = m->commands->handle,
		.cmd_count = tile->commands,
		.cmd_offset = tile->offset,
		.step_addr = m->io.addr + m->runtime.step_offset,
		.regions = (uintptr_t)regions,
		.region_count = NPU_REGION_COUNT,
		.region_stride = sizeof(regions[0]),
		.out_syncs = (uintptr_t)&done,
		.out_sync_count = 1,
		.sync_stride = sizeof(done),
	};
	int ret;

	ret = npu_device_ioctl(m->device, DRM_IOCTL_M6NPU_SUBMIT, &arg);
	if (ret == -EIO)
		return npu_fail(ret,
				"%s: the device was reset because of this model; open it again and load the model again",
				m->device->node);
	if (ret)
		return npu_device_fail(m->device, ret, "cannot submit a step");
	*job = arg.job;
	return 0;
}

static int on_expert_fault(void *user,
			   const struct drm_m6npu_event_expert_fault *event)
{
	struct npu_model *m = user;

	return npu_experts_fault(&m->experts, event);
}

static void on_expert_hint(void *user,
			   const struct drm_m6npu_event_expert_fault *event)
{
	struct npu_model *m = user;

	npu_experts_hint(&m->experts, event);
}

/* Both kinds of model take events out: the queue is short. */
static int read_events(struct npu_model *m)
{
	const struct npu_event_handler handler = {
		.expert_fault = on_expert_fault,
		.expert_hint = on_expert_hint,
		.user = m,
	};
	bool mine, nobodys;

	pthread_mutex_lock(&m->device->lock);
	mine = m->device->experts == &m->experts;
	nobodys = !m->device->experts;
	pthread_mutex_unlock(&m->device->lock);
	if (mine)
		return npu_events_read(m->device, &handler);
	return nobodys ? npu_events_read(m->device, NULL) : 0;
}

static bool take_completion(struct npu_model *m)
{
	uint64_t count;

	return read(m->eventfd, &count, sizeof(count)) == sizeof(count);
}

/*
 * The job waits for experts that will not come. Memory of a running job must
 * not be reused, so its end is waited for in any case: a driver that cannot
 * abort ends it when its expert timeout passes.
 */
static void abort_job(struct npu_model *m, uint64_t job)
{
	struct drm_m6npu_job_abort arg = { .job = job };

	npu_device_ioctl(m->device, DRM_IOCTL_M6NPU_JOB_ABORT, &arg);
}

/* What is on the device file; after an error only to make room there. */
static void handle_events(struct npu_model *m, uint64_t job, int *error)
{
	int ret;

	if (*error) {
		npu_events_read(m->device, NULL);
		return;
	}
	ret = read_events(m);
	if (ret)
		abort_job(m, job);
	*error = ret;
}

static int wait_job(struct npu_model *m, uint64_t job)
{
	struct pollfd fds[3] = {
		{ .fd = m->eventfd, .events = POLLIN },
		{ .fd = m->experts.table ? npu_device_fd(m->device) : -1,
		  .events = POLLIN },
		{ .fd = npu_experts_fd(&m->experts), .events = POLLIN },
	};
	int ret, error = 0;

	ret = drmSyncobjEventfd(npu_device_fd(m->device), m->syncobj, 0,
				m->eventfd, 0);
	if (ret)
		return npu_device_fail(m->device, -errno,
				       "cannot wait for a step");
	for (;;) {
		if (poll(fds, 3, -1) < 0) {
			if (errno == EINTR || errno == EAGAIN)
				continue;
			return npu_fail(-errno, "cannot poll: %s",
					strerror(errno));
		}
		if (fds[0].revents && take_completion(m))
			return error;
		if (fds[2].revents && !error)
			npu_experts_arrived(&m->experts);
		if (error)
			fds[2].fd = -1;
		if (fds[1].revents & POLLIN)
			handle_events(m, job, &error);
		else if (fds[1].revents)
			/* Gone; the job's end is what is left to come. */
			fds[1].fd = -1;
	}
}

static int fail_job(struct npu_model *m, const struct npu_tile *tile,
		    const struct drm_m6npu_job_info *info)
{
	int error = info->error ? info->error : -EIO;
	char where[64] = "";

	if (error == -ENODEV)
		return npu_device_fail(m->device, error, "step");
	if (!info->exception)
		return npu_fail(error,
				"step failed: %s; its tokens may be tried again",
				strerror(-error));
	if (info->fault_addr)
		snprintf(where, sizeof(where), " at device address %#" PRIx64,
			 (uint64_t)info->fault_addr);
	return npu_fail(error,
			"step failed: %s (%#x)%s, command %" PRIu32 " of %" PRIu32 ", tile %" PRIu32 ": %s",
			npu_exception_name(info->exception), info->exception,
			where, info->cmd_index, tile->commands, tile->tokens,
			npu_exception_remedy(info->exception));
}

static int job_result(struct npu_model *m, const struct npu_tile *tile,
		      uint64_t job, struct npu_step_result *result)
{
	struct drm_m6npu_job_info info = { .job = job };
	int ret;

	ret = npu_device_ioctl(m->device, DRM_IOCTL_M6NPU_JOB_INFO, &info);
	if (ret)
		return npu_device_fail(m->device, ret,
				       "cannot ask how a step ended");
	if (info.error)
		return fail_job(m, tile, &info);
	result->device_ns = info.end_ns - info.begin_ns;
	result->router_hits = info.router_hits;
	result->router_misses = info.router_misses;
	result->expert_faults = info.expert_faults;
	return 0;
}

static int run_job(struct npu_model *m, const struct npu_tile *tile,
		   struct npu_step_result *result)
{
	uint64_t job = 0;
	int ret, error;

	ret = submit(m, tile, &job);
	if (ret)
		return ret;
	npu_experts_begin(&m->experts, job);
	error = wait_job(m, job);
	if (!m->experts.table)
		read_events(m);
	/* What went wrong with an expert says more than that it was late. */
	if (error)
		return error;
	return job_result(m, tile, job, result);
}

/* ---- The step ---- */

static int write_block(struct npu_model *m, const struct npu_step_token *tokens,
		       uint32_t count)
{
	const struct npu_step_ahead ahead = {
		.permille = npu_experts_threshold(&m->experts),
		.hints = npu_experts_want_hints(&m->experts),
	};
	uint64_t offset = m->runtime.step_offset;
	size_t size;

	size = npu_step_block_write(m->io.cpu + offset, &m->kv_shape, &ahead,
				    tokens, count);
	return npu_span_sync_to_device(&m->io, offset, size);
}

static int read_rows(struct npu_model *m, uint64_t offset, uint64_t row_bytes,
		     uint32_t rows, const void **out)
{
	*out = m->io.cpu + offset;
	return npu_span_sync_from_device(&m->io, offset, row_bytes * rows);
}

static int read_results(struct npu_model *m, struct npu_step_result *result)
{
	const struct npu_runtime *r = &m->runtime;
	uint32_t rows = result->out_count;
	const void *logits, *hidden, *ids, *values;
	int ret;

	if (!rows)
		return 0;
	ret = read_rows(m, r->logits_offset, 4ull * r->vocab, rows, &logits);
	if (!ret)
		ret = read_rows(m, r->hidden_offset, 4ull * r->hidden, rows,
				&hidden);
	if (!ret)
		ret = read_rows(m, r->topk_ids_offset, 4ull * r->topk, rows,
				&ids);
	if (!ret)
		ret = read_rows(m, r->topk_values_offset, 4ull * r->topk, rows,
				&values);
	if (ret)
		return ret;
	result->logits = logits;
	result->hidden = hidden;
	result->topk_ids = ids;
	result->topk_values = values;
	result->topk = r->topk;
	return 0;
}

/*
 * A step that failed has perhaps written something from its first position on,
 * and nothing before that.
 */
void npu_model_note_step(struct npu_model *m,
			 const struct npu_step_token *tokens, uint32_t count,
			 bool good)
{
	uint32_t i;

	for (i = count; i-- > 0 && !good;)
		m->filled[tokens[i].slot] = tokens[i].position;
	for (i = 0; i < count && good; i++)
		m->filled[tokens[i].slot] = tokens[i].position + 1;
}

int npu_model_step(struct npu_model *m, const struct npu_step_token *tokens,
		   uint32_t count, struct npu_step_result *result)
{
	const struct npu_tile *tile;
	uint32_t i;
	int ret;

	memset(result, 0, sizeof(*result));
	ret = npu_model_check_step(m, tokens, count);
	if (ret)
		return ret;
	for (i = 0; i < count; i++)
		result->out_count += tokens[i].out;
	tile = npu_tile_for(m->tiles, m->tile_count, count);
	npu_experts_prepare(&m->experts, count);
	ret = write_block(m, tokens, count);
	if (!ret)
		ret = run_job(m, tile, result);
	if (!ret)
		ret = read_results(m, result);
	if (!ret)
		npu_experts_end(&m->experts);
	npu_model_note_step(m, tokens, count, !ret);
	return ret;
}
