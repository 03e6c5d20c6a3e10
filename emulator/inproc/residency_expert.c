// SPDX-License-Identifier: MIT
#include "residency_priv.h"

static bool is_low(const struct residency *r, uint32_t k)
{
	return r->options.low_every && k % r->options.low_every == 0;
}

static uint32_t section_of(const struct residency *r, uint32_t k)
{
	uint32_t layer = k / r->runtime->experts;
	uint32_t expert = k % r->runtime->experts;

	return is_low(r, k) ? npu_file_expert_low(r->file, layer, expert) :
			      npu_file_expert(r->file, layer, expert);
}

static uint64_t offset_of(const struct residency *r, uint32_t k)
{
	return r->places.uses[k].place * r->place_bytes;
}

int residency_fill(struct residency *r, uint32_t k)
{
	uint32_t index = section_of(r, k);
	uint64_t offset = offset_of(r, k);
	int ret;

	if (r->dry)
		return 0;
	ret = npu_file_read_section(r->file, index, r->memory.host + offset,
				    r->place_bytes);
	if (!ret)
		board_push(r->board, &r->memory, offset,
			   npu_file_section(r->file, index)->loaded_bytes);
	return ret;
}

void residency_bind(struct residency *r, uint32_t k)
{
	const struct npu_section *section;
	const uint16_t *permille = r->options.permille;
	struct m6npu_expert entry;

	section = npu_file_section(r->file, section_of(r, k));
	entry = (struct m6npu_expert){
		.addr = r->memory.addr + offset_of(r, k),
		.size = section->loaded_bytes,
		.flags = r->places.uses[k].pinned ? M6NPU_EXPERT_PINNED :
						    M6NPU_EXPERT_RESIDENT,
		.type = is_low(r, k) ? section->format : 0,
		.priority = permille ? permille[k] : RESIDENCY_PERMILLE,
	};
	r->places.uses[k].coming = false;
	board_expert_set(r->board, k / r->runtime->experts,
			 k % r->runtime->experts, &entry);
}

void residency_unbind(struct residency *r, uint32_t k)
{
	board_expert_drop(r->board, k / r->runtime->experts,
			  k % r->runtime->experts);
	r->ahead[k] = 0;
	r->stats.evictions++;
}

struct storage_read residency_read(const struct residency *r, uint32_t k,
				   uint64_t ns)
{
	const struct npu_section *section;

	section = npu_file_section(r->file, section_of(r, k));
	return (struct storage_read){
		.expert = k,
		/* Dry, how well it was compressed says nothing. */
		.bytes = r->dry ? section->loaded_bytes :
				  section->stored_bytes,
		.time_ns = ns,
	};
}
