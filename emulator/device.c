// SPDX-License-Identifier: MIT
#include "device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core.h"
#include "log.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "device structures are used as the guest laid them out");
_Static_assert(M6_DMA_READ == M6_MAPPING_READ &&
	       M6_DMA_WRITE == M6_MAPPING_WRITE, "passed through as they are");

static void destroy_parts(struct m6_device *dev)
{
	for (unsigned int i = 0; i < M6NPU_RINGS; i++)
		m6_ring_destroy(&dev->ring[i]);
	m6_pci_destroy(&dev->pci);
	m6_regs_destroy(&dev->regs);
	m6_irqs_destroy(&dev->irqs);
	m6_clock_destroy(&dev->clock);
	m6_exceptions_destroy(&dev->exc);
	m6_sram_destroy(&dev->slots);
	m6_router_destroy(&dev->router);
	m6_mmu_destroy(&dev->mmu);
	m6_memory_destroy(&dev->mem);
	free(dev->sram);
	free(dev);
}

struct m6_device *m6_device_create(const struct m6_device_config *config)
{
	struct m6_device *dev = calloc(1, sizeof(*dev));
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (!dev)
		return NULL;
	dev->profile = *config->profile;
	dev->dry = config->dry;
	dev->threads = config->threads ? config->threads :
		       cpus > 0 ? (unsigned int)cpus : 1;
	m6_memory_init(&dev->mem);
	m6_mmu_init(&dev->mmu, &dev->mem,
		    dev->profile.features & M6NPU_FEAT_LARGE_PAGES);
	m6_router_init(&dev->router);
	m6_sram_init(&dev->slots, M6NPU_BAR_SRAM_SIZE);
	m6_exceptions_init(&dev->exc, &dev->mem);
	m6_clock_init(&dev->clock, &dev->profile);
	m6_irqs_init(&dev->irqs);
	m6_regs_init(&dev->regs);
	m6_pci_init(&dev->pci, &dev->profile);
	m6_device_set_irq(dev, config->irq, config->irq_opaque);
	dev->sram = calloc(1, M6NPU_BAR_SRAM_SIZE);
	if (!dev->sram)
		goto fail;
	for (unsigned int i = 0; i < M6NPU_RINGS; i++)
		if (m6_ring_init(&dev->ring[i], dev, i))
			goto fail;
	return dev;
fail:
	destroy_parts(dev);
	return NULL;
}

void m6_device_destroy(struct m6_device *dev)
{
	if (dev)
		destroy_parts(dev);
}

void m6_device_set_irq(struct m6_device *dev,
		       void (*irq)(void *opaque, unsigned int vector),
		       void *opaque)
{
	pthread_mutex_lock(&dev->irqs.lock);
	dev->irqs.raise = irq;
	dev->irqs.opaque = opaque;
	pthread_mutex_unlock(&dev->irqs.lock);
}

int m6_device_dma_map(struct m6_device *dev, uint64_t addr, uint64_t bytes,
		      void *host, uint32_t flags,
		      void (*release)(void *opaque), void *opaque)
{
	return m6_memory_map(&dev->mem, addr, bytes, host, flags, release,
			     opaque);
}

int m6_device_dma_unmap(struct m6_device *dev, uint64_t addr, uint64_t bytes)
{
	return m6_memory_unmap(&dev->mem, addr, bytes);
}

void m6_device_dma_clear(struct m6_device *dev)
{
	m6_memory_clear(&dev->mem);
}

/*
 * The rings come first: what they had under way sees its generation gone
 * before anything else changes under it.
 */
void m6_device_reset_locked(struct m6_device *dev)
{
	for (unsigned int i = 0; i < M6NPU_RINGS; i++)
		m6_ring_reset(&dev->ring[i]);
	m6_exceptions_reset(&dev->exc);
	m6_irqs_reset(&dev->irqs);
	m6_regs_reset(&dev->regs);
	m6_router_reset(&dev->router);
	m6_sram_reset(&dev->slots, M6NPU_BAR_SRAM_SIZE);
	m6_mmu_reset(&dev->mmu);
	m6_clock_reset(&dev->clock);
	m6_info("device reset");
}

void m6_device_reset(struct m6_device *dev)
{
	m6_pci_reset(&dev->pci);
	pthread_mutex_lock(&dev->regs.lock);
	m6_device_reset_locked(dev);
	pthread_mutex_unlock(&dev->regs.lock);
}

