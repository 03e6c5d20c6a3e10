/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * M6 NPU: registers, in-memory structures and command encoding.
 *
 * The one definition that the driver, the command compiler and the emulator
 * share. Everything here is little-endian. "Bus address" is what the device
 * puts on PCIe (a dma_addr_t of the host); "device address" is what command
 * lists use and the device's MMU translates. Documentation/hardware.rst is
 * the prose.
 */
#ifndef M6NPU_REGS_H
#define M6NPU_REGS_H

#include <linux/types.h>

#define M6NPU_PCI_VENDOR_ID		0x6d36
#define M6NPU_PCI_DEVICE_ID		0x0032
/* Class 0x12, "processing accelerators", subclass 0, interface 0. */
#define M6NPU_PCI_CLASS			0x120000

#define M6NPU_BAR_REGS			0
#define M6NPU_BAR_SRAM			2
#define M6NPU_BAR_MSIX			4
#define M6NPU_BAR_REGS_SIZE		0x10000
#define M6NPU_BAR_SRAM_SIZE		0x400000
#define M6NPU_BAR_MSIX_SIZE		0x4000
#define M6NPU_MSIX_PBA_OFFSET		0x2000

#define M6NPU_UNITS			4
#define M6NPU_RINGS			5	/* the four units, then DMA */
#define M6NPU_RING_DMA			4
#define M6NPU_ADDRESS_SPACES		64	/* 0 is never valid */
#define M6NPU_WINDOWS			16
#define M6NPU_REGIONS			8
#define M6NPU_ROUTER_ENTRIES		128

/* MSI-X vectors. A vector is edge-like: the handler looks in memory. */
#define M6NPU_VEC_EVENT			0	/* exception ring, thermal */
#define M6NPU_VEC_UNIT(n)		(1 + (n))	/* n = 0..3 */
#define M6NPU_VEC_DMA			5
#define M6NPU_VEC_EXPERT		6	/* exception ring, expert fault */
#define M6NPU_VEC_FIRMWARE		7
#define M6NPU_VECTORS			8

/*
 * BAR0. 32-bit accesses only; 64-bit quantities are LO then HI, and reading
 * LO latches HI. Unlisted offsets read 0 and ignore writes. RO unless said.
 */
#define M6NPU_REG_ID			0x0000	/* device id << 16 | vendor id */
#define M6NPU_ID_VALUE			0x00326d36
#define M6NPU_REG_REVISION		0x0004	/* major << 16 | minor */
#define M6NPU_REG_FEATURES		0x0008	/* M6NPU_FEAT_*, from firmware */
#define M6NPU_FEAT_LARGE_PAGES		(1u << 0)
#define M6NPU_FEAT_SEQLEN_CHECK		(1u << 1)
#define M6NPU_FEAT_TEMP_DRIFT_FIX	(1u << 2)
#define M6NPU_FEAT_AUTO_RECOVER		(1u << 3)
#define M6NPU_REG_FW_VERSION		0x000c	/* major << 24 | minor << 16 | patch << 8 | rc */
#define M6NPU_REG_SRAM_SIZE		0x0010	/* bytes */
#define M6NPU_REG_STATUS		0x0014
#define M6NPU_STATUS_READY		(1u << 0)
#define M6NPU_STATUS_THROTTLED		(1u << 1)
#define M6NPU_STATUS_HALTED		(1u << 2)
#define M6NPU_REG_CTRL			0x0018	/* WO */
#define M6NPU_CTRL_RESET		(1u << 0)	/* STATUS.READY falls, then rises */
#define M6NPU_REG_SCRATCH		0x001c	/* RW, for bring-up */
#define M6NPU_REG_TIME_NS_LO		0x0020	/* device time */
#define M6NPU_REG_TIME_NS_HI		0x0024
#define M6NPU_REG_CYCLES_LO		0x0028	/* unit-clock cycles */
#define M6NPU_REG_CYCLES_HI		0x002c
#define M6NPU_REG_VEC_MASK		0x0030	/* RW, bit per vector, 1 = masked */
#define M6NPU_REG_VEC_PENDING		0x0034	/* raised while masked; W1C */

/* Address-space table: M6NPU_ADDRESS_SPACES struct m6npu_as, bus address. */
#define M6NPU_REG_AS_TABLE_LO		0x0100	/* RW, 4-KiB aligned */
#define M6NPU_REG_AS_TABLE_HI		0x0104	/* RW; write HI last, it takes effect */
/*
 * Drops translations, cached table entries and router-cache entries of one
 * address space (or all). Done when the write is done; a read of the register
 * afterwards makes a posted write visible.
 */
