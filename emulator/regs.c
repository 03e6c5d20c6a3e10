// SPDX-License-Identifier: MIT
/* BAR0 as tables of registers, and the plain memory of the other two. */
#include <errno.h>
#include <string.h>

#include "core.h"
#include "log.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define RING_BLOCK_SIZE	(M6NPU_RING_BLOCK(1) - M6NPU_RING_BLOCK(0))
#define RINGS_END	M6NPU_RING_BLOCK(M6NPU_RINGS)

void m6_regs_init(struct m6_regs *regs)
{
	memset(regs, 0, sizeof(*regs));
	pthread_mutex_init(&regs->lock, NULL);
	regs->threshold = M6NPU_ROUTER_THRESHOLD_DEFAULT;
}

void m6_regs_destroy(struct m6_regs *regs)
{
	pthread_mutex_destroy(&regs->lock);
}

void m6_regs_reset(struct m6_regs *regs)
{
	regs->scratch = 0;
	regs->threshold = M6NPU_ROUTER_THRESHOLD_DEFAULT;
	regs->prefill_buffer = 0;
	regs->router_invalidate = 0;
	regs->invalidate = 0;
	regs->as_table = 0;
	regs->as_table_lo = 0;
	regs->exc_base = 0;
	regs->exc_base_lo = 0;
	memset(regs->latch, 0, sizeof(regs->latch));
}

/* One 32-bit register. Without a write function it is read-only. */
struct reg {
	uint32_t offset;
	uint32_t (*read)(struct m6_device *dev);
	void (*write)(struct m6_device *dev, uint32_t value);
};

/* A 64-bit counter: LO at the offset, HI, latched, after it. */
struct counter {
	uint32_t offset;
	uint64_t (*read)(struct m6_device *dev);
};

static uint32_t id_read(struct m6_device *dev)
{
	(void)dev;
	return M6NPU_ID_VALUE;
}

static uint32_t revision_read(struct m6_device *dev)
{
	(void)dev;
	return 1u << 16;
}

static uint32_t features_read(struct m6_device *dev)
{
	return dev->profile.features;
}

static uint32_t fw_version_read(struct m6_device *dev)
{
	return dev->profile.firmware_version;
}

static uint32_t sram_size_read(struct m6_device *dev)
{
	(void)dev;
	return M6NPU_BAR_SRAM_SIZE;
}

static uint32_t status_read(struct m6_device *dev)
{
	struct m6_clock_state clock;
	bool ready = true;

	m6_clock_read(&dev->clock, &clock);
	for (int i = 0; i < M6NPU_RINGS; i++)
		ready = ready && m6_ring_ready(&dev->ring[i]);
	return (ready ? M6NPU_STATUS_READY : 0) |
	       (clock.throttled ? M6NPU_STATUS_THROTTLED : 0) |
	       (clock.halted ? M6NPU_STATUS_HALTED : 0);
}

static uint32_t zero_read(struct m6_device *dev)
{
	(void)dev;
	return 0;
}

static void ctrl_write(struct m6_device *dev, uint32_t value)
{
	if (value & M6NPU_CTRL_RESET)
		m6_device_reset_locked(dev);
}

static uint32_t scratch_read(struct m6_device *dev)
{
	return dev->regs.scratch;
}

static void scratch_write(struct m6_device *dev, uint32_t value)
{
	dev->regs.scratch = value;
}

static uint32_t vec_mask_read(struct m6_device *dev)
{
	return m6_irqs_mask(&dev->irqs);
}

static void vec_mask_write(struct m6_device *dev, uint32_t value)
{
	m6_irqs_set_mask(&dev->irqs, value);
}

static uint32_t vec_pending_read(struct m6_device *dev)
{
	return m6_irqs_pending(&dev->irqs);
}

static void vec_pending_write(struct m6_device *dev, uint32_t value)
{
	m6_irqs_clear_pending(&dev->irqs, value);
}

static uint32_t as_table_lo_read(struct m6_device *dev)
{
	return dev->regs.as_table_lo;
}

static void as_table_lo_write(struct m6_device *dev, uint32_t value)
{
	dev->regs.as_table_lo = value;
}

