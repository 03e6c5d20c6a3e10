// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Plans
 *
 * Which moves make the free memory of an arena contiguous. Copying is what
 * costs, so the point is to move few bytes.
 *
 * Segments are gone through upwards, each in these steps:
 *
 * pull
 *	Blocks of higher segments go into the holes of this one by best fit, if
 *	that empties their segment, so that it can be given back, or if the
 *	hole they leave is larger than the one they fill.
 * sweep
 *	A cursor goes upwards from hole to hole. The blocks next to the
 *	segment's largest hole go into the hole at the cursor, or below it,
 *	where they fit. If they do not, the block above the cursor is moved
 *	down, into a gap below if it fits there, else by the size of the hole,
 *	and the cursor follows.
 * plug
 *	Alignment leaves gaps below blocks that cannot move further down. Small
 *	blocks, of which enough lie below an aligned one to let it down when
 *	they are gone, go up into such gaps. The next pass moves down what was
 *	above them.
 *
 * then it is pulled into once more, and if a pass moved anything, there is
 * another one. Filling from the edge of the largest hole moves no byte that
 * does not make that hole larger, and a hole that was filled need not be moved
 * up, past all that is above it. What the cursor has passed seldom moves again,
 * so that a sweep copies hardly more than sliding everything down would, and
 * often much less.
 *
 * It ends, and does no harm. A move in a sweep, or a run of blocks that is
 * moved one by one, makes the sum of the squares of hole sizes larger. Plugging
 * is begun if the gaps hold what must leave for sure, so that the largest hole
 * grows in the next pass. Between segments blocks only go down. No single move
 * makes the arena's largest hole smaller, so that anything can be left off
 * anywhere. As others may change the arena between two moves, the moves of a
 * step are limited as well, and so are the passes.
 *
 * What remains are the gaps that no small block fits into, and up to one step
 * of alignment: the last aligned block cannot move by less.
 *
 * Cost: a step goes once over nodes and holes, and searches the allocator's
 * trees a few times for each.
 */

#include <linux/align.h>
#include <linux/bug.h>
#include <linux/container_of.h>
#include <linux/kernel.h>
#include <linux/minmax.h>

#include "m6npu_arena.h"

/* Passes that change something; two are usual. */
#define PLAN_PASSES	6
/* Holes that one that is moved up may have to meet until that pays. */
#define PLAN_LOOK	16

/**
 * struct plan_place - where a block could go
 */
struct plan_place {
	/** @start: its address then */
	u64 start;
	/** @hole: size of the hole that is in */
	u64 hole;
};

static struct m6npu_block *to_block(struct drm_mm_node *node)
{
	return container_of(node, struct m6npu_block, node);
}

static bool plan_can_move(const struct m6npu_plan *plan,
			  struct drm_mm_node *node)
{
	const struct m6npu_block *block = to_block(node);

	return !block->pins &&
	       (!plan->can_move || plan->can_move(block, plan->data));
}

static bool plan_move(struct m6npu_move *move, struct drm_mm_node *node,
		      unsigned int segment, u64 start)
{
	move->block = to_block(node);
	move->segment = segment;
	move->start = start;
	return true;
}

/* In pages, so that it does not overflow for the largest arena. */
static u64 product(u64 a, u64 b)
{
	return a / M6NPU_ALIGN_PAGE * (b / M6NPU_ALIGN_PAGE);
}

static s64 square(u64 size)
{
	return product(size, size);
}

static bool is_head(const struct drm_mm *mm, const struct drm_mm_node *node)
{
	return node == &mm->head_node;
}

static u64 node_end(const struct drm_mm_node *node)
{
	return node->start + node->size;
}

/* The hole below a node, 0 if there is none. */
static u64 hole_below(struct drm_mm_node *node)
{
	return list_prev_entry(node, node_list)->hole_size;
}

/* The first node that ends above an address, or the head. */
static struct drm_mm_node *node_above(const struct drm_mm *mm, u64 at)
{
	return __drm_mm_interval_first(mm, at, U64_MAX);
}

/* The node below a hole in the allocator's tree of them by size. */
static struct drm_mm_node *to_hole(struct rb_node *rb)
{
	return rb_entry_safe(rb, struct drm_mm_node, rb_hole_size);
}

