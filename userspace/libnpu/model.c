// SPDX-License-Identifier: MIT
/*
 * A loaded model: what it is, and its end. loader.c makes one, step.c runs it.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xf86drm.h>

#include "chat.h"
#include "device.h"
#include "error.h"
#include "model.h"
#include "pool.h"

void npu_model_release_memory(struct npu_model *model)
{
	npu_experts_clear(&model->experts);
	npu_buffer_destroy(model->commands);
	model->commands = NULL;
	npu_span_clear(&model->io);
	npu_span_clear(&model->kv);
	npu_span_clear(&model->scratch);
	npu_span_clear(&model->weights);
	if (model->own_pool)
		npu_pool_destroy(model->pool);
	model->own_pool = false;
	model->pool = NULL;
}

void npu_model_free(struct npu_model *model)
{
	if (!model)
		return;
	npu_model_release_memory(model);
	if (model->syncobj)
		drmSyncobjDestroy(npu_device_fd(model->device),
				  model->syncobj);
	if (model->eventfd >= 0)
		close(model->eventfd);
	npu_preload_clear(&model->preload);
	npu_tokenizer_destroy(model->tokenizer);
	npu_metadata_clear(&model->metadata);
	npu_file_close(model->file);
	free(model->tiles);
	free(model->filled);
	free(model);
}

void npu_model_info(const struct npu_model *model, struct npu_model_info *info)
{
	const struct npu_expert_figures *f = &model->experts.figures;
	const struct npu_runtime *r = &model->runtime;

	*info = (struct npu_model_info){
		.name = model->metadata.name,
		.architecture = model->metadata.architecture,
		.quantization = model->metadata.quantization,
		.vocab = r->vocab,
		.hidden = r->hidden,
		.context_length = r->context_length,
		.slots = model->layout.slots,
		.max_seq = model->layout.max_seq,
		.max_tile = r->max_tile,
		.max_out = r->max_out,
		.expert_layers = r->expert_layers,
		.experts = r->experts,
		.experts_per_token = r->experts_per_token,
		.experts_resident = atomic_load(&f->resident),
		.static_bytes = r->weights_bytes,
		.expert_bytes_total = model->expert_bytes,
		.kv_bytes = model->layout.kv,
		.pool_bytes = model->pool_bytes,
		.eos_count = model->metadata.eos_count,
		.load_ns = model->load_ns,
		.pool_id = model->pool->id,
		.windows = model->windows,
		.expert_places = model->layout.places,
		.expert_span_bytes = model->layout.experts,
		.expert_faults = atomic_load(&f->faults),
		.expert_waits = atomic_load(&f->waits),
		.expert_loads = atomic_load(&f->loads),
		.expert_evictions = atomic_load(&f->evictions),
		.expert_bytes_read = atomic_load(&f->bytes_read),
		.expert_stall_ns = atomic_load(&f->stall_ns),
		.expert_uses = atomic_load(&f->uses),
		.expert_hits = atomic_load(&f->hits),
		.expert_hints = atomic_load(&f->hints),
		.expert_prefetches = atomic_load(&f->prefetches),
		.expert_prefetches_used = atomic_load(&f->prefetches_used),
		.expert_fallbacks = atomic_load(&f->fallbacks),
		.prefetch_permille = r->guesses ? atomic_load(&f->threshold) :
						  NPU_PREFETCH_OFF,
		.has_guesses = r->guesses,
		.has_low_experts = r->low_expert_bytes,
		.has_calibration = model->calibrated,
	};
	memcpy(info->eos_tokens, model->metadata.eos,
	       sizeof(info->eos_tokens));
}

size_t npu_model_expert_use(const struct npu_model *model, uint64_t *uses,
			    size_t max)
{
	const struct npu_experts *e = &model->experts;
	size_t i, n = (size_t)e->layers * e->experts;

	for (i = 0; i < n && i < max; i++)
		uses[i] = atomic_load(&e->list[i].uses);
	return n;
}

const struct npu_tokenizer *npu_model_tokenizer(const struct npu_model *model)
{
	return model->tokenizer;
}

int npu_chat_tokenize(const struct npu_model *model,
		      const struct npu_chat_message *messages, size_t count,
		      int32_t *tokens, size_t max)
{
	struct npu_ids ids = { 0 };
	int ret;

	ret = npu_chat_render(&model->metadata, model->tokenizer, messages,
			      count, &ids);
	if (!ret && max && ids.count)
		memcpy(tokens, ids.ids, (max < ids.count ? max : ids.count) *
		       sizeof(*tokens));
	if (!ret)
		ret = ids.count > INT_MAX ? INT_MAX : (int)ids.count;
	free(ids.ids);
	return ret;
}
