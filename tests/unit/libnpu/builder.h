/* SPDX-License-Identifier: MIT */
/*
 * Makes .npu files for tests: a small valid one, which a test then spoils.
 * builder_init(), spoil contents, builder_place() (offsets and hashes), spoil
 * fields, builder_seal() (hashes of table and header), builder_write().
 */
#ifndef BUILDER_H
#define BUILDER_H

#include <stddef.h>
#include <stdint.h>
#include <npu/npu_format.h>

#define BUILDER_SECTIONS 128

struct builder_content {
	uint8_t *stored, *loaded;
};

struct builder {
	struct npu_file_header header;
	struct npu_section sections[BUILDER_SECTIONS];
	struct builder_content contents[BUILDER_SECTIONS];
	uint32_t count;
	uint64_t bytes;			/* of the file */
};

void builder_init(struct builder *b);
/* The same with other experts than 2 layers of 3, of @bytes and a bit less. */
void builder_init_experts(struct builder *b, unsigned int layers,
			  unsigned int experts, size_t bytes);
/* Copies in Q4_0 of all experts, of half the size. */
void builder_add_low(struct builder *b);
void builder_clear(struct builder *b);
/* Adds a section with a copy of @size decoded bytes. */
struct npu_section *builder_add(struct builder *b, uint16_t type,
				uint16_t encoding, const void *data,
				size_t size);
/* Other stored bytes for section @i, whose hash then is right. */
void builder_store(struct builder *b, uint32_t i, const void *data,
		   size_t size);
void builder_place(struct builder *b);
void builder_seal(struct builder *b);
/* The whole file, for free(3). */
uint8_t *builder_image(const struct builder *b);
void builder_write(const struct builder *b, const char *path);
void write_file(const char *path, const void *data, size_t size);

extern const char builder_metadata[];
extern const char builder_tokenizer[];

#endif