static uint32_t as_table_hi_read(struct m6_device *dev)
{
	return dev->regs.as_table >> 32;
}

static void as_table_hi_write(struct m6_device *dev, uint32_t value)
{
	uint64_t table = (uint64_t)value << 32 | dev->regs.as_table_lo;

	if (table % 4096) {
		m6_guest_error("address-space table %#llx is not aligned",
			       (unsigned long long)table);
		table = 0;
	}
	dev->regs.as_table = table;
	m6_mmu_set_table(&dev->mmu, table);
	m6_router_invalidate(&dev->router, M6NPU_AS_INVALIDATE_ALL);
	m6_sram_invalidate(&dev->slots, M6NPU_AS_INVALIDATE_ALL);
}

static uint32_t as_invalidate_read(struct m6_device *dev)
{
	return dev->regs.invalidate;
}

static void as_invalidate_write(struct m6_device *dev, uint32_t value)
{
	dev->regs.invalidate = value;
	m6_mmu_invalidate(&dev->mmu, value);
	m6_router_invalidate(&dev->router, value);
	m6_sram_invalidate(&dev->slots, value);
}

static uint32_t exc_base_lo_read(struct m6_device *dev)
{
	return dev->regs.exc_base_lo;
}

static void exc_base_lo_write(struct m6_device *dev, uint32_t value)
{
	dev->regs.exc_base_lo = value;
}

static uint32_t exc_base_hi_read(struct m6_device *dev)
{
	return dev->regs.exc_base >> 32;
}

static void exc_base_hi_write(struct m6_device *dev, uint32_t value)
{
	uint64_t base = (uint64_t)value << 32 | dev->regs.exc_base_lo;

	if (base % sizeof(struct m6npu_exception)) {
		m6_guest_error("exception ring %#llx is not aligned",
			       (unsigned long long)base);
		base = 0;
	}
	dev->regs.exc_base = base;
	m6_exceptions_restart(&dev->exc, base);
}

static struct m6_exceptions_state exc_state(struct m6_device *dev)
{
	struct m6_exceptions_state state;

	m6_exceptions_read(&dev->exc, &state);
	return state;
}

static uint32_t exc_size_read(struct m6_device *dev)
{
	return exc_state(dev).size;
}

static void exc_size_write(struct m6_device *dev, uint32_t value)
{
	if (m6_exceptions_set_size(&dev->exc, value))
		m6_guest_error("exception ring of %u records refused", value);
}

static uint32_t exc_head_read(struct m6_device *dev)
{
	return exc_state(dev).head;
}

static void exc_head_write(struct m6_device *dev, uint32_t value)
{
	m6_exceptions_set_head(&dev->exc, value);
}

static uint32_t exc_tail_read(struct m6_device *dev)
{
	return exc_state(dev).tail;
}

static uint32_t exc_dropped_read(struct m6_device *dev)
{
	return exc_state(dev).dropped;
}

static uint32_t router_policy_read(struct m6_device *dev)
{
	return dev->router.policy;
}

static void router_policy_write(struct m6_device *dev, uint32_t value)
{
	if (m6_router_set_policy(&dev->router, value))
		m6_guest_error("router policy %u refused", value);
}

static uint32_t threshold_read(struct m6_device *dev)
{
	return dev->regs.threshold;
}

static void threshold_write(struct m6_device *dev, uint32_t value)
{
	if (value > 1000)
		m6_guest_error("router threshold %u refused", value);
	else
		dev->regs.threshold = value;
}

static uint32_t occupancy_read(struct m6_device *dev)
{
	return m6_router_occupancy(&dev->router);
}

static uint32_t prefill_read(struct m6_device *dev)
{
	return dev->regs.prefill_buffer;
}

static void prefill_write(struct m6_device *dev, uint32_t value)
{
	if (value > M6NPU_BAR_SRAM_SIZE) {
		m6_guest_error("prefill buffer of %u bytes refused", value);
		return;
	}
	dev->regs.prefill_buffer = value;
	m6_sram_resize(&dev->slots, M6NPU_BAR_SRAM_SIZE - value);
}

static uint32_t router_invalidate_read(struct m6_device *dev)
{
	return dev->regs.router_invalidate;
}

