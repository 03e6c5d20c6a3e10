// SPDX-License-Identifier: MIT
#include "tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "m6npu_regs.h"

void tensor_set_add(struct tensor_set *set, const struct tensor *tensor)
{
	if (set->count == set->room) {
		set->room = set->room ? set->room * 2 : 256;
		set->tensors = xrealloc(set->tensors, set->room,
					sizeof(*set->tensors));
	}
	set->tensors[set->count++] = *tensor;
}

void tensor_set_keep(struct tensor_set *set, void *address, size_t bytes)
{
	set->mappings = xrealloc(set->mappings, set->mapping_count + 1,
				 sizeof(*set->mappings));
	set->mappings[set->mapping_count].address = address;
	set->mappings[set->mapping_count].bytes = bytes;
	set->mapping_count++;
}

static int compare_tensors(const void *a, const void *b)
{
	const struct tensor *first = a, *second = b;

	return strcmp(first->name, second->name);
}

int tensor_set_complete(struct tensor_set *set)
{
	size_t i;

	qsort(set->tensors, set->count, sizeof(*set->tensors),
	      compare_tensors);
	for (i = 1; i < set->count; i++)
		if (!strcmp(set->tensors[i - 1].name, set->tensors[i].name))
			return fail("tensor %s is there twice: remove the stale file from the folder",
				    set->tensors[i].name);
	return 0;
}

void tensor_set_free(struct tensor_set *set)
{
	size_t i;

	for (i = 0; i < set->count; i++)
		free(set->tensors[i].name);
	for (i = 0; i < set->mapping_count; i++)
		munmap(set->mappings[i].address, set->mappings[i].bytes);
	free(set->tensors);
	free(set->mappings);
	memset(set, 0, sizeof(*set));
}

struct tensor *tensor_find(const struct tensor_set *set, const char *name)
{
	struct tensor key = { .name = (char *)name };

	if (!set->count)
		return NULL;
	return bsearch(&key, set->tensors, set->count, sizeof(*set->tensors),
		       compare_tensors);
}

/* A vector is one row; a matrix of one row may be stored as a vector. */
static bool shape_matches(const struct tensor *tensor, uint64_t rows,
			  uint64_t cols)
{
	if (tensor->dims == 1)
		return rows == 1 && tensor->shape[0] == cols;
	return tensor->dims == 2 && tensor->shape[0] == rows &&
	       tensor->shape[1] == cols;
}

static void describe_shape(const struct tensor *tensor, char *text,
			   size_t bytes)
{
	size_t at = 0;
	int i;

	text[0] = 0;
	for (i = 0; i < tensor->dims && at < bytes; i++)
		at += snprintf(text + at, bytes - at, "%s%llu", i ? "x" : "",
			       (unsigned long long)tensor->shape[i]);
}

const struct tensor *tensor_take(struct tensor_set *set, const char *name,
				 uint64_t rows, uint64_t cols)
{
	struct tensor *tensor = tensor_find(set, name);
	char shape[96];

	if (!tensor) {
		fail("tensor %s is missing: the folder is incomplete, or of another architecture than its config.json says",
		     name);
		return NULL;
	}
	if (tensor->type == M6NPU_TYPE_COUNT) {
		fail("tensor %s is %s: only F32, F16 and BF16 weights can be read; use the unquantized model",
		     name, tensor->dtype);
		return NULL;
	}
	if (!shape_matches(tensor, rows, cols)) {
		describe_shape(tensor, shape, sizeof(shape));
		fail("tensor %s is %s where config.json means %llux%llu: the two files do not belong together",
		     name, shape, (unsigned long long)rows,
		     (unsigned long long)cols);
		return NULL;
	}
	tensor->used = true;
	return tensor;
}
