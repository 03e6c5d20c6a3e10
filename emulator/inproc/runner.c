// SPDX-License-Identifier: MIT
#include "runner.h"

#include <errno.h>
#include <inttypes.h>
#include <npu/npu.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "npu_file.h"

#define MAX_LISTS	64
#define SPARSE_BYTES	4096
/* For tables, and what alignment takes. */
#define SPARE_RAM	(512ull << 20)

struct list {
	uint32_t tile;
	uint32_t count;
	struct board_memory memory;
};

struct runner {
	struct npu_file *file;
	struct npu_runtime runtime;
	struct runner_options options;
	struct board *board;
	struct board_memory weights, scratch, kv, io;
	struct residency *experts;	/* NULL: none */
	struct list lists[MAX_LISTS];
	unsigned int list_count;
};

static int load_section(struct runner *runner, uint32_t index,
			const struct board_memory *memory, uint64_t offset)
{
	const struct npu_section *section;
	int ret;

	section = npu_file_section(runner->file, index);
	ret = npu_file_read_section(runner->file, index,
				    memory->host + offset,
				    memory->bytes - offset);
	if (!ret)
		board_push(runner->board, memory, offset,
			   section->loaded_bytes);
	return ret;
}

static bool is_zero(const uint8_t *bytes, uint64_t count)
{
	return !bytes[0] && !memcmp(bytes, bytes + 1, count - 1);
}

/* What is zero is so already, and costs no memory until it is touched. */
static int load_sparse(struct runner *runner, uint32_t index, uint64_t offset)
{
	uint64_t at, part;
	size_t bytes;
	uint8_t *data;
	int ret;

	ret = npu_file_load_section(runner->file, index, (void **)&data,
				    &bytes);
	if (ret)
		return ret;
	for (at = 0; at < bytes; at += part) {
		part = bytes - at < SPARSE_BYTES ? bytes - at : SPARSE_BYTES;
		if (!is_zero(data + at, part))
			memcpy(runner->weights.host + offset + at, data + at,
			       part);
	}
	board_push(runner->board, &runner->weights, offset, bytes);
	free(data);
	return 0;
}

static int load_list(struct runner *runner, uint32_t index)
{
	const struct npu_section *section;
	struct list *list = &runner->lists[runner->list_count];
	int ret;

	if (runner->list_count == MAX_LISTS)
		return npu_fail(-ENOTSUP, "more than %d command lists",
				MAX_LISTS);
	section = npu_file_section(runner->file, index);
	list->tile = section->tile;
	list->count = section->loaded_bytes / sizeof(struct m6npu_cmd);
	ret = board_alloc(runner->board, section->loaded_bytes, false,
			  &list->memory);
	if (ret)
		return ret;
	runner->list_count++;
	return load_section(runner, index, &list->memory, 0);
}

static int load_sections(struct runner *runner)
{
	const struct npu_section *section;
	uint32_t i;
	int ret = 0;

	for (i = 0; i < npu_file_section_count(runner->file) && !ret; i++) {
		section = npu_file_section(runner->file, i);
		if (section->type == NPU_SECTION_COMMANDS)
			ret = load_list(runner, i);
		else if (section->type == NPU_SECTION_STATIC)
			ret = load_sparse(runner, i, section->dest);
	}
	return ret;
}

static uint64_t kv_row_bytes(const struct runner *runner)
{
	uint64_t width = runner->runtime.kv_heads * runner->runtime.head_dim;

	/* A Q8_0 block is 32 bytes and an F16. */
	return runner->options.kv_q8_0 ? width / 32 * 34 : width * 2;
}

static uint64_t kv_slot_bytes(const struct runner *runner)
{
	return 2ull * runner->runtime.kv_layers * runner->options.capacity *
	       kv_row_bytes(runner);
}

static int take_regions(struct runner *runner)
{
	const struct npu_runtime *r = &runner->runtime;
	struct board *board = runner->board;
	int ret;

	ret = board_alloc(board, r->weights_bytes, false, &runner->weights);
	if (!ret)
		ret = board_alloc(board, r->scratch_bytes, true,
				  &runner->scratch);
	if (!ret)
		ret = board_alloc(board, r->io_bytes, true, &runner->io);
	if (!ret)
		ret = board_alloc(board, runner->options.slots *
				  kv_slot_bytes(runner), true, &runner->kv);
	return ret;
}

