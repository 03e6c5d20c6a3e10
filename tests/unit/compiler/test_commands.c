// SPDX-License-Identifier: MIT
/*
 * What --verify finds in command lists: every list that the compiler writes is
 * good, and none is any more once one of its fields says something else.
 */
#include <npu/npu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../tap.h"
#include "command_check.h"
#include "compile.h"
#include "npu_file.h"

static char path[] = "/tmp/m6-commands-XXXXXX";

static bool make_file(const char *golden, const char *model,
		      const char *quantize)
{
	char folder[4096];
	char *argv[] = { (char[]){ "npu_compiler" }, (char[]){ "--input" },
			 folder, (char[]){ "--output" }, path,
			 (char[]){ "--tiles" }, (char[]){ "1,16,64" },
			 (char[]){ "--quantize" }, strdup(quantize), NULL };
	struct options options;
	bool good;

	snprintf(folder, sizeof(folder), "%s/%s", golden, model);
	/* getopt starts over. */
	optind = 0;
	good = !options_parse(9, argv, &options) && !compile(&options);
	free(argv[8]);
	if (!good)
		printf("# %s\n", fail_message());
	return good;
}

struct change {
	const char *name;
	void (*apply)(struct m6npu_cmd *cmd);
};

static void set_opcode(struct m6npu_cmd *cmd)
{
	cmd->opcode = 0x7f;
}

static void set_flag(struct m6npu_cmd *cmd)
{
	cmd->flags |= 0x80;
}

static void set_word(struct m6npu_cmd *cmd)
{
	/* Rows where there are such, else something reserved. */
	cmd->args.word[0] += 1u << 20;
}

static void set_last_word(struct m6npu_cmd *cmd)
{
	cmd->args.word[5] = 0x7fffffff;
}

/* Its last word, the epsilon, may be any. */
static void set_norm_width(struct m6npu_cmd *cmd)
{
	cmd->args.norm.width += 1u << 22;
}

static void set_region(struct m6npu_cmd *cmd)
{
	cmd->operand[0] = M6NPU_OPERAND(7, 0);
}

static void set_stray_bits(struct m6npu_cmd *cmd)
{
	cmd->operand[0] |= 1ull << 50;
}

static void set_unaligned(struct m6npu_cmd *cmd)
{
	cmd->operand[0] += 2;
}

static void set_offset(struct m6npu_cmd *cmd)
{
	cmd->operand[0] += 1ull << 37;
}

static void set_none(struct m6npu_cmd *cmd)
{
	cmd->operand[0] = M6NPU_OPERAND_NONE;
}

static void set_to_weights(struct m6npu_cmd *cmd)
{
	cmd->operand[0] = M6NPU_OPERAND(NPU_REGION_WEIGHTS, 0);
}

static void set_type(struct m6npu_cmd *cmd)
{
	cmd->type[0] = 77;
}

static const struct change changes[] = {
	{ "opcode", set_opcode },
	{ "flags", set_flag },
	{ "first word", set_word },
	{ "region", set_region },
	{ "stray bits", set_stray_bits },
	{ "alignment", set_unaligned },
	{ "offset", set_offset },
	{ "missing operand", set_none },
	{ "write to the weights", set_to_weights },
	{ "type", set_type },
};

/* What only some opcodes have. */
static const struct special {
	const char *name;
	enum m6npu_opcode opcode;
	void (*apply)(struct m6npu_cmd *cmd);
} specials[] = {
	{ "width of a norm", M6NPU_OP_NORM, set_norm_width },
	{ "pad of a GEMM", M6NPU_OP_GEMM, set_last_word },
	{ "pad of an attention", M6NPU_OP_ATTENTION, set_last_word },
	{ "activation of a GLU", M6NPU_OP_GLU, set_last_word },
	{ "pad of MOE_FFN", M6NPU_OP_MOE_FFN, set_last_word },
	{ "pad of a router", M6NPU_OP_ROUTER_TOPK, set_last_word },
	{ "pad of TOPK", M6NPU_OP_TOPK, set_last_word },
	{ "rotation", M6NPU_OP_ROPE, set_last_word },
};

struct list {
	struct m6npu_cmd *cmds;
	size_t count;
	uint32_t tile;
	struct npu_runtime runtime;
};

static bool load_list(struct npu_file *file, int64_t index, struct list *list)
{
	void *data;
	size_t bytes;

	if (npu_file_load_section(file, index, &data, &bytes))
		return false;
	list->cmds = data;
	list->count = bytes / sizeof(*list->cmds);
	list->tile = npu_file_section(file, index)->tile;
	list->runtime = npu_file_header(file)->runtime;
	return true;
}

static size_t count_accepted(const struct list *list,
			     void (*apply)(struct m6npu_cmd *cmd), int opcode)
{
	size_t i, accepted = 0;
	struct m6npu_cmd cmd;

	for (i = 0; i < list->count; i++) {
		cmd = list->cmds[i];
		if (opcode >= 0 && cmd.opcode != opcode)
			continue;
		if (apply)
			apply(&cmd);
		accepted += !command_check(&cmd, list->tile, &list->runtime);
	}
	return accepted;
}

static void check_list(const char *model, const struct list *list)
{
	size_t i;

	ok(count_accepted(list, NULL, -1) == list->count,
	   "%s, tile %u: %zu commands are good", model, list->tile,
	   list->count);
	for (i = 0; i < ARRAY_SIZE(changes); i++)
		ok(!count_accepted(list, changes[i].apply, -1),
		   "%s, tile %u: %s", model, list->tile, changes[i].name);
	for (i = 0; i < ARRAY_SIZE(specials); i++)
		ok(!count_accepted(list, specials[i].apply,
				   specials[i].opcode),
		   "%s, tile %u: %s", model, list->tile, specials[i].name);
}

/* What fits the regions does not fit smaller ones. */
static void check_sizes(const char *model, const struct list *largest)
{
	struct list list = *largest;
	size_t good = list.count;

	list.runtime.scratch_bytes = 1024;
	ok(count_accepted(&list, NULL, -1) < good, "%s: a smaller scratch",
	   model);
	list.runtime = largest->runtime;
	list.runtime.io_bytes = list.runtime.time_offset + 28;
	ok(count_accepted(&list, NULL, -1) == good - 1, "%s: a smaller IO",
	   model);
	list.runtime = largest->runtime;
	list.runtime.kv_layers--;
	ok(count_accepted(&list, NULL, -1) == good - 1, "%s: fewer KV layers",
	   model);
}

static void check_model(const char *golden, const char *model,
			const char *quantize)
{
	struct npu_file *file;
	struct list list;
	int64_t i = -1;

	if (!ok(make_file(golden, model, quantize), "%s %s", model, quantize))
		return;
	if (!ok(!npu_file_open(path, &file), "%s opens", model))
		return;
	while ((i = npu_file_find(file, NPU_SECTION_COMMANDS, i + 1)) >= 0) {
		if (!ok(load_list(file, i, &list), "%s: list", model))
			continue;
		check_list(model, &list);
		if (list.tile == list.runtime.max_tile)
			check_sizes(model, &list);
		free(list.cmds);
	}
	npu_file_close(file);
}

int main(void)
{
	const char *golden = getenv("GOLDEN");
	int fd = mkstemp(path);

	if (fd < 0 || !golden)
		return ok(false, "GOLDEN and a temporary file"), done();
	close(fd);
	check_model(golden, "qwen2moe", "int4");
	check_model(golden, "qwen3moe", "fp16");
	check_model(golden, "llama", "int8");
	unlink(path);
	return done();
}