static void router_invalidate_write(struct m6_device *dev, uint32_t value)
{
	const struct m6_router_key key = {
		.asid = value >> 24,
		.layer = value >> 12 & 0xfff,
		.expert = value & 0xfff,
	};

	if (!key.asid || key.asid >= M6NPU_ADDRESS_SPACES ||
	    key.layer >= M6NPU_MAX_EXPERT_LAYERS ||
	    key.expert >= M6NPU_MAX_EXPERTS_PER_LAYER) {
		m6_guest_error("no expert %#x to invalidate", value);
		return;
	}
	dev->regs.router_invalidate = value;
	m6_router_forget(&dev->router, &key);
	m6_sram_forget(&dev->slots, &key);
}

static uint32_t router_quota_read(struct m6_device *dev)
{
	return m6_router_quota(&dev->router);
}

static void router_quota_write(struct m6_device *dev, uint32_t value)
{
	if (m6_router_set_quota(&dev->router, value))
		m6_guest_error("router quota %u refused", value);
}

static struct m6_clock_state clock_state(struct m6_device *dev)
{
	struct m6_clock_state state;

	m6_clock_read(&dev->clock, &state);
	return state;
}

static uint32_t temp_read(struct m6_device *dev)
{
	return (uint32_t)clock_state(dev).sensor_mc;
}

static uint32_t temp_offset_read(struct m6_device *dev)
{
	return (uint32_t)clock_state(dev).offset_mc;
}

static void temp_offset_write(struct m6_device *dev, uint32_t value)
{
	m6_device_clock_events(dev, m6_clock_set_offset(&dev->clock,
							(int32_t)value));
}

static uint32_t power_read(struct m6_device *dev)
{
	return clock_state(dev).power_mw;
}

static uint32_t freq_read(struct m6_device *dev)
{
	return clock_state(dev).mhz;
}

static uint32_t freq_request_read(struct m6_device *dev)
{
	return clock_state(dev).request_mhz;
}

static void freq_request_write(struct m6_device *dev, uint32_t value)
{
	if (m6_clock_request(&dev->clock, value))
		m6_guest_error("frequency of %u MHz refused", value);
}

/* Ascending offsets. */
static const struct reg regs[] = {
	{ M6NPU_REG_ID, id_read, NULL },
	{ M6NPU_REG_REVISION, revision_read, NULL },
	{ M6NPU_REG_FEATURES, features_read, NULL },
	{ M6NPU_REG_FW_VERSION, fw_version_read, NULL },
	{ M6NPU_REG_SRAM_SIZE, sram_size_read, NULL },
	{ M6NPU_REG_STATUS, status_read, NULL },
	{ M6NPU_REG_CTRL, zero_read, ctrl_write },
	{ M6NPU_REG_SCRATCH, scratch_read, scratch_write },
	{ M6NPU_REG_VEC_MASK, vec_mask_read, vec_mask_write },
	{ M6NPU_REG_VEC_PENDING, vec_pending_read, vec_pending_write },
	{ M6NPU_REG_AS_TABLE_LO, as_table_lo_read, as_table_lo_write },
	{ M6NPU_REG_AS_TABLE_HI, as_table_hi_read, as_table_hi_write },
	{ M6NPU_REG_AS_INVALIDATE, as_invalidate_read, as_invalidate_write },
	{ M6NPU_REG_EXC_BASE_LO, exc_base_lo_read, exc_base_lo_write },
	{ M6NPU_REG_EXC_BASE_HI, exc_base_hi_read, exc_base_hi_write },
	{ M6NPU_REG_EXC_SIZE, exc_size_read, exc_size_write },
	{ M6NPU_REG_EXC_HEAD, exc_head_read, exc_head_write },
	{ M6NPU_REG_EXC_TAIL, exc_tail_read, NULL },
	{ M6NPU_REG_EXC_DROPPED, exc_dropped_read, NULL },
	{ M6NPU_REG_ROUTER_POLICY, router_policy_read, router_policy_write },
	{ M6NPU_REG_ROUTER_THRESHOLD, threshold_read, threshold_write },
	{ M6NPU_REG_ROUTER_OCCUPANCY, occupancy_read, NULL },
	{ M6NPU_REG_PREFILL_BUFFER, prefill_read, prefill_write },
	{ M6NPU_REG_ROUTER_INVALIDATE, router_invalidate_read,
	  router_invalidate_write },
	{ M6NPU_REG_ROUTER_QUOTA, router_quota_read, router_quota_write },
	{ M6NPU_REG_TEMP_MC, temp_read, NULL },
	{ M6NPU_REG_TEMP_OFFSET_MC, temp_offset_read, temp_offset_write },
	{ M6NPU_REG_POWER_MW, power_read, NULL },
	{ M6NPU_REG_FREQ_MHZ, freq_read, NULL },
	{ M6NPU_REG_FREQ_REQUEST_MHZ, freq_request_read, freq_request_write },
};

