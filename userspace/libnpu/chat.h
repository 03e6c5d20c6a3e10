/* SPDX-License-Identifier: MIT */
#ifndef NPU_CHAT_H
#define NPU_CHAT_H

#include <npu/npu.h>
#include "bpe.h"
#include "metadata.h"
#include "tokenizer.h"

/*
 * Appends the tokens of a conversation, up to where the answer begins.
 * -ENOTSUP: no chat format, -EINVAL: a role it does not know.
 */
int npu_chat_render(const struct npu_metadata *metadata,
		    const struct npu_tokenizer *tokenizer,
		    const struct npu_chat_message *messages, size_t count,
		    struct npu_ids *out);

#endif
