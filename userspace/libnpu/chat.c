// SPDX-License-Identifier: MIT
/*
 * Conversations in a model's chat format.
 *
 * What the format says may hold special tokens; what people say is plain text,
 * so that nobody ends their turn, or speaks for another role, by writing
 * "<|im_end|>".
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "chat.h"
#include "error.h"

struct parts {
	struct npu_text_part *parts;
	size_t count;
};

static void add(struct parts *p, const char *text, bool special)
{
	p->parts[p->count++] = (struct npu_text_part){
		.text = text,
		.length = strlen(text),
		.special = special,
	};
}

static void add_message(struct parts *p, const struct npu_role_frame *frame,
			const char *content)
{
	add(p, frame->prefix, true);
	add(p, content, false);
	add(p, frame->suffix, true);
}

static int find_role(const struct npu_chat_format *chat, const char *name)
{
	unsigned int i;

	for (i = 0; i < NPU_ROLE_COUNT; i++)
		if (name && !strcmp(name, npu_role_names[i]) &&
		    chat->roles[i].prefix)
			return (int)i;
	return npu_fail(-EINVAL,
			"the model's chat format has no role \"%s\"; use \"user\", \"assistant\"%s",
			name ? name : "",
			chat->roles[NPU_ROLE_SYSTEM].prefix ? ", \"system\"" :
							      "");
}

static int add_messages(struct parts *p, const struct npu_chat_format *chat,
			const struct npu_chat_message *messages, size_t count)
{
	size_t i;
	int role;

	for (i = 0; i < count; i++) {
		role = find_role(chat, messages[i].role);
		if (role < 0)
			return role;
		if (!messages[i].content)
			return npu_fail(-EINVAL, "message %zu has no content",
					i);
		if (i == 0 && role != NPU_ROLE_SYSTEM && chat->default_system)
			add_message(p, &chat->roles[NPU_ROLE_SYSTEM],
				    chat->default_system);
		add_message(p, &chat->roles[role], messages[i].content);
	}
	add(p, chat->generation, true);
	return 0;
}

int npu_chat_render(const struct npu_metadata *metadata,
		    const struct npu_tokenizer *tokenizer,
		    const struct npu_chat_message *messages, size_t count,
		    struct npu_ids *out)
{
	const struct npu_chat_format *chat = &metadata->chat;
	struct parts p = { 0 };
	int ret = 0;

	if (!chat->present)
		return npu_fail(-ENOTSUP,
				"the model has no chat format; give it plain text");
	if (!count)
		return npu_fail(-EINVAL, "a conversation needs a message");
	/* Three a message, the default system message, the generation. */
	p.parts = calloc(count + 2, 3 * sizeof(*p.parts));
	if (!p.parts)
		return npu_fail_memory();
	if (chat->bos)
		ret = npu_ids_add(out, metadata->bos);
	if (!ret)
		ret = add_messages(&p, chat, messages, count);
	if (!ret)
		ret = npu_tokenize_parts(tokenizer, p.parts, p.count, out);
	free(p.parts);
	return ret;
}