static struct residency_io expert_io(const struct runner *runner)
{
	const struct npu_runtime *r = &runner->runtime;
	const uint8_t *host = runner->io.host;
	struct residency_io io = { 0 };

	if (r->routed_offset)
		io.routed = (const void *)(host + r->routed_offset);
	if (r->guesses) {
		io.guess_ids = (const void *)(host + r->guess_ids_offset);
		io.guess_chances =
			(const void *)(host + r->guess_chances_offset);
	}
	return io;
}

static int set_up_experts(struct runner *runner)
{
	const struct residency_setup setup = {
		.board = runner->board,
		.file = runner->file,
		.io = expert_io(runner),
		.options = runner->options.experts,
		.dry = runner->options.board.dry,
	};

	if (!runner->runtime.expert_layers)
		return 0;
	return residency_create(&setup, &runner->experts);
}

/* Room for all there may be; what is not touched costs nothing. */
static uint64_t ram_needed(const struct runner *runner)
{
	const struct npu_runtime *r = &runner->runtime;
	uint64_t bytes, i;

	bytes = r->scratch_bytes + r->io_bytes +
		runner->options.slots * kv_slot_bytes(runner) +
		(uint64_t)r->expert_layers * r->experts *
			(r->expert_bytes + M6NPU_EXPERT_ALIGN);
	for (i = 0; i < npu_file_section_count(runner->file); i++)
		bytes += npu_file_section(runner->file, i)->loaded_bytes;
	if (runner->options.board.scatter)
		bytes *= 2;
	return bytes + SPARE_RAM;
}

static int set_up(struct runner *runner, const char *path)
{
	struct board_options board = runner->options.board;
	int ret = npu_file_open(path, &runner->file);

	if (ret)
		return ret;
	runner->runtime = npu_file_header(runner->file)->runtime;
	if (!board.ram_bytes)
		board.ram_bytes = ram_needed(runner);
	ret = board_create(&board, &runner->board);
	if (!ret)
		ret = take_regions(runner);
	if (!ret)
		ret = load_sections(runner);
	return ret ? ret : set_up_experts(runner);
}

int runner_create(const char *path, const struct runner_options *options,
		  struct runner **result)
{
	struct runner *runner = calloc(1, sizeof(*runner));
	int ret;

	if (!runner)
		return npu_fail_memory();
	runner->options = *options;
	ret = set_up(runner, path);
	if (ret) {
		runner_destroy(runner);
		return ret;
	}
	*result = runner;
	return 0;
}

void runner_destroy(struct runner *runner)
{
	if (!runner)
		return;
	residency_destroy(runner->experts);
	board_destroy(runner->board);
	npu_file_close(runner->file);
	free(runner);
}

const struct npu_runtime *runner_runtime(const struct runner *runner)
{
	return &runner->runtime;
}

const struct residency *runner_experts(const struct runner *runner)
{
	return runner->experts;
}

struct board *runner_board(const struct runner *runner)
{
	return runner->board;
}

struct npu_file *runner_file(const struct runner *runner)
{
	return runner->file;
}

uint32_t runner_tile(const struct runner *runner, uint32_t count)
{
	uint32_t best = 0;
	unsigned int i;

	for (i = 0; i < runner->list_count; i++)
		if (runner->lists[i].tile >= count &&
		    (!best || runner->lists[i].tile < best))
			best = runner->lists[i].tile;
	return best;
}

