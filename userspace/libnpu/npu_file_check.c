// SPDX-License-Identifier: MIT
/*
 * What makes the header and the section table of a .npu file valid. Works on
 * copies, so what was checked is what is used.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "error.h"
#include "npu_file_priv.h"

/* Bounds that keep sums of products far from 2^64 and a hostile file small. */
#define MAX_REGION_BYTES	(1ull << 38)	/* a device address has 38 bits */
#define MAX_DIMENSION		(1u << 24)
#define MAX_TEXT_BYTES		(256u << 20)
#define COMMAND_BYTES		64
#define MAX_COMMANDS		65536

static bool all_zero(const void *data, size_t size)
{
	const uint8_t *p = data;

	while (size--)
		if (*p++)
			return false;
	return true;
}

/* Does [offset, offset + size) lie in [0, total)? */
static bool within(uint64_t offset, uint64_t size, uint64_t total)
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
	    !within(h->table_offset,
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

	if (offset % 8 || !within(offset, rows * row_bytes, total))
		return npu_file_refuse(file,
				       "header: %s at %#" PRIx64 " is not inside the IO region of %" PRIu64 " bytes",
				       what, offset, total);
	return 0;
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
		    r->router_entries)
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

/* Fields that have a meaning for some types only are zero in the others. */
static int check_section_fields(struct npu_file *file, uint32_t i)
{
	const struct npu_section *s = &file->sections[i];
	bool expert = s->type == NPU_SECTION_EXPERT;

	if (s->type < NPU_SECTION_METADATA || s->type > NPU_SECTION_CALIBRATION)
		return npu_file_refuse_section(file, i, "unknown type");
	if (s->encoding > NPU_ENCODING_ZSTD)
		return npu_file_refuse_section(file, i, "unknown encoding %u",
					       s->encoding);
	if (s->format || (!expert && (s->layer || s->expert)) ||
	    (s->type != NPU_SECTION_COMMANDS && s->tile) ||
	    (s->type != NPU_SECTION_STATIC && s->dest))
		return npu_file_refuse_section(file, i,
					       "a reserved field is not zero");
	return 0;
}

static int check_section_place(struct npu_file *file, uint32_t i)
{
	const struct npu_file_header *h = &file->header;
	const struct npu_section *s = &file->sections[i];

	if (s->offset % NPU_FILE_ALIGN || s->offset < NPU_FILE_ALIGN)
		return npu_file_refuse_section(file, i,
					       "offset %#" PRIx64 " is not a multiple of %u",
					       s->offset, NPU_FILE_ALIGN);
	if (!s->stored_bytes || !within(s->offset, s->stored_bytes,
					h->file_bytes))
		return npu_file_refuse_section(file, i,
					       "%" PRIu64 " bytes at %#" PRIx64 " are not inside the file",
					       s->stored_bytes, s->offset);
	if (!s->loaded_bytes || s->loaded_bytes > h->runtime.chunk_bytes)
		return npu_file_refuse_section(file, i,
					       "%" PRIu64 " decoded bytes, not 1 to %" PRIu64,
					       s->loaded_bytes,
					       h->runtime.chunk_bytes);
	if (s->encoding == NPU_ENCODING_RAW &&
	    (s->stored_bytes != s->loaded_bytes ||
	     s->stored_xxh3 != s->loaded_xxh3))
		return npu_file_refuse_section(file, i,
					       "raw, but stored and decoded sizes or hashes differ");
	return 0;
}