#define M6NPU_REG_AS_INVALIDATE		0x0108	/* RW */
#define M6NPU_AS_INVALIDATE_ALL		0xffffffffu
#define M6NPU_REG_TLB_HITS_LO		0x0110
#define M6NPU_REG_TLB_HITS_HI		0x0114
#define M6NPU_REG_TLB_MISSES_LO		0x0118	/* MMU_TLB_MISS_COUNTER */
#define M6NPU_REG_TLB_MISSES_HI		0x011c
#define M6NPU_REG_TLB_WALK_CYCLES_LO	0x0120
#define M6NPU_REG_TLB_WALK_CYCLES_HI	0x0124

/* Exception ring: struct m6npu_exception[size], in host memory. */
#define M6NPU_REG_EXC_BASE_LO		0x0200	/* RW */
#define M6NPU_REG_EXC_BASE_HI		0x0204	/* RW; write HI last, restarts the ring */
#define M6NPU_REG_EXC_SIZE		0x0208	/* RW, records, a power of two, 16..4096 */
#define M6NPU_REG_EXC_HEAD		0x020c	/* RW, free-running count consumed by the host */
#define M6NPU_REG_EXC_TAIL		0x0210	/* free-running count produced */
#define M6NPU_REG_EXC_DROPPED		0x0214	/* lost because the ring was full */

/* Expert-router cache. */
#define M6NPU_REG_ROUTER_POLICY		0x0300	/* RW, M6NPU_ROUTER_* */
#define M6NPU_ROUTER_OFF		0
#define M6NPU_ROUTER_LRU		1
#define M6NPU_ROUTER_PRIORITY_LRU	2
#define M6NPU_REG_ROUTER_THRESHOLD	0x0304	/* RW, prefetch probability in 1/1000 */
#define M6NPU_ROUTER_THRESHOLD_DEFAULT	950
#define M6NPU_REG_ROUTER_OCCUPANCY	0x0308	/* entries in use | pinned << 16 */
#define M6NPU_REG_ROUTER_HITS_LO	0x0310
#define M6NPU_REG_ROUTER_HITS_HI	0x0314
#define M6NPU_REG_ROUTER_MISSES_LO	0x0318
#define M6NPU_REG_ROUTER_MISSES_HI	0x031c
#define M6NPU_REG_ROUTER_EVICTIONS_LO	0x0320
#define M6NPU_REG_ROUTER_EVICTIONS_HI	0x0324
#define M6NPU_REG_ROUTER_FAULTS_LO	0x0328
#define M6NPU_REG_ROUTER_FAULTS_HI	0x032c
#define M6NPU_REG_ROUTER_FULL_LO	0x0330	/* misses with every entry pinned */
#define M6NPU_REG_ROUTER_FULL_HI	0x0334
#define M6NPU_REG_PREFILL_BUFFER	0x0338	/* RW, bytes of SRAM, rest are expert slots */
/*
 * Drops what is cached of one expert: router entry and SRAM slot. Done when the
 * write is done, as with AS_INVALIDATE.
 */
#define M6NPU_REG_ROUTER_INVALIDATE	0x033c	/* RW */
#define M6NPU_ROUTER_KEY(asid, layer, expert)	\
	((__u32)(asid) << 24 | (__u32)(layer) << 12 | (__u32)(expert))
/*
 * Entries, 1..M6NPU_ROUTER_ENTRIES, that an address space keeps against others.
 * One that has more loses them first, pinned ones as well, to those that have
 * fewer; one that has as many makes room among its own.
 */
#define M6NPU_REG_ROUTER_QUOTA		0x0340	/* RW */

/* Clocks, power, heat. */
#define M6NPU_REG_TEMP_MC		0x0400	/* sensor, millidegrees C, signed */
#define M6NPU_REG_TEMP_OFFSET_MC	0x0404	/* RW, subtracted from the sensor, signed */
#define M6NPU_REG_POWER_MW		0x0408
#define M6NPU_REG_FREQ_MHZ		0x040c	/* actual */
#define M6NPU_REG_FREQ_REQUEST_MHZ	0x0410	/* RW, one of the OPPs */
#define M6NPU_REG_ENERGY_UJ_LO		0x0418
#define M6NPU_REG_ENERGY_UJ_HI		0x041c
#define M6NPU_REG_DRAM_BYTES_LO		0x0420
#define M6NPU_REG_DRAM_BYTES_HI		0x0424
#define M6NPU_REG_UNIT_BUSY_NS_LO(n)	(0x0440 + (n) * 8)	/* n = ring 0..4 */
#define M6NPU_REG_UNIT_BUSY_NS_HI(n)	(0x0444 + (n) * 8)

