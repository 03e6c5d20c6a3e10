// SPDX-License-Identifier: MIT
/*
 * Copies of experts in fewer bits, all of which are in memory. When a job misses
 * an expert its copy is bound at once and the job goes on, while the expert
 * itself is read. To bind that in the copy's stead is a move, for which the
 * driver waits for jobs: so it is done between steps, or while a job waits.
 */
#include <stdlib.h>

#include "error.h"
#include "experts_priv.h"

int npu_experts_init_low(struct npu_experts *e, struct npu_pool *pool,
			 const struct npu_layout *layout)
{
	uint64_t bytes;
	int ret;

	if (!layout->low)
		return 0;
	e->low_offsets = npu_layout_experts(e->file, NPU_SECTION_EXPERT_LOW,
					    &bytes);
	e->ripe = calloc(layout->places, sizeof(*e->ripe));
	if (!e->low_offsets || !e->ripe)
		return npu_fail_memory();
	ret = npu_span_init(&e->low, pool, layout->low, layout->chunk,
			    NPU_BUFFER_READONLY, false);
	return ret ? ret : npu_span_populate(&e->low, 0, layout->low);
}

static int one_loaded(void *user, struct npu_shard *shard)
{
	struct npu_experts *e = user;

	if (shard->error)
		return npu_shard_fail(shard);
	return npu_span_sync_to_device(&e->low,
				       (uint64_t)((char *)shard->dst -
						  e->low.cpu),
				       shard->cap);
}

int npu_experts_load_low(struct npu_experts *e)
{
	uint32_t k, n = npu_experts_total(e);
	struct npu_shard *list;
	int ret;

	if (!e->low.size)
		return 0;
	list = calloc(n, sizeof(*list));
	if (!list)
		return npu_fail_memory();
	for (k = 0; k < n; k++) {
		uint32_t i = npu_file_expert_low(e->file, k / e->experts,
						 k % e->experts);

		list[k].section = i;
		list[k].dst = e->low.cpu + e->low_offsets[k];
		list[k].cap = npu_file_section(e->file, i)->loaded_bytes;
	}
	ret = npu_shards_read(e->shards, list, n, one_loaded, e);
	npu_span_unmap(&e->low);
	free(list);
	return ret;
}

void npu_experts_clear_low(struct npu_experts *e)
{
	npu_span_clear(&e->low);
	free(e->low_offsets);
	free(e->ripe);
}

void npu_experts_ripen(struct npu_experts *e)
{
	uint32_t n;

	for (n = 0; n < e->ripe_count; n++) {
		npu_experts_add_present(e, e->ripe[n]);
		if (e->bind_count == DRM_M6NPU_MAX_BINDS)
			npu_experts_bind(e, "cannot bind experts");
	}
	e->ripe_count = 0;
	npu_experts_bind(e, "cannot bind experts");
}

/* So that it is told when they are missed again, and they are read. */
void npu_experts_drop_low(struct npu_experts *e)
{
	uint32_t k;

	for (k = 0; e->low.size && k < npu_experts_total(e); k++) {
		if (!e->list[k].low || e->places.uses[k].coming)
			continue;
		e->list[k].low = false;
		npu_experts_add_absent(e, k);
		if (e->bind_count == DRM_M6NPU_MAX_BINDS)
			npu_experts_bind(e, "cannot unbind experts");
	}
	npu_experts_bind(e, "cannot unbind experts");
}

int npu_experts_stand_in(struct npu_experts *e)
{
	const struct npu_use *uses = e->places.uses;
	uint32_t n, k;
	int ret;

	for (n = 0; n < e->count; n++) {
		k = e->coming[n];
		npu_experts_add_low(e, k);
		if (uses[k].place != NPU_NOWHERE && !uses[k].coming)
			npu_experts_read(e, k, true);
	}
	ret = npu_experts_bind(e, "cannot bind experts");
	for (n = 0; n < e->count && !ret; n++)
		e->list[e->coming[n]].low = true;
	if (!ret)
		atomic_fetch_add(&e->figures.fallbacks, e->count);
	return ret;
}