static int check_section_type(struct npu_file *file, uint32_t i)
{
	const struct npu_runtime *r = &file->header.runtime;
	const struct npu_section *s = &file->sections[i];

	switch (s->type) {
	case NPU_SECTION_COMMANDS:
		if (!s->tile || s->tile > r->max_tile)
			return npu_file_refuse_section(file, i,
						       "tile is not 1 to %" PRIu32,
						       r->max_tile);
		if (s->loaded_bytes % COMMAND_BYTES ||
		    s->loaded_bytes / COMMAND_BYTES > MAX_COMMANDS)
			return npu_file_refuse_section(file, i,
						       "%" PRIu64 " bytes are not 1 to %u commands",
						       s->loaded_bytes,
						       MAX_COMMANDS);
		return 0;
	case NPU_SECTION_STATIC:
		if (!within(s->dest, s->loaded_bytes, r->weights_bytes))
			return npu_file_refuse_section(file, i,
						       "not inside the weights region of %" PRIu64 " bytes",
						       r->weights_bytes);
		return 0;
	case NPU_SECTION_EXPERT:
		if (s->layer >= r->expert_layers || s->expert >= r->experts)
			return npu_file_refuse_section(file, i,
						       "beyond %" PRIu32 " layers of %" PRIu32 " experts",
						       r->expert_layers,
						       r->experts);
		if (s->loaded_bytes > r->expert_bytes)
			return npu_file_refuse_section(file, i,
						       "%" PRIu64 " bytes, more than expert_bytes %" PRIu64,
						       s->loaded_bytes,
						       r->expert_bytes);
		return 0;
	default:
		if (s->loaded_bytes > MAX_TEXT_BYTES)
			return npu_file_refuse_section(file, i,
						       "%" PRIu64 " bytes of text",
						       s->loaded_bytes);
		return 0;
	}
}

/* qsort() has no context argument; qsort_r() is not everywhere. */
struct place {
	uint64_t start;
	uint64_t size;
	uint32_t index;
};

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static struct place *places(const struct npu_file *file, uint32_t *count,
			    int type)
{
	const struct npu_section *s = file->sections;
	struct place *p;
	uint32_t i, n = 0;

	p = calloc(file->header.section_count, sizeof(*p));
	if (!p)
		return NULL;
	for (i = 0; i < file->header.section_count; i++) {
		if (type && s[i].type != type)
			continue;
		p[n++] = (struct place){
			.start = type ? s[i].dest : s[i].offset,
			.size = type ? s[i].loaded_bytes : s[i].stored_bytes,
			.index = i,
		};
	}
	qsort(p, n, sizeof(*p), compare_places);
	*count = n;
	return p;
}

uint32_t *npu_file_by_offset(const struct npu_file *file)
{
	struct place *p;
	uint32_t *order, i, n;

	p = places(file, &n, 0);
	order = calloc(file->header.section_count, sizeof(*order));
	for (i = 0; p && order && i < n; i++)
		order[i] = p[i].index;
	if (!p) {
		free(order);
		order = NULL;
	}
	free(p);
	return order;
}

static int check_overlap(struct npu_file *file)
{
	const struct npu_file_header *h = &file->header;
	uint64_t table_end = h->table_offset +
			     (uint64_t)h->section_count * h->section_bytes;
	struct place *p;
	uint32_t i, n;
	int ret = 0;

	p = places(file, &n, 0);
	if (!p)
		return npu_fail_memory();
	for (i = 0; i < n && !ret; i++) {
		if (p[i].start < table_end &&
		    p[i].start + p[i].size > h->table_offset)
			ret = npu_file_refuse_section(file, p[i].index,
						      "overlaps the section table");
		else if (i && p[i - 1].start + p[i - 1].size > p[i].start)
			ret = npu_file_refuse_section(file, p[i].index,
						      "overlaps section %" PRIu32,
						      p[i - 1].index);
	}
	free(p);
	return ret;
}

static int check_static(struct npu_file *file)
{
	uint64_t at = 0;
	struct place *p;
	uint32_t i, n;
	int ret = 0;

	p = places(file, &n, NPU_SECTION_STATIC);
	if (!p)
		return npu_fail_memory();
	for (i = 0; i < n && !ret; i++) {
		if (p[i].start != at)
			ret = npu_file_refuse_section(file, p[i].index,
						      "leaves a hole or overlaps at %#" PRIx64 " of the weights region",
						      at);
		at += p[i].size;
	}
	free(p);
	if (!ret && at != file->header.runtime.weights_bytes)
		ret = npu_file_refuse(file,
				      "static sections hold %" PRIu64 " of %" PRIu64 " bytes of the weights region",
				      at, file->header.runtime.weights_bytes);
	return ret;
}

