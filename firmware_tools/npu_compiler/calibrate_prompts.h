/* SPDX-License-Identifier: MIT */
/* A file of prompts, one a line. */
#ifndef NPU_COMPILER_CALIBRATE_PROMPTS_H
#define NPU_COMPILER_CALIBRATE_PROMPTS_H

#include "util.h"

struct prompt {
	const char *text;	/* NUL-terminated, valid UTF-8 */
	unsigned int line;
};

struct prompts {
	char *data;
	struct prompt *list;
	size_t count;
};

/* Lines of white space are left out; there is at least one prompt. */
int prompts_read(const char *path, struct prompts *prompts);
void prompts_free(struct prompts *prompts);

#endif