/* The node below the @nth largest hole, from 0, or NULL. */
static struct drm_mm_node *hole_by_size(const struct drm_mm *mm,
					unsigned int nth)
{
	struct rb_node *rb = rb_first_cached(&mm->holes_size);

	while (rb && nth--)
		rb = rb_next(rb);
	return to_hole(rb);
}

/*
 * The node below the first hole that ends above @at, or NULL. Walks over what
 * lies without holes above @at, where the cursor goes next.
 */
static struct drm_mm_node *hole_above(struct drm_mm *mm, u64 at)
{
	struct drm_mm_node *above = node_above(mm, at);
	struct drm_mm_node *below = list_prev_entry(above, node_list);

	if (above->start <= at && !is_head(mm, above))
		below = above;
	else if (is_head(mm, above) && at >= above->start)
		return NULL;
	while (!drm_mm_hole_follows(below)) {
		below = list_next_entry(below, node_list);
		if (is_head(mm, below))
			return NULL;
	}
	return below;
}

/*
 * The lowest place for a block within a range, asked of the allocator. The hole
 * it is in comes after others of its size from then on, so the largest hole must
 * not be in the range: which one of several that is has to stay the same.
 */
static bool plan_find_low(struct drm_mm *mm, struct drm_mm_node *node,
			  u64 start, u64 end, struct plan_place *place)
{
	struct drm_mm_node probe = {};
	struct drm_mm_node *below;

	if (start >= end ||
	    drm_mm_insert_node_in_range(mm, &probe, node->size,
					to_block(node)->align, 0, start, end,
					DRM_MM_INSERT_LOW))
		return false;
	below = list_prev_entry(&probe, node_list);
	place->start = probe.start;
	drm_mm_remove_node(&probe);
	place->hole = below->hole_size;
	return true;
}

/* The same in the smallest hole that holds the block, without such a change. */
static bool plan_find_best(const struct drm_mm *mm, struct drm_mm_node *node,
			   struct plan_place *place)
{
	struct rb_node *rb = mm->holes_size.rb_root.rb_node, *best = NULL;

	/* Larger ones are on the left. */
	while (rb) {
		bool fits = to_hole(rb)->hole_size >= node->size;

		if (fits)
			best = rb;
		rb = fits ? rb->rb_right : rb->rb_left;
	}
	for (; best; best = rb_prev(best)) {
		u64 at = node_end(to_hole(best));
		u64 start = ALIGN(at, to_block(node)->align);

		place->start = start;
		place->hole = to_hole(best)->hole_size;
		if (start - at + node->size <= place->hole)
			return true;
	}
	return false;
}

/* ---- Pull ---- */

/* All of the segment could go, and there are as many bytes below it. */
static bool pull_can_empty(const struct m6npu_plan *plan, unsigned int source)
{
	struct m6npu_arena *arena = plan->arena;
	u64 used = 0, below = 0;
	struct drm_mm_node *node;
	unsigned int i;

	drm_mm_for_each_node(node, &arena->mm[source]) {
		if (!plan_can_move(plan, node))
			return false;
		used += node->size;
	}
	for (i = 0; i < source; i++) {
		if (!arena->size[i])
			continue;
		below += arena->size[i];
		drm_mm_for_each_node(node, &arena->mm[i])
			below -= node->size;
	}
	return used <= below;
}

/* The largest hole of the arena but for the one that is filled. */
static u64 pull_largest_left(const struct m6npu_arena *arena,
			     unsigned int segment, u64 filled)
{
	struct drm_mm_node *second;
	u64 largest = 0;
	unsigned int i;

	for (i = 0; i < M6NPU_ARENA_SEGMENTS; i++)
		if (i != segment)
			largest = max(largest,
				      m6npu_arena_segment_largest(arena, i));
	if (m6npu_arena_segment_largest(arena, segment) > filled)
		return max(largest, m6npu_arena_segment_largest(arena, segment));
	second = hole_by_size(&arena->mm[segment], 1);
	return second ? max(largest, second->hole_size) : largest;
}

