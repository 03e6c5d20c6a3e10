// SPDX-License-Identifier: MIT
/* BARRIER, TIMESTAMP, COPY, FILL, COMPARE, LZ4_DECOMPRESS, and names. */
#include <lz4.h>
#include <lz4hc.h>
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "fake.h"

static struct m6_exec *exec;
static struct m6_job *job;

static uint32_t run(const struct m6npu_cmd *cmd)
{
	struct m6_cost cost;

	return m6_exec_command(exec, job, cmd, false, &cost);
}

static struct m6npu_cmd mem_command(uint8_t opcode, uint64_t bytes,
				    uint32_t pattern)
{
	struct m6npu_cmd cmd = fake_command(opcode);

	cmd.operand[0] = M6NPU_OPERAND(0, 4);
	if (opcode != M6NPU_OP_FILL)
		cmd.operand[1] = M6NPU_OPERAND(1, 4);
	cmd.args.mem.bytes = bytes;
	cmd.args.mem.pattern = pattern;
	return cmd;
}

static void test_copy(void)
{
	uint64_t bytes = (9 << 20) + 3;
	uint8_t *dst = fake_region(job, 0, bytes + 8);
	uint8_t *src = fake_region(job, 1, bytes + 8);
	struct m6npu_cmd cmd = mem_command(M6NPU_OP_COPY, bytes, 0);

	for (uint64_t i = 0; i < bytes; i++)
		src[i + 4] = fake_random();
	ok(!run(&cmd) && !memcmp(dst + 4, src + 4, bytes), "COPY");
	ok(!dst[0] && !dst[3] && !dst[bytes + 4], "COPY keeps its bounds");
	cmd.operand[1] = M6NPU_OPERAND(0, 8);
	cmd.args.mem.bytes = 16;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "COPY onto itself");
	cmd.operand[1] = M6NPU_OPERAND(0, 20);
	ok(!run(&cmd), "COPY to the place next to it");
	cmd.args.mem.bytes = bytes + 100;
	cmd.operand[1] = M6NPU_OPERAND(1, 0);
	ok(run(&cmd) == M6NPU_EXC_BOUNDS, "COPY beyond the region");
	cmd.args.mem.bytes = UINT64_MAX;
	ok(run(&cmd), "COPY of everything");
	cmd.args.mem.bytes = 0;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "COPY of nothing");
}

static void test_fill_and_compare(void)
{
	uint64_t bytes = (5 << 20) + 8;
	uint32_t *memory = fake_region(job, 0, bytes + 8);
	struct m6npu_cmd fill = mem_command(M6NPU_OP_FILL, bytes, 0xdeadbeef);
	struct m6npu_cmd compare = mem_command(M6NPU_OP_COMPARE, bytes,
					       0xdeadbeef);
	struct m6npu_compare_result result;
	char *out = fake_region(job, 1, sizeof(result) + 4);

	ok(!run(&fill) && memory[1] == 0xdeadbeef &&
	   memory[bytes / 4] == 0xdeadbeef && !memory[0] &&
	   !memory[bytes / 4 + 1], "FILL");
	ok(!run(&compare), "COMPARE runs");
	memcpy(&result, out + 4, sizeof(result));
	ok(!result.mismatches, "COMPARE finds nothing");
	memory[1 + 1500000 / 4] = 7;
	memory[bytes / 4] ^= 1;
	ok(!run(&compare), "COMPARE runs");
	memcpy(&result, out + 4, sizeof(result));
	ok(result.mismatches == 2 && result.first_offset == 1500000 &&
	   result.expected == 0xdeadbeef && result.found == 7,
	   "COMPARE finds two");
	fill.args.mem.bytes = 6;
	ok(run(&fill) == M6NPU_EXC_ILLEGAL_COMMAND, "FILL of half a word");
	fill.args.mem.bytes = 8;
	fill.args.mem.pad[1] = 1;
	ok(run(&fill) == M6NPU_EXC_ILLEGAL_COMMAND, "FILL with a pad");
	compare.operand[1] = M6NPU_OPERAND(0, 64);
	ok(run(&compare) == M6NPU_EXC_ILLEGAL_COMMAND,
	   "COMPARE with its result inside");
}

