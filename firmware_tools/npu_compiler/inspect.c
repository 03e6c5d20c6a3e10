// SPDX-License-Identifier: MIT
/*
 * One description of a file, as JSON; the text for people is made of the same
 * tree, so the two can't differ.
 */
#include "inspect.h"

#include <ctype.h>
#include <npu/npu.h>
#include <stdio.h>
#include <stdlib.h>

#include "calibrate_report.h"
#include "command_check.h"
#include "inspect_experts.h"
#include "json.h"
#include "npu_file.h"
#include "weight.h"

#define MAX_INDENT	16

typedef yyjson_mut_doc doc_t;
typedef yyjson_mut_val val_t;

static const char *section_type(unsigned int type)
{
	static const char *const names[] = {
		[NPU_SECTION_METADATA] = "metadata",
		[NPU_SECTION_TOKENIZER] = "tokenizer",
		[NPU_SECTION_COMMANDS] = "commands",
		[NPU_SECTION_STATIC] = "static",
		[NPU_SECTION_EXPERT] = "expert",
		[NPU_SECTION_CALIBRATION] = "calibration",
		[NPU_SECTION_EXPERT_LOW] = "expert_low",
	};

	return type < ARRAY_SIZE(names) && names[type] ? names[type] : "?";
}

static void add_runtime(doc_t *doc, val_t *root, const struct npu_runtime *r)
{
	const struct {
		const char *key;
		uint64_t value;
	} list[] = {
		{ "weights_bytes", r->weights_bytes },
		{ "scratch_bytes", r->scratch_bytes },
		{ "io_bytes", r->io_bytes },
		{ "expert_bytes", r->expert_bytes },
		{ "chunk_bytes", r->chunk_bytes },
		{ "max_tile", r->max_tile },
		{ "max_out", r->max_out },
		{ "topk", r->topk },
		{ "vocab", r->vocab },
		{ "hidden", r->hidden },
		{ "kv_layers", r->kv_layers },
		{ "kv_heads", r->kv_heads },
		{ "head_dim", r->head_dim },
		{ "context_length", r->context_length },
		{ "expert_layers", r->expert_layers },
		{ "experts", r->experts },
		{ "experts_per_token", r->experts_per_token },
		{ "router_entries", r->router_entries },
		{ "guesses", r->guesses },
		{ "low_expert_bytes", r->low_expert_bytes },
	};
	val_t *object = yyjson_mut_obj_add_obj(doc, root, "runtime");
	size_t i;

	for (i = 0; i < ARRAY_SIZE(list); i++)
		yyjson_mut_obj_add_uint(doc, object, list[i].key,
					list[i].value);
}

static int add_operations(doc_t *doc, val_t *object, struct npu_file *file,
			  uint32_t index)
{
	uint32_t counts[256] = { 0 };
	struct m6npu_cmd *cmds;
	val_t *operations;
	size_t bytes, i;
	void *data;

	if (npu_file_load_section(file, index, &data, &bytes))
		return fail("%s", npu_error());
	cmds = data;
	for (i = 0; i < bytes / sizeof(*cmds); i++)
		counts[cmds[i].opcode]++;
	yyjson_mut_obj_add_uint(doc, object, "commands",
				bytes / sizeof(*cmds));
	operations = yyjson_mut_obj_add_obj(doc, object, "operations");
	for (i = 0; i < ARRAY_SIZE(counts); i++)
		if (counts[i])
			yyjson_mut_obj_add_uint(doc, operations,
						command_name(i), counts[i]);
	free(data);
	return 0;
}

