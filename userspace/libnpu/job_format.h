/* SPDX-License-Identifier: MIT */
/*
 * What libnpu knows of the data that the device itself reads and writes: the
 * step block, and the names of exceptions.
 */
#ifndef NPU_JOB_FORMAT_H
#define NPU_JOB_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <npu/npu.h>

struct npu_kv_shape {
	uint32_t capacity;	/* positions per slot */
	bool q8_0;		/* else f16 */
	uint64_t slot_stride;	/* bytes */
};

/* What the device does about experts that it expects to need. */
struct npu_step_ahead {
	uint32_t permille;	/* from this chance on; 0: the device's */
	bool hints;		/* tells which are absent */
};

uint32_t npu_step_max_tokens(void);
size_t npu_step_block_bytes(uint32_t tokens);
/* Returns the bytes written at @dst. */
size_t npu_step_block_write(void *dst, const struct npu_kv_shape *kv,
			    const struct npu_step_ahead *ahead,
			    const struct npu_step_token *tokens,
			    uint32_t count);

/* "MMU_PAGE_FAULT"; "unknown exception" if it is. */
const char *npu_exception_name(uint32_t code);
/* What someone who meets it should do. */
const char *npu_exception_remedy(uint32_t code);

#endif
