// SPDX-License-Identifier: MIT
/*
 * BARRIER, TIMESTAMP, COPY, FILL, COMPARE, LZ4_DECOMPRESS.
 *
 * Results of structures are copied to guest memory: operands are aligned to 4
 * only.
 */
#include <limits.h>
#include <lz4.h>
#include <string.h>

#include "exec_priv.h"

/* Between two looks at whether the job is still wanted. */
#define CHUNK_BYTES		(4ull << 20)

/* Commands run one after the other, each to its end: nothing to wait for. */
uint32_t m6_op_barrier(struct m6_run *run)
{
	return m6_zero(run->cmd->args.word, 6) ? 0 : M6NPU_EXC_ILLEGAL_COMMAND;
}

/* Writes in a dry run, too: that is what time is measured with there. */
uint32_t m6_op_timestamp(struct m6_run *run)
{
	uint64_t ns, cycles;
	__le64 stamp[2];
	void *dst;
	uint32_t code;

	if (!m6_zero(run->cmd->args.word, 6))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_map(run, 0, sizeof(stamp), true, &dst);
	if (code)
		return code;
	m6_job_now(run->job, &ns, &cycles);
	stamp[0] = htole64(ns);
	stamp[1] = htole64(cycles);
	memcpy(dst, stamp, sizeof(stamp));
	return 0;
}

static bool bytes_valid(uint64_t bytes)
{
	return bytes && bytes <= M6NPU_OPERAND_OFFSET_MASK;
}

static uint64_t chunk_at(uint64_t done, uint64_t bytes)
{
	return bytes - done < CHUNK_BYTES ? bytes - done : CHUNK_BYTES;
}

uint32_t m6_op_copy(struct m6_run *run)
{
	uint64_t bytes = le64toh(run->cmd->args.mem.bytes);
	void *dst, *src;
	uint32_t code;

	if (!bytes_valid(bytes) || run->cmd->args.mem.pattern ||
	    !m6_zero(run->cmd->args.mem.pad, 3))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_map(run, 1, bytes, false, &src);
	if (!code)
		code = m6_map(run, 0, bytes, true, &dst);
	if (code)
		return code;
	if (m6_overlap(dst, bytes, src, bytes))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	if (run->dry)
		return 0;
	for (uint64_t i = 0; i < bytes; i += CHUNK_BYTES) {
		if (m6_job_cancelled(run->job))
			return M6NPU_EXC_ABORTED;
		memcpy((char *)dst + i, (char *)src + i, chunk_at(i, bytes));
	}
	return 0;
}

static bool words_valid(const struct m6_run *run, uint64_t bytes)
{
	return bytes_valid(bytes) && bytes % 4 == 0 &&
	       m6_zero(run->cmd->args.mem.pad, 3);
}

uint32_t m6_op_fill(struct m6_run *run)
{
	uint64_t bytes = le64toh(run->cmd->args.mem.bytes);
	__le32 pattern = run->cmd->args.mem.pattern;
	void *dst;
	uint32_t code;

	if (!words_valid(run, bytes))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_map(run, 0, bytes, true, &dst);
	if (code || run->dry)
		return code;
	for (uint64_t i = 0; i < bytes; i += CHUNK_BYTES) {
		__le32 *word = (__le32 *)((char *)dst + i);
		uint64_t words = chunk_at(i, bytes) / 4;

		if (m6_job_cancelled(run->job))
			return M6NPU_EXC_ABORTED;
		for (uint64_t j = 0; j < words; j++)
			word[j] = pattern;
	}
	return 0;
}

struct compare {
	uint64_t mismatches;
	uint64_t first;		/* word */
	uint32_t found;
};

static void compare_words(struct compare *result, const __le32 *memory,
			  uint64_t first, uint64_t words, __le32 pattern)
{
	for (uint64_t i = first; i < first + words; i++) {
		/* Once, as the guest may write it meanwhile. */
		__le32 word = *(const volatile __le32 *)&memory[i];

		if (word == pattern)
			continue;
		if (!result->mismatches++) {
			result->first = i;
			result->found = le32toh(word);
		}
	}
}

static void store_compare(const struct compare *result, uint32_t pattern,
			  void *dst)
{
	struct m6npu_compare_result out = {
		.mismatches = htole64(result->mismatches),
		.first_offset = htole64(result->first * 4),
		.expected = htole32(pattern),
		.found = htole32(result->found),
	};

	memcpy(dst, &out, sizeof(out));
}

uint32_t m6_op_compare(struct m6_run *run)
{
	uint64_t bytes = le64toh(run->cmd->args.mem.bytes);
	__le32 pattern = run->cmd->args.mem.pattern;
	struct compare result = { .found = le32toh(pattern) };
	void *memory, *dst;
	uint32_t code;

	if (!words_valid(run, bytes))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_map(run, 0, bytes, false, &memory);
	if (!code)
		code = m6_map(run, 1, sizeof(struct m6npu_compare_result), true,
			      &dst);
	if (code)
		return code;
	if (m6_overlap(memory, bytes, dst, sizeof(struct m6npu_compare_result)))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	if (run->dry)
		return 0;
	for (uint64_t i = 0; i < bytes; i += CHUNK_BYTES) {
		if (m6_job_cancelled(run->job))
			return M6NPU_EXC_ABORTED;
		compare_words(&result, memory, i / 4, chunk_at(i, bytes) / 4,
			      pattern);
	}
	store_compare(&result, le32toh(pattern), dst);
	return 0;
}

/* By way of scratch memory, since a bad block must leave dst as it was. */
static uint32_t decompress(struct m6_run *run, void *dst, uint64_t dst_bytes,
			   const void *src, uint64_t src_bytes)
{
	void *plain = m6_scratch(run->exec, M6_SCRATCH_BLOCK, dst_bytes);
	uint32_t code = 0;

	if (!plain)
		return M6_NO_MEMORY;
	if (LZ4_decompress_safe(src, plain, (int)src_bytes, (int)dst_bytes) ==
	    (int)dst_bytes)
		memcpy(dst, plain, dst_bytes);
	else
		code = M6NPU_EXC_DECOMPRESS_ERROR;
	m6_scratch_trim(run->exec, M6_SCRATCH_BLOCK);
	return code;
}

uint32_t m6_op_lz4(struct m6_run *run)
{
	uint64_t dst_bytes = le64toh(run->cmd->args.lz4.dst_bytes);
	uint64_t src_bytes = le64toh(run->cmd->args.lz4.src_bytes);
	void *dst, *src;
	uint32_t code;

	if (!dst_bytes || dst_bytes > LZ4_MAX_INPUT_SIZE || !src_bytes ||
	    src_bytes > INT_MAX || !m6_zero(run->cmd->args.lz4.pad, 2))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_map(run, 1, src_bytes, false, &src);
	if (!code)
		code = m6_map(run, 0, dst_bytes, true, &dst);
	if (code)
		return code;
	if (m6_overlap(dst, dst_bytes, src, src_bytes))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	run->cost->lz4_bytes = dst_bytes;
	if (run->dry)
		return 0;
	return decompress(run, dst, dst_bytes, src, src_bytes);
}
