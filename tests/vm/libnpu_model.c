// SPDX-License-Identifier: MIT
/*
 * libnpu on a board: models, how they load and run, and what goes wrong.
 *
 * Usage: libnpu_model MODEL.npu
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <drm/m6npu_accel.h>

#include <npu/npu.h>
#include "board.h"
#include "device.h"
#include "npu_file.h"

#define PROMPT	12
#define ANSWER	12

/* A short conversation of ids that every model of ours has. */
static const int32_t prompt[PROMPT] = { 5, 77, 130, 12, 300, 41, 9, 222, 64,
					18, 3, 150 };

static int32_t best(const struct npu_step_result *r)
{
	return r->topk_ids[(r->out_count - 1) * r->topk];
}

/* Runs @n tokens of @slot from @position on; the last one's best follower. */
static int feed(struct npu_model *model, const int32_t *ids, uint32_t n,
		uint32_t slot, uint32_t position, int32_t *next,
		struct npu_step_result *result)
{
	struct npu_step_token tokens[PROMPT];
	uint32_t i;
	int ret;

	for (i = 0; i < n; i++)
		tokens[i] = (struct npu_step_token){
			.token = ids[i],
			.position = position + i,
			.slot = slot,
			.out = i + 1 == n,
		};
	ret = npu_model_step(model, tokens, n, result);
	if (!ret)
		*next = best(result);
	return ret;
}

/* Greedy continuation of the prompt, fed @batch tokens a step. */
static int generate(struct npu_model *model, uint32_t slot, uint32_t batch,
		    int32_t answer[ANSWER])
{
	struct npu_step_result result;
	uint32_t at, n;
	int ret = 0;

	for (at = 0; at < PROMPT && !ret; at += n) {
		n = PROMPT - at < batch ? PROMPT - at : batch;
		ret = feed(model, prompt + at, n, slot, at, &answer[0],
			   &result);
	}
	for (n = 1; n < ANSWER && !ret; n++)
		ret = feed(model, &answer[n - 1], 1, slot, PROMPT + n - 1,
			   &answer[n], &result);
	if (ret)
		printf("# %s\n", npu_error());
	return ret;
}

static struct npu_model *load(struct npu_device *device, const char *path,
			      const struct npu_model_options *options)
{
	struct npu_model *model = NULL;

	if (npu_model_load(device, path, options, &model))
		printf("# %s\n", npu_error());
	return model;
}

/* Bytes of all pools that this open device may use. */
static uint64_t pool_bytes(struct npu_device *device)
{
	struct drm_m6npu_pool_info arg = { 0 };

	if (npu_device_ioctl(device, DRM_IOCTL_M6NPU_POOL_INFO, &arg))
		return ~0ull;
	return arg.size;
}

static int32_t expected[ANSWER];

static void test_plain(struct npu_device *device, const char *path)
{
	struct npu_step_result result;
	struct npu_model_info info;
	struct npu_model *model;
	int32_t next = -1, k, top = 0;

	model = load(device, path, NULL);
	if (!ok(model, "a model loads"))
		return;
	npu_model_info(model, &info);
	printf("# %s %s: vocab %u, tile %u, out %u, %u ms\n", info.name,
	       info.architecture, info.vocab, info.max_tile, info.max_out,
	       (unsigned int)(info.load_ns / 1000000));
	ok(info.slots == 1 && info.max_seq == info.context_length &&
	   info.experts_resident == info.expert_layers * info.experts,
	   "with one slot and all experts");
	fine(feed(model, prompt, PROMPT, 0, 0, &next, &result) == 0 &&
	   result.out_count == 1 && result.device_ns > 0, "a step");
	for (k = 1; k < (int32_t)info.vocab; k++)
		if (result.logits[k] > result.logits[top])
			top = k;
	ok(next == top && result.topk_values[0] == result.logits[top],
	   "the device's best token is the one with the highest logit");
	ok(isfinite(result.hidden[0]), "the hidden state is there");
	ok(generate(model, 0, PROMPT, expected) == 0 && expected[0] == next,
	   "going back to the start gives the same");
	npu_model_free(model);
}

static bool same(const int32_t *answer)
{
	return !memcmp(answer, expected, sizeof(expected));
}