/* Rings: one block each. */
#define M6NPU_RING_BLOCK(n)		(0x1000 + (n) * 0x100)
#define M6NPU_RING_BASE_LO		0x00	/* RW, bus address, 4-KiB aligned */
#define M6NPU_RING_BASE_HI		0x04	/* RW */
#define M6NPU_RING_SIZE			0x08	/* RW, entries, a power of two, 2..1024 */
#define M6NPU_RING_CTRL			0x0c	/* RW */
#define M6NPU_RING_CTRL_ENABLE		(1u << 0)	/* rising edge zeroes head and tail */
/*
 * Drops the job in flight and all entries, and leaves the ring disabled;
 * no status record is written after RING_STATUS shows RESET_DONE.
 */
#define M6NPU_RING_CTRL_RESET		(1u << 1)
#define M6NPU_RING_STATUS		0x10
#define M6NPU_RING_STATUS_ENABLED	(1u << 0)
#define M6NPU_RING_STATUS_BUSY		(1u << 1)
#define M6NPU_RING_STATUS_STALLED	(1u << 2)	/* waits for an expert */
#define M6NPU_RING_STATUS_RESET_DONE	(1u << 3)	/* until enabled again */
#define M6NPU_RING_HEAD			0x14	/* free-running, entries completed */
#define M6NPU_RING_DOORBELL		0x18	/* WO, free-running tail */
#define M6NPU_RING_PROGRESS		0x1c	/* commands completed since enable, free-running */
#define M6NPU_RING_RESUME		0x20	/* WO, a stalled job looks again */
/*
 * WO: ends the stalled or running job with M6NPU_EXC_ABORTED if its
 * fence_value (low 32 bits) is the one written.
 */
#define M6NPU_RING_ABORT		0x24

/*
 * Rings' entries. The region table is M6NPU_REGIONS struct m6npu_region at
 * @region_addr. The job's result goes to the status record at @status_addr.
 */
struct m6npu_ring_entry {
	__le16 asid;
	__le16 flags;		/* none yet, 0 */
	__le32 cmd_count;	/* 1..M6NPU_MAX_COMMANDS */
	__le64 cmd_addr;	/* device address, 64-byte aligned */
	__le64 region_addr;	/* bus address, 64-byte aligned */
	__le64 step_addr;	/* device address of struct m6npu_step, 0 = none */
	__le64 status_addr;	/* bus address, 64-byte aligned */
	__le64 fence_value;
	__le64 reserved[2];	/* 0 */
};

#define M6NPU_MAX_COMMANDS		65536

struct m6npu_region {
	__le64 addr;		/* device address, 64-byte aligned */
	__le64 size;		/* bytes, 0 = region not used */
};

/* Written when the job ends; @fence last, with release semantics. */
struct m6npu_job_status {
	__le64 fence;		/* the entry's fence_value */
	__le32 code;		/* M6NPU_EXC_*, 0 = success */
	__le32 cmd_index;	/* of the failing command, else commands done */
	__le64 fault_addr;	/* device address, where there is one */
	__le64 begin_ns;	/* device time */
	__le64 end_ns;
	__le64 cycles;		/* unit cycles charged */
	__le32 router_hits;
	__le32 router_misses;
	__le32 expert_faults;
	__le32 reserved;
};

/*
 * MMU. 38-bit device addresses: bits 37:25 index the first level (8192
 * entries of 8 bytes, 32 MiB each), bits 24:12 the second (8192 entries of
 * 4 KiB). Both tables are 64 KiB, 64-KiB aligned, at bus addresses.
 */
#define M6NPU_VA_BITS			38
#define M6NPU_PAGE_SHIFT		12
#define M6NPU_LARGE_PAGE_SHIFT		25
#define M6NPU_PT_ENTRIES		8192
#define M6NPU_PT_SIZE			65536
#define M6NPU_PTE_VALID			(1ull << 0)
#define M6NPU_PTE_READ			(1ull << 1)
#define M6NPU_PTE_WRITE			(1ull << 2)
#define M6NPU_PTE_LARGE			(1ull << 3)	/* first level: maps 32 MiB */
#define M6NPU_PTE_ADDR_MASK		0x0000fffffffff000ull

