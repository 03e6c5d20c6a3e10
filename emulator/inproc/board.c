// SPDX-License-Identifier: MIT
#include "board.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "device.h"

#define RAM_BUS		0x80000000ull
#define RAM_BYTES	(1ull << 30)
#define PAGE		(1ull << M6NPU_PAGE_SHIFT)
#define VA_START	0x10000000ull
#define ASID		5
#define RING_ENTRIES	4
#define EXCEPTIONS	64
#define JOB_TIMEOUT_S	120

struct board {
	struct m6_device *dev;
	struct board_options options;
	uint8_t *ram;
	uint64_t used;		/* of ram */
	uint64_t next_va;
	void **copies;		/* hosts' views of scattered memory */
	unsigned int copy_count;

	uint64_t *pgd;
	struct m6npu_as *as;
	struct m6npu_expert *experts;
	uint32_t experts_per_layer;
	struct m6npu_ring_entry *ring;
	struct m6npu_region *regions;
	struct m6npu_job_status *status;
	struct m6npu_exception *exceptions;
	uint64_t exceptions_seen;
	uint32_t tail;

	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool raised;		/* some vector, since last looked */
};

static void on_irq(void *opaque, unsigned int vector)
{
	struct board *board = opaque;

	pthread_mutex_lock(&board->lock);
	board->raised = true;
	pthread_cond_signal(&board->wake);
	pthread_mutex_unlock(&board->lock);
}

static void die(const char *what)
{
	printf("Bail out! %s\n", what);
	exit(1);
}

static void *ram_take(struct board *board, uint64_t bytes, uint64_t align)
{
	uint64_t offset = (board->used + align - 1) / align * align;

	if (bytes > RAM_BYTES - offset)
		die("the board's memory is used up");
	board->used = offset + bytes;
	return board->ram + offset;
}

static uint64_t bus(const struct board *board, const void *host)
{
	return RAM_BUS + (uint64_t)((const uint8_t *)host - board->ram);
}

static void *from_bus(const struct board *board, uint64_t addr)
{
	return board->ram + (addr - RAM_BUS);
}

static void write64(struct board *board, uint32_t reg, uint64_t value)
{
	m6_device_reg_write(board->dev, reg, value);
	m6_device_reg_write(board->dev, reg + 4, value >> 32);
}

static void set_up_device(struct board *board)
{
	uint32_t block = M6NPU_RING_BLOCK(board->options.ring);
	struct m6npu_as *table = ram_take(board, M6NPU_ADDRESS_SPACES *
					  sizeof(*table), PAGE);

	board->pgd = ram_take(board, M6NPU_PT_SIZE, M6NPU_PT_SIZE);
	board->as = &table[ASID];
	board->as->pgd = bus(board, board->pgd);
	board->as->valid = 1;
	board->ring = ram_take(board, RING_ENTRIES * sizeof(*board->ring),
			       PAGE);
	board->regions = ram_take(board, M6NPU_REGIONS *
				  sizeof(*board->regions), 64);
	board->status = ram_take(board, sizeof(*board->status), 64);
	board->exceptions = ram_take(board, EXCEPTIONS *
				     sizeof(*board->exceptions), PAGE);
	write64(board, M6NPU_REG_AS_TABLE_LO, bus(board, table));
	m6_device_reg_write(board->dev, M6NPU_REG_EXC_SIZE, EXCEPTIONS);
	write64(board, M6NPU_REG_EXC_BASE_LO, bus(board, board->exceptions));
	m6_device_reg_write(board->dev, M6NPU_REG_ROUTER_POLICY,
			    board->options.router_policy);
	write64(board, block + M6NPU_RING_BASE_LO, bus(board, board->ring));
	m6_device_reg_write(board->dev, block + M6NPU_RING_SIZE, RING_ENTRIES);
	m6_device_reg_write(board->dev, block + M6NPU_RING_CTRL,
			    M6NPU_RING_CTRL_ENABLE);
}

