/* SPDX-License-Identifier: MIT */
/*
 * A model on its way to the device: what its config says, the weights that
 * were made of its tensors and where they lie, and what its command lists
 * share. Architectures fill it in; the writer reads it.
 */
#ifndef NPU_COMPILER_MODEL_H
#define NPU_COMPILER_MODEL_H

#include <npu/npu_format.h>

#include "calibration.h"
#include "commands.h"
#include "hf_config.h"
#include "target.h"
#include "tensors.h"
#include "tiers.h"
#include "weight.h"

#define MODEL_MAX_TILES		16
/* Results a step can give at most, and candidates in each. */
#define MODEL_MAX_OUT		16
#define MODEL_TOPK		64
#define MODEL_DEFAULT_GUESSES	UINT32_MAX

/* How the experts of a step of several tokens are gone through. */
enum expert_order {
	ORDER_TOKEN,		/* token by token */
	ORDER_EXPERT,		/* a command for each expert */
	ORDER_GROUPED,		/* a command for each tier */
};

/* NULL where a layer has no such part. */
struct layer {
	struct weight *attention_norm;
	struct weight *qkv, *qkv_bias;
	struct weight *q_norm, *k_norm;
	struct weight *o, *o_bias;
	struct weight *ffn_norm;
	/* Dense, or the shared expert of a sparse layer. */
	struct weight *gate_up, *gate_up_bias;
	struct weight *down, *down_bias;
	struct weight *shared_gate;
	struct weight *router;		/* sparse layers only */
	uint16_t expert_row;		/* of the expert table */
	struct weight *members;		/* all experts, in the tiers' order */
};

/* One expert: gate, up and down in one section. */
struct expert {
	uint16_t row, column;
	struct weight matrix[3];
};

struct tier_list {
	struct tier tier[TIERS_MAX];
	size_t count;
};

struct model {
	struct hf_config config;
	enum quantization quant;
	const struct arch *arch;
	struct tensor_set *tensors;
	const struct target *target;
	const struct calibration *calibration;	/* NULL: none */
	enum expert_order order;
	uint32_t guesses;	/* experts a guess, or MODEL_DEFAULT_GUESSES */
	uint8_t low_type;	/* of the experts' second copies, or 0 */

	struct weight **weights;	/* static ones, by offset */
	size_t weight_count;
	struct expert *experts;		/* by row, then column */
	size_t expert_count;
	struct expert_shape expert_shape;
	struct tier_list *tiers;	/* [expert_layers, tile_count] */

	struct layer *layers;
	struct weight *embedding;
	struct weight *head;		/* the embedding when tied */
	struct weight *final_norm;
	struct weight *rope_divisors;	/* NULL: none */

	uint32_t tiles[MODEL_MAX_TILES];	/* rising */
	size_t tile_count;
	struct npu_runtime runtime;
};

/*
 * Makes a static weight of the @count tensors that @names names, below each
 * other; each has @cols columns and its share of @rows. NULL: failed.
 */
struct model_part {
	const char *name;
	uint64_t rows;
};

struct weight *model_add_weight(struct model *model, const char *class_name,
				enum weight_role role,
				const struct model_part *parts,
				unsigned int count, uint64_t cols);
/* A vector out of vectors, end to end; rows of the parts are their lengths. */
struct weight *model_add_vector(struct model *model, const char *class_name,
				const struct model_part *parts,
				unsigned int count);
/* F32 or I32; takes over @values. */
struct weight *model_add_values(struct model *model, const char *class_name,
				uint8_t type, void *values, uint64_t count);
int model_add_expert(struct model *model, uint16_t row, uint16_t column,
		     const char *const names[3]);
/* Places matrices of @type in an expert, and returns the bytes of it all. */
uint64_t model_place_expert(struct expert *expert, const uint8_t type[3]);

/* The next aligned place in a region of @bytes, which grows by @size. */
uint64_t model_place(uint64_t *bytes, uint64_t size);

/* Sorts out the tensors, places the weights and results. */
int model_plan(struct model *model);
/* One list of commands; @tile rows. For command_list_free(). */
void model_emit(const struct model *model, uint32_t tile,
		struct command_list *list);
void model_free(struct model *model);

#endif