/*
 * Windows win over page tables. An access in the range of a window that is
 * not aligned reports M6NPU_EXC_PAGE_ALIGNMENT.
 */
#define M6NPU_WINDOW_ALIGN		0x10000000ull	/* 256 MiB */
#define M6NPU_WINDOW_MAX_SIZE		0x80000000ull	/* 2 GiB */
struct m6npu_window {
	__le64 va;
	__le64 pa;		/* bus address */
	__le64 size;
	__le64 flags;		/* M6NPU_PTE_VALID, _READ, _WRITE */
};

/* State of an expert, in the low two bits of m6npu_expert.flags. */
#define M6NPU_EXPERT_ABSENT		0
#define M6NPU_EXPERT_RESIDENT		1
#define M6NPU_EXPERT_PINNED		2
#define M6NPU_EXPERT_STATE_MASK		0x3
/*
 * Entries change while jobs run. The device reads one whole, or the half with
 * @flags first and @addr only if that says that the expert is there.
 */
struct m6npu_expert {
	__le64 addr;		/* device address, 64-byte aligned */
	__le32 size;		/* bytes */
	__u8 flags;		/* M6NPU_EXPERT_* */
	__u8 type;		/* M6NPU_TYPE_* of all its matrices, 0 = as commands say */
	__le16 priority;	/* 1/1000, 0..1000 */
};

struct m6npu_as {
	__le64 pgd;		/* bus address of the first-level table */
	__le64 expert_table;	/* bus address of struct m6npu_expert[], 0 = none */
	__le16 expert_layers;
	__le16 experts_per_layer;
	__le32 valid;		/* 0 or 1 */
	__le64 layer_stats;	/* bus address of struct m6npu_layer_stats[], 0 = none */
	__le64 reserved[4];
	struct m6npu_window window[M6NPU_WINDOWS];
	__le64 pad[56];
};					/* 1024 bytes */

/*
 * What became of lookups in one layer of the expert table. The device adds to
 * it when a job ends, before it writes the job's status record.
 */
struct m6npu_layer_stats {
	__le64 hits;
	__le64 misses;
	__le64 evictions;	/* of entries, to make room for this layer's */
	__le64 full;		/* misses with every entry pinned */
	__le64 faults;		/* misses of absent experts */
	__le64 sram_hits;	/* experts whose weights came from SRAM */
	__le64 prefetches;	/* experts that EXPERT_PREFETCH copied there */
	__le64 hints;		/* absent experts that it asked for */
};

#define M6NPU_MAX_EXPERT_LAYERS		256
#define M6NPU_MAX_EXPERTS_PER_LAYER	512

/* Exceptions: codes of records and of job status words. */
#define M6NPU_EXC_NONE			0x00
#define M6NPU_EXC_MMU_PAGE_FAULT	0x1a
#define M6NPU_EXC_TLB_WALK_TIMEOUT	0x1b
#define M6NPU_EXC_PAGE_ALIGNMENT	0x1c	/* PAGE_ALIGNMENT_VIOLATION */
#define M6NPU_EXC_DMA_ERROR		0x1d
#define M6NPU_EXC_EXPERT_FAULT		0x20
#define M6NPU_EXC_ROUTER_CACHE_FULL	0x21
#define M6NPU_EXC_EXPERT_HINT		0x22	/* asked for by M6NPU_STEP_HINTS */
#define M6NPU_EXC_ILLEGAL_COMMAND	0x30
#define M6NPU_EXC_BOUNDS		0x31	/* operand outside its region */
#define M6NPU_EXC_UNIT_HANG		0x32
#define M6NPU_EXC_ABORTED		0x33	/* by M6NPU_RING_ABORT */
#define M6NPU_EXC_DECOMPRESS_ERROR	0x34
#define M6NPU_EXC_THERMAL_THROTTLE	0x40
#define M6NPU_EXC_THERMAL_CRITICAL	0x41
#define M6NPU_EXC_ECC_CORRECTED		0x50
#define M6NPU_EXC_ECC_UNCORRECTED	0x51
#define M6NPU_EXC_FIRMWARE_ASSERT	0x60
#define M6NPU_EXC_LINK_DEGRADED		0x70

