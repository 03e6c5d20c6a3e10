// SPDX-License-Identifier: GPL-2.0-only
/* The expert table, faults, and the router cache. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "board.h"
#include "kselftest_harness.h"
#include "moe.h"

#define HIDDEN	32
#define FFN	16
#define EXPERTS	8
#define TOP	2
#define ROWS	3
#define WEIGHTS	(3 * HIDDEN * FFN)

/* Of the data buffer, region 0. */
struct tensors {
	float dst[ROWS][HIDDEN];
	float src[ROWS][HIDDEN];
	int32_t ids[ROWS][TOP];
	float weights[ROWS][TOP];
};

FIXTURE(expert)
{
	int fd;
	uint32_t pool;
	struct buffer data, weights, list;
	struct tensors *t;
	struct job job;
};

static struct m6npu_cmd two_choices(void)
{
	struct m6npu_cmd cmd = { .opcode = M6NPU_OP_MOE_FFN, .layer = 1 };

	cmd.operand[0] = M6NPU_OPERAND(0, offsetof(struct tensors, dst));
	cmd.operand[1] = M6NPU_OPERAND(0, offsetof(struct tensors, src));
	cmd.operand[2] = M6NPU_OPERAND(0, offsetof(struct tensors, ids));
	cmd.operand[3] = M6NPU_OPERAND(0, offsetof(struct tensors, weights));
	cmd.args.moe.rows = ROWS;
	cmd.args.moe.k = TOP;
	cmd.args.moe.experts = EXPERTS;
	cmd.args.moe.hidden = HIDDEN;
	cmd.args.moe.ffn = FFN;
	cmd.args.moe.act = M6NPU_ACT_SILU;
	return cmd;
}

FIXTURE_SETUP(expert)
{
	struct drm_m6npu_expert_table table = { .layers = 2,
						.experts = EXPERTS };
	struct m6npu_cmd cmd = two_choices();

	self->fd = board_open();
	if (self->fd < 0)
		SKIP(return, "no M6 NPU");
	ASSERT_EQ(0, board_pool(self->fd, 4 * MIB, &self->pool));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool, sizeof(struct tensors),
				  0, &self->data));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool,
				  EXPERTS * WEIGHTS * sizeof(float), 0,
				  &self->weights));
	ASSERT_EQ(0, board_list(self->fd, self->pool, &cmd, 1, &self->list));
	ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE,
				 &table));
	self->t = self->data.map;
	for (uint32_t i = 0; i < EXPERTS * WEIGHTS; i++)
		((float *)self->weights.map)[i] =
			moe_value(i / WEIGHTS, i % WEIGHTS);
	for (uint32_t r = 0; r < ROWS; r++) {
		for (uint32_t i = 0; i < HIDDEN; i++)
			self->t->src[r][i] = moe_value(100 + r, i);
		for (uint32_t k = 0; k < TOP; k++) {
			self->t->ids[r][k] = (int32_t)((r * 3 + k * 2) %
						       EXPERTS);
			self->t->weights[r][k] = 0.75f - 0.5f * (float)k;
		}
	}
	board_job(&self->job, &self->list, 1, &self->data, 1);
}

FIXTURE_TEARDOWN(expert)
{
	if (self->fd >= 0)
		close(self->fd);
}

/* Binds the experts of @mask in layer 1 in @state. */
static int bind_experts(int fd, const struct buffer *weights, uint32_t mask,
			uint32_t state)
{
	struct drm_m6npu_expert entry[EXPERTS] = { 0 };
	struct drm_m6npu_expert_bind bind = {
		.entries = (uintptr_t)entry,
		.stride = sizeof(entry[0]),
	};

	for (uint32_t i = 0; i < EXPERTS; i++) {
		struct drm_m6npu_expert *e = &entry[bind.count];

		if (!(mask >> i & 1))
			continue;
		e->layer = 1;
		e->expert = (uint16_t)i;
		e->state = state;
		if (state != DRM_M6NPU_EXPERT_ABSENT) {
			e->addr = weights->addr + i * WEIGHTS * sizeof(float);
			e->size = WEIGHTS * sizeof(float);
		}
		bind.count++;
	}
	return board_ioctl(fd, DRM_IOCTL_M6NPU_EXPERT_BIND, &bind);
}

