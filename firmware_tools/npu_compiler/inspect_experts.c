// SPDX-License-Identifier: MIT
#include "inspect_experts.h"

#include <npu/npu.h>
#include <stdio.h>
#include <stdlib.h>

#include "json.h"
#include "m6npu_regs.h"
#include "weight.h"

typedef yyjson_mut_doc doc_t;
typedef yyjson_mut_val val_t;

static uint64_t get_uint(val_t *object, const char *key)
{
	return yyjson_mut_get_uint(yyjson_mut_obj_get(object, key));
}

/* Commands that are alike are one entry, with how many there are. */
static void add_command(doc_t *doc, val_t *layer, const struct m6npu_cmd *cmd)
{
	val_t *last = yyjson_mut_arr_get_last(layer), *count;

	if (last && get_uint(last, "experts") == cmd->args.moe.members &&
	    get_uint(last, "capacity") == cmd->args.moe.capacity) {
		count = yyjson_mut_obj_get(last, "commands");
		yyjson_mut_set_uint(count, yyjson_mut_get_uint(count) + 1);
		return;
	}
	last = yyjson_mut_arr_add_obj(doc, layer);
	yyjson_mut_obj_add_uint(doc, last, "commands", 1);
	yyjson_mut_obj_add_uint(doc, last, "experts", cmd->args.moe.members);
	yyjson_mut_obj_add_uint(doc, last, "capacity", cmd->args.moe.capacity);
}

/* Of each layer with experts, its groups; none: token by token. */
static int add_tile(doc_t *doc, val_t *tiles, struct npu_file *file,
		    uint32_t index)
{
	uint32_t layer_count = npu_file_header(file)->runtime.expert_layers, i;
	val_t *tile = yyjson_mut_arr_add_obj(doc, tiles), *layers;
	val_t **layer = xcalloc(layer_count, sizeof(val_t *));
	const struct m6npu_cmd *cmd;
	size_t bytes;
	void *data;

	if (npu_file_load_section(file, index, &data, &bytes)) {
		free(layer);
		return fail("%s", npu_error());
	}
	yyjson_mut_obj_add_uint(doc, tile, "tile",
				npu_file_section(file, index)->tile);
	layers = yyjson_mut_obj_add_arr(doc, tile, "layers");
	for (i = 0; i < layer_count; i++)
		layer[i] = yyjson_mut_arr_add_arr(doc, layers);
	for (cmd = data; bytes; cmd++, bytes -= sizeof(*cmd))
		if (cmd->opcode == M6NPU_OP_MOE_FFN &&
		    cmd->flags & M6NPU_CMD_GROUPED && cmd->layer < layer_count)
			add_command(doc, layer[cmd->layer], cmd);
	free(layer);
	free(data);
	return 0;
}

static void add_low(doc_t *doc, val_t *experts, const struct npu_file *file)
{
	const struct npu_runtime *r = &npu_file_header(file)->runtime;
	int64_t first = npu_file_find(file, NPU_SECTION_EXPERT_LOW, 0);
	val_t *low;

	if (first < 0)
		return;
	low = yyjson_mut_obj_add_obj(doc, experts, "low_copies");
	yyjson_mut_obj_add_str(doc, low, "type", weight_type_name(
			       npu_file_section(file, first)->format));
	yyjson_mut_obj_add_uint(doc, low, "bytes", r->low_expert_bytes);
}

int inspect_experts_add(doc_t *doc, val_t *root, struct npu_file *file)
{
	const struct npu_runtime *r = &npu_file_header(file)->runtime;
	val_t *experts, *tiles;
	int64_t i = -1;

	if (!r->expert_layers)
		return 0;
	experts = yyjson_mut_obj_add_obj(doc, root, "experts");
	yyjson_mut_obj_add_uint(doc, experts, "guesses", r->guesses);
	add_low(doc, experts, file);
	tiles = yyjson_mut_obj_add_arr(doc, experts, "tiles");
	while ((i = npu_file_find(file, NPU_SECTION_COMMANDS, i + 1)) >= 0)
		if (add_tile(doc, tiles, file, i))
			return -1;
	return 0;
}

static void print_groups(val_t *layer)
{
	size_t i, count;
	val_t *group;

	if (!yyjson_mut_arr_size(layer))
		printf(" token by token");
	yyjson_mut_arr_foreach(layer, i, count, group) {
		printf("%s ", i ? ";" : "");
		if (get_uint(group, "commands") > 1)
			printf("%llu times ", (unsigned long long)
			       get_uint(group, "commands"));
		printf("%llu expert%s, %llu rows at a time",
		       (unsigned long long)get_uint(group, "experts"),
		       get_uint(group, "experts") == 1 ? "" : "s",
		       (unsigned long long)get_uint(group, "capacity"));
	}
	putchar('\n');
}

/* Layers that are alike are one line. */
static void print_tile(val_t *tile)
{
	val_t *layers = yyjson_mut_obj_get(tile, "layers");
	size_t count = yyjson_mut_arr_size(layers), first, last;

	for (first = 0; first < count; first = last + 1) {
		last = first;
		while (last + 1 < count &&
		       yyjson_mut_equals(yyjson_mut_arr_get(layers, first),
					 yyjson_mut_arr_get(layers, last + 1)))
			last++;
		printf("  tile %llu, layers %zu-%zu:",
		       (unsigned long long)get_uint(tile, "tile"), first,
		       last);
		print_groups(yyjson_mut_arr_get(layers, first));
	}
}

void inspect_experts_print(val_t *experts)
{
	val_t *low = yyjson_mut_obj_get(experts, "low_copies"), *tile;
	size_t i, count;

	if (!experts)
		return;
	printf("experts\n");
	if (get_uint(experts, "guesses"))
		printf("  layers name %llu for the next\n",
		       (unsigned long long)get_uint(experts, "guesses"));
	if (low)
		printf("  copies in %s of %llu bytes\n",
		       yyjson_mut_get_str(yyjson_mut_obj_get(low, "type")),
		       (unsigned long long)get_uint(low, "bytes"));
	yyjson_mut_arr_foreach(yyjson_mut_obj_get(experts, "tiles"), i, count,
			       tile)
		print_tile(tile);
}