static void test_slots(struct npu_device *device, const char *path)
{
	const struct npu_model_options options = {
		.size = sizeof(options),
		.slots = 3,
		.max_seq = 64,
	};
	int32_t a[ANSWER], b[ANSWER];
	struct npu_step_result result;
	struct npu_model *model = load(device, path, &options);
	struct npu_step_token pair[2];
	unsigned int n;
	int ret;

	if (!ok(model, "a model with three slots"))
		return;
	ret = feed(model, prompt, PROMPT, 2, 0, &a[0], &result);
	ret |= feed(model, prompt, PROMPT, 0, 0, &b[0], &result);
	for (n = 1; n < ANSWER && !ret; n++) {
		pair[0] = (struct npu_step_token){ a[n - 1], PROMPT + n - 1, 2,
						   true };
		pair[1] = (struct npu_step_token){ b[n - 1], PROMPT + n - 1, 0,
						   true };
		ret = npu_model_step(model, pair, 2, &result);
		if (ret)
			break;
		a[n] = result.topk_ids[0];
		b[n] = result.topk_ids[result.topk];
	}
	ok(ret == 0 && same(a) && same(b),
	   "two slots in one step answer as each alone");
	ok(feed(model, prompt, 2, 1, 1, &a[0], &result) == -EINVAL,
	   "a slot begins at position 0: %s", npu_error());
	ok(feed(model, prompt, 1, 0, 64, &a[0], &result) == -EINVAL,
	   "a slot ends: %s", npu_error());
	npu_model_free(model);
}

static void test_on_demand(struct npu_device *device, const char *path)
{
	const struct npu_model_options options = {
		.size = sizeof(options),
		.experts_on_demand = true,
	};
	struct npu_model *model = load(device, path, &options);
	struct npu_model_info before, after;
	int32_t answer[ANSWER];

	if (!ok(model, "a model with experts on demand"))
		return;
	npu_model_info(model, &before);
	ok(before.experts_resident == 0, "begins without any");
	ok(generate(model, 0, PROMPT, answer) == 0 && same(answer),
	   "answers the same");
	npu_model_info(model, &after);
	printf("# %u of %u experts came in\n", after.experts_resident,
	       after.expert_layers * after.experts);
	ok(!after.expert_layers || after.experts_resident > 0,
	   "and has some then");
	npu_model_free(model);
}

struct watch {
	enum npu_load_stage last;
	unsigned int calls, stop_at;
	bool good;
};

static int watch(void *user, const struct npu_load_progress *p)
{
	struct watch *w = user;

	w->good &= p->done <= p->total && p->items <= p->item_count &&
		   p->stage >= w->last;
	w->last = p->stage;
	return ++w->calls == w->stop_at;
}

static void test_progress(struct npu_device *device, const char *path)
{
	struct watch w = { .good = true };
	struct npu_model_options options = {
		.size = sizeof(options),
		.progress = watch,
		.progress_user = &w,
	};
	struct npu_model *model = load(device, path, &options);
	unsigned int calls = w.calls, k;
	bool cancelled = true;

	ok(model && w.good && calls > 3, "progress is told (%u times)", calls);
	npu_model_free(model);
	for (k = 1; k < calls; k += k < 8 ? 1 : calls / 7) {
		w = (struct watch){ .good = true, .stop_at = k };
		cancelled &= npu_model_load(device, path, &options, &model) ==
			     -ECANCELED;
	}
	fine(cancelled, "loading can be cancelled anywhere");
}

static void test_pool_given(struct npu_device *device, const char *path)
{
	struct npu_model_options options = { .size = sizeof(options) };
	struct npu_model *model = NULL;
	struct npu_pool_info info;
	int32_t answer[ANSWER];

	if (npu_pool_create(device, 64 << 20, 0, 1, &options.pool))
		return;
	model = load(device, path, &options);
	ok(model && generate(model, 0, PROMPT, answer) == 0 && same(answer),
	   "a model in a given pool");
	npu_model_free(model);
	ok(npu_pool_info(options.pool, &info) == 0 && info.buffers == 0,
	   "leaves nothing there");
	npu_pool_destroy(options.pool);
	if (npu_pool_create(device, 1 << 20, 0, 1, &options.pool))
		return;
	ok(npu_model_load(device, path, &options, &model) == -ENOSPC,
	   "a pool that is too small: %s", npu_error());
	npu_pool_destroy(options.pool);
}

