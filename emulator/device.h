/* SPDX-License-Identifier: MIT */
/*
 * The device without its transport: what the vfio-user server drives for
 * QEMU, and what unit tests, fuzzers and the in-process model runner drive
 * directly.
 *
 *	m6_profile_default(&profile);
 *	dev = m6_device_create(&(struct m6_device_config){ .profile = &profile });
 *	m6_device_dma_map(dev, 0, bytes, host, M6_DMA_READ | M6_DMA_WRITE,
 *			  NULL, NULL);
 *	m6_device_reg_write(dev, M6NPU_RING_BLOCK(0) + M6NPU_RING_DOORBELL, 1);
 *	m6_device_wait_idle(dev, 1000);
 *	m6_device_destroy(dev);
 *
 * Every function may be called from any thread and returns promptly: work is
 * done by the rings' worker threads, and none of these waits for one, save
 * m6_device_wait_idle() and m6_device_destroy().
 */
#ifndef M6_DEVICE_H
#define M6_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "m6npu_regs.h"
#include "profile.h"
#include "stuck.h"

struct m6_device;

struct m6_device_config {
	const struct m6_profile *profile;	/* copied */
	bool dry;		/* charge time, compute nothing */
	unsigned int threads;	/* for one command's arithmetic, 0: all CPUs */
	/* Raises an MSI-X vector. Called from any thread; must not block. */
	void (*irq)(void *opaque, unsigned int vector);
	void *irq_opaque;
};

/* NULL: out of memory or threads. */
struct m6_device *m6_device_create(const struct m6_device_config *config);
void m6_device_destroy(struct m6_device *dev);

/* Who gets the vectors from now on. */
void m6_device_set_irq(struct m6_device *dev,
		       void (*irq)(void *opaque, unsigned int vector),
		       void *opaque);

/*
 * BARs. An access outside its BAR is -EINVAL; one that the registers don't
 * understand (not 32 bits, not aligned) reads 0 and writes nothing.
 */
uint64_t m6_device_bar_size(unsigned int bar);
int m6_device_mmio_read(struct m6_device *dev, unsigned int bar,
			uint64_t offset, void *data, size_t bytes);
int m6_device_mmio_write(struct m6_device *dev, unsigned int bar,
			 uint64_t offset, const void *data, size_t bytes);
uint32_t m6_device_reg_read(struct m6_device *dev, uint32_t offset);
void m6_device_reg_write(struct m6_device *dev, uint32_t offset,
			 uint32_t value);

/* Configuration space, 4096 bytes. Outside: -EINVAL. */
#define M6_CONFIG_SIZE	4096
int m6_device_config_read(struct m6_device *dev, uint64_t offset, void *data,
			  size_t bytes);
int m6_device_config_write(struct m6_device *dev, uint64_t offset,
			   const void *data, size_t bytes);

/*
 * Memory the device may reach. @release is called with @opaque once no command
 * uses @host any more, which may be long after the unmap, and also on failure.
 */
#define M6_DMA_READ	(1u << 0)
#define M6_DMA_WRITE	(1u << 1)
int m6_device_dma_map(struct m6_device *dev, uint64_t addr, uint64_t bytes,
		      void *host, uint32_t flags,
		      void (*release)(void *opaque), void *opaque);
int m6_device_dma_unmap(struct m6_device *dev, uint64_t addr, uint64_t bytes);
void m6_device_dma_clear(struct m6_device *dev);

/* As by CTRL.RESET, FLR or VFIO: STATUS.READY tells when it is done. */
void m6_device_reset(struct m6_device *dev);

/* True once no ring has anything to do, or only waits for experts. */
bool m6_device_wait_idle(struct m6_device *dev, unsigned int timeout_ms);

/* Faults on request. -EINVAL: no such ring or vector. */
int m6_device_inject_hang(struct m6_device *dev, unsigned int ring);
void m6_device_inject_mmu_fault(struct m6_device *dev);
int m6_device_inject_lost_irq(struct m6_device *dev, unsigned int vector);
int m6_device_inject_spurious_irq(struct m6_device *dev, unsigned int vector);
int m6_device_inject_link(struct m6_device *dev, unsigned int speed,
			  unsigned int width);
/* -EINVAL no such bit or value; -ENOSPC too many. Outlives a reset. */
int m6_device_inject_stuck_bit(struct m6_device *dev,
			       const struct m6_stuck_bit *bit);
/* -ENOENT: it was not stuck. */
int m6_device_heal_stuck_bit(struct m6_device *dev, uint64_t addr,
			     unsigned int bit);
void m6_device_inject_temp(struct m6_device *dev, int32_t millidegrees);
void m6_device_inject_drift(struct m6_device *dev, int32_t millidegrees);
/*
 * Lets device time pass with nothing running. To a ring that waits for an
 * expert it counts: it goes on at the time of its resume.
 */
void m6_device_advance(struct m6_device *dev, uint64_t ns);

/* What the control socket's `status` says, as one line of JSON. */
int m6_device_status_json(struct m6_device *dev, char *text, size_t bytes);

#endif
