// SPDX-License-Identifier: MIT
#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zstd.h>

#include "builder.h"
#include "m6npu_regs.h"

#define PAGE 4096ull

const char builder_metadata[] =
	"{\"name\":\"tiny\",\"architecture\":\"llama\","
	"\"quantization\":\"fp16\",\"context_length\":64,"
	"\"tokens\":{\"bos\":null,\"eos\":[2],\"pad\":null},"
	"\"something_new\":[1,2,3]}";

const char builder_tokenizer[] =
	"{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}],"
	"\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
	"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
	"\"merges\":[\"a b\"]}}";

static void *need(void *p)
{
	if (p)
		return p;
	perror("out of memory");
	exit(2);
}

static void compress(struct builder *b, uint32_t i)
{
	struct npu_section *s = &b->sections[i];
	struct builder_content *c = &b->contents[i];
	size_t bound = ZSTD_compressBound(s->loaded_bytes) + 64;

	c->stored = need(malloc(bound));
	switch (s->encoding) {
	case NPU_ENCODING_LZ4:
		s->stored_bytes = (uint64_t)LZ4_compress_default(
			(char *)c->loaded, (char *)c->stored,
			(int)s->loaded_bytes, (int)bound);
		break;
	case NPU_ENCODING_ZSTD:
		s->stored_bytes = ZSTD_compress(c->stored, bound, c->loaded,
						s->loaded_bytes, 3);
		break;
	default:
		memcpy(c->stored, c->loaded, s->loaded_bytes);
		s->stored_bytes = s->loaded_bytes;
	}
	s->stored_xxh3 = XXH3_64bits(c->stored, s->stored_bytes);
	s->loaded_xxh3 = XXH3_64bits(c->loaded, s->loaded_bytes);
}

struct npu_section *builder_add(struct builder *b, uint16_t type,
				uint16_t encoding, const void *data,
				size_t size)
{
	struct npu_section *s = &b->sections[b->count];

	*s = (struct npu_section){
		.type = type,
		.encoding = encoding,
		.loaded_bytes = size,
	};
	b->contents[b->count].loaded = need(malloc(size));
	memcpy(b->contents[b->count].loaded, data, size);
	compress(b, b->count++);
	return s;
}

void builder_store(struct builder *b, uint32_t i, const void *data,
		   size_t size)
{
	free(b->contents[i].stored);
	b->contents[i].stored = need(malloc(size));
	memcpy(b->contents[i].stored, data, size);
	b->sections[i].stored_bytes = size;
	b->sections[i].stored_xxh3 = XXH3_64bits(data, size);
}

/* Bytes that compress somewhat, different for each @seed. */
static void fill(uint8_t *p, size_t size, unsigned int seed)
{
	size_t i;

	for (i = 0; i < size; i++)
		p[i] = (uint8_t)(i % 7 ? seed + i / 64 : i * 31 + seed);
}

static void add_weights(struct builder *b)
{
	uint8_t data[6000];

	fill(data, sizeof(data), 1);
	builder_add(b, NPU_SECTION_STATIC, NPU_ENCODING_RAW, data, 4096);
	builder_add(b, NPU_SECTION_STATIC, NPU_ENCODING_ZSTD, data,
		    sizeof(data))->dest = 4096;
	builder_add(b, NPU_SECTION_STATIC, NPU_ENCODING_LZ4, data,
		    100)->dest = 4096 + sizeof(data);
}

static void add_experts(struct builder *b, unsigned int layers,
			unsigned int experts, size_t bytes)
{
	uint8_t *data = need(malloc(bytes));
	struct npu_section *s;
	unsigned int layer, expert;

	for (layer = 0; layer < layers; layer++) {
		for (expert = 0; expert < experts; expert++) {
			fill(data, bytes, layer * experts + expert);
			s = builder_add(b, NPU_SECTION_EXPERT, expert % 3,
					data, bytes - layer * 40);
			s->layer = (uint16_t)layer;
			s->expert = (uint16_t)expert;
		}
	}
	free(data);
}

void builder_add_low(struct builder *b)
{
	struct npu_runtime *r = &b->header.runtime;
	uint32_t i, count = b->count;
	struct npu_section *s;

	r->low_expert_bytes = r->expert_bytes / 2;
	for (i = 0; i < count; i++) {
		if (b->sections[i].type != NPU_SECTION_EXPERT)
			continue;
		s = builder_add(b, NPU_SECTION_EXPERT_LOW,
				b->sections[i].encoding, b->contents[i].loaded,
				b->sections[i].loaded_bytes / 2);
		s->layer = b->sections[i].layer;
		s->expert = b->sections[i].expert;
		s->format = M6NPU_TYPE_Q4_0;
	}
}

void builder_init(struct builder *b)
{
	builder_init_experts(b, 2, 3, 1000);
}

