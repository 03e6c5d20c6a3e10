// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "board_priv.h"
#include "error.h"

#define RING_ENTRIES	4
/* More than a job posts before it waits, or ends. */
#define EXCEPTIONS	4096
#define JOB_TIMEOUT_MS	120000

static void write64(struct board *board, uint32_t reg, uint64_t value)
{
	m6_device_reg_write(board->dev, reg, value);
	m6_device_reg_write(board->dev, reg + 4, value >> 32);
}

static int take_tables(struct board *board)
{
	struct m6npu_as *table = board_ram(board, M6NPU_ADDRESS_SPACES *
					   sizeof(*table), BOARD_PAGE);

	board->pgd = board_ram(board, M6NPU_PT_SIZE, M6NPU_PT_SIZE);
	board->ring = board_ram(board, RING_ENTRIES * sizeof(*board->ring),
				BOARD_PAGE);
	board->regions = board_ram(board, M6NPU_REGIONS *
				   sizeof(*board->regions), 64);
	board->status = board_ram(board, sizeof(*board->status), 64);
	board->exceptions = board_ram(board, EXCEPTIONS *
				      sizeof(*board->exceptions), BOARD_PAGE);
	if (!table || !board->pgd || !board->ring || !board->regions ||
	    !board->status || !board->exceptions)
		return -ENOMEM;
	board->as = &table[BOARD_ASID];
	board->as->pgd = board_bus(board, board->pgd);
	board->as->valid = 1;
	write64(board, M6NPU_REG_AS_TABLE_LO, board_bus(board, table));
	return 0;
}

static void set_up_device(struct board *board)
{
	const struct board_options *o = &board->options;
	uint32_t block = M6NPU_RING_BLOCK(o->ring);

	m6_device_reg_write(board->dev, M6NPU_REG_EXC_SIZE, EXCEPTIONS);
	write64(board, M6NPU_REG_EXC_BASE_LO,
		board_bus(board, board->exceptions));
	m6_device_reg_write(board->dev, M6NPU_REG_ROUTER_POLICY,
			    o->router_policy);
	if (o->router_quota)
		m6_device_reg_write(board->dev, M6NPU_REG_ROUTER_QUOTA,
				    o->router_quota);
	write64(board, block + M6NPU_RING_BASE_LO,
		board_bus(board, board->ring));
	m6_device_reg_write(board->dev, block + M6NPU_RING_SIZE, RING_ENTRIES);
	m6_device_reg_write(board->dev, block + M6NPU_RING_CTRL,
			    M6NPU_RING_CTRL_ENABLE);
}

static int set_up(struct board *board)
{
	const struct board_options *o = &board->options;
	struct m6_profile profile;
	struct m6_device_config config = {
		.profile = o->profile ? o->profile : &profile,
		.dry = o->dry,
		.threads = o->threads,
	};
	int ret;

	m6_profile_default(&profile);
	board->dev = m6_device_create(&config);
	if (!board->dev)
		return npu_fail_memory();
	ret = board_memory_init(board);
	if (!ret)
		ret = take_tables(board);
	if (!ret)
		set_up_device(board);
	return ret;
}

int board_create(const struct board_options *options, struct board **result)
{
	struct board *board = calloc(1, sizeof(*board));
	int ret;

	if (!board)
		return npu_fail_memory();
	board->options = *options;
	ret = set_up(board);
	if (ret) {
		board_destroy(board);
		return ret;
	}
	*result = board;
	return 0;
}

void board_destroy(struct board *board)
{
	if (!board)
		return;
	m6_device_destroy(board->dev);
	board_memory_clear(board);
	free(board);
}

uint64_t board_now(struct board *board)
{
	uint64_t low = m6_device_reg_read(board->dev, M6NPU_REG_TIME_NS_LO);

	return low | (uint64_t)m6_device_reg_read(board->dev,
						  M6NPU_REG_TIME_NS_HI) << 32;
}

void board_advance(struct board *board, uint64_t ns)
{
	m6_device_advance(board->dev, ns);
}

/* True if the job waits. */
static bool serve_exceptions(struct board *board,
			     const struct board_host *host)
{
	const struct m6npu_exception *record;
	bool faulted = false;
	uint64_t seen;

	for (;;) {
		record = &board->exceptions[board->exceptions_seen %
					    EXCEPTIONS];
		seen = __atomic_load_n(&record->seq, __ATOMIC_ACQUIRE);
		if (seen != board->exceptions_seen + 1)
			break;
		board->exceptions_seen++;
		if (record->code == M6NPU_EXC_EXPERT_FAULT ||
		    record->code == M6NPU_EXC_EXPERT_HINT)
			host->posted(host->user, record);
		faulted |= record->code == M6NPU_EXC_EXPERT_FAULT;
		m6_device_reg_write(board->dev, M6NPU_REG_EXC_HEAD,
				    board->exceptions_seen);
	}
	return faulted;
}

static void submit(struct board *board, const struct board_job *job)
{
	uint32_t block = M6NPU_RING_BLOCK(board->options.ring);

	memcpy(board->regions, job->region, sizeof(job->region));
	memset(board->status, 0, sizeof(*board->status));
	board->ring[board->tail % RING_ENTRIES] = (struct m6npu_ring_entry){
		.asid = BOARD_ASID,
		.cmd_count = job->count,
		.cmd_addr = job->cmds,
		.region_addr = board_bus(board, board->regions),
		.step_addr = job->step,
		.status_addr = board_bus(board, board->status),
		.fence_value = board->tail + 1,
	};
	m6_device_reg_write(board->dev, block + M6NPU_RING_DOORBELL,
			    ++board->tail);
}

static bool is_done(const struct board *board)
{
	return __atomic_load_n(&board->status->fence, __ATOMIC_ACQUIRE) ==
	       board->tail;
}

/* Until the job ends. What @host returned, once it was not 0. */
static int attend(struct board *board, const struct board_host *host)
{
	uint32_t block = M6NPU_RING_BLOCK(board->options.ring);
	int ret = 0;

	for (;;) {
		if (!m6_device_wait_idle(board->dev, JOB_TIMEOUT_MS))
			return npu_fail(-ETIME,
					"the device did not end its job in %d s",
					JOB_TIMEOUT_MS / 1000);
		if (serve_exceptions(board, host) && !ret)
			ret = host->stalled(host->user);
		if (is_done(board))
			return ret;
		m6_device_reg_write(board->dev,
				    block + (ret ? M6NPU_RING_ABORT :
						   M6NPU_RING_RESUME),
				    ret ? board->tail : 1);
	}
}

int board_run(struct board *board, const struct board_job *job,
	      const struct board_host *host, struct m6npu_job_status *status)
{
	int ret;

	submit(board, job);
	ret = attend(board, host);
	*status = *board->status;
	if (!ret && status->code)
		return npu_fail(-EIO,
				"the device ended the job at command %u with exception %#x",
				status->cmd_index, status->code);
	return ret;
}
