// SPDX-License-Identifier: MIT
#include "mmu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES	(1ull << M6NPU_PAGE_SHIFT)
#define LARGE_BYTES	(1ull << M6NPU_LARGE_PAGE_SHIFT)
#define VA_END		(1ull << M6NPU_VA_BITS)

/* One lookup under way. */
struct walk {
	struct m6_mmu *mmu;
	struct m6_tlb *tlb;
	unsigned int asid;
	bool write;
	uint64_t hits;
	uint64_t misses;
	uint64_t fault;
};

void m6_mmu_init(struct m6_mmu *mmu, struct m6_memory *mem, bool large_pages)
{
	memset(mmu, 0, sizeof(*mmu));
	mmu->mem = mem;
	mmu->large_pages = large_pages;
	for (int i = 0; i < M6NPU_RINGS; i++)
		pthread_mutex_init(&mmu->tlb[i].lock, NULL);
}

void m6_mmu_destroy(struct m6_mmu *mmu)
{
	for (int i = 0; i < M6NPU_RINGS; i++)
		pthread_mutex_destroy(&mmu->tlb[i].lock);
}

void m6_mmu_reset(struct m6_mmu *mmu)
{
	m6_mmu_set_table(mmu, 0);
	atomic_store(&mmu->hits, 0);
	atomic_store(&mmu->misses, 0);
	atomic_store(&mmu->walk_cycles, 0);
}

void m6_mmu_set_table(struct m6_mmu *mmu, uint64_t bus)
{
	atomic_store(&mmu->as_table, bus);
	m6_mmu_invalidate(mmu, M6NPU_AS_INVALIDATE_ALL);
}

/* Tags hold the address space, which is never 0, above the page number. */
static uint64_t tlb_tag(unsigned int asid, uint64_t page)
{
	return (uint64_t)asid << 40 | page;
}

static void tlb_drop(struct m6_tlb *tlb, uint32_t asid)
{
	const bool all = asid == M6NPU_AS_INVALIDATE_ALL;

	pthread_mutex_lock(&tlb->lock);
	if (all)
		tlb->as_valid = 0;
	else if (asid < M6NPU_ADDRESS_SPACES)
		tlb->as_valid &= ~(1ull << asid);
	for (int i = 0; i < M6_TLB_LINES; i++)
		if (all || tlb->line[i].tag >> 40 == asid)
			tlb->line[i].tag = 0;
	for (int i = 0; i < M6_TLB_LARGE; i++)
		if (all || tlb->large[i].tag >> 40 == asid)
			tlb->large[i].tag = 0;
	pthread_mutex_unlock(&tlb->lock);
}

void m6_mmu_invalidate(struct m6_mmu *mmu, uint32_t asid)
{
	for (int i = 0; i < M6NPU_RINGS; i++)
		tlb_drop(&mmu->tlb[i], asid);
}

int m6_pieces_add(struct m6_pieces *pieces, uint64_t bus, uint64_t bytes)
{
	struct m6_piece *last;

	if (pieces->count) {
		last = &pieces->piece[pieces->count - 1];
		if (last->bus + last->bytes == bus) {
			last->bytes += bytes;
			return 0;
		}
	}
	if (pieces->count == M6_PIECES_MAX)
		return -E2BIG;
	if (pieces->count == pieces->room) {
		uint32_t room = pieces->room ? pieces->room * 2 : 16;
		void *piece = realloc(pieces->piece,
				      room * sizeof(*pieces->piece));

		if (!piece)
			return -ENOMEM;
		pieces->piece = piece;
		pieces->room = room;
	}
	pieces->piece[pieces->count++] = (struct m6_piece) { bus, bytes };
	return 0;
}

void m6_pieces_free(struct m6_pieces *pieces)
{
	free(pieces->piece);
	memset(pieces, 0, sizeof(*pieces));
}

static uint32_t walk_fail(struct walk *walk, uint32_t code, uint64_t va)
{
	walk->fault = va;
	return code;
}

/* The entry of the table, read once and kept. */
static uint32_t walk_space(struct walk *walk, uint64_t va,
			   const struct m6npu_as **space)
{
	struct m6_tlb *tlb = walk->tlb;
	struct m6npu_as *as = &tlb->as[walk->asid];
	uint64_t table = atomic_load(&walk->mmu->as_table);

	if (!(tlb->as_valid >> walk->asid & 1)) {
		if (!table ||
		    m6_memory_read(walk->mmu->mem,
				   table + walk->asid * sizeof(*as), as,
				   sizeof(*as)))
			return walk_fail(walk, M6NPU_EXC_TLB_WALK_TIMEOUT, va);
		if (as->valid != 1)
			return walk_fail(walk, M6NPU_EXC_MMU_PAGE_FAULT, va);
		tlb->as_valid |= 1ull << walk->asid;
	}
	*space = as;
	return 0;
}

