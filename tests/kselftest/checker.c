// SPDX-License-Identifier: GPL-2.0-only
#include "checker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WORDS	4096
#define HIDDEN	32
#define FFN	16
#define EXPERTS 4
#define TOP	2
#define ROWS	4
#define WEIGHTS (3 * HIDDEN * FFN)
#define PATTERN 0xc0ffee11

/* Of the data buffer, region 0. */
struct tensors {
	uint32_t src[WORDS]; /* the CPU writes something else each time */
	uint32_t copy[WORDS];
	uint32_t filled[WORDS];
	float x[ROWS][HIDDEN];
	float w[ROWS][TOP];
	int32_t ids[ROWS][TOP];
	float y[ROWS][HIDDEN]; /* from here on by the device */
	uint32_t canary[WORDS]; /* by nobody */
};

#define AT(member) M6NPU_OPERAND(0, offsetof(struct tensors, member))

static int checker_experts(struct checker *checker)
{
	struct drm_m6npu_expert_table table = { .layers = 1,
						.experts = EXPERTS };
	struct drm_m6npu_expert entry[EXPERTS] = { 0 };
	struct drm_m6npu_expert_bind bind = {
		.entries = (uintptr_t)entry,
		.count = EXPERTS,
		.stride = sizeof(entry[0]),
	};
	int ret =
		board_ioctl(checker->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE, &table);

	for (uint32_t i = 0; i < EXPERTS; i++) {
		entry[i].expert = (uint16_t)i;
		entry[i].state = DRM_M6NPU_EXPERT_RESIDENT;
		entry[i].size = WEIGHTS * sizeof(float);
		entry[i].addr = checker->weights.addr + i * entry[i].size;
	}
	if (ret)
		return ret;
	return board_ioctl(checker->fd, DRM_IOCTL_M6NPU_EXPERT_BIND, &bind);
}

static void checker_fill(struct checker *checker)
{
	struct tensors *t = checker->data.map;
	struct rng rng = { 1 };
	float *weights = checker->weights.map;

	for (uint32_t i = 0; i < EXPERTS * WEIGHTS; i++)
		weights[i] = ((float)rng_below(&rng, 256) - 128) / 256;
	for (uint32_t r = 0; r < ROWS; r++) {
		for (uint32_t i = 0; i < HIDDEN; i++)
			t->x[r][i] = (float)rng_below(&rng, 256) / 64;
		for (uint32_t k = 0; k < TOP; k++) {
			t->ids[r][k] = (int32_t)((r + k) % EXPERTS);
			t->w[r][k] = 0.5f;
		}
	}
	for (uint32_t i = 0; i < WORDS; i++)
		t->canary[i] = PATTERN ^ i;
}

static int checker_list(struct checker *checker, uint32_t pool)
{
	struct m6npu_cmd moe = { .opcode = M6NPU_OP_MOE_FFN };
	struct m6npu_cmd cmds[3];

	moe.operand[0] = AT(y);
	moe.operand[1] = AT(x);
	moe.operand[2] = AT(ids);
	moe.operand[3] = AT(w);
	moe.args.moe.rows = ROWS;
	moe.args.moe.k = TOP;
	moe.args.moe.experts = EXPERTS;
	moe.args.moe.hidden = HIDDEN;
	moe.args.moe.ffn = FFN;
	cmds[0] = cmd_fill(0, offsetof(struct tensors, filled),
			   sizeof(uint32_t) * WORDS, PATTERN);
	cmds[1] = cmd_copy(0, offsetof(struct tensors, copy), 0,
			   offsetof(struct tensors, src),
			   sizeof(uint32_t) * WORDS);
	cmds[2] = moe;
	return board_list(checker->fd, pool, cmds, 3, &checker->list);
}

/* One job; false if it failed or there's no use in another. */
static bool checker_once(struct checker *checker)
{
	struct drm_m6npu_job_info info = { 0 };
	int ret;

	ret = board_run(checker->fd, &checker->job, &info);
	if (!ret)
		atomic_fetch_add(&checker->jobs, 1);
	if (!ret && !info.error)
		return true;
	if (!checker->error)
		checker->error = ret ? ret : info.error;
	atomic_fetch_add(&checker->failed, 1);
	return false;
}

static bool checker_right(const struct checker *checker, uint32_t salt)
{
	const struct tensors *t = checker->data.map;

	for (uint32_t i = 0; i < WORDS; i++)
		if (t->copy[i] != (salt ^ i) || t->filled[i] != PATTERN ||
		    t->canary[i] != (PATTERN ^ i))
			return false;
	return !memcmp(t->y, checker->reference, sizeof(t->y));
}

