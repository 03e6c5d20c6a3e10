// SPDX-License-Identifier: MIT
/* Address translation by itself: m6_memory and m6_mmu, no rings. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "memory.h"
#include "mmu.h"

#define RAM	(96u << 20)
#define TABLE	0x10000u
#define PGD	0x20000u
#define PT	0x30000u
#define VA	0x2000000ull
#define RW	(M6NPU_PTE_VALID | M6NPU_PTE_READ | M6NPU_PTE_WRITE)

static struct m6_memory mem;
static struct m6_mmu mmu;
static uint8_t *ram;
static uint64_t fault, walks;

static struct m6npu_as *space(unsigned int asid)
{
	return (struct m6npu_as *)(ram + TABLE) + asid;
}

static uint64_t *pgd(uint64_t va)
{
	return (uint64_t *)(ram + PGD) + (va >> M6NPU_LARGE_PAGE_SHIFT);
}

static uint64_t *pte(uint64_t va)
{
	return (uint64_t *)(ram + PT) +
	       (va >> M6NPU_PAGE_SHIFT) % M6NPU_PT_ENTRIES;
}

static void setup(bool large_pages)
{
	memset(ram, 0, 1u << 20);
	m6_memory_init(&mem);
	m6_memory_map(&mem, 0, RAM, ram, M6_MAPPING_READ | M6_MAPPING_WRITE,
		      NULL, NULL);
	m6_mmu_init(&mmu, &mem, large_pages);
	space(1)->valid = 1;
	space(1)->pgd = PGD;
	*pgd(VA) = PT | M6NPU_PTE_VALID;
	m6_mmu_set_table(&mmu, TABLE);
	walks = 0;
}

static void teardown(void)
{
	m6_mmu_destroy(&mmu);
	m6_memory_destroy(&mem);
}

static uint32_t translate(uint64_t va, uint64_t bytes, bool write,
			  struct m6_pieces *pieces)
{
	m6_pieces_free(pieces);
	return m6_mmu_translate(&mmu, 0, 1, va, bytes, write, pieces, &walks,
				&fault);
}

static void test_pages(void)
{
	struct m6_pieces p = { 0 };

	setup(true);
	for (int i = 0; i < 16; i++)
		*pte(VA + i * 4096) = (0x100000 + i * 4096) | RW;
	*pte(VA + 20 * 4096) = 0x200000 | RW;
	*pte(VA + 21 * 4096) = 0x180000 | RW;

	ok(!translate(VA + 100, 16 * 4096 - 100, true, &p) && p.count == 1 &&
	   p.piece[0].bus == 0x100064 &&
	   p.piece[0].bytes == 16 * 4096 - 100, "neighbours become one piece");
	ok(walks == 2, "16 pages are two lines, %llu walks",
	   (unsigned long long)walks);
	ok(!translate(VA, 4096, false, &p) && walks == 2, "then a hit");
	ok(atomic_load(&mmu.hits) == 15 && atomic_load(&mmu.misses) == 2,
	   "hits and misses are counted");
	ok(!translate(VA + 20 * 4096 + 8, 8184, false, &p) && p.count == 2 &&
	   p.piece[0].bus == 0x200008 && p.piece[0].bytes == 4088 &&
	   p.piece[1].bus == 0x180000 && p.piece[1].bytes == 4096,
	   "scattered pages stay apart");
	ok(translate(VA + 15 * 4096, 8192, false, &p) ==
	   M6NPU_EXC_MMU_PAGE_FAULT && fault == VA + 16 * 4096,
	   "a hole faults at its address");
	*pte(VA + 16 * 4096) = 0x300000 | RW;
	ok(!translate(VA + 16 * 4096, 4096, false, &p),
	   "an invalid entry is not cached");
	ok(translate(VA + (32ull << 20), 64, false, &p) ==
	   M6NPU_EXC_MMU_PAGE_FAULT, "no second-level table");
	ok(translate((1ull << 38) - 64, 128, false, &p) ==
	   M6NPU_EXC_MMU_PAGE_FAULT, "beyond 38 bits");
	ok(translate(~0ull - 4, 64, false, &p) == M6NPU_EXC_MMU_PAGE_FAULT,
	   "wrapping");
	m6_pieces_free(&p);
	teardown();
}

static void test_permissions(void)
{
	struct m6_pieces p = { 0 };

	setup(true);
	*pte(VA) = 0x100000 | M6NPU_PTE_VALID | M6NPU_PTE_READ;
	*pte(VA + 4096) = 0x101000 | M6NPU_PTE_VALID | M6NPU_PTE_WRITE;
	*pte(VA + 8192) = 0x102000 | M6NPU_PTE_READ | M6NPU_PTE_WRITE;
	ok(!translate(VA, 64, false, &p), "read a read-only page");
	ok(translate(VA, 64, true, &p) == M6NPU_EXC_MMU_PAGE_FAULT &&
	   fault == VA, "write a read-only page");
	ok(!translate(VA + 4096, 64, true, &p), "write a write-only page");
	ok(translate(VA + 4096, 64, false, &p) == M6NPU_EXC_MMU_PAGE_FAULT,
	   "read a write-only page");
	ok(translate(VA + 8192, 64, false, &p) == M6NPU_EXC_MMU_PAGE_FAULT,
	   "an entry without VALID");
	space(2)->pgd = PGD;
	ok(m6_mmu_translate(&mmu, 0, 2, VA, 64, false, &p, &walks, &fault) ==
	   M6NPU_EXC_MMU_PAGE_FAULT, "an address space that is not valid");
	ok(m6_mmu_translate(&mmu, 0, 0, VA, 64, false, &p, &walks, &fault) ==
	   M6NPU_EXC_MMU_PAGE_FAULT, "address space 0");
	ok(m6_mmu_translate(&mmu, 0, 64, VA, 64, false, &p, &walks, &fault) ==
	   M6NPU_EXC_MMU_PAGE_FAULT, "address space 64");
	m6_pieces_free(&p);
	teardown();
}

static void test_large(void)
{
	struct m6_pieces p = { 0 };
	const uint64_t bytes = 32u << 20;

	setup(true);
	*pgd(VA) = 0x2000000 | RW | M6NPU_PTE_LARGE;
	*pgd(VA + bytes) = 0x4000000 | RW | M6NPU_PTE_LARGE;
	ok(!translate(VA + 4, 2 * bytes - 4, true, &p) && p.count == 1 &&
	   p.piece[0].bus == 0x2000004 && walks == 2, "two large pages");
	*pgd(VA) = 0x2010000 | RW | M6NPU_PTE_LARGE;
	m6_mmu_invalidate(&mmu, 1);
	ok(translate(VA, 64, false, &p) == M6NPU_EXC_PAGE_ALIGNMENT,
	   "a large page that is not aligned");
	*pgd(VA) = (PT + 0x1000) | M6NPU_PTE_VALID;
	ok(translate(VA, 64, false, &p) == M6NPU_EXC_PAGE_ALIGNMENT,
	   "a table that is not aligned");
	*pgd(VA) = 0x7fff0000 | M6NPU_PTE_VALID;
	ok(translate(VA, 64, false, &p) == M6NPU_EXC_TLB_WALK_TIMEOUT,
	   "a table that is not there");
	m6_pieces_free(&p);
	teardown();

	setup(false);
	*pgd(VA) = 0x2000000 | RW | M6NPU_PTE_LARGE;
	ok(translate(VA, 64, false, &p) == M6NPU_EXC_MMU_PAGE_FAULT,
	   "old firmware knows no large pages");
	m6_pieces_free(&p);
	teardown();
}

static void test_windows(void)
{
	struct m6_pieces p = { 0 };
	struct m6npu_window *w;

	setup(true);
	w = &space(1)->window[3];
	*w = (struct m6npu_window) { 0x10000000, 0x40000000, 0x20000000, RW };
	ok(!translate(0x10000040, 0x1fffffc0, true, &p) && p.count == 1 &&
	   p.piece[0].bus == 0x40000040 && !walks, "a window needs no walk");
	ok(translate(0x2fffffc0, 128, false, &p) == M6NPU_EXC_MMU_PAGE_FAULT &&
	   fault == 0x30000000, "and ends where it ends");

	w->flags = M6NPU_PTE_VALID | M6NPU_PTE_READ;
	ok(!translate(0x10000000, 64, false, &p), "cached until invalidated");
	m6_mmu_invalidate(&mmu, 2);
	ok(!translate(0x10000000, 64, true, &p), "another space's, too");
	m6_mmu_invalidate(&mmu, 1);
	ok(translate(0x10000000, 64, true, &p) == M6NPU_EXC_MMU_PAGE_FAULT,
	   "a read-only window");

	w->pa = 0x40001000;
	m6_mmu_invalidate(&mmu, 1);
	ok(translate(0x10000000, 64, false, &p) == M6NPU_EXC_PAGE_ALIGNMENT,
	   "physical address not aligned");
	w->pa = 0x40000000;
	w->va = 0x10001000;
	m6_mmu_invalidate(&mmu, 1);
	ok(translate(0x10001000, 64, false, &p) == M6NPU_EXC_PAGE_ALIGNMENT,
	   "device address not aligned");
	w->va = 0x10000000;
	w->size = 0x90000000;
	m6_mmu_invalidate(&mmu, 1);
	ok(translate(0x10000000, 64, false, &p) == M6NPU_EXC_PAGE_ALIGNMENT,
	   "more than 2 GiB");

	/* Windows win: this one covers the page table's range. */
	*pte(VA) = 0x100000 | RW;
	*w = (struct m6npu_window) { 0, 0x50000000, 0x10000000, RW };
	m6_mmu_invalidate(&mmu, 1);
	ok(!translate(VA, 64, false, &p) && p.piece[0].bus == 0x50000000 + VA,
	   "windows win over page tables");
	m6_pieces_free(&p);
	teardown();
}