static double expected(const struct tensors *t, const float *weights,
		       uint32_t row, uint32_t column)
{
	double sum = 0;

	for (uint32_t k = 0; k < TOP; k++)
		sum += t->weights[row][k] *
		       moe_expected(weights +
				    (uint32_t)t->ids[row][k] * WEIGHTS,
				    t->src[row], column);
	return sum;
}

static bool right(const struct tensors *t, const float *weights)
{
	for (uint32_t r = 0; r < ROWS; r++)
		for (uint32_t c = 0; c < HIDDEN; c++)
			if (fabs(t->dst[r][c] - expected(t, weights, r, c)) >
			    1e-4)
				return false;
	return true;
}

TEST_F(expert, resident)
{
	struct drm_m6npu_job_info info;

	ASSERT_EQ(0, bind_experts(self->fd, &self->weights, 0xff,
				  DRM_M6NPU_EXPERT_RESIDENT));
	ASSERT_EQ(0, board_run(self->fd, &self->job, &info));
	EXPECT_EQ(0, info.error);
	EXPECT_EQ(0, info.expert_faults);
	EXPECT_TRUE(right(self->t, self->weights.map));
}

static int64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Nothing is resident: faults name what is missing until it is there. */
TEST_F(expert, faults)
{
	struct drm_m6npu_event_expert_fault event;
	struct drm_m6npu_job_info info;
	uint32_t needed = 0, missing;
	long long before = board_figure("stalled_us"), after;
	int64_t begin = now_us();

	for (uint32_t r = 0; r < ROWS; r++)
		for (uint32_t k = 0; k < TOP; k++)
			needed |= 1u << self->t->ids[r][k];
	ASSERT_EQ(0, board_submit(self->fd, &self->job));
	for (missing = needed; missing; missing &= missing - 1) {
		do {
			ASSERT_EQ((int)sizeof(event),
				  board_event(self->fd,
					      DRM_M6NPU_EVENT_EXPERT_FAULT,
					      BOARD_TIMEOUT_MS, &event,
					      sizeof(event)));
			/* A repeat of the last one may still be under way. */
		} while (event.mask != missing);
		EXPECT_EQ(self->job.args.job, event.job);
		EXPECT_EQ(1, event.layer);
		EXPECT_EQ(0, event.expert_base);
		info = (struct drm_m6npu_job_info){ .job =
							    self->job.args.job };
		EXPECT_EQ(-EBUSY, board_ioctl(self->fd,
					      DRM_IOCTL_M6NPU_JOB_INFO, &info));
		/* One at a time, the lowest first. */
		ASSERT_EQ(0, bind_experts(self->fd, &self->weights,
					  missing & -missing,
					  DRM_M6NPU_EXPERT_RESIDENT));
	}
	ASSERT_EQ(0, board_wait(self->fd, &self->job, BOARD_TIMEOUT_MS, &info));
	EXPECT_EQ(0, info.error);
	EXPECT_LT(0, info.expert_faults);
	EXPECT_TRUE(right(self->t, self->weights.map));
	/* What it waited is told, and no more than that. */
	after = board_figure("stalled_us");
	EXPECT_LE(0, before);
	EXPECT_LT(before, after);
	EXPECT_GE(now_us() - begin, after - before);
}

