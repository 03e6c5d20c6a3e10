/* SPDX-License-Identifier: MIT */
/*
 * What the files of the execution side share.
 *
 *	exec.c			table of opcodes, dispatch, operand helpers
 *	exec_pool.c		threads and scratch memory of a struct m6_exec
 *	exec_types.c		number formats: ggml's row kernels behind one table
 *	exec_mem.c		memory, LZ4, TIMESTAMP
 *	exec_vector.c		element-wise and row-wise operations
 *	exec_gemm.c		GEMM
 *	exec_attention.c	ROPE, ATTENTION and the KV cache
 *	exec_router.c		ROUTER_TOPK
 *	exec_dry.c		what ROUTER_TOPK says in a dry run
 *	exec_moe.c		MOE_FFN: operands, experts, prices
 *	exec_moe_pass.c		MOE_FFN: arithmetic
 *	exec_combine.c		MOE_COMBINE
 *	exec_prefetch.c		EXPERT_PREFETCH
 *
 * An operation is one function. It checks its fields, maps its operands
 * (which also prices them), checks overlaps, prices the arithmetic, and only
 * then, unless m6_run_idle(), computes. So a command with a code has written
 * nothing, and a dry one reports the exceptions of a real one, save those
 * that depend on data. Ids of experts are the one kind of data that a dry run
 * has: it makes them up, and acts on them.
 *
 * Determinism: what a row's result is made of, and in which order, never
 * depends on the other rows of the command or on the number of threads.
 */
#ifndef M6_EXEC_PRIV_H
#define M6_EXEC_PRIV_H

#include <endian.h>

#include "job.h"

/* Limits of the device, so that no product below leaves 64 bits. */
#define M6_MAX_ROWS		65536u
#define M6_MAX_DIM		(1u << 22)
#define M6_MAX_HEADS		1024u
#define M6_MAX_HEAD_DIM		1024u
#define M6_MAX_EXPERTS		512u
#define M6_MAX_EXPERT_DIM	65536u
#define M6_MAX_ROUTED		64u
#define M6_MAX_TOPK		256u

#define M6_ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

struct m6_pool;

enum m6_scratch {
	M6_SCRATCH_PACKED,	/* activations in a kernel's own format */
	M6_SCRATCH_VALID,	/* one byte per packed row: it is finite */
	M6_SCRATCH_CLEAN,	/* a row on its way into such a format */
	M6_SCRATCH_ROWS,	/* bookkeeping of rows */
	M6_SCRATCH_VIEWS,	/* bookkeeping of slots, experts */
	M6_SCRATCH_THREADS,	/* one part per thread */
	M6_SCRATCH_BLOCK,	/* whatever is large */
	M6_SCRATCH_COUNT,
};

struct m6_exec {
	struct m6_pool *pool;
	struct {
		void *data;
		uint64_t bytes;
	} scratch[M6_SCRATCH_COUNT];
};

/* One command on its way. */
struct m6_run {
	struct m6_exec *exec;
	struct m6_job *job;
	const struct m6npu_cmd *cmd;
	const struct m6_step *step;	/* NULL: none */
	struct m6_cost *cost;
	uint32_t rows;			/* live rows, may be 0 */
	bool dry;
};

struct m6_op {
	const char *name;
	uint32_t (*run)(struct m6_run *run);
	uint8_t flags;		/* M6NPU_CMD_* it understands */
	uint8_t required;	/* mask of operands */
	uint8_t optional;	/* mask of operands */
	uint8_t typed;		/* mask of type[] that it looks at */
	uint8_t ids;		/* mask of type[] that may say I32 */
	bool needs_step;
	bool has_rows;		/* args begin with the number of rows */
};

/* A row-major F32 or I32 matrix in guest memory. */
struct m6_mat {
	float *data;
	uint64_t stride;	/* elements */
	uint32_t rows;
	uint32_t width;
};

/* exec.c: operands */

/* Nothing to compute: a dry run, or no live row. */
static inline bool m6_run_idle(const struct m6_run *run)
{
	return run->dry || !run->rows;
}

float m6_float(__le32 bits);
bool m6_zero(const __le32 *pad, unsigned int count);
/* 1 <= value <= max */
bool m6_dim(uint32_t value, uint32_t max);
bool m6_has(const struct m6_run *run, unsigned int operand);

uint32_t m6_map(struct m6_run *run, unsigned int operand, uint64_t bytes,
		bool write, void **host);
/*
 * The same from a byte offset into the operand that may be of any alignment.
 * Not priced: the caller knows how often it reads what it maps.
 */
uint32_t m6_map_at(struct m6_run *run, unsigned int operand, uint64_t offset,
		   uint64_t bytes, bool write, void **host);
uint32_t m6_map_mat(struct m6_run *run, unsigned int operand, uint32_t rows,
		    uint32_t width, uint64_t stride, bool write,
		    struct m6_mat *mat);

bool m6_overlap(const void *a, uint64_t a_bytes, const void *b,
		uint64_t b_bytes);
/* True if an element of one is an element of the other. */
bool m6_mat_overlap(const struct m6_mat *a, const struct m6_mat *b);
bool m6_mat_overlaps(const struct m6_mat *a, const void *b, uint64_t bytes);
/* The same, except that @dst may be exactly @src. */
bool m6_mat_clash(const struct m6_mat *dst, const struct m6_mat *src);