static bool pull_block(struct m6npu_plan *plan, struct drm_mm_node *node,
		       struct m6npu_move *move)
{
	struct m6npu_arena *arena = plan->arena;
	struct drm_mm *mm = &arena->mm[plan->segment];
	struct plan_place place;
	u64 opened, left;

	if (!plan_can_move(plan, node) ||
	    !plan_find_best(mm, node, &place))
		return false;
	opened = hole_below(node) + node->size + node->hole_size;
	if (!plan->emptying && opened <= place.hole)
		return false;
	left = max(pull_largest_left(arena, plan->segment, place.hole),
		   place.hole - node->size);
	if (max(left, opened) < m6npu_arena_largest(arena))
		return false;
	return plan_move(move, node, plan->segment, place.start);
}

static struct drm_mm_node *pull_node(struct m6npu_plan *plan)
{
	struct drm_mm *mm = &plan->arena->mm[plan->source];
	struct drm_mm_node *node;

	if (!plan->arena->size[plan->source])
		return NULL;
	node = list_prev_entry(node_above(mm, plan->at), node_list);
	return is_head(mm, node) ? NULL : node;
}

static void pull_begin_source(struct m6npu_plan *plan)
{
	plan->at = U64_MAX;
	plan->emptying = plan->arena->size[plan->source] &&
			 pull_can_empty(plan, plan->source);
}

static void pull_begin(struct m6npu_plan *plan)
{
	/* Nothing above a full segment can come down into it. */
	plan->source = m6npu_arena_segment_largest(plan->arena, plan->segment) ?
		       M6NPU_ARENA_SEGMENTS - 1 : plan->segment;
	pull_begin_source(plan);
}

/* From the highest segment down, and in it from the highest block. */
static bool pull_next(struct m6npu_plan *plan, struct m6npu_move *move)
{
	while (plan->source > plan->segment) {
		struct drm_mm_node *node = pull_node(plan);

		if (!node) {
			plan->source--;
			pull_begin_source(plan);
			continue;
		}
		plan->at = node->start;
		if (pull_block(plan, node, move))
			return true;
	}
	return false;
}

/* ---- Sweep ---- */

/* The lowest place for a block up to @limit, but not in the largest hole. */
static bool sweep_find(struct m6npu_plan *plan, struct drm_mm_node *node,
		       u64 limit, struct plan_place *place)
{
	struct drm_mm *mm = &plan->arena->mm[plan->segment];
	struct drm_mm_node *largest = hole_by_size(mm, 0);
	u64 start = node_end(largest), end = start + largest->hole_size;

	if (is_head(mm, node) || !plan_can_move(plan, node))
		return false;
	return plan_find_low(mm, node, 0, min(limit, start), place) ||
	       plan_find_low(mm, node, end, limit, place);
}

/*
 * Makes the largest hole larger, if one of the blocks beside it fits into
 * another one up to @limit. If both do: the one beyond which more is free, for
 * what is copied.
 */
static bool sweep_fill(struct m6npu_plan *plan, u64 limit,
		       struct m6npu_move *move)
{
	struct drm_mm *mm = &plan->arena->mm[plan->segment];
	struct drm_mm_node *largest = hole_by_size(mm, 0);
	struct plan_place low_place, high_place;
	struct drm_mm_node *low, *high;
	bool low_fits, high_fits;

	if (!largest)
		return false;
	low = largest;
	high = list_next_entry(largest, node_list);
	low_fits = sweep_find(plan, low, limit, &low_place);
	high_fits = sweep_find(plan, high, limit, &high_place);
	if (low_fits && high_fits)
		low_fits = product(hole_below(low), high->size) >
			   product(high->hole_size, low->size);
	if (low_fits)
		return plan_move(move, low, plan->segment, low_place.start);
	if (high_fits)
		return plan_move(move, high, plan->segment, high_place.start);
	return false;
}

/*
 * Whether it pays to move the run of blocks above a hole down, so that the
 * hole merges with the one above the run, or with several. If so, the blocks
 * are approved. On its way the hole may leave gaps behind, unless it is the
 * largest of all.
 */
