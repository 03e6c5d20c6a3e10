// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Address spaces
 *
 * Each open file has an address space of 38 bits. The device knows 64 of
 * them by number; number 0 is never valid, so 63 files can be open at a time.
 * The first MiB is never mapped, so that small offsets from a null address
 * fault.
 *
 * A first-level table of 8192 entries exists as long as the address space
 * does. A second-level table comes with the first range that is prepared for
 * small pages in its 32 MiB and goes with the last. Where a range covers all of
 * a first-level entry, its memory will always be aligned and the firmware can,
 * that entry maps 32 MiB at once.
 *
 * So what needs memory is done once, in m6npu_vm_prepare(), and whether a range
 * has large pages does not change afterwards. Entries are written later, piece
 * by piece as memory is used, and again when it is moved; that cannot fail.
 *
 * The device caches translations, but only valid ones. So mapping what was not
 * mapped needs no invalidation; the rest does, and it is done before memory is
 * reused, jobs go on after a move, or a list is believed immutable.
 *
 * Tables are ordinary pages, mapped for streaming DMA. Coherent memory would
 * be taken out of the contiguous area that pools live on, and cut it up.
 *
 * When the device goes while files are open, address spaces stay as they are,
 * but nothing of them is written or mapped any more. Everything that is under
 * drm_dev_enter() can rely on the mappings; m6npu_mmu_fini() comes after.
 */

#include <linux/dma-mapping.h>
#include <linux/gfp.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include <drm/drm_drv.h>
#include <drm/drm_managed.h>
#include <drm/drm_print.h>

#include "m6npu_device.h"
#include "m6npu_gem.h"
#include "m6npu_mmu.h"
#include "m6npu_pt.h"

/* Entries of the first level that point to a table allow what that allows. */
#define PTE_TABLE	(M6NPU_PTE_VALID | M6NPU_PTE_READ | M6NPU_PTE_WRITE)
/* How long jobs are waited for while others are held back. */
#define HOLD_TIMEOUT	msecs_to_jiffies(2000)

/* ---- Tables ---- */

int m6npu_table_alloc(struct m6npu_device *m6npu, struct m6npu_table *table,
		      size_t size, enum dma_data_direction direction)
{
	struct device *dev = m6npu->drm.dev;
	void *cpu;
	dma_addr_t dma;

	if (m6npu_fault_due(m6npu))
		return -ENOMEM;
	cpu = alloc_pages_exact(size, GFP_KERNEL_ACCOUNT | __GFP_ZERO |
				__GFP_NOWARN);
	if (!cpu)
		return -ENOMEM;
	dma = dma_map_single(dev, cpu, size, direction);
	if (dma_mapping_error(dev, dma)) {
		free_pages_exact(cpu, size);
		return -ENOMEM;
	}
	*table = (struct m6npu_table) {
		.cpu = cpu, .dma = dma, .size = size, .direction = direction,
		.mapped = true,
	};
	return 0;
}

static void table_unmap(struct m6npu_device *m6npu, struct m6npu_table *table)
{
	if (table->mapped)
		dma_unmap_single(m6npu->drm.dev, table->dma, table->size,
				 table->direction);
	table->mapped = false;
}

void m6npu_table_free(struct m6npu_device *m6npu, struct m6npu_table *table)
{
	if (!table->size)
		return;
	table_unmap(m6npu, table);
	free_pages_exact(table->cpu, table->size);
	table->size = 0;
}

/* Lets the device see what was written. */
void m6npu_table_sync(struct m6npu_device *m6npu,
		      const struct m6npu_table *table, size_t offset,
		      size_t size)
{
	int idx;

	dma_wmb();
	if (!drm_dev_enter(&m6npu->drm, &idx))
		return;
	dma_sync_single_range_for_device(m6npu->drm.dev, table->dma, offset,
					 size, table->direction);
	drm_dev_exit(idx);
}

/*
 * Lets us see what the device wrote. It is not given back, since nothing is
 * written here: the device never stops counting.
 */
