/* SPDX-License-Identifier: MIT */
#ifndef NPU_COMPILER_METADATA_H
#define NPU_COMPILER_METADATA_H

#include "model.h"
#include "options.h"
#include "tokenizer_config.h"

/* The METADATA section, for free(). NULL: failed. */
char *metadata_write(const struct model *model, const struct options *options,
		     const char *name, const struct tokenizer_config *tokens,
		     const struct json_file *config, size_t *bytes);

#endif
