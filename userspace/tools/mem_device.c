// SPDX-License-Identifier: MIT
#include "mem_device.h"

#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <m6npu_regs.h>

/* Regions of every job. */
enum { PIECE, RESULTS, COPY, REGIONS };

/* In the list for one size: FILL and COMPARE by each pattern, then COPY. */
#define FILL_AT(pattern)	(2 * (pattern))
#define COMPARE_AT(pattern)	(2 * (pattern) + 1)
#define COPY_AT			(2 * MEM_PATTERNS)
#define LIST_COMMANDS		(COPY_AT + 1)

static unsigned int size_count(void)
{
	return __builtin_ctz(MEM_PIECE / MEM_PIECE_MIN) + 1;
}

static uint64_t lists_bytes(void)
{
	return size_count() * LIST_COMMANDS * sizeof(struct m6npu_cmd);
}

static uint64_t results_bytes(void)
{
	return MEM_PATTERNS * sizeof(struct m6npu_compare_result);
}

static uint64_t whole_pages(uint64_t bytes)
{
	return (bytes + MEM_PIECE_MIN - 1) / MEM_PIECE_MIN * MEM_PIECE_MIN;
}

uint64_t mem_device_bytes(void)
{
	return whole_pages(lists_bytes()) + whole_pages(results_bytes()) +
	       MEM_PIECE;
}

/* ---- Command lists ---- */

static struct m6npu_cmd command(uint8_t opcode, uint64_t operand0,
				uint64_t operand1, uint64_t bytes,
				uint32_t pattern)
{
	return (struct m6npu_cmd){
		.opcode = opcode,
		.operand = { htole64(operand0), htole64(operand1),
			     htole64(M6NPU_OPERAND_NONE),
			     htole64(M6NPU_OPERAND_NONE) },
		.args.mem = { .bytes = htole64(bytes),
			      .pattern = htole32(pattern) },
	};
}

static uint64_t result_offset(unsigned int pattern)
{
	return pattern * sizeof(struct m6npu_compare_result);
}

static void write_list(const struct mem_device *md, struct m6npu_cmd *list,
		       uint64_t bytes)
{
	unsigned int i;

	for (i = 0; i < MEM_PATTERNS; i++) {
		list[FILL_AT(i)] = command(
			M6NPU_OP_FILL, M6NPU_OPERAND(PIECE, 0),
			M6NPU_OPERAND_NONE, bytes, md->pattern[i]);
		list[COMPARE_AT(i)] = command(
			M6NPU_OP_COMPARE, M6NPU_OPERAND(PIECE, 0),
			M6NPU_OPERAND(RESULTS, result_offset(i)), bytes,
			md->pattern[i]);
	}
	list[COPY_AT] = command(M6NPU_OP_COPY, M6NPU_OPERAND(COPY, 0),
				M6NPU_OPERAND(PIECE, 0), bytes, 0);
}

static int write_lists(struct mem_device *md)
{
	struct m6npu_cmd *lists = npu_buffer_map(md->lists);
	unsigned int i;
	int ret;

	if (!lists)
		return -ENOMEM;
	for (i = 0; i < size_count(); i++)
		write_list(md, lists + i * LIST_COMMANDS, MEM_PIECE_MIN << i);
	ret = npu_buffer_sync_to_device(md->lists, 0, lists_bytes());
	return ret ? ret : npu_buffer_seal(md->lists);
}

static void set_patterns(struct mem_device *md, uint32_t pattern)
{
	unsigned int i;

	md->pattern[MEM_BASE] = pattern;
	md->pattern[MEM_INVERSE] = ~pattern;
	for (i = 0; i < MEM_WALK_STEPS; i++) {
		md->pattern[MEM_WALKING_ONES + i] = 1u << i;
		md->pattern[MEM_WALKING_ZEROS + i] = ~(1u << i);
	}
}

int mem_device_init(struct mem_device *md, struct mem_area *area,
		    uint32_t pattern)
{
	int ret;

	*md = (struct mem_device){ .device = area->device };
	set_patterns(md, pattern);
	ret = mem_area_buffer(area, lists_bytes(), &md->lists);
	if (!ret)
		ret = mem_area_buffer(area, results_bytes(), &md->results);
	if (!ret)
		ret = mem_area_buffer(area, MEM_PIECE, &md->copy);
	if (!ret && (!npu_buffer_map(md->results) || !npu_buffer_map(md->copy)))
		ret = -ENOMEM;
	return ret ? ret : write_lists(md);
}

/* ---- Jobs ---- */

static int run(struct mem_device *md, const struct mem_piece *piece,
	       unsigned int first, unsigned int count)
{
	const struct npu_job_region regions[REGIONS] = {
		[PIECE] = { piece->addr, piece->size },
		[RESULTS] = { npu_buffer_addr(md->results),
			      npu_buffer_size(md->results) },
		[COPY] = { npu_buffer_addr(md->copy), MEM_PIECE },
	};
	unsigned int list = __builtin_ctz(piece->size / MEM_PIECE_MIN);
	const struct npu_job job = {
		.commands = md->lists,
		.offset = (list * LIST_COMMANDS + first) *
			  sizeof(struct m6npu_cmd),
		.count = count,
		.flags = NPU_JOB_DMA_ENGINE,
		.regions = regions,
		.region_count = REGIONS,
	};

	return npu_job_run(md->device, &job, NULL);
}

static int read_findings(struct mem_device *md, const struct mem_piece *piece,
			 unsigned int first, unsigned int count,
			 struct mem_finding *findings)
{
	const struct m6npu_compare_result *result = npu_buffer_map(md->results);
	unsigned int i;
	int ret;

	ret = npu_buffer_sync_from_device(md->results, result_offset(first),
					  result_offset(count));
	result += first;
	for (i = 0; i < count && !ret; i++)
		findings[i] = (struct mem_finding){
			.mismatches = le64toh(result[i].mismatches),
			.addr = piece->addr + le64toh(result[i].first_offset),
			.found = le32toh(result[i].found),
		};
	return ret;
}

int mem_device_fill(struct mem_device *md, const struct mem_piece *piece,
		    unsigned int pattern)
{
	return run(md, piece, FILL_AT(pattern), 1);
}

int mem_device_compare(struct mem_device *md, const struct mem_piece *piece,
		       unsigned int pattern, struct mem_finding *finding)
{
	int ret = run(md, piece, COMPARE_AT(pattern), 1);

	return ret ? ret : read_findings(md, piece, pattern, 1, finding);
}

int mem_device_walk(struct mem_device *md, const struct mem_piece *piece,
		    unsigned int first, struct mem_finding *findings)
{
	int ret = run(md, piece, FILL_AT(first), 2 * MEM_WALK_STEPS);

	return ret ? ret : read_findings(md, piece, first, MEM_WALK_STEPS,
					 findings);
}

int mem_device_copy(struct mem_device *md, const struct mem_piece *piece,
		    const uint32_t **copy, uint64_t *addr)
{
	int ret = run(md, piece, COPY_AT, 1);

	*copy = npu_buffer_map(md->copy);
	*addr = npu_buffer_addr(md->copy);
	return ret ? ret :
		     npu_buffer_sync_from_device(md->copy, 0, piece->size);
}
