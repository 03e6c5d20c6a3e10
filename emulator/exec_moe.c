// SPDX-License-Identifier: MIT
/*
 * MOE_FFN: what it works on, and what it costs.
 *
 * The two orders, token by token and expert by expert, differ in their price
 * and in what they do with the result of a (row, choice) pair. A pair is
 * computed in the same way in both, so they agree to the bit.
 */
#include <string.h>

#include "exec_moe.h"

static uint64_t expert_align(uint64_t bytes)
{
	return (bytes + M6NPU_EXPERT_ALIGN - 1) &
	       ~(uint64_t)(M6NPU_EXPERT_ALIGN - 1);
}

/* Sizes, or false if the dimensions don't suit the types. */
static bool lay_out(const struct m6_moe *m, struct m6_moe_format *f,
		    const uint8_t type[3])
{
	f->gate = m6_type(type[0]);
	f->up = m6_type(type[1]);
	f->down = m6_type(type[2]);
	if (!f->gate || !f->up || !f->down ||
	    m->hidden % m6_type_block(f->gate) ||
	    m->hidden % m6_type_block(f->up) ||
	    m->ffn % m6_type_block(f->down))
		return false;
	f->gate_row = m6_type_bytes(f->gate, m->hidden);
	f->up_row = m6_type_bytes(f->up, m->hidden);
	f->down_row = m6_type_bytes(f->down, m->ffn);
	f->up_at = expert_align(m->ffn * f->gate_row);
	f->down_at = expert_align(f->up_at + m->ffn * f->up_row);
	f->bytes = f->down_at + m->hidden * f->down_row;
	f->gate_packed = m6_type_packed_bytes(f->gate, m->hidden);
	f->up_packed = m6_type_packed_bytes(f->up, m->hidden);
	f->down_packed = m6_type_packed_bytes(f->down, m->ffn);
	return true;
}

/* Not priced: it depends on the ids how much of it is read or written. */
static uint32_t map_rows(struct m6_moe *m, unsigned int operand, uint32_t rows,
			 bool write, struct m6_mat *mat)
{
	void *host;
	uint32_t code;

	code = m6_map_at(m->run, operand, 0,
			 (uint64_t)rows * m->hidden * sizeof(float), write,
			 &host);
	*mat = (struct m6_mat){ host, m->hidden, rows, m->hidden };
	return code;
}

/* Reads the members, once, like the ids below. */
static uint32_t read_members(struct m6_moe *m)
{
	uint32_t count = le16toh(m->run->cmd->args.moe.members);
	uint64_t bytes = count * sizeof(__le32);
	const volatile __le32 *id;
	void *host;
	uint32_t code;

	code = m6_map(m->run, 3, bytes, false, &host);
	if (code)
		return code;
	if (m6_mat_overlaps(&m->dst, host, bytes))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	id = host;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t expert = le32toh(id[i]);

		if (expert >= m->limit || m->member[expert])
			return M6NPU_EXC_ILLEGAL_COMMAND;
		m->member[expert] = true;
	}
	return 0;
}

static uint32_t map_weights(struct m6_moe *m)
{
	uint32_t code;

	memset(m->member, true, sizeof(m->member));
	code = m6_map_mat(m->run, 3, m->run->rows, m->k, m->k, false,
			  &m->weights);
	if (!code && m6_mat_overlap(&m->dst, &m->weights))
		code = M6NPU_EXC_ILLEGAL_COMMAND;
	return code;
}

static uint32_t map_operands(struct m6_moe *m)
{
	struct m6_run *run = m->run;
	uint32_t code;

	code = map_rows(m, 1, run->rows, false, &m->src);
	if (!code)
		code = m6_map_mat(run, 2, run->rows, m->k, m->k, false,
				  &m->ids);
	if (!code)
		code = map_rows(m, 0, m->grouped ? run->rows * m->k :
						   run->rows, true, &m->dst);
	if (code)
		return code;
	if (m6_mat_overlap(&m->dst, &m->src) ||
	    m6_mat_overlap(&m->dst, &m->ids))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	if (!run->rows)
		return 0;
	return m->grouped ? read_members(m) : map_weights(m);
}

/* Reads the ids, once: the guest can't change them after the check. */
static uint32_t collect_experts(struct m6_moe *m)
{
	const volatile __le32 *ids = (const __le32 *)m->ids.data;
	uint32_t pairs = m->run->rows * m->k;
	uint16_t index[M6_MAX_EXPERTS];

	m->choice = m6_scratch(m->run->exec, M6_SCRATCH_VIEWS,
			       pairs * sizeof(*m->choice));
	if (!m->choice)
		return M6_NO_MEMORY;
	memset(index, 0xff, sizeof(index));
	for (uint32_t i = 0; i < pairs; i++) {
		uint32_t id = le32toh(ids[i]);

		if (id >= m->limit)
			return M6NPU_EXC_ILLEGAL_COMMAND;
		if (m->member[id] && index[id] == M6_MOE_NOT_OURS) {
			index[id] = m->experts;
			m->id[m->experts++] = id;
		}
		m->choice[i] = index[id];
		if (m->member[id])
			m->expert[index[id]].pairs++;
	}
	return 0;
}

