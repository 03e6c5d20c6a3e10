// SPDX-License-Identifier: MIT
/*
 * The table of opcodes, the checks that all of them share, and the helpers
 * that turn operands into host memory.
 */
#include <stdlib.h>
#include <string.h>

#include "exec_priv.h"

#define OP(op, fn, ...) \
	[M6NPU_OP_##op] = { .name = #op, .run = fn, __VA_ARGS__ }
#define ROW_OP(op, fn, ...) \
	OP(op, fn, .has_rows = true, __VA_ARGS__)
#define OUT		.flags = M6NPU_CMD_OUT_ROWS
#define OUT_ACC		.flags = M6NPU_CMD_OUT_ROWS | M6NPU_CMD_ACCUMULATE
#define STEP		.needs_step = true

/* Bit i of a mask is operand i, or type[i]. */
static const struct m6_op ops[] = {
	OP(BARRIER, m6_op_barrier),
	OP(TIMESTAMP, m6_op_timestamp, .required = 0x1),
	OP(COPY, m6_op_copy, .required = 0x3),
	OP(FILL, m6_op_fill, .required = 0x1),
	OP(COMPARE, m6_op_compare, .required = 0x3),
	OP(LZ4_DECOMPRESS, m6_op_lz4, .required = 0x3),
	ROW_OP(EMBED, m6_op_embed, OUT, .required = 0x3, .typed = 0x2, STEP),
	ROW_OP(NORM, m6_op_norm, OUT, .required = 0x7),
	ROW_OP(GEMM, m6_op_gemm, OUT_ACC, .required = 0x7, .optional = 0x8,
	       .typed = 0x4),
	ROW_OP(ROPE, m6_op_rope, OUT, .required = 0x1, .optional = 0x2, STEP),
	ROW_OP(ATTENTION, m6_op_attention, OUT, .required = 0x7, STEP),
	ROW_OP(GLU, m6_op_glu, OUT, .required = 0x7),
	ROW_OP(ADD, m6_op_add, OUT, .required = 0x7),
	ROW_OP(SCALE, m6_op_scale, OUT, .required = 0x3),
	ROW_OP(GATHER, m6_op_gather, .required = 0x3, STEP),
	ROW_OP(GATED_ADD, m6_op_gated_add, OUT, .required = 0x7),
	ROW_OP(ROUTER_TOPK, m6_op_router, OUT, .required = 0x7,
	       .optional = 0x8, .ids = 0x1),
	ROW_OP(MOE_FFN, m6_op_moe, .flags = M6NPU_CMD_OUT_ROWS |
	       M6NPU_CMD_ACCUMULATE | M6NPU_CMD_GROUPED, .required = 0xf,
	       .typed = 0xe),
	ROW_OP(EXPERT_PREFETCH, m6_op_prefetch, OUT, .required = 0x3,
	       .ids = 0x1),
	ROW_OP(MOE_COMBINE, m6_op_combine, OUT_ACC, .required = 0x7),
	ROW_OP(TOPK, m6_op_topk, OUT, .required = 0x7, .ids = 0x1),
};

static const struct m6_op *find_op(uint8_t opcode)
{
	if (opcode >= M6_ARRAY_SIZE(ops) || !ops[opcode].name)
		return NULL;
	return &ops[opcode];
}

const char *m6_opcode_name(uint8_t opcode)
{
	const struct m6_op *op = find_op(opcode);

	return op ? op->name : "unknown";
}

const char *m6_exception_name(uint32_t code)
{
	switch (code) {
	case M6NPU_EXC_NONE: return "NONE";
	case M6NPU_EXC_MMU_PAGE_FAULT: return "MMU_PAGE_FAULT";
	case M6NPU_EXC_TLB_WALK_TIMEOUT: return "TLB_WALK_TIMEOUT";
	case M6NPU_EXC_PAGE_ALIGNMENT: return "PAGE_ALIGNMENT_VIOLATION";
	case M6NPU_EXC_DMA_ERROR: return "DMA_ERROR";
	case M6NPU_EXC_EXPERT_FAULT: return "EXPERT_FAULT";
	case M6NPU_EXC_ROUTER_CACHE_FULL: return "ROUTER_CACHE_FULL";
	case M6NPU_EXC_EXPERT_HINT: return "EXPERT_HINT";
	case M6NPU_EXC_ILLEGAL_COMMAND: return "ILLEGAL_COMMAND";
	case M6NPU_EXC_BOUNDS: return "BOUNDS";
	case M6NPU_EXC_UNIT_HANG: return "UNIT_HANG";
	case M6NPU_EXC_ABORTED: return "ABORTED";
	case M6NPU_EXC_DECOMPRESS_ERROR: return "DECOMPRESS_ERROR";
	case M6NPU_EXC_THERMAL_THROTTLE: return "THERMAL_THROTTLE";
	case M6NPU_EXC_THERMAL_CRITICAL: return "THERMAL_CRITICAL";
	case M6NPU_EXC_ECC_CORRECTED: return "ECC_CORRECTED";
	case M6NPU_EXC_ECC_UNCORRECTED: return "ECC_UNCORRECTED";
	case M6NPU_EXC_FIRMWARE_ASSERT: return "FIRMWARE_ASSERT";
	case M6NPU_EXC_LINK_DEGRADED: return "LINK_DEGRADED";
	default: return "unknown";
	}
}

struct m6_exec *m6_exec_create(unsigned int threads)
{
	struct m6_exec *exec;

	if (!m6_types_init())
		return NULL;
	exec = calloc(1, sizeof(*exec));
	if (!exec)
		return NULL;
	exec->pool = m6_pool_create(threads);
	if (!exec->pool) {
		free(exec);
		return NULL;
	}
	return exec;
}

void m6_exec_destroy(struct m6_exec *exec)
{
	if (!exec)
		return;
	m6_pool_destroy(exec->pool);
	for (unsigned int i = 0; i < M6_SCRATCH_COUNT; i++)
		free(exec->scratch[i].data);
	free(exec);
}

/* An operand that the opcode doesn't have is 0 or M6NPU_OPERAND_NONE. */
static bool operands_valid(const struct m6_op *op, const struct m6npu_cmd *cmd)
{
	for (unsigned int i = 0; i < 4; i++) {
		uint64_t operand = le64toh(cmd->operand[i]);
		bool none = operand == M6NPU_OPERAND_NONE;

		if (op->required & (1u << i)) {
			if (none)
				return false;
		} else if (!(op->optional & (1u << i))) {
			if (operand && !none)
				return false;
		}
	}
	return true;
}

/* Likewise a type; operands that are always I32 may say so. */
static bool types_valid(const struct m6_op *op, const struct m6npu_cmd *cmd)
{
	for (unsigned int i = 0; i < 4; i++) {
		uint8_t type = cmd->type[i];

		if (!type || op->typed & (1u << i))
			continue;
		if (type != M6NPU_TYPE_I32 || !(op->ids & (1u << i)))
			return false;
	}
	return true;
}

/* M6NPU_CMD_OUT_ROWS, too, never makes more rows than the command has. */
static uint32_t live_rows(const struct m6_run *run, uint32_t rows)
{
	uint32_t live = rows;

	if (run->step && run->cmd->flags & M6NPU_CMD_OUT_ROWS)
		live = run->step->out_count;
	else if (run->step)
		live = run->step->token_count;
	return live < rows ? live : rows;
}

uint32_t m6_exec_command(struct m6_exec *exec, struct m6_job *job,
			 const struct m6npu_cmd *cmd, bool dry,
			 struct m6_cost *cost)
{
	const struct m6_op *op = find_op(cmd->opcode);
	struct m6_run run = {
		.exec = exec,
		.job = job,
		.cmd = cmd,
		.step = m6_job_step(job),
		.cost = cost,
		.dry = dry,
	};

	memset(cost, 0, sizeof(*cost));
	if (!op || cmd->flags & ~op->flags)
		return M6NPU_EXC_ILLEGAL_COMMAND;
	if (!operands_valid(op, cmd) || !types_valid(op, cmd))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	if (op->needs_step && !run.step)
		return M6NPU_EXC_ILLEGAL_COMMAND;
	if (op->has_rows) {
		uint32_t rows = le32toh(cmd->args.word[0]);

		if (!m6_dim(rows, M6_MAX_ROWS))
			return M6NPU_EXC_ILLEGAL_COMMAND;
		run.rows = live_rows(&run, rows);
	}
	return op->run(&run);
}

float m6_float(__le32 bits)
{
	uint32_t host = le32toh(bits);
	float value;

	memcpy(&value, &host, sizeof(value));
	return value;
}

bool m6_zero(const __le32 *pad, unsigned int count)
{
	while (count--) {
		if (pad[count])
			return false;
	}
	return true;
}

bool m6_dim(uint32_t value, uint32_t max)
{
	return value && value <= max;
}

bool m6_has(const struct m6_run *run, unsigned int operand)
{
	return le64toh(run->cmd->operand[operand]) != M6NPU_OPERAND_NONE;
}

static uint32_t map_operand(struct m6_run *run, uint64_t operand,
			    uint64_t bytes, bool write, void **host)
{
	struct m6_span span;
	uint32_t code;

	*host = NULL;
	if (operand & 3)
		return M6NPU_EXC_ILLEGAL_COMMAND;
	code = m6_job_map(run->job, operand, bytes, write, &span);
	if (!code)
		*host = span.host;
	return code;
}

uint32_t m6_map(struct m6_run *run, unsigned int operand, uint64_t bytes,
		bool write, void **host)
{
	run->cost->dram_bytes += bytes;
	return map_operand(run, le64toh(run->cmd->operand[operand]), bytes,
			   write, host);
}

uint32_t m6_map_at(struct m6_run *run, unsigned int operand, uint64_t offset,
		   uint64_t bytes, bool write, void **host)
{
	uint64_t start = le64toh(run->cmd->operand[operand]);
	uint64_t lead = offset & 3;
	uint32_t code;

	*host = NULL;
	if (offset > M6NPU_OPERAND_OFFSET_MASK ||
	    (start & M6NPU_OPERAND_OFFSET_MASK) + offset >
	    M6NPU_OPERAND_OFFSET_MASK)
		return M6NPU_EXC_BOUNDS;
	code = map_operand(run, start + offset - lead, bytes + lead, write,
			   host);
	/* No bytes, no memory: even 0 must not be added to NULL. */
	if (!code && lead)
		*host = (char *)*host + lead;
	return code;
}

/* @rows, @width and @stride are within 32 bits, so nothing wraps. */
static uint64_t mat_bytes(uint32_t rows, uint32_t width, uint64_t stride)
{
	return rows ? ((rows - 1) * stride + width) * sizeof(float) : 0;
}

uint32_t m6_map_mat(struct m6_run *run, unsigned int operand, uint32_t rows,
		    uint32_t width, uint64_t stride, bool write,
		    struct m6_mat *mat)
{
	void *host;
	uint32_t code;

	if (stride < width)
		return M6NPU_EXC_ILLEGAL_COMMAND;
	run->cost->dram_bytes += (uint64_t)rows * width * sizeof(float);
	code = map_operand(run, le64toh(run->cmd->operand[operand]),
			   mat_bytes(rows, width, stride), write, &host);
	*mat = (struct m6_mat){ host, stride, rows, width };
	return code;
}

bool m6_overlap(const void *a, uint64_t a_bytes, const void *b,
		uint64_t b_bytes)
{
	uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

	if (!a_bytes || !b_bytes)
		return false;
	return x < y + b_bytes && y < x + a_bytes;
}

/*
 * Two matrices may share an extent and yet no element: columns of one wide
 * buffer. With equal strides the distance modulo the stride decides.
 */
bool m6_mat_overlap(const struct m6_mat *a, const struct m6_mat *b)
{
	const struct m6_mat *low = a->data < b->data ? a : b;
	const struct m6_mat *high = low == a ? b : a;
	uint64_t distance;

	if (!m6_overlap(a->data, mat_bytes(a->rows, a->width, a->stride),
			b->data, mat_bytes(b->rows, b->width, b->stride)))
		return false;
	if (a->stride != b->stride)
		return true;
	distance = ((uintptr_t)high->data - (uintptr_t)low->data) %
		   (a->stride * sizeof(float));
	return distance < low->width * sizeof(float) ||
	       distance + high->width * sizeof(float) >
	       a->stride * sizeof(float);
}

bool m6_mat_overlaps(const struct m6_mat *a, const void *b, uint64_t bytes)
{
	return m6_overlap(a->data, mat_bytes(a->rows, a->width, a->stride), b,
			  bytes);
}

bool m6_mat_clash(const struct m6_mat *dst, const struct m6_mat *src)
{
	if (dst->data == src->data &&
	    (dst->stride == src->stride || dst->rows <= 1))
		return false;
	return m6_mat_overlap(dst, src);
}

const struct m6npu_step_token *m6_token(const struct m6_run *run, uint32_t row)
{
	if (run->cmd->flags & M6NPU_CMD_OUT_ROWS)
		row = run->step->out_rows[row];
	return &run->step->tokens[row];
}

/* A multiply-accumulate in F32 occupies what four in INT8 do. */
void m6_charge_f32(struct m6_run *run, uint64_t macs)
{
	run->cost->macs += 4 * macs;
}