void m6npu_table_look(struct m6npu_device *m6npu,
		      const struct m6npu_table *table, size_t offset,
		      size_t size)
{
	int idx;

	if (!drm_dev_enter(&m6npu->drm, &idx))
		return;
	dma_sync_single_range_for_cpu(m6npu->drm.dev, table->dma, offset, size,
				      table->direction);
	drm_dev_exit(idx);
}

/* Page tables must be aligned to their size. */
static int pt_alloc(struct m6npu_device *m6npu, struct m6npu_table *table)
{
	int err;

	err = m6npu_table_alloc(m6npu, table, M6NPU_PT_SIZE, DMA_TO_DEVICE);
	if (err)
		return err;
	if (IS_ALIGNED(table->dma, M6NPU_PT_SIZE))
		return 0;
	m6npu_table_free(m6npu, table);
	return -ENOMEM;
}

/* Entries [@first, @first + @count), of memory from @pa on; 0 clears them. */
static void pt_write(struct m6npu_device *m6npu, struct m6npu_table *table,
		     unsigned int first, unsigned int count, u64 pa, u64 flags)
{
	__le64 *entry = table->cpu;
	unsigned int i;

	for (i = 0; i < count; i++) {
		u64 value = flags ? m6npu_pt_entry(pa, flags) : 0;

		WRITE_ONCE(entry[first + i], cpu_to_le64(value));
		pa += M6NPU_PAGE_SIZE;
	}
	m6npu_table_sync(m6npu, table, first * sizeof(*entry),
			 count * sizeof(*entry));
}

/* ---- Mapping ---- */

static u64 node_end(const struct drm_mm_node *node)
{
	return node->start + node->size;
}

static void vm_free_table(struct m6npu_vm *vm, unsigned int slot)
{
	struct m6npu_table *table = xa_erase(&vm->tables, slot);

	m6npu_table_free(vm->m6npu, table);
	kfree(table);
}

static int vm_add_table(struct m6npu_vm *vm, unsigned int slot)
{
	struct m6npu_table *table;
	int err;

	if (m6npu_fault_due(vm->m6npu))
		return -ENOMEM;
	table = kzalloc(sizeof(*table), GFP_KERNEL_ACCOUNT);
	if (!table)
		return -ENOMEM;
	err = pt_alloc(vm->m6npu, table);
	if (err)
		goto err_free;
	err = xa_err(xa_store(&vm->tables, slot, table, GFP_KERNEL_ACCOUNT));
	if (err)
		goto err_table;
	return 0;

err_table:
	m6npu_table_free(vm->m6npu, table);
err_free:
	kfree(table);
	return err;
}

static int vm_get_table(struct m6npu_vm *vm, unsigned int slot,
			unsigned int count)
{
	struct m6npu_table *table = xa_load(&vm->tables, slot);
	int err;

	if (!table) {
		err = vm_add_table(vm, slot);
		if (err)
			return err;
		table = xa_load(&vm->tables, slot);
		pt_write(vm->m6npu, &vm->pgd, slot, 1, table->dma, PTE_TABLE);
	}
	table->users += count;
	return 0;
}

/* True if tables lost their last user. Large pages have no table. */
static bool vm_put_tables(struct m6npu_vm *vm, u64 start, u64 end)
{
	bool dead = false;
	u64 va, span;

	for (va = start; va < end; va += span) {
		unsigned int slot = m6npu_pt_slot(va);
		struct m6npu_table *table = xa_load(&vm->tables, slot);

		span = m6npu_pt_span(va, end);
		if (!table)
			continue;
		table->users -= span >> M6NPU_PAGE_SHIFT;
		if (table->users)
			continue;
		pt_write(vm->m6npu, &vm->pgd, slot, 1, 0, 0);
		dead = true;
	}
	return dead;
}

/* Frees the tables in the range that nobody uses. The device has let go. */
static void vm_free_tables(struct m6npu_vm *vm, u64 start, u64 end)
{
	u64 va;

	for (va = start; va < end; va += m6npu_pt_span(va, end)) {
		unsigned int slot = m6npu_pt_slot(va);
		struct m6npu_table *table = xa_load(&vm->tables, slot);

		if (table && !table->users)
			vm_free_table(vm, slot);
	}
}