void builder_init_experts(struct builder *b, unsigned int layers,
			  unsigned int experts, size_t bytes)
{
	uint8_t commands[256];

	memset(b, 0, sizeof(*b));
	memcpy(b->header.magic, NPU_FILE_MAGIC, sizeof(b->header.magic));
	b->header.version_major = NPU_FILE_MAJOR;
	b->header.version_minor = NPU_FILE_MINOR;
	b->header.header_bytes = NPU_FILE_ALIGN;
	b->header.section_bytes = sizeof(struct npu_section);
	strcpy(b->header.target, "m6-mini");
	b->header.runtime = (struct npu_runtime){
		.weights_bytes = 4096 + 6000 + 100,
		.scratch_bytes = 8192,
		.io_bytes = 16384,
		.step_offset = 0,
		.logits_offset = 1024,
		.hidden_offset = 2048,
		.topk_ids_offset = 3072,
		.topk_values_offset = 3584,
		.time_offset = 4096,
		.expert_bytes = bytes,
		.chunk_bytes = 1 << 22,
		.max_tile = 4,
		.max_out = 2,
		.topk = 4,
		.vocab = 8,
		.hidden = 16,
		.kv_layers = 2,
		.kv_heads = 2,
		.head_dim = 32,
		.context_length = 64,
		.expert_layers = layers,
		.experts = experts,
		.experts_per_token = 2,
		.router_entries = 128,
		.guesses = 1,
		.routed_offset = 4608,
		.guess_ids_offset = 8704,
		.guess_chances_offset = 10752,
	};
	memset(commands, 0, sizeof(commands));
	builder_add(b, NPU_SECTION_METADATA, NPU_ENCODING_RAW,
		    builder_metadata, strlen(builder_metadata));
	builder_add(b, NPU_SECTION_TOKENIZER, NPU_ENCODING_ZSTD,
		    builder_tokenizer, strlen(builder_tokenizer));
	builder_add(b, NPU_SECTION_COMMANDS, NPU_ENCODING_ZSTD, commands,
		    128)->tile = 4;
	builder_add(b, NPU_SECTION_COMMANDS, NPU_ENCODING_RAW, commands,
		    64)->tile = 1;
	add_weights(b);
	add_experts(b, layers, experts, bytes);
	builder_add(b, NPU_SECTION_CALIBRATION, NPU_ENCODING_RAW, "{}", 2);
}

void builder_clear(struct builder *b)
{
	uint32_t i;

	for (i = 0; i < b->count; i++) {
		free(b->contents[i].stored);
		free(b->contents[i].loaded);
	}
}

/* Behind the header's page and the table's. */
static uint64_t first_section(const struct builder *b)
{
	uint64_t table = b->count * sizeof(b->sections[0]);

	return PAGE + (table + PAGE - 1) / PAGE * PAGE;
}

void builder_place(struct builder *b)
{
	uint64_t at = first_section(b);
	uint32_t i;

	b->header.table_offset = PAGE;
	b->header.section_count = b->count;
	for (i = 0; i < b->count; i++) {
		b->sections[i].offset = at;
		at += b->sections[i].stored_bytes;
		b->bytes = at;
		at = (at + PAGE - 1) / PAGE * PAGE;
	}
	b->header.file_bytes = b->bytes;
}

void builder_seal(struct builder *b)
{
	uint8_t page[4096] = { 0 };

	b->header.table_xxh3 = XXH3_64bits(b->sections,
					   b->count * sizeof(b->sections[0]));
	b->header.header_xxh3 = 0;
	memcpy(page, &b->header, sizeof(b->header));
	b->header.header_xxh3 = XXH3_64bits(page, sizeof(page));
}

/*
 * Sections lie where builder_place() puts them, whatever their (perhaps
 * spoiled) offsets say.
 */
uint8_t *builder_image(const struct builder *b)
{
	uint8_t *image = need(calloc(1, b->bytes));
	uint64_t at = first_section(b);
	uint32_t i;

	memcpy(image, &b->header, sizeof(b->header));
	memcpy(image + PAGE, b->sections, b->count * sizeof(b->sections[0]));
	for (i = 0; i < b->count; i++) {
		uint64_t n = b->sections[i].stored_bytes;

		if (at >= b->bytes)
			break;
		if (n > b->bytes - at)
			n = b->bytes - at;
		/* A spoiled size must not read beyond what is stored. */
		if (n > ZSTD_compressBound(b->sections[i].loaded_bytes))
			break;
		memcpy(image + at, b->contents[i].stored, n);
		at = (at + n + PAGE - 1) / PAGE * PAGE;
	}
	return image;
}

void write_file(const char *path, const void *data, size_t size)
{
	FILE *f = fopen(path, "wb");

	if (!f || fwrite(data, 1, size, f) != size || fclose(f)) {
		perror(path);
		exit(2);
	}
}

void builder_write(const struct builder *b, const char *path)
{
	uint8_t *image = builder_image(b);

	write_file(path, image, b->bytes);
	free(image);
}
