/* SPDX-License-Identifier: MIT */
/* A matrix or vector as the device will hold it, and how it is made. */
#ifndef NPU_COMPILER_WEIGHT_H
#define NPU_COMPILER_WEIGHT_H

#include "tensors.h"

#define WEIGHT_MAX_PARTS	3
#define WEIGHT_ALIGN		64

/* Each smaller than the one before. */
enum quantization {
	QUANT_FP16,
	QUANT_INT8,
	QUANT_INT4,
};

/* What a weight is for decides how precisely it is kept. */
enum weight_role {
	ROLE_MATRIX,
	ROLE_EMBEDDING,		/* and the head: at least 8 bits */
	ROLE_EXACT,		/* norms, biases, routers: F32 */
};

/* Rows of its parts, one below the other; or @values as they are, its own. */
struct weight {
	const char *class_name;	/* "attention.qkv", for people */
	const struct tensor *part[WEIGHT_MAX_PARTS];
	unsigned int parts;
	void *values;
	uint8_t type;		/* M6NPU_TYPE_* */
	uint64_t rows, cols;
	uint64_t offset;	/* in its region, or in its expert */
	uint64_t bytes;
};

/* The type of a weight; a row that is no multiple of a block stays F16. */
uint8_t weight_type(enum quantization quant, enum weight_role role,
		    uint64_t cols);
uint64_t weight_row_bytes(uint8_t type, uint64_t cols);
/* Is it a type of weights, and does a row make whole blocks of it? */
bool weight_row_is_whole(uint8_t type, uint64_t cols);
const char *weight_type_name(uint8_t type);

/* Takes what weight_write() makes, in order. */
struct weight_sink {
	int (*put)(void *context, const void *data, uint64_t bytes);
	void *context;
};

/* Converts and quantizes with @threads threads. Same bytes for any number. */
int weight_write(const struct weight *weight, unsigned int threads,
		 const struct weight_sink *sink);

#endif