static bool sweep_approve(struct m6npu_plan *plan, struct drm_mm_node *below)
{
	struct drm_mm *mm = &plan->arena->mm[plan->segment];
	struct drm_mm_node *node = below;
	u64 largest = m6npu_arena_largest(plan->arena);
	u64 hole = below->hole_size, at = node_end(below);
	bool is_largest = hole == largest;
	unsigned int look = PLAN_LOOK;
	s64 gain = -square(hole);

	do {
		u64 start;

		if (node->hole_size && node != below && !--look)
			return false;
		node = list_next_entry(node, node_list);
		if (is_head(mm, node) || !plan_can_move(plan, node))
			return false;
		start = ALIGN(at, to_block(node)->align);
		if (start >= node->start)
			return false;
		gain += square(start - at) - square(node->hole_size);
		at = start + node->size;
		hole = node_end(node) + node->hole_size - at;
		if (is_largest && hole < largest)
			return false;
		is_largest |= node->hole_size == largest;
	} while (!node->hole_size || gain + square(hole) <= 0);
	plan->approved = node_end(node);
	return true;
}

/* Moves the block above a hole, @node, down to its lowest place. */
static bool sweep_slide(struct m6npu_plan *plan, struct drm_mm_node *below,
			struct drm_mm_node *node, struct m6npu_move *move)
{
	struct drm_mm *mm = &plan->arena->mm[plan->segment];
	struct plan_place place;
	u64 at = node_end(below), start, largest;

	if (is_head(mm, node) || !plan_can_move(plan, node))
		return false;
	if (sweep_find(plan, node, at, &place) &&
	    place.hole < below->hole_size + node->size + node->hole_size)
		return plan_move(move, node, plan->segment, place.start);
	if (node->start >= plan->approved && !sweep_approve(plan, below))
		return false;
	start = ALIGN(at, to_block(node)->align);
	if (start >= node->start)
		return false;
	/* Approved, but what is below may have changed since. */
	largest = m6npu_arena_largest(plan->arena);
	if (below->hole_size == largest &&
	    node->start + node->hole_size - start < largest)
		return false;
	return plan_move(move, node, plan->segment, start);
}

static bool sweep_next(struct m6npu_plan *plan, struct m6npu_move *move)
{
	struct drm_mm *mm = &plan->arena->mm[plan->segment];
	struct drm_mm_node *below, *above;

	while ((below = hole_above(mm, plan->at))) {
		above = list_next_entry(below, node_list);
		plan->at = node_end(below);
		if (sweep_fill(plan, above->start, move) ||
		    sweep_slide(plan, below, above, move))
			return true;
		plan->at = above->start;
	}
	return sweep_fill(plan, U64_MAX, move);
}

static void sweep_begin(struct m6npu_plan *plan)
{
	plan->at = plan->arena->start[plan->segment];
	plan->approved = 0;
}

/* ---- Plug ---- */

static bool plug_is_small(const struct m6npu_plan *plan,
			  struct drm_mm_node *node)
{
	return to_block(node)->align == M6NPU_ALIGN_PAGE &&
	       plan_can_move(plan, node);
}

/*
 * How many bytes of blocks up to @block long the gaps above @at hold for sure,
 * as far as up to @wanted.
 */
static u64 plug_room(const struct drm_mm *mm, u64 at, u64 block, u64 wanted)
{
	struct drm_mm_node *hole = hole_by_size(mm, 1);
	u64 room = 0;

	while (hole && hole->hole_size > block && room < wanted) {
		if (node_end(hole) >= at)
			room += hole->hole_size - block;
		hole = to_hole(rb_next(&hole->rb_hole_size));
	}
	return min(room, wanted);
}

/*
 * Looks at the run of small blocks that starts with @node, and passes it. If
 * the block above it could move down by its alignment, once or more often, and
 * what must leave the run for that has room further up, the run is approved.
 */
