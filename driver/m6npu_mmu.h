/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_MMU_H
#define M6NPU_MMU_H

#include <linux/dma-direction.h>
#include <linux/dma-resv.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include <drm/drm_mm.h>

#include "m6npu_regs.h"

struct m6npu_bo;
struct m6npu_device;

/**
 * struct m6npu_mmu - the device's address spaces
 */
struct m6npu_mmu {
	/** @lock: protects @vms, @gone and the mappings of tables */
	struct mutex lock;
	/** @vms: address spaces by number, 1..M6NPU_ADDRESS_SPACES - 1 */
	struct xarray vms;
	/** @reaper: frees buffers that jobs outlived */
	struct workqueue_struct *reaper;
	/** @gone: the device is */
	bool gone;
};

/**
 * struct m6npu_table - memory the device walks: a page or expert table; or
 * counts in
 */
struct m6npu_table {
	/** @cpu: entries */
	void *cpu;
	/** @dma: bus address of @cpu */
	dma_addr_t dma;
	/** @size: bytes, 0 if there is no table */
	size_t size;
	/** @direction: who writes it */
	enum dma_data_direction direction;
	/** @users: pages of ranges prepared in it (second-level page tables) */
	unsigned int users;
	/** @mapped: @dma is valid; false once the device is gone */
	bool mapped;
};

/**
 * struct m6npu_vm_window - one of the windows of an address space
 */
struct m6npu_vm_window {
	/** @bo: buffer it shows, NULL if it is free */
	struct m6npu_bo *bo;
	/** @start: device address */
	u64 start;
	/** @size: bytes */
	u64 size;
};

/**
 * struct m6npu_vm - an address space of the device
 *
 * Referenced by its context, and by each buffer and job in it.
 *
 * Lock order: @gate, @resv, &m6npu_pool.lock, @lock.
 */
struct m6npu_vm {
	/** @ref: see m6npu_vm_get() */
	struct kref ref;
	/** @m6npu: the device */
	struct m6npu_device *m6npu;
	/** @asid: its number */
	u32 asid;
	/** @pid: of the process that made it, for debugfs */
	pid_t pid;
	/** @comm: its name then */
	char comm[TASK_COMM_LEN];
	/** @gate: held while a job is queued, or to hold jobs back */
	struct mutex gate;
	/** @resv: reservation of all buffers here; jobs add their fences */
	struct dma_resv resv;
	/** @unready: pieces of buffers that were not used yet */
	atomic_t unready;

	/** @lock: protects the following members */
	struct mutex lock;
	/** @mm: device addresses that are taken */
	struct drm_mm mm;
	/** @pgd: first-level table */
	struct m6npu_table pgd;
	/** @tables: second-level &struct m6npu_table by first-level entry */
	struct xarray tables;
	/** @windows: what they map */
	struct m6npu_vm_window windows[M6NPU_WINDOWS];
	/** @experts: expert table; written under &m6npu_experts.lock too */
	struct m6npu_table experts;
	/** @layer_stats: its layers' counters, the device's; likewise */
	struct m6npu_table layer_stats;

	/** @dying_lock: protects @dying */
	spinlock_t dying_lock;
	/** @dying: &m6npu_bo.dying of freed buffers that jobs may still use */
	struct list_head dying;
	/** @reap_work: frees them when the jobs ended; holds a reference */
	struct work_struct reap_work;
};

int m6npu_mmu_init(struct m6npu_device *m6npu);
void m6npu_mmu_fini(struct m6npu_device *m6npu);

struct m6npu_vm *m6npu_vm_create(struct m6npu_device *m6npu);
struct m6npu_vm *m6npu_vm_get(struct m6npu_vm *vm);
void m6npu_vm_put(struct m6npu_vm *vm);

bool m6npu_vm_is_idle(struct m6npu_vm *vm);
void m6npu_vm_wait_idle(struct m6npu_vm *vm);

int m6npu_vm_hold(struct m6npu_vm *vm, bool drain);
void m6npu_vm_let_go(struct m6npu_vm *vm);

int m6npu_vm_reserve(struct m6npu_vm *vm, struct drm_mm_node *node, u64 size,
		     u64 align, bool fixed, u64 addr);
void m6npu_vm_release(struct m6npu_vm *vm, struct drm_mm_node *node);
int m6npu_vm_prepare(struct m6npu_vm *vm, const struct drm_mm_node *node,
		     bool large);
void m6npu_vm_write(struct m6npu_vm *vm, u64 va, u64 size, dma_addr_t dma,
		    bool writable);
void m6npu_vm_invalidate(struct m6npu_vm *vm);
int m6npu_vm_map(struct m6npu_vm *vm, const struct drm_mm_node *node,
		 dma_addr_t dma, bool writable);
void m6npu_vm_unmap(struct m6npu_vm *vm, const struct drm_mm_node *node,
		    bool used);

int m6npu_vm_set_experts(struct m6npu_vm *vm, u32 layers, u32 experts);

int m6npu_table_alloc(struct m6npu_device *m6npu, struct m6npu_table *table,
		      size_t size, enum dma_data_direction direction);
void m6npu_table_sync(struct m6npu_device *m6npu,
		      const struct m6npu_table *table, size_t offset,
		      size_t size);
void m6npu_table_look(struct m6npu_device *m6npu,
		      const struct m6npu_table *table, size_t offset,
		      size_t size);
void m6npu_table_free(struct m6npu_device *m6npu, struct m6npu_table *table);

#endif