/* @used: entries were written. Else the device may know tables at most. */
static void vm_unprepare(struct m6npu_vm *vm, u64 start, u64 end, bool used)
{
	bool dead = vm_put_tables(vm, start, end);

	if (used || dead)
		m6npu_as_invalidate(vm->m6npu, vm->asid);
	if (dead)
		vm_free_tables(vm, start, end);
}

/**
 * m6npu_vm_prepare - make ready for mapping
 * @vm: address space
 * @node: reserved device addresses
 * @large: memory will be aligned to 32 MiB just as the addresses are
 *
 * Call it inside drm_dev_enter().
 *
 * Return: 0 or -ENOMEM.
 */
int m6npu_vm_prepare(struct m6npu_vm *vm, const struct drm_mm_node *node,
		     bool large)
{
	u64 va, span;
	int err;

	if (!(vm->m6npu->features & M6NPU_FEAT_LARGE_PAGES))
		large = false;
	guard(mutex)(&vm->lock);
	for (va = node->start; va < node_end(node); va += span) {
		span = m6npu_pt_span(va, node_end(node));
		if (large && m6npu_pt_fits_large(va, 0, span))
			continue;
		err = vm_get_table(vm, m6npu_pt_slot(va),
				   span >> M6NPU_PAGE_SHIFT);
		if (err) {
			vm_unprepare(vm, node->start, va, false);
			return err;
		}
	}
	return 0;
}

/**
 * m6npu_vm_write - map contiguous memory, for the first time or elsewhere
 * @vm: address space
 * @va: device address, in what was prepared
 * @size: bytes; large pages as a whole
 * @dma: bus address of the memory
 * @writable: the device may write
 *
 * What was mapped before stays in effect until m6npu_vm_invalidate().
 */
void m6npu_vm_write(struct m6npu_vm *vm, u64 va, u64 size, dma_addr_t dma,
		    bool writable)
{
	u64 flags = M6NPU_PTE_VALID | M6NPU_PTE_READ |
		    (writable ? M6NPU_PTE_WRITE : 0);
	u64 end = va + size, span;

	guard(mutex)(&vm->lock);
	for (; va < end; va += span, dma += span) {
		unsigned int slot = m6npu_pt_slot(va);
		struct m6npu_table *table = xa_load(&vm->tables, slot);

		span = m6npu_pt_span(va, end);
		if (table)
			pt_write(vm->m6npu, table, m6npu_pt_index(va),
				 span >> M6NPU_PAGE_SHIFT, dma, flags);
		else
			pt_write(vm->m6npu, &vm->pgd, slot, 1, dma,
				 flags | M6NPU_PTE_LARGE);
	}
}

/* When this returns the device acts as the tables say. */
void m6npu_vm_invalidate(struct m6npu_vm *vm)
{
	m6npu_as_invalidate(vm->m6npu, vm->asid);
}

static void vm_clear(struct m6npu_vm *vm, const struct drm_mm_node *node)
{
	u64 va, span;

	for (va = node->start; va < node_end(node); va += span) {
		unsigned int slot = m6npu_pt_slot(va);
		struct m6npu_table *table = xa_load(&vm->tables, slot);

		span = m6npu_pt_span(va, node_end(node));
		if (table)
			pt_write(vm->m6npu, table, m6npu_pt_index(va),
				 span >> M6NPU_PAGE_SHIFT, 0, 0);
		else
			pt_write(vm->m6npu, &vm->pgd, slot, 1, 0, 0);
	}
}

/**
 * m6npu_vm_map - map contiguous memory where nothing is mapped
 * @vm: address space
 * @node: reserved device addresses
 * @dma: bus address of the memory
 * @writable: the device may write
 *
 * For memory that is never moved. Call it inside drm_dev_enter().
 *
 * Return: 0 or -ENOMEM.
 */
int m6npu_vm_map(struct m6npu_vm *vm, const struct drm_mm_node *node,
		 dma_addr_t dma, bool writable)
{
	int err;

	err = m6npu_vm_prepare(vm, node,
			       IS_ALIGNED(node->start | dma,
					  M6NPU_LARGE_PAGE_SIZE));
	if (!err)
		m6npu_vm_write(vm, node->start, node->size, dma, writable);
	return err;
}

