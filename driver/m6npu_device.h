/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_DEVICE_H
#define M6NPU_DEVICE_H

#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/workqueue.h>

#include <drm/drm_device.h>

#include "m6npu_coredump.h"
#include "m6npu_exception.h"
#include "m6npu_fault.h"
#include "m6npu_gem.h"
#include "m6npu_mmu.h"
#include "m6npu_pool.h"
#include "m6npu_regs.h"
#include "m6npu_ring.h"
#include "m6npu_router.h"
#include "m6npu_thermal.h"

struct dentry;

/* Default of debugfs moe_loader/max_chunk_size_kb. */
#define M6NPU_MAX_CHUNK_KB_DEFAULT	1843200
/* Width of bus addresses, M6NPU_PTE_ADDR_MASK. */
#define M6NPU_DMA_BITS			48

/* Unusable until it is bound again; set once, never cleared. */
#define M6NPU_STATE_LOST		0

/**
 * struct m6npu_device - one NPU
 *
 * Lock order, outermost first: &m6npu_pool.defrag_lock,
 * &m6npu_context.submit_lock, &m6npu_vm.gate, the VM's reservation,
 * &m6npu_pool.lock, &m6npu_vm.lock, @contexts_lock, &m6npu_router.lock,
 * &m6npu_ring.lock, &drm_device.event_lock. &m6npu_exceptions.drain_lock is
 * taken before @contexts_lock and never together with those before it.
 */
struct m6npu_device {
	/** @drm: the DRM device; everything here lives as long as it does */
	struct drm_device drm;
	/** @pdev: the PCI function; valid inside drm_dev_enter() only */
	struct pci_dev *pdev;
	/** @regs: BAR0; touched inside drm_dev_enter() only */
	void __iomem *regs;
	/** @read64_lock: held between the two halves of a 64-bit register */
	struct mutex read64_lock;
	/** @index: small number of this device, for debugfs; -1 if it has none */
	int index;

	/** @features: M6NPU_FEAT_* of the running firmware */
	u32 features;
	/** @fw_version: M6NPU_REG_FW_VERSION of the running firmware */
	u32 fw_version;
	/** @sram_size: bytes */
	u32 sram_size;
	/** @max_chunk_kb: what DRM_M6NPU_PARAM_MAX_CHUNK says, in KiB */
	u32 max_chunk_kb;

	/**
	 * @as_table: the device's address-space table. An entry belongs to
	 * the VM that has its number. Touched inside drm_dev_enter() only: it
	 * is freed when the driver is unbound.
	 */
	struct m6npu_as *as_table;
	/** @as_table_dma: bus address of @as_table */
	dma_addr_t as_table_dma;
	/** @mmu: address-space numbers, page-table memory */
	struct m6npu_mmu mmu;
	/** @pools: persistent pools and the areas behind all pools */
	struct m6npu_pools pools;

	/** @ring: the four units, then the DMA engine */
	struct m6npu_ring ring[M6NPU_RINGS];
	/** @unit_scheds: for each mask of units, the schedulers of its bits */
	struct drm_gpu_scheduler *unit_scheds[1 << M6NPU_UNITS][M6NPU_UNITS];
	/** @dma_sched: the DMA engine's, as a list of one */
	struct drm_gpu_scheduler *dma_sched;
	/**
	 * @recovery_wq: ordered; job timeouts, expert timeouts and resets run
	 * here, one after another
	 */
	struct workqueue_struct *recovery_wq;
	/** @settings: registers that a reset must not forget */
	u32 settings[3];
	/** @reset_work: a full reset asked for by DRM_M6NPU_RESET or debugfs */
	struct work_struct reset_work;
	/** @reset_result: of the last run of @reset_work; recovery_wq only */
	int reset_result;
	/** @state: M6NPU_STATE_* bits */
	unsigned long state;
	/** @lost_work: fails what is in flight once the device is lost */
	struct work_struct lost_work;
	/** @resets: full resets since probe */
	atomic_t resets;

	/** @coredump: what there was to see of the unit that hung last */
	struct m6npu_coredump coredump;

	/** @exceptions: the exception ring and its log */
	struct m6npu_exceptions exceptions;
	/** @router: the router cache */
	struct m6npu_router router;
	/** @thermal: throttling as told to the contexts */
	struct m6npu_thermal thermal;

	/** @contexts_lock: protects @contexts */
	struct mutex contexts_lock;
	/** @contexts: &m6npu_context.link of every open file */
	struct list_head contexts;

	/** @imports: dma-bufs of others that are mapped for the device */
	struct m6npu_imports imports;
	/** @faults: allocations that tests have fail */
	struct m6npu_faults faults;
	/** @debugfs: directory of this device's files */
	struct dentry *debugfs;
	/** @debugfs_link: link to it in the accel directory */
	struct dentry *debugfs_link;
};

static inline struct m6npu_device *to_m6npu_device(struct drm_device *drm)
{
	return container_of(drm, struct m6npu_device, drm);
}

/*
 * Registers, inside or outside drm_dev_enter(). After an unplug reads give all
 * ones and writes go nowhere, as on a dead link.
 */
u32 m6npu_read(struct m6npu_device *m6npu, u32 reg);
u64 m6npu_read64(struct m6npu_device *m6npu, u32 reg_lo);
void m6npu_write(struct m6npu_device *m6npu, u32 reg, u32 value);
void m6npu_write64(struct m6npu_device *m6npu, u32 reg_lo, u64 value);

/* Drops what the device has cached of one address space, synchronously. */
void m6npu_as_invalidate(struct m6npu_device *m6npu, u32 asid);
/* Jobs of this address space that wait for an expert look again. */
void m6npu_rings_resume(struct m6npu_device *m6npu, u32 asid);

int m6npu_device_init(struct m6npu_device *m6npu);
int m6npu_device_start(struct m6npu_device *m6npu);
void m6npu_device_save(struct m6npu_device *m6npu);
int m6npu_device_restart(struct m6npu_device *m6npu);
void m6npu_device_quiesce(struct m6npu_device *m6npu);
void m6npu_device_identify(struct m6npu_device *m6npu);

/*
 * Lost: a device that answers with all ones, or did not come back from its
 * resets. Its jobs end with -ENODEV; only a new bind makes it usable again.
 */
static inline bool m6npu_device_is_lost(struct m6npu_device *m6npu)
{
	return test_bit(M6NPU_STATE_LOST, &m6npu->state);
}

bool m6npu_device_check_lost(struct m6npu_device *m6npu);

/* m6npu_irq.c */
int m6npu_irq_init(struct m6npu_device *m6npu);

/* m6npu_param.c */
int m6npu_get_param_ioctl(struct drm_device *drm, void *data,
			  struct drm_file *file);

/* m6npu_hwmon.c */
int m6npu_hwmon_init(struct m6npu_device *m6npu);

/* m6npu_pm.c */
extern const struct dev_pm_ops m6npu_pm_ops;
int m6npu_pm_cycle(struct m6npu_device *m6npu);

/* m6npu_debugfs.c */
void m6npu_debugfs_init(struct m6npu_device *m6npu);
void m6npu_debugfs_fini(struct m6npu_device *m6npu);
void m6npu_debugfs_create(void);
void m6npu_debugfs_destroy(void);

#endif
