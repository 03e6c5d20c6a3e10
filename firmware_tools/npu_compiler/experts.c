// SPDX-License-Identifier: MIT
/*
 * A guess is the router of the next sparse layer, asked too early: one layer
 * adds little to what goes through all of them, so the answer is mostly right,
 * and there is time left to fetch whom it names.
 */
#include "experts.h"

#include <stdlib.h>

#include "arch.h"

#define MAX_ROUTED	64u

static int settle_guesses(struct model *model)
{
	struct npu_runtime *r = &model->runtime;
	uint32_t guesses = model->guesses;

	if (guesses == MODEL_DEFAULT_GUESSES) {
		guesses = 2 * r->experts_per_token;
		if (guesses > r->experts)
			guesses = r->experts;
		if (guesses > MAX_ROUTED)
			guesses = MAX_ROUTED;
	}
	if (guesses > r->experts)
		return fail("--guess %u: the model has %u experts", guesses,
			    r->experts);
	/* There is no layer to guess about if only one is sparse. */
	r->guesses = r->expert_layers > 1 ? guesses : 0;
	return 0;
}

static int check_calibration(const struct model *model)
{
	const struct calibration *c = model->calibration;
	const struct npu_runtime *r = &model->runtime;

	if (!c || (c->layers == r->expert_layers && c->experts == r->experts))
		return 0;
	return fail("the calibration is of %u layers of %u experts, the model has %u of %u: use one of this model",
		    c->layers, c->experts, r->expert_layers, r->experts);
}

static int settle_low(struct model *model)
{
	const struct expert_shape *shape = &model->expert_shape;
	const uint8_t type[3] = { model->low_type, model->low_type,
				  model->low_type };
	struct expert expert;

	if (!model->low_type)
		return 0;
	if (!model->expert_count)
		return fail("--expert-fallback: the model has no experts");
	if (!weight_row_is_whole(model->low_type, shape->hidden) ||
	    !weight_row_is_whole(model->low_type, shape->ffn))
		return fail("--expert-fallback: rows of %u and %u elements are no multiples of 32: leave the option out",
			    shape->hidden, shape->ffn);
	expert = model->experts[0];
	model->runtime.low_expert_bytes = model_place_expert(&expert, type);
	return 0;
}

/* One token more than were counted, that chose them all alike. */
static double chance_of(const struct model *model, uint32_t row,
			uint32_t expert)
{
	const struct calibration *c = model->calibration;
	double alike = (double)model->runtime.experts_per_token /
		       model->runtime.experts;

	if (!c)
		return alike;
	return (c->layer[row].use[expert] + alike) / (c->tokens + 1.0);
}

struct ranked {
	double chance;
	int32_t expert;
};

static int compare_ranked(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->chance != y->chance)
		return x->chance < y->chance ? 1 : -1;
	return x->expert - y->expert;
}

/* Favourites first: the same order does for tiers of any tile. */
static void rank(const struct model *model, uint32_t row, int32_t *members,
		 double *chance)
{
	uint32_t experts = model->runtime.experts, i;
	struct ranked *list = xcalloc(experts, sizeof(*list));

	for (i = 0; i < experts; i++)
		list[i] = (struct ranked){ chance_of(model, row, i), i };
	qsort(list, experts, sizeof(*list), compare_ranked);
	for (i = 0; i < experts; i++) {
		members[i] = list[i].expert;
		chance[i] = list[i].chance;
	}
	free(list);
}

static struct tier_cost cost_of(const struct model *model)
{
	const struct expert_shape *shape = &model->expert_shape;
	double mac_ns = 0;
	int i;

	for (i = 0; i < 3; i++)
		mac_ns += target_mac_ns(model->target, shape->type[i]);
	return (struct tier_cost){
		.weights_ns = target_read_ns(model->target,
					     model->runtime.expert_bytes),
		.row_ns = mac_ns * shape->hidden * shape->ffn,
		.command_ns = model->target->command_ns,
	};
}

static struct tier_list *tiers_of(const struct model *model, uint32_t row,
				  size_t tile)
{
	return &model->tiers[row * model->tile_count + tile];
}

/* Without a calibration all layers are alike. */
static void plan_tiers(struct model *model, uint32_t row, const double *chance)
{
	const struct tier_cost cost = cost_of(model);
	struct tier_list *tiers;
	size_t tile;

	for (tile = 0; tile < model->tile_count; tile++) {
		tiers = tiers_of(model, row, tile);
		if (row && !model->calibration)
			*tiers = *tiers_of(model, 0, tile);
		else
			tiers->count = tiers_choose(chance,
						    model->runtime.experts,
						    model->tiles[tile], &cost,
						    tiers->tier);
	}
}

static void plan_members(struct model *model)
{
	const struct npu_runtime *r = &model->runtime;
	double *chance = xcalloc(r->experts, sizeof(*chance));
	struct layer *layer;
	int32_t *members;
	uint32_t i;

	model->tiers = xcalloc(r->expert_layers * model->tile_count,
			       sizeof(*model->tiers));
	for (i = 0; i < model->config.layers; i++) {
		layer = &model->layers[i];
		if (!layer->router)
			continue;
		members = xcalloc(r->experts, sizeof(*members));
		rank(model, layer->expert_row, members, chance);
		plan_tiers(model, layer->expert_row, chance);
		layer->members = model_add_values(model, "ffn.members",
						  M6NPU_TYPE_I32, members,
						  r->experts);
	}
	free(chance);
}

