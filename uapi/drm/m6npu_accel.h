/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * M6 NPU, /dev/accel/accelN: the ioctl contract.
 *
 * Rules
 *  - New ioctls go at the end; new fields go at the end of a structure. The
 *    kernel treats missing trailing fields as zero. Nested arrays carry their
 *    element size (stride), so they grow the same way.
 *  - Pads and unknown flags must be zero, else -EINVAL.
 *  - "In" fields are read, "Out" fields written; unmarked fields are in.
 *  - Device addresses are 38 bits and private to an open file: an open file is
 *    one context, with an address space, an expert table and an event queue.
 *  - Everything a file created goes away with it, persistent pools excepted.
 *  - Every ioctl fails with -ENODEV once the device is gone.
 */
#ifndef _UAPI_DRM_M6NPU_ACCEL_H_
#define _UAPI_DRM_M6NPU_ACCEL_H_

#include <drm/drm.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define DRM_M6NPU_GET_PARAM		0x00
#define DRM_M6NPU_POOL_CREATE		0x01
#define DRM_M6NPU_POOL_DESTROY		0x02
#define DRM_M6NPU_POOL_INFO		0x03
#define DRM_M6NPU_BO_CREATE		0x04
#define DRM_M6NPU_BO_INFO		0x05
#define DRM_M6NPU_BO_SYNC		0x06
#define DRM_M6NPU_CMDLIST_SEAL		0x07
#define DRM_M6NPU_SUBMIT		0x08
#define DRM_M6NPU_JOB_INFO		0x09
#define DRM_M6NPU_EXPERT_TABLE		0x0a
#define DRM_M6NPU_EXPERT_BIND		0x0b
#define DRM_M6NPU_ROUTER_CTL		0x0c
#define DRM_M6NPU_RESET			0x0d
#define DRM_M6NPU_POOL_FLUSH		0x0e
#define DRM_M6NPU_POOL_DEFRAG		0x0f
#define DRM_M6NPU_REGION_MAP		0x10
#define DRM_M6NPU_REGION_UNMAP		0x11
#define DRM_M6NPU_JOB_ABORT		0x12
#define DRM_M6NPU_LAYER_STATS		0x13

/* ---- GET_PARAM ---- */

/**
 * enum drm_m6npu_param - what GET_PARAM can be asked
 *
 * Values marked (file) are of the calling file's context.
 */
enum drm_m6npu_param {
	/** @DRM_M6NPU_PARAM_DEVICE_ID: PCI device id << 16 | vendor id */
	DRM_M6NPU_PARAM_DEVICE_ID = 0,
	/** @DRM_M6NPU_PARAM_FW_VERSION: major << 24 | minor << 16 | patch << 8 | rc */
	DRM_M6NPU_PARAM_FW_VERSION = 1,
	/** @DRM_M6NPU_PARAM_FEATURES: DRM_M6NPU_FEATURE_* */
	DRM_M6NPU_PARAM_FEATURES = 2,
	/** @DRM_M6NPU_PARAM_UNITS: compute units */
	DRM_M6NPU_PARAM_UNITS = 3,
	/** @DRM_M6NPU_PARAM_ROUTER_ENTRIES: entries of the expert-router cache */
	DRM_M6NPU_PARAM_ROUTER_ENTRIES = 4,
	/** @DRM_M6NPU_PARAM_SRAM_SIZE: bytes */
	DRM_M6NPU_PARAM_SRAM_SIZE = 5,
	/** @DRM_M6NPU_PARAM_VA_BITS: width of a device address */
	DRM_M6NPU_PARAM_VA_BITS = 6,
	/** @DRM_M6NPU_PARAM_MAX_CHUNK: bytes a loader should not exceed per buffer */
	DRM_M6NPU_PARAM_MAX_CHUNK = 7,
	/** @DRM_M6NPU_PARAM_CMA_SIZE: bytes of the contiguous area behind pools, 0 if unknown */
	DRM_M6NPU_PARAM_CMA_SIZE = 8,
	/** @DRM_M6NPU_PARAM_TEMPERATURE: millidegrees C, offset applied, as s64 */
	DRM_M6NPU_PARAM_TEMPERATURE = 9,
	/** @DRM_M6NPU_PARAM_POWER: milliwatts */
	DRM_M6NPU_PARAM_POWER = 10,
	/** @DRM_M6NPU_PARAM_FREQUENCY: hertz */
	DRM_M6NPU_PARAM_FREQUENCY = 11,
	/** @DRM_M6NPU_PARAM_DEVICE_TIME: nanoseconds of device time */
	DRM_M6NPU_PARAM_DEVICE_TIME = 12,
	/** @DRM_M6NPU_PARAM_CTX_BUSY: ns of device time used (file) */
	DRM_M6NPU_PARAM_CTX_BUSY = 13,
	/** @DRM_M6NPU_PARAM_CTX_ROUTER_HITS: (file) */
	DRM_M6NPU_PARAM_CTX_ROUTER_HITS = 14,
	/** @DRM_M6NPU_PARAM_CTX_ROUTER_MISSES: (file) */
	DRM_M6NPU_PARAM_CTX_ROUTER_MISSES = 15,
	/** @DRM_M6NPU_PARAM_CTX_EXPERT_FAULTS: (file) */
	DRM_M6NPU_PARAM_CTX_EXPERT_FAULTS = 16,
	/** @DRM_M6NPU_PARAM_CTX_JOBS: jobs that ended (file) */
	DRM_M6NPU_PARAM_CTX_JOBS = 17,
};

