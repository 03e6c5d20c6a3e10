// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Exceptions
 *
 * The device posts records to a ring in memory and raises a vector. They are
 * drained in the vector's thread, and by the timeout handler in case a vector
 * got lost. A record is believed if its sequence number is the next one;
 * what it names (ring, address space, job) is compared with what is in
 * flight, so a record that is late or made up is logged and does nothing.
 *
 * That a job failed is known from its status record (m6npu_ring.c). Here it
 * matters what else happened: a job waits for experts or will need some, the
 * router cache is full of pinned experts, the device is too hot, memory or the
 * link failed.
 *
 * A full ring loses records. Jobs that wait are then told to look again, upon
 * which the device says again what they wait for.
 *
 * The log is for people who look for a fault in their model or in a board. It
 * is off until debugfs enable_exception_log is set, and bounded.
 */
#include <linux/dma-mapping.h>
#include <linux/ktime.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include <drm/drm_managed.h>
#include <drm/drm_print.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_event.h"
#include "m6npu_exception.h"
#include "m6npu_trace.h"

/**
 * struct m6npu_exception_kind - what is known of a code
 */
struct m6npu_exception_kind {
	/** @code: M6NPU_EXC_* */
	u32 code;
	/** @error: of a job that ends with it */
	int error;
	/** @name: in logs */
	const char *name;
};

static const struct m6npu_exception_kind kinds[] = {
	{ M6NPU_EXC_NONE, 0, "NONE" },
	{ M6NPU_EXC_MMU_PAGE_FAULT, -EFAULT, "MMU_PAGE_FAULT" },
	{ M6NPU_EXC_TLB_WALK_TIMEOUT, -EFAULT, "TLB_WALK_TIMEOUT" },
	{ M6NPU_EXC_PAGE_ALIGNMENT, -EFAULT, "PAGE_ALIGNMENT_VIOLATION" },
	{ M6NPU_EXC_DMA_ERROR, -EIO, "DMA_ERROR" },
	{ M6NPU_EXC_EXPERT_FAULT, -EIO, "EXPERT_FAULT" },
	{ M6NPU_EXC_ROUTER_CACHE_FULL, -EIO, "ROUTER_CACHE_FULL" },
	{ M6NPU_EXC_EXPERT_HINT, -EIO, "EXPERT_HINT" },
	{ M6NPU_EXC_ILLEGAL_COMMAND, -EINVAL, "ILLEGAL_COMMAND" },
	{ M6NPU_EXC_BOUNDS, -EINVAL, "BOUNDS" },
	{ M6NPU_EXC_UNIT_HANG, -ETIME, "UNIT_HANG" },
	{ M6NPU_EXC_ABORTED, -ECANCELED, "ABORTED" },
	{ M6NPU_EXC_DECOMPRESS_ERROR, -EIO, "DECOMPRESS_ERROR" },
	{ M6NPU_EXC_THERMAL_THROTTLE, -EIO, "THERMAL_THROTTLE" },
	{ M6NPU_EXC_THERMAL_CRITICAL, -EIO, "THERMAL_CRITICAL" },
	{ M6NPU_EXC_ECC_CORRECTED, -EIO, "ECC_CORRECTED" },
	{ M6NPU_EXC_ECC_UNCORRECTED, -EIO, "ECC_UNCORRECTED" },
	{ M6NPU_EXC_FIRMWARE_ASSERT, -EIO, "FIRMWARE_ASSERT" },
	{ M6NPU_EXC_LINK_DEGRADED, -EIO, "LINK_DEGRADED" },
};

static const struct m6npu_exception_kind *exception_kind(u32 code)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (kinds[i].code == code)
			return &kinds[i];
	}
	return NULL;
}

const char *m6npu_exception_name(u32 code)
{
	const struct m6npu_exception_kind *kind = exception_kind(code);

	return kind ? kind->name : "UNKNOWN";
}

/* How a job ends whose status record has this code. */
int m6npu_exception_errno(u32 code)
{
	const struct m6npu_exception_kind *kind = exception_kind(code);

	return kind ? kind->error : -EIO;
}

static void exception_log(struct m6npu_exceptions *exceptions,
			  const struct m6npu_exception *record, u64 job)
{
	struct m6npu_exception_entry *entry;

	mutex_lock(&exceptions->log_lock);
	if (exceptions->log_enabled) {
		entry = &exceptions->log[exceptions->logged++ %
					 M6NPU_EXCEPTION_LOG];
		*entry = (struct m6npu_exception_entry) {
			.time = ktime_get_ns(),
			.addr = le64_to_cpu(record->addr),
			.job = job,
			.code = le32_to_cpu(record->code),
			.cmd_index = le32_to_cpu(record->cmd_index),
			.ring = le16_to_cpu(record->ring),
			.asid = le16_to_cpu(record->asid),
		};
	}
	mutex_unlock(&exceptions->log_lock);
}

