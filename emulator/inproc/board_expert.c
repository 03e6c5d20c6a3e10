// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>

#include "board_priv.h"

int board_expert_table(struct board *board, uint32_t layers,
		       uint32_t experts)
{
	board->experts = board_ram(board, (uint64_t)layers * experts *
				   sizeof(*board->experts), 64);
	board->layer_stats = board_ram(board, layers *
				       sizeof(*board->layer_stats), 64);
	if (!board->experts || !board->layer_stats)
		return -ENOMEM;
	board->experts_per_layer = experts;
	board->as->expert_table = board_bus(board, board->experts);
	board->as->expert_layers = layers;
	board->as->experts_per_layer = experts;
	board->as->layer_stats = board_bus(board, board->layer_stats);
	m6_device_reg_write(board->dev, M6NPU_REG_AS_INVALIDATE, BOARD_ASID);
	return 0;
}

/* The device looks at flags first: they come last, and go first. */
static void write_entry(struct m6npu_expert *entry,
			const struct m6npu_expert *value)
{
	uint64_t half[2], *to = (uint64_t *)entry;

	memcpy(half, value, sizeof(half));
	if (value->flags & M6NPU_EXPERT_STATE_MASK)
		__atomic_store_n(&to[0], half[0], __ATOMIC_RELEASE);
	__atomic_store_n(&to[1], half[1], __ATOMIC_RELEASE);
}

void board_expert_set(struct board *board, uint32_t layer, uint32_t expert,
		      const struct m6npu_expert *entry)
{
	write_entry(&board->experts[layer * board->experts_per_layer + expert],
		    entry);
}

void board_expert_drop(struct board *board, uint32_t layer, uint32_t expert)
{
	const struct m6npu_expert absent = { .flags = M6NPU_EXPERT_ABSENT };

	board_expert_set(board, layer, expert, &absent);
	m6_device_reg_write(board->dev, M6NPU_REG_ROUTER_INVALIDATE,
			    M6NPU_ROUTER_KEY(BOARD_ASID, layer, expert));
}

const struct m6npu_layer_stats *board_layer_stats(const struct board *board)
{
	return board->layer_stats;
}