#define DRM_M6NPU_FEATURE_LARGE_PAGES		(1ull << 0)
#define DRM_M6NPU_FEATURE_SEQLEN_CHECK		(1ull << 1)
#define DRM_M6NPU_FEATURE_TEMP_DRIFT_FIX	(1ull << 2)
#define DRM_M6NPU_FEATURE_AUTO_RECOVER		(1ull << 3)

/**
 * struct drm_m6npu_get_param - one figure about the device or the context
 *
 * Errors: -EINVAL unknown @param, -ENODEV the device is gone.
 */
struct drm_m6npu_get_param {
	/** @param: enum drm_m6npu_param */
	__u32 param;
	/** @pad: zero */
	__u32 pad;
	/** @value: Out. */
	__u64 value;
};

/* ---- Pools ---- */

/** Any user of the device may allocate from it, and it outlives the file. Needs CAP_SYS_ADMIN. */
#define DRM_M6NPU_POOL_PERSISTENT	(1u << 0)

/**
 * struct drm_m6npu_pool_create - reserve physically contiguous memory
 *
 * The pool is one contiguous area, or, if @max_segments > 1, up to that many.
 * Creation does not touch it; memory is cleared before anyone sees it.
 *
 * Errors: -EINVAL @size 0 or above 2^38, @max_segments above 16, @client_limit
 * of a pool that is not persistent; -ENOMEM no such contiguous area (the log
 * says, at most every 30 seconds, what would fit); -EDQUOT the file would hold
 * more of the contiguous area than the module parameter client_percent allows,
 * which CAP_SYS_RESOURCE overrides; -EIO the memory cannot be mapped for the
 * device; -ERANGE the device cannot address it; -EPERM persistent without
 * CAP_SYS_ADMIN; -ENOSPC too many pools (64 per file, 64 persistent ones);
 * -EINTR.
 */
struct drm_m6npu_pool_create {
	/** @size: bytes; rounded up to a multiple of 4 KiB; Out: as rounded */
	__u64 size;
	/** @flags: DRM_M6NPU_POOL_* */
	__u32 flags;
	/** @max_segments: 0 and 1 mean one contiguous area */
	__u32 max_segments;
	/** @pool: Out. Id, never 0; of this file, or of the device if persistent */
	__u32 pool;
	/** @pad: zero */
	__u32 pad;
	/** @client_limit: bytes one file may hold in a persistent pool, 0 = all */
	__u64 client_limit;
};

/**
 * struct drm_m6npu_pool_destroy - give a pool back
 *
 * Waits for closed buffers that jobs still use. A CPU mapping keeps its buffer
 * after the handle is closed.
 *
 * Errors: -ENOENT no such pool, -EBUSY it still holds buffers, -EPERM a
 * persistent pool without CAP_SYS_ADMIN, -EINTR.
 */
struct drm_m6npu_pool_destroy {
	/** @pool: id */
	__u32 pool;
	/** @pad: zero */
	__u32 pad;
};

/**
 * struct drm_m6npu_pool_info - figures of one pool
 *
 * Errors: -ENOENT no such pool.
 */
struct drm_m6npu_pool_info {
	/** @pool: id; 0 asks for the sum over the pools this file may use */
	__u32 pool;
	/** @flags: Out. DRM_M6NPU_POOL_* */
	__u32 flags;
	/** @size: Out. Bytes */
	__u64 size;
	/** @used: Out. Bytes in buffers */
	__u64 used;
	/** @largest_free: Out. Bytes of the largest free block */
	__u64 largest_free;
	/** @buffers: Out. */
	__u32 buffers;
	/** @segments: Out. */
	__u32 segments;
	/** @client_used: Out. Those of @used that are this file's */
	__u64 client_used;
	/** @client_limit: Out. Bytes one file may hold in it, 0 = all */
	__u64 client_limit;
	/** @pinned: Out. Bytes that POOL_DEFRAG does not move */
	__u64 pinned;
	/** @next: Out. The next higher id that this file may use, 0 = none */
	__u32 next;
	/** @pad: Out. Zero */
	__u32 pad;
};

