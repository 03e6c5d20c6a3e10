// SPDX-License-Identifier: MIT
/*
 * Operands as host memory: one pointer where guest RAM allows it, else a
 * bounce buffer that is gathered before and scattered after the command.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "job_priv.h"
#include "log.h"

#define HOST_ALIGN	64

static uint32_t job_fault(struct m6_job *job, uint32_t code, uint64_t addr)
{
	job->fault_addr = addr;
	return code;
}

/* Room for one more element; -ENOMEM. */
static int grow(void *array, uint32_t count, uint32_t *room, size_t bytes)
{
	void **data = array;
	uint32_t more = *room ? *room * 2 : 16;
	void *bigger;

	if (count < *room)
		return 0;
	bigger = realloc(*data, more * bytes);
	if (!bigger)
		return -ENOMEM;
	*data = bigger;
	*room = more;
	return 0;
}

static int job_hold(struct m6_job *job, struct m6_mapping *map)
{
	if (grow(&job->hold, job->holds, &job->hold_room,
		 sizeof(struct m6_mapping *))) {
		m6_mapping_put(map);
		return -ENOMEM;
	}
	job->hold[job->holds++] = map;
	return 0;
}

/*
 * One host pointer for all pieces, if their mappings lie so; held until the
 * command ends. NULL: they don't, or are not there (the gather will tell).
 */
static void *map_direct(struct m6_job *job, const struct m6_pieces *pieces,
			uint32_t flags)
{
	uint8_t *start = NULL, *next = NULL;

	for (uint32_t i = 0; i < pieces->count; i++) {
		uint64_t bus = pieces->piece[i].bus;
		uint64_t left = pieces->piece[i].bytes;

		m6_memory_settle(&job->dev->mem, bus, left);
		while (left) {
			struct m6_mapping *map;
			uint8_t *host;
			uint64_t room;

			map = m6_memory_get(&job->dev->mem, bus, flags, &host,
					    &room);
			if (!map || job_hold(job, map))
				return NULL;
			if (start && host != next)
				return NULL;
			if (!start)
				start = host;
			if (room > left)
				room = left;
			next = host + room;
			bus += room;
			left -= room;
		}
	}
	return start;
}

/* An earlier operand of this command that holds all of the range. */
static struct m6_bounce *find_bounce(struct m6_job *job, uint64_t va,
				     uint64_t bytes)
{
	for (uint32_t i = 0; i < job->bounces; i++) {
		struct m6_bounce *bounce = &job->bounce[i];

		if (va >= bounce->va && bytes <= bounce->bytes &&
		    va - bounce->va <= bounce->bytes - bytes)
			return bounce;
	}
	return NULL;
}

static uint32_t gather(struct m6_job *job, const struct m6_pieces *pieces,
		       uint64_t va, uint8_t *to, bool write)
{
	struct m6_memory *mem = &job->dev->mem;

	for (uint32_t i = 0; i < pieces->count; i++) {
		const struct m6_piece *piece = &pieces->piece[i];

		if (m6_memory_read(mem, piece->bus, to, piece->bytes) ||
		    (write && !m6_memory_check(mem, piece->bus, piece->bytes,
					       M6_MAPPING_WRITE)))
			return job_fault(job, M6NPU_EXC_DMA_ERROR, va);
		to += piece->bytes;
		va += piece->bytes;
	}
	return 0;
}

/* A table may map a page many times, and a command name many experts. */
static uint64_t bounce_room(const struct m6_job *job)
{
	uint64_t room = M6_BOUNCE_MAX;

	for (uint32_t i = 0; i < job->bounces; i++)
		room -= job->bounce[i].bytes;
	return room;
}

/* Takes @pieces over when it succeeds. */
static uint32_t map_bounce(struct m6_job *job, uint64_t va, uint64_t bytes,
			   bool write, struct m6_pieces *pieces,
			   struct m6_span *span)
{
	uint64_t room = (bytes + HOST_ALIGN - 1) & ~(HOST_ALIGN - 1ull);
	uint8_t *host = NULL;
	uint32_t code;

	if (bytes <= bounce_room(job) &&
	    !grow(&job->bounce, job->bounces, &job->bounce_room,
		  sizeof(struct m6_bounce)))
		host = aligned_alloc(HOST_ALIGN, room);
	if (!host) {
		m6_guest_error("ring %u: %llu scattered bytes at %#llx are too many",
			       job->ring->index, (unsigned long long)bytes,
			       (unsigned long long)va);
		return job_fault(job, M6NPU_EXC_DMA_ERROR, va);
	}
	code = gather(job, pieces, va, host, write);
	if (code) {
		free(host);
		return code;
	}
	job->bounce[job->bounces++] = (struct m6_bounce) {
		.va = va, .bytes = bytes, .write = write, .host = host,
		.pieces = *pieces,
	};
	memset(pieces, 0, sizeof(*pieces));
	span->host = host;
	return 0;
}