struct board *board_create(const struct board_options *options)
{
	struct board *board = calloc(1, sizeof(*board));
	struct m6_profile profile;
	struct m6_device_config config = {
		.profile = &profile,
		.threads = options->threads,
		.irq = on_irq,
		.irq_opaque = board,
	};

	if (!board)
		return NULL;
	board->options = *options;
	board->next_va = VA_START;
	pthread_mutex_init(&board->lock, NULL);
	pthread_cond_init(&board->wake, NULL);
	board->ram = mmap(NULL, RAM_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	m6_profile_default(&profile);
	board->dev = m6_device_create(&config);
	if (board->ram == MAP_FAILED || !board->dev ||
	    m6_device_dma_map(board->dev, RAM_BUS, RAM_BYTES, board->ram,
			      M6_DMA_READ | M6_DMA_WRITE, NULL, NULL))
		die("no device");
	set_up_device(board);
	return board;
}

void board_destroy(struct board *board)
{
	if (!board)
		return;
	while (board->copy_count)
		free(board->copies[--board->copy_count]);
	free(board->copies);
	m6_device_destroy(board->dev);
	munmap(board->ram, RAM_BYTES);
	pthread_cond_destroy(&board->wake);
	pthread_mutex_destroy(&board->lock);
	free(board);
}

static uint64_t *page_entry(struct board *board, uint64_t va)
{
	uint64_t *first = &board->pgd[va >> M6NPU_LARGE_PAGE_SHIFT];
	uint64_t *second;

	if (!*first) {
		second = ram_take(board, M6NPU_PT_SIZE, M6NPU_PT_SIZE);
		*first = bus(board, second) | M6NPU_PTE_VALID;
	}
	second = from_bus(board, *first & M6NPU_PTE_ADDR_MASK);
	return &second[va >> M6NPU_PAGE_SHIFT & (M6NPU_PT_ENTRIES - 1)];
}

static void map_pages(struct board *board, uint64_t va, uint8_t *ram,
		      uint64_t pages, uint64_t stride, bool writable)
{
	uint64_t flags = M6NPU_PTE_VALID | M6NPU_PTE_READ |
			 (writable ? M6NPU_PTE_WRITE : 0);
	uint64_t i;

	for (i = 0; i < pages; i++)
		*page_entry(board, va + i * PAGE) =
			bus(board, ram + i * stride) | flags;
}

static uint8_t *take_copy(struct board *board, uint64_t pages)
{
	void **copies = reallocarray(board->copies, board->copy_count + 1,
				     sizeof(*copies));
	void *copy = calloc(pages, PAGE);

	if (!copies || !copy)
		die("out of memory");
	board->copies = copies;
	board->copies[board->copy_count++] = copy;
	return copy;
}

struct board_memory board_alloc(struct board *board, uint64_t bytes,
				bool writable)
{
	uint64_t pages = (bytes + PAGE - 1) / PAGE;
	uint64_t stride = board->options.scatter ? 2 * PAGE : PAGE;
	struct board_memory memory = { .addr = board->next_va, .bytes = bytes };
	uint8_t *ram = ram_take(board, pages * stride, PAGE);

	map_pages(board, memory.addr, ram, pages, stride, writable);
	/* A page that nobody mapped between any two. */
	board->next_va += (pages + 1) * PAGE;
	memory.host = board->options.scatter ? take_copy(board, pages) : ram;
	return memory;
}

/* Copies between a scattered run's own copy and its pages. */
static void copy_pages(struct board *board, const struct board_memory *memory,
		       uint64_t offset, uint64_t bytes, bool out)
{
	uint64_t part;
	uint8_t *page;

	if (!board->options.scatter)
		return;
	for (; bytes; offset += part, bytes -= part) {
		page = from_bus(board, *page_entry(board, memory->addr +
						   offset) &
				M6NPU_PTE_ADDR_MASK);
		part = PAGE - offset % PAGE;
		if (part > bytes)
			part = bytes;
		if (out)
			memcpy(page + offset % PAGE, memory->host + offset,
			       part);
		else
			memcpy(memory->host + offset, page + offset % PAGE,
			       part);
	}
}

void board_push(struct board *board, const struct board_memory *memory,
		uint64_t offset, uint64_t bytes)
{
	copy_pages(board, memory, offset, bytes, true);
}

void board_pull(struct board *board, const struct board_memory *memory,
		uint64_t offset, uint64_t bytes)
{
	copy_pages(board, memory, offset, bytes, false);
}

void board_invalidate(struct board *board)
{
	m6_device_reg_write(board->dev, M6NPU_REG_AS_INVALIDATE, ASID);
}

void board_expert_table(struct board *board, uint32_t layers,
			uint32_t experts)
{
	board->experts = ram_take(board, (uint64_t)layers * experts *
				  sizeof(*board->experts), 64);
	board->experts_per_layer = experts;
	board->as->expert_table = bus(board, board->experts);
	board->as->expert_layers = layers;
	board->as->experts_per_layer = experts;
	board_invalidate(board);
}

void board_expert_set(struct board *board, uint32_t layer, uint32_t expert,
		      uint64_t addr, uint32_t bytes, uint8_t state)
{
	struct m6npu_expert *entry;

	entry = &board->experts[layer * board->experts_per_layer + expert];
	entry->addr = addr;
	entry->size = bytes;
	entry->flags = state;
}

static void serve_fault(const struct m6npu_exception *record,
			board_fault_fn fault, void *user)
{
	uint32_t i;

	for (i = 0; i < 64; i++)
		if (record->mask >> i & 1)
			fault(user, record->layer, record->expert_base + i);
}

/* True if an expert fault was among the new records. */
static bool serve_exceptions(struct board *board, board_fault_fn fault,
			     void *user)
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
		if (record->code == M6NPU_EXC_EXPERT_FAULT && fault) {
			serve_fault(record, fault, user);
			faulted = true;
		}
		m6_device_reg_write(board->dev, M6NPU_REG_EXC_HEAD,
				    board->exceptions_seen);
	}
	return faulted;
}