static int add_section(doc_t *doc, val_t *array, struct npu_file *file,
		       uint32_t index)
{
	const struct npu_section *section = npu_file_section(file, index);
	val_t *object = yyjson_mut_arr_add_obj(doc, array);
	char hash[17];

	yyjson_mut_obj_add_str(doc, object, "type",
			       section_type(section->type));
	yyjson_mut_obj_add_str(doc, object, "encoding",
			       npu_file_encoding_name(section->encoding));
	yyjson_mut_obj_add_uint(doc, object, "offset", section->offset);
	yyjson_mut_obj_add_uint(doc, object, "stored_bytes",
				section->stored_bytes);
	yyjson_mut_obj_add_uint(doc, object, "loaded_bytes",
				section->loaded_bytes);
	snprintf(hash, sizeof(hash), "%016llx",
		 (unsigned long long)section->loaded_xxh3);
	yyjson_mut_obj_add_strcpy(doc, object, "loaded_xxh3", hash);
	switch (section->type) {
	case NPU_SECTION_STATIC:
		yyjson_mut_obj_add_uint(doc, object, "dest", section->dest);
		return 0;
	case NPU_SECTION_EXPERT_LOW:
		yyjson_mut_obj_add_str(doc, object, "format",
				       weight_type_name(section->format));
		/* fallthrough */
	case NPU_SECTION_EXPERT:
		yyjson_mut_obj_add_uint(doc, object, "layer", section->layer);
		yyjson_mut_obj_add_uint(doc, object, "expert",
					section->expert);
		return 0;
	case NPU_SECTION_COMMANDS:
		yyjson_mut_obj_add_uint(doc, object, "tile", section->tile);
		return add_operations(doc, object, file, index);
	default:
		return 0;
	}
}

static int add_metadata(doc_t *doc, val_t *root, struct npu_file *file)
{
	size_t bytes;
	yyjson_doc *metadata;
	void *data;
	int ret = 0;

	if (npu_file_load_section(file, npu_file_find(file,
						      NPU_SECTION_METADATA, 0),
				  &data, &bytes))
		return fail("%s", npu_error());
	metadata = yyjson_read(data, bytes, 0);
	if (metadata)
		yyjson_mut_obj_add_val(doc, root, "metadata",
				       yyjson_val_mut_copy(doc,
					yyjson_doc_get_root(metadata)));
	else
		ret = fail("metadata: not valid JSON");
	yyjson_doc_free(metadata);
	free(data);
	return ret;
}

static int add_calibration(doc_t *doc, val_t *root, struct npu_file *file)
{
	struct calibration calibration;

	if (calibration_load(file, &calibration))
		return -1;
	if (calibration.layers)
		calibrate_report_add(doc, root, &calibration);
	calibration_free(&calibration);
	return 0;
}

static int describe(doc_t *doc, struct npu_file *file)
{
	const struct npu_file_header *header = npu_file_header(file);
	val_t *root = yyjson_mut_obj(doc), *sections;
	char version[32];
	uint32_t i;

	yyjson_mut_doc_set_root(doc, root);
	snprintf(version, sizeof(version), "%u.%u", header->version_major,
		 header->version_minor);
	yyjson_mut_obj_add_strcpy(doc, root, "format", version);
	yyjson_mut_obj_add_str(doc, root, "target", header->target);
	yyjson_mut_obj_add_uint(doc, root, "file_bytes", header->file_bytes);
	add_runtime(doc, root, &header->runtime);
	if (add_metadata(doc, root, file) ||
	    inspect_experts_add(doc, root, file) ||
	    add_calibration(doc, root, file))
		return -1;
	sections = yyjson_mut_obj_add_arr(doc, root, "sections");
	for (i = 0; i < npu_file_section_count(file); i++)
		if (add_section(doc, sections, file, i))
			return -1;
	return 0;
}

/* Metadata is the file's, not ours: anything may be missing. */
static const char *text_of(val_t *value)
{
	const char *text = yyjson_mut_get_str(value);

	return text ? text : "?";
}

/* A file's text must not steer the terminal. */
static void print_text(const char *text)
{
	for (; *text; text++) {
		if (*text == '\n')
			fputs("\\n", stdout);
		else if (iscntrl((unsigned char)*text))
			printf("\\x%02x", (unsigned char)*text);
		else
			putchar(*text);
	}
}

static void print_scalar(val_t *value)
{
	if (yyjson_mut_is_str(value))
		print_text(text_of(value));
	else if (yyjson_mut_is_bool(value))
		printf("%s", yyjson_mut_get_bool(value) ? "yes" : "no");
	else if (yyjson_mut_is_null(value))
		printf("none");
	else if (yyjson_mut_is_int(value))
		printf("%llu",
		       (unsigned long long)yyjson_mut_get_uint(value));
	else
		printf("%g", yyjson_mut_get_num(value));
}