/* Reading and writing are two permissions; a bounced write needs both. */
static uint32_t translate(struct m6_job *job, uint64_t va, uint64_t bytes,
			  bool write, struct m6_pieces *pieces)
{
	return m6_mmu_translate(&job->dev->mmu, job->ring->index,
				job->entry.asid, va, bytes, write, pieces,
				&job->charge.tlb_walks, &job->fault_addr);
}

uint32_t m6_job_map_va(struct m6_job *job, uint64_t va, uint64_t bytes,
		       bool write, struct m6_span *span)
{
	struct m6_pieces pieces = { 0 };
	struct m6_bounce *bounce;
	uint32_t code;

	*span = (struct m6_span) { NULL, bytes };
	if (!bytes)
		return 0;
	if (bytes > M6_SPAN_MAX)
		return job_fault(job, M6NPU_EXC_DMA_ERROR, va);
	code = translate(job, va, bytes, write, &pieces);
	bounce = code ? NULL : find_bounce(job, va, bytes);
	if (bounce && write && !bounce->write) {
		/* It was only read so far: may it be written all over? */
		struct m6_pieces again = { 0 };

		code = translate(job, bounce->va, bounce->bytes, true, &again);
		m6_pieces_free(&again);
		bounce->write = !code;
		if (code) {
			code = 0;
			bounce = NULL;
		}
	}
	if (bounce)
		span->host = bounce->host + (va - bounce->va);
	else if (!code)
		span->host = map_direct(job, &pieces, write ?
					M6_MAPPING_READ | M6_MAPPING_WRITE :
					M6_MAPPING_READ);
	if (!code && !span->host)
		code = map_bounce(job, va, bytes, write, &pieces, span);
	m6_pieces_free(&pieces);
	return code;
}

uint32_t m6_job_map(struct m6_job *job, uint64_t operand, uint64_t bytes,
		    bool write, struct m6_span *span)
{
	const uint64_t region = operand >> M6NPU_OPERAND_REGION_SHIFT;
	const uint64_t offset = operand &
				((1ull << M6NPU_OPERAND_REGION_SHIFT) - 1);
	const struct m6npu_region *r;

	*span = (struct m6_span) { NULL, bytes };
	job->fault_addr = 0;
	if (region >= M6NPU_REGIONS || offset > M6NPU_OPERAND_OFFSET_MASK ||
	    offset % 4)
		return M6NPU_EXC_ILLEGAL_COMMAND;
	r = &job->region[region];
	if (offset > r->size || bytes > r->size - offset)
		return job_fault(job, M6NPU_EXC_BOUNDS, r->addr + offset);
	return m6_job_map_va(job, r->addr + offset, bytes, write, span);
}

uint32_t m6_job_map_address(struct m6_job *job, uint64_t addr, uint64_t bytes,
			    struct m6_span *span)
{
	return m6_job_map_va(job, addr, bytes, false, span);
}

uint64_t m6_job_operand_room(const struct m6_job *job, uint64_t operand)
{
	const uint64_t region = operand >> M6NPU_OPERAND_REGION_SHIFT;
	const uint64_t offset = operand &
				((1ull << M6NPU_OPERAND_REGION_SHIFT) - 1);

	if (region >= M6NPU_REGIONS || offset > job->region[region].size)
		return 0;
	return job->region[region].size - offset;
}

uint32_t m6_job_copy_in(struct m6_job *job, uint64_t va, void *to,
			uint64_t bytes)
{
	struct m6_pieces pieces = { 0 };
	uint32_t code;

	code = translate(job, va, bytes, false, &pieces);
	if (!code)
		code = gather(job, &pieces, va, to, false);
	m6_pieces_free(&pieces);
	return code;
}

static uint32_t scatter(struct m6_job *job, const struct m6_bounce *bounce)
{
	const uint8_t *from = bounce->host;
	uint64_t va = bounce->va;

	for (uint32_t i = 0; i < bounce->pieces.count; i++) {
		const struct m6_piece *piece = &bounce->pieces.piece[i];

		if (m6_memory_write(&job->dev->mem, piece->bus, from,
				    piece->bytes))
			return job_fault(job, M6NPU_EXC_DMA_ERROR, va);
		from += piece->bytes;
		va += piece->bytes;
	}
	return 0;
}

uint32_t m6_job_release(struct m6_job *job, bool store)
{
	uint32_t code = 0;

	for (uint32_t i = 0; i < job->bounces; i++) {
		struct m6_bounce *bounce = &job->bounce[i];

		if (store && bounce->write && !code)
			code = scatter(job, bounce);
		m6_pieces_free(&bounce->pieces);
		free(bounce->host);
	}
	job->bounces = 0;
	/* What was written directly, wherever that was. */
	if (job->holds)
		m6_memory_settle(&job->dev->mem, 0, UINT64_MAX);
	while (job->holds)
		m6_mapping_put(job->hold[--job->holds]);
	return code;
}