/*
 * One record. An expert fault names up to 64 experts of one layer: bit i of
 * @mask is expert @expert_base + i. The job waits for M6NPU_RING_RESUME, upon
 * which the device posts again what is still missing. An expert hint names
 * experts in the same way that are absent and will probably be needed: no job
 * waits. @seq is written last, with release semantics, and counts from 1.
 */
struct m6npu_exception {
	__le64 seq;
	__le32 code;
	__le16 ring;
	__le16 asid;
	__le64 addr;		/* device address; temperature for thermal codes */
	__le64 fence_value;	/* of the job, 0 = none */
	__le64 time_ns;
	__le32 cmd_index;
	__le16 layer;
	__le16 expert_base;
	__le64 mask;
	__le64 reserved;
};

/*
 * Step block: what changes from step to step, read once when a job starts.
 * token_count rows of a tile are live, the rest are not touched.
 *
 * KV cache of a slot: for each layer K then V, each @kv_capacity rows of
 * kv_heads * head_dim elements of @kv_type:
 *   row = region + slot * kv_slot_stride
 *         + ((layer * 2 + is_v) * kv_capacity + position) * row_bytes
 */
#define M6NPU_STEP_MAX_TOKENS		1024
#define M6NPU_STEP_HINTS		(1u << 0)	/* post M6NPU_EXC_EXPERT_HINT */
#define M6NPU_TOKEN_OUT			(1u << 0)	/* this row's logits are wanted */
struct m6npu_step_token {
	__le32 token;
	__le32 position;
	__le32 slot;
	__le32 flags;
};

struct m6npu_step {
	__le32 token_count;
	__le32 out_count;	/* number of tokens with M6NPU_TOKEN_OUT */
	__le32 kv_capacity;	/* positions per slot */
	__le32 kv_type;		/* M6NPU_TYPE_F16 or _Q8_0 */
	__le64 kv_slot_stride;	/* bytes */
	/* For EXPERT_PREFETCH; 0 = ROUTER_THRESHOLD; above 1000 none is good enough. */
	__le32 prefetch_permille;
	__le32 flags;		/* M6NPU_STEP_* */
	struct m6npu_step_token tokens[];
};

/* Element types. Block layouts are GGML's. Values are stored in files. */
#define M6NPU_TYPE_F32			0
#define M6NPU_TYPE_F16			1
#define M6NPU_TYPE_I32			2
#define M6NPU_TYPE_BF16			3
#define M6NPU_TYPE_Q4_0			4
#define M6NPU_TYPE_Q4_1			5
#define M6NPU_TYPE_Q8_0			6
#define M6NPU_TYPE_Q4_K			7
#define M6NPU_TYPE_Q6_K			8
#define M6NPU_TYPE_COUNT		9

/*
 * Commands. An operand is region << 60 | offset, offset a multiple of 4;
 * M6NPU_OPERAND_NONE where optional. Activations are F32, row-major;
 * "rows" below are min(args.rows, step.token_count), or step.out_count with
 * M6NPU_CMD_OUT_ROWS, or args.rows when the job has no step block. Strides
 * are in elements between rows. Whole operands are checked before a command
 * starts: a command happens or leaves an exception.
 */
#define M6NPU_OPERAND_REGION_SHIFT	60
#define M6NPU_OPERAND_OFFSET_MASK	0x3fffffffffull
#define M6NPU_OPERAND_NONE		(~0ull)
#define M6NPU_OPERAND(region, offset)	\
	(((__u64)(region) << M6NPU_OPERAND_REGION_SHIFT) | (__u64)(offset))

#define M6NPU_CMD_OUT_ROWS		(1u << 0)
#define M6NPU_CMD_ACCUMULATE		(1u << 1)	/* GEMM, MOE_FFN, MOE_COMBINE: dst += */
#define M6NPU_CMD_GROUPED		(1u << 2)	/* MOE_FFN: by expert */

enum m6npu_opcode {
	/* No operands. Commands after it see the results of those before. */
	M6NPU_OP_BARRIER = 0x00,
	/* 0: dst, two __le64: device ns, cycles. */
	M6NPU_OP_TIMESTAMP = 0x01,
	/* 0: dst, 1: src (must not overlap). args.bytes */
	M6NPU_OP_COPY = 0x02,
	/* 0: dst. args.bytes (multiple of 4) of the 32-bit pattern */
	M6NPU_OP_FILL = 0x03,
	/* 0: memory, 1: struct m6npu_compare_result. args.bytes against pattern */
	M6NPU_OP_COMPARE = 0x04,
	/* 0: dst, 1: src, an LZ4 block. args.lz4; dst must be filled exactly */
	M6NPU_OP_LZ4_DECOMPRESS = 0x05,

