// SPDX-License-Identifier: MIT
/*
 * What makes the header of a .npu file valid. Works on a copy, so what was
 * checked is what is used.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "error.h"
#include "npu_file_priv.h"

/* Bounds that keep sums of products far from 2^64. */
#define MAX_REGION_BYTES	(1ull << 38)	/* a device address has 38 bits */
#define MAX_DIMENSION		(1u << 24)

static bool all_zero(const void *data, size_t size)
{
	const uint8_t *p = data;

	while (size--)
		if (*p++)
			return false;
	return true;
}

bool npu_file_within(uint64_t offset, uint64_t size, uint64_t total)
{
	return offset <= total && size <= total - offset;
}

static int check_identity(struct npu_file *file, const uint8_t *page)
{
	const struct npu_file_header *h = &file->header;
	XXH64_hash_t hash;
	uint8_t *copy;

	if (memcmp(h->magic, NPU_FILE_MAGIC, sizeof(h->magic)))
		return npu_file_refuse(file, "not a .npu file: wrong magic");
	if (h->version_major != NPU_FILE_MAJOR ||
	    h->version_minor > NPU_FILE_MINOR)
		return npu_file_refuse(file,
				       "format version %u.%u, this libnpu reads %u.%u; compile the model again or update libnpu",
				       h->version_major, h->version_minor,
				       NPU_FILE_MAJOR, NPU_FILE_MINOR);
	if (h->header_bytes != NPU_FILE_ALIGN)
		return npu_file_refuse(file, "header: %" PRIu32 " bytes, not %u",
				       h->header_bytes, NPU_FILE_ALIGN);
	copy = malloc(NPU_FILE_ALIGN);
	if (!copy)
		return npu_fail_memory();
	memcpy(copy, page, NPU_FILE_ALIGN);
	memset(copy + offsetof(struct npu_file_header, header_xxh3), 0,
	       sizeof(h->header_xxh3));
	hash = XXH3_64bits(copy, NPU_FILE_ALIGN);
	free(copy);
	if (hash != h->header_xxh3)
		return npu_file_refuse(file,
				       "header: altered (hash does not match)");
	if (!all_zero(page + sizeof(*h), NPU_FILE_ALIGN - sizeof(*h)))
		return npu_file_refuse(file,
				       "header: reserved bytes are not zero");
	return 0;
}

static int check_place(struct npu_file *file, uint64_t file_bytes)
{
	const struct npu_file_header *h = &file->header;
	size_t n = strnlen(h->target, sizeof(h->target));

	if (h->file_bytes > file_bytes)
		return npu_file_refuse(file,
				       "truncated: %" PRIu64 " of %" PRIu64 " bytes are there; copy the file again",
				       file_bytes, h->file_bytes);
	if (h->file_bytes < file_bytes)
		return npu_file_refuse(file,
				       "%" PRIu64 " bytes behind the end; copy the file again",
				       file_bytes - h->file_bytes);
	if (n == 0 || n == sizeof(h->target) ||
	    !all_zero(h->target + n, sizeof(h->target) - n))
		return npu_file_refuse(file, "header: target is not a name");
	if (h->section_bytes != sizeof(struct npu_section))
		return npu_file_refuse(file,
				       "header: section entries of %" PRIu32 " bytes, not %zu",
				       h->section_bytes,
				       sizeof(struct npu_section));
	if (!h->section_count || h->section_count > NPU_FILE_MAX_SECTIONS)
		return npu_file_refuse(file, "header: %" PRIu32 " sections",
				       h->section_count);
	if (h->table_offset < NPU_FILE_ALIGN ||
	    h->table_offset % NPU_FILE_ALIGN ||
	    !npu_file_within(h->table_offset,
		    (uint64_t)h->section_count * sizeof(struct npu_section),
		    h->file_bytes))
		return npu_file_refuse(file,
				       "header: section table at %#" PRIx64 " is not inside the file",
				       h->table_offset);
	return 0;
}

/* A result or block in the IO region. */
static int check_io(struct npu_file *file, const char *what, uint64_t offset,
		    uint64_t rows, uint64_t row_bytes)
{
	uint64_t total = file->header.runtime.io_bytes;

	if (offset % 8 || !npu_file_within(offset, rows * row_bytes, total))
		return npu_file_refuse(file,
				       "header: %s at %#" PRIx64 " is not inside the IO region of %" PRIu64 " bytes",
				       what, offset, total);
	return 0;
}

/* What is kept of each token by each layer with experts, if anything is. */
static int check_choices(struct npu_file *file, const char *what,
			 uint64_t offset, uint32_t width)
{
	const struct npu_runtime *r = &file->header.runtime;
	uint64_t rows = (uint64_t)r->expert_layers * r->max_tile;

	if (!rows || !width)
		return offset ? npu_file_refuse(file,
						"header: %s at %#" PRIx64 ", and there are none",
						what, offset) : 0;
	if (!offset)
		return npu_file_refuse(file, "header: %s have no place", what);
	return check_io(file, what, offset, rows, 4ull * width);
}

static int check_choice_layout(struct npu_file *file)
{
	const struct npu_runtime *r = &file->header.runtime;
	int ret;

	ret = check_choices(file, "routed ids", r->routed_offset,
			    r->experts_per_token);
	if (!ret)
		ret = check_choices(file, "guessed ids", r->guess_ids_offset,
				    r->guesses);
	if (!ret)
		ret = check_choices(file, "chances of guesses",
				    r->guess_chances_offset, r->guesses);
	return ret;
}