static void test_two(struct npu_device *device, const char *path)
{
	struct npu_model *first = load(device, path, NULL), *second = NULL;
	struct npu_device *again = NULL;
	int32_t answer[ANSWER];
	struct npu_model_info info;

	if (!ok(first, "one model"))
		return;
	npu_model_info(first, &info);
	if (info.expert_layers)
		ok(npu_model_load(device, path, NULL, &second) == -EBUSY,
		   "no second one with experts: %s", npu_error());
	fine(npu_device_open(0, &again) == 0 &&
	   npu_model_load(again, path, NULL, &second) == 0,
	   "but one on the device opened once more");
	ok(second && generate(second, 0, 4, answer) == 0 &&
	   generate(first, 0, PROMPT, answer) == 0 && same(answer),
	   "both run");
	npu_model_free(second);
	npu_device_close(again);
	npu_model_free(first);
}

static bool copy(const char *from, const char *to)
{
	char command[256];

	snprintf(command, sizeof(command), "cp '%s' '%s'", from, to);
	return system(command) == 0;
}

/* Changes one byte of the middle of section @i. */
static bool spoil(const char *path, uint32_t i)
{
	const struct npu_section *s;
	struct npu_file *file;
	unsigned char byte = 0;
	off_t at;
	bool good;
	int fd;

	if (npu_file_open(path, &file))
		return false;
	s = npu_file_section(file, i);
	at = (off_t)(s->offset + s->stored_bytes / 2);
	npu_file_close(file);
	fd = open(path, O_RDWR);
	good = fd >= 0 && pread(fd, &byte, 1, at) == 1;
	byte ^= 1;
	good = good && pwrite(fd, &byte, 1, at) == 1;
	close(fd);
	return good;
}