/* The result is the same to the bit under every policy. */
TEST_F(expert, policies)
{
	static const uint32_t policies[] = {
		DRM_M6NPU_ROUTER_POLICY_OFF, DRM_M6NPU_ROUTER_POLICY_LRU,
		DRM_M6NPU_ROUTER_POLICY_PRIORITY_LRU,
	};
	struct drm_m6npu_job_info info;
	float first[ROWS][HIDDEN];

	ASSERT_EQ(0, bind_experts(self->fd, &self->weights, 0xff,
				  DRM_M6NPU_EXPERT_RESIDENT));
	for (size_t i = 0; i < 3; i++) {
		struct drm_m6npu_router_ctl ctl = {
			.flags = DRM_M6NPU_ROUTER_SET_POLICY |
				 DRM_M6NPU_ROUTER_INVALIDATE,
			.policy = policies[i],
		};

		ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_ROUTER_CTL,
					 &ctl));
		EXPECT_EQ(policies[i], ctl.policy);
		memset(self->t->dst, 0, sizeof(self->t->dst));
		for (int run = 0; run < 2; run++) {
			ASSERT_EQ(0, board_run(self->fd, &self->job, &info));
			EXPECT_EQ(0, info.error);
		}
		EXPECT_EQ(policies[i] == DRM_M6NPU_ROUTER_POLICY_OFF,
			  info.router_hits == 0);
		if (!i)
			memcpy(first, self->t->dst, sizeof(first));
		EXPECT_EQ(0, memcmp(first, self->t->dst, sizeof(first)));
		EXPECT_TRUE(right(self->t, self->weights.map));
	}
	{
		struct drm_m6npu_router_ctl back = {
			.flags = DRM_M6NPU_ROUTER_SET_POLICY,
			.policy = DRM_M6NPU_ROUTER_POLICY_LRU,
		};

		board_ioctl(self->fd, DRM_IOCTL_M6NPU_ROUTER_CTL, &back);
	}
}

/* A new address takes effect at once, whatever the cache held. */
TEST_F(expert, rebind)
{
	struct drm_m6npu_job_info info;
	struct buffer moved;

	ASSERT_EQ(0, bind_experts(self->fd, &self->weights, 0xff,
				  DRM_M6NPU_EXPERT_PINNED));
	ASSERT_EQ(0, board_run(self->fd, &self->job, &info));
	EXPECT_TRUE(right(self->t, self->weights.map));
	ASSERT_EQ(0, board_buffer(self->fd, self->pool,
				  EXPERTS * WEIGHTS * sizeof(float), 0,
				  &moved));
	for (uint32_t i = 0; i < EXPERTS * WEIGHTS; i++)
		((float *)moved.map)[i] =
			2 * ((float *)self->weights.map)[i];
	ASSERT_EQ(0, bind_experts(self->fd, &moved, 0xff,
				  DRM_M6NPU_EXPERT_RESIDENT));
	ASSERT_EQ(0, board_run(self->fd, &self->job, &info));
	EXPECT_EQ(0, info.error);
	EXPECT_TRUE(right(self->t, moved.map));
}

/* A program of the time when experts had no type. */
TEST_F(expert, old_program)
{
	struct {
		uint16_t layer, expert;
		uint32_t state;
		uint64_t addr;
		uint32_t size, priority;
	} entry[EXPERTS] = { 0 };
	struct drm_m6npu_expert_bind bind = {
		.entries = (uintptr_t)entry,
		.count = EXPERTS,
		.stride = 24,
	};
	struct drm_m6npu_job_info info;

	EXPECT_EQ(24, sizeof(entry[0]));
	for (uint32_t i = 0; i < EXPERTS; i++) {
		entry[i].layer = 1;
		entry[i].expert = (uint16_t)i;
		entry[i].state = DRM_M6NPU_EXPERT_RESIDENT;
		entry[i].size = WEIGHTS * sizeof(float);
		entry[i].addr = self->weights.addr + i * entry[i].size;
	}
	ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_BIND, &bind));
	ASSERT_EQ(0, board_run(self->fd, &self->job, &info));
	EXPECT_EQ(0, info.error);
	EXPECT_TRUE(right(self->t, self->weights.map));
}

/* An expert may have another format than its command names, at any time. */
TEST_F(expert, types)
{
	struct drm_m6npu_expert entry = {
		.layer = 1, .expert = 3, .state = DRM_M6NPU_EXPERT_RESIDENT,
		.size = WEIGHTS * sizeof(float),
	};
	struct drm_m6npu_expert_bind bind = {
		.entries = (uintptr_t)&entry, .count = 1,
		.stride = sizeof(entry),
	};
	const float *weights =
		(const float *)self->weights.map + entry.expert * WEIGHTS;
	struct drm_m6npu_job_info info;
	struct buffer halves;

	ASSERT_EQ(0, board_buffer(self->fd, self->pool, entry.size, 0,
				  &halves));
	/* Exact: all have few digits. */
	for (uint32_t i = 0; i < WEIGHTS; i++)
		((_Float16 *)halves.map)[i] = (_Float16)weights[i];
	entry.addr = halves.addr;
	ASSERT_EQ(0, bind_experts(self->fd, &self->weights, 0xff,
				  DRM_M6NPU_EXPERT_RESIDENT));
	for (uint32_t i = 0; i < 6; i++) {
		entry.type = i % 2 ? M6NPU_TYPE_F16 : M6NPU_TYPE_F32;
		ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_BIND,
					 &bind));
		ASSERT_EQ(0, board_run(self->fd, &self->job, &info));
		EXPECT_EQ(0, info.error);
		EXPECT_EQ(i % 2, right(self->t, self->weights.map));
	}
}

