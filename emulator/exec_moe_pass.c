// SPDX-License-Identifier: MIT
/*
 * MOE_FFN: the arithmetic.
 *
 * Always expert by expert, so that an expert's weights are read once for all
 * rows that chose it, whatever the device would do. What every (row, choice)
 * pair got is kept apart, and a row's choices are added up in their order at
 * the end. So the result doesn't know how rows were grouped.
 */
#include <math.h>
#include <string.h>

#include "exec_moe.h"

#define WEIGHT_ROWS		16u
/* What a pass may occupy; more rows go in several passes. */
#define PASS_BYTES		(32ull << 20)

/* Of a row that is to be packed in some format. */
enum row_state { ROW_UNPACKED, ROW_FINITE, ROW_BROKEN };

static uint64_t widest(const struct m6_moe *m)
{
	return m->hidden > m->ffn ? m->hidden : m->ffn;
}

static uint64_t row_cost(const struct m6_moe *m)
{
	uint64_t pair = m->ffn * sizeof(float) + m->down_packed +
			sizeof(uint32_t) + 1;
	uint64_t row = 0;

	if (!m->grouped)
		pair += m->hidden * sizeof(float);
	for (uint32_t i = 0; i < M6NPU_TYPE_COUNT; i++) {
		const struct m6_moe_format *f = &m->format[i];

		if (f->used)
			row += f->gate_packed + f->up_packed + 1;
	}
	return m->k * pair + row;
}

static void *cut(uint8_t **at, uint64_t bytes)
{
	void *piece = *at;

	*at += bytes;
	return piece;
}

/* One allocation, cut up: large alignments first. */
static bool pass_scratch(struct m6_moe *m, uint32_t rows)
{
	uint64_t pairs = (uint64_t)rows * m->k;
	uint8_t *at = m6_scratch(m->run->exec, M6_SCRATCH_BLOCK,
				 rows * row_cost(m));

	m->clean = m6_scratch(m->run->exec, M6_SCRATCH_THREADS,
			      m6_pool_threads(m->run->exec->pool) *
			      widest(m) * sizeof(float));
	if (!at || !m->clean)
		return false;
	for (uint32_t i = 0; i < M6NPU_TYPE_COUNT; i++) {
		struct m6_moe_format *f = &m->format[i];

		if (f->used) {
			f->packed_gate = cut(&at, rows * f->gate_packed);
			f->packed_up = cut(&at, rows * f->up_packed);
		}
	}
	m->packed_down = cut(&at, pairs * m->down_packed);
	m->inner = cut(&at, pairs * m->ffn * sizeof(float));
	if (!m->grouped)
		m->outer = cut(&at, pairs * m->hidden * sizeof(float));
	m->order = cut(&at, pairs * sizeof(uint32_t));
	m->valid_down = cut(&at, pairs);
	for (uint32_t i = 0; i < M6NPU_TYPE_COUNT; i++) {
		if (m->format[i].used)
			m->format[i].row_state = cut(&at, rows);
	}
	return true;
}

static const uint16_t *pass_choices(const struct m6_moe *m)
{
	return m->choice + (uint64_t)m->first * m->k;
}

/* A counting sort of the pass's pairs by expert. */
static void order_pairs(struct m6_moe *m)
{
	const uint16_t *choice = pass_choices(m);
	uint32_t pairs = m->rows * m->k;

	for (uint32_t i = 0; i < m->experts; i++)
		m->expert[i].count = 0;
	for (uint32_t i = 0; i < pairs; i++) {
		if (choice[i] != M6_MOE_NOT_OURS)
			m->expert[choice[i]].count++;
	}
	m->slots = 0;
	for (uint32_t i = 0; i < m->experts; i++) {
		m->expert[i].first = m->slots;
		m->slots += m->expert[i].count;
		m->expert[i].count = 0;
	}
	for (uint32_t i = 0; i < pairs; i++) {
		struct m6_moe_expert *expert;

		if (choice[i] == M6_MOE_NOT_OURS)
			continue;
		expert = &m->expert[choice[i]];
		m->order[expert->first + expert->count++] = i;
	}
}

static void pack_source(struct m6_moe *m, struct m6_moe_format *f,
			uint32_t row)
{
	const float *src = m6_row(&m->src, m->first + row);
	bool finite;

	finite = m6_type_pack(f->gate, src,
			      f->packed_gate + row * f->gate_packed, m->hidden,
			      m->clean);
	finite &= m6_type_pack(f->up, src, f->packed_up + row * f->up_packed,
			       m->hidden, m->clean);
	f->row_state[row] = finite ? ROW_FINITE : ROW_BROKEN;
}

/* Rows that somebody wants, in the formats that they are wanted in. */
static void pack_sources(struct m6_moe *m)
{
	for (uint32_t i = 0; i < M6NPU_TYPE_COUNT; i++) {
		if (m->format[i].used)
			memset(m->format[i].row_state, ROW_UNPACKED, m->rows);
	}
	for (uint32_t i = 0; i < m->slots; i++) {
		uint32_t pair = m->order[i], row = pair / m->k;
		struct m6_moe_format *f =
			m->expert[pass_choices(m)[pair]].format;

		if (f->row_state[row] == ROW_UNPACKED)
			pack_source(m, f, row);
	}
}

