// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nonsense from userspace: random arguments, random commands, structures of
 * every size. None of it may hurt the kernel, leave anything behind, or touch
 * what another context computes meanwhile.
 */
#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "board.h"
#include "checker.h"
#include "kselftest_harness.h"

FIXTURE(garbage)
{
	int fd;
	struct witness witness;
};

FIXTURE_SETUP(garbage)
{
	self->fd = board_open();
	if (self->fd < 0)
		SKIP(return, "no M6 NPU");
	ASSERT_TRUE(witness_begin(&self->witness));
}

FIXTURE_TEARDOWN(garbage)
{
	if (self->fd < 0)
		return;
	close(self->fd);
	EXPECT_TRUE(witness_end(&self->witness));
}

static void drop_capabilities(void)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct data[2] = { 0 };

	syscall(SYS_capset, &head, data);
}

/* ---- Arguments ---- */

enum kind {
	ANY,
	PAD,
	FLAGS,
	HANDLE,
	POOL,
	SIZE,
	ADDR,
	SMALL,
	POINTER,
	STRIDE,
	JOB,
	SYNCOBJ,
	/*
	 * Never huge: the core allocates so many, and stock kernels warn of
	 * what no allocator can give.
	 */
	COUNT,
};

struct field {
	uint16_t offset;
	uint8_t bytes;
	enum kind kind;
	uint32_t limit; /* SMALL, COUNT: 0..limit, FLAGS: their mask */
};

struct call {
	unsigned long request;
	uint16_t size;
	uint16_t weight;
	const struct field *fields;
	unsigned int field_count;
};

#define F(type, member, ...)             \
	{ offsetof(struct type, member), \
	  sizeof(((struct type *)NULL)->member), __VA_ARGS__ }
#define FIELDS(name, ...) \
	static const struct field name##_fields[] = { __VA_ARGS__ }

FIELDS(get_param, F(drm_m6npu_get_param, param, SMALL, 20),
       F(drm_m6npu_get_param, pad, PAD));
FIELDS(pool_create, F(drm_m6npu_pool_create, size, SIZE),
       F(drm_m6npu_pool_create, flags, FLAGS, 1),
       F(drm_m6npu_pool_create, max_segments, SMALL, 17),
       F(drm_m6npu_pool_create, pad, PAD));
FIELDS(pool_destroy, F(drm_m6npu_pool_destroy, pool, POOL),
       F(drm_m6npu_pool_destroy, pad, PAD));
FIELDS(pool_info, F(drm_m6npu_pool_info, pool, POOL));
FIELDS(bo_create, F(drm_m6npu_bo_create, size, SIZE),
       F(drm_m6npu_bo_create, pool, POOL),
       F(drm_m6npu_bo_create, flags, FLAGS, 3),
       F(drm_m6npu_bo_create, addr, ADDR), F(drm_m6npu_bo_create, pad, PAD));
FIELDS(bo_info, F(drm_m6npu_bo_info, handle, HANDLE));
FIELDS(bo_sync, F(drm_m6npu_bo_sync, handle, HANDLE),
       F(drm_m6npu_bo_sync, flags, FLAGS, 3),
       F(drm_m6npu_bo_sync, offset, SIZE), F(drm_m6npu_bo_sync, size, SIZE));
FIELDS(seal, F(drm_m6npu_cmdlist_seal, handle, HANDLE),
       F(drm_m6npu_cmdlist_seal, pad, PAD));
FIELDS(submit, F(drm_m6npu_submit, cmdlist, HANDLE),
       F(drm_m6npu_submit, cmd_count, SMALL, 64),
       F(drm_m6npu_submit, cmd_offset, SMALL, 1),
       F(drm_m6npu_submit, step_addr, ADDR),
       F(drm_m6npu_submit, regions, POINTER),
       F(drm_m6npu_submit, in_syncs, POINTER),
       F(drm_m6npu_submit, out_syncs, POINTER),
       F(drm_m6npu_submit, region_count, SMALL, 9),
       F(drm_m6npu_submit, region_stride, STRIDE, 16),
       F(drm_m6npu_submit, in_sync_count, SMALL, 3),
       F(drm_m6npu_submit, out_sync_count, SMALL, 3),
       F(drm_m6npu_submit, sync_stride, STRIDE, 16),
       F(drm_m6npu_submit, flags, FLAGS, 1),
       F(drm_m6npu_submit, priority, SMALL, 3),
       F(drm_m6npu_submit, unit_mask, SMALL, 16));
FIELDS(job_info, F(drm_m6npu_job_info, job, JOB));
FIELDS(expert_table, F(drm_m6npu_expert_table, layers, SMALL, 4),
       F(drm_m6npu_expert_table, experts, SMALL, 8));
FIELDS(expert_bind, F(drm_m6npu_expert_bind, entries, POINTER),
       F(drm_m6npu_expert_bind, count, SMALL, 40),
       F(drm_m6npu_expert_bind, stride, STRIDE, 32));