static void test_invalidate(void)
{
	struct m6_pieces p = { 0 };

	setup(true);
	*pte(VA) = 0x100000 | RW;
	ok(!translate(VA, 64, false, &p), "map");
	*pte(VA) = 0x200000 | RW;
	ok(!translate(VA, 64, false, &p) && p.piece[0].bus == 0x100000,
	   "a changed entry stays cached");
	m6_mmu_invalidate(&mmu, 1);
	ok(!translate(VA, 64, false, &p) && p.piece[0].bus == 0x200000,
	   "until its space is invalidated");
	*pte(VA) = 0;
	m6_mmu_invalidate(&mmu, M6NPU_AS_INVALIDATE_ALL);
	ok(translate(VA, 64, false, &p) == M6NPU_EXC_MMU_PAGE_FAULT,
	   "or all are");
	*pte(VA) = 0x100000 | RW;
	ok(!translate(VA, 64, false, &p), "map again");
	m6_mmu_set_table(&mmu, 0);
	ok(translate(VA, 64, false, &p) == M6NPU_EXC_TLB_WALK_TIMEOUT,
	   "no table");
	m6_mmu_set_table(&mmu, 0xfffffffff000);
	ok(translate(VA, 64, false, &p) == M6NPU_EXC_TLB_WALK_TIMEOUT,
	   "a table outside memory");
	m6_pieces_free(&p);
	teardown();
}