/**
 * struct drm_m6npu_pool_flush - give back what nothing needs
 *
 * Waits until closed buffers that jobs still use are freed, then gives empty
 * segments of the pool back to the system, but for one. The pool's size shrinks
 * accordingly, and does not grow again.
 *
 * Errors: -EINVAL flags; -ENOENT no such pool; -EPERM a persistent pool without
 * CAP_SYS_ADMIN; -EINTR.
 */
struct drm_m6npu_pool_flush {
	/** @pool: id */
	__u32 pool;
	/** @flags: zero */
	__u32 flags;
	/** @freed: Out. Bytes of buffers that were waited for */
	__u64 freed;
	/** @released: Out. Bytes of segments given back to the system */
	__u64 released;
	/** @largest_free: Out. As POOL_INFO reports it afterwards */
	__u64 largest_free;
};

/** Fail with -EBUSY rather than wait for jobs. */
#define DRM_M6NPU_DEFRAG_NO_DRAIN	(1u << 0)

/**
 * struct drm_m6npu_pool_defrag - move buffers so that free memory is contiguous
 *
 * At any time, under running jobs as well: for each batch of moves, jobs of the
 * address space at hand are let run to their end and new ones held back, at most
 * @pause_ns long. Device addresses, CPU mappings and contents stay valid, jobs
 * see nothing of it. Buffers stay where they are if they were ever shared through
 * a dma-buf, are mapped by a window, or belong to an address space whose jobs do
 * not end within two seconds.
 *
 * Buffers that were not used yet are moved without being copied. Anyone may
 * defragment a pool of everybody's; but between the batches, one without
 * CAP_SYS_ADMIN waits as long as it held the jobs of others.
 *
 * Errors: -EINVAL flags; -ENOENT no such pool; -EBUSY DRM_M6NPU_DEFRAG_NO_DRAIN
 * and jobs are queued or running that would have to be waited for; -EINTR. After
 * the last two the report says what was done.
 */
struct drm_m6npu_pool_defrag {
	/** @pool: id */
	__u32 pool;
	/** @flags: DRM_M6NPU_DEFRAG_* */
	__u32 flags;
	/** @largest_before: Out. Bytes of the largest free block */
	__u64 largest_before;
	/** @largest_after: Out. */
	__u64 largest_after;
	/** @free: Out. Bytes that are free */
	__u64 free;
	/** @moved: Out. Bytes in buffers that were moved */
	__u64 moved;
	/** @copied: Out. Bytes that were copied for it */
	__u64 copied;
	/** @copied_device: Out. Those of them that the device copied */
	__u64 copied_device;
	/** @time_ns: Out. */
	__u64 time_ns;
	/** @pause_ns: Out. Longest time that jobs were held back */
	__u64 pause_ns;
	/** @buffers: Out. Moves made */
	__u32 buffers;
	/** @stayed: Out. Buffers that could not be moved, as said above */
	__u32 stayed;
};

/* ---- Buffers ---- */

/** Caller chooses the device address (@addr in), which must be free. */
#define DRM_M6NPU_BO_FIXED_ADDR		(1u << 0)
/** The device may only read it. */
#define DRM_M6NPU_BO_DEVICE_READONLY	(1u << 1)

/**
 * struct drm_m6npu_bo_create - a zeroed buffer in a pool, mapped for the device
 *
 * The buffer has its device address for life, a multiple of @align or, by
 * default, of 4 KiB, of 32 MiB from that size on.
 *
 * Memory is cleared when it is first used, in pieces of up to 32 MiB: by access
 * through mmap, or when SUBMIT, EXPERT_BIND, CMDLIST_SEAL, REGION_MAP or an
 * export as a dma-buf first names it. So a large buffer costs nothing until
 * then. A job therefore only reaches what existed when it was submitted.
 *
 * Errors: -EINVAL bad size, flags, @align or @addr; -ENOENT no such pool;
 * -ENOSPC the pool has not as many bytes free; -ENOBUFS it has, but in blocks
 * that are too small or not aligned, so POOL_DEFRAG may help (see @largest_free
 * of POOL_INFO); -EDQUOT the file would hold more than the pool's @client_limit;
 * -EADDRINUSE @addr taken, if only by a closed buffer that jobs still use;
 * -ENOMEM; -EINTR. In a full pool the call waits up to two seconds for closed
 * buffers that jobs still use.
 */
