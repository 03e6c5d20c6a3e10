// SPDX-License-Identifier: MIT
#include "runner.h"

#include <npu/npu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu_file.h"

#define MAX_LISTS	64

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
	struct board_memory *experts;	/* host NULL: not yet in */
	struct list lists[MAX_LISTS];
	unsigned int list_count;
};

static void check(int error)
{
	if (error) {
		printf("Bail out! %s\n", npu_error());
		exit(1);
	}
}

static void load_section(struct runner *runner, uint32_t index,
			 struct board_memory *memory, uint64_t offset)
{
	const struct npu_section *section;

	section = npu_file_section(runner->file, index);
	check(npu_file_read_section(runner->file, index,
				    memory->host + offset,
				    memory->bytes - offset));
	board_push(runner->board, memory, offset, section->loaded_bytes);
}

static void load_expert(void *user, uint32_t layer, uint32_t expert)
{
	struct runner *runner = user;
	uint32_t index = npu_file_expert(runner->file, layer, expert);
	uint64_t bytes = npu_file_section(runner->file, index)->loaded_bytes;
	struct board_memory *memory;

	memory = &runner->experts[layer * runner->runtime.experts + expert];
	if (!memory->host)
		*memory = board_alloc(runner->board, bytes, false);
	load_section(runner, index, memory, 0);
	board_expert_set(runner->board, layer, expert, memory->addr, bytes,
			 M6NPU_EXPERT_RESIDENT);
}

static void set_experts(struct runner *runner, bool resident)
{
	const struct npu_runtime *r = &runner->runtime;
	uint32_t layer, expert;

	for (layer = 0; layer < r->expert_layers; layer++)
		for (expert = 0; expert < r->experts; expert++) {
			if (resident)
				load_expert(runner, layer, expert);
			else
				board_expert_set(runner->board, layer, expert,
						 0, 0, M6NPU_EXPERT_ABSENT);
		}
	if (r->expert_layers)
		board_invalidate(runner->board);
}

static void load_list(struct runner *runner, uint32_t index)
{
	const struct npu_section *section;
	struct list *list = &runner->lists[runner->list_count++];

	section = npu_file_section(runner->file, index);
	list->tile = section->tile;
	list->count = section->loaded_bytes / sizeof(struct m6npu_cmd);
	list->memory = board_alloc(runner->board, section->loaded_bytes,
				   false);
	load_section(runner, index, &list->memory, 0);
}

static void load_sections(struct runner *runner)
{
	const struct npu_section *section;
	uint32_t i;

	for (i = 0; i < npu_file_section_count(runner->file); i++) {
		section = npu_file_section(runner->file, i);
		if (section->type == NPU_SECTION_STATIC)
			load_section(runner, i, &runner->weights,
				     section->dest);
		else if (section->type == NPU_SECTION_COMMANDS)
			load_list(runner, i);
	}
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

struct runner *runner_create(const char *path,
			     const struct runner_options *options)
{
	struct runner *runner = calloc(1, sizeof(*runner));
	const struct npu_runtime *r = &runner->runtime;

	check(npu_file_open(path, &runner->file));
	runner->runtime = npu_file_header(runner->file)->runtime;
	runner->options = *options;
	runner->board = board_create(&options->board);
	runner->weights = board_alloc(runner->board, r->weights_bytes, false);
	runner->scratch = board_alloc(runner->board, r->scratch_bytes, true);
	runner->io = board_alloc(runner->board, r->io_bytes, true);
	runner->kv = board_alloc(runner->board, options->slots *
				 kv_slot_bytes(runner), true);
	load_sections(runner);
	if (r->expert_layers) {
		runner->experts = calloc((size_t)r->expert_layers * r->experts,
					 sizeof(*runner->experts));
		board_expert_table(runner->board, r->expert_layers,
				   r->experts);
		set_experts(runner, !options->on_demand);
	}
	return runner;
}

void runner_destroy(struct runner *runner)
{
	board_destroy(runner->board);
	npu_file_close(runner->file);
	free(runner->experts);
	free(runner);
}

const struct npu_runtime *runner_runtime(const struct runner *runner)
{
	return &runner->runtime;
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
	printf("Bail out! no commands for tile %u\n", tile);
	exit(1);
}

static void set_region(struct board_job *job, enum npu_region region,
		       const struct board_memory *memory)
{
	job->region[region].addr = memory->addr;
	job->region[region].size = memory->bytes;
}

struct runner_result runner_step(struct runner *runner, uint32_t tile,
				 const struct m6npu_step_token *tokens,
				 uint32_t count)
{
	const struct npu_runtime *r = &runner->runtime;
	const struct list *list = find_list(runner, tile);
	struct board_job job = {
		.cmds = list->memory.addr,
		.count = list->count,
		.step = runner->io.addr + r->step_offset,
	};
	struct runner_result result;

	result.out_count = write_step(runner, tokens, count);
	set_region(&job, NPU_REGION_WEIGHTS, &runner->weights);
	set_region(&job, NPU_REGION_SCRATCH, &runner->scratch);
	set_region(&job, NPU_REGION_KV, &runner->kv);
	set_region(&job, NPU_REGION_IO, &runner->io);
	result.status = board_run(runner->board, &job, load_expert, runner);
	board_pull(runner->board, &runner->io, 0, r->io_bytes);
	if (runner->options.forget)
		set_experts(runner, false);
	result.logits = (void *)(runner->io.host + r->logits_offset);
	result.hidden = (void *)(runner->io.host + r->hidden_offset);
	result.topk_ids = (void *)(runner->io.host + r->topk_ids_offset);
	result.topk_values = (void *)(runner->io.host + r->topk_values_offset);
	return result;
}