/*
 * An expert goes where another is while a job waits: the call does not wait for
 * that job, which has just been told to look again, and waits for the next.
 */
TEST_F(expert, make_room)
{
	struct drm_m6npu_event_expert_fault event;
	struct drm_m6npu_job_info info;
	uint32_t victim = 1u << 7, wanted = 1u << self->t->ids[0][0];

	ASSERT_EQ(0, board_submit(self->fd, &self->job));
	ASSERT_EQ((int)sizeof(event),
		  board_event(self->fd, DRM_M6NPU_EVENT_EXPERT_FAULT,
			      BOARD_TIMEOUT_MS, &event, sizeof(event)));
	ASSERT_EQ(0, event.mask & victim);
	for (int i = 0; i < 100; i++) {
		/* One of several that it needs, so that it waits again. */
		ASSERT_EQ(0, bind_experts(self->fd, &self->weights,
					  wanted | victim,
					  DRM_M6NPU_EXPERT_RESIDENT));
		ASSERT_EQ(0, bind_experts(self->fd, &self->weights,
					  wanted | victim,
					  DRM_M6NPU_EXPERT_ABSENT));
	}
	ASSERT_EQ(0, bind_experts(self->fd, &self->weights, 0xff,
				  DRM_M6NPU_EXPERT_RESIDENT));
	ASSERT_EQ(0, board_wait(self->fd, &self->job, BOARD_TIMEOUT_MS, &info));
	EXPECT_EQ(0, info.error);
	EXPECT_TRUE(right(self->t, self->weights.map));
}

