/* SPDX-License-Identifier: MIT */
/*
 * The .npu model file, version 1.1. Normative text: Documentation/npu-format.rst.
 *
 * Little-endian. Page 0 is the header; the section table and every section
 * start on a 4-KiB boundary, sections do not overlap, and gaps are zero. A
 * reader takes nothing on trust: it checks every offset, size and hash before
 * use and names the section it refuses.
 */
#ifndef NPU_FORMAT_H
#define NPU_FORMAT_H

#include <stdint.h>

#define NPU_FILE_MAGIC		"\x89NPU\r\n\x1a\n"	/* 8 bytes, no NUL */
#define NPU_FILE_MAJOR		1
#define NPU_FILE_MINOR		1
#define NPU_FILE_ALIGN		4096
#define NPU_FILE_MAX_SECTIONS	(1u << 20)
#define NPU_TARGET_BYTES	16

/* Regions of the commands' operands, in the order SUBMIT gets them. */
enum npu_region {
	NPU_REGION_WEIGHTS = 0,		/* static weights, read-only */
	NPU_REGION_SCRATCH = 1,		/* activations */
	NPU_REGION_KV = 2,		/* KV cache, all slots */
	NPU_REGION_IO = 3,		/* step block and results */
	NPU_REGION_COUNT = 4,
};

enum npu_section_type {
	NPU_SECTION_METADATA = 1,	/* JSON, UTF-8, one */
	NPU_SECTION_TOKENIZER = 2,	/* Hugging Face tokenizer.json, one */
	NPU_SECTION_COMMANDS = 3,	/* struct m6npu_cmd[], one a tile size */
	NPU_SECTION_STATIC = 4,		/* part of the static weights */
	NPU_SECTION_EXPERT = 5,		/* one expert of one layer */
	NPU_SECTION_CALIBRATION = 6,	/* JSON, at most one */
	NPU_SECTION_EXPERT_LOW = 7,	/* the same expert in fewer bits; of all or none */
};

enum npu_encoding {
	NPU_ENCODING_RAW = 0,
	NPU_ENCODING_LZ4 = 1,		/* one LZ4 block (not a frame) */
	NPU_ENCODING_ZSTD = 2,		/* one zstd frame */
};

/* One entry of the section table, 64 bytes. */
struct npu_section {
	uint16_t type;			/* enum npu_section_type */
	uint16_t encoding;		/* enum npu_encoding */
	uint16_t layer;			/* EXPERT, _LOW: row of the expert table */
	uint16_t expert;		/* EXPERT, _LOW: column */
	uint32_t tile;			/* COMMANDS: tokens a step takes at most */
	uint32_t format;		/* EXPERT_LOW: M6NPU_TYPE_* of its matrices */
	uint64_t offset;		/* in the file */
	uint64_t stored_bytes;		/* in the file, 0 is not allowed */
	uint64_t loaded_bytes;		/* decoded; equals stored_bytes if raw */
	uint64_t stored_xxh3;		/* XXH3-64, seed 0, of the stored bytes */
	uint64_t loaded_xxh3;		/* of the decoded bytes */
	uint64_t dest;			/* STATIC: offset in NPU_REGION_WEIGHTS */
};

/* What a runtime needs to lay out memory and to run the command lists. */
struct npu_runtime {
	uint64_t weights_bytes;		/* of NPU_REGION_WEIGHTS; STATIC sections tile it */
	uint64_t scratch_bytes;		/* of NPU_REGION_SCRATCH */
	uint64_t io_bytes;		/* of NPU_REGION_IO */
	uint64_t step_offset;		/* in IO: struct m6npu_step with max_tile tokens */
	uint64_t logits_offset;		/* in IO: F32 [max_out, vocab] */
	uint64_t hidden_offset;		/* in IO: F32 [max_out, hidden], after the last norm */
	uint64_t topk_ids_offset;	/* in IO: I32 [max_out, topk] */
	uint64_t topk_values_offset;	/* in IO: F32 [max_out, topk] */
	uint64_t time_offset;		/* in IO: two results of TIMESTAMP, begin and end */
	uint64_t expert_bytes;		/* largest decoded expert, 0 without experts */
	uint64_t chunk_bytes;		/* no section's loaded_bytes is larger */
	uint32_t max_tile;		/* largest COMMANDS tile */
	uint32_t max_out;		/* rows of results a step may ask for */
	uint32_t topk;
	uint32_t vocab;
	uint32_t hidden;
	uint32_t kv_layers;		/* layers with a KV cache */
	uint32_t kv_heads;
	uint32_t head_dim;
	uint32_t context_length;	/* positions the model is made for */
	uint32_t expert_layers;		/* rows of the expert table, 0 if dense */
	uint32_t experts;		/* columns */
	uint32_t experts_per_token;
	uint32_t router_entries;	/* --expert-cache-size at compile time */
	uint32_t guesses;		/* experts that a layer's guess names */
	uint32_t reserved[2];		/* 0 */
	/*
	 * In IO, 0 without experts: who worked on each token, I32 [expert_layers,
	 * max_tile, experts_per_token].
	 */
	uint64_t routed_offset;
	/*
	 * In IO, 0 without guesses: whom the layer before thought likely, I32 and
	 * F32 [expert_layers, max_tile, guesses]. Layer 0 has none.
	 */
	uint64_t guess_ids_offset;
	uint64_t guess_chances_offset;
	uint64_t low_expert_bytes;	/* largest decoded EXPERT_LOW, 0: there are none */
};

struct npu_file_header {
	uint8_t magic[8];
	uint16_t version_major;
	uint16_t version_minor;
	uint32_t header_bytes;		/* 4096 */
	uint64_t file_bytes;
	uint64_t table_offset;
	uint32_t section_count;
	uint32_t section_bytes;		/* 64 */
	uint64_t header_xxh3;		/* of page 0 with this field 0 */
	uint64_t table_xxh3;
	char target[NPU_TARGET_BYTES];	/* "m6-mini", zero-padded */
	struct npu_runtime runtime;
	/* zeros up to header_bytes */
};

#endif
