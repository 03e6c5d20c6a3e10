// SPDX-License-Identifier: MIT
/*
 * Reading of sections by a ring of our own, which answers out of order, takes
 * only a part of what it is given, refuses, or reads less than it is asked for:
 * the program is linked with --wrap, see meson.build.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <npu/npu.h>
#include "../tap.h"
#include "builder.h"
#include "error.h"
#include "shards.h"

#define MIB	(1ul << 20)
#define LAYERS	2
#define EXPERTS	3
#define SHARDS	(LAYERS * EXPERTS)
/* Several pieces, and no whole number of them. */
#define BYTES	(3 * MIB + 12345)

static struct builder b;
static char path[64];
static struct npu_file *file;
static struct npu_shards *shards;
static struct npu_shard list[SHARDS];

/* ---- The ring ---- */

#define ENTRIES	8

/* What the kernel shares with the program, and what it has taken. */
struct fake_ring {
	unsigned int sq_head, cq_head, cq_tail;
	struct io_uring_sqe sqes[ENTRIES], taken[ENTRIES];
	struct io_uring_cqe cqes[ENTRIES];
	unsigned int count, turn;
};

static bool no_ring;
/* What becomes of a read, instead of what it is for. */
static int (*answer)(const struct io_uring_sqe *sqe);
static atomic_uint direct, buffered;

int __wrap_io_uring_queue_init(unsigned int entries, struct io_uring *ring,
			       unsigned int flags);
void __wrap_io_uring_queue_exit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned int count);
int __wrap___io_uring_get_cqe(struct io_uring *ring, struct io_uring_cqe **cqe,
			      unsigned int submit, unsigned int count,
			      sigset_t *mask);

static struct fake_ring *fake_of(const struct io_uring *ring)
{
	return ring->sq.ring_ptr;
}

int __wrap_io_uring_queue_init(unsigned int entries, struct io_uring *ring,
			       unsigned int flags)
{
	struct fake_ring *f = no_ring ? NULL : calloc(1, sizeof(*f));

	if (!f)
		return -ENOSYS;
	*ring = (struct io_uring){
		.sq = {
			.khead = &f->sq_head,
			.sqes = f->sqes,
			.ring_ptr = f,
			.ring_mask = ENTRIES - 1,
			.ring_entries = entries,
		},
		.cq = {
			.khead = &f->cq_head,
			.ktail = &f->cq_tail,
			.cqes = f->cqes,
			.ring_mask = ENTRIES - 1,
			.ring_entries = entries,
		},
		.features = IORING_FEAT_EXT_ARG,
	};
	return 0;
}

void __wrap_io_uring_queue_exit(struct io_uring *ring)
{
	/* Else the kernel would go on writing to memory that is freed. */
	if (fake_of(ring)->count)
		abort();
	free(fake_of(ring));
}

/* Every other time it takes one, as the kernel may, and the rest stays. */
int __wrap_io_uring_submit(struct io_uring *ring)
{
	struct fake_ring *f = fake_of(ring);
	unsigned int most = f->turn++ % 2 ? 1 : ENTRIES, n = 0;

	for (; ring->sq.sqe_head != ring->sq.sqe_tail && n < most; n++) {
		/* More than there are pieces: some were forgotten. */
		if (f->count == ring->sq.ring_entries)
			abort();
		f->taken[f->count++] =
			f->sqes[ring->sq.sqe_head++ & ring->sq.ring_mask];
	}
	f->sq_head = ring->sq.sqe_head;
	return (int)n;
}

static int read_for(const struct io_uring_sqe *sqe)
{
	return (int)pread(sqe->fd, (void *)(uintptr_t)sqe->addr, sqe->len,
			  (off_t)sqe->off);
}

