/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM m6npu

#if !defined(M6NPU_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define M6NPU_TRACE_H

#include <linux/tracepoint.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_job.h"
#include "m6npu_ring.h"

TRACE_EVENT(m6npu_job_submit,
	    TP_PROTO(const struct m6npu_job *job),
	    TP_ARGS(job),
	    TP_STRUCT__entry(__field(u64, job)
			     __field(u64, cmd_addr)
			     __field(u32, cmd_count)
			     __field(u32, asid)),
	    TP_fast_assign(__entry->job = job->id;
			   __entry->cmd_addr = job->cmd_addr;
			   __entry->cmd_count = job->cmd_count;
			   __entry->asid = job->ctx->vm->asid;),
	    TP_printk("asid=%u job=%llu commands=%u at=%#llx", __entry->asid,
		      __entry->job, __entry->cmd_count, __entry->cmd_addr)
);

TRACE_EVENT(m6npu_job_run,
	    TP_PROTO(const struct m6npu_job *job),
	    TP_ARGS(job),
	    TP_STRUCT__entry(__field(u64, job)
			     __field(u64, fence)
			     __field(u32, asid)
			     __field(u32, ring)),
	    TP_fast_assign(__entry->job = job->id;
			   __entry->fence = job->fence_value;
			   __entry->asid = job->ctx->vm->asid;
			   __entry->ring = job->ring->index;),
	    TP_printk("ring=%u asid=%u job=%llu fence=%llu", __entry->ring,
		      __entry->asid, __entry->job, __entry->fence)
);

TRACE_EVENT(m6npu_job_done,
	    TP_PROTO(const struct m6npu_job *job,
		     const struct drm_m6npu_job_info *info),
	    TP_ARGS(job, info),
	    TP_STRUCT__entry(__field(u64, job)
			     __field(u64, begin_ns)
			     __field(u64, end_ns)
			     __field(u32, asid)
			     __field(int, ring)
			     __field(int, error)
			     __field(u32, exception)
			     __field(u32, router_hits)
			     __field(u32, router_misses)
			     __field(u32, expert_faults)),
	    TP_fast_assign(__entry->job = job->id;
			   __entry->begin_ns = info->begin_ns;
			   __entry->end_ns = info->end_ns;
			   __entry->asid = job->ctx->vm->asid;
			   __entry->ring = job->ring ? job->ring->index : -1;
			   __entry->error = info->error;
			   __entry->exception = info->exception;
			   __entry->router_hits = info->router_hits;
			   __entry->router_misses = info->router_misses;
			   __entry->expert_faults = info->expert_faults;),
	    TP_printk("ring=%d asid=%u job=%llu error=%d exception=%#x begin=%llu end=%llu router_hits=%u router_misses=%u expert_faults=%u",
		      __entry->ring, __entry->asid, __entry->job, __entry->error,
		      __entry->exception, __entry->begin_ns, __entry->end_ns,
		      __entry->router_hits, __entry->router_misses,
		      __entry->expert_faults)
);

DECLARE_EVENT_CLASS(m6npu_expert,
		    TP_PROTO(const struct m6npu_ring *ring, u64 job,
			     const struct m6npu_exception *record),
		    TP_ARGS(ring, job, record),
		    TP_STRUCT__entry(__field(u64, job)
				     __field(u64, mask)
				     __field(u32, ring)
				     __field(u32, asid)
				     __field(u32, layer)
				     __field(u32, base)),
		    TP_fast_assign(__entry->job = job;
				   __entry->mask = le64_to_cpu(record->mask);
				   __entry->ring = ring->index;
				   __entry->asid = le16_to_cpu(record->asid);
				   __entry->layer = le16_to_cpu(record->layer);
				   __entry->base = le16_to_cpu(record->expert_base);),
		    TP_printk("ring=%u asid=%u job=%llu layer=%u base=%u mask=%#llx",
			      __entry->ring, __entry->asid, __entry->job, __entry->layer,
			      __entry->base, __entry->mask)
);

