// SPDX-License-Identifier: MIT
/*
 * Reading of experts into their places, by the threads of shards.c. A place is
 * read into by one of them at a time, and nobody else has it meanwhile.
 */
#include "error.h"
#include "experts_priv.h"

void npu_experts_read(struct npu_experts *e, uint32_t k, bool urgent)
{
	struct npu_read *read = &e->reads[e->places.uses[k].place];
	uint32_t section = npu_experts_section(e, k);

	e->places.uses[k].coming = true;
	read->expert = k;
	read->shard.section = section;
	read->shard.dst = e->span.cpu + npu_experts_offset(e, k);
	read->shard.cap = npu_file_section(e->file, section)->loaded_bytes;
	npu_shards_ask(e->shards, &read->shard, urgent);
}

int npu_experts_read_done(struct npu_experts *e, uint32_t k)
{
	struct npu_shard *shard = &e->reads[e->places.uses[k].place].shard;
	const struct npu_section *s =
		npu_file_section(e->file, shard->section);

	if (shard->error)
		return shard->error;
	atomic_fetch_add(&e->figures.loads, 1);
	atomic_fetch_add(&e->figures.bytes_read, s->stored_bytes);
	return npu_span_sync_to_device(&e->span, npu_experts_offset(e, k),
				       s->loaded_bytes);
}

static int await_once(struct npu_experts *e, uint32_t k, bool say)
{
	struct npu_shard *shard = &e->reads[e->places.uses[k].place].shard;
	int ret;

	npu_shards_await(e->shards, shard);
	ret = npu_experts_read_done(e, k);
	if (shard->error && say)
		npu_shard_fail(shard);
	npu_shard_clear(shard);
	return ret;
}

/* What failed for one that was only guessed may be good for one that is needed. */
int npu_experts_await(struct npu_experts *e, uint32_t k, bool say)
{
	int ret;

	ret = await_once(e, k, say);
	if (ret && e->list[k].ahead) {
		e->list[k].ahead = 0;
		npu_experts_read(e, k, true);
		ret = await_once(e, k, say);
	}
	if (ret)
		npu_places_give(&e->places, k);
	else
		npu_experts_add_present(e, k);
	return ret;
}

/* Of those that are read ahead, and that the command that waits does not need. */
bool npu_experts_reclaim(struct npu_experts *e)
{
	const struct npu_places *p = &e->places;
	uint32_t place, k;

	for (place = 0; place < p->count; place++) {
		struct npu_shard *shard = &e->reads[place].shard;

		k = p->holders[place];
		if (k == NPU_NOWHERE || !p->uses[k].coming ||
		    p->uses[k].waiter == p->waiter)
			continue;
		if (!npu_shards_drop(e->shards, shard)) {
			npu_shards_await(e->shards, shard);
			npu_shard_clear(shard);
		}
		e->list[k].ahead = 0;
		npu_places_give(&e->places, k);
		return true;
	}
	return false;
}

/* ---- What nobody waits for ---- */

void npu_experts_pass(struct npu_experts *e, uint32_t layer)
{
	const struct npu_places *p = &e->places;
	uint32_t place, k;

	for (place = 0; e->shards && place < p->count; place++) {
		k = p->holders[place];
		if (k == NPU_NOWHERE || k / e->experts >= layer ||
		    !p->uses[k].coming || !e->list[k].ahead ||
		    !npu_shards_drop(e->shards, &e->reads[place].shard))
			continue;
		e->list[k].ahead = 0;
		npu_places_give(&e->places, k);
	}
}

int npu_experts_fd(const struct npu_experts *e)
{
	return e->shards ? npu_shards_fd(e->shards) : -1;
}

/* An error is nobody's: who needs the expert reads it again. */
static void arrived(struct npu_experts *e, uint32_t k, struct npu_shard *shard)
{
	int ret = npu_experts_read_done(e, k);

	npu_shard_clear(shard);
	if (ret) {
		e->list[k].ahead = 0;
		npu_places_give(&e->places, k);
	} else if (e->list[k].low) {
		e->ripe[e->ripe_count++] = k;
	} else {
		npu_experts_add_present(e, k);
	}
}

void npu_experts_arrived(struct npu_experts *e)
{
	struct npu_shard *shard;

	if (!e->shards)
		return;
	while ((shard = npu_shards_next(e->shards))) {
		arrived(e, ((struct npu_read *)shard)->expert, shard);
		if (e->bind_count == DRM_M6NPU_MAX_BINDS)
			npu_experts_bind(e, "cannot bind experts");
	}
	npu_experts_bind(e, "cannot bind experts");
}