TEST_F(expert, refused)
{
	struct drm_m6npu_expert_table table = { .layers = 1, .experts = 1 };
	struct drm_m6npu_expert_table none = { 0 };
	struct drm_m6npu_expert entry[2] = {
		{ .layer = 1, .expert = 1, .state = DRM_M6NPU_EXPERT_RESIDENT,
		  .addr = self->weights.addr, .size = 64 },
		{ .layer = 1, .expert = 2, .state = DRM_M6NPU_EXPERT_RESIDENT,
		  .addr = self->weights.addr, .size = 64 },
	};
	struct drm_m6npu_expert good = entry[1];
	struct drm_m6npu_expert absent = { .layer = 1, .expert = 2 };
	struct drm_m6npu_expert_bind bind = {
		.entries = (uintptr_t)entry, .count = 2,
		.stride = sizeof(entry[0]),
	}, args;
	struct {
		struct drm_m6npu_expert expert;
		uint64_t later;
	} newer[2] = { { .expert = good }, { .expert = good, .later = 1 } };
	struct drm_m6npu_router_ctl ctl = {
		.flags = DRM_M6NPU_ROUTER_SET_POLICY, .policy = 9,
	};

#define EXPECT_BIND(error, change)                                        \
	do {                                                              \
		entry[1] = good;                                          \
		change;                                                   \
		args = bind;                                              \
		EXPECT_EQ(error, board_ioctl(self->fd,                    \
				DRM_IOCTL_M6NPU_EXPERT_BIND, &args))      \
		{                                                         \
			TH_LOG("%s", #change);                            \
		}                                                         \
		if (error == -EINVAL)                                     \
			EXPECT_EQ(1, args.count);                         \
	} while (0)
	EXPECT_BIND(-EINVAL, entry[1].layer = 2);
	EXPECT_BIND(-EINVAL, entry[1].expert = EXPERTS);
	EXPECT_BIND(-EINVAL, entry[1].state = 3);
	EXPECT_BIND(-EINVAL, entry[1].addr = 4);
	EXPECT_BIND(-EINVAL, entry[1].addr = 1ull << 38);
	EXPECT_BIND(-EINVAL, entry[1].priority = 1001);
	EXPECT_BIND(-EINVAL, entry[1].type = M6NPU_TYPE_I32);
	EXPECT_BIND(-EINVAL, entry[1].type = M6NPU_TYPE_COUNT);
	EXPECT_BIND(-EINVAL, entry[1].type = 1u << 16 | M6NPU_TYPE_F16);
	EXPECT_BIND(-EINVAL, entry[1].pad = 1);
	EXPECT_BIND(-EINVAL, entry[1] = absent; entry[1].type = 1);
	EXPECT_BIND(0, entry[1] = absent);
	EXPECT_BIND(0, entry[1].type = M6NPU_TYPE_Q6_K);
	EXPECT_BIND(0, (void)0);
#undef EXPECT_BIND
	/* A field that this kernel doesn't have must be zero. */
	args = bind;
	args.entries = (uintptr_t)newer;
	args.stride = sizeof(newer[0]);
	EXPECT_EQ(-EINVAL, board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_BIND,
				       &args));
	EXPECT_EQ(1, args.count);
	newer[1].later = 0;
	args.count = 2;
	EXPECT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_BIND, &args));
	args.stride = 20;
	EXPECT_EQ(-EINVAL, board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_BIND,
				       &args));
	bind.count = DRM_M6NPU_MAX_BINDS + 1;
	EXPECT_EQ(-E2BIG, board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_BIND,
				      &bind));
	EXPECT_EQ(-EEXIST, board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE,
				       &table));
	EXPECT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE,
				 &none));
	bind.count = 1;
	EXPECT_EQ(-ENXIO, board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_BIND,
				      &bind));
	table.layers = DRM_M6NPU_MAX_EXPERT_LAYERS + 1;
	EXPECT_EQ(-EINVAL, board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE,
				       &table));
	table.layers = 1;
	table.experts = DRM_M6NPU_MAX_EXPERTS + 1;
	EXPECT_EQ(-EINVAL, board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE,
				       &table));
	EXPECT_EQ(-EINVAL,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_ROUTER_CTL, &ctl));
	ctl.flags = DRM_M6NPU_ROUTER_SET_THRESHOLD;
	ctl.threshold = 1001;
	EXPECT_EQ(-EINVAL,
		  board_ioctl(self->fd, DRM_IOCTL_M6NPU_ROUTER_CTL, &ctl));
}

/* A job without a table, or with one too small, faults and goes. */
TEST_F(expert, no_table)
{
	struct drm_m6npu_expert_table none = { 0 };
	struct drm_m6npu_job_info info;

	ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE,
				 &none));
	ASSERT_EQ(0, board_run(self->fd, &self->job, &info));
	EXPECT_NE(0, info.error);
	EXPECT_NE(0, info.exception);
}

static int abort_job(int fd, uint64_t id)
{
	struct drm_m6npu_job_abort args = { .job = id };

	return board_ioctl(fd, DRM_IOCTL_M6NPU_JOB_ABORT, &args);
}

/* A job that waits for an expert ends at once when told, and alone. */
TEST_F(expert, abort)
{
	struct drm_m6npu_event_expert_fault event;
	struct drm_m6npu_job_info info;
	int other = board_open();

	ASSERT_LE(0, other);
	EXPECT_EQ(-ENOENT, abort_job(self->fd, 0));
	EXPECT_EQ(-ENOENT, abort_job(self->fd, 1));
	ASSERT_EQ(0, board_submit(self->fd, &self->job));
	ASSERT_EQ((int)sizeof(event),
		  board_event(self->fd, DRM_M6NPU_EVENT_EXPERT_FAULT,
			      BOARD_TIMEOUT_MS, &event, sizeof(event)));
	/* Ids are each file's own. */
	EXPECT_EQ(-ENOENT, abort_job(other, self->job.args.job));
	EXPECT_EQ(0, abort_job(self->fd, self->job.args.job));
	info = (struct drm_m6npu_job_info){ .job = self->job.args.job };
	ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_JOB_INFO, &info));
	EXPECT_EQ(-ECANCELED, info.error);
	EXPECT_EQ(-ENOENT, abort_job(self->fd, self->job.args.job));
	/* The next one is not concerned. */
	ASSERT_EQ(0, bind_experts(self->fd, &self->weights, 0xff,
				  DRM_M6NPU_EXPERT_RESIDENT));
	ASSERT_EQ(0, board_run(self->fd, &self->job, &info));
	EXPECT_EQ(0, info.error);
	EXPECT_TRUE(right(self->t, self->weights.map));
	close(other);
}