	/* 0: dst [rows, width], 1: table [vocab, width] of type[1]. args.embed */
	M6NPU_OP_EMBED = 0x10,
	/*
	 * RMS norm. 0: dst, 1: src, 2: weight [width] F32. args.norm: each row
	 * holds `groups` vectors of `width`, normalized one by one.
	 */
	M6NPU_OP_NORM = 0x11,
	/*
	 * 0: dst [rows, n], 1: src [rows, k], 2: weight [n, k] of type[2],
	 * 3: bias [n] F32 or none. args.gemm: dst = src * weight^T + bias.
	 */
	M6NPU_OP_GEMM = 0x12,
	/*
	 * In place. 0: rows, 1: frequency divisors [rot_dim / 2] F32 or none.
	 * args.rope: the first `heads` vectors of head_dim of each row, first
	 * rot_dim elements each.
	 */
	M6NPU_OP_ROPE = 0x13,
	/*
	 * 0: dst [rows, heads * head_dim], 1: src [rows, (heads + 2 * kv_heads)
	 * * head_dim], q then k then v, 2: KV cache. args.attention; `layer`.
	 * Stores k and v of all rows, then attends causally, within `window`
	 * positions if it is not 0.
	 */
	M6NPU_OP_ATTENTION = 0x14,
	/* 0: dst [rows, n], 1: gate, 2: up. args.glu: dst = act(gate) * up */
	M6NPU_OP_GLU = 0x15,
	/* 0: dst, 1: a, 2: b, all [rows, n] packed. args.add */
	M6NPU_OP_ADD = 0x16,
	/* 0: dst, 1: src [rows, n] packed. args.scale */
	M6NPU_OP_SCALE = 0x17,
	/*
	 * The rows with M6NPU_TOKEN_OUT. 0: dst [out_count, width], 1: src
	 * [rows, width]. args.embed, vocab 0
	 */
	M6NPU_OP_GATHER = 0x18,
	/*
	 * dst[row] += sigmoid(gate[row]) * src[row]. 0: dst [rows, n], 1: src,
	 * 2: gate [rows]. args.add. (Qwen2-MoE's shared expert.)
	 */
	M6NPU_OP_GATED_ADD = 0x19,

	/*
	 * 0: ids [rows, k] I32, 1: weights [rows, k] F32, 2: logits [rows,
	 * experts] F32, 3: selection bias [experts] F32 or none. args.router;
	 * `layer`. With M6NPU_ROUTER_CHANCE it guesses what a later router will
	 * take, from logits that are not quite the later one's: weights are the
	 * chances that the experts will be among its `among` best,
	 *   1 / (1 + exp(-(logit - between) / scale)),
	 * `between` lying halfway between the logits ranked among and among + 1.
	 */
	M6NPU_OP_ROUTER_TOPK = 0x20,
	/*
	 * 0: dst [rows, hidden], 1: src [rows, hidden], 2: ids [rows, k] I32,
	 * 3: weights [rows, k] F32. args.moe; `layer`. An expert is gate [ffn,
	 * hidden] of type[1], up [ffn, hidden] of type[2], down [hidden, ffn]
	 * of type[3], each aligned to M6NPU_EXPERT_ALIGN from the start of the
	 * expert; m6npu_expert.type, if not 0, goes for all three.
	 *
	 * Token by token, unless M6NPU_CMD_GROUPED: then expert by expert, for
	 * the experts in 3: members [members] I32, all different, `capacity`
	 * rows of an expert at a time. 0: dst [rows * k, hidden], of which row
	 * r * k + j is what choice j of row r gives, not weighted; rows whose
	 * expert is not a member are left alone. Commands for all members of a
	 * layer, then MOE_COMBINE, give bit for bit what one without the flag
	 * gives.
	 */
	M6NPU_OP_MOE_FFN = 0x21,
	/*
	 * 0: ids [rows, k] I32, 1: probabilities [rows, k] F32. args.moe
	 * (rows, k, experts); `layer`. Those that reach the threshold in some
	 * row are copied to SRAM while commands go on, if there is room; absent
	 * ones are asked for.
	 */
	M6NPU_OP_EXPERT_PREFETCH = 0x22,
	/*
	 * dst[r] = sum of weights[r][j] * pairs[r * k + j], by rising j. 0: dst
	 * [rows, hidden], 1: pairs [rows * k, hidden], 2: weights [rows, k]
	 * F32. args.moe (rows, k, hidden)
	 */
	M6NPU_OP_MOE_COMBINE = 0x23,
	/*
	 * 0: ids [rows, k] I32, 1: values [rows, k] F32, 2: src [rows, n].
	 * args.topk; descending, ties by lower index
	 */
	M6NPU_OP_TOPK = 0x30,
};