static uint32_t chunks(uint32_t weight_rows)
{
	return (weight_rows + WEIGHT_ROWS - 1) / WEIGHT_ROWS;
}

static uint32_t chunk_end(uint32_t begin, uint32_t weight_rows)
{
	return weight_rows - begin < WEIGHT_ROWS ? weight_rows :
						   begin + WEIGHT_ROWS;
}

static float inner_value(const struct m6_moe *m,
			 const struct m6_moe_expert *expert, uint32_t row,
			 uint32_t i)
{
	const struct m6_moe_format *f = expert->format;
	float gate, up;

	if (f->row_state[row] == ROW_BROKEN)
		return NAN;
	gate = m6_type_dot(f->gate, expert->host + i * f->gate_row,
			   f->packed_gate + row * f->gate_packed, m->hidden);
	up = m6_type_dot(f->up, expert->host + f->up_at + i * f->up_row,
			 f->packed_up + row * f->up_packed, m->hidden);
	return m6_activate(m->act, gate) * up;
}

/* An item is one expert and some rows of its matrices. */
static void inner_item(void *arg, uint32_t item, unsigned int thread)
{
	const struct m6_moe *m = arg;
	const struct m6_moe_expert *expert = &m->expert[item / chunks(m->ffn)];
	uint32_t begin = item % chunks(m->ffn) * WEIGHT_ROWS;
	uint32_t end = expert->first + expert->count;

	(void)thread;
	for (uint32_t i = begin; i < chunk_end(begin, m->ffn); i++) {
		for (uint32_t slot = expert->first; slot < end; slot++)
			m->inner[(uint64_t)slot * m->ffn + i] =
				inner_value(m, expert,
					    m->order[slot] / m->k, i);
	}
}

static void pack_item(void *arg, uint32_t slot, unsigned int thread)
{
	const struct m6_moe *m = arg;
	const struct m6_moe_format *f =
		m->expert[pass_choices(m)[m->order[slot]]].format;

	m->valid_down[slot] =
		m6_type_pack(f->down, m->inner + (uint64_t)slot * m->ffn,
			     m->packed_down + slot * m->down_packed, m->ffn,
			     m->clean + thread * widest(m));
}

static float outer_value(const struct m6_moe *m,
			 const struct m6_moe_expert *expert, uint32_t slot,
			 uint32_t i)
{
	const struct m6_moe_format *f = expert->format;

	if (!m->valid_down[slot])
		return NAN;
	return m6_type_dot(f->down,
			   expert->host + f->down_at + i * f->down_row,
			   m->packed_down + slot * m->down_packed, m->ffn);
}

static void outer_item(void *arg, uint32_t item, unsigned int thread)
{
	const struct m6_moe *m = arg;
	const struct m6_moe_expert *expert =
		&m->expert[item / chunks(m->hidden)];
	uint32_t begin = item % chunks(m->hidden) * WEIGHT_ROWS;
	uint32_t end = expert->first + expert->count;

	(void)thread;
	for (uint32_t i = begin; i < chunk_end(begin, m->hidden); i++) {
		for (uint32_t slot = expert->first; slot < end; slot++)
			m->outer[(uint64_t)m->order[slot] * m->hidden + i] =
				outer_value(m, expert, slot, i);
	}
}

static void combine(const struct m6_moe *m)
{
	const struct m6_combine c = {
		.k = m->k,
		.hidden = m->hidden,
		.accumulate = m->accumulate,
	};

	for (uint32_t i = 0; i < m->rows; i++)
		m6_combine_row(&c, m6_row(&m->dst, m->first + i),
			       m->outer + (uint64_t)i * m->k * m->hidden,
			       m6_row(&m->weights, m->first + i));
}

static uint32_t run_pass(struct m6_moe *m)
{
	uint64_t macs;
	uint32_t code;

	order_pairs(m);
	pack_sources(m);
	macs = (uint64_t)m->slots * m->hidden * m->ffn;
	code = m6_parallel(m->run, m->experts * chunks(m->ffn), 2 * macs,
			   inner_item, m);
	if (!code)
		code = m6_parallel(m->run, m->slots,
				   (uint64_t)m->slots * m->ffn, pack_item, m);
	if (!code)
		code = m6_parallel(m->run, m->experts * chunks(m->hidden),
				   macs, outer_item, m);
	if (!code && !m->grouped)
		combine(m);
	return code;
}

uint32_t m6_moe_compute(struct m6_moe *m)
{
	uint32_t rows = m->run->rows, pass, code = 0;

	for (uint32_t i = 0; i < M6NPU_TYPE_COUNT; i++) {
		const struct m6_moe_format *f = &m->format[i];

		if (f->used && f->down_packed > m->down_packed)
			m->down_packed = f->down_packed;
	}
	pass = PASS_BYTES / row_cost(m);
	pass = pass ? pass : 1;
	pass = pass < rows ? pass : rows;
	if (!pass_scratch(m, pass))
		return M6_NO_MEMORY;
	for (m->first = 0; m->first < rows && !code; m->first += pass) {
		m->rows = rows - m->first < pass ? rows - m->first : pass;
		if (m->grouped)
			m->outer = m6_row(&m->dst, m->first * m->k);
		code = run_pass(m);
	}
	m6_scratch_trim(m->run->exec, M6_SCRATCH_BLOCK);
	return code;
}
