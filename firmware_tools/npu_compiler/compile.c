// SPDX-License-Identifier: MIT
/* From a model's folder to a .npu file. */
#include "compile.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "arch.h"
#include "metadata.h"
#include "progress.h"
#include "safetensors.h"
#include "writer.h"

#define MAX_CONFIG_BYTES	(16u << 20)
/*
 * Smaller than it need be: this bounds the memory of the compiler and of a
 * loader that decompresses, and lets the latter show how far it is.
 */
#define STATIC_CHUNK_BYTES	(256ull << 20)

/* Everything read from the folder. */
struct source {
	struct json_file config;
	struct tensor_set tensors;
	struct tokenizer_config tokens;
	char *name;
};

static int open_source(const struct options *options, struct source *source,
		       struct model *model)
{
	char *path = xasprintf("%s/config.json", options->input);
	int ret;

	if (!file_exists(path))
		ret = fail("%s is missing: --input wants a Hugging Face model folder",
			   path);
	else
		ret = json_open(path, MAX_CONFIG_BYTES, &source->config);
	free(path);
	if (ret || hf_config_read(&source->config, &model->config))
		return -1;
	model->arch = arch_find(&model->config);
	if (!model->arch || model->arch->check(model->arch, &model->config) ||
	    tokenizer_config_read(options->input, &source->config,
				  model->config.vocab, &source->tokens))
		return -1;
	return safetensors_open_folder(options->input, &source->tensors);
}

static void close_source(struct source *source)
{
	json_close(&source->config);
	tensor_set_free(&source->tensors);
	tokenizer_config_free(&source->tokens);
	free(source->name);
}

static int check_input(const struct options *options)
{
	struct stat st;

	if (stat(options->input, &st))
		return fail("%s does not exist: --input wants a Hugging Face model folder",
			    options->input);
	if (!S_ISDIR(st.st_mode))
		return fail("%s is not a folder: --input wants a Hugging Face model folder; other formats are not read yet",
			    options->input);
	return 0;
}

static char *model_name(const struct options *options)
{
	char *path, *name;

	if (options->name)
		return xstrdup(options->name);
	path = realpath(options->input, NULL);
	name = xstrdup(path && strrchr(path, '/')[1] ? strrchr(path, '/') + 1 :
						       "model");
	free(path);
	return name;
}

static int settle_context(const struct options *options, struct hf_config *c)
{
	if (options->context > c->context)
		return fail("--context %u: the model is made for %u positions",
			    options->context, c->context);
	if (options->context)
		c->context = options->context;
	if (c->window && c->window < c->context)
		return fail("the model attends to a sliding window of %u positions, which is not supported: compile it with --context %u",
			    c->window, c->window);
	return 0;
}

static int settle_expert(const struct options *options,
			 const struct model *model)
{
	if (model->runtime.expert_bytes > options->chunk_bytes)
		return fail("an expert takes %llu KiB, more than --max-chunk-kb allows: raise it, or use a smaller --quantize",
			    (unsigned long long)
			    (model->runtime.expert_bytes + 1023) / 1024);
	return 0;
}

static void note_fallbacks(const struct model *model)
{
	const struct expert_shape *shape = &model->expert_shape;
	size_t i, kept = 0;

	if (model->quant == QUANT_FP16)
		return;
	for (i = 0; i < model->weight_count; i++)
		kept += model->weights[i]->type == M6NPU_TYPE_F16;
	for (i = 0; model->expert_count && i < 3; i++)
		if (shape->type[i] == M6NPU_TYPE_F16)
			kept += model->expert_count;
	if (kept)
		note("note: %zu matrices stay fp16: their rows are no multiple of 32 elements",
		     kept);
	if (model->quant == QUANT_INT4)
		note("note: the embedding and the head are kept at int8, routers and norms at fp32");
}

/* Gathers the weights region and cuts it into sections. */
struct region_writer {
	struct writer *writer;
	enum npu_encoding encoding;
	uint8_t *chunk;
	uint64_t chunk_bytes;
	uint64_t begin, at;	/* of the chunk, and where the next byte goes */
};

static int flush_chunk(struct region_writer *region)
{
	struct npu_section entry = {
		.type = NPU_SECTION_STATIC,
		.dest = region->begin,
	};
	uint64_t bytes = region->at - region->begin;

	if (!bytes)
		return 0;
	region->begin = region->at;
	progress_add(bytes);
	return writer_add(region->writer, &entry, region->chunk, bytes,
			  region->encoding);
}

