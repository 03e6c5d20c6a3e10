// SPDX-License-Identifier: MIT
#include "verify.h"

#include <npu/npu.h>
#include <stdio.h>
#include <stdlib.h>

#include "command_check.h"
#include "json.h"
#include "npu_file.h"
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

static int check_list(const struct npu_file *file, uint32_t index,
		      const struct m6npu_cmd *cmds, size_t count)
{
	char name[NPU_FILE_NAME_BYTES];
	char *why;
	size_t i;

	for (i = 0; i < count; i++) {
		if (!command_check(&cmds[i],
				   npu_file_section(file, index)->tile,
				   &npu_file_header(file)->runtime))
			continue;
		npu_file_section_name(file, index, name);
		why = xstrdup(fail_message());
		fail("%s: command %zu (%s): %s", name, i,
		     command_name(cmds[i].opcode), why);
		free(why);
		return -1;
	}
	return 0;
}

static int check_commands(struct npu_file *file)
{
	int64_t i = -1;
	size_t bytes;
	void *data;
	int ret;

	while ((i = npu_file_find(file, NPU_SECTION_COMMANDS, i + 1)) >= 0) {
		if (npu_file_load_section(file, i, &data, &bytes))
			return fail("%s", npu_error());
		ret = check_list(file, i, data,
				 bytes / sizeof(struct m6npu_cmd));
		free(data);
		if (ret)
			return ret;
	}
	return 0;
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

static int check_all(struct npu_file *file)
{
	if (npu_file_verify(file, count_section, file))
		return fail("%s", npu_error());
	return check_text(file, NPU_SECTION_METADATA, "metadata") ||
	       check_text(file, NPU_SECTION_TOKENIZER, "tokenizer") ||
	       check_text(file, NPU_SECTION_CALIBRATION, "calibration") ||
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