static unsigned int released;

static void count_release(void *opaque)
{
	(void)opaque;
	released++;
}

static void test_memory(void)
{
	const uint32_t rw = M6_MAPPING_READ | M6_MAPPING_WRITE;
	uint8_t a[8192] = { 1 }, b[4096] = { 2 }, out[16];
	struct m6_mapping *map;
	uint64_t room;
	uint8_t *host;

	m6_memory_init(&mem);
	ok(!m6_memory_map(&mem, 0x1000, 8192, a, rw, count_release, NULL) &&
	   !m6_memory_map(&mem, 0x3000, 4096, b, M6_MAPPING_READ,
			  count_release, NULL), "two mappings");
	ok(m6_memory_map(&mem, 0x2000, 4096, b, rw, count_release, NULL) ==
	   -EEXIST && released == 1, "no overlap");
	ok(m6_memory_map(&mem, ~0ull - 4095, 8192, b, rw, NULL, NULL) ==
	   -EINVAL, "no wrapping");
	ok(!m6_memory_read(&mem, 0x2ff8, out, 16) && out[8] == 2,
	   "read across");
	ok(m6_memory_write(&mem, 0x2ff8, out, 16) == -EFAULT,
	   "write into read-only");
	ok(m6_memory_read(&mem, 0x3ff8, out, 16) == -EFAULT, "read beyond");
	ok(m6_memory_unmap(&mem, 0x1000, 4096) == -EINVAL, "cut a mapping");
	ok(m6_memory_unmap(&mem, 0x9000, 4096) == -ENOENT, "unmap nothing");
	map = m6_memory_get(&mem, 0x2000, rw, &host, &room);
	ok(map && host == a + 4096 && room == 4096, "hold");
	ok(!m6_memory_unmap(&mem, 0, 0x10000) && released == 2,
	   "unmap both; the held one lives");
	m6_mapping_put(map);
	ok(released == 3, "until it is let go");
	m6_memory_destroy(&mem);
}

int main(void)
{
	ram = aligned_alloc(4096, RAM);
	test_pages();
	test_permissions();
	test_large();
	test_windows();
	test_invalidate();
	test_memory();
	free(ram);
	return done();
}
