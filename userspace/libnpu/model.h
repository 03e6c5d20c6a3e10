/* SPDX-License-Identifier: MIT */
#ifndef NPU_MODEL_H
#define NPU_MODEL_H

#include <npu/npu.h>
#include "buffer.h"
#include "experts.h"
#include "job_format.h"
#include "layout.h"
#include "metadata.h"
#include "preload.h"
#include "span.h"
#include "tokenizer.h"

struct npu_model {
	struct npu_device *device;
	struct npu_file *file;		/* NULL once nothing more is read */
	struct npu_runtime runtime;
	struct npu_metadata metadata;
	struct npu_tokenizer *tokenizer;
	struct npu_preload preload;
	struct npu_layout layout;

	struct npu_pool *pool;
	bool own_pool;			/* the object is the model's */
	uint64_t pool_bytes;
	uint32_t windows;
	struct npu_span weights, scratch, kv, io;
	struct npu_buffer *commands;	/* sealed */
	struct npu_tile *tiles;
	uint32_t tile_count;
	struct npu_experts experts;
	uint64_t expert_bytes;
	bool calibrated;		/* the file says who is popular */

	/* Of the step that runs. */
	uint32_t syncobj;
	int eventfd;
	/* Positions of each slot that hold something. */
	uint32_t *filled;
	struct npu_kv_shape kv_shape;

	uint64_t load_ns;
};

/* Gives back all that npu_model_load() took of the device but the syncobj. */
void npu_model_release_memory(struct npu_model *model);
/* Checks tokens against the model, without side effects. */
int npu_model_check_step(const struct npu_model *model,
			 const struct npu_step_token *tokens, uint32_t count);
/* Remembers how far slots are filled after a step, good or not. */
void npu_model_note_step(struct npu_model *model,
			 const struct npu_step_token *tokens, uint32_t count,
			 bool good);

#endif
