// SPDX-License-Identifier: MIT
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "board_priv.h"
#include "error.h"

/* So that pages that are large on one side are on the other. */
#define LARGE		(1ull << M6NPU_LARGE_PAGE_SHIFT)
#define RAM_BUS		0x80000000ull
#define VA_START	0x10000000ull

static uint64_t align_up(uint64_t value, uint64_t align)
{
	return (value + align - 1) / align * align;
}

int board_memory_init(struct board *board)
{
	uint8_t *ram;

	board->ram_bytes = align_up(board->options.ram_bytes, LARGE);
	board->next_va = VA_START;
	ram = mmap(NULL, board->ram_bytes, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ram == MAP_FAILED)
		return npu_fail(-ENOMEM,
				"the board's memory of %" PRIu64 " bytes is more than this machine lends",
				board->ram_bytes);
	board->ram = ram;
	if (m6_device_dma_map(board->dev, RAM_BUS, board->ram_bytes, ram,
			      M6_DMA_READ | M6_DMA_WRITE, NULL, NULL))
		return npu_fail_memory();
	return 0;
}

void board_memory_clear(struct board *board)
{
	while (board->copy_count)
		free(board->copies[--board->copy_count]);
	free(board->copies);
	if (board->ram)
		munmap(board->ram, board->ram_bytes);
}

void *board_ram(struct board *board, uint64_t bytes, uint64_t align)
{
	uint64_t offset = align_up(board->used, align);

	if (offset > board->ram_bytes || bytes > board->ram_bytes - offset) {
		npu_fail(-ENOMEM,
			 "the board's memory of %" PRIu64 " bytes is used up",
			 board->ram_bytes);
		return NULL;
	}
	board->used = offset + bytes;
	return board->ram + offset;
}

uint64_t board_bus(const struct board *board, const void *host)
{
	return RAM_BUS + (uint64_t)((const uint8_t *)host - board->ram);
}

static void *from_bus(const struct board *board, uint64_t addr)
{
	return board->ram + (addr - RAM_BUS);
}

/* The entry of a page, in a table made for it if there is none yet. */
static uint64_t *page_entry(struct board *board, uint64_t va)
{
	uint64_t *first = &board->pgd[va >> M6NPU_LARGE_PAGE_SHIFT];
	uint64_t *second;

	if (!*first) {
		second = board_ram(board, M6NPU_PT_SIZE, M6NPU_PT_SIZE);
		if (!second)
			return NULL;
		*first = board_bus(board, second) | M6NPU_PTE_VALID;
	}
	second = from_bus(board, *first & M6NPU_PTE_ADDR_MASK);
	return &second[va >> M6NPU_PAGE_SHIFT & (M6NPU_PT_ENTRIES - 1)];
}

/* Pages that lie @stride apart. */
struct run {
	uint64_t va, pages, stride, flags;
	uint8_t *ram;
};

static int map_pages(struct board *board, const struct run *run)
{
	uint64_t *entry, i;

	for (i = 0; i < run->pages; i++) {
		entry = page_entry(board, run->va + i * BOARD_PAGE);
		if (!entry)
			return -ENOMEM;
		*entry = board_bus(board, run->ram + i * run->stride) |
			 run->flags;
	}
	return 0;
}

static void map_large(struct board *board, const struct run *run)
{
	uint64_t at;

	for (at = 0; at < run->pages * BOARD_PAGE; at += LARGE)
		board->pgd[(run->va + at) >> M6NPU_LARGE_PAGE_SHIFT] =
			board_bus(board, run->ram + at) | run->flags |
			M6NPU_PTE_LARGE;
}

static uint8_t *take_copy(struct board *board, uint64_t pages)
{
	void **copies = reallocarray(board->copies, board->copy_count + 1,
				     sizeof(*copies));
	void *copy;

	if (!copies)
		return NULL;
	board->copies = copies;
	copy = calloc(pages, BOARD_PAGE);
	if (copy)
		board->copies[board->copy_count++] = copy;
	return copy;
}

/* As the driver does: 32 MiB at a time where there is that much. */
static bool is_large(const struct board *board, uint64_t bytes)
{
	return bytes >= LARGE && !board->options.scatter;
}

int board_alloc(struct board *board, uint64_t bytes, bool writable,
		struct board_memory *memory)
{
	uint64_t page = is_large(board, bytes) ? LARGE : BOARD_PAGE;
	struct run run = {
		.va = align_up(board->next_va, page),
		.pages = align_up(bytes, page) / BOARD_PAGE,
		.stride = (board->options.scatter ? 2 : 1) * BOARD_PAGE,
		.flags = M6NPU_PTE_VALID | M6NPU_PTE_READ |
			 (writable ? M6NPU_PTE_WRITE : 0),
	};

	if (run.va + bytes > (1ull << M6NPU_VA_BITS))
		return npu_fail(-ENOSPC, "the device's addresses are used up");
	run.ram = board_ram(board, run.pages * run.stride,
			    is_large(board, bytes) ? LARGE : BOARD_PAGE);
	if (!run.ram)
		return -ENOMEM;
	if (is_large(board, bytes))
		map_large(board, &run);
	else if (map_pages(board, &run))
		return -ENOMEM;
	/* A page that nobody mapped between any two. */
	board->next_va = run.va + (run.pages + 1) * BOARD_PAGE;
	*memory = (struct board_memory){
		.addr = run.va,
		.bytes = bytes,
		.host = board->options.scatter ? take_copy(board, run.pages) :
						 run.ram,
	};
	return memory->host ? 0 : npu_fail_memory();
}

/* Copies between a scattered run's own copy and its pages. */
static void copy_pages(struct board *board, const struct board_memory *memory,
		       uint64_t offset, uint64_t bytes, bool out)
{
	uint64_t part;
	uint8_t *page;

	if (!board->options.scatter)
		return;
	for (; bytes; offset += part, bytes -= part) {
		page = from_bus(board, *page_entry(board, memory->addr +
						   offset) &
				M6NPU_PTE_ADDR_MASK);
		part = BOARD_PAGE - offset % BOARD_PAGE;
		if (part > bytes)
			part = bytes;
		if (out)
			memcpy(page + offset % BOARD_PAGE,
			       memory->host + offset, part);
		else
			memcpy(memory->host + offset,
			       page + offset % BOARD_PAGE, part);
	}
}

void board_push(struct board *board, const struct board_memory *memory,
		uint64_t offset, uint64_t bytes)
{
	copy_pages(board, memory, offset, bytes, true);
}

void board_pull(struct board *board, const struct board_memory *memory,
		uint64_t offset, uint64_t bytes)
{
	copy_pages(board, memory, offset, bytes, false);
}