struct drm_m6npu_bo_create {
	/** @size: bytes, rounded up to 4 KiB; Out: as rounded */
	__u64 size;
	/** @pool: id */
	__u32 pool;
	/** @flags: DRM_M6NPU_BO_* */
	__u32 flags;
	/** @addr: device address; Out, unless DRM_M6NPU_BO_FIXED_ADDR */
	__u64 addr;
	/** @handle: Out. GEM handle, closed with DRM_IOCTL_GEM_CLOSE */
	__u32 handle;
	/** @pad: zero */
	__u32 pad;
	/**
	 * @align: of device address and memory: 0 = by size, 4 KiB, 32 MiB (for
	 * large pages of the device) or 256 MiB (for REGION_MAP)
	 */
	__u64 align;
};

/** The buffer is a sealed command list. */
#define DRM_M6NPU_BO_SEALED		(1u << 31)
/** It is a dma-buf of another file or device, not in a pool. */
#define DRM_M6NPU_BO_IMPORTED		(1u << 30)
/** It was exported as a dma-buf, and is not moved any more. */
#define DRM_M6NPU_BO_EXPORTED		(1u << 29)

/**
 * struct drm_m6npu_bo_info - where a buffer is
 *
 * Errors: -ENOENT no such handle.
 */
struct drm_m6npu_bo_info {
	/** @handle: GEM handle */
	__u32 handle;
	/** @flags: Out. DRM_M6NPU_BO_* */
	__u32 flags;
	/** @size: Out. Bytes */
	__u64 size;
	/** @addr: Out. Device address */
	__u64 addr;
	/** @mmap_offset: Out. For mmap(2) of the device file; MAP_SHARED */
	__u64 mmap_offset;
	/** @pool: Out. Id, 0 if imported */
	__u32 pool;
	/** @pad: Out. Zero */
	__u32 pad;
	/** @align: Out. Device address and memory are multiples of this */
	__u64 align;
	/** @ready: Out. Bytes that were cleared and that the device can reach */
	__u64 ready;
};

#define DRM_M6NPU_SYNC_TO_DEVICE	(1u << 0)
#define DRM_M6NPU_SYNC_FROM_DEVICE	(1u << 1)

/**
 * struct drm_m6npu_bo_sync - make CPU and device see each other's writes
 *
 * Needed around CPU access through mmap; a no-op on coherent systems.
 *
 * Errors: -ENOENT no such handle, -EINVAL range outside the buffer or no flag.
 */
struct drm_m6npu_bo_sync {
	/** @handle: GEM handle */
	__u32 handle;
	/** @flags: DRM_M6NPU_SYNC_*, at least one */
	__u32 flags;
	/** @offset: bytes */
	__u64 offset;
	/** @size: bytes */
	__u64 size;
};

/**
 * struct drm_m6npu_cmdlist_seal - make a buffer an immutable command list
 *
 * CPU mappings are zapped and further access raises SIGBUS; the device loses
 * write access. SUBMIT takes sealed buffers only. There is no unseal.
 *
 * Errors: -ENOENT no such handle; -EBUSY jobs of this context are queued or
 * run, or a window maps the buffer; -EPERM it was exported or imported, so that
 * others could change it; -EINTR. Sealing twice is fine. mmap(2) of a sealed
 * buffer fails with -EACCES, its export with -EPERM.
 */
struct drm_m6npu_cmdlist_seal {
	/** @handle: GEM handle */
	__u32 handle;
	/** @pad: zero */
	__u32 pad;
};

/**
 * struct drm_m6npu_region_map - map part of a buffer by a window
 *
 * A context has 16 windows. Each maps up to 2 GiB of contiguous memory at the
 * buffer's own device address, without page tables, so that access there never
 * misses the TLB. Results are the same with and without.
 *
 * Device address and memory must be multiples of 256 MiB: give the buffer that
 * @align, and take a multiple of 256 MiB as @offset. What is mapped is cleared,
 * if it was not used yet, and is not moved by POOL_DEFRAG until it is unmapped.
 *
 * Errors: -ENOENT no such handle; -EINVAL flags, range outside the buffer, @size
 * above 2 GiB, or not aligned (the log has PAGE_ALIGNMENT_VIOLATION); -EEXIST a
 * window maps part of it already; -ENOSPC all windows are in use; -EOPNOTSUPP an
 * imported buffer; -ENOMEM; -EINTR.
 */