static int check_experts(struct npu_file *file)
{
	const struct npu_runtime *r = &file->header.runtime;
	size_t total = (size_t)r->expert_layers * r->experts;
	uint32_t i, *slot;
	size_t found = 0;

	if (!total)
		return 0;
	file->experts = malloc(total * sizeof(*file->experts));
	if (!file->experts)
		return npu_fail_memory();
	memset(file->experts, 0xff, total * sizeof(*file->experts));
	for (i = 0; i < file->header.section_count; i++) {
		const struct npu_section *s = &file->sections[i];

		if (s->type != NPU_SECTION_EXPERT)
			continue;
		slot = &file->experts[s->layer * r->experts + s->expert];
		if (*slot != UINT32_MAX)
			return npu_file_refuse_section(file, i,
						       "is there twice");
		*slot = i;
		found++;
	}
	if (found != total)
		return npu_file_refuse(file, "%zu of %zu experts are missing",
				       total - found, total);
	return 0;
}

static int check_number(struct npu_file *file, enum npu_section_type type,
			const char *what, bool needed, bool single)
{
	int64_t first = npu_file_find(file, type, 0);

	if (first < 0)
		return needed ? npu_file_refuse(file, "%s section is missing",
						what) : 0;
	if (single && npu_file_find(file, type, (uint32_t)first + 1) >= 0)
		return npu_file_refuse(file, "more than one %s section", what);
	return 0;
}

static int check_commands(struct npu_file *file)
{
	const struct npu_runtime *r = &file->header.runtime;
	uint32_t largest = 0, count = 0;
	int64_t i, j;

	for (i = npu_file_find(file, NPU_SECTION_COMMANDS, 0); i >= 0;
	     i = npu_file_find(file, NPU_SECTION_COMMANDS, (uint32_t)i + 1)) {
		uint32_t tile = file->sections[i].tile;

		/* Bounds the quadratic search below. */
		if (++count > 64)
			return npu_file_refuse_section(file, (uint32_t)i,
						       "more than 64 tile sizes");
		for (j = npu_file_find(file, NPU_SECTION_COMMANDS, 0); j < i;
		     j = npu_file_find(file, NPU_SECTION_COMMANDS,
				       (uint32_t)j + 1))
			if (file->sections[j].tile == tile)
				return npu_file_refuse_section(file,
							       (uint32_t)i,
							       "is there twice");
		if (tile > largest)
			largest = tile;
	}
	if (largest != r->max_tile)
		return npu_file_refuse(file,
				       "no commands for tile %" PRIu32 ", the largest",
				       r->max_tile);
	return 0;
}

static int check_set(struct npu_file *file)
{
	int ret;

	ret = check_number(file, NPU_SECTION_METADATA, "metadata", true, true);
	if (!ret)
		ret = check_number(file, NPU_SECTION_TOKENIZER, "tokenizer",
				   true, true);
	if (!ret)
		ret = check_number(file, NPU_SECTION_CALIBRATION,
				   "calibration", false, true);
	if (!ret)
		ret = check_number(file, NPU_SECTION_COMMANDS, "commands",
				   true, false);
	if (!ret)
		ret = check_commands(file);
	return ret;
}

int npu_file_check_table(struct npu_file *file)
{
	const struct npu_file_header *h = &file->header;
	uint32_t i;
	int ret;

	if (XXH3_64bits(file->sections, (size_t)h->section_count *
			h->section_bytes) != h->table_xxh3)
		return npu_file_refuse(file,
				       "section table: altered (hash does not match)");
	for (i = 0; i < h->section_count; i++) {
		ret = check_section_fields(file, i);
		if (!ret)
			ret = check_section_place(file, i);
		if (!ret)
			ret = check_section_type(file, i);
		if (ret)
			return ret;
	}
	ret = check_overlap(file);
	if (!ret)
		ret = check_set(file);
	if (!ret)
		ret = check_static(file);
	if (!ret)
		ret = check_experts(file);
	return ret;
}
