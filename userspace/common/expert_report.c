// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yyjson.h>

#include "expert_report.h"

static void add_layers(yyjson_mut_doc *doc, yyjson_mut_val *root,
		       const struct npu_model_info *info, const uint64_t *uses)
{
	yyjson_mut_val *layers = yyjson_mut_obj_add_arr(doc, root, "layers");
	yyjson_mut_val *layer;

	for (uint32_t i = 0; i < info->expert_layers; i++) {
		layer = yyjson_mut_arr_add_obj(doc, layers);
		yyjson_mut_obj_add_val(doc, layer, "use",
				       yyjson_mut_arr_with_uint64(
					       doc, uses, info->experts));
		uses += info->experts;
	}
}

/*
 * Steps go on meanwhile, and uses were read after @tokens: but no expert worked
 * on more of them than there were.
 */
static uint64_t count_tokens(uint64_t tokens, const uint64_t *uses,
			     size_t count)
{
	for (size_t i = 0; i < count; i++)
		tokens = uses[i] > tokens ? uses[i] : tokens;
	return tokens;
}

/* To be freed by the caller; NULL: out of memory. */
static char *render(const struct npu_model *model, uint64_t tokens,
		    size_t *bytes)
{
	yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
	yyjson_mut_val *root = yyjson_mut_obj(doc);
	struct npu_model_info info;
	uint64_t *uses;
	size_t count;
	char *text = NULL;

	npu_model_info(model, &info);
	count = (size_t)info.expert_layers * info.experts;
	uses = calloc(count + 1, sizeof(*uses));
	if (uses) {
		npu_model_expert_use(model, uses, count);
		tokens = count_tokens(tokens, uses, count);
		yyjson_mut_doc_set_root(doc, root);
		yyjson_mut_obj_add_str(doc, root, "model", info.name);
		yyjson_mut_obj_add_uint(doc, root, "tokens", tokens);
		add_layers(doc, root, &info, uses);
		text = yyjson_mut_write(doc, YYJSON_WRITE_NEWLINE_AT_END,
					bytes);
	}
	free(uses);
	yyjson_mut_doc_free(doc);
	return text;
}

static int write_file(const char *path, const char *text, size_t bytes)
{
	FILE *out = fopen(path, "we");
	int err = 0;

	if (!out)
		return -errno;
	/* EINVAL: a pipe or the like, which has nothing to sync. */
	if (fwrite(text, 1, bytes, out) != bytes || fflush(out) ||
	    (fsync(fileno(out)) && errno != EINVAL))
		err = -errno;
	if (fclose(out) && !err)
		err = -errno;
	return err;
}

/* By way of a second file beside it, as a rename is all or nothing. */
static int replace(const char *path, const char *text, size_t bytes)
{
	char *beside;
	int err;

	if (asprintf(&beside, "%s.%d", path, (int)getpid()) < 0)
		return -ENOMEM;
	err = write_file(beside, text, bytes);
	if (!err && rename(beside, path))
		err = -errno;
	if (err)
		unlink(beside);
	free(beside);
	return err;
}

/* A pipe or a device is written as it is: renaming would put a file there. */
static bool is_special(const char *path)
{
	struct stat status;

	return !stat(path, &status) && !S_ISREG(status.st_mode);
}

int npu_expert_report_write(const struct npu_model *model, uint64_t tokens,
			    const char *path)
{
	size_t bytes;
	char *text = render(model, tokens, &bytes);
	int err;

	if (!text)
		return -ENOMEM;
	err = is_special(path) ? write_file(path, text, bytes) :
				 replace(path, text, bytes);
	free(text);
	return err;
}