static uint64_t time_ns(struct m6_device *dev)
{
	return clock_state(dev).now_ns;
}

static uint64_t cycles(struct m6_device *dev)
{
	return clock_state(dev).cycles;
}

static uint64_t tlb_hits(struct m6_device *dev)
{
	return atomic_load(&dev->mmu.hits);
}

static uint64_t tlb_misses(struct m6_device *dev)
{
	return atomic_load(&dev->mmu.misses);
}

static uint64_t tlb_walk_cycles(struct m6_device *dev)
{
	return atomic_load(&dev->mmu.walk_cycles);
}

static struct m6_router_counters router_counters(struct m6_device *dev)
{
	struct m6_router_counters counters;

	m6_router_counters(&dev->router, &counters);
	return counters;
}

static uint64_t router_hits(struct m6_device *dev)
{
	return router_counters(dev).hits;
}

static uint64_t router_misses(struct m6_device *dev)
{
	return router_counters(dev).misses;
}

static uint64_t router_evictions(struct m6_device *dev)
{
	return router_counters(dev).evictions;
}

static uint64_t router_faults(struct m6_device *dev)
{
	return router_counters(dev).faults;
}

static uint64_t router_full(struct m6_device *dev)
{
	return router_counters(dev).full;
}

static uint64_t energy_uj(struct m6_device *dev)
{
	return clock_state(dev).energy_uj;
}

static uint64_t dram_bytes(struct m6_device *dev)
{
	return clock_state(dev).dram_bytes;
}

static const struct counter counters[] = {
	{ M6NPU_REG_TIME_NS_LO, time_ns },
	{ M6NPU_REG_CYCLES_LO, cycles },
	{ M6NPU_REG_TLB_HITS_LO, tlb_hits },
	{ M6NPU_REG_TLB_MISSES_LO, tlb_misses },
	{ M6NPU_REG_TLB_WALK_CYCLES_LO, tlb_walk_cycles },
	{ M6NPU_REG_ROUTER_HITS_LO, router_hits },
	{ M6NPU_REG_ROUTER_MISSES_LO, router_misses },
	{ M6NPU_REG_ROUTER_EVICTIONS_LO, router_evictions },
	{ M6NPU_REG_ROUTER_FAULTS_LO, router_faults },
	{ M6NPU_REG_ROUTER_FULL_LO, router_full },
	{ M6NPU_REG_ENERGY_UJ_LO, energy_uj },
	{ M6NPU_REG_DRAM_BYTES_LO, dram_bytes },
};

static const struct reg *find_reg(uint32_t offset)
{
	for (size_t i = 0; i < ARRAY_SIZE(regs); i++)
		if (regs[i].offset == offset)
			return &regs[i];
	return NULL;
}

static bool find_counter(struct m6_device *dev, uint32_t offset,
			 uint64_t *value)
{
	for (size_t i = 0; i < ARRAY_SIZE(counters); i++) {
		if (counters[i].offset == offset) {
			*value = counters[i].read(dev);
			return true;
		}
	}
	for (uint32_t i = 0; i < M6NPU_RINGS; i++) {
		if (M6NPU_REG_UNIT_BUSY_NS_LO(i) == offset) {
			*value = clock_state(dev).busy_ns[i];
			return true;
		}
	}
	return false;
}

