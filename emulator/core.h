/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the device share. Each part guards its own state by its
 * own mutex. Order, outermost first: regs, ring, then any one of TLB, router,
 * exceptions, then memory; slots, then clock; clock and irq are leaves.
 */
#ifndef M6_CORE_H
#define M6_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "clock.h"
#include "device.h"
#include "exception.h"
#include "job.h"
#include "memory.h"
#include "mmu.h"
#include "profile.h"
#include "ring.h"
#include "router.h"
#include "sram.h"

/* The device's side of MSI-X. */
struct m6_irqs {
	pthread_mutex_t lock;	/* leaf */
	void (*raise)(void *opaque, unsigned int vector);
	void *opaque;
	uint32_t mask;
	uint32_t pending;
	unsigned int lose[M6NPU_VECTORS];	/* injected: next ones to lose */
	uint64_t raised[M6NPU_VECTORS];
};

struct m6_pci {
	pthread_mutex_t lock;	/* leaf */
	uint8_t config[M6_CONFIG_SIZE];
	uint8_t writable[M6_CONFIG_SIZE];
	uint8_t initial[M6_CONFIG_SIZE];
};

struct m6_regs {
	pthread_mutex_t lock;	/* outermost; guards all below */
	uint32_t scratch;
	atomic_uint threshold;	/* read by workers, without the lock */
	uint32_t prefill_buffer;
	uint32_t router_invalidate;
	uint32_t invalidate;
	uint64_t as_table;
	uint32_t as_table_lo;	/* written, not yet in effect */
	uint64_t exc_base;
	uint32_t exc_base_lo;
	uint32_t latch[M6NPU_RING_BLOCK(0) / 4];	/* HI as of the LO read */
};

struct m6_device {
	struct m6_profile profile;
	bool dry;
	unsigned int threads;
	struct m6_memory mem;
	struct m6_mmu mmu;
	struct m6_router router;
	struct m6_sram slots;
	struct m6_exceptions exc;
	struct m6_clock clock;
	struct m6_irqs irqs;
	struct m6_regs regs;
	struct m6_pci pci;
	struct m6_ring ring[M6NPU_RINGS];
	uint8_t *sram;
	uint8_t msix[M6NPU_BAR_MSIX_SIZE];
};

/* irq.c */
void m6_irqs_init(struct m6_irqs *irqs);
void m6_irqs_destroy(struct m6_irqs *irqs);
void m6_irqs_reset(struct m6_irqs *irqs);
void m6_irq_raise(struct m6_irqs *irqs, unsigned int vector);
/* Past the mask: an injected, meaningless one. */
void m6_irq_force(struct m6_irqs *irqs, unsigned int vector);
uint32_t m6_irqs_mask(struct m6_irqs *irqs);
uint32_t m6_irqs_pending(struct m6_irqs *irqs);
void m6_irqs_set_mask(struct m6_irqs *irqs, uint32_t mask);
void m6_irqs_clear_pending(struct m6_irqs *irqs, uint32_t bits);

/* device.c. A reset by CTRL, which holds the registers' lock. */
void m6_device_reset_locked(struct m6_device *dev);
/* Fills in the time, posts and raises the right vector. */
void m6_device_exception(struct m6_device *dev,
			 struct m6npu_exception *record);
/* Exceptions for what the clock reported. */
void m6_device_clock_events(struct m6_device *dev, uint32_t events);

/* regs.c */
void m6_regs_init(struct m6_regs *regs);
void m6_regs_destroy(struct m6_regs *regs);
void m6_regs_reset(struct m6_regs *regs);	/* lock held */

/* pci.c */
void m6_pci_init(struct m6_pci *pci, const struct m6_profile *profile);
void m6_pci_destroy(struct m6_pci *pci);
void m6_pci_reset(struct m6_pci *pci);
void m6_pci_set_link(struct m6_pci *pci, uint32_t speed, uint32_t width);

#endif