/* In no order, and now and then a signal. */
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned int count)
{
	struct fake_ring *f = fake_of(ring);
	struct io_uring_sqe sqe;
	unsigned int k;

	__wrap_io_uring_submit(ring);
	if (f->turn % 3 == 0 || !f->count)
		return -EINTR;
	k = f->turn / 3 % f->count;
	sqe = f->taken[k];
	f->taken[k] = f->taken[--f->count];
	if (fcntl(sqe.fd, F_GETFL) & O_DIRECT)
		direct++;
	else
		buffered++;
	f->cqes[f->cq_tail++ % ENTRIES] = (struct io_uring_cqe){
		.user_data = sqe.user_data,
		.res = answer ? answer(&sqe) : read_for(&sqe),
	};
	return 0;
}

int __wrap___io_uring_get_cqe(struct io_uring *ring, struct io_uring_cqe **cqe,
			      unsigned int submit, unsigned int count,
			      sigset_t *mask)
{
	*cqe = NULL;
	return -EAGAIN;
}

static int refuse(const struct io_uring_sqe *sqe)
{
	return -EINVAL;
}

static int refuse_direct(const struct io_uring_sqe *sqe)
{
	return fcntl(sqe->fd, F_GETFL) & O_DIRECT ? -EINVAL : read_for(sqe);
}

/* Of the moment, or of this place on the disk. */
static int fail_some(const struct io_uring_sqe *sqe)
{
	static const int errors[] = { -EAGAIN, -EINTR, -EIO, -ENOMEM };
	static atomic_uint n;
	unsigned int k = n++;

	return k % 3 ? read_for(sqe) : errors[k / 3 % 4];
}

/* Half of it, in whole blocks: of the last piece perhaps none. */
static int shorten(const struct io_uring_sqe *sqe)
{
	struct io_uring_sqe half = *sqe;

	half.len = half.len / 2 / 4096 * 4096;
	return read_for(&half);
}

/* ---- Reading ---- */

static void open_shards(void)
{
	if (npu_file_open(path, &file) || npu_shards_create(file, &shards)) {
		printf("Bail out! %s\n", npu_error());
		exit(1);
	}
	direct = buffered = 0;
}

static void close_shards(void)
{
	npu_shards_destroy(shards);
	npu_file_close(file);
}

static int good_one(void *user, struct npu_shard *shard)
{
	unsigned int *good = user;

	*good += !shard->error &&
		 !memcmp(shard->dst, b.contents[shard->section].loaded,
			 shard->cap);
	return 0;
}

/* Twice, so that buffers hold something that is not wanted. */
static bool read_all(void)
{
	unsigned int good = 0, k, turn;

	for (turn = 0; turn < 2; turn++) {
		for (k = 0; k < SHARDS; k++)
			memset(list[k].dst, 0xee, list[k].cap);
		npu_shards_read(shards, list, SHARDS, good_one, &good);
	}
	return good == 2 * SHARDS;
}

static void try_all(int (*how)(const struct io_uring_sqe *sqe),
		    const char *what)
{
	bool good;

	answer = how;
	open_shards();
	good = read_all();
	ok(good, "%s: the right bytes (%u reads past the page cache, %u not)",
	   what, direct, buffered);
	close_shards();
	answer = NULL;
}

static void test_ring(void)
{
	unsigned int has_direct;

	try_all(NULL, "a ring");
	has_direct = direct;
	ok(!direct || !buffered, "the page cache is passed by, if it can be");
	try_all(shorten, "short reads");
	ok(!direct || !buffered, "which change nothing of that");
	try_all(fail_some, "reads that fail");
	ok(!direct || !buffered, "nor do these");
	try_all(refuse_direct, "a file system without direct I/O");
	ok(!has_direct || buffered > direct, "it is not asked for ever");
	try_all(refuse, "a kernel that knows no reads by a ring");
	no_ring = true;
	try_all(NULL, "no ring");
	ok(!direct && !buffered, "and none used");
	no_ring = false;
}

static int count_bad(void *user, struct npu_shard *shard)
{
	unsigned int *bad = user;

	*bad += shard->error == -EBADMSG && shard->message;
	return 0;
}

