// SPDX-License-Identifier: MIT
#include "verify.h"

#include <npu/npu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibration.h"
#include "command_check.h"
#include "json.h"
#include "list_check.h"
#include "progress.h"

static int count_section(void *user, uint32_t section)
{
	const struct npu_file *file = user;

	progress_add(npu_file_section(file, section)->stored_bytes);
	return 0;
}

static uint64_t stored_bytes(const struct npu_file *file)
{
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < npu_file_section_count(file); i++)
		bytes += npu_file_section(file, i)->stored_bytes;
	return bytes;
}

static int check_each(const struct command_array *list, uint32_t tile,
		      size_t *at)
{
	for (*at = 0; *at < list->count; ++*at)
		if (command_check(&list->cmds[*at], tile, list->runtime))
			return -1;
	return 0;
}

static int check_together(struct npu_file *file,
			  const struct command_array *list,
			  struct static_part *members, size_t *at)
{
	uint64_t begin, end;

	list_members(list, &begin, &end);
	if (begin < end && static_part_load(members, file, begin, end))
		return -1;
	return list_check(list, members, at);
}

static int check_expert(const struct npu_file *file, uint32_t index,
			const struct m6npu_cmd *cmd, const uint8_t type[3])
{
	uint64_t bytes = npu_file_section(file, index)->loaded_bytes;
	uint64_t wanted = command_expert_bytes(cmd, type);
	char name[NPU_FILE_NAME_BYTES];

	if (wanted && bytes >= wanted)
		return 0;
	return fail("%s has %llu bytes, and not the %llu that it works with",
		    npu_file_section_name(file, index, name),
		    (unsigned long long)bytes, (unsigned long long)wanted);
}

static int check_layer(const struct npu_file *file,
		       const struct m6npu_cmd *cmd)
{
	const struct npu_runtime *r = &npu_file_header(file)->runtime;
	uint32_t expert, low;
	uint8_t type[3];

	for (expert = 0; expert < r->experts; expert++) {
		if (check_expert(file, npu_file_expert(file, cmd->layer,
						       expert),
				 cmd, &cmd->type[1]))
			return -1;
		if (!r->low_expert_bytes)
			continue;
		low = npu_file_expert_low(file, cmd->layer, expert);
		memset(type, npu_file_section(file, low)->format,
		       sizeof(type));
		if (check_expert(file, low, cmd, type))
			return -1;
	}
	return 0;
}

/* All commands of a layer work with experts of one shape. */
static int check_experts(const struct npu_file *file,
			 const struct command_array *list, size_t *at)
{
	const struct m6npu_cmd *cmd, *last = NULL;

	for (*at = 0; *at < list->count; ++*at) {
		cmd = &list->cmds[*at];
		if (cmd->opcode != M6NPU_OP_MOE_FFN ||
		    (last && last->layer == cmd->layer))
			continue;
		if (check_layer(file, cmd))
			return -1;
		last = cmd;
	}
	return 0;
}

static int check_list(struct npu_file *file, uint32_t index,
		      const struct command_array *list,
		      struct static_part *members)
{
	uint32_t tile = npu_file_section(file, index)->tile;
	char name[NPU_FILE_NAME_BYTES];
	size_t at = 0;
	char *why;

	if (!check_each(list, tile, &at) &&
	    !check_together(file, list, members, &at) &&
	    !check_experts(file, list, &at))
		return 0;
	why = xstrdup(fail_message());
	fail("%s: command %zu (%s): %s",
	     npu_file_section_name(file, index, name), at,
	     command_name(list->cmds[at].opcode), why);
	free(why);
	return -1;
}

static int check_commands(struct npu_file *file)
{
	struct command_array list = {
		.runtime = &npu_file_header(file)->runtime,
	};
	struct static_part members = { 0 };
	int64_t i = -1;
	size_t bytes;
	void *data;
	int ret = 0;

	while (!ret && (i = npu_file_find(file, NPU_SECTION_COMMANDS,
					  i + 1)) >= 0) {
		if (npu_file_load_section(file, i, &data, &bytes)) {
			ret = fail("%s", npu_error());
			break;
		}
		list.cmds = data;
		list.count = bytes / sizeof(*list.cmds);
		ret = check_list(file, i, &list, &members);
		free(data);
	}
	static_part_free(&members);
	return ret;
}

static int check_text(struct npu_file *file, enum npu_section_type type,
		      const char *what)
{
	int64_t index = npu_file_find(file, type, 0);
	yyjson_doc *doc;
	size_t bytes;
	void *data;
	int ret = 0;

	if (index < 0)
		return 0;
	if (npu_file_load_section(file, index, &data, &bytes))
		return fail("%s", npu_error());
	doc = yyjson_read(data, bytes, 0);
	if (!yyjson_is_obj(yyjson_doc_get_root(doc)))
		ret = fail("%s: not a JSON object", what);
	yyjson_doc_free(doc);
	free(data);
	return ret;
}

static int check_calibration(struct npu_file *file)
{
	struct calibration calibration;

	if (calibration_load(file, &calibration))
		return -1;
	calibration_free(&calibration);
	return 0;
}

static int check_all(struct npu_file *file)
{
	if (npu_file_verify(file, count_section, file))
		return fail("%s", npu_error());
	return check_text(file, NPU_SECTION_METADATA, "metadata") ||
	       check_text(file, NPU_SECTION_TOKENIZER, "tokenizer") ||
	       check_calibration(file) ||
	       check_commands(file);
}

int verify(const char *path, bool progress)
{
	struct npu_file *file;
	int ret;

	if (npu_file_open(path, &file))
		return fail("%s", npu_error());
	progress_begin("verifying", stored_bytes(file), progress);
	ret = check_all(file);
	progress_end();
	if (!ret)
		printf("%s: good, %u sections\n", path,
		       npu_file_section_count(file));
	npu_file_close(file);
	return ret ? -1 : 0;
}