bool m6_device_wait_idle(struct m6_device *dev, unsigned int timeout_ms)
{
	for (unsigned int i = 0; i < M6NPU_RINGS; i++)
		if (!m6_ring_wait_quiet(&dev->ring[i], timeout_ms))
			return false;
	return true;
}

void m6_device_exception(struct m6_device *dev,
			 struct m6npu_exception *record)
{
	bool expert = record->code == M6NPU_EXC_EXPERT_FAULT ||
		      record->code == M6NPU_EXC_EXPERT_HINT;

	if (!m6_exceptions_post(&dev->exc, record))
		m6_guest_error("exception %s dropped, ring full or off",
			       m6_exception_name(record->code));
	m6_irq_raise(&dev->irqs, expert ? M6NPU_VEC_EXPERT : M6NPU_VEC_EVENT);
}

static void device_event(struct m6_device *dev, uint32_t code, uint64_t addr)
{
	struct m6npu_exception record = {
		.code = code,
		.addr = addr,
		.time_ns = m6_clock_now(&dev->clock),
	};

	m6_device_exception(dev, &record);
}

void m6_device_clock_events(struct m6_device *dev, uint32_t events)
{
	struct m6_clock_state state;

	if (!events)
		return;
	m6_clock_read(&dev->clock, &state);
	if (events & M6_CLOCK_THROTTLED) {
		m6_warn("throttled at %d millidegrees, %u MHz", state.sensor_mc,
			state.mhz);
		device_event(dev, M6NPU_EXC_THERMAL_THROTTLE,
			     (uint64_t)(int64_t)state.sensor_mc);
	}
	if (events & M6_CLOCK_CRITICAL) {
		m6_warn("halted at %d millidegrees", state.sensor_mc);
		device_event(dev, M6NPU_EXC_THERMAL_CRITICAL,
			     (uint64_t)(int64_t)state.sensor_mc);
	}
}

int m6_device_inject_hang(struct m6_device *dev, unsigned int ring)
{
	struct m6_ring *r;

	if (ring >= M6NPU_RINGS)
		return -EINVAL;
	r = &dev->ring[ring];
	pthread_mutex_lock(&r->lock);
	r->hang = true;
	pthread_mutex_unlock(&r->lock);
	return 0;
}

void m6_device_inject_mmu_fault(struct m6_device *dev)
{
	atomic_fetch_add(&dev->mmu.inject_fault, 1);
}

int m6_device_inject_lost_irq(struct m6_device *dev, unsigned int vector)
{
	if (vector >= M6NPU_VECTORS)
		return -EINVAL;
	pthread_mutex_lock(&dev->irqs.lock);
	dev->irqs.lose[vector]++;
	pthread_mutex_unlock(&dev->irqs.lock);
	return 0;
}

int m6_device_inject_spurious_irq(struct m6_device *dev, unsigned int vector)
{
	if (vector >= M6NPU_VECTORS)
		return -EINVAL;
	m6_irq_force(&dev->irqs, vector);
	return 0;
}

/* The link retrains; worse than the profile's is worth an exception. */
int m6_device_inject_link(struct m6_device *dev, unsigned int speed,
			  unsigned int width)
{
	if (!speed || speed > dev->profile.link_speed || !width ||
	    width > dev->profile.link_width || width & (width - 1))
		return -EINVAL;
	m6_clock_set_link(&dev->clock, speed, width);
	m6_pci_set_link(&dev->pci, speed, width);
	if (speed < dev->profile.link_speed || width < dev->profile.link_width)
		device_event(dev, M6NPU_EXC_LINK_DEGRADED,
			     speed | (uint64_t)width << 8);
	return 0;
}

int m6_device_inject_stuck_bit(struct m6_device *dev,
			       const struct m6_stuck_bit *bit)
{
	return m6_stuck_add(&dev->mem.stuck, bit);
}

int m6_device_heal_stuck_bit(struct m6_device *dev, uint64_t addr,
			     unsigned int bit)
{
	return m6_stuck_remove(&dev->mem.stuck, addr, bit);
}

void m6_device_inject_temp(struct m6_device *dev, int32_t millidegrees)
{
	m6_device_clock_events(dev, m6_clock_set_temp(&dev->clock,
						      millidegrees));
}

void m6_device_inject_drift(struct m6_device *dev, int32_t millidegrees)
{
	m6_device_clock_events(dev, m6_clock_set_drift(&dev->clock,
						       millidegrees));
}

void m6_device_advance(struct m6_device *dev, uint64_t ns)
{
	m6_device_clock_events(dev, m6_clock_advance(&dev->clock, ns));
}
