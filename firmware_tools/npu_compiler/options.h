/* SPDX-License-Identifier: MIT */
#ifndef NPU_COMPILER_OPTIONS_H
#define NPU_COMPILER_OPTIONS_H

#include <npu/npu_format.h>

#include "model.h"

enum action {
	ACTION_COMPILE,
	ACTION_INSPECT,
	ACTION_VERIFY,
	ACTION_HELP,
	ACTION_VERSION,
};

struct options {
	enum action action;
	const char *input, *output;	/* input also of inspect, verify */
	const struct target *target;
	const char *name;		/* NULL: the folder's */
	enum quantization quant;
	const char *quant_name;
	enum npu_encoding encoding;
	uint32_t expert_cache;
	uint64_t chunk_bytes;
	uint32_t tiles[MODEL_MAX_TILES];
	size_t tile_count;
	uint32_t context;		/* 0: what the model is made for */
	enum expert_order order;
	uint32_t guesses;		/* or MODEL_DEFAULT_GUESSES */
	enum quantization fallback;	/* of experts' copies; fp16: none */
	const char *calibrate;		/* file of prompts, or NULL */
	uint32_t calibrate_tokens;
	const char *calibration;	/* report of use, or NULL */
	unsigned int threads;
	bool progress;			/* also when stderr is no terminal */
	bool json;
};

int options_parse(int argc, char **argv, struct options *options);
void options_help(void);

#endif