static inline float *m6_row(const struct m6_mat *mat, uint32_t row)
{
	return mat->data + row * mat->stride;
}

/* The step's token behind a live row. Needs a step. */
const struct m6npu_step_token *m6_token(const struct m6_run *run, uint32_t row);

void m6_charge_f32(struct m6_run *run, uint64_t macs);

/* exec_pool.c */

struct m6_pool *m6_pool_create(unsigned int threads);
void m6_pool_destroy(struct m6_pool *pool);
unsigned int m6_pool_threads(const struct m6_pool *pool);

typedef void (*m6_item_fn)(void *arg, uint32_t item, unsigned int thread);
/*
 * Calls @fn for every item once, in any order, on several threads if @macs
 * says that it pays. 0, or M6NPU_EXC_ABORTED with some items left out.
 */
uint32_t m6_parallel(struct m6_run *run, uint32_t items, uint64_t macs,
		     m6_item_fn fn, void *arg);

/* At least @bytes, 64-byte aligned, contents undefined. NULL: no memory. */
void *m6_scratch(struct m6_exec *exec, enum m6_scratch which, uint64_t bytes);
/* Gives memory back that no ordinary command will want again. */
void m6_scratch_trim(struct m6_exec *exec, enum m6_scratch which);
/* What a command reports that finds no memory for its scratch. */
#define M6_NO_MEMORY		M6NPU_EXC_DMA_ERROR

/* exec_types.c */

struct m6_type;

bool m6_types_init(void);
/* A format of weights and caches; NULL if @type is none. */
const struct m6_type *m6_type(uint8_t type);
uint32_t m6_type_block(const struct m6_type *type);
/* @n is a multiple of the block. */
uint64_t m6_type_bytes(const struct m6_type *type, uint64_t n);
void m6_type_charge(struct m6_run *run, const struct m6_type *type,
		    uint64_t macs);

void m6_type_decode(const struct m6_type *type, const void *src, float *dst,
		    uint32_t n);
/* Into the format itself. @clean: scratch of @n floats. */
void m6_type_encode(const struct m6_type *type, const float *src, void *dst,
		    uint32_t n, float *clean);

/*
 * Products of a row of weights and a row of activations. The activations are
 * first packed into the format that the weights' kernel wants; false says
 * that they hold a NaN or an infinity which that format can't: the product
 * of such a row is NaN.
 */
uint64_t m6_type_packed_bytes(const struct m6_type *type, uint32_t n);
bool m6_type_pack(const struct m6_type *type, const float *src, void *dst,
		  uint32_t n, float *clean);
float m6_type_dot(const struct m6_type *type, const void *weights,
		  const void *packed, uint32_t n);
/* F32 by F32, any alignment of 4. */
float m6_dot_f32(const float *a, const float *b, uint32_t n);

/* exec_vector.c, for MOE_FFN */
float m6_activate(uint32_t act, float x);

/* exec_combine.c, for MOE_FFN */
struct m6_combine {
	uint32_t k, hidden;
	bool accumulate;
};

/* @pairs is [k, hidden], @weights [k]. */
void m6_combine_row(const struct m6_combine *c, float *dst, const float *pairs,
		    const float *weights);

/* exec_dry.c, for ROUTER_TOPK: how one layer's experts are chosen. */
struct m6_dry {
	const struct m6_run *run;
	const struct m6_dry_routing *how;
	uint32_t layer;
	uint32_t experts;
	uint32_t by_rank[M6_MAX_EXPERTS];
	double up_to[M6_MAX_EXPERTS];	/* of a rank: sum of shares so far */
};

void m6_dry_begin(const struct m6_run *run, uint32_t experts,
		  struct m6_dry *dry);
void m6_dry_choose(const struct m6_dry *dry, uint32_t row, uint32_t k,
		   uint32_t *ids);
/* What the layer's router will choose for the row, if it chooses @among. */
void m6_dry_guess(const struct m6_dry *dry, uint32_t row, uint32_t among,
		  uint32_t k, uint32_t *ids, float *chances);

/* The operations. */
uint32_t m6_op_barrier(struct m6_run *run);
uint32_t m6_op_timestamp(struct m6_run *run);
uint32_t m6_op_copy(struct m6_run *run);
uint32_t m6_op_fill(struct m6_run *run);
uint32_t m6_op_compare(struct m6_run *run);
uint32_t m6_op_lz4(struct m6_run *run);
uint32_t m6_op_embed(struct m6_run *run);
uint32_t m6_op_norm(struct m6_run *run);
uint32_t m6_op_gemm(struct m6_run *run);
uint32_t m6_op_rope(struct m6_run *run);
uint32_t m6_op_attention(struct m6_run *run);
uint32_t m6_op_glu(struct m6_run *run);
uint32_t m6_op_add(struct m6_run *run);
uint32_t m6_op_scale(struct m6_run *run);
uint32_t m6_op_gather(struct m6_run *run);
uint32_t m6_op_gated_add(struct m6_run *run);
uint32_t m6_op_router(struct m6_run *run);
uint32_t m6_op_moe(struct m6_run *run);
uint32_t m6_op_combine(struct m6_run *run);
uint32_t m6_op_prefetch(struct m6_run *run);
uint32_t m6_op_topk(struct m6_run *run);

#endif