DEFINE_EVENT(m6npu_expert, m6npu_expert_fault,
	     TP_PROTO(const struct m6npu_ring *ring, u64 job,
		      const struct m6npu_exception *record),
	     TP_ARGS(ring, job, record)
);

DEFINE_EVENT(m6npu_expert, m6npu_expert_hint,
	     TP_PROTO(const struct m6npu_ring *ring, u64 job,
		      const struct m6npu_exception *record),
	     TP_ARGS(ring, job, record)
);

DEFINE_EVENT(m6npu_expert, m6npu_router_full,
	     TP_PROTO(const struct m6npu_ring *ring, u64 job,
		      const struct m6npu_exception *record),
	     TP_ARGS(ring, job, record)
);

TRACE_EVENT(m6npu_exception,
	    TP_PROTO(const struct m6npu_device *m6npu,
		     const struct m6npu_exception *record, u64 job),
	    TP_ARGS(m6npu, record, job),
	    TP_STRUCT__entry(__string(dev, dev_name(m6npu->drm.dev))
			     __field(u64, addr)
			     __field(u64, job)
			     __field(u32, code)
			     __field(u32, ring)
			     __field(u32, asid)
			     __field(u32, cmd)),
	    TP_fast_assign(__assign_str(dev);
			   __entry->addr = le64_to_cpu(record->addr);
			   __entry->job = job;
			   __entry->code = le32_to_cpu(record->code);
			   __entry->ring = le16_to_cpu(record->ring);
			   __entry->asid = le16_to_cpu(record->asid);
			   __entry->cmd = le32_to_cpu(record->cmd_index);),
	    TP_printk("%s code=%#x ring=%u asid=%u addr=%#llx job=%llu command=%u",
		      __get_str(dev), __entry->code, __entry->ring, __entry->asid,
		      __entry->addr, __entry->job, __entry->cmd)
);

TRACE_EVENT(m6npu_reset,
	    TP_PROTO(const struct m6npu_device *m6npu, int ring, u64 job),
	    TP_ARGS(m6npu, ring, job),
	    TP_STRUCT__entry(__string(dev, dev_name(m6npu->drm.dev))
			     __field(u64, job)
			     __field(int, ring)),
	    TP_fast_assign(__assign_str(dev);
			   __entry->job = job;
			   __entry->ring = ring;),
	    TP_printk("%s ring=%d job=%llu", __get_str(dev), __entry->ring,
		      __entry->job)
);

TRACE_EVENT(m6npu_defrag,
	    TP_PROTO(const struct m6npu_pool *pool,
		     const struct drm_m6npu_pool_defrag *report),
	    TP_ARGS(pool, report),
	    TP_STRUCT__entry(__string(dev, dev_name(pool->m6npu->drm.dev))
			     __field(u64, before)
			     __field(u64, after)
			     __field(u64, moved)
			     __field(u64, copied)
			     __field(u64, time_ns)
			     __field(u64, pause_ns)
			     __field(u32, pool)
			     __field(u32, buffers)
			     __field(u32, stayed)),
	    TP_fast_assign(__assign_str(dev);
			   __entry->before = report->largest_before;
			   __entry->after = report->largest_after;
			   __entry->moved = report->moved;
			   __entry->copied = report->copied;
			   __entry->time_ns = report->time_ns;
			   __entry->pause_ns = report->pause_ns;
			   __entry->pool = pool->id;
			   __entry->buffers = report->buffers;
			   __entry->stayed = report->stayed;),
	    TP_printk("%s pool=%u largest=%llu->%llu buffers=%u stayed=%u moved=%llu copied=%llu time_ns=%llu pause_ns=%llu",
		      __get_str(dev), __entry->pool, __entry->before,
		      __entry->after, __entry->buffers, __entry->stayed,
		      __entry->moved, __entry->copied, __entry->time_ns,
		      __entry->pause_ns)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE m6npu_trace
#include <trace/define_trace.h>