/* debugfs exception_log */
void m6npu_exceptions_show(struct seq_file *m, struct m6npu_device *m6npu)
{
	struct m6npu_exceptions *exceptions = &m6npu->exceptions;
	struct m6npu_exception_entry *entry;
	unsigned long us;
	u64 i, sec;

	mutex_lock(&exceptions->log_lock);
	i = exceptions->logged > M6NPU_EXCEPTION_LOG ?
	    exceptions->logged - M6NPU_EXCEPTION_LOG : 0;
	for (; i < exceptions->logged; i++) {
		entry = &exceptions->log[i % M6NPU_EXCEPTION_LOG];
		sec = div_u64(entry->time, NSEC_PER_SEC);
		us = (entry->time - sec * NSEC_PER_SEC) / NSEC_PER_USEC;
		seq_printf(m, "[%5llu.%06lu] EXCEPTION_CODE: 0x%02X (%s) unit %u asid %u addr 0x%llx job %llu cmd %u\n",
			   sec, us, entry->code,
			   m6npu_exception_name(entry->code), entry->ring,
			   entry->asid, entry->addr, entry->job,
			   entry->cmd_index);
	}
	mutex_unlock(&exceptions->log_lock);
}

void m6npu_exceptions_clear(struct m6npu_device *m6npu)
{
	mutex_lock(&m6npu->exceptions.log_lock);
	m6npu->exceptions.logged = 0;
	mutex_unlock(&m6npu->exceptions.log_lock);
}

static struct m6npu_event *
exception_event(u32 type, u64 job, const struct m6npu_exception *record)
{
	struct m6npu_event *event = m6npu_event_alloc(type, GFP_NOWAIT);
	struct drm_m6npu_event_expert_fault *fault;

	if (!event)
		return NULL;
	fault = &event->u.fault;
	fault->job = job;
	fault->layer = le16_to_cpu(record->layer);
	fault->expert_base = le16_to_cpu(record->expert_base);
	fault->mask = le64_to_cpu(record->mask);
	return event;
}

static void exception_fault(struct m6npu_ring *ring,
			    const struct m6npu_exception *record)
{
	struct m6npu_context *ctx;
	u64 job;

	ctx = m6npu_ring_fault(ring, record, &job);
	if (!ctx)
		return;
	trace_m6npu_expert_fault(ring, job, record);
	if (m6npu_event_send(ctx,
			     exception_event(DRM_M6NPU_EVENT_EXPERT_FAULT, job,
					     record)))
		m6npu_ring_fault_lost(ring);
	m6npu_context_put(ctx);
}

static void exception_hint(struct m6npu_ring *ring,
			   const struct m6npu_exception *record)
{
	struct m6npu_context *ctx;
	u64 job;

	ctx = m6npu_ring_hint(ring, record, &job);
	if (!ctx)
		return;
	trace_m6npu_expert_hint(ring, job, record);
	m6npu_event_offer(ctx, exception_event(DRM_M6NPU_EVENT_EXPERT_HINT, job,
					       record));
	m6npu_context_put(ctx);
}

static void exception_full(struct m6npu_ring *ring,
			   const struct m6npu_exception *record)
{
	struct m6npu_context *ctx;
	u64 job;

	ctx = m6npu_ring_full(ring, record, &job);
	if (!ctx)
		return;
	trace_m6npu_router_full(ring, job, record);
	m6npu_event_offer(ctx, exception_event(DRM_M6NPU_EVENT_ROUTER_FULL, job,
					       record));
	m6npu_context_put(ctx);
}

/* What a job looked up, as opposed to what went wrong. */
static void exception_expert(struct m6npu_ring *ring,
			     const struct m6npu_exception *record)
{
	switch (le32_to_cpu(record->code)) {
	case M6NPU_EXC_EXPERT_FAULT:
		exception_fault(ring, record);
		break;
	case M6NPU_EXC_EXPERT_HINT:
		exception_hint(ring, record);
		break;
	case M6NPU_EXC_ROUTER_CACHE_FULL:
		exception_full(ring, record);
		break;
	default:
		break;
	}
}

/* What went wrong with the board, as opposed to a job. */
static void exception_report(struct m6npu_device *m6npu,
			     const struct m6npu_exception *record)
{
	u32 code = le32_to_cpu(record->code);
	struct device *dev = m6npu->drm.dev;

	switch (code) {
	case M6NPU_EXC_ROUTER_CACHE_FULL:
		dev_warn_ratelimited(dev, "expert_router_cache_miss: cache full; unpin experts or have the policy evict (ROUTER_CTL), lookups walk the table until then\n");
		break;
	case M6NPU_EXC_THERMAL_THROTTLE:
		m6npu_thermal_throttled(m6npu, le64_to_cpu(record->addr));
		break;
	case M6NPU_EXC_THERMAL_CRITICAL:
		m6npu_thermal_critical(m6npu, le64_to_cpu(record->addr));
		break;
	case M6NPU_EXC_ECC_CORRECTED:
	case M6NPU_EXC_LINK_DEGRADED:
		dev_warn_ratelimited(dev, "%s, address %#llx\n",
				     m6npu_exception_name(code),
				     le64_to_cpu(record->addr));
		break;
	case M6NPU_EXC_ECC_UNCORRECTED:
	case M6NPU_EXC_FIRMWARE_ASSERT:
		dev_err_ratelimited(dev, "%s, address %#llx\n",
				    m6npu_exception_name(code),
				    le64_to_cpu(record->addr));
		break;
	default:
		break;
	}
}

