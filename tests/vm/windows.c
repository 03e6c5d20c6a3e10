// SPDX-License-Identifier: MIT
/*
 * One model's answer, in whatever memory it gets.
 *
 * Usage: windows MODEL.npu LOGITS [POOL]
 *
 * Loads the model as libnpu does by itself, tells what memory that came to,
 * takes a few steps, writes all their logits into a file and says the tokens.
 * Before the steps and after them it says "waits", and does until SIGCONT, so
 * that somebody outside can look at the device. Before it loads, it cuts up the
 * persistent pool of that number: what is free is in blocks of almost 16 MiB.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <npu/npu.h>

#define POOLS	"/sys/kernel/debug/npu/mem_pool_info"
#define PROMPT	4
#define ANSWER	4

/* What a pool is cut up with: a small buffer behind each large one. */
#define SMALL	(64ull << 10)
#define LARGE	((16ull << 20) - SMALL)
#define PAIRS	256

static const int32_t prompt[PROMPT] = { 5, 77, 12, 41 };

static int fail(const char *what)
{
	fprintf(stderr, "windows: %s\n", what);
	return 1;
}

/* The small ones stay until the device is closed. */
static int cut_up(struct npu_device *device, uint32_t id)
{
	struct npu_buffer *large[PAIRS], *small;
	struct npu_pool_info info;
	struct npu_pool *pool;
	uint32_t count, i;
	uint64_t addr;

	if (npu_pool_open(device, id, &pool) || npu_pool_info(pool, &info))
		return fail(npu_error());
	count = (uint32_t)(info.size / (LARGE + SMALL));
	if (count > PAIRS)
		return fail("the pool is too large");
	for (i = 0; i < count; i++) {
		addr = 0;
		if (npu_buffer_create(pool, LARGE, 0, &addr, &large[i]))
			return fail(npu_error());
		addr = 0;
		if (npu_buffer_create(pool, SMALL, 0, &addr, &small))
			return fail(npu_error());
	}
	for (i = 0; i < count; i++)
		npu_buffer_destroy(large[i]);
	if (npu_pool_info(pool, &info))
		return fail(npu_error());
	printf("largest free block: %" PRIu64 "\n", info.largest_free);
	return 0;
}

static void wait_outside(void)
{
	sigset_t signals;
	int got;

	sigemptyset(&signals);
	sigaddset(&signals, SIGCONT);
	/* Before anybody can know that we wait. */
	sigprocmask(SIG_BLOCK, &signals, NULL);
	printf("waits\n");
	fflush(stdout);
	sigwait(&signals, &got);
}

static int show_memory(const struct npu_model *model)
{
	FILE *file = fopen(POOLS, "re");
	struct npu_model_info info;
	char line[512];

	if (!file)
		return fail("no " POOLS);
	npu_model_info(model, &info);
	printf("windows: %" PRIu32 "\n", info.windows);
	printf("static bytes: %" PRIu64 "\n", info.static_bytes);
	printf("pool: %" PRIu32 "\n", info.pool_id);
	printf("pool bytes: %" PRIu64 "\n", info.pool_bytes);
	printf("loaded in ms: %" PRIu64 "\n", info.load_ns / 1000000);
	while (fgets(line, sizeof(line), file))
		fputs(line, stdout);
	fclose(file);
	return 0;
}

/* All rows go to the file. The best follower of the last one, or -1. */
static int32_t step(struct npu_model *model, const int32_t *ids, uint32_t count,
		    uint32_t position, FILE *logits, uint64_t *device_ns)
{
	struct npu_step_token tokens[PROMPT] = { 0 };
	struct npu_step_result result;
	struct npu_model_info info;
	uint32_t i;

	for (i = 0; i < count; i++)
		tokens[i] = (struct npu_step_token){
			.token = ids[i],
			.position = position + i,
			.out = true,
		};
	if (npu_model_step(model, tokens, count, &result))
		return -1;
	*device_ns += result.device_ns;
	npu_model_info(model, &info);
	for (i = 0; i < count * info.vocab; i++) {
		/* Some file systems cannot write from the device's memory. */
		float value = result.logits[i];

		fwrite(&value, sizeof(value), 1, logits);
	}
	return result.topk_ids[(count - 1) * result.topk];
}

static int answer(struct npu_model *model, FILE *logits)
{
	uint64_t device_ns = 0;
	int32_t next;
	uint32_t i;

	next = step(model, prompt, PROMPT, 0, logits, &device_ns);
	printf("tokens:");
	for (i = 0; i < ANSWER && next >= 0; i++) {
		printf(" %" PRId32, next);
		next = step(model, &next, 1, PROMPT + i, logits, &device_ns);
	}
	printf("\ndevice ns: %" PRIu64 "\n", device_ns);
	return next < 0 ? fail(npu_error()) : 0;
}

static int run(struct npu_model *model, const char *path)
{
	FILE *logits = fopen(path, "wbe");
	int ret;

	if (!logits)
		return fail("cannot write logits");
	ret = show_memory(model);
	wait_outside();
	if (!ret)
		ret = answer(model, logits);
	if (fclose(logits))
		ret = fail("cannot write logits");
	wait_outside();
	return ret;
}

static int load_and_run(struct npu_device *device, char **argv)
{
	struct npu_model *model;
	int ret;

	if (argv[3] && cut_up(device, (uint32_t)strtoul(argv[3], NULL, 10)))
		return 1;
	if (npu_model_load(device, argv[1], NULL, &model))
		return fail(npu_error());
	ret = run(model, argv[2]);
	npu_model_free(model);
	return ret;
}

int main(int argc, char **argv)
{
	struct npu_device *device;
	int ret;

	if (argc != 3 && argc != 4) {
		fprintf(stderr, "Usage: windows MODEL.npu LOGITS [POOL]\n");
		return 2;
	}
	if (npu_device_open(0, &device))
		return fail(npu_error());
	ret = load_and_run(device, argv);
	npu_device_close(device);
	return ret;
}