static uint32_t write_step(struct runner *runner,
			   const struct m6npu_step_token *tokens,
			   uint32_t count)
{
	uint64_t offset = runner->runtime.step_offset;
	struct m6npu_step *step = (void *)(runner->io.host + offset);
	uint32_t i;

	memset(step, 0, sizeof(*step));
	step->token_count = count;
	step->kv_capacity = runner->options.capacity;
	step->kv_type = runner->options.kv_q8_0 ? M6NPU_TYPE_Q8_0 :
						  M6NPU_TYPE_F16;
	step->kv_slot_stride = kv_slot_bytes(runner);
	if (runner->experts)
		step->prefetch_permille = residency_threshold(runner->experts);
	if (runner->options.experts.hints)
		step->flags = M6NPU_STEP_HINTS;
	for (i = 0; i < count; i++) {
		step->tokens[i] = tokens[i];
		step->out_count += tokens[i].flags & M6NPU_TOKEN_OUT;
	}
	board_push(runner->board, &runner->io, offset,
		   sizeof(*step) + count * sizeof(*tokens));
	return step->out_count;
}

static const struct list *find_list(const struct runner *runner, uint32_t tile)
{
	unsigned int i;

	for (i = 0; i < runner->list_count; i++)
		if (runner->lists[i].tile == tile)
			return &runner->lists[i];
	npu_fail(-EINVAL, "the model has no commands for steps of %" PRIu32,
		 tile);
	return NULL;
}

static void poison(struct runner *runner)
{
	struct board_memory *memory[] = { &runner->scratch, &runner->io };
	size_t i;

	for (i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) {
		memset(memory[i]->host, 0xff, memory[i]->bytes);
		board_push(runner->board, memory[i], 0, memory[i]->bytes);
	}
}

static void set_region(struct board_job *job, enum npu_region region,
		       const struct board_memory *memory)
{
	job->region[region].addr = memory->addr;
	job->region[region].size = memory->bytes;
}

static struct board_job make_job(const struct runner *runner,
				 const struct list *list)
{
	struct board_job job = {
		.cmds = list->memory.addr,
		.count = list->count,
		.step = runner->io.addr + runner->runtime.step_offset,
	};

	set_region(&job, NPU_REGION_WEIGHTS, &runner->weights);
	set_region(&job, NPU_REGION_SCRATCH, &runner->scratch);
	set_region(&job, NPU_REGION_KV, &runner->kv);
	set_region(&job, NPU_REGION_IO, &runner->io);
	return job;
}

static void find_results(const struct runner *runner,
			 struct runner_result *result)
{
	const struct npu_runtime *r = &runner->runtime;
	const struct residency_io io = expert_io(runner);
	const uint8_t *host = runner->io.host;

	result->logits = (const void *)(host + r->logits_offset);
	result->hidden = (const void *)(host + r->hidden_offset);
	result->topk_ids = (const void *)(host + r->topk_ids_offset);
	result->topk_values = (const void *)(host + r->topk_values_offset);
	result->routed = io.routed;
	result->guess_ids = io.guess_ids;
	result->guess_chances = io.guess_chances;
}

/* With scattered pages, what is told of experts has to be gathered first. */
static int on_stall(void *user)
{
	struct runner *runner = user;

	board_pull(runner->board, &runner->io, 0, runner->io.bytes);
	return residency_stalled(runner->experts);
}

static void on_record(void *user, const struct m6npu_exception *record)
{
	struct runner *runner = user;

	residency_posted(runner->experts, record);
}

static int run(struct runner *runner, const struct list *list,
	       struct m6npu_job_status *status)
{
	const struct board_host host = {
		.user = runner,
		.posted = on_record,
		.stalled = on_stall,
	};
	const struct board_job job = make_job(runner, list);
	int ret;

	ret = board_run(runner->board, &job, &host, status);
	board_pull(runner->board, &runner->io, 0, runner->io.bytes);
	return ret;
}

int runner_step(struct runner *runner, uint32_t tile,
		const struct m6npu_step_token *tokens, uint32_t count,
		struct runner_result *result)
{
	const struct list *list = find_list(runner, tile);
	int ret;

	if (!list)
		return -EINVAL;
	if (!count || count > tile)
		return npu_fail(-EINVAL,
				"%" PRIu32 " tokens in a step of 1 to %" PRIu32,
				count, tile);
	if (runner->options.poison)
		poison(runner);
	result->out_count = write_step(runner, tokens, count);
	find_results(runner, result);
	if (runner->experts)
		residency_begin(runner->experts, count);
	ret = run(runner, list, &result->status);
	if (!ret && runner->experts)
		residency_end(runner->experts);
	return ret;
}
