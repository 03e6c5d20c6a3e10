// SPDX-License-Identifier: MIT
#include "static_part.h"

#include <npu/npu.h>
#include <stdlib.h>
#include <string.h>

/* What section @index has of @part. */
static int copy_section(struct static_part *part, struct npu_file *file,
			uint32_t index)
{
	const struct npu_section *section = npu_file_section(file, index);
	uint64_t begin = section->dest;
	uint64_t end = section->dest + section->loaded_bytes;
	size_t bytes;
	void *data;

	if (end <= part->begin || begin >= part->end)
		return 0;
	if (npu_file_load_section(file, index, &data, &bytes))
		return fail("%s", npu_error());
	if (begin < part->begin)
		begin = part->begin;
	if (end > part->end)
		end = part->end;
	memcpy(part->data + (begin - part->begin),
	       (uint8_t *)data + (begin - section->dest), end - begin);
	free(data);
	return 0;
}

int static_part_load(struct static_part *part, struct npu_file *file,
		     uint64_t begin, uint64_t end)
{
	int64_t i = -1;
	int ret = 0;

	if (static_part_at(part, begin, end - begin))
		return 0;
	static_part_free(part);
	part->begin = begin;
	part->end = end;
	part->data = xcalloc(1, end - begin);
	while (!ret && (i = npu_file_find(file, NPU_SECTION_STATIC,
					  i + 1)) >= 0)
		ret = copy_section(part, file, i);
	return ret;
}

void static_part_free(struct static_part *part)
{
	free(part->data);
	*part = (struct static_part){ 0 };
}

const void *static_part_at(const struct static_part *part, uint64_t offset,
			   uint64_t bytes)
{
	if (!part->data || offset < part->begin || offset > part->end ||
	    bytes > part->end - offset)
		return NULL;
	return part->data + (offset - part->begin);
}
