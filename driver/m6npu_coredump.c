// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Core dumps
 *
 * When a unit hangs, what there is to see of it is taken in the timeout
 * handler, where memory must not be allocated, to a place that is set aside.
 * A work then writes it as text to a devcoredump, with the exception log if
 * that is on. Hangs while the last one has not been written yet leave none.
 */
#include <linux/devcoredump.h>
#include <linux/vmalloc.h>

#include <drm/drm_print.h>

#include "m6npu_context.h"
#include "m6npu_coredump.h"
#include "m6npu_device.h"
#include "m6npu_job.h"
#include "m6npu_ring.h"

#define DUMP_SIZE	SZ_8K

/**
 * m6npu_coredump_take() - remember what a unit and its job look like
 * @ring: ring that hangs
 * @job: its job, taken from it
 */
void m6npu_coredump_take(struct m6npu_ring *ring, struct m6npu_job *job)
{
	struct m6npu_device *m6npu = ring->m6npu;
	struct m6npu_coredump *dump = &m6npu->coredump;
	struct m6npu_ring_memory *mem = ring->mem;
	unsigned int i;

	if (work_busy(&dump->work))
		return;
	dump->ring = ring->index;
	for (i = 0; i < ARRAY_SIZE(dump->regs); i++)
		dump->regs[i] = m6npu_ring_read(ring, i * sizeof(u32));
	dump->status = m6npu_read(m6npu, M6NPU_REG_STATUS);
	dump->entry = mem->entry[job->slot];
	memcpy(dump->region, mem->region[job->slot], sizeof(dump->region));
	dump->record = mem->status[job->slot].record;
	dump->job = job->id;
	dump->pid = job->ctx->pid;
	strscpy(dump->comm, job->ctx->comm);
	schedule_work(&dump->work);
}

static void coredump_job(struct drm_printer *p,
			 const struct m6npu_coredump *dump)
{
	const struct m6npu_ring_entry *entry = &dump->entry;
	const struct m6npu_job_status *record = &dump->record;
	unsigned int i;

	drm_printf(p, "job: %llu\nprocess: %s[%d]\n", dump->job, dump->comm,
		   dump->pid);
	drm_printf(p, "asid: %u\ncommands: %u at %#llx\nstep: %#llx\n",
		   le16_to_cpu(entry->asid), le32_to_cpu(entry->cmd_count),
		   le64_to_cpu(entry->cmd_addr),
		   le64_to_cpu(entry->step_addr));
	drm_printf(p, "fence: %llu\n", le64_to_cpu(entry->fence_value));
	for (i = 0; i < M6NPU_REGIONS; i++)
		drm_printf(p, "region %u: %#llx size %#llx\n", i,
			   le64_to_cpu(dump->region[i].addr),
			   le64_to_cpu(dump->region[i].size));
	drm_printf(p, "record: fence %llu code %#x command %u address %#llx\n",
		   le64_to_cpu(record->fence), le32_to_cpu(record->code),
		   le32_to_cpu(record->cmd_index),
		   le64_to_cpu(record->fault_addr));
}

static void coredump_exceptions(struct drm_printer *p,
				struct m6npu_exceptions *exceptions)
{
	const struct m6npu_exception_entry *entry;
	u64 i;

	mutex_lock(&exceptions->log_lock);
	i = exceptions->logged > 32 ? exceptions->logged - 32 : 0;
	for (; i < exceptions->logged; i++) {
		entry = &exceptions->log[i % M6NPU_EXCEPTION_LOG];
		drm_printf(p, "exception: %llu ns code %#x (%s) unit %u asid %u ",
			   entry->time, entry->code,
			   m6npu_exception_name(entry->code), entry->ring,
			   entry->asid);
		drm_printf(p, "address %#llx command %u\n", entry->addr,
			   entry->cmd_index);
	}
	mutex_unlock(&exceptions->log_lock);
}

static void coredump_work(struct work_struct *work)
{
	struct m6npu_coredump *dump = container_of(work, struct m6npu_coredump,
						   work);
	struct m6npu_device *m6npu = container_of(dump, struct m6npu_device,
						  coredump);
	void *data = vzalloc(DUMP_SIZE);
	struct drm_print_iterator iter = {
		.data = data,
		.remain = DUMP_SIZE,
	};
	struct drm_printer p = drm_coredump_printer(&iter);
	unsigned int i;

	if (!data)
		return;
	drm_printf(&p, "m6npu hang\nfirmware: %08x\nfeatures: %#x\n",
		   m6npu->fw_version, m6npu->features);
	drm_printf(&p, "status: %#x\nring: %u\n", dump->status, dump->ring);
	for (i = 0; i < ARRAY_SIZE(dump->regs); i++)
		drm_printf(&p, "register %#04zx: %#010x\n", i * sizeof(u32),
			   dump->regs[i]);
	coredump_job(&p, dump);
	coredump_exceptions(&p, &m6npu->exceptions);
	dev_coredumpv(m6npu->drm.dev, data, DUMP_SIZE - iter.remain,
		      GFP_KERNEL);
}

void m6npu_coredump_init(struct m6npu_device *m6npu)
{
	INIT_WORK(&m6npu->coredump.work, coredump_work);
}

/* No unit hangs any more. */
void m6npu_coredump_fini(struct m6npu_device *m6npu)
{
	cancel_work_sync(&m6npu->coredump.work);
}
