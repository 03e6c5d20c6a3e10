// SPDX-License-Identifier: MIT
/*
 * What makes the section table of a .npu file valid. Works on a copy, so what
 * was checked is what is used.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "error.h"
#include "m6npu_regs.h"
#include "npu_file_priv.h"

/* Bounds that keep a hostile file small. */
#define MAX_TEXT_BYTES		(256u << 20)
#define COMMAND_BYTES		64
#define MAX_COMMANDS		65536

/* Fields that have a meaning for some types only are zero in the others. */
static int check_section_fields(struct npu_file *file, uint32_t i)
{
	const struct npu_section *s = &file->sections[i];
	bool low = s->type == NPU_SECTION_EXPERT_LOW;
	bool expert = s->type == NPU_SECTION_EXPERT || low;
	uint16_t last = file->header.version_minor ? NPU_SECTION_EXPERT_LOW :
						     NPU_SECTION_CALIBRATION;

	if (s->type < NPU_SECTION_METADATA || s->type > last)
		return npu_file_refuse_section(file, i, "unknown type");
	if (s->encoding > NPU_ENCODING_ZSTD)
		return npu_file_refuse_section(file, i, "unknown encoding %u",
					       s->encoding);
	if ((!low && s->format) || (!expert && (s->layer || s->expert)) ||
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
	if (!s->stored_bytes || !npu_file_within(s->offset, s->stored_bytes,
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

static int check_expert(struct npu_file *file, uint32_t i, uint64_t most)
{
	const struct npu_runtime *r = &file->header.runtime;
	const struct npu_section *s = &file->sections[i];

	if (s->layer >= r->expert_layers || s->expert >= r->experts)
		return npu_file_refuse_section(file, i,
					       "beyond %" PRIu32 " layers of %" PRIu32 " experts",
					       r->expert_layers, r->experts);
	if (s->loaded_bytes > most)
		return npu_file_refuse_section(file, i,
					       "%" PRIu64 " bytes, more than the %" PRIu64 " that the header says",
					       s->loaded_bytes, most);
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
		if (!npu_file_within(s->dest, s->loaded_bytes,
				     r->weights_bytes))
			return npu_file_refuse_section(file, i,
						       "not inside the weights region of %" PRIu64 " bytes",
						       r->weights_bytes);
		return 0;
	case NPU_SECTION_EXPERT:
		return check_expert(file, i, r->expert_bytes);
	case NPU_SECTION_EXPERT_LOW:
		if (!s->format || s->format >= M6NPU_TYPE_COUNT ||
		    s->format == M6NPU_TYPE_I32)
			return npu_file_refuse_section(file, i,
						       "format %" PRIu32 " is no type of weights",
						       s->format);
		return check_expert(file, i, r->low_expert_bytes);
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

/* Each expert once; stores which section it is. */
static int index_experts(struct npu_file *file, enum npu_section_type type,
			 const char *what, uint32_t **index)
{
	const struct npu_runtime *r = &file->header.runtime;
	size_t total = (size_t)r->expert_layers * r->experts;
	uint32_t i, *slot;
	size_t found = 0;

	*index = malloc(total * sizeof(**index));
	if (!*index)
		return npu_fail_memory();
	memset(*index, 0xff, total * sizeof(**index));
	for (i = 0; i < file->header.section_count; i++) {
		const struct npu_section *s = &file->sections[i];

		if (s->type != type)
			continue;
		slot = &(*index)[s->layer * r->experts + s->expert];
		if (*slot != UINT32_MAX)
			return npu_file_refuse_section(file, i,
						       "is there twice");
		*slot = i;
		found++;
	}
	if (found != total)
		return npu_file_refuse(file, "%zu of %zu %s are missing",
				       total - found, total, what);
	return 0;
}

static int check_experts(struct npu_file *file)
{
	const struct npu_runtime *r = &file->header.runtime;
	int ret = 0;

	if (r->expert_layers)
		ret = index_experts(file, NPU_SECTION_EXPERT, "experts",
				    &file->experts);
	/* Without low_expert_bytes such a section is larger than it may be. */
	if (!ret && r->low_expert_bytes)
		ret = index_experts(file, NPU_SECTION_EXPERT_LOW,
				    "low copies of experts",
				    &file->low_experts);
	return ret;
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