struct drm_m6npu_region_map {
	/** @handle: GEM handle */
	__u32 handle;
	/** @flags: zero */
	__u32 flags;
	/** @offset: bytes into the buffer, multiple of 256 MiB */
	__u64 offset;
	/** @size: bytes, multiple of 4 KiB; 0 = to the end or 2 GiB; Out: as mapped */
	__u64 size;
	/** @window: Out. Index, 0..15 */
	__u32 window;
	/** @pad: zero */
	__u32 pad;
};

/**
 * struct drm_m6npu_region_unmap - back to page tables
 *
 * Running jobs are not disturbed. Closing the buffer does the same.
 *
 * Errors: -EINVAL pad; -ENOENT no such window, or it maps nothing.
 */
struct drm_m6npu_region_unmap {
	/** @window: index */
	__u32 window;
	/** @pad: zero */
	__u32 pad;
};

/* ---- Jobs ---- */

/** @handle is a timeline syncobj and @point its point. */
#define DRM_M6NPU_SYNC_TIMELINE		(1u << 0)

/** struct drm_m6npu_sync - a syncobj to wait for or to signal */
struct drm_m6npu_sync {
	/** @handle: of the syncobj */
	__u32 handle;
	/** @flags: DRM_M6NPU_SYNC_TIMELINE or 0 */
	__u32 flags;
	/** @point: timeline point, not 0; 0 for binary syncobjs */
	__u64 point;
};

/**
 * struct drm_m6npu_region - a range of device addresses commands may name
 *
 * May span buffers that lie side by side. What did not exist when the job was
 * submitted faults when it is touched.
 */
struct drm_m6npu_region {
	/** @addr: device address, multiple of 64 */
	__u64 addr;
	/** @size: bytes, 0 for a region that is not used */
	__u64 size;
};

#define DRM_M6NPU_PRIORITY_NORMAL	0
#define DRM_M6NPU_PRIORITY_LOW		1
/** Needs CAP_SYS_NICE. */
#define DRM_M6NPU_PRIORITY_HIGH		2

/** Run on the DMA engine (COPY, FILL, COMPARE, LZ4_DECOMPRESS lists) instead of a unit. */
#define DRM_M6NPU_SUBMIT_DMA_ENGINE	(1u << 0)

#define DRM_M6NPU_MAX_REGIONS		8
#define DRM_M6NPU_MAX_SYNCS		64
#define DRM_M6NPU_MAX_COMMANDS		65536

/**
 * struct drm_m6npu_submit - queue a job
 *
 * Jobs of a file run one after another, in order, per engine kind and
 * priority. The job keeps every buffer of the file alive until it ended.
 *
 * Errors: -ENOENT no such handle or syncobj; -EINVAL list not sealed, range
 * outside it, bad region, count or flag; -EPERM priority; -ENOMEM; -EAGAIN
 * 1024 jobs of the file have not ended yet; -ENODEV device gone; -EIO the
 * context was ended, since it caused a reset of the whole device, or three
 * jobs in a row that hung (each of which costs a reset of their unit only).
 */
struct drm_m6npu_submit {
	/** @cmdlist: GEM handle of a sealed buffer */
	__u32 cmdlist;
	/** @cmd_count: commands, 1..DRM_M6NPU_MAX_COMMANDS */
	__u32 cmd_count;
	/** @cmd_offset: bytes into the buffer, multiple of 64 */
	__u64 cmd_offset;
	/** @step_addr: device address of the step block, 0 = none */
	__u64 step_addr;
	/** @regions: pointer to struct drm_m6npu_region */
	__u64 regions;
	/** @in_syncs: pointer to struct drm_m6npu_sync, waited for */
	__u64 in_syncs;
	/** @out_syncs: pointer to struct drm_m6npu_sync, signalled when the job ended */
	__u64 out_syncs;
	/** @region_count: 0..DRM_M6NPU_MAX_REGIONS */
	__u32 region_count;
	/** @region_stride: sizeof(struct drm_m6npu_region) */
	__u32 region_stride;
	/** @in_sync_count: 0..DRM_M6NPU_MAX_SYNCS */
	__u32 in_sync_count;
	/** @out_sync_count: 0..DRM_M6NPU_MAX_SYNCS */
	__u32 out_sync_count;
	/** @sync_stride: sizeof(struct drm_m6npu_sync) */
	__u32 sync_stride;
	/** @flags: DRM_M6NPU_SUBMIT_* */
	__u32 flags;
	/** @priority: DRM_M6NPU_PRIORITY_* */
	__u32 priority;
	/** @unit_mask: units the job may run on, 0 = any; 0 for the DMA engine */
	__u32 unit_mask;
	/** @job: Out. Id of the job, unique in the context, counts from 1 */
	__u64 job;
};