/* Twice makes it good again. */
static void spoil_experts(const char *path)
{
	struct npu_file *file;
	int64_t i;

	if (npu_file_open(path, &file))
		return;
	for (i = npu_file_find(file, NPU_SECTION_EXPERT, 0); i >= 0;
	     i = npu_file_find(file, NPU_SECTION_EXPERT, (uint32_t)i + 1))
		spoil(path, (uint32_t)i);
	npu_file_close(file);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Of one token. */
static uint64_t least_budget(const struct npu_model_info *info)
{
	uint64_t bytes = info->expert_bytes_total /
			 (info->expert_layers * info->experts);

	return info->experts_per_token * ((bytes + 4095) / 4096 * 4096);
}

static void test_spoiled_experts(struct npu_device *device, const char *path)
{
	struct npu_model_options options = {
		.size = sizeof(options),
		.slots = 2,
	};
	struct npu_model *model = load(device, path, &options);
	struct npu_model_info info;
	int32_t answer[ANSWER];
	double begin;

	if (!ok(model, "a model with experts"))
		return;
	npu_model_info(model, &info);
	npu_model_free(model);
	options.expert_budget = least_budget(&info);
	model = load(device, path, &options);
	if (!ok(model && generate(model, 0, 1, answer) == 0 && same(answer),
		"with the least budget"))
		return;
	spoil_experts(path);
	begin = now();
	ok(generate(model, 0, 1, answer) == -EBADMSG &&
	   strstr(npu_error(), "expert"),
	   "experts altered while the model runs: %s", npu_error());
	ok(now() - begin < 10, "the job ends at once (%.3f s)", now() - begin);
	spoil_experts(path);
	ok(generate(model, 0, 1, answer) == 0 && same(answer) &&
	   generate(model, 1, 1, answer) == 0 && same(answer),
	   "repaired, it goes on");
	npu_model_free(model);
	spoil_experts(path);
	ok(npu_model_load(device, path, NULL, &model) == -EBADMSG,
	   "altered experts are refused: %s", npu_error());
}

static void test_budget(struct npu_device *device, const char *path,
			uint64_t budget)
{
	const struct npu_model_options options = {
		.size = sizeof(options),
		.slots = 2,
		.expert_budget = budget,
	};
	struct npu_model *model = load(device, path, &options);
	int32_t answer[ANSWER];
	struct npu_model_info info;
	uint32_t batch;

	if (!fine(model, "a budget of %llu bytes", (unsigned long long)budget))
		return;
	npu_model_info(model, &info);
	batch = info.max_tile < PROMPT ? info.max_tile : PROMPT;
	fine(generate(model, 0, batch, answer) == 0 && same(answer) &&
	     generate(model, 1, 1, answer) == 0 && same(answer),
	     "gives the same");
	npu_model_info(model, &info);
	ok(info.experts_resident <= info.expert_places &&
	   (info.expert_evictions > 0) ==
		   (info.expert_places < info.expert_layers * info.experts) &&
	   info.expert_span_bytes <= budget,
	   "%u places, %llu faults, %llu evicted, %llu bytes read, %.1f ms",
	   info.expert_places, (unsigned long long)info.expert_faults,
	   (unsigned long long)info.expert_evictions,
	   (unsigned long long)info.expert_bytes_read,
	   (double)info.expert_stall_ns / 1e6);
	npu_model_free(model);
}

static void test_budgets(struct npu_device *device, const char *path)
{
	struct npu_model_options options = { .size = sizeof(options) };
	struct npu_model *model = load(device, path, NULL);
	struct npu_model_info info;
	uint64_t least, quarter;

	if (!model)
		return;
	npu_model_info(model, &info);
	npu_model_free(model);
	if (!info.expert_layers)
		return;
	least = least_budget(&info);
	quarter = info.expert_bytes_total / 4;
	options.expert_budget = least - 1;
	ok(npu_model_load(device, path, &options, &model) == -EINVAL,
	   "less than a token takes: %s", npu_error());
	test_budget(device, path, least);
	npu_router_set(device, NPU_ROUTER_OFF);
	test_budget(device, path, least * 3 / 2);
	npu_router_set(device, NPU_ROUTER_PRIORITY_LRU);
	test_budget(device, path, quarter > least ? quarter : least);
	npu_router_set(device, NPU_ROUTER_LRU);
	test_budget(device, path, info.expert_bytes_total / 2);
	test_budget(device, path, 2 * info.expert_bytes_total);
}

static void test_bad_files(struct npu_device *device, const char *path)
{
	static const char spoiled[] = "/tmp/spoiled.npu";
	struct npu_model *model;
	struct npu_file *file;
	int64_t commands, weights, experts;

	ok(npu_model_load(device, "/nonexistent.npu", NULL, &model) ==
	   -ENOENT, "no such file: %s", npu_error());
	if (npu_file_open(path, &file))
		return;
	commands = npu_file_find(file, NPU_SECTION_COMMANDS, 0);
	weights = npu_file_find(file, NPU_SECTION_STATIC, 0);
	experts = npu_file_find(file, NPU_SECTION_EXPERT, 0);
	npu_file_close(file);
	ok(copy(path, spoiled) && spoil(spoiled, (uint32_t)commands) &&
	   npu_model_load(device, spoiled, NULL, &model) == -EBADMSG,
	   "altered commands: %s", npu_error());
	ok(copy(path, spoiled) && spoil(spoiled, (uint32_t)weights) &&
	   npu_model_load(device, spoiled, NULL, &model) == -EBADMSG,
	   "altered weights: %s", npu_error());
	if (experts >= 0 && copy(path, spoiled))
		test_spoiled_experts(device, spoiled);
	unlink(spoiled);
}

int main(int argc, char **argv)
{
	struct npu_device *device;

	if (argc != 2)
		return 2;
	if (!fine(npu_device_open(0, &device) == 0, "device"))
		return done();
	test_plain(device, argv[1]);
	test_slots(device, argv[1]);
	test_on_demand(device, argv[1]);
	test_progress(device, argv[1]);
	test_pool_given(device, argv[1]);
	test_two(device, argv[1]);
	test_budgets(device, argv[1]);
	test_bad_files(device, argv[1]);
	test_plain(device, argv[1]);
	ok(pool_bytes(device) == 0, "nothing is left behind");
	npu_device_close(device);
	return done();
}