static void test_small(void)
{
	struct m6npu_cmd cmd = fake_command(M6NPU_OP_TIMESTAMP);
	uint64_t stamp[2];
	char *out = fake_region(job, 0, 20);

	cmd.operand[0] = M6NPU_OPERAND(0, 4);
	ok(!run(&cmd), "TIMESTAMP runs");
	memcpy(stamp, out + 4, sizeof(stamp));
	ok(stamp[0] == 0x123456789abcdefull &&
	   stamp[1] == 0xfedcba9876543210ull, "TIMESTAMP");
	cmd = fake_command(M6NPU_OP_BARRIER);
	ok(!run(&cmd), "BARRIER");
	cmd.operand[0] = 0;
	ok(!run(&cmd), "an operand that there isn't may be 0");
	cmd.operand[0] = 64;
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "but nothing else");
	cmd = fake_command(0x7f);
	ok(run(&cmd) == M6NPU_EXC_ILLEGAL_COMMAND, "an unknown opcode");
}

/* Text-like data: runs, repeats and noise. */
static void make_plain(uint8_t *plain, int bytes)
{
	for (int i = 0; i < bytes; i++)
		plain[i] = i > 500 && fake_random() % 8 ?
			   plain[i - 1 - fake_random() % 400] :
			   (uint8_t)fake_random();
	memset(plain + bytes / 2, 'x', bytes / 8);
}

static struct m6npu_cmd lz4_command(int dst_bytes, int src_bytes)
{
	struct m6npu_cmd cmd = fake_command(M6NPU_OP_LZ4_DECOMPRESS);

	cmd.operand[0] = M6NPU_OPERAND(0, 0);
	cmd.operand[1] = M6NPU_OPERAND(1, 0);
	cmd.args.lz4.dst_bytes = dst_bytes;
	cmd.args.lz4.src_bytes = src_bytes;
	return cmd;
}

static void test_lz4(bool high)
{
	const int bytes = 300000;
	uint8_t *plain = malloc(bytes);
	char *packed = malloc(LZ4_compressBound(bytes));
	struct m6npu_cmd cmd;
	struct m6_cost cost;
	uint8_t *dst, *src;
	int size;

	make_plain(plain, bytes);
	size = high ? LZ4_compress_HC((char *)plain, packed, bytes,
				      LZ4_compressBound(bytes), 9) :
		      LZ4_compress_default((char *)plain, packed, bytes,
					   LZ4_compressBound(bytes));
	src = fake_data(job, 1, packed, size);
	dst = fake_region(job, 0, bytes);
	cmd = lz4_command(bytes, size);
	ok(!m6_exec_command(exec, job, &cmd, false, &cost) &&
	   !memcmp(dst, plain, bytes), "LZ4 %d to %d bytes", size, bytes);
	ok(cost.lz4_bytes == (uint64_t)bytes, "LZ4 price");

	memset(dst, 0x55, bytes);
	cmd = lz4_command(bytes - 1, size);
	ok(run(&cmd) == M6NPU_EXC_DECOMPRESS_ERROR, "LZ4 of too much");
	cmd = lz4_command(bytes, size - 5);
	ok(run(&cmd) == M6NPU_EXC_DECOMPRESS_ERROR, "LZ4 of too little");
	memset(src, 0xff, size);
	cmd = lz4_command(bytes, size);
	ok(run(&cmd) == M6NPU_EXC_DECOMPRESS_ERROR, "LZ4 of damaged data");
	ok(dst[0] == 0x55 && dst[bytes - 1] == 0x55, "dst is as it was");
	free(plain);
	free(packed);
}

static void test_names(void)
{
	ok(!strcmp(m6_opcode_name(M6NPU_OP_MOE_FFN), "MOE_FFN"), "opcode");
	ok(m6_opcode_name(0xff) && m6_opcode_name(0x06), "unknown opcodes");
	ok(!strcmp(m6_exception_name(M6NPU_EXC_PAGE_ALIGNMENT),
		   "PAGE_ALIGNMENT_VIOLATION"), "exception");
	ok(m6_exception_name(0xffff), "unknown exception");
}

int main(void)
{
	exec = m6_exec_create(2);
	job = fake_create();
	if (!ok(exec, "created"))
		return done();
	test_copy();
	test_fill_and_compare();
	test_small();
	test_lz4(false);
	test_lz4(true);
	test_names();
	job->polls_left = 1;
	fake_region(job, 0, 64 << 20);
	ok(run(&(struct m6npu_cmd){
		.opcode = M6NPU_OP_FILL,
		.args.mem.bytes = 64 << 20 }) == M6NPU_EXC_ABORTED,
	   "a cancelled FILL");
	fake_destroy(job);
	m6_exec_destroy(exec);
	return done();
}