/**
 * m6npu_vm_unmap - undo m6npu_vm_prepare() and what came after
 * @vm: address space
 * @node: device addresses
 * @used: m6npu_vm_write() was called
 *
 * When this returns no job can begin to use the memory. Those that run may
 * still be at it.
 */
void m6npu_vm_unmap(struct m6npu_vm *vm, const struct drm_mm_node *node,
		    bool used)
{
	int idx;

	guard(mutex)(&vm->lock);
	if (used)
		vm_clear(vm, node);
	/* Tables stay until the address space goes if the device is gone. */
	if (!drm_dev_enter(&vm->m6npu->drm, &idx))
		return;
	vm_unprepare(vm, node->start, node_end(node), used);
	drm_dev_exit(idx);
}

/**
 * m6npu_vm_reserve - find device addresses
 * @vm: address space
 * @node: to insert, zeroed
 * @size: bytes, a multiple of the page size
 * @align: of the address, a power of two
 * @fixed: at @addr and nowhere else
 * @addr: where, if @fixed; aligned, and inside the address space
 *
 * Return: 0, -EADDRINUSE if @addr is taken, -ENOMEM if nothing is free.
 */
int m6npu_vm_reserve(struct m6npu_vm *vm, struct drm_mm_node *node, u64 size,
		     u64 align, bool fixed, u64 addr)
{
	int err;

	guard(mutex)(&vm->lock);
	if (fixed) {
		node->start = addr;
		node->size = size;
		err = drm_mm_reserve_node(&vm->mm, node);
		return err == -ENOSPC ? -EADDRINUSE : err;
	}
	err = drm_mm_insert_node_generic(&vm->mm, node, size, align, 0,
					 DRM_MM_INSERT_BEST);
	return err == -ENOSPC ? -ENOMEM : err;
}

void m6npu_vm_release(struct m6npu_vm *vm, struct drm_mm_node *node)
{
	guard(mutex)(&vm->lock);
	drm_mm_remove_node(node);
}

/* ---- Holding jobs back ---- */

/**
 * m6npu_vm_hold - let no job of an address space begin, and none be running
 * @vm: address space
 * @drain: wait for those that are queued; else fail if there are any
 *
 * New jobs wait in SUBMIT. Everything else goes on, so that a job that waits for
 * an expert gets it.
 *
 * Return: 0, then call m6npu_vm_let_go(); -EBUSY there are jobs; -ETIME they do
 * not end; -EINTR.
 */
int m6npu_vm_hold(struct m6npu_vm *vm, bool drain)
{
	long left = 1;
	int err;

	err = mutex_lock_interruptible(&vm->gate);
	if (err)
		return err;
	if (m6npu_vm_is_idle(vm))
		return 0;
	if (drain)
		left = dma_resv_wait_timeout(&vm->resv, DMA_RESV_USAGE_BOOKKEEP,
					     true, HOLD_TIMEOUT);
	if (drain && left > 0)
		return 0;
	mutex_unlock(&vm->gate);
	if (!drain)
		return -EBUSY;
	return left ? -EINTR : -ETIME;
}

void m6npu_vm_let_go(struct m6npu_vm *vm)
{
	mutex_unlock(&vm->gate);
}

/* ---- Expert table ---- */

static int vm_alloc_experts(struct m6npu_vm *vm, u32 layers, u32 experts,
			    struct m6npu_table *table,
			    struct m6npu_table *stats)
{
	int err;

	err = m6npu_table_alloc(vm->m6npu, table,
				array3_size(layers, experts,
					    sizeof(struct m6npu_expert)),
				DMA_TO_DEVICE);
	if (err)
		return err;
	/* The device adds to what is there. */
	err = m6npu_table_alloc(vm->m6npu, stats,
				array_size(layers,
					   sizeof(struct m6npu_layer_stats)),
				DMA_BIDIRECTIONAL);
	if (err)
		m6npu_table_free(vm->m6npu, table);
	return err;
}

