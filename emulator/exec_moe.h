/* SPDX-License-Identifier: MIT */
/*
 * A MOE_FFN on its way: exec_moe.c sets it up, exec_moe_pass.c computes. A
 * pair is row * k + choice.
 */
#ifndef M6_EXEC_MOE_H
#define M6_EXEC_MOE_H

#include "exec_priv.h"

/* A pair that is none of this command's. */
#define M6_MOE_NOT_OURS		0xffffu

/* The types of an expert's matrices, and what follows from them. */
struct m6_moe_format {
	const struct m6_type *gate, *up, *down;
	uint64_t gate_row, up_row, down_row;		/* bytes */
	uint64_t up_at, down_at, bytes;			/* within an expert */
	uint64_t gate_packed, up_packed, down_packed;	/* bytes of a row */
	bool used;
	/* Of a pass. */
	uint8_t *packed_gate, *packed_up;		/* [rows] */
	uint8_t *row_state;				/* [rows] */
};

struct m6_moe_expert {
	const uint8_t *host;
	struct m6_moe_format *format;
	uint32_t pairs;		/* in all */
	/* Of a pass. */
	uint32_t first, count;	/* its slots: indices of m6_moe.order */
};

struct m6_moe {
	struct m6_run *run;
	struct m6_mat dst, src, ids;
	struct m6_mat weights;			/* unless grouped */
	uint32_t k, hidden, ffn, act;
	bool grouped, accumulate;
	uint32_t capacity;			/* 1 unless grouped */
	/* 0: as the command says; others by m6npu_expert.type */
	struct m6_moe_format format[M6NPU_TYPE_COUNT];

	uint32_t limit;				/* args.moe.experts */
	bool member[M6_MAX_EXPERTS];
	uint32_t id[M6_MAX_EXPERTS];		/* distinct, as they came */
	struct m6_moe_expert expert[M6_MAX_EXPERTS];
	uint32_t experts;
	uint16_t *choice;			/* [rows * k] -> expert[] */

	/* Of a pass; its pairs count from 0. */
	uint32_t first, rows;
	uint32_t slots;
	uint32_t *order;			/* [slots], pairs by expert */
	uint64_t down_packed;			/* bytes of the largest */
	uint8_t *packed_down;			/* [slots] */
	bool *valid_down;			/* [slots] */
	float *inner;				/* [slots][ffn] */
	float *outer;				/* [pairs][hidden] */
	float *clean;				/* [threads][widest] */
};

/* exec_moe_pass.c */
uint32_t m6_moe_compute(struct m6_moe *m);

#endif
