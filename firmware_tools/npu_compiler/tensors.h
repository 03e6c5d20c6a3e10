/* SPDX-License-Identifier: MIT */
/* A model's tensors as its files have them, by name. */
#ifndef NPU_COMPILER_TENSORS_H
#define NPU_COMPILER_TENSORS_H

#include "util.h"

#define TENSOR_MAX_DIMS		4

struct tensor {
	char *name;
	const char *dtype;	/* as the file calls it */
	uint8_t type;		/* M6NPU_TYPE_*, _COUNT: none of them */
	uint8_t dims;
	bool used;		/* some part of the model is made of it */
	uint64_t shape[TENSOR_MAX_DIMS];
	const void *data;	/* no alignment promised */
	uint64_t bytes;
};

struct tensor_mapping {
	void *address;
	size_t bytes;
};

struct tensor_set {
	struct tensor *tensors;	/* sorted by name once complete */
	size_t count, room;
	struct tensor_mapping *mappings;
	size_t mapping_count;
};

/* Takes over @tensor->name. */
void tensor_set_add(struct tensor_set *set, const struct tensor *tensor);
/* Keeps [@address, +@bytes) mapped as long as the set lives. */
void tensor_set_keep(struct tensor_set *set, void *address, size_t bytes);
/* All are in: sorts, and refuses a name that comes twice. */
int tensor_set_complete(struct tensor_set *set);
void tensor_set_free(struct tensor_set *set);

struct tensor *tensor_find(const struct tensor_set *set, const char *name);
/* The tensor of that name and shape, marked used; fails if there is none. */
const struct tensor *tensor_take(struct tensor_set *set, const char *name,
				 uint64_t rows, uint64_t cols);

#endif