static void exception_handle(struct m6npu_device *m6npu,
			     const struct m6npu_exception *record)
{
	unsigned int index = le16_to_cpu(record->ring);
	struct m6npu_ring *ring = NULL;
	u64 job = 0;

	if (index < M6NPU_RINGS) {
		ring = &m6npu->ring[index];
		job = m6npu_ring_job_id(ring, le64_to_cpu(record->fence_value));
	}
	exception_log(&m6npu->exceptions, record, job);
	trace_m6npu_exception(m6npu, record, job);
	if (ring)
		exception_expert(ring, record);
	exception_report(m6npu, record);
}

/* The next record, if the device wrote it already. */
static bool exception_next(struct m6npu_exceptions *exceptions,
			   struct m6npu_exception *record)
{
	struct m6npu_exception *slot;
	u64 seq;

	slot = &exceptions->ring[exceptions->head % M6NPU_EXCEPTIONS];
	seq = le64_to_cpu(READ_ONCE(slot->seq));
	if (seq != exceptions->head + 1)
		return false;
	dma_rmb();
	*record = *slot;
	return true;
}

/*
 * Were records lost since the last time, because the ring was full? Then there
 * were as many before them, of which one drain or the next handles half or more.
 */
static bool exceptions_lost(struct m6npu_device *m6npu, unsigned int count)
{
	struct m6npu_exceptions *exceptions = &m6npu->exceptions;
	u32 before = exceptions->dropped;

	if (count >= M6NPU_EXCEPTIONS / 2)
		exceptions->dropped = m6npu_read(m6npu, M6NPU_REG_EXC_DROPPED);
	return exceptions->dropped != before;
}

/* One of them may have said that a job waits. */
static void exceptions_repeat(struct m6npu_device *m6npu)
{
	unsigned int i;

	for (i = 0; i < M6NPU_RINGS; i++)
		m6npu_ring_repeat(&m6npu->ring[i]);
}

/**
 * m6npu_exceptions_drain() - handle the records that are there
 * @m6npu: device
 *
 * At most a ring's worth, lest a device that went mad keeps us here.
 *
 * Context: may sleep. The timeout handler calls this, so allocations here must
 * not wait for memory.
 */
void m6npu_exceptions_drain(struct m6npu_device *m6npu)
{
	struct m6npu_exceptions *exceptions = &m6npu->exceptions;
	struct m6npu_exception record;
	unsigned int count = 0;

	mutex_lock(&exceptions->drain_lock);
	while (count < M6NPU_EXCEPTIONS &&
	       exception_next(exceptions, &record)) {
		exceptions->head++;
		count++;
		exception_handle(m6npu, &record);
	}
	if (count)
		m6npu_write(m6npu, M6NPU_REG_EXC_HEAD,
			    lower_32_bits(exceptions->head));
	if (exceptions_lost(m6npu, count))
		exceptions_repeat(m6npu);
	mutex_unlock(&exceptions->drain_lock);
}

/* Tells the device where the ring is, which empties it. */
void m6npu_exceptions_program(struct m6npu_device *m6npu)
{
	struct m6npu_exceptions *exceptions = &m6npu->exceptions;

	mutex_lock(&exceptions->drain_lock);
	memset(exceptions->ring, 0,
	       M6NPU_EXCEPTIONS * sizeof(*exceptions->ring));
	exceptions->head = 0;
	exceptions->dropped = 0;
	m6npu_write(m6npu, M6NPU_REG_EXC_SIZE, M6NPU_EXCEPTIONS);
	m6npu_write64(m6npu, M6NPU_REG_EXC_BASE_LO, exceptions->ring_dma);
	mutex_unlock(&exceptions->drain_lock);
}

int m6npu_exceptions_init(struct m6npu_device *m6npu)
{
	struct m6npu_exceptions *exceptions = &m6npu->exceptions;
	int ret;

	BUILD_BUG_ON(sizeof(struct m6npu_exception) != 64);
	ret = drmm_mutex_init(&m6npu->drm, &exceptions->drain_lock);
	if (ret)
		return ret;
	ret = drmm_mutex_init(&m6npu->drm, &exceptions->log_lock);
	if (ret)
		return ret;
	exceptions->log = drmm_kcalloc(&m6npu->drm, M6NPU_EXCEPTION_LOG,
				       sizeof(*exceptions->log), GFP_KERNEL);
	if (!exceptions->log)
		return -ENOMEM;
	exceptions->ring = dmam_alloc_coherent(&m6npu->pdev->dev,
					       M6NPU_EXCEPTIONS *
					       sizeof(*exceptions->ring),
					       &exceptions->ring_dma,
					       GFP_KERNEL);
	return exceptions->ring ? 0 : -ENOMEM;
}