#define M6NPU_EXPERT_ALIGN		64

/* args.rope.flags */
/* Pairs are (2i, 2i + 1), else (i, i + rot_dim / 2). */
#define M6NPU_ROPE_INTERLEAVED		(1u << 0)
/* args.glu.act, args.moe.act */
#define M6NPU_ACT_SILU			0
#define M6NPU_ACT_GELU			1	/* tanh approximation */
/* args.router.flags */
#define M6NPU_ROUTER_SIGMOID		(1u << 0)	/* else softmax over all experts */
#define M6NPU_ROUTER_RENORMALIZE	(1u << 1)	/* the k weights sum to 1 */
#define M6NPU_ROUTER_CHANCE		(1u << 2)	/* without the two above */

struct m6npu_cmd {
	__u8 opcode;		/* enum m6npu_opcode */
	__u8 flags;		/* M6NPU_CMD_* */
	__le16 layer;
	__u8 type[4];		/* M6NPU_TYPE_*; of operand i unless said, 0 where F32 */
	__le64 operand[4];
	union {
		__le32 word[6];
		struct {
			__le64 bytes;
			__le32 pattern;
			__le32 pad[3];
		} mem;			/* COPY, FILL, COMPARE */
		struct {
			__le64 dst_bytes;
			__le64 src_bytes;
			__le32 pad[2];
		} lz4;
		struct {
			__le32 rows;
			__le32 width;
			__le32 vocab;
			__le32 pad[3];
		} embed;		/* EMBED, GATHER */
		struct {
			__le32 rows;
			__le32 groups;
			__le32 width;
			__le32 src_stride;
			__le32 dst_stride;
			__le32 eps;	/* F32 bits */
		} norm;
		struct {
			__le32 rows;
			__le32 n;
			__le32 k;
			__le32 src_stride;
			__le32 dst_stride;
			__le32 pad;
		} gemm;
		struct {
			__le32 rows;
			__le16 heads;
			__le16 head_dim;
			__le32 stride;
			__le32 theta;	/* F32 bits */
			__le32 scale;	/* F32 bits, of the position */
			__le16 rot_dim;
			__le16 flags;
		} rope;
		struct {
			__le32 rows;
			__le16 heads;
			__le16 kv_heads;
			__le16 head_dim;
			__le16 pad0;
			__le32 window;
			__le32 scale;	/* F32 bits, of q.k */
			__le32 pad1;
		} attention;
		struct {
			__le32 rows;
			__le32 n;
			__le32 gate_stride;
			__le32 up_stride;
			__le32 dst_stride;
			__le32 act;
		} glu;
		struct {
			__le32 rows;
			__le32 n;
			__le32 factor;	/* F32 bits, SCALE only */
			__le32 pad[3];
		} add;			/* ADD, SCALE, GATED_ADD */
		struct {
			__le32 rows;
			__le32 experts;
			__le32 k;
			__le32 flags;
			/* F32 bits, of the weights; 0 = 1.0, but not of chances */
			__le32 scale;
			__le32 among;	/* ROUTER_CHANCE, else 0 */
		} router;
		struct {
			__le32 rows;
			__le16 k;
			__le16 experts;
			__le32 hidden;
			__le32 ffn;
			__le32 act;
			__le16 capacity;	/* CMD_GROUPED, else 0 */
			__le16 members;		/* CMD_GROUPED, else 0 */
		} moe;
		struct {
			__le32 rows;
			__le32 n;
			__le32 k;
			__le32 pad[3];
		} topk;
	} args;
};

struct m6npu_compare_result {
	__le64 mismatches;	/* 32-bit words that differ */
	__le64 first_offset;	/* bytes from the operand's start */
	__le32 expected;
	__le32 found;
	__le64 reserved;
};

#endif