FIELDS(router, F(drm_m6npu_router_ctl, flags, FLAGS, 7),
       F(drm_m6npu_router_ctl, policy, SMALL, 3),
       F(drm_m6npu_router_ctl, threshold, SMALL, 1001),
       F(drm_m6npu_router_ctl, pad, PAD));
FIELDS(layer_stats, F(drm_m6npu_layer_stats_get, entries, POINTER),
       F(drm_m6npu_layer_stats_get, count, SMALL, 40),
       F(drm_m6npu_layer_stats_get, stride, STRIDE, 64),
       F(drm_m6npu_layer_stats_get, first, SMALL, 5),
       F(drm_m6npu_layer_stats_get, pad, PAD));
FIELDS(job_abort, F(drm_m6npu_job_abort, job, JOB));
FIELDS(pool_flush, F(drm_m6npu_pool_flush, pool, POOL),
       F(drm_m6npu_pool_flush, flags, PAD));
FIELDS(pool_defrag, F(drm_m6npu_pool_defrag, pool, POOL),
       F(drm_m6npu_pool_defrag, flags, FLAGS, 1));
FIELDS(region_map, F(drm_m6npu_region_map, handle, HANDLE),
       F(drm_m6npu_region_map, flags, PAD),
       F(drm_m6npu_region_map, offset, SIZE),
       F(drm_m6npu_region_map, size, SIZE), F(drm_m6npu_region_map, pad, PAD));
FIELDS(region_unmap, F(drm_m6npu_region_unmap, window, SMALL, 16),
       F(drm_m6npu_region_unmap, pad, PAD));
FIELDS(reset, F(drm_m6npu_reset, flags, PAD), F(drm_m6npu_reset, pad, PAD));
/* What the core offers, as far as it meets our objects. */
FIELDS(gem_close, F(drm_gem_close, handle, HANDLE), F(drm_gem_close, pad, PAD));
FIELDS(unique, F(drm_unique, unique_len, SMALL, 64),
       F(drm_unique, unique, POINTER));
FIELDS(magic, F(drm_auth, magic, ANY));
FIELDS(flink, F(drm_gem_flink, handle, HANDLE));
FIELDS(open, F(drm_gem_open, name, SMALL, 8));
FIELDS(prime, F(drm_prime_handle, handle, HANDLE),
       F(drm_prime_handle, flags, ANY), F(drm_prime_handle, fd, SMALL, 8));
FIELDS(sync_create, F(drm_syncobj_create, flags, SMALL, 1));
FIELDS(sync_destroy, F(drm_syncobj_destroy, handle, SYNCOBJ),
       F(drm_syncobj_destroy, pad, PAD));
FIELDS(sync_array, F(drm_syncobj_array, handles, POINTER),
       F(drm_syncobj_array, count_handles, COUNT, 4),
       F(drm_syncobj_array, pad, PAD));
FIELDS(sync_timeline, F(drm_syncobj_timeline_array, handles, POINTER),
       F(drm_syncobj_timeline_array, points, POINTER),
       F(drm_syncobj_timeline_array, count_handles, COUNT, 4),
       F(drm_syncobj_timeline_array, flags, SMALL, 1));