static void print_members(val_t *object, int indent)
{
	size_t i, count;
	val_t *key, *value;

	yyjson_mut_obj_foreach(object, i, count, key, value) {
		if (yyjson_mut_is_arr(value) || indent > MAX_INDENT)
			continue;
		printf("%*s", indent, "");
		print_text(text_of(key));
		putchar(yyjson_mut_is_obj(value) ? '\n' : ' ');
		if (yyjson_mut_is_obj(value)) {
			print_members(value, indent + 2);
			continue;
		}
		print_scalar(value);
		putchar('\n');
	}
}

static void print_tensors(val_t *tensors)
{
	size_t i, j, count, dims;
	val_t *tensor, *dim;

	printf("weights\n");
	yyjson_mut_arr_foreach(tensors, i, count, tensor) {
		printf("  ");
		print_text(text_of(yyjson_mut_obj_get(tensor, "name")));
		putchar(' ');
		print_text(text_of(yyjson_mut_obj_get(tensor, "type")));
		yyjson_mut_arr_foreach(yyjson_mut_obj_get(tensor, "shape"), j,
				       dims, dim)
			printf("%s%llu", j ? " x " : " ",
			       (unsigned long long)yyjson_mut_get_uint(dim));
		printf(", %llu times, %llu bytes\n",
		       (unsigned long long)yyjson_mut_get_uint(
				yyjson_mut_obj_get(tensor, "count")),
		       (unsigned long long)yyjson_mut_get_uint(
				yyjson_mut_obj_get(tensor, "bytes")));
	}
}

/* A thousand experts are one line. */
static void print_sections(struct npu_file *file)
{
	struct {
		uint64_t count, stored, loaded;
	} sums[NPU_SECTION_EXPERT_LOW + 1][NPU_ENCODING_ZSTD + 1] = { 0 };
	const struct npu_section *section;
	uint32_t i, j;

	for (i = 0; i < npu_file_section_count(file); i++) {
		section = npu_file_section(file, i);
		sums[section->type][section->encoding].count++;
		sums[section->type][section->encoding].stored +=
			section->stored_bytes;
		sums[section->type][section->encoding].loaded +=
			section->loaded_bytes;
	}
	printf("sections\n");
	for (i = 0; i < ARRAY_SIZE(sums); i++)
		for (j = 0; j <= NPU_ENCODING_ZSTD; j++)
			if (sums[i][j].count)
				printf("  %5llu %-11s %-4s %12llu bytes, %12llu loaded\n",
				       (unsigned long long)sums[i][j].count,
				       section_type(i),
				       npu_file_encoding_name(j),
				       (unsigned long long)sums[i][j].stored,
				       (unsigned long long)sums[i][j].loaded);
}

static int print_json(const doc_t *doc)
{
	char *text = yyjson_mut_write(doc, YYJSON_WRITE_PRETTY_TWO_SPACES,
				      NULL);

	if (!text)
		return fail("the metadata cannot be written as JSON");
	puts(text);
	free(text);
	return 0;
}

static void print_all(val_t *root, struct npu_file *file)
{
	val_t *metadata = yyjson_mut_obj_get(root, "metadata");
	/* These have their own form. */
	val_t *experts = yyjson_mut_obj_remove_key(root, "experts");
	val_t *calibration = yyjson_mut_obj_remove_key(root, "calibration");

	print_members(root, 0);
	print_tensors(yyjson_mut_obj_get(metadata, "tensors"));
	inspect_experts_print(experts);
	calibrate_report_print(calibration);
	print_sections(file);
}

int inspect(const char *path, bool json)
{
	struct npu_file *file;
	doc_t *doc;
	int ret;

	if (npu_file_open(path, &file))
		return fail("%s", npu_error());
	doc = yyjson_mut_doc_new(NULL);
	ret = describe(doc, file);
	if (!ret && json)
		ret = print_json(doc);
	else if (!ret)
		print_all(yyjson_mut_doc_get_root(doc), file);
	yyjson_mut_doc_free(doc);
	npu_file_close(file);
	return ret;
}