/**
 * struct drm_m6npu_job_info - how a job ended
 *
 * The last 64 jobs of a context are remembered. Waiting is the syncobj's.
 *
 * Errors: -ENOENT not a job of this context, or forgotten; -EBUSY not ended.
 */
struct drm_m6npu_job_info {
	/** @job: id from SUBMIT */
	__u64 job;
	/**
	 * @error: Out. 0, or -EFAULT (MMU), -EINVAL (bad command or operand),
	 * -ETIME (hang or expert not bound in time), -ECANCELED (context
	 * ended, or JOB_ABORT), -EIO (other), -ENODEV
	 */
	__s32 error;
	/** @exception: Out. Device's exception code, 0 = none; see hardware.rst */
	__u32 exception;
	/** @fault_addr: Out. Device address, if there was one */
	__u64 fault_addr;
	/** @begin_ns: Out. Device time */
	__u64 begin_ns;
	/** @end_ns: Out. Device time */
	__u64 end_ns;
	/** @cmd_index: Out. Of the failing command, else commands done */
	__u32 cmd_index;
	/** @router_hits: Out. */
	__u32 router_hits;
	/** @router_misses: Out. */
	__u32 router_misses;
	/** @expert_faults: Out. */
	__u32 expert_faults;
};

/**
 * struct drm_m6npu_job_abort - end a job early, with -ECANCELED
 *
 * Also one that waits for experts. Returns when the job has ended, whichever
 * way: it may have come to its own end just before. A job that has not begun
 * never does, but is not over before its turn comes.
 *
 * Errors: -ENOENT not a job of this context, or it has ended; -EINTR, and the
 * job is going to end all the same.
 */
struct drm_m6npu_job_abort {
	/** @job: id from SUBMIT */
	__u64 job;
};

/* ---- Experts ---- */

#define DRM_M6NPU_MAX_EXPERT_LAYERS	256
#define DRM_M6NPU_MAX_EXPERTS		512

/**
 * struct drm_m6npu_expert_table - give the context an expert table
 *
 * All experts start absent. Both 0 drops the table.
 *
 * Errors: -EINVAL too large; -EBUSY jobs of this context still run; -EEXIST
 * there is one (drop it first).
 */
struct drm_m6npu_expert_table {
	/** @layers: 1..DRM_M6NPU_MAX_EXPERT_LAYERS */
	__u32 layers;
	/** @experts: per layer, 1..DRM_M6NPU_MAX_EXPERTS */
	__u32 experts;
};

#define DRM_M6NPU_EXPERT_ABSENT		0
#define DRM_M6NPU_EXPERT_RESIDENT	1
/** Kept in the router cache once it is there. */
#define DRM_M6NPU_EXPERT_PINNED		2

/** struct drm_m6npu_expert - one entry for EXPERT_BIND */
struct drm_m6npu_expert {
	/** @layer: index */
	__u16 layer;
	/** @expert: index in the layer */
	__u16 expert;
	/** @state: DRM_M6NPU_EXPERT_* */
	__u32 state;
	/** @addr: device address of the weights, multiple of 64; 0 if absent */
	__u64 addr;
	/** @size: bytes */
	__u32 size;
	/** @priority: 0..1000, for the priority-LRU policy */
	__u32 priority;
	/**
	 * @type: number format of all its weights, as the device's commands
	 * encode it; 0: that which the commands name
	 */
	__u32 type;
	/** @pad: zero */
	__u32 pad;
};

#define DRM_M6NPU_MAX_BINDS		4096

/**
 * struct drm_m6npu_expert_bind - change entries of the expert table
 *
 * All or none are applied. A job of this context that waits for experts looks
 * again afterwards, unless all became absent. Unbinding (ABSENT) waits for the
 * context's running jobs, except those that wait for an expert.
 *
 * Errors: -EINVAL bad index, address or state (@count is then the index of the
 * entry at fault); -ENXIO no table; -E2BIG @count above DRM_M6NPU_MAX_BINDS;
 * -EINTR. Entries without @type and @pad, of 24 bytes, are good as well.
 */
struct drm_m6npu_expert_bind {
	/** @entries: pointer to struct drm_m6npu_expert */
	__u64 entries;
	/** @count: entries */
	__u32 count;
	/** @stride: sizeof(struct drm_m6npu_expert) */
	__u32 stride;
};

#define DRM_M6NPU_ROUTER_POLICY_OFF		0
#define DRM_M6NPU_ROUTER_POLICY_LRU		1
#define DRM_M6NPU_ROUTER_POLICY_PRIORITY_LRU	2

#define DRM_M6NPU_ROUTER_SET_POLICY	(1u << 0)
#define DRM_M6NPU_ROUTER_SET_THRESHOLD	(1u << 1)
#define DRM_M6NPU_ROUTER_INVALIDATE	(1u << 2)