static int put_in_region(void *context, const void *data, uint64_t bytes)
{
	struct region_writer *region = context;
	const uint8_t *from = data;
	uint64_t used, part;

	while (bytes) {
		used = region->at - region->begin;
		if (used == region->chunk_bytes) {
			if (flush_chunk(region))
				return -1;
			continue;
		}
		part = region->chunk_bytes - used;
		if (part > bytes)
			part = bytes;
		/* No data: zeros up to the next weight. */
		if (from)
			memcpy(region->chunk + used, from, part);
		else
			memset(region->chunk + used, 0, part);
		region->at += part;
		bytes -= part;
		if (from)
			from += part;
	}
	return 0;
}

static uint64_t static_chunk(const struct options *options)
{
	return options->chunk_bytes < STATIC_CHUNK_BYTES ?
		options->chunk_bytes : STATIC_CHUNK_BYTES;
}

static int write_static(const struct options *options,
			const struct model *model, struct writer *writer)
{
	struct region_writer region = {
		.writer = writer,
		.encoding = options->encoding,
		.chunk_bytes = static_chunk(options),
	};
	struct weight_sink sink = { put_in_region, &region };
	const struct weight *weight;
	size_t i;
	int ret = 0;

	if (region.chunk_bytes > model->runtime.weights_bytes)
		region.chunk_bytes = model->runtime.weights_bytes;
	region.chunk = xcalloc(1, region.chunk_bytes);
	for (i = 0; !ret && i < model->weight_count; i++) {
		weight = model->weights[i];
		ret = put_in_region(&region, NULL,
				    weight->offset - region.at);
		if (!ret)
			ret = weight_write(weight, options->threads, &sink);
	}
	if (!ret)
		ret = put_in_region(&region, NULL,
				    model->runtime.weights_bytes - region.at);
	if (!ret)
		ret = flush_chunk(&region);
	free(region.chunk);
	return ret;
}

static int put_in_memory(void *context, const void *data, uint64_t bytes)
{
	uint8_t **at = context;

	memcpy(*at, data, bytes);
	*at += bytes;
	return 0;
}

static int write_expert(const struct options *options,
			const struct expert *expert, struct npu_section entry,
			uint8_t *memory, struct writer *writer)
{
	const struct weight *last = &expert->matrix[2];
	uint64_t bytes = last->offset + last->bytes;
	struct weight_sink sink = { put_in_memory, NULL };
	uint8_t *at;
	int i;

	entry.layer = expert->row;
	entry.expert = expert->column;
	memset(memory, 0, bytes);
	for (i = 0; i < 3; i++) {
		at = memory + expert->matrix[i].offset;
		sink.context = &at;
		if (weight_write(&expert->matrix[i], options->threads, &sink))
			return -1;
	}
	progress_add(bytes);
	return writer_add(writer, &entry, memory, bytes, options->encoding);
}

static int write_experts(const struct options *options,
			 const struct model *model, struct writer *writer)
{
	const struct npu_section entry = { .type = NPU_SECTION_EXPERT };
	uint8_t *memory;
	size_t i;
	int ret = 0;

	if (!model->expert_count)
		return 0;
	memory = xcalloc(1, model->runtime.expert_bytes);
	for (i = 0; !ret && i < model->expert_count; i++)
		ret = write_expert(options, &model->experts[i], entry, memory,
				   writer);
	free(memory);
	return ret;
}

static int write_low_experts(const struct options *options,
			     const struct model *model, struct writer *writer)
{
	const struct npu_section entry = {
		.type = NPU_SECTION_EXPERT_LOW,
		.format = model->low_type,
	};
	const uint8_t type[3] = { model->low_type, model->low_type,
				  model->low_type };
	struct expert expert;
	uint8_t *memory;
	size_t i;
	int ret = 0;

	if (!model->low_type)
		return 0;
	memory = xcalloc(1, model->runtime.low_expert_bytes);
	for (i = 0; !ret && i < model->expert_count; i++) {
		expert = model->experts[i];
		model_place_expert(&expert, type);
		ret = write_expert(options, &expert, entry, memory, writer);
	}
	free(memory);
	return ret;
}