static struct m6_moe_format *find_format(struct m6_moe *m, uint8_t type)
{
	const uint8_t all[3] = { type, type, type };
	struct m6_moe_format *format;

	if (type >= M6NPU_TYPE_COUNT)
		return NULL;
	format = &m->format[type];
	return format->gate || lay_out(m, format, all) ? format : NULL;
}

static uint32_t map_expert(struct m6_moe *m, const struct m6npu_expert *entry,
			   struct m6_moe_expert *expert)
{
	struct m6_moe_format *format = find_format(m, entry->type);
	struct m6_span span;
	uint32_t code;

	if (!format || entry->addr % 4)
		return M6NPU_EXC_ILLEGAL_COMMAND;
	if (entry->size < format->bytes)
		return M6NPU_EXC_BOUNDS;
	code = m6_job_map_address(m->run->job, entry->addr, format->bytes,
				  &span);
	if (code)
		return code;
	if (m6_mat_overlaps(&m->dst, span.host, format->bytes))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	format->used = true;
	expert->format = format;
	expert->host = span.host;
	return 0;
}

static uint32_t find_experts(struct m6_moe *m)
{
	struct m6npu_expert entries[M6_MAX_EXPERTS];
	uint32_t code;

	if (!m->experts)
		return 0;
	code = m6_job_experts(m->run->job, le16toh(m->run->cmd->layer), m->id,
			      m->experts, entries);
	for (uint32_t i = 0; i < m->experts && !code; i++)
		code = map_expert(m, &entries[i], &m->expert[i]);
	return code;
}

/*
 * The weights are read for every pass over them, and a pass computes as many
 * rows as there is room for.
 */
static void price_expert(struct m6_moe *m, uint32_t index)
{
	const struct m6_moe_expert *expert = &m->expert[index];
	const struct m6_moe_format *f = expert->format;
	uint64_t passes = (expert->pairs + m->capacity - 1) / m->capacity;
	uint64_t macs = (uint64_t)m->hidden * m->ffn * passes * m->capacity;
	struct m6_cost *cost = m->run->cost;

	if (m6_job_expert_in_sram(m->run->job, le16toh(m->run->cmd->layer),
				  m->id[index]))
		cost->sram_bytes += passes * f->bytes;
	else
		cost->dram_bytes += passes * f->bytes;
	m6_type_charge(m->run, f->gate, macs);
	m6_type_charge(m->run, f->up, macs);
	m6_type_charge(m->run, f->down, macs);
}

/* Rows of the source and the destination; by expert, those of its pairs. */
static void price_rows(struct m6_moe *m)
{
	uint64_t rows = m->run->rows, times = m->accumulate ? 3 : 2;

	if (m->grouped) {
		rows = 0;
		for (uint32_t i = 0; i < m->experts; i++)
			rows += m->expert[i].pairs;
	}
	m->run->cost->dram_bytes += rows * m->hidden * sizeof(float) * times;
}

static uint32_t run_moe(struct m6_moe *m)
{
	uint32_t code;

	code = map_operands(m);
	if (code || !m->run->rows)
		return code;
	code = collect_experts(m);
	if (!code)
		code = find_experts(m);
	if (code)
		return code;
	price_rows(m);
	for (uint32_t i = 0; i < m->experts; i++)
		price_expert(m, i);
	return m->run->dry || !m->experts ? 0 : m6_moe_compute(m);
}

static bool order_valid(const struct m6_moe *m)
{
	uint32_t capacity = le16toh(m->run->cmd->args.moe.capacity);
	uint32_t members = le16toh(m->run->cmd->args.moe.members);

	if (!m->grouped)
		return !capacity && !members;
	return capacity && m6_dim(members, M6_MAX_EXPERTS) && !m->accumulate;
}

uint32_t m6_op_moe(struct m6_run *run)
{
	const typeof(run->cmd->args.moe) *a = &run->cmd->args.moe;
	struct m6_moe m = {
		.run = run,
		.k = le16toh(a->k),
		.hidden = le32toh(a->hidden),
		.ffn = le32toh(a->ffn),
		.act = le32toh(a->act),
		.grouped = run->cmd->flags & M6NPU_CMD_GROUPED,
		.accumulate = run->cmd->flags & M6NPU_CMD_ACCUMULATE,
		.limit = le16toh(a->experts),
	};

	m.capacity = m.grouped ? le16toh(a->capacity) : 1;
	if (!m6_dim(m.limit, M6_MAX_EXPERTS) || !m6_dim(m.k, M6_MAX_ROUTED) ||
	    m.k > m.limit || m.act > M6NPU_ACT_GELU ||
	    !m6_dim(m.hidden, M6_MAX_EXPERT_DIM) ||
	    !m6_dim(m.ffn, M6_MAX_EXPERT_DIM) || !order_valid(&m) ||
	    !lay_out(&m, &m.format[0], run->cmd->type + 1))
		return M6NPU_EXC_ILLEGAL_COMMAND;
	return run_moe(&m);
}