/**
 * struct drm_m6npu_router_ctl - the device's expert-router cache
 *
 * Sets what @flags say, then reports. The cache is shared by all contexts;
 * results never depend on it. DRM_M6NPU_ROUTER_INVALIDATE drops the entries of
 * the caller's context only.
 *
 * Errors: -EINVAL unknown policy, flag, threshold above 1000; -ENODEV device
 * lost.
 */
struct drm_m6npu_router_ctl {
	/** @flags: DRM_M6NPU_ROUTER_* */
	__u32 flags;
	/** @policy: DRM_M6NPU_ROUTER_POLICY_*; Out: in force */
	__u32 policy;
	/** @threshold: prefetch probability in 1/1000; Out: in force */
	__u32 threshold;
	/** @entries: Out. In use */
	__u32 entries;
	/** @pinned: Out. */
	__u32 pinned;
	/** @pad: zero */
	__u32 pad;
	/** @hits: Out. Since the device was reset, as are the following */
	__u64 hits;
	/** @misses: Out. */
	__u64 misses;
	/** @evictions: Out. */
	__u64 evictions;
	/** @faults: Out. */
	__u64 faults;
	/** @full: Out. Misses that found every entry pinned */
	__u64 full;
	/**
	 * @quota: Out. Entries that a context keeps against others: all, divided
	 * by the number of contexts that have an expert table
	 */
	__u32 quota;
	/** @pad2: Out. Zero */
	__u32 pad2;
};

/** struct drm_m6npu_layer_stats - what became of one layer's expert lookups */
struct drm_m6npu_layer_stats {
	/** @hits: of the router cache */
	__u64 hits;
	/** @misses: of the router cache */
	__u64 misses;
	/** @evictions: of entries, to make room for this layer's */
	__u64 evictions;
	/** @full: misses that found every entry pinned */
	__u64 full;
	/** @faults: misses of absent experts */
	__u64 faults;
	/** @sram_hits: experts whose weights came from SRAM */
	__u64 sram_hits;
	/** @prefetches: experts that EXPERT_PREFETCH copied there */
	__u64 prefetches;
	/** @hints: absent experts that it asked for */
	__u64 hints;
};

/**
 * struct drm_m6npu_layer_stats_get - the context's figures, layer by layer
 *
 * Of jobs that have ended, since the expert table was made.
 *
 * Errors: -EINVAL pad, or @stride below 8 or no multiple of it or above 4096;
 * -ENXIO no table; -EFAULT; -EINTR.
 */
struct drm_m6npu_layer_stats_get {
	/** @entries: pointer to struct drm_m6npu_layer_stats */
	__u64 entries;
	/** @count: room in @entries; Out: layers of the table */
	__u32 count;
	/** @stride: sizeof(struct drm_m6npu_layer_stats); what we lack is zeroed */
	__u32 stride;
	/** @first: layer to begin with */
	__u32 first;
	/** @pad: zero */
	__u32 pad;
};

/**
 * struct drm_m6npu_reset - reset the device. Needs CAP_SYS_ADMIN.
 *
 * Jobs on the device end with -EIO; those queued run after the reset.
 *
 * Errors: -EPERM, -ENODEV.
 */
struct drm_m6npu_reset {
	/** @flags: zero */
	__u32 flags;
	/** @pad: zero */
	__u32 pad;
};

/* ---- Events, read(2) from the device file ---- */

#define DRM_M6NPU_EVENT_EXPERT_FAULT	0x80000001
#define DRM_M6NPU_EVENT_EXCEPTION	0x80000002
#define DRM_M6NPU_EVENT_THERMAL		0x80000003
#define DRM_M6NPU_EVENT_EXPERT_HINT	0x80000004
#define DRM_M6NPU_EVENT_ROUTER_FULL	0x80000005

/**
 * struct drm_m6npu_event_expert_fault - a job waits for experts
 *
 * Bit i of @mask stands for expert @expert_base + i of @layer. The job goes on
 * when EXPERT_BIND made them resident; after the driver's expert timeout
 * (module parameter) it ends with -ETIME. Sent again for what is still absent
 * after each bind.
 *
 * DRM_M6NPU_EVENT_EXPERT_HINT has the same fields: a job whose step block asks
 * for hints will probably need these experts and runs on. Dropped when the queue
 * is half full. DRM_M6NPU_EVENT_ROUTER_FULL, too: the expert's lookup found every
 * entry of the router cache pinned; once a job at most.
 */