static void wait_for_irq(struct board *board)
{
	struct timespec end;
	int err = 0;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += JOB_TIMEOUT_S;
	pthread_mutex_lock(&board->lock);
	while (!board->raised && !err)
		err = pthread_cond_timedwait(&board->wake, &board->lock, &end);
	board->raised = false;
	pthread_mutex_unlock(&board->lock);
	if (err)
		die("the device raised no interrupt");
}

struct m6npu_job_status board_run(struct board *board,
				  const struct board_job *job,
				  board_fault_fn fault, void *user)
{
	uint32_t block = M6NPU_RING_BLOCK(board->options.ring);
	struct m6npu_ring_entry *entry;

	entry = &board->ring[board->tail % RING_ENTRIES];
	memcpy(board->regions, job->region, sizeof(job->region));
	memset(board->status, 0, sizeof(*board->status));
	*entry = (struct m6npu_ring_entry){
		.asid = ASID,
		.cmd_count = job->count,
		.cmd_addr = job->cmds,
		.region_addr = bus(board, board->regions),
		.step_addr = job->step,
		.status_addr = bus(board, board->status),
		.fence_value = ++board->tail,
	};
	m6_device_reg_write(board->dev, block + M6NPU_RING_DOORBELL,
			    board->tail);
	while (__atomic_load_n(&board->status->fence, __ATOMIC_ACQUIRE) !=
	       board->tail) {
		wait_for_irq(board);
		if (serve_exceptions(board, fault, user))
			m6_device_reg_write(board->dev,
					    block + M6NPU_RING_RESUME, 1);
	}
	return *board->status;
}