static bool pte_allows(uint64_t pte, bool write)
{
	uint64_t need = M6NPU_PTE_VALID |
			(write ? M6NPU_PTE_WRITE : M6NPU_PTE_READ);

	return (pte & need) == need;
}

/*
 * The window @va is in, or NULL and @end lowered to the next one's start, up
 * to where page tables hold.
 */
static const struct m6npu_window *find_window(const struct m6npu_as *as,
					      uint64_t va, uint64_t *end)
{
	for (int i = 0; i < M6NPU_WINDOWS; i++) {
		const struct m6npu_window *window = &as->window[i];

		if (!(window->flags & M6NPU_PTE_VALID) || !window->size)
			continue;
		if (va >= window->va && va - window->va < window->size)
			return window;
		if (window->va > va && window->va < *end)
			*end = window->va;
	}
	return NULL;
}

static uint32_t walk_window(struct walk *walk,
			    const struct m6npu_window *window, uint64_t va,
			    uint64_t *bus, uint64_t *end)
{
	if ((window->va | window->pa) % M6NPU_WINDOW_ALIGN ||
	    window->size > M6NPU_WINDOW_MAX_SIZE || window->size % PAGE_BYTES)
		return walk_fail(walk, M6NPU_EXC_PAGE_ALIGNMENT, va);
	if (!pte_allows(window->flags, walk->write))
		return walk_fail(walk, M6NPU_EXC_MMU_PAGE_FAULT, va);
	if (*end > window->va + window->size)
		*end = window->va + window->size;
	*bus = window->pa + (va - window->va);
	return 0;
}

static uint32_t walk_read(struct walk *walk, uint64_t bus, uint64_t *to,
			  unsigned int count, uint64_t va)
{
	if (m6_memory_load(walk->mmu->mem, bus, to, count))
		return walk_fail(walk, M6NPU_EXC_TLB_WALK_TIMEOUT, va);
	return 0;
}

/* First-level entry: a table's address, or a large page. Not cached here. */
static uint32_t walk_first(struct walk *walk, const struct m6npu_as *as,
			   uint64_t va, uint64_t *pte)
{
	uint64_t addr;
	uint32_t code;

	if (as->pgd % M6NPU_PT_SIZE)
		return walk_fail(walk, M6NPU_EXC_PAGE_ALIGNMENT, va);
	code = walk_read(walk, as->pgd + (va >> M6NPU_LARGE_PAGE_SHIFT) * 8,
			 pte, 1, va);
	if (code)
		return code;
	addr = *pte & M6NPU_PTE_ADDR_MASK;
	if (!(*pte & M6NPU_PTE_VALID))
		return walk_fail(walk, M6NPU_EXC_MMU_PAGE_FAULT, va);
	if (!(*pte & M6NPU_PTE_LARGE))
		return addr % M6NPU_PT_SIZE ?
			walk_fail(walk, M6NPU_EXC_PAGE_ALIGNMENT, va) : 0;
	/* Firmware before 2.3 takes the bit for a reserved one. */
	if (!walk->mmu->large_pages)
		return walk_fail(walk, M6NPU_EXC_MMU_PAGE_FAULT, va);
	if (addr % LARGE_BYTES)
		return walk_fail(walk, M6NPU_EXC_PAGE_ALIGNMENT, va);
	return 0;
}

static size_t tlb_slot(uint64_t tag, size_t slots)
{
	return (tag * 0x9e3779b97f4a7c15ull >> 40) % slots;
}

/*
 * The leaf entry of @va, from the cache or by a walk; @large tells which kind.
 * A cached line may hold invalid neighbours: those are walked for again.
 */
static uint32_t walk_leaf(struct walk *walk, const struct m6npu_as *as,
			  uint64_t va, uint64_t *pte, bool *large)
{
	struct m6_tlb *tlb = walk->tlb;
	uint64_t page = va >> M6NPU_PAGE_SHIFT;
	uint64_t big = tlb_tag(walk->asid, va >> M6NPU_LARGE_PAGE_SHIFT);
	uint64_t small = tlb_tag(walk->asid, page / M6_TLB_LINE_PAGES);
	size_t big_slot = tlb_slot(big, M6_TLB_LARGE);
	size_t slot = tlb_slot(small, M6_TLB_LINES);
	uint64_t table;
	uint32_t code;

	*large = tlb->large[big_slot].tag == big;
	if (*large) {
		walk->hits++;
		*pte = tlb->large[big_slot].pte;
		return 0;
	}
	*pte = tlb->line[slot].pte[page % M6_TLB_LINE_PAGES];
	if (tlb->line[slot].tag == small && *pte & M6NPU_PTE_VALID) {
		walk->hits++;
		return 0;
	}
	walk->misses++;
	code = walk_first(walk, as, va, pte);
	if (code)
		return code;
	*large = *pte & M6NPU_PTE_LARGE;
	if (*large) {
		tlb->large[big_slot].tag = big;
		tlb->large[big_slot].pte = *pte;
		return 0;
	}
	table = *pte & M6NPU_PTE_ADDR_MASK;
	page %= M6NPU_PT_ENTRIES;
	tlb->line[slot].tag = 0;
	code = walk_read(walk, table + (page / M6_TLB_LINE_PAGES) *
			 sizeof(tlb->line[slot].pte), tlb->line[slot].pte,
			 M6_TLB_LINE_PAGES, va);
	if (code)
		return code;
	tlb->line[slot].tag = small;
	*pte = tlb->line[slot].pte[page % M6_TLB_LINE_PAGES];
	return 0;
}

