// SPDX-License-Identifier: MIT
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "arch.h"

uint64_t model_place(uint64_t *bytes, uint64_t size)
{
	uint64_t offset = align_up(*bytes, WEIGHT_ALIGN);

	*bytes = offset + size;
	return offset;
}

static struct weight *new_weight(struct model *model, const char *class_name,
				 uint8_t type, uint64_t rows, uint64_t cols)
{
	struct weight *weight = xcalloc(1, sizeof(*weight));

	weight->class_name = class_name;
	weight->type = type;
	weight->rows = rows;
	weight->cols = cols;
	weight->bytes = rows * weight_row_bytes(type, cols);
	weight->offset = model_place(&model->runtime.weights_bytes,
				     weight->bytes);
	model->weights = xrealloc(model->weights, model->weight_count + 1,
				  sizeof(*model->weights));
	model->weights[model->weight_count++] = weight;
	return weight;
}

static int take_parts(struct model *model, struct weight *weight,
		      const struct model_part *parts, unsigned int count,
		      bool vector)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		weight->part[i] = tensor_take(model->tensors, parts[i].name,
					      vector ? 1 : parts[i].rows,
					      vector ? parts[i].rows :
						       weight->cols);
		if (!weight->part[i])
			return -1;
	}
	weight->parts = count;
	return 0;
}

static uint64_t total_rows(const struct model_part *parts, unsigned int count)
{
	uint64_t rows = 0;

	while (count--)
		rows += parts[count].rows;
	return rows;
}

struct weight *model_add_weight(struct model *model, const char *class_name,
				enum weight_role role,
				const struct model_part *parts,
				unsigned int count, uint64_t cols)
{
	struct weight *weight;

	weight = new_weight(model, class_name,
			    weight_type(model->quant, role, cols),
			    total_rows(parts, count), cols);
	return take_parts(model, weight, parts, count, false) ? NULL : weight;
}

struct weight *model_add_vector(struct model *model, const char *class_name,
				const struct model_part *parts,
				unsigned int count)
{
	struct weight *weight;

	weight = new_weight(model, class_name, M6NPU_TYPE_F32, 1,
			    total_rows(parts, count));
	return take_parts(model, weight, parts, count, true) ? NULL : weight;
}

struct weight *model_add_values(struct model *model, const char *class_name,
				uint8_t type, void *values, uint64_t count)
{
	struct weight *weight;

	weight = new_weight(model, class_name, type, 1, count);
	weight->values = values;
	return weight;
}

uint64_t model_place_expert(struct expert *expert, const uint8_t type[3])
{
	struct weight *weight;
	uint64_t bytes = 0;
	int i;

	for (i = 0; i < 3; i++) {
		weight = &expert->matrix[i];
		weight->type = type[i];
		weight->bytes = weight->rows *
				weight_row_bytes(weight->type, weight->cols);
		weight->offset = align_up(bytes, M6NPU_EXPERT_ALIGN);
		bytes = weight->offset + weight->bytes;
	}
	return bytes;
}

int model_add_expert(struct model *model, uint16_t row, uint16_t column,
		     const char *const names[3])
{
	const struct expert_shape *shape = &model->expert_shape;
	static const char *const classes[3] = { "expert.gate", "expert.up",
						"expert.down" };
	struct expert *expert;
	struct weight *weight;
	uint64_t bytes;
	int i;

	model->experts = xrealloc(model->experts, model->expert_count + 1,
				  sizeof(*model->experts));
	expert = &model->experts[model->expert_count++];
	memset(expert, 0, sizeof(*expert));
	expert->row = row;
	expert->column = column;
	for (i = 0; i < 3; i++) {
		weight = &expert->matrix[i];
		weight->class_name = classes[i];
		weight->rows = i == 2 ? shape->hidden : shape->ffn;
		weight->cols = i == 2 ? shape->ffn : shape->hidden;
		weight->part[0] = tensor_take(model->tensors, names[i],
					      weight->rows, weight->cols);
		weight->parts = 1;
		if (!weight->part[0])
			return -1;
	}
	bytes = model_place_expert(expert, shape->type);
	if (bytes > model->runtime.expert_bytes)
		model->runtime.expert_bytes = bytes;
	return 0;
}

void model_free(struct model *model)
{
	size_t i;

	for (i = 0; i < model->weight_count; i++) {
		free(model->weights[i]->values);
		free(model->weights[i]);
	}
	free(model->weights);
	free(model->experts);
	free(model->tiers);
	free(model->layers);
	memset(model, 0, sizeof(*model));
}
