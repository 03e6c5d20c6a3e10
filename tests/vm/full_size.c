// SPDX-License-Identifier: MIT
/*
 * The memory of a whole board: one pool of 24 GiB, cut up until a model of 23.6
 * GB does not fit, and defragmented until it does. Of all that about 0.5 GiB are
 * touched. For a board of 32 GiB.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../kselftest/board.h"
#include "../unit/tap.h"

#define KIB		1024ull
#define GIB		(1024 * MIB)
#define POOL_SIZE	(24 * GIB)
#define MODEL_BYTES	23567890000ull
#define MODEL_KIB	23567890ull
#define WINDOW		(256 * MIB)
#define LARGE_PAGE	(32 * MIB)

/* What the pool is cut up with: a large buffer, a small one, and so on. */
#define SMALL		(64 * KIB)
#define LARGE		(16 * MIB - SMALL)
#define PAIRS		(POOL_SIZE / (LARGE + SMALL) - 1)
/* Of the small ones, those that hold something. */
#define TAGGED_EVERY	4
#define TAGS		(PAIRS / TAGGED_EVERY)

static int fd, kmsg;
static uint32_t pool;
static struct buffer results; /* struct m6npu_compare_result, one a command */

/* ---- Small things ---- */

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static uint64_t round_up(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

static struct drm_m6npu_pool_info pool_info(void)
{
	struct drm_m6npu_pool_info info;

	if (board_pool_info(fd, pool, &info))
		memset(&info, 0xff, sizeof(info));
	return info;
}

static struct drm_m6npu_bo_info buffer_info(const struct buffer *buffer)
{
	struct drm_m6npu_bo_info info;

	if (board_bo_info(fd, buffer->handle, &info))
		memset(&info, 0xff, sizeof(info));
	return info;
}

/* The kernel's next line with this in it, without its newline. */
static bool log_find(const char *what, char *line, size_t size)
{
	char record[8192];
	ssize_t count;

	while ((count = read(kmsg, record, sizeof(record) - 1)) > 0 ||
	       (count < 0 && errno == EPIPE)) {
		const char *text;

		if (count < 0)
			continue;
		record[count] = '\0';
		record[strcspn(record, "\n")] = '\0';
		text = strchr(record, ';');
		if (!text || !strstr(text, what))
			continue;
		snprintf(line, size, "%.*s", (int)size - 1, text + 1);
		return true;
	}
	return false;
}

/* ---- Jobs ---- */

/* Bytes of region 0 against a pattern; the result goes to place @slot. */
static struct m6npu_cmd cmd_look(uint64_t bytes, uint32_t pattern,
				 uint32_t slot)
{
	struct m6npu_cmd cmd = cmd_compare(0, 0, bytes, pattern, 1);

	cmd.operand[1] = M6NPU_OPERAND(
		1, slot * sizeof(struct m6npu_compare_result));
	return cmd;
}

/* Runs commands of a list on the DMA engine, with @data as region 0. */
static bool run_dma(const struct buffer *list, uint32_t first, uint32_t count,
		    const struct buffer *data)
{
	struct buffer regions[] = { *data, results };
	struct drm_m6npu_job_info info = { 0 };
	struct job job;
	int ret;

	board_job(&job, list, count, regions, 2);
	job.args.cmd_offset = first * sizeof(struct m6npu_cmd);
	job.args.flags = DRM_M6NPU_SUBMIT_DMA_ENGINE;
	ret = board_run(fd, &job, &info);
	if (ret || info.error)
		printf("# job: %d, error %d, exception %u at %#" PRIx64 "\n",
		       ret, info.error, info.exception,
		       (uint64_t)info.fault_addr);
	return !ret && !info.error;
}

static void results_clear(void)
{
	memset(results.map, 0xff, results.size);
}

static bool result_is_equal(uint32_t slot)
{
	const struct m6npu_compare_result *result = results.map;

	return !result[slot].mismatches;
}

/* ---- The pool, cut up ---- */

static struct buffer small[PAIRS], large[PAIRS];
static struct buffer tag_list;

static struct buffer *tagged(uint32_t i)
{
	return &small[i * TAGGED_EVERY];
}

static uint32_t tag(uint32_t i)
{
	return 0x5a000000 + i;
}

static void create_pool(void)
{
	double begin = seconds(), took;
	int ret = board_pool(fd, POOL_SIZE, &pool);

	took = seconds() - begin;
	printf("# pool: %.1f s\n", took);
	ok(!ret && pool_info().segments == 1 && pool_info().size == POOL_SIZE,
	   "a pool of 24 GiB in one segment (%d)", ret);
	ok(took < 60, "in seconds");
}

/* The list first of all, as it takes room, too. */
static bool make_tag_list(void)
{
	static struct m6npu_cmd cmds[TAGS];

	for (uint32_t i = 0; i < TAGS; i++)
		cmds[i] = cmd_look(SMALL, tag(i), i);
	return !board_buffer(fd, pool,
			     TAGS * sizeof(struct m6npu_compare_result), 0,
			     &results) &&
	       !board_list(fd, pool, cmds, TAGS, &tag_list);
}

static bool fill_pool(void)
{
	for (uint32_t i = 0; i < PAIRS; i++)
		if (board_bo(fd, pool, LARGE, 0, 0, &large[i]) ||
		    board_bo(fd, pool, SMALL, 0, 0, &small[i]))
			return false;
	return true;
}

static bool write_tags(void)
{
	for (uint32_t i = 0; i < TAGS; i++) {
		uint32_t *word;

		if (board_map(fd, tagged(i)))
			return false;
		word = tagged(i)->map;
		for (uint32_t j = 0; j < SMALL / sizeof(*word); j++)
			word[j] = tag(i);
	}
	return true;
}

static bool tags_by_cpu(void)
{
	for (uint32_t i = 0; i < TAGS; i++) {
		const uint32_t *word = tagged(i)->map;

		for (uint32_t j = 0; j < SMALL / sizeof(*word); j++) {
			if (word[j] == tag(i))
				continue;
			printf("# buffer %u, word %u: %#x\n", i, j, word[j]);
			return false;
		}
	}
	return true;
}

static bool tags_by_device(void)
{
	results_clear();
	for (uint32_t i = 0; i < TAGS; i++) {
		if (run_dma(&tag_list, i, 1, tagged(i)) && result_is_equal(i))
			continue;
		printf("# buffer %u: the device finds something else\n", i);
		return false;
	}
	return true;
}

static void cut_up(void)
{
	struct drm_m6npu_pool_info info;
	double begin = seconds();

	ok(make_tag_list() && fill_pool(),
	   "filled with %llu buffers of 16 MiB - 64 KiB and of 64 KiB in turn",
	   2 * PAIRS);
	ok(write_tags() && tags_by_device(),
	   "every fourth of the small ones holds what the device reads");
	for (uint32_t i = 0; i < PAIRS; i++)
		board_buffer_close(fd, &large[i]);
	info = pool_info();
	printf("# cut up in %.1f s; touched: %llu buffers of 64 KiB\n",
	       seconds() - begin, TAGS);
	printf("# free %" PRIu64 ", largest free block %" PRIu64
	       ", buffers %u\n", (uint64_t)(info.size - info.used),
	       (uint64_t)info.largest_free, info.buffers);
	ok(info.largest_free <= 16 * MIB,
	   "without the large ones no free block is larger than 16 MiB");
	ok(info.size - info.used > MODEL_KIB * KIB,
	   "although more than the model needs is free");
}

/* ---- A model that does not fit ---- */

static void refuse(void)
{
	uint64_t mapped = round_up(MODEL_BYTES, PAGE);
	char line[1024] = "", want[128];
	struct buffer buffer;

	ok(board_bo(fd, pool, MODEL_BYTES, 0, 0, &buffer) == -ENOBUFS,
	   "23567890000 bytes are refused with ENOBUFS");
	ok(board_bo(fd, pool, MODEL_KIB * KIB, WINDOW, 0, &buffer) == -ENOBUFS,
	   "so are 23567890 KiB");
	snprintf(want, sizeof(want),
		 "npu_dma_map_error: cannot map %" PRIu64 " bytes", mapped);
	log_find(want, line, sizeof(line));
	printf("# log: %s\n", line);
	snprintf(want, sizeof(want), "largest free block %" PRIu64 " bytes",
		 (uint64_t)pool_info().largest_free);
	ok(strstr(line, want) && strstr(line, "defragment the pool"),
	   "the log tells the largest free block and what to do");
}

/* ---- Defragmented ---- */

static void defragment(void)
{
	struct drm_m6npu_pool_defrag report;
	int ret = board_pool_defrag(fd, pool, 0, &report);

	printf("# defrag: largest %" PRIu64 " -> %" PRIu64 " of %" PRIu64
	       " free; moved %u buffers of %" PRIu64 " bytes, copied %" PRIu64
	       " (device %" PRIu64 "), stayed %u\n",
	       (uint64_t)report.largest_before, (uint64_t)report.largest_after,
	       (uint64_t)report.free, report.buffers, (uint64_t)report.moved,
	       (uint64_t)report.copied, (uint64_t)report.copied_device,
	       report.stayed);
	printf("# defrag: %.1f ms, worst pause %.1f ms\n",
	       (double)report.time_ns / 1e6, (double)report.pause_ns / 1e6);
	ok(!ret && !report.stayed, "defragmented (%d)", ret);
	ok(report.largest_after >= report.free / 100 * 99,
	   "99 of 100 bytes that are free are one block");
	ok(report.largest_after == pool_info().largest_free &&
	   report.free == pool_info().size - pool_info().used,
	   "the pool's figures say so, too");
	ok(report.copied <= (TAGS + 2) * SMALL,
	   "nothing was copied but what had been used");
	ok(tags_by_cpu(), "the CPU finds what it wrote");
	ok(tags_by_device(), "so does the device");
}

/* ---- A model that fits ---- */

#define SPOT		MIB
#define SPOTS		3

struct model {
	struct buffer buffer, list;
};

/* Where the device writes: first, middle and last bytes. */
static struct buffer spot(const struct model *model, uint32_t i)
{
	uint64_t size = model->buffer.size;
	const uint64_t offsets[SPOTS] = {
		/* The middle lies across two large pages. */
		0, round_up(size / 2, LARGE_PAGE) - SPOT / 2, size - SPOT,
	};

	return (struct buffer){ .addr = model->buffer.addr + offsets[i],
				.size = SPOT };
}

static bool model_list(struct model *model)
{
	struct m6npu_cmd cmds[2 * SPOTS];

	for (uint32_t i = 0; i < SPOTS; i++) {
		cmds[2 * i] = cmd_fill(0, 0, SPOT, 0xc0de0000 + i);
		cmds[2 * i + 1] = cmd_look(SPOT, 0xc0de0000 + i, i);
	}
	return !board_list(fd, pool, cmds, 2 * SPOTS, &model->list);
}

static bool model_runs(struct model *model)
{
	results_clear();
	for (uint32_t i = 0; i < SPOTS; i++) {
		struct buffer data = spot(model, i);

		if (!run_dma(&model->list, 2 * i, 2, &data) ||
		    !result_is_equal(i))
			return false;
	}
	return true;
}

/* What was written is all there: no spot lies in another one's memory. */
static bool model_keeps(struct model *model)
{
	results_clear();
	for (uint32_t i = 0; i < SPOTS; i++) {
		struct buffer data = spot(model, i);

		if (!run_dma(&model->list, 2 * i + 1, 1, &data) ||
		    !result_is_equal(i))
			return false;
	}
	return true;
}

static void model_window(struct model *model)
{
	struct drm_m6npu_region_map args = { .handle = model->buffer.handle,
					     .size = WINDOW };
	struct drm_m6npu_region_unmap unmap = { 0 };
	int ret = board_ioctl(fd, DRM_IOCTL_M6NPU_REGION_MAP, &args);

	ok(!ret && pool_info().pinned == model->buffer.size,
	   "a window maps its first 256 MiB (%d)", ret);
	ok(model_keeps(model) && model_runs(model),
	   "through it the device finds the same");
	unmap.window = args.window;
	ret = board_ioctl(fd, DRM_IOCTL_M6NPU_REGION_UNMAP, &unmap);
	ok(!ret && !pool_info().pinned, "the window is unmapped (%d)", ret);
	ok(model_keeps(model), "and the device finds the same without it");
}

static void use_model(void)
{
	struct drm_m6npu_bo_info info;
	struct model model = { 0 };
	double begin = seconds();
	int ret = board_bo(fd, pool, MODEL_BYTES, WINDOW, 0, &model.buffer);

	printf("# buffer: %.3f s\n", seconds() - begin);
	ok(!ret, "a buffer of 23567890000 bytes (%d)", ret);
	info = buffer_info(&model.buffer);
	ok(info.align == WINDOW && info.addr % WINDOW == 0 && !info.ready &&
	   info.size == round_up(MODEL_BYTES, PAGE),
	   "is aligned to 256 MiB, and nothing of it was touched");
	ok(model_list(&model) && model_runs(&model) && model_keeps(&model),
	   "the device writes and reads its first, middle and last bytes");
	info = buffer_info(&model.buffer);
	printf("# touched: %" PRIu64 " of %" PRIu64 " bytes\n",
	       (uint64_t)info.ready, (uint64_t)info.size);
	ok(info.ready && info.ready <= (SPOTS + 1) * LARGE_PAGE,
	   "nothing but their large pages was touched");
	model_window(&model);
	printf("# touched with the window: %" PRIu64 " bytes\n",
	       (uint64_t)buffer_info(&model.buffer).ready);
	board_buffer_close(fd, &model.buffer);
	board_buffer_close(fd, &model.list);
}

static void empty(void)
{
	struct drm_m6npu_pool_info info;

	for (uint32_t i = 0; i < PAIRS; i++)
		board_buffer_close(fd, &small[i]);
	board_buffer_close(fd, &tag_list);
	board_buffer_close(fd, &results);
	info = pool_info();
	ok(!info.used && !info.buffers && info.largest_free == POOL_SIZE,
	   "freed, the pool is one block again");
}

/* ---- Create, load, run, defragment, run again ---- */

#define WEIGHTS		(4 * MIB)
#define QUEUED		8

struct load {
	struct buffer weights, output, list;
};

static bool load_create(struct load *load)
{
	struct m6npu_cmd cmd = cmd_copy(1, 0, 0, 0, WEIGHTS);
	struct buffer below, between;
	bool good;

	/* Holes of two sizes, so that there is something to do. */
	good = !board_bo(fd, pool, 2 * WEIGHTS, 0, 0, &below) &&
	       !board_buffer(fd, pool, WEIGHTS, 0, &load->weights) &&
	       !board_bo(fd, pool, WEIGHTS / 2, 0, 0, &between) &&
	       !board_buffer(fd, pool, WEIGHTS, 0, &load->output) &&
	       !board_list(fd, pool, &cmd, 1, &load->list);
	board_buffer_close(fd, &between);
	board_buffer_close(fd, &below);
	return good;
}

static void load_fill(struct load *load, uint32_t seed)
{
	uint32_t *word = load->weights.map;

	for (uint32_t i = 0; i < WEIGHTS / sizeof(*word); i++)
		word[i] = seed = seed * 1664525 + 1013904223;
	memset(load->output.map, 0, WEIGHTS);
}

static void load_job(struct load *load, struct job *job)
{
	const struct buffer regions[] = { load->weights, load->output };

	board_job(job, &load->list, 1, regions, 2);
}

static bool load_wait(struct load *load, struct job *job)
{
	struct drm_m6npu_job_info info = { 0 };
	int ret = board_wait(fd, job, BOARD_TIMEOUT_MS, &info);

	return !ret && !info.error &&
	       !memcmp(load->weights.map, load->output.map, WEIGHTS);
}

static bool load_run(struct load *load)
{
	struct job job;

	load_job(load, &job);
	return !board_submit(fd, &job) && load_wait(load, &job);
}

/* With jobs on their way. */
static bool load_defragment(struct load *load,
			    struct drm_m6npu_pool_defrag *report)
{
	struct job jobs[QUEUED];
	bool good = true;
	int ret;

	for (int i = 0; i < QUEUED; i++) {
		load_job(load, &jobs[i]);
		good &= !board_submit(fd, &jobs[i]);
	}
	ret = board_pool_defrag(fd, pool, 0, report);
	for (int i = 0; i < QUEUED; i++)
		good &= load_wait(load, &jobs[i]);
	return good && !ret;
}

static void forbidden_order(void)
{
	struct drm_m6npu_pool_defrag report;
	struct load load = { 0 };

	ok(load_create(&load), "buffers with room between them");
	load_fill(&load, 1);
	ok(load_run(&load), "loaded, a job computes what it should");
	ok(load_defragment(&load, &report) && report.copied >= 2 * WEIGHTS,
	   "defragmented while jobs run, they do, too");
	printf("# %u buffers moved, %" PRIu64 " bytes copied (device %" PRIu64
	       "), pause %.1f ms\n", report.buffers, (uint64_t)report.copied,
	       (uint64_t)report.copied_device, (double)report.pause_ns / 1e6);
	ok(load_run(&load), "so does another one on what was moved");
	load_fill(&load, 2);
	ok(load_run(&load), "and on what the CPU writes then");
	board_buffer_close(fd, &load.weights);
	board_buffer_close(fd, &load.output);
	board_buffer_close(fd, &load.list);
}

int main(void)
{
	kmsg = board_log();
	fd = board_open();
	if (fd < 0 || kmsg < 0) {
		printf("1..0 # SKIP no M6 NPU\n");
		return 77;
	}
	create_pool();
	if (tap_failed)
		return done();
	cut_up();
	refuse();
	defragment();
	use_model();
	empty();
	forbidden_order();
	ok(!board_pool_destroy(fd, pool), "the pool is given back");
	ok(!board_pool_figure("used") && !board_pool_figure("total"),
	   "mem_pool_info knows of none");
	ok(!log_find("reset", (char[1024]){ 0 }, 1024),
	   "the device was not reset");
	return done();
}