/* Reading ends at the first piece, with the others on their way. */
static void test_early_end(void)
{
	unsigned int bad = 0;

	open_shards();
	if (truncate(path, (off_t)b.sections[list[0].section].offset + 100))
		exit(1);
	npu_shards_read(shards, list, SHARDS, count_bad, &bad);
	builder_write(&b, path);
	ok(bad == SHARDS, "truncated: all are refused");
	ok(read_all(), "and read once they are there again");
	close_shards();
}

/* ---- What is urgent, in the middle of what is not ---- */

/* Reads of held shards are answered when they are let go. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_moved = PTHREAD_COND_INITIALIZER;
static bool held[SHARDS], asked[SHARDS];

static unsigned int shard_at(uint64_t offset)
{
	unsigned int k = SHARDS;

	while (k-- > 1)
		if (offset >= b.sections[list[k].section].offset)
			break;
	return k;
}

static int hold(const struct io_uring_sqe *sqe)
{
	unsigned int k = shard_at(sqe->off);

	pthread_mutex_lock(&gate);
	asked[k] = true;
	pthread_cond_broadcast(&gate_moved);
	while (held[k])
		pthread_cond_wait(&gate_moved, &gate);
	pthread_mutex_unlock(&gate);
	return read_for(sqe);
}

static void set_held(unsigned int first, unsigned int end, bool on)
{
	pthread_mutex_lock(&gate);
	for (; first < end; first++) {
		held[first] = on;
		asked[first] &= !on;
	}
	pthread_cond_broadcast(&gate_moved);
	pthread_mutex_unlock(&gate);
}

static void await_asked(unsigned int k)
{
	pthread_mutex_lock(&gate);
	while (!asked[k])
		pthread_cond_wait(&gate_moved, &gate);
	pthread_mutex_unlock(&gate);
}

static struct npu_shard *next_done(void)
{
	struct pollfd fd = { npu_shards_fd(shards), POLLIN, 0 };
	struct npu_shard *shard;

	while (!(shard = npu_shards_next(shards)))
		poll(&fd, 1, -1);
	return shard;
}

/* All threads have something that is not urgent to read. */
static void test_interrupted(void)
{
	unsigned int k, good = 0;

	answer = hold;
	open_shards();
	set_held(0, SHARDS, true);
	for (k = 0; k < SHARDS - 1; k++)
		npu_shards_ask(shards, &list[k], false);
	await_asked(0);
	await_asked(1);
	npu_shards_ask(shards, &list[SHARDS - 1], true);
	set_held(0, SHARDS, false);
	ok(next_done() == &list[SHARDS - 1], "what is urgent is there first");
	for (k = 0; k < SHARDS - 1; k++)
		next_done();
	for (k = 0; k < SHARDS; k++)
		good_one(&good, &list[k]);
	ok(good == SHARDS, "and all have the right bytes");
	close_shards();
}

static void test_hurried(void)
{
	open_shards();
	set_held(0, 2, true);
	npu_shards_ask(shards, &list[0], false);
	await_asked(0);
	npu_shards_ask(shards, &list[1], true);
	await_asked(1);
	set_held(0, 1, false);
	npu_shards_await(shards, &list[0]);
	ok(!list[0].error, "what stood still goes on when it is waited for");
	ok(!npu_shards_next(shards), "though something urgent is not there");
	set_held(1, 2, false);
	npu_shards_await(shards, &list[1]);
	close_shards();
	answer = NULL;
}

int main(void)
{
	uint32_t k;

	builder_init_experts(&b, LAYERS, EXPERTS, BYTES);
	builder_place(&b);
	builder_seal(&b);
	snprintf(path, sizeof(path), "/tmp/npu-test-shards-%d.npu", getpid());
	builder_write(&b, path);
	open_shards();
	for (k = 0; k < SHARDS; k++) {
		list[k].section = npu_file_expert(file, k / EXPERTS,
						  k % EXPERTS);
		list[k].cap = b.sections[list[k].section].loaded_bytes;
		list[k].dst = malloc(list[k].cap);
	}
	close_shards();
	test_ring();
	test_early_end();
	test_interrupted();
	test_hurried();
	for (k = 0; k < SHARDS; k++)
		free(list[k].dst);
	unlink(path);
	builder_clear(&b);
	return done();
}