/**
 * m6npu_vm_set_experts - give the address space an expert table, or none
 * @vm: address space without jobs, its reservation locked
 * @layers: number of layers, 0 for no table
 * @experts: experts of each layer
 *
 * Its counters come and go with it. Call it inside drm_dev_enter().
 *
 * Return: 0 or -ENOMEM.
 */
int m6npu_vm_set_experts(struct m6npu_vm *vm, u32 layers, u32 experts)
{
	struct m6npu_as *as = &vm->m6npu->as_table[vm->asid];
	struct m6npu_table table = {}, stats = {};
	int err;

	dma_resv_assert_held(&vm->resv);
	if (layers) {
		err = vm_alloc_experts(vm, layers, experts, &table, &stats);
		if (err)
			return err;
	}

	guard(mutex)(&vm->lock);
	as->expert_table = 0;
	as->expert_layers = cpu_to_le16(layers);
	as->experts_per_layer = cpu_to_le16(experts);
	as->layer_stats = cpu_to_le64(layers ? stats.dma : 0);
	dma_wmb();
	as->expert_table = cpu_to_le64(layers ? table.dma : 0);
	m6npu_as_invalidate(vm->m6npu, vm->asid);

	m6npu_table_free(vm->m6npu, &vm->experts);
	m6npu_table_free(vm->m6npu, &vm->layer_stats);
	vm->experts = table;
	vm->layer_stats = stats;
	return 0;
}

/* ---- Life of an address space ---- */

/* No job of this address space is queued or running. */
bool m6npu_vm_is_idle(struct m6npu_vm *vm)
{
	return dma_resv_test_signaled(&vm->resv, DMA_RESV_USAGE_BOOKKEEP);
}

/*
 * Waits for the jobs that were queued at the call, which all end in time; and,
 * if buffers were exported, for what other devices do with them.
 */
void m6npu_vm_wait_idle(struct m6npu_vm *vm)
{
	dma_resv_wait_timeout(&vm->resv, DMA_RESV_USAGE_BOOKKEEP, false,
			      MAX_SCHEDULE_TIMEOUT);
}

static void vm_publish(struct m6npu_vm *vm)
{
	struct m6npu_as *as = &vm->m6npu->as_table[vm->asid];

	memset(as, 0, sizeof(*as));
	as->pgd = cpu_to_le64(vm->pgd.dma);
	dma_wmb();
	WRITE_ONCE(as->valid, cpu_to_le32(1));
}

static void vm_withdraw(struct m6npu_vm *vm)
{
	struct m6npu_as *as = &vm->m6npu->as_table[vm->asid];

	WRITE_ONCE(as->valid, 0);
	dma_wmb();
	m6npu_as_invalidate(vm->m6npu, vm->asid);
}

static void vm_free(struct m6npu_vm *vm)
{
	struct m6npu_table *table;
	unsigned long slot;

	xa_for_each(&vm->tables, slot, table)
		vm_free_table(vm, slot);
	xa_destroy(&vm->tables);
	m6npu_table_free(vm->m6npu, &vm->experts);
	m6npu_table_free(vm->m6npu, &vm->layer_stats);
	m6npu_table_free(vm->m6npu, &vm->pgd);
	drm_mm_takedown(&vm->mm);
	dma_resv_fini(&vm->resv);
	mutex_destroy(&vm->lock);
	mutex_destroy(&vm->gate);
	kfree(vm);
}

static struct m6npu_vm *vm_alloc(struct m6npu_device *m6npu)
{
	struct m6npu_vm *vm;
	int err;

	if (m6npu_fault_due(m6npu))
		return ERR_PTR(-ENOMEM);
	vm = kzalloc(sizeof(*vm), GFP_KERNEL);
	if (!vm)
		return ERR_PTR(-ENOMEM);
	vm->m6npu = m6npu;
	kref_init(&vm->ref);
	vm->pid = task_tgid_nr(current);
	get_task_comm(vm->comm, current);
	dma_resv_init(&vm->resv);
	mutex_init(&vm->gate);
	mutex_init(&vm->lock);
	drm_mm_init(&vm->mm, M6NPU_VA_START,
		    M6NPU_VA_SIZE - M6NPU_VA_START);
	xa_init(&vm->tables);
	spin_lock_init(&vm->dying_lock);
	INIT_LIST_HEAD(&vm->dying);
	INIT_WORK(&vm->reap_work, m6npu_bo_reap);

