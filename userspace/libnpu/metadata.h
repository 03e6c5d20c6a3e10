/* SPDX-License-Identifier: MIT */
#ifndef NPU_METADATA_H
#define NPU_METADATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NPU_MAX_EOS	8

enum npu_role {
	NPU_ROLE_SYSTEM,
	NPU_ROLE_USER,
	NPU_ROLE_ASSISTANT,
	NPU_ROLE_COUNT,
};

/* What stands around a message's content. */
struct npu_role_frame {
	char *prefix, *suffix;	/* NULL: the model has no such role */
};

struct npu_chat_format {
	bool present;
	char *name;
	struct npu_role_frame roles[NPU_ROLE_COUNT];
	char *generation;	/* opens the answer */
	bool bos;
	char *default_system;	/* NULL: none */
};

/* The METADATA section, as far as running a model needs it. */
struct npu_metadata {
	char *name, *architecture, *quantization;
	uint32_t context_length;	/* 0: not given */
	int32_t bos, pad;		/* -1: none */
	bool add_bos;			/* a text begins with it, for sure */
	int32_t eos[NPU_MAX_EOS];
	uint32_t eos_count;
	struct npu_chat_format chat;
};

extern const char *const npu_role_names[NPU_ROLE_COUNT];

/* -EBADMSG: not what the format says. Keys it does not know are skipped. */
int npu_metadata_parse(struct npu_metadata *metadata, const char *json,
		       size_t length);
void npu_metadata_clear(struct npu_metadata *metadata);

#endif