static int write_commands(const struct model *model, struct writer *writer)
{
	struct npu_section entry = { .type = NPU_SECTION_COMMANDS };
	struct command_list list;
	size_t i;
	int ret = 0;

	for (i = 0; !ret && i < model->tile_count; i++) {
		entry.tile = model->tiles[i];
		model_emit(model, entry.tile, &list);
		if (list.count > M6NPU_MAX_COMMANDS)
			ret = fail("a step takes %zu commands, and the NPU %u: use --moe grouped, the default",
				   list.count, M6NPU_MAX_COMMANDS);
		else
			ret = writer_add(writer, &entry, list.cmds,
					 list.count * sizeof(*list.cmds),
					 NPU_ENCODING_RAW);
		command_list_free(&list);
	}
	return ret;
}

static int write_texts(const struct options *options,
		       const struct source *source, const struct model *model,
		       struct writer *writer)
{
	struct npu_section metadata = { .type = NPU_SECTION_METADATA };
	struct npu_section tokenizer = { .type = NPU_SECTION_TOKENIZER };
	size_t bytes;
	char *text;
	int ret;

	text = metadata_write(model, options, source->name, &source->tokens,
			      &source->config, &bytes);
	if (!text)
		return -1;
	ret = writer_add(writer, &metadata, text, bytes, NPU_ENCODING_RAW);
	free(text);
	if (ret)
		return ret;
	return writer_add(writer, &tokenizer, source->tokens.json,
			  source->tokens.json_bytes, NPU_ENCODING_RAW);
}

static int write_calibration(const struct model *model, struct writer *writer)
{
	struct npu_section entry = { .type = NPU_SECTION_CALIBRATION };
	size_t bytes;
	char *text;
	int ret;

	if (!model->calibration)
		return 0;
	text = calibration_write(model->calibration, &bytes);
	if (!text)
		return -1;
	ret = writer_add(writer, &entry, text, bytes, NPU_ENCODING_RAW);
	free(text);
	return ret;
}

static int write_sections(const struct options *options,
			  const struct source *source,
			  const struct model *model, struct writer *writer)
{
	const struct npu_runtime *r = &model->runtime;
	uint64_t total = r->weights_bytes + model->expert_count *
			 (r->expert_bytes + r->low_expert_bytes);
	int ret;

	progress_begin("compiling", total, options->progress);
	ret = write_texts(options, source, model, writer) ||
	      write_calibration(model, writer) ||
	      write_commands(model, writer) ||
	      write_static(options, model, writer) ||
	      write_experts(options, model, writer) ||
	      write_low_experts(options, model, writer);
	progress_end();
	return ret ? -1 : 0;
}

static int write_file(const struct options *options,
		      const struct source *source, struct model *model)
{
	uint64_t chunk = static_chunk(options);
	uint64_t copies = model->low_type ? 2 : 1;
	uint64_t sections = 3 + model->tile_count +
			    copies * model->expert_count +
			    (model->runtime.weights_bytes + chunk - 1) / chunk;
	struct writer *writer;

	if (model->expert_count)
		model->runtime.router_entries = options->expert_cache;
	writer = writer_open(options->output, sections < UINT32_MAX ?
			     sections : UINT32_MAX);
	if (!writer)
		return -1;
	if (write_sections(options, source, model, writer)) {
		writer_abort(writer);
		return -1;
	}
	return writer_finish(writer, options->target->name, &model->runtime);
}

int compile(const struct options *options,
	    const struct calibration *calibration)
{
	struct source source = { 0 };
	struct model model = {
		.quant = options->quant,
		.tensors = &source.tensors,
		.tile_count = options->tile_count,
		.target = options->target,
		.calibration = calibration,
		.order = options->order,
		.guesses = options->guesses,
		.low_type = options->fallback ?
			weight_type(options->fallback, ROLE_MATRIX, 32) : 0,
	};
	int ret;

	memcpy(model.tiles, options->tiles, sizeof(model.tiles));
	if (check_input(options))
		return -1;
	source.name = model_name(options);
	ret = open_source(options, &source, &model) ||
	      settle_context(options, &model.config) ||
	      model_plan(&model) || settle_expert(options, &model);
	if (!ret) {
		note_fallbacks(&model);
		ret = write_file(options, &source, &model);
	}
	model_free(&model);
	close_source(&source);
	return ret ? -1 : 0;
}