/* HI of a counter is what it was when LO was read; 0 anywhere else. */
static uint32_t counter_read(struct m6_device *dev, uint32_t offset)
{
	uint64_t value;

	if (offset >= sizeof(dev->regs.latch) - 4)
		return 0;
	if (!find_counter(dev, offset, &value))
		return dev->regs.latch[offset / 4];
	dev->regs.latch[offset / 4 + 1] = value >> 32;
	return value;
}

uint32_t m6_device_reg_read(struct m6_device *dev, uint32_t offset)
{
	const struct reg *reg;
	uint32_t value;

	if (offset >= M6NPU_RING_BLOCK(0)) {
		offset -= M6NPU_RING_BLOCK(0);
		if (offset >= RINGS_END - M6NPU_RING_BLOCK(0))
			return 0;
		return m6_ring_read(&dev->ring[offset / RING_BLOCK_SIZE],
				    offset % RING_BLOCK_SIZE);
	}
	reg = find_reg(offset);
	pthread_mutex_lock(&dev->regs.lock);
	value = reg ? reg->read(dev) : counter_read(dev, offset);
	pthread_mutex_unlock(&dev->regs.lock);
	return value;
}

void m6_device_reg_write(struct m6_device *dev, uint32_t offset,
			 uint32_t value)
{
	const struct reg *reg;

	if (offset >= M6NPU_RING_BLOCK(0)) {
		offset -= M6NPU_RING_BLOCK(0);
		if (offset < RINGS_END - M6NPU_RING_BLOCK(0))
			m6_ring_write(&dev->ring[offset / RING_BLOCK_SIZE],
				      offset % RING_BLOCK_SIZE, value);
		return;
	}
	reg = find_reg(offset);
	if (!reg || !reg->write) {
		m6_log_limited(M6_LOG_DEBUG, "write of %#x to %#x ignored",
			       value, offset);
		return;
	}
	pthread_mutex_lock(&dev->regs.lock);
	reg->write(dev, value);
	pthread_mutex_unlock(&dev->regs.lock);
}

uint64_t m6_device_bar_size(unsigned int bar)
{
	switch (bar) {
	case M6NPU_BAR_REGS:
		return M6NPU_BAR_REGS_SIZE;
	case M6NPU_BAR_SRAM:
		return M6NPU_BAR_SRAM_SIZE;
	case M6NPU_BAR_MSIX:
		return M6NPU_BAR_MSIX_SIZE;
	default:
		return 0;
	}
}

static bool in_bar(unsigned int bar, uint64_t offset, size_t bytes)
{
	uint64_t size = m6_device_bar_size(bar);

	return offset < size && bytes <= size - offset;
}

static bool is_register(uint64_t offset, size_t bytes)
{
	if (bytes == 4 && !(offset % 4))
		return true;
	m6_guest_error("registers: access of %zu bytes at %#llx ignored",
		       bytes, (unsigned long long)offset);
	return false;
}

int m6_device_mmio_read(struct m6_device *dev, unsigned int bar,
			uint64_t offset, void *data, size_t bytes)
{
	uint32_t value;

	if (!in_bar(bar, offset, bytes))
		return -EINVAL;
	if (bar == M6NPU_BAR_SRAM) {
		memcpy(data, dev->sram + offset, bytes);
	} else if (bar == M6NPU_BAR_MSIX) {
		memcpy(data, dev->msix + offset, bytes);
	} else if (is_register(offset, bytes)) {
		value = m6_device_reg_read(dev, offset);
		memcpy(data, &value, sizeof(value));
	} else {
		memset(data, 0, bytes);
	}
	return 0;
}

int m6_device_mmio_write(struct m6_device *dev, unsigned int bar,
			 uint64_t offset, const void *data, size_t bytes)
{
	uint32_t value;

	if (!in_bar(bar, offset, bytes))
		return -EINVAL;
	if (bar == M6NPU_BAR_SRAM) {
		memcpy(dev->sram + offset, data, bytes);
	} else if (bar == M6NPU_BAR_MSIX) {
		memcpy(dev->msix + offset, data, bytes);
	} else if (is_register(offset, bytes)) {
		memcpy(&value, data, sizeof(value));
		m6_device_reg_write(dev, offset, value);
	}
	return 0;
}