struct aborter {
	int fd;
	uint64_t id;
	int result;
};

static void *abort_in_thread(void *opaque)
{
	struct aborter *a = opaque;

	a->result = abort_job(a->fd, a->id);
	return NULL;
}

/* One that has not begun behind one that waits: both can be told. */
TEST_F(expert, abort_queued)
{
	struct drm_m6npu_event_expert_fault event;
	struct drm_m6npu_job_info info;
	struct aborter queued;
	uint64_t first;
	pthread_t thread;

	self->job.args.unit_mask = 1;
	ASSERT_EQ(0, board_submit(self->fd, &self->job));
	first = self->job.args.job;
	ASSERT_EQ((int)sizeof(event),
		  board_event(self->fd, DRM_M6NPU_EVENT_EXPERT_FAULT,
			      BOARD_TIMEOUT_MS, &event, sizeof(event)));
	ASSERT_EQ(0, board_submit(self->fd, &self->job));
	queued = (struct aborter){ self->fd, self->job.args.job, 1 };
	ASSERT_EQ(0, pthread_create(&thread, NULL, abort_in_thread, &queued));
	EXPECT_EQ(0, abort_job(self->fd, first));
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(0, queued.result);
	for (uint64_t id = first; id <= queued.id; id++) {
		info = (struct drm_m6npu_job_info){ .job = id };
		ASSERT_EQ(0, board_ioctl(self->fd, DRM_IOCTL_M6NPU_JOB_INFO,
					 &info));
		EXPECT_EQ(-ECANCELED, info.error);
	}
}

/* A client of its own that closes its file while its job waits. */
static int stall_and_leave(void)
{
	struct drm_m6npu_expert_table table = { .layers = 2,
						.experts = EXPERTS };
	struct drm_m6npu_event_expert_fault event;
	struct m6npu_cmd cmd = two_choices();
	struct buffer data, list;
	int fd = board_open();
	uint32_t pool;
	struct job job;
	int ret = -1;

	if (fd < 0 || board_pool(fd, MIB, &pool) ||
	    board_buffer(fd, pool, sizeof(struct tensors), 0, &data) ||
	    board_list(fd, pool, &cmd, 1, &list) ||
	    board_ioctl(fd, DRM_IOCTL_M6NPU_EXPERT_TABLE, &table))
		return -1;
	board_job(&job, &list, 1, &data, 1);
	if (!board_submit(fd, &job) &&
	    board_event(fd, DRM_M6NPU_EVENT_EXPERT_FAULT, BOARD_TIMEOUT_MS,
			&event, sizeof(event)) == (int)sizeof(event))
		ret = 0;
	munmap(data.map, data.size);
	close(fd);
	return ret;
}

/*
 * A client that goes away while its job waits takes the job with it, and one
 * that waits at the same time doesn't notice.
 */
TEST_F(expert, leave_while_stalled)
{
	struct drm_m6npu_event_expert_fault event;
	struct drm_m6npu_job_info info;
	uint64_t hits;

	ASSERT_EQ(0, board_submit(self->fd, &self->job));
	ASSERT_EQ((int)sizeof(event),
		  board_event(self->fd, DRM_M6NPU_EVENT_EXPERT_FAULT,
			      BOARD_TIMEOUT_MS, &event, sizeof(event)));
	EXPECT_EQ(0, stall_and_leave());
	ASSERT_EQ(0, board_param(self->fd, DRM_M6NPU_PARAM_CTX_ROUTER_HITS,
				 &hits));
	ASSERT_EQ(0, bind_experts(self->fd, &self->weights, 0xff,
				  DRM_M6NPU_EXPERT_RESIDENT));
	ASSERT_EQ(0, board_wait(self->fd, &self->job, BOARD_TIMEOUT_MS, &info));
	EXPECT_EQ(0, info.error);
	EXPECT_TRUE(right(self->t, self->weights.map));
}

TEST_HARNESS_MAIN
