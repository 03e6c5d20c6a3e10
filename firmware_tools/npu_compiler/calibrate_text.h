/* SPDX-License-Identifier: MIT */
/* Prompts as the tokens that a server would make of them. */
#ifndef NPU_COMPILER_CALIBRATE_TEXT_H
#define NPU_COMPILER_CALIBRATE_TEXT_H

#include "bpe.h"
#include "npu_file.h"
#include "util.h"

struct prompt_text;

/* NULL: failed. */
struct prompt_text *prompt_text_open(struct npu_file *file);
/* Takes NULL. */
void prompt_text_close(struct prompt_text *text);

/*
 * A question of the user's in the model's chat format, plain text if it has
 * none. Appends to @ids.
 */
int prompt_text_encode(const struct prompt_text *text, const char *prompt,
		       struct npu_ids *ids);
bool prompt_text_ends(const struct prompt_text *text, int32_t token);

#endif