static bool plug_approve(struct m6npu_plan *plan, struct drm_mm_node *node)
{
	struct drm_mm *mm = &plan->arena->mm[plan->segment];
	u64 first = node->start, low = first - hole_below(node);
	u64 size = 0, longest = 0, free, down, align;

	while (!is_head(mm, node) && plug_is_small(plan, node)) {
		size += node->size;
		longest = max(longest, node->size);
		node = list_next_entry(node, node_list);
	}
	plan->at = is_head(mm, node) ? node->start : node_end(node);
	if (!size || is_head(mm, node) || !plan_can_move(plan, node))
		return false;

	align = to_block(node)->align;
	free = node->start - low - size;
	down = node->start - min(node->start, ALIGN(low, align));
	if (down <= free)
		return false;
	down = ALIGN_DOWN(free + plug_room(mm, node->start, longest,
					   down - free), align);
	if (down <= free)
		return false;
	plan->at = first;
	plan->approved = node->start;
	plan->room = down - free;
	return true;
}

static bool plug_block(struct m6npu_plan *plan, struct drm_mm_node *node,
		       struct m6npu_move *move)
{
	struct drm_mm *mm = &plan->arena->mm[plan->segment];
	struct drm_mm_node *largest = hole_by_size(mm, 0);
	u64 start, end;
	struct plan_place place;

	if (!largest || !plan->room || !plug_is_small(plan, node))
		return false;
	start = node_end(largest);
	end = start + largest->hole_size;
	if (!plan_find_low(mm, node, plan->approved, start, &place) &&
	    !plan_find_low(mm, node, max(end, plan->approved), U64_MAX, &place))
		return false;
	plan->room -= min(plan->room, node->size);
	return plan_move(move, node, plan->segment, place.start);
}

static bool plug_next(struct m6npu_plan *plan, struct m6npu_move *move)
{
	struct drm_mm *mm = &plan->arena->mm[plan->segment];
	struct drm_mm_node *node;

	for (;;) {
		node = node_above(mm, plan->at);
		if (is_head(mm, node))
			return false;
		if (node->start >= plan->approved && !plug_approve(plan, node))
			continue;
		plan->at = node_end(node);
		if (plug_block(plan, node, move))
			return true;
	}
}

static void plug_begin(struct m6npu_plan *plan)
{
	plan->at = plan->arena->start[plan->segment];
	plan->approved = 0;
	plan->room = 0;
}

/* ---- All together ---- */

static const struct {
	void (*begin)(struct m6npu_plan *plan);
	bool (*next)(struct m6npu_plan *plan, struct m6npu_move *move);
} plan_steps[] = {
	{ pull_begin, pull_next },
	{ sweep_begin, sweep_next },
	{ plug_begin, plug_next },
	{ pull_begin, pull_next },
};

static void plan_begin_step(struct m6npu_plan *plan)
{
	plan->left = 0;
	if (!plan->arena->size[plan->segment])
		return;
	plan->left = 2 * (u64)plan->arena->blocks;
	plan_steps[plan->step].begin(plan);
}

static void plan_advance(struct m6npu_plan *plan)
{
	plan->step = (plan->step + 1) % ARRAY_SIZE(plan_steps);
	if (!plan->step && ++plan->segment == M6NPU_ARENA_SEGMENTS) {
		plan->segment = 0;
		plan->pass = plan->moves ? plan->pass + 1 : PLAN_PASSES;
		plan->moves = 0;
	}
	plan_begin_step(plan);
}

void m6npu_plan_init(struct m6npu_plan *plan, struct m6npu_arena *arena,
		     bool (*can_move)(const struct m6npu_block *block,
				      void *data), void *data)
{
	*plan = (struct m6npu_plan){
		.arena = arena,
		.can_move = can_move,
		.data = data,
	};
	plan_begin_step(plan);
}

bool m6npu_plan_next(struct m6npu_plan *plan, struct m6npu_move *move)
{
	for (; plan->pass < PLAN_PASSES; plan_advance(plan)) {
		/* The segment may have been dropped meanwhile. */
		if (!plan->left || !plan->arena->size[plan->segment] ||
		    !plan_steps[plan->step].next(plan, move))
			continue;
		plan->left--;
		plan->moves++;
		return true;
	}
	return false;
}

void m6npu_arena_move(struct m6npu_arena *arena, const struct m6npu_move *move)
{
	struct m6npu_block *block = move->block;

	drm_mm_remove_node(&block->node);
	block->node.start = move->start;
	block->segment = move->segment;
	WARN_ON(drm_mm_reserve_node(&arena->mm[move->segment], &block->node));
}
