// SPDX-License-Identifier: GPL-2.0-only
/*
 * The arithmetic of page tables (driver/m6npu_pt.h): tables are filled the way
 * the driver does and read the way the device does.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "../tap.h"
#include "m6npu_pt.h"

#define ENTRY_FLAGS	(M6NPU_PTE_VALID | M6NPU_PTE_READ)

struct tables {
	uint64_t first[M6NPU_PT_ENTRIES];
	uint64_t *second[M6NPU_PT_ENTRIES];
};

static void fill(struct tables *t, uint64_t va, uint64_t size, uint64_t pa,
		 bool large)
{
	uint64_t end = va + size, span;

	for (; va < end; va += span, pa += span) {
		unsigned int slot = m6npu_pt_slot(va);

		span = m6npu_pt_span(va, end);
		if (large && m6npu_pt_fits_large(va, pa, span)) {
			t->first[slot] = m6npu_pt_entry(pa, ENTRY_FLAGS |
							M6NPU_PTE_LARGE);
			continue;
		}
		if (!t->second[slot])
			t->second[slot] = calloc(M6NPU_PT_ENTRIES,
						 sizeof(uint64_t));
		t->first[slot] = ENTRY_FLAGS;
		for (uint64_t at = 0; at < span; at += M6NPU_PAGE_SIZE)
			t->second[slot][m6npu_pt_index(va + at)] =
				m6npu_pt_entry(pa + at, ENTRY_FLAGS);
	}
}

/* As the device: bits 37:25, then bits 24:12. 0 where nothing is mapped. */
static uint64_t translate(const struct tables *t, uint64_t va)
{
	uint64_t entry = t->first[va >> 25];

	if (!(entry & M6NPU_PTE_VALID))
		return 0;
	if (entry & M6NPU_PTE_LARGE)
		return (entry & M6NPU_PTE_ADDR_MASK) + (va & 0x1ffffff);
	entry = t->second[va >> 25][va >> 12 & 0x1fff];
	if (!(entry & M6NPU_PTE_VALID))
		return 0;
	return (entry & M6NPU_PTE_ADDR_MASK) + (va & 0xfff);
}

static bool mapped_right(const struct tables *t, uint64_t va, uint64_t size,
			 uint64_t pa)
{
	for (uint64_t at = 0; at < size; at += M6NPU_PAGE_SIZE)
		if (translate(t, va + at + 8) != pa + at + 8)
			return false;
	return !translate(t, va - 1) && !translate(t, va + size);
}

static void clear(struct tables *t)
{
	for (unsigned int i = 0; i < M6NPU_PT_ENTRIES; i++) {
		free(t->second[i]);
		t->second[i] = NULL;
		t->first[i] = 0;
	}
}

static void test_mappings(struct tables *t)
{
	static const struct {
		const char *name;
		uint64_t va, size, pa;
		unsigned int large;	/* large pages that are possible */
	} cases[] = {
		{ "one page", 0x100000, 0x1000, 0x80000000, 0 },
		{ "the last page of a table", 0x1fff000, 0x1000, 0x1000, 0 },
		{ "across two tables", 0x1fff000, 0x2000, 0x7000, 0 },
		{ "a large page", 0x2000000, 0x2000000, 0x80000000, 1 },
		{ "large, memory not aligned", 0x2000000, 0x2000000,
		  0x80001000, 0 },
		{ "large, address not aligned", 0x2001000, 0x4000000,
		  0x82001000, 1 },
		{ "large with a rest", 0x4000000, 0x5003000, 0xfffe000000, 2 },
		{ "memory at 48 bits", 0x4000000, 0x2000000, 0xfffffe000000,
		  1 },
		{ "up to the last entry", M6NPU_VA_SIZE - 0x4001000, 0x4000000,
		  0x1000, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		unsigned int large = 0;

		fill(t, cases[i].va, cases[i].size, cases[i].pa, true);
		for (unsigned int k = 0; k < M6NPU_PT_ENTRIES; k++)
			large += !!(t->first[k] & M6NPU_PTE_LARGE);
		ok(large == cases[i].large &&
		   mapped_right(t, cases[i].va, cases[i].size, cases[i].pa),
		   "%s", cases[i].name);
		clear(t);
		fill(t, cases[i].va, cases[i].size, cases[i].pa, false);
		ok(mapped_right(t, cases[i].va, cases[i].size, cases[i].pa),
		   "%s, by small pages", cases[i].name);
		clear(t);
	}
}

static void test_limits(void)
{
	ok(m6npu_pt_slot(M6NPU_VA_SIZE - 1) == M6NPU_PT_ENTRIES - 1,
	   "last entry of the first level");
	ok(m6npu_pt_index(M6NPU_VA_SIZE - 1) == M6NPU_PT_ENTRIES - 1,
	   "last entry of the second level");
	ok(m6npu_pt_span(M6NPU_VA_SIZE - M6NPU_PAGE_SIZE, M6NPU_VA_SIZE) ==
	   M6NPU_PAGE_SIZE, "the span ends with the address space");
	ok(m6npu_pt_align(M6NPU_LARGE_PAGE_SIZE - 1) == M6NPU_PAGE_SIZE &&
	   m6npu_pt_align(M6NPU_LARGE_PAGE_SIZE) == M6NPU_LARGE_PAGE_SIZE,
	   "buffers are aligned to large pages from that size on");
	ok(m6npu_pt_entry(~0ull, 0) == 0x0000fffffffff000ull,
	   "an address never spills into flags");
}

int main(void)
{
	struct tables *t = calloc(1, sizeof(*t));

	if (!t)
		return 1;
	test_mappings(t);
	test_limits();
	free(t);
	return done();
}