#define CALL(request, type, name, weight)                      \
	{ request, sizeof(struct type), weight, name##_fields, \
	  sizeof(name##_fields) / sizeof(name##_fields[0]) }
#define M6(ioctl, type, name, weight) \
	CALL(DRM_IOCTL_M6NPU_##ioctl, drm_m6npu_##type, name, weight)

static const struct call calls[] = {
	M6(GET_PARAM, get_param, get_param, 2),
	M6(POOL_CREATE, pool_create, pool_create, 2),
	M6(POOL_DESTROY, pool_destroy, pool_destroy, 1),
	M6(POOL_INFO, pool_info, pool_info, 2),
	M6(BO_CREATE, bo_create, bo_create, 8),
	M6(BO_INFO, bo_info, bo_info, 3),
	M6(BO_SYNC, bo_sync, bo_sync, 3),
	M6(CMDLIST_SEAL, cmdlist_seal, seal, 3),
	M6(SUBMIT, submit, submit, 16),
	M6(JOB_INFO, job_info, job_info, 2),
	M6(EXPERT_TABLE, expert_table, expert_table, 3),
	M6(EXPERT_BIND, expert_bind, expert_bind, 8),
	M6(ROUTER_CTL, router_ctl, router, 2),
	M6(LAYER_STATS, layer_stats_get, layer_stats, 2),
	M6(JOB_ABORT, job_abort, job_abort, 2),
	M6(POOL_FLUSH, pool_flush, pool_flush, 1),
	M6(POOL_DEFRAG, pool_defrag, pool_defrag, 1),
	M6(REGION_MAP, region_map, region_map, 1),
	M6(REGION_UNMAP, region_unmap, region_unmap, 1),
	M6(RESET, reset, reset, 1),
	CALL(DRM_IOCTL_GET_UNIQUE, drm_unique, unique, 1),
	CALL(DRM_IOCTL_GET_MAGIC, drm_auth, magic, 1),
	CALL(DRM_IOCTL_GEM_CLOSE, drm_gem_close, gem_close, 5),
	CALL(DRM_IOCTL_GEM_FLINK, drm_gem_flink, flink, 1),
	CALL(DRM_IOCTL_GEM_OPEN, drm_gem_open, open, 1),
	CALL(DRM_IOCTL_PRIME_HANDLE_TO_FD, drm_prime_handle, prime, 1),
	CALL(DRM_IOCTL_PRIME_FD_TO_HANDLE, drm_prime_handle, prime, 1),
	CALL(DRM_IOCTL_SYNCOBJ_CREATE, drm_syncobj_create, sync_create, 3),
	CALL(DRM_IOCTL_SYNCOBJ_DESTROY, drm_syncobj_destroy, sync_destroy, 2),
	CALL(DRM_IOCTL_SYNCOBJ_RESET, drm_syncobj_array, sync_array, 1),
	CALL(DRM_IOCTL_SYNCOBJ_SIGNAL, drm_syncobj_array, sync_array, 1),
	CALL(DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL, drm_syncobj_timeline_array,
	     sync_timeline, 1),
};

#define CALLS	    (sizeof(calls) / sizeof(calls[0]))
#define ARENA_PAGES 4
#define FIRST_ADDR  0x100000ull

/* What one thread makes its nonsense of. */
struct fuzzer {
	struct rng rng;
	int fd;
	/* Pages: writable, writable, nothing, read-only. */
	char *arena;
	/* Device memory, which the kernel may have to fault in; or NULL. */
	char *device;
	unsigned long count, accepted;
};

static uint64_t any(struct fuzzer *fuzzer)
{
	static const uint64_t interesting[] = {
		0,
		1,
		2,
		3,
		63,
		64,
		65,
		4095,
		4096,
		4097,
		65535,
		65536,
		1 << 20,
		(1 << 25) - 4096,
		1 << 25,
		(1ull << 31) - 1,
		1ull << 31,
		(1ull << 32) - 1,
		1ull << 32,
		(1ull << 38) - 4096,
		1ull << 38,
		(1ull << 38) + 1,
		1ull << 47,
		1ull << 63,
		~0ull,
		~0ull - 4095,
		~0ull - 63,
		0xffff000000000000,
		0x8000000080000000,
	};
	const size_t count = sizeof(interesting) / sizeof(interesting[0]);
	struct rng *rng = &fuzzer->rng;

	if (!rng_one_in(rng, 4))
		return interesting[rng_below(rng, count)];
	return rng_next(rng) >> rng_below(rng, 64);
}

static uint64_t pointer(struct fuzzer *fuzzer)
{
	struct rng *rng = &fuzzer->rng;
	uint64_t arena = (uintptr_t)fuzzer->arena;

	switch (rng_below(rng, 16)) {
	case 0:
		return any(fuzzer);
	case 1: /* into the hole */
		return arena + 2 * PAGE - rng_below(rng, 200);
	case 2: /* not aligned */
		return arena + rng_below(rng, PAGE);
	case 3:
		return arena + 3 * PAGE + rng_below(rng, PAGE);
	case 4:
	case 5:
		return (uintptr_t)fuzzer->device + rng_below(rng, PAGE) / 8 * 8;
	default:
		return arena + rng_below(rng, PAGE) / 8 * 8;
	}
}

static uint64_t plausible(struct fuzzer *fuzzer, const struct field *field)
{
	struct rng *rng = &fuzzer->rng;

	switch (field->kind) {
	case PAD:
		return 0;
	case FLAGS:
		return rng_next(rng) & field->limit;
	case HANDLE:
		return 1 + rng_below(rng, 24);
	case SYNCOBJ:
		return 1 + rng_below(rng, 8);
	case POOL:
		return rng_one_in(rng, 8) ? 0x10000 : 1 + rng_below(rng, 4);
	case SIZE:
		return rng_below(rng, 16) * 4096ull + rng_below(rng, 3);
	case ADDR:
		return rng_one_in(rng, 4) ?
			       0 :
			       FIRST_ADDR + rng_below(rng, 256) * 4096ull;
	case SMALL:
	case COUNT:
		return rng_below(rng, field->limit + 1);
	case STRIDE:
		return field->limit +
		       (rng_one_in(rng, 6) ? rng_below(rng, 80) : 0);
	case JOB:
		return rng_below(rng, 400);
	case POINTER:
		return pointer(fuzzer);
	case ANY:
		break;
	}
	return any(fuzzer);
}

static void put(char *at, unsigned int bytes, uint64_t value)
{
	memcpy(at, &value, bytes); /* little-endian */
}

/* What arrays in the arena hold: some of each kind of element. */
static void fill_arena(struct fuzzer *fuzzer)
{
	struct rng *rng = &fuzzer->rng;
	uint64_t *word = (uint64_t *)fuzzer->arena;

	for (size_t i = 0; i < 2 * PAGE / 8; i += 2) {
		struct drm_m6npu_sync sync = {
			.handle = 1 + rng_below(rng, 8),
			.flags = rng_below(rng, 2),
			.point = rng_below(rng, 3),
		};
		struct drm_m6npu_region region = {
			.addr = FIRST_ADDR + rng_below(rng, 1024) * 64ull,
			.size = rng_below(rng, 1 << 16),
		};

		switch (rng_below(rng, 4)) {
		case 0:
			memcpy(&word[i], &sync, sizeof(sync));
			break;
		case 1:
			memcpy(&word[i], &region, sizeof(region));
			break;
		case 2:
			/* Read as an expert: layer, index, state; address. */
			word[i] = rng_below(rng, 4) |
				  (uint64_t)rng_below(rng, 8) << 16 |
				  (uint64_t)rng_below(rng, 3) << 32;
			word[i + 1] = FIRST_ADDR;
			break;
		default:
			word[i] = any(fuzzer);
			word[i + 1] = any(fuzzer);
		}
	}
}

static const struct call *choose(struct rng *rng)
{
	uint32_t sum = 0, at;
	size_t i;

	for (i = 0; i < CALLS; i++)
		sum += calls[i].weight;
	at = rng_below(rng, sum);
	for (i = 0; at >= calls[i].weight; i++)
		at -= calls[i].weight;
	return &calls[i];
}

static void fuzz_once(struct fuzzer *fuzzer)
{
	struct rng *rng = &fuzzer->rng;
	const struct call *call = choose(rng);
	unsigned long request = call->request;
	bool all = rng_one_in(rng, 64);
	char args[512] = { 0 };
	void *arg = args;

	for (unsigned int i = 0; i < call->field_count; i++) {
		const struct field *field = &call->fields[i];
		bool wild = all || rng_one_in(rng, 2 * call->field_count + 4);

		put(args + field->offset, field->bytes,
		    wild && field->kind != COUNT ? any(fuzzer) :
						   plausible(fuzzer, field));
	}
	/* Another size, another direction, elsewhere. */
	if (rng_one_in(rng, 32)) {
		request &= ~((unsigned long)_IOC_SIZEMASK << _IOC_SIZESHIFT);
		request |= (unsigned long)rng_below(rng, sizeof(args))
			   << _IOC_SIZESHIFT;
	}
	if (rng_one_in(rng, 64))
		request ^= 1ul << (_IOC_DIRSHIFT + rng_below(rng, 2));
	if (rng_one_in(rng, 64) && _IOC_NR(request) < DRM_COMMAND_END)
		arg = (void *)(uintptr_t)pointer(fuzzer);
	if (!ioctl(fuzzer->fd, request, arg))
		fuzzer->accepted++;
}

static bool fuzz_begin(struct fuzzer *fuzzer, int fd, uint64_t seed)
{
	struct buffer device = { 0 };
	uint32_t pool;

	*fuzzer = (struct fuzzer){ .rng = { seed }, .fd = fd };
	fuzzer->arena = mmap(NULL, ARENA_PAGES * PAGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fuzzer->arena == MAP_FAILED)
		return false;
	munmap(fuzzer->arena + 2 * PAGE, PAGE);
	mprotect(fuzzer->arena + 3 * PAGE, PAGE, PROT_READ);
	if (!board_pool(fd, MIB, &pool) &&
	    !board_buffer(fd, pool, 2 * PAGE, 0, &device))
		fuzzer->device = device.map;
	return true;
}

static void *fuzz_thread(void *arg)
{
	struct fuzzer *fuzzer = arg;

	for (unsigned long i = 0; i < fuzzer->count; i++) {
		if (i % 64 == 0)
			fill_arena(fuzzer);
		fuzz_once(fuzzer);
	}
	return NULL;
}

static void on_alarm(int number)
{
	(void)number;
}

#define FUZZ_THREADS 3

/* A process: two threads at a file of their own, one at the shared one. */
static void fuzz_process(int shared, uint64_t seed, unsigned long count,
			 bool interrupted)
{
	/* Calls that wait are interrupted, and not restarted. */
	struct itimerval often = { { 0, 3000 }, { 0, 3000 } };
	struct sigaction action = { .sa_handler = on_alarm };
	struct fuzzer fuzzer[FUZZ_THREADS];
	pthread_t thread[FUZZ_THREADS];
	unsigned long accepted = 0;
	int own;

	drop_capabilities();
	own = board_open();
	if (own < 0)
		_exit(1);
	for (unsigned int i = 0; i < FUZZ_THREADS; i++) {
		if (!fuzz_begin(&fuzzer[i], i == 2 ? shared : own,
				seed * 100 + i))
			_exit(1);
		fuzzer[i].count = count;
	}
	if (interrupted) {
		sigaction(SIGALRM, &action, NULL);
		setitimer(ITIMER_REAL, &often, NULL);
	}
	for (unsigned int i = 0; i < FUZZ_THREADS; i++)
		if (pthread_create(&thread[i], NULL, fuzz_thread, &fuzzer[i]))
			_exit(1);
	for (unsigned int i = 0; i < FUZZ_THREADS; i++) {
		pthread_join(thread[i], NULL);
		accepted += fuzzer[i].accepted;
	}
	printf("# %lu of %lu calls accepted\n", accepted, FUZZ_THREADS * count);
	fflush(stdout);
	/* Else this is a test of how one refuses, and of nothing else. */
	_exit(accepted > count / 10 ? 0 : 2);
}

static bool fuzz(int shared, uint64_t seed, unsigned long count,
		 bool interrupted)
{
	pid_t child[2];
	bool good = true;
	int status;

	fflush(stdout);
	for (unsigned int i = 0; i < 2; i++) {
		child[i] = fork();
		if (!child[i])
			fuzz_process(shared, seed + i, count, interrupted);
	}
	for (unsigned int i = 0; i < 2; i++)
		good &= waitpid(child[i], &status, 0) == child[i] &&
			WIFEXITED(status) && !WEXITSTATUS(status);
	return good;
}

/* Other nonsense than always, for a longer search: M6_SEED=N. */
static uint64_t other_seed(void)
{
	const char *seed = getenv("M6_SEED");

	return seed ? strtoull(seed, NULL, 0) * 1000 : 0;
}

TEST_F_TIMEOUT(garbage, arguments, 240)
{
	EXPECT_TRUE(fuzz(self->fd, other_seed() + 1, 2000, false));
	for (int i = 0; i < 2; i++)
		EXPECT_TRUE(checker_goes_on(&self->witness.checker[i], 3));
}

TEST_F_TIMEOUT(garbage, arguments_interrupted, 240)
{
	EXPECT_TRUE(fuzz(self->fd, other_seed() + 11, 1000, true));
}

/* ---- Sizes ---- */

/*
 * A structure of @bytes at the very end of a page before a hole: the kernel
 * neither reads nor writes beyond what the request's size says, whatever it
 * answers.
 */
TEST_F_TIMEOUT(garbage, sizes, 240)
{
	char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, pages);
	munmap(pages + PAGE, PAGE);
	for (size_t i = 0; i < CALLS; i++) {
		unsigned long request =
			calls[i].request &
			~((unsigned long)_IOC_SIZEMASK << _IOC_SIZESHIFT);

		for (unsigned int bytes = 0; bytes <= calls[i].size + 64u;
		     bytes += bytes > calls[i].size ? 13 : 1) {
			char *arg = pages + PAGE - bytes;
			int ret;

			if (calls[i].request == DRM_IOCTL_M6NPU_RESET &&
			    bytes % 8)
				continue;
			memset(pages, 0x77, PAGE);
			memset(arg, 0, bytes);
			/* As root: a real reset would be somebody's -EIO. */
			if (calls[i].request == DRM_IOCTL_M6NPU_RESET &&
			    bytes >= 4)
				arg[0] = 1;
			else if (calls[i].request == DRM_IOCTL_M6NPU_RESET)
				continue;
			ret = board_ioctl(self->fd,
					  request | (unsigned long)bytes
							    << _IOC_SIZESHIFT,
					  arg);
			EXPECT_NE(-EFAULT, ret)
			{
				TH_LOG("request %#lx of %u bytes",
				       calls[i].request, bytes);
			}
			for (char *at = pages; at < arg; at++)
				ASSERT_EQ(0x77, *at);
		}
	}
	/* Larger than any structure there is. */
	for (unsigned long nr = 0; nr < 0x100; nr++) {
		static char large[1 << 14];

		if (nr == DRM_COMMAND_BASE + DRM_M6NPU_RESET)
			continue;
		memset(large, 0, sizeof(large));
		ioctl(self->fd,
		      _IOC(_IOC_READ | _IOC_WRITE, DRM_IOCTL_BASE, nr,
			   sizeof(large) - 1),
		      large);
		ioctl(self->fd,
		      _IOC(_IOC_READ | _IOC_WRITE, DRM_IOCTL_BASE, nr,
			   sizeof(large) - 1),
		      NULL);
	}
	munmap(pages, PAGE);
}

/* ---- Command lists ---- */

#define DATA	      (256 * 1024u)
#define LIST_COMMANDS 12
#define LISTS	      6

static const struct {
	uint8_t opcode;
	uint8_t operands;
	bool one_more; /* or not */
} ops[] = {
	{ M6NPU_OP_BARRIER, 0 },
	{ M6NPU_OP_TIMESTAMP, 1 },
	{ M6NPU_OP_COPY, 2 },
	{ M6NPU_OP_FILL, 1 },
	{ M6NPU_OP_COMPARE, 2 },
	{ M6NPU_OP_LZ4_DECOMPRESS, 2 },
	{ M6NPU_OP_EMBED, 2 },
	{ M6NPU_OP_NORM, 3 },
	{ M6NPU_OP_GEMM, 3, true },
	{ M6NPU_OP_ROPE, 1, true },
	{ M6NPU_OP_ATTENTION, 3 },
	{ M6NPU_OP_GLU, 3 },
	{ M6NPU_OP_ADD, 3 },
	{ M6NPU_OP_SCALE, 2 },
	{ M6NPU_OP_GATHER, 2 },
	{ M6NPU_OP_GATED_ADD, 3 },
	{ M6NPU_OP_ROUTER_TOPK, 3, true },
	{ M6NPU_OP_MOE_FFN, 4 },
	{ M6NPU_OP_EXPERT_PREFETCH, 2 },
	{ M6NPU_OP_MOE_COMBINE, 3 },
	{ M6NPU_OP_TOPK, 3 },
};

static uint32_t dimension(struct rng *rng)
{
	static const uint32_t common[] = { 1, 2, 4, 8, 16, 32, 64, 128, 256 };

	if (rng_one_in(rng, 16))
		return (uint32_t)(rng_next(rng) >> rng_below(rng, 64));
	return common[rng_below(rng, 9)];
}

/* Mostly: the first is where results go, the others where they don't. */
static uint64_t operand(struct rng *rng, uint32_t index)
{
	uint32_t region = index ? 1 + rng_below(rng, 2) : 0;

	if (rng_one_in(rng, 40))
		region = rng_below(rng, 3);
	return M6NPU_OPERAND(region, rng_below(rng, DATA / 2) / 64 * 64);
}

static uint32_t small(struct rng *rng)
{
	static const uint32_t common[] = { 1, 2, 4, 8 };

	return common[rng_below(rng, 4)];
}

static uint16_t half(struct rng *rng)
{
	return (uint16_t)small(rng);
}

/* Arguments that go together, for most operands. */
static void right_arguments(struct rng *rng, struct m6npu_cmd *cmd)
{
	uint32_t rows = small(rng), n = small(rng), k = 32 * small(rng);
	static const float one = 1;
	uint32_t one_bits;

	memcpy(&one_bits, &one, sizeof(one_bits));
	switch (cmd->opcode) {
	case M6NPU_OP_COPY:
	case M6NPU_OP_FILL:
	case M6NPU_OP_COMPARE:
		cmd->args.mem.bytes = k * rows;
		break;
	case M6NPU_OP_LZ4_DECOMPRESS:
		cmd->args.lz4.dst_bytes = rows;
		cmd->args.lz4.src_bytes = n;
		break;
	case M6NPU_OP_EMBED:
		cmd->args.embed.vocab = n;
		/* fallthrough */
	case M6NPU_OP_GATHER:
		cmd->args.embed.rows = rows;
		cmd->args.embed.width = k;
		break;
	case M6NPU_OP_NORM:
		cmd->args.norm.rows = rows;
		cmd->args.norm.groups = 1 + rng_below(rng, 2);
		cmd->args.norm.width = n;
		cmd->args.norm.src_stride = 2 * n;
		cmd->args.norm.dst_stride = 2 * n;
		break;
	case M6NPU_OP_GEMM:
		cmd->args.gemm.rows = rows;
		cmd->args.gemm.n = n;
		cmd->args.gemm.k = k;
		cmd->args.gemm.src_stride = k;
		cmd->args.gemm.dst_stride = n;
		cmd->type[2] = (uint8_t)rng_below(rng, M6NPU_TYPE_COUNT);
		break;
	case M6NPU_OP_ROPE:
		cmd->args.rope.rows = rows;
		cmd->args.rope.heads = half(rng);
		cmd->args.rope.head_dim = 8;
		cmd->args.rope.rot_dim = 8;
		cmd->args.rope.stride = cmd->args.rope.heads * 8u;
		cmd->args.rope.theta = one_bits;
		cmd->args.rope.scale = one_bits;
		cmd->args.rope.flags = (uint16_t)rng_below(rng, 2);
		break;
	case M6NPU_OP_ATTENTION:
		cmd->args.attention.rows = rows;
		cmd->args.attention.heads = 4;
		cmd->args.attention.kv_heads = 1u << rng_below(rng, 3);
		cmd->args.attention.head_dim = 32;
		cmd->args.attention.window = rng_below(rng, 3);
		cmd->args.attention.scale = one_bits;
		break;
	case M6NPU_OP_GLU:
		cmd->args.glu.rows = rows;
		cmd->args.glu.n = n;
		cmd->args.glu.gate_stride = n;
		cmd->args.glu.up_stride = n;
		cmd->args.glu.dst_stride = n;
		cmd->args.glu.act = rng_below(rng, 2);
		break;
	case M6NPU_OP_ADD:
	case M6NPU_OP_SCALE:
	case M6NPU_OP_GATED_ADD:
		cmd->args.add.rows = rows;
		cmd->args.add.n = n;
		cmd->args.add.factor =
			cmd->opcode == M6NPU_OP_SCALE ? one_bits : 0;
		break;
	case M6NPU_OP_ROUTER_TOPK:
		cmd->args.router.rows = rows;
		cmd->args.router.experts = n;
		cmd->args.router.k = 1 + rng_below(rng, n);
		cmd->args.router.flags = rng_below(rng, 4);
		if (!rng_one_in(rng, 3))
			break;
		cmd->args.router.flags = M6NPU_ROUTER_CHANCE;
		cmd->args.router.among = 1 + rng_below(rng, n);
		break;
	case M6NPU_OP_MOE_FFN:
		cmd->args.moe.hidden = 32;
		cmd->args.moe.ffn = 32;
		/* fallthrough */
	case M6NPU_OP_EXPERT_PREFETCH:
		cmd->args.moe.rows = rows;
		cmd->args.moe.k = 2;
		cmd->args.moe.experts = 4;
		break;
	case M6NPU_OP_MOE_COMBINE:
		cmd->args.moe.rows = rows;
		cmd->args.moe.k = 2;
		cmd->args.moe.hidden = 32;
		break;
	case M6NPU_OP_TOPK:
		cmd->args.topk.rows = rows;
		cmd->args.topk.n = n;
		cmd->args.topk.k = 1 + rng_below(rng, n);
		break;
	}
}

/* One thing wrong with it. */
static void spoil(struct rng *rng, struct m6npu_cmd *cmd)
{
	uint8_t *bytes = (uint8_t *)cmd;

	switch (rng_below(rng, 6)) {
	case 0:
		cmd->operand[rng_below(rng, 4)] = M6NPU_OPERAND_NONE;
		break;
	case 1:
		cmd->operand[rng_below(rng, 4)] = M6NPU_OPERAND(
			rng_below(rng, 16),
			rng_next(rng) >> rng_below(rng, 64) & 0x3fffffffff);
		break;
	case 2:
		cmd->args.word[rng_below(rng, 6)] = dimension(rng);
		break;
	case 3:
		cmd->args.word[rng_below(rng, 6)] = 0;
		break;
	case 4:
		cmd->flags = (uint8_t)rng_below(rng, 4);
		break;
	default:
		bytes[rng_below(rng, sizeof(*cmd))] = (uint8_t)rng_next(rng);
	}
}

static struct m6npu_cmd random_command(struct rng *rng)
{
	uint32_t op = rng_below(rng, sizeof(ops) / sizeof(ops[0]));
	struct m6npu_cmd cmd = { 0 };
	uint32_t operands;

	/* Both end a list: nothing here is compressed, no expert comes. */
	if ((ops[op].opcode == M6NPU_OP_MOE_FFN ||
	     ops[op].opcode == M6NPU_OP_LZ4_DECOMPRESS) &&
	    !rng_one_in(rng, 4))
		op = 0;
	cmd.opcode = ops[op].opcode;
	operands = ops[op].operands;
	if (ops[op].one_more)
		operands += rng_below(rng, 2);
	for (uint32_t i = 0; i < 4; i++)
		cmd.operand[i] = i >= operands ? M6NPU_OPERAND_NONE :
						 operand(rng, i);
	/* These write what is not the first. */
	if (cmd.opcode == M6NPU_OP_COMPARE ||
	    cmd.opcode == M6NPU_OP_ROUTER_TOPK || cmd.opcode == M6NPU_OP_TOPK)
		cmd.operand[1] = operand(rng, 0);
	if (cmd.opcode == M6NPU_OP_ATTENTION)
		cmd.operand[2] = operand(rng, 0);
	right_arguments(rng, &cmd);
	while (rng_one_in(rng, 10))
		spoil(rng, &cmd);
	if (rng_one_in(rng, 100))
		for (size_t i = 0; i < sizeof(cmd); i += 8) {
			uint64_t word = rng_next(rng);

			memcpy((char *)&cmd + i, &word, sizeof(word));
		}
	return cmd;
}

/* Half of them right: the others end the job at once. */
static void random_step(struct rng *rng, struct m6npu_step *step)
{
	bool right = rng_one_in(rng, 2);

	memset(step, 0, 4 * PAGE);
	step->token_count = 1 + rng_below(rng, 16);
	step->kv_capacity = 64;
	step->kv_type = rng_one_in(rng, 2) ? M6NPU_TYPE_F16 : M6NPU_TYPE_Q8_0;
	step->kv_slot_stride = 64 * 1024;
	step->flags = rng_one_in(rng, 2) ? M6NPU_STEP_HINTS : 0;
	step->prefetch_permille = rng_below(rng, 1002);
	for (uint32_t i = 0; i < step->token_count; i++) {
		step->tokens[i].token = rng_below(rng, 4);
		step->tokens[i].position = rng_below(rng, right ? 64 : 66);
		step->tokens[i].slot = rng_below(rng, right ? 2 : 4);
		step->tokens[i].flags = rng_below(rng, 2);
		step->out_count += step->tokens[i].flags;
	}
	if (right)
		return;
	if (rng_one_in(rng, 2))
		step->token_count = dimension(rng);
	if (rng_one_in(rng, 2))
		step->out_count = dimension(rng);
	if (rng_one_in(rng, 4))
		step->kv_capacity = dimension(rng);
	if (rng_one_in(rng, 4))
		step->kv_type = rng_below(rng, 12);
	if (rng_one_in(rng, 4))
		step->kv_slot_stride = rng_next(rng);
	if (rng_one_in(rng, 4))
		step->flags = dimension(rng);
	for (int i = 0; i < 4; i++)
		((uint32_t *)step->tokens)[rng_below(rng, 64)] = dimension(rng);
}

struct commander {
	struct rng rng;
	int fd;
	unsigned int rounds;
	uint32_t pool;
	struct buffer data[3]; /* 2: the device may only read it */
	struct buffer step;
	unsigned long jobs, good, commands;
	bool wrong;
};

static bool known_end(const struct drm_m6npu_job_info *info)
{
	switch (info->error) {
	case 0:
		return !info->exception;
	case -EFAULT:
	case -EINVAL:
	case -ETIME:
	case -EIO:
		return info->exception;
	}
	return false;
}

static bool commander_round(struct commander *c)
{
	struct m6npu_cmd cmds[LIST_COMMANDS];
	struct drm_m6npu_job_info info;
	struct buffer list[LISTS];
	struct job job[LISTS];
	uint32_t *words = c->data[0].map;
	int i;

	/* Small numbers, so that what is an index is sometimes valid. */
	for (i = 0; i < 4096; i++)
		words[rng_below(&c->rng, DATA / 4)] = rng_below(&c->rng, 5);
	random_step(&c->rng, c->step.map);
	for (i = 0; i < LISTS; i++) {
		for (int k = 0; k < LIST_COMMANDS; k++)
			cmds[k] = random_command(&c->rng);
		if (board_list(c->fd, c->pool, cmds, LIST_COMMANDS, &list[i]))
			return false;
	}
	for (i = 0; i < LISTS; i++) {
		board_job(&job[i], &list[i], LIST_COMMANDS, c->data, 3);
		job[i].args.unit_mask = rng_below(&c->rng, 16);
		if (rng_one_in(&c->rng, 8)) {
			job[i].args.unit_mask = 0;
			job[i].args.flags = DRM_M6NPU_SUBMIT_DMA_ENGINE;
		}
		if (!rng_one_in(&c->rng, 4))
			job[i].args.step_addr = c->step.addr;
		if (rng_one_in(&c->rng, 8)) /* nobody's */
			job[i].regions[1].addr += 64 * MIB;
		if (rng_one_in(&c->rng, 8)) /* to the end of all addresses */
			job[i].regions[0].size =
				(1ull << M6NPU_VA_BITS) - c->data[0].addr;
		if (board_submit(c->fd, &job[i]))
			return false;
	}
	for (i = 0; i < LISTS; i++) {
		if (board_wait(c->fd, &job[i], BOARD_TIMEOUT_MS, &info))
			return false;
		c->jobs++;
		c->good += !info.error;
		c->commands += info.cmd_index;
		if (!known_end(&info)) {
			printf("# job ended with %d, exception %#x\n",
			       info.error, info.exception);
			return false;
		}
		board_buffer_close(c->fd, &list[i]);
	}
	return true;
}

static bool commander_begin(struct commander *c)
{
	struct drm_m6npu_expert_table table = { .layers = 2, .experts = 4 };
	uint32_t *words;

	c->fd = board_open();
	if (c->fd < 0 || board_pool(c->fd, 4 * MIB, &c->pool) ||
	    board_buffer(c->fd, c->pool, DATA, 0, &c->data[0]) ||
	    board_buffer(c->fd, c->pool, DATA, 0, &c->data[1]) ||
	    board_buffer(c->fd, c->pool, DATA, DRM_M6NPU_BO_DEVICE_READONLY,
			 &c->data[2]) ||
	    board_buffer(c->fd, c->pool, 4 * PAGE, 0, &c->step) ||
	    board_ioctl(c->fd, DRM_IOCTL_M6NPU_EXPERT_TABLE, &table))
		return false;
	words = c->data[2].map;
	for (uint32_t i = 0; i < DATA / 4; i++)
		words[i] = i % 7;
	return true;
}

static bool commander_end(struct commander *c)
{
	const uint32_t *words = c->data[2].map;
	bool good = true;

	for (uint32_t i = 0; i < DATA / 4; i++)
		good &= words[i] == i % 7;
	for (int i = 0; i < 3; i++)
		board_buffer_close(c->fd, &c->data[i]);
	board_buffer_close(c->fd, &c->step);
	close(c->fd);
	return good;
}

static void *commander_run(void *arg)
{
	struct commander *c = arg;
	bool good = commander_begin(c);

	for (unsigned int i = 0; good && i < c->rounds; i++)
		good = commander_round(c);
	c->wrong = !good || !commander_end(c);
	return NULL;
}

TEST_F_TIMEOUT(garbage, commands, 240)
{
	struct commander commander[3] = { 0 };
	pthread_t thread[3];

	for (uint32_t i = 0; i < 3; i++) {
		commander[i].rng.state = other_seed() + 77 + i;
		commander[i].rounds = 40;
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, commander_run,
					    &commander[i]));
	}
	for (int i = 0; i < 3; i++) {
		pthread_join(thread[i], NULL);
		TH_LOG("%lu jobs, %lu without error, %lu commands",
		       commander[i].jobs, commander[i].good,
		       commander[i].commands);
		EXPECT_FALSE(commander[i].wrong);
		EXPECT_LT(commander[i].jobs / 2, commander[i].commands);
	}
}

TEST_HARNESS_MAIN