static void *checker_run(void *arg)
{
	struct checker *checker = arg;
	/* Leaves the machine to those that attack. */
	const struct timespec pause = { .tv_nsec = 2 * 1000 * 1000 };
	struct tensors *t = checker->data.map;

	for (uint32_t salt = 0x1234; !atomic_load(&checker->stop);
	     salt = salt * 1664525 + 1013904223) {
		for (uint32_t i = 0; i < WORDS; i++)
			t->src[i] = salt ^ i;
		memset(t->copy, 0, sizeof(t->copy));
		memset(t->filled, 0, sizeof(t->filled));
		memset(t->y, 0, sizeof(t->y));
		if (!checker_once(checker)) {
			if (atomic_load(&checker->failed) > 16)
				break;
			continue;
		}
		if (!checker_right(checker, salt))
			atomic_fetch_add(&checker->wrong, 1);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

int checker_start(struct checker *checker, uint32_t unit_mask)
{
	struct tensors *t;
	uint32_t pool;
	int ret;

	*checker = (struct checker){ .unit_mask = unit_mask };
	checker->fd = board_open();
	if (checker->fd < 0)
		return -ENODEV;
	ret = board_pool(checker->fd, MIB, &pool);
	if (!ret)
		ret = board_buffer(checker->fd, pool, sizeof(struct tensors), 0,
				   &checker->data);
	if (!ret)
		ret = board_buffer(checker->fd, pool,
				   EXPERTS * WEIGHTS * sizeof(float),
				   DRM_M6NPU_BO_DEVICE_READONLY,
				   &checker->weights);
	if (!ret)
		ret = checker_list(checker, pool);
	if (!ret)
		ret = checker_experts(checker);
	if (ret)
		return ret;
	checker_fill(checker);
	board_job(&checker->job, &checker->list, 3, &checker->data, 1);
	checker->job.args.unit_mask = unit_mask;
	if (!checker_once(checker))
		return checker->error;
	t = checker->data.map;
	checker->reference = malloc(sizeof(t->y));
	if (!checker->reference)
		return -ENOMEM;
	memcpy(checker->reference, t->y, sizeof(t->y));
	ret = -pthread_create(&checker->thread, NULL, checker_run, checker);
	checker->running = !ret;
	return ret;
}

bool checker_goes_on(struct checker *checker, long jobs)
{
	const struct timespec pause = { .tv_nsec = 5 * 1000 * 1000 };
	long until = atomic_load(&checker->jobs) + jobs;

	for (int i = 0; i < 12000; i++) {
		if (atomic_load(&checker->jobs) >= until)
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

bool checker_stop(struct checker *checker)
{
	long jobs, failed, wrong;

	atomic_store(&checker->stop, true);
	if (checker->running)
		pthread_join(checker->thread, NULL);
	checker->running = false;
	board_buffer_close(checker->fd, &checker->data);
	board_buffer_close(checker->fd, &checker->weights);
	close(checker->fd);
	free(checker->reference);
	jobs = atomic_load(&checker->jobs);
	failed = atomic_load(&checker->failed);
	wrong = atomic_load(&checker->wrong);
	printf("# checker: %ld jobs, %ld failed (%d), %ld wrong\n", jobs,
	       failed, checker->error, wrong);
	return jobs > 1 && !failed && !wrong;
}

/* ---- The kernel's log ---- */

static bool is_complaint(const char *record, bool errors_expected)
{
	static const char *const marks[] = {
		"BUG:",	       "WARNING:",
		"Oops",	       "Kernel panic",
		"Call trace:", "Call Trace:",
		"refcount_t",  "Unable to handle kernel",
		"rcu: INFO",   "blocked for more than",
	};
	const char *text = strchr(record, ';');

	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		if (strstr(record, marks[i]))
			return true;
	return !errors_expected && text && (atoi(record) & 7) <= 3 &&
	       strstr(text, "m6npu");
}

/* The next line that a sound run does not have. */
static bool kmsg_complaint(int kmsg, bool errors_expected, char *line,
			   size_t size)
{
	char record[8192];
	ssize_t count;

	for (;;) {
		count = read(kmsg, record, sizeof(record) - 1);
		if (count < 0 && errno == EPIPE)
			continue; /* overwritten; on with the next */
		if (count <= 0)
			return false;
		record[count] = '\0';
		if (!is_complaint(record, errors_expected))
			continue;
		record[strcspn(record, "\n")] = '\0';
		snprintf(line, size, "%.*s", (int)size - 1, record);
		return true;
	}
}

/* ---- The whole ---- */

#define EXPERT_TIMEOUT "expert_timeout_ms"

/* What a closed file held is given back when its last job ended: wait. */
static bool pools_settle(long long total, long long used)
{
	const struct timespec pause = { .tv_nsec = 10 * 1000 * 1000 };

	for (int i = 0; i < 3000; i++) {
		if (board_pool_figure("total") == total &&
		    board_pool_figure("used") == used)
			return true;
		nanosleep(&pause, NULL);
	}
	printf("# pools: total %lld used %lld, were %lld and %lld\n",
	       board_pool_figure("total"), board_pool_figure("used"), total,
	       used);
	return false;
}

bool witness_begin_idle(struct witness *witness)
{
	*witness = (struct witness){
		.total = board_pool_figure("total"),
		.used = board_pool_figure("used"),
		.kmsg = board_log(),
		.patience = board_parameter(EXPERT_TIMEOUT),
	};
	board_set_parameter(EXPERT_TIMEOUT, 100);
	return witness->total >= 0;
}

bool witness_begin(struct witness *witness)
{
	return witness_begin_idle(witness) &&
	       !checker_start(&witness->checker[0], 0) &&
	       !checker_start(&witness->checker[1], 1);
}

bool witness_end(struct witness *witness)
{
	char line[512];
	bool good = true;

	for (int i = 0; i < 2; i++) {
		struct checker *checker = &witness->checker[i];

		if (!checker->running)
			continue;
		/* Not only while it was attacked, afterwards as well. */
		good &= checker_goes_on(checker, 5);
		good &= checker_stop(checker);
	}
	good &= pools_settle(witness->total, witness->used);
	board_set_parameter(EXPERT_TIMEOUT, witness->patience);
	while (kmsg_complaint(witness->kmsg, witness->errors_expected, line,
			      sizeof(line))) {
		printf("# log: %s\n", line);
		good = false;
	}
	close(witness->kmsg);
	return good;
}