int experts_plan(struct model *model)
{
	if (settle_guesses(model) || check_calibration(model) ||
	    settle_low(model))
		return -1;
	/* Tiles rise: the last tells whether any takes several tokens. */
	if (model->runtime.expert_layers && model->order != ORDER_TOKEN &&
	    model->tiles[model->tile_count - 1] > 1)
		plan_members(model);
	return 0;
}

void experts_plan_io(struct npu_runtime *r, uint64_t *bytes)
{
	uint64_t rows = (uint64_t)r->expert_layers * r->max_tile;

	if (!rows)
		return;
	r->routed_offset = model_place(bytes, 4 * rows * r->experts_per_token);
	if (!r->guesses)
		return;
	r->guess_ids_offset = model_place(bytes, 4 * rows * r->guesses);
	r->guess_chances_offset = model_place(bytes, 4 * rows * r->guesses);
}

/* What IO at @offset has for one layer, of @width elements a token. */
static struct activation io_rows(const struct npu_runtime *r, uint64_t offset,
				 uint16_t row, uint32_t width)
{
	offset += 4ull * row * r->max_tile * width;
	return (struct activation){
		.operand = M6NPU_OPERAND(NPU_REGION_IO, offset),
		.stride = width,
	};
}

static const struct layer *next_sparse(const struct model *model,
				       uint32_t index)
{
	for (index++; index < model->config.layers; index++)
		if (model->layers[index].router)
			return &model->layers[index];
	return NULL;
}

static double spread_of(const struct model *model, uint16_t row)
{
	return model->calibration ? model->calibration->layer[row].spread :
				    CALIBRATION_SPREAD;
}

static void emit_guess(const struct model *model, uint32_t index,
		       struct command_list *list, struct activation x)
{
	const struct npu_runtime *r = &model->runtime;
	const struct layer *next = next_sparse(model, index);
	struct routing routing = {
		.experts = r->experts,
		.per_token = r->guesses,
		.flags = M6NPU_ROUTER_CHANCE,
		.among = r->experts_per_token,
	};
	struct activation normed, logits, ids, chances;

	if (!next || !r->guesses)
		return;
	routing.scale = spread_of(model, next->expert_row);
	normed = command_take(list, r->hidden);
	emit_norm(list, 0, normed, x, next->ffn_norm, 1, model->config.eps);
	logits = command_take(list, r->experts);
	emit_gemm(list, 0, logits, normed, next->router, NULL);
	command_give(list, normed);
	ids = io_rows(r, r->guess_ids_offset, next->expert_row, r->guesses);
	chances = io_rows(r, r->guess_chances_offset, next->expert_row,
			  r->guesses);
	emit_router(list, next->expert_row, ids, chances, logits, &routing);
	command_give(list, logits);
	emit_prefetch(list, next->expert_row, ids, chances, &routing);
}

static size_t tile_index(const struct model *model, uint32_t tile)
{
	size_t i = 0;

	while (model->tiles[i] != tile)
		i++;
	return i;
}

/* A tier for each expert, with room for all tokens of a step. */
static void emit_singly(const struct model *model, struct command_list *list,
			const struct moe_operands *operands)
{
	struct tier tier = { .count = 1, .capacity = list->rows };

	for (; tier.first < model->runtime.experts; tier.first++)
		emit_moe_tier(list, operands, &tier);
}

static void emit_tiers(const struct model *model, struct command_list *list,
		       const struct moe_operands *operands)
{
	const struct tier_list *tiers;
	size_t i;

	tiers = tiers_of(model, operands->layer,
			 tile_index(model, list->rows));
	for (i = 0; i < tiers->count; i++)
		emit_moe_tier(list, operands, &tiers->tier[i]);
}

static void emit_by_expert(const struct model *model,
			   struct command_list *list, struct activation dst,
			   struct activation weights,
			   struct moe_operands *operands)
{
	uint32_t per_token = operands->routing->per_token;

	operands->dst = command_take(list, per_token * model->runtime.hidden);
	if (model->order == ORDER_EXPERT)
		emit_singly(model, list, operands);
	else
		emit_tiers(model, list, operands);
	emit_combine(list, dst, weights, operands);
	command_give(list, operands->dst);
}

void experts_emit(const struct model *model, uint32_t index,
		  struct command_list *list, struct activation dst,
		  struct activation src)
{
	const struct npu_runtime *r = &model->runtime;
	const struct layer *layer = &model->layers[index];
	bool renormalize = model->arch->always_renormalize ||
			   model->config.norm_topk;
	const struct routing routing = {
		.experts = r->experts,
		.per_token = r->experts_per_token,
		.flags = renormalize ? M6NPU_ROUTER_RENORMALIZE : 0,
	};
	struct moe_operands operands = {
		.layer = layer->expert_row,
		.dst = dst,
		.src = src,
		.ids = io_rows(r, r->routed_offset, layer->expert_row,
			       r->experts_per_token),
		.members = layer->members,
		.routing = &routing,
		.shape = &model->expert_shape,
	};
	struct activation logits, weights;

	emit_guess(model, index, list, dst);
	logits = command_take(list, r->experts);
	emit_gemm(list, 0, logits, src, layer->router, NULL);
	weights = command_take(list, r->experts_per_token);
	emit_router(list, layer->expert_row, operands.ids, weights, logits,
		    &routing);
	command_give(list, logits);
	/* One token reads each of its experts once, whatever the order. */
	if (model->order == ORDER_TOKEN || list->rows == 1)
		emit_moe(list, weights, &operands);
	else
		emit_by_expert(model, list, dst, weights, &operands);
	command_give(list, weights);
}