	err = pt_alloc(m6npu, &vm->pgd);
	if (err) {
		vm_free(vm);
		return ERR_PTR(err);
	}
	return vm;
}

static struct m6npu_vm *vm_create(struct m6npu_device *m6npu)
{
	struct m6npu_mmu *mmu = &m6npu->mmu;
	struct m6npu_vm *vm;
	int err;

	vm = vm_alloc(m6npu);
	if (IS_ERR(vm))
		return vm;

	guard(mutex)(&mmu->lock);
	err = xa_alloc(&mmu->vms, &vm->asid, vm,
		       XA_LIMIT(1, M6NPU_ADDRESS_SPACES - 1), GFP_KERNEL);
	if (err) {
		vm_free(vm);
		return ERR_PTR(err);
	}
	vm_publish(vm);
	return vm;
}

/**
 * m6npu_vm_create - a new address space
 * @m6npu: the device
 *
 * Return: the address space, or an error: -EBUSY if the device has no number
 * left, -ENOMEM, -ENODEV.
 */
struct m6npu_vm *m6npu_vm_create(struct m6npu_device *m6npu)
{
	struct m6npu_vm *vm;
	int idx;

	if (!drm_dev_enter(&m6npu->drm, &idx))
		return ERR_PTR(-ENODEV);
	vm = vm_create(m6npu);
	drm_dev_exit(idx);
	return vm;
}

struct m6npu_vm *m6npu_vm_get(struct m6npu_vm *vm)
{
	kref_get(&vm->ref);
	return vm;
}

static void vm_destroy(struct kref *ref)
{
	struct m6npu_vm *vm = container_of(ref, struct m6npu_vm, ref);
	struct m6npu_mmu *mmu = &vm->m6npu->mmu;

	guard(mutex)(&mmu->lock);
	if (!mmu->gone)
		vm_withdraw(vm);
	xa_erase(&mmu->vms, vm->asid);
	vm_free(vm);
}

/* May sleep. */
void m6npu_vm_put(struct m6npu_vm *vm)
{
	kref_put(&vm->ref, vm_destroy);
}

/* ---- The device's part ---- */

static void mmu_destroy_reaper(struct drm_device *drm, void *reaper)
{
	destroy_workqueue(reaper);
}

/*
 * After the schedulers: the work queue waits for jobs, so it must be destroyed
 * before them.
 */
int m6npu_mmu_init(struct m6npu_device *m6npu)
{
	struct m6npu_mmu *mmu = &m6npu->mmu;

	mutex_init(&mmu->lock);
	xa_init_flags(&mmu->vms, XA_FLAGS_ALLOC1);
	mmu->gone = false;
	/* Each address space has one work, which may wait for its jobs. */
	mmu->reaper = alloc_workqueue("m6npu-reaper", WQ_UNBOUND, 0);
	if (!mmu->reaper)
		return -ENOMEM;
	return drmm_add_action_or_reset(&m6npu->drm, mmu_destroy_reaper,
					mmu->reaper);
}

static void vm_unmap_tables(struct m6npu_vm *vm)
{
	struct m6npu_table *table;
	unsigned long slot;

	table_unmap(vm->m6npu, &vm->pgd);
	table_unmap(vm->m6npu, &vm->experts);
	table_unmap(vm->m6npu, &vm->layer_stats);
	xa_for_each(&vm->tables, slot, table)
		table_unmap(vm->m6npu, table);
}

/*
 * When the device goes: after the unplug and the end of all jobs, before the
 * address-space table is freed.
 */
void m6npu_mmu_fini(struct m6npu_device *m6npu)
{
	struct m6npu_mmu *mmu = &m6npu->mmu;
	struct m6npu_vm *vm;
	unsigned long asid;

	flush_workqueue(mmu->reaper);
	guard(mutex)(&mmu->lock);
	mmu->gone = true;
	xa_for_each(&mmu->vms, asid, vm)
		vm_unmap_tables(vm);
}