struct drm_m6npu_event_expert_fault {
	/** @base: type and length */
	struct drm_event base;
	/** @job: id */
	__u64 job;
	/** @layer: index */
	__u32 layer;
	/** @expert_base: index of bit 0 */
	__u32 expert_base;
	/** @mask: which experts */
	__u64 mask;
};

/** struct drm_m6npu_event_exception - a job of this context failed */
struct drm_m6npu_event_exception {
	/** @base: type and length */
	struct drm_event base;
	/** @job: id */
	__u64 job;
	/** @code: the device's exception code */
	__u32 code;
	/** @unit: ring it ran on */
	__u32 unit;
	/** @addr: device address, if there was one */
	__u64 addr;
	/** @cmd_index: of the command */
	__u32 cmd_index;
	/** @pad: zero */
	__u32 pad;
};

/** struct drm_m6npu_event_thermal - throttling began or ended, to every file */
struct drm_m6npu_event_thermal {
	/** @base: type and length */
	struct drm_event base;
	/** @temperature: millidegrees C */
	__s32 temperature;
	/** @throttled: 0 or 1 */
	__u32 throttled;
};

#define DRM_IOCTL_M6NPU_GET_PARAM \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_M6NPU_GET_PARAM, struct drm_m6npu_get_param)
#define DRM_IOCTL_M6NPU_POOL_CREATE \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_M6NPU_POOL_CREATE, struct drm_m6npu_pool_create)
#define DRM_IOCTL_M6NPU_POOL_DESTROY \
	DRM_IOW(DRM_COMMAND_BASE + DRM_M6NPU_POOL_DESTROY, struct drm_m6npu_pool_destroy)
#define DRM_IOCTL_M6NPU_POOL_INFO \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_M6NPU_POOL_INFO, struct drm_m6npu_pool_info)
#define DRM_IOCTL_M6NPU_BO_CREATE \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_M6NPU_BO_CREATE, struct drm_m6npu_bo_create)
#define DRM_IOCTL_M6NPU_BO_INFO \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_M6NPU_BO_INFO, struct drm_m6npu_bo_info)
#define DRM_IOCTL_M6NPU_BO_SYNC \
	DRM_IOW(DRM_COMMAND_BASE + DRM_M6NPU_BO_SYNC, struct drm_m6npu_bo_sync)
#define DRM_IOCTL_M6NPU_CMDLIST_SEAL \
	DRM_IOW(DRM_COMMAND_BASE + DRM_M6NPU_CMDLIST_SEAL, struct drm_m6npu_cmdlist_seal)
#define DRM_IOCTL_M6NPU_SUBMIT \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_M6NPU_SUBMIT, struct drm_m6npu_submit)
#define DRM_IOCTL_M6NPU_JOB_INFO \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_M6NPU_JOB_INFO, struct drm_m6npu_job_info)
#define DRM_IOCTL_M6NPU_EXPERT_TABLE \
	DRM_IOW(DRM_COMMAND_BASE + DRM_M6NPU_EXPERT_TABLE, struct drm_m6npu_expert_table)
#define DRM_IOCTL_M6NPU_EXPERT_BIND \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_M6NPU_EXPERT_BIND, struct drm_m6npu_expert_bind)
#define DRM_IOCTL_M6NPU_ROUTER_CTL \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_M6NPU_ROUTER_CTL, struct drm_m6npu_router_ctl)
#define DRM_IOCTL_M6NPU_RESET \
	DRM_IOW(DRM_COMMAND_BASE + DRM_M6NPU_RESET, struct drm_m6npu_reset)
#define DRM_IOCTL_M6NPU_POOL_FLUSH \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_M6NPU_POOL_FLUSH, struct drm_m6npu_pool_flush)
#define DRM_IOCTL_M6NPU_POOL_DEFRAG \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_M6NPU_POOL_DEFRAG, struct drm_m6npu_pool_defrag)
#define DRM_IOCTL_M6NPU_REGION_MAP \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_M6NPU_REGION_MAP, struct drm_m6npu_region_map)
#define DRM_IOCTL_M6NPU_REGION_UNMAP \
	DRM_IOW(DRM_COMMAND_BASE + DRM_M6NPU_REGION_UNMAP, struct drm_m6npu_region_unmap)
#define DRM_IOCTL_M6NPU_LAYER_STATS \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_M6NPU_LAYER_STATS, struct drm_m6npu_layer_stats_get)
#define DRM_IOCTL_M6NPU_JOB_ABORT \
	DRM_IOW(DRM_COMMAND_BASE + DRM_M6NPU_JOB_ABORT, struct drm_m6npu_job_abort)

#if defined(__cplusplus)
}
#endif

#endif /* _UAPI_DRM_M6NPU_ACCEL_H_ */