static uint32_t walk_pages(struct walk *walk, const struct m6npu_as *as,
			   uint64_t va, uint64_t *bus, uint64_t *end)
{
	uint64_t pte, size;
	bool large;
	uint32_t code;

	code = walk_leaf(walk, as, va, &pte, &large);
	if (code)
		return code;
	if (!pte_allows(pte, walk->write))
		return walk_fail(walk, M6NPU_EXC_MMU_PAGE_FAULT, va);
	size = large ? LARGE_BYTES : PAGE_BYTES;
	if (*end - va > size - va % size)
		*end = va - va % size + size;
	*bus = (pte & M6NPU_PTE_ADDR_MASK) + va % size;
	return 0;
}

/* Translates from @va up to @end, or less; says in @end how far it came. */
static uint32_t walk_step(struct walk *walk, uint64_t va, uint64_t *end,
			  uint64_t *bus)
{
	const struct m6npu_window *window;
	const struct m6npu_as *as;
	uint32_t code;

	code = walk_space(walk, va, &as);
	if (code)
		return code;
	window = find_window(as, va, end);
	if (window)
		return walk_window(walk, window, va, bus, end);
	return walk_pages(walk, as, va, bus, end);
}

/*
 * No more than one large page at a time under the lock, so that an
 * invalidation (by the socket thread) never waits for a whole operand.
 */
static uint32_t walk_chunk(struct walk *walk, uint64_t *va, uint64_t end,
			   struct m6_pieces *pieces)
{
	uint64_t stop = *va - *va % LARGE_BYTES + LARGE_BYTES;
	uint32_t code = 0;

	if (stop > end)
		stop = end;
	pthread_mutex_lock(&walk->tlb->lock);
	while (!code && *va < stop) {
		uint64_t step = stop, bus;

		code = walk_step(walk, *va, &step, &bus);
		if (code)
			break;
		if (m6_pieces_add(pieces, bus, step - *va))
			code = walk_fail(walk, M6NPU_EXC_DMA_ERROR, *va);
		*va = step;
	}
	pthread_mutex_unlock(&walk->tlb->lock);
	return code;
}

/* Takes one of the injected faults, if there is any. */
static bool take_injected(struct m6_mmu *mmu)
{
	unsigned int left = atomic_load(&mmu->inject_fault);

	while (left)
		if (atomic_compare_exchange_weak(&mmu->inject_fault, &left,
						 left - 1))
			return true;
	return false;
}

uint32_t m6_mmu_translate(struct m6_mmu *mmu, unsigned int ring,
			  unsigned int asid, uint64_t va, uint64_t bytes,
			  bool write, struct m6_pieces *pieces,
			  uint64_t *walks, uint64_t *fault)
{
	struct walk walk = {
		.mmu = mmu, .tlb = &mmu->tlb[ring], .asid = asid,
		.write = write,
	};
	uint32_t code = 0;
	uint64_t end;

	*fault = va;
	if (!asid || asid >= M6NPU_ADDRESS_SPACES || take_injected(mmu))
		return M6NPU_EXC_MMU_PAGE_FAULT;
	if (va >= VA_END || bytes > VA_END - va)
		return M6NPU_EXC_MMU_PAGE_FAULT;
	end = va + bytes;
	while (!code && va < end)
		code = walk_chunk(&walk, &va, end, pieces);
	atomic_fetch_add(&mmu->hits, walk.hits);
	atomic_fetch_add(&mmu->misses, walk.misses);
	*walks += walk.misses;
	*fault = walk.fault;
	return code;
}

uint32_t m6_mmu_address_space(struct m6_mmu *mmu, unsigned int ring,
			      unsigned int asid, struct m6npu_as *as)
{
	struct walk walk = { .mmu = mmu, .tlb = &mmu->tlb[ring], .asid = asid };
	const struct m6npu_as *found;
	uint32_t code;

	if (!asid || asid >= M6NPU_ADDRESS_SPACES)
		return M6NPU_EXC_MMU_PAGE_FAULT;
	pthread_mutex_lock(&walk.tlb->lock);
	code = walk_space(&walk, 0, &found);
	if (!code)
		*as = *found;
	pthread_mutex_unlock(&walk.tlb->lock);
	return code;
}