static int check_io_layout(struct npu_file *file)
{
	const struct npu_runtime *r = &file->header.runtime;
	int ret;

	/* The step block's own size is checked by who writes it. */
	ret = check_io(file, "step block", r->step_offset, 1, 32);
	if (!ret)
		ret = check_io(file, "logits", r->logits_offset, r->max_out,
			       4ull * r->vocab);
	if (!ret)
		ret = check_io(file, "hidden", r->hidden_offset, r->max_out,
			       4ull * r->hidden);
	if (!ret)
		ret = check_io(file, "top-k ids", r->topk_ids_offset,
			       r->max_out, 4ull * r->topk);
	if (!ret)
		ret = check_io(file, "top-k values", r->topk_values_offset,
			       r->max_out, 4ull * r->topk);
	if (!ret)
		ret = check_io(file, "time stamps", r->time_offset, 2, 16);
	return ret;
}

static int check_dimension(struct npu_file *file, const char *what,
			   uint32_t value, uint32_t max)
{
	if (value >= 1 && value <= max)
		return 0;
	return npu_file_refuse(file,
			       "header: %s is %" PRIu32 ", not 1 to %" PRIu32,
			       what, value, max);
}

static int check_dimensions(struct npu_file *file)
{
	const struct npu_runtime *r = &file->header.runtime;
	int ret;

	ret = check_dimension(file, "max_tile", r->max_tile, 1u << 16);
	if (!ret)
		ret = check_dimension(file, "max_out", r->max_out,
				      r->max_tile);
	if (!ret)
		ret = check_dimension(file, "vocab", r->vocab, MAX_DIMENSION);
	if (!ret)
		ret = check_dimension(file, "topk", r->topk, r->vocab);
	if (!ret)
		ret = check_dimension(file, "hidden", r->hidden,
				      MAX_DIMENSION);
	if (!ret)
		ret = check_dimension(file, "kv_layers", r->kv_layers, 4096);
	if (!ret)
		ret = check_dimension(file, "kv_heads", r->kv_heads, 4096);
	if (!ret)
		ret = check_dimension(file, "head_dim", r->head_dim, 4096);
	if (!ret)
		ret = check_dimension(file, "context_length",
				      r->context_length, MAX_DIMENSION);
	return ret;
}

static int check_expert_dimensions(struct npu_file *file)
{
	const struct npu_runtime *r = &file->header.runtime;
	int ret;

	if (!r->expert_layers) {
		if (r->experts || r->experts_per_token || r->expert_bytes ||
		    r->router_entries || r->guesses || r->low_expert_bytes)
			return npu_file_refuse(file,
					       "header: experts without expert layers");
		return 0;
	}
	ret = check_dimension(file, "expert_layers", r->expert_layers, 65536);
	if (!ret)
		ret = check_dimension(file, "experts", r->experts, 65536);
	if (!ret)
		ret = check_dimension(file, "experts_per_token",
				      r->experts_per_token, r->experts);
	if (ret)
		return ret;
	if ((uint64_t)r->expert_layers * r->experts > NPU_FILE_MAX_SECTIONS)
		return npu_file_refuse(file,
				       "header: more experts than sections");
	if (!r->expert_bytes || r->expert_bytes > UINT32_MAX)
		return npu_file_refuse(file,
				       "header: experts of %" PRIu64 " bytes",
				       r->expert_bytes);
	if (r->guesses > r->experts)
		return npu_file_refuse(file,
				       "header: guesses of %" PRIu32 " of %" PRIu32 " experts",
				       r->guesses, r->experts);
	if (r->low_expert_bytes > UINT32_MAX ||
	    r->low_expert_bytes > r->chunk_bytes)
		return npu_file_refuse(file,
				       "header: low copies of experts of %" PRIu64 " bytes",
				       r->low_expert_bytes);
	return 0;
}

/* Version 1.0 ends here: what was reserved then is still zero. */
static int check_old_runtime(struct npu_file *file)
{
	const struct npu_runtime *r = &file->header.runtime;

	if (r->guesses || r->routed_offset || r->guess_ids_offset ||
	    r->guess_chances_offset || r->low_expert_bytes)
		return npu_file_refuse(file,
				       "header: fields that are reserved in version 1.0 are not zero");
	return 0;
}

static int check_runtime(struct npu_file *file)
{
	const struct npu_runtime *r = &file->header.runtime;
	int ret;

	if (!all_zero(r->reserved, sizeof(r->reserved)))
		return npu_file_refuse(file,
				       "header: reserved fields are not zero");
	if (!r->weights_bytes || r->weights_bytes > MAX_REGION_BYTES ||
	    !r->scratch_bytes || r->scratch_bytes > MAX_REGION_BYTES ||
	    !r->io_bytes || r->io_bytes > MAX_REGION_BYTES)
		return npu_file_refuse(file,
				       "header: a region is empty or larger than the device can address");
	if (!r->chunk_bytes || r->chunk_bytes > MAX_REGION_BYTES)
		return npu_file_refuse(file,
				       "header: chunk_bytes is %" PRIu64,
				       r->chunk_bytes);
	ret = check_dimensions(file);
	if (!ret)
		ret = check_expert_dimensions(file);
	if (!ret)
		ret = check_io_layout(file);
	if (!ret)
		ret = file->header.version_minor ? check_choice_layout(file) :
						   check_old_runtime(file);
	return ret;
}

int npu_file_check_header(struct npu_file *file, const uint8_t *page,
			  uint64_t file_bytes)
{
	int ret;

	memcpy(&file->header, page, sizeof(file->header));
	ret = check_identity(file, page);
	if (!ret)
		ret = check_place(file, file_bytes);
	if (!ret)
		ret = check_runtime(file);
	return ret;
}
