// SPDX-License-Identifier: MIT
#include "lists.h"

#include <npu/npu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compile.h"

#define MAX_ARGUMENTS	32

bool lists_compile_to(const char *model, const char *options, char *path)
{
	char *argv[MAX_ARGUMENTS + 1] = { NULL }, *words, *rest;
	struct options parsed;
	int argc = 0;
	bool good;

	words = rest = xasprintf("npu_compiler --input %s/%s --output %s %s",
				 getenv("GOLDEN"), model, path, options);
	while (argc < MAX_ARGUMENTS && rest)
		argv[argc++] = strsep(&rest, " ");
	/* getopt starts over. */
	optind = 0;
	good = !options_parse(argc, argv, &parsed) && !compile(&parsed, NULL);
	free(words);
	return good;
}

struct npu_file *lists_compile(const char *model, const char *options)
{
	char path[] = "/tmp/m6-commands-XXXXXX";
	struct npu_file *file = NULL;
	int fd = mkstemp(path);

	if (fd < 0)
		return NULL;
	close(fd);
	if (!lists_compile_to(model, options, path))
		printf("# %s\n", fail_message());
	else if (npu_file_open(path, &file))
		printf("# %s\n", npu_error());
	unlink(path);
	return file;
}

bool lists_load(struct npu_file *file, int64_t index, struct list *list)
{
	void *data;
	size_t bytes;

	if (index < 0 || npu_file_load_section(file, index, &data, &bytes))
		return false;
	list->cmds = data;
	list->count = bytes / sizeof(*list->cmds);
	list->tile = npu_file_section(file, index)->tile;
	list->runtime = npu_file_header(file)->runtime;
	return true;
}

bool lists_of_tile(struct npu_file *file, uint32_t tile, struct list *list)
{
	int64_t i = -1;

	while ((i = npu_file_find(file, NPU_SECTION_COMMANDS, i + 1)) >= 0)
		if (npu_file_section(file, i)->tile == tile)
			return lists_load(file, i, list);
	return false;
}
