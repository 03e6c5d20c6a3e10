/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_EXCEPTION_H
#define M6NPU_EXCEPTION_H

#include <linux/mutex.h>
#include <linux/types.h>

#include "m6npu_regs.h"

struct m6npu_device;
struct seq_file;

/* Records in the device's ring, and in the log. */
#define M6NPU_EXCEPTIONS		256
#define M6NPU_EXCEPTION_LOG		256

/**
 * struct m6npu_exception_entry - one line of the log
 */
struct m6npu_exception_entry {
	/** @time: of the kernel's monotonic clock, in ns */
	u64 time;
	/** @addr: device address, or the temperature in millidegrees */
	u64 addr;
	/** @job: id in its context, 0 if there is none */
	u64 job;
	/** @code: M6NPU_EXC_* */
	u32 code;
	/** @cmd_index: of the command */
	u32 cmd_index;
	/** @ring: number of the ring, as the device gave it */
	u16 ring;
	/** @asid: address space, as the device gave it */
	u16 asid;
};

/**
 * struct m6npu_exceptions - the exception ring and its log
 */
struct m6npu_exceptions {
	/** @ring: written by the device, coherent */
	struct m6npu_exception *ring;
	/** @ring_dma: bus address of @ring */
	dma_addr_t ring_dma;
	/**
	 * @drain_lock: protects @head and @dropped; held while records are
	 * handled
	 */
	struct mutex drain_lock;
	/** @head: free-running count of records consumed */
	u64 head;
	/** @dropped: those that the device lost, when it was asked last */
	u32 dropped;

	/** @log_lock: protects the following members */
	struct mutex log_lock;
	/** @log_enabled: keep a log; debugfs enable_exception_log */
	bool log_enabled;
	/** @log: bounded log */
	struct m6npu_exception_entry *log;
	/** @logged: entries ever written to @log */
	u64 logged;
};

const char *m6npu_exception_name(u32 code);
int m6npu_exception_errno(u32 code);

int m6npu_exceptions_init(struct m6npu_device *m6npu);
void m6npu_exceptions_program(struct m6npu_device *m6npu);
void m6npu_exceptions_drain(struct m6npu_device *m6npu);
void m6npu_exceptions_show(struct seq_file *m, struct m6npu_device *m6npu);
void m6npu_exceptions_clear(struct m6npu_device *m6npu);

#endif
