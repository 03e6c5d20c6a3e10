// SPDX-License-Identifier: MIT
/*
 * Reading of sections by several threads. They take what is urgent first; what
 * is done waits on a list, of which an eventfd tells, until it is asked for.
 *
 * A thread takes one section at a time and reads it by an io_uring of its own,
 * a few pieces ahead of the one that it hashes and decodes. Reads go past the
 * page cache where the file system can do that, into pages of ours: not
 * straight into place, because device memory is mapped without pages that
 * direct I/O could hold, and because bytes are to be hashed where the file's
 * owner cannot change them any more.
 *
 * What the ring cannot do, or could do only in part, is done by pread(2): file
 * systems without direct I/O, systems without io_uring, and the error messages.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <npu/npu.h>
#include "error.h"
#include "npu_file_priv.h"
#include "shards.h"

#define PIECE_BYTES	(512u << 10)
#define PIECES_AHEAD	4
#define MAX_WORKERS	4
/* What direct I/O wants everywhere; sections begin at multiples of it. */
#define ALIGN		NPU_FILE_ALIGN

enum piece_state { PIECE_IDLE, PIECE_UNDER_WAY, PIECE_READ };

struct piece {
	enum piece_state state;
	int result;
};

struct worker {
	struct npu_pieces base;
	struct npu_shards *shards;
	pthread_t thread;
	struct io_uring ring;
	bool has_ring, direct;
	char *buffer;			/* PIECES_AHEAD pieces */
	struct piece pieces[PIECES_AHEAD];
	/* Of the section that is read. */
	uint64_t begin, end;
	uint32_t asked, taken;		/* pieces */
};

struct npu_shards {
	const struct npu_file *file;
	int direct_fd;			/* -1: the file system cannot */
	struct worker workers[MAX_WORKERS];
	uint32_t worker_count;

	int eventfd;			/* has input while some are done */
	pthread_mutex_t lock;		/* guards the following */
	pthread_cond_t work, arrival;
	struct npu_shard_list urgent, later, done;
	bool ending;
};

/* ---- Pieces of one section ---- */

static uint64_t piece_begin(const struct worker *w, uint32_t k)
{
	return w->begin + (uint64_t)k * PIECE_BYTES;
}

static size_t piece_bytes(const struct worker *w, uint32_t k)
{
	uint64_t left = w->end - piece_begin(w, k);

	return left < PIECE_BYTES ? left : PIECE_BYTES;
}

static char *piece_buffer(const struct worker *w, uint32_t k)
{
	return w->buffer + (size_t)(k % PIECES_AHEAD) * PIECE_BYTES;
}

static void ask(struct worker *w, uint32_t k)
{
	struct piece *piece = &w->pieces[k % PIECES_AHEAD];
	size_t n = piece_bytes(w, k);
	struct io_uring_sqe *sqe;
	int fd = w->direct ? w->shards->direct_fd :
			     npu_file_fd(w->shards->file);

	/* Nothing done yet: pread(2) it is, unless the ring takes it. */
	*piece = (struct piece){ .state = PIECE_READ };
	sqe = w->has_ring ? io_uring_get_sqe(&w->ring) : NULL;
	if (!sqe)
		return;
	if (w->direct)
		n = (n + ALIGN - 1) / ALIGN * ALIGN;
	io_uring_prep_read(sqe, fd, piece_buffer(w, k), (unsigned int)n,
			   piece_begin(w, k));
	io_uring_sqe_set_data64(sqe, k % PIECES_AHEAD);
	piece->state = PIECE_UNDER_WAY;
}

static void ask_ahead(struct worker *w)
{
	uint32_t first = w->asked;

	while (w->asked < w->taken + PIECES_AHEAD &&
	       piece_begin(w, w->asked) < w->end)
		ask(w, w->asked++);
	if (w->has_ring && w->asked != first)
		io_uring_submit(&w->ring);
}

/*
 * Errors here are of the moment (EINTR, EAGAIN, EBUSY), and what is under way
 * is to be waited for in any case: it writes to our buffer.
 */
static void reap(struct worker *w)
{
	struct io_uring_cqe *cqe;

	io_uring_submit_and_wait(&w->ring, 1);
	while (!io_uring_peek_cqe(&w->ring, &cqe)) {
		struct piece *piece = &w->pieces[io_uring_cqe_get_data64(cqe)];

		piece->state = PIECE_READ;
		piece->result = cqe->res;
		io_uring_cqe_seen(&w->ring, cqe);
	}
}

static void await(struct worker *w, const struct piece *piece)
{
	while (piece->state == PIECE_UNDER_WAY)
		reap(w);
}

/* Not an error of this read alone: it can't be done past the page cache. */
static bool cannot(int result)
{
	return result == -EINVAL || result == -EOPNOTSUPP;
}

static int next_piece(struct npu_pieces *base, const void **data, size_t *size)
{
	struct worker *w = (struct worker *)base;
	uint32_t k = w->taken;
	struct piece *piece = &w->pieces[k % PIECES_AHEAD];
	size_t n = piece_bytes(w, k), have;
	int ret = 0;

	ask_ahead(w);
	await(w, piece);
	/* This buffer is asked for again once the next piece is taken. */
	w->taken = k + 1;
	have = piece->result > 0 ? (size_t)piece->result : 0;
	if (cannot(piece->result))
		w->direct = false;
	if (have < n)
		ret = npu_file_pread(w->shards->file, piece_buffer(w, k) + have,
				     n - have, piece_begin(w, k) + have);
	piece->state = PIECE_IDLE;
	*data = piece_buffer(w, k);
	*size = n;
	return ret;
}

static int read_shard(struct worker *w, struct npu_shard *shard)
{
	const struct npu_section *s =
		npu_file_section(w->shards->file, shard->section);
	uint32_t k;
	int ret;

	w->begin = s->offset;
	w->end = s->offset + s->stored_bytes;
	w->asked = w->taken = 0;
	ret = npu_file_decode_section(w->shards->file, shard->section, &w->base,
				      shard->dst, shard->cap);
	/* After an error some are still on their way to the buffer. */
	for (k = 0; k < PIECES_AHEAD; k++)
		await(w, &w->pieces[k]);
	return ret;
}

/* ---- Threads ---- */

/* Which list it is on; lock held, as for all that follow. */
static struct npu_shard_list *list_of(struct npu_shards *shards,
				      const struct npu_shard *shard)
{
	if (shard->state == NPU_SHARD_DONE)
		return &shards->done;
	return shard->urgent ? &shards->urgent : &shards->later;
}

static void put(struct npu_shards *shards, struct npu_shard *shard,
		enum npu_shard_state state)
{
	shard->state = state;
	TAILQ_INSERT_TAIL(list_of(shards, shard), shard, link);
}

static void take(struct npu_shards *shards, struct npu_shard *shard,
		 enum npu_shard_state state)
{
	TAILQ_REMOVE(list_of(shards, shard), shard, link);
	shard->state = state;
}

static struct npu_shard *first_waiting(const struct npu_shards *shards)
{
	struct npu_shard *shard = TAILQ_FIRST(&shards->urgent);

	return shard ? shard : TAILQ_FIRST(&shards->later);
}

static void tell(const struct npu_shards *shards)
{
	const uint64_t one = 1;

	/* Full: then it tells already. */
	while (write(shards->eventfd, &one, sizeof(one)) < 0 && errno == EINTR)
		continue;
}

static void work_off(struct npu_shards *shards, struct worker *w,
		     struct npu_shard *shard)
{
	int ret;

	take(shards, shard, NPU_SHARD_BEGUN);
	pthread_mutex_unlock(&shards->lock);
	ret = read_shard(w, shard);
	shard->message = ret ? strdup(npu_error()) : NULL;
	shard->error = ret;
	pthread_mutex_lock(&shards->lock);
	put(shards, shard, NPU_SHARD_DONE);
	tell(shards);
	pthread_cond_broadcast(&shards->arrival);
}

static void *worker_main(void *opaque)
{
	struct worker *w = opaque;
	struct npu_shards *shards = w->shards;
	struct npu_shard *shard;

	pthread_mutex_lock(&shards->lock);
	while (!shards->ending) {
		shard = first_waiting(shards);
		if (shard)
			work_off(shards, w, shard);
		else
			pthread_cond_wait(&shards->work, &shards->lock);
	}
	pthread_mutex_unlock(&shards->lock);
	return NULL;
}

static void clear_worker(struct worker *w)
{
	if (w->has_ring)
		io_uring_queue_exit(&w->ring);
	npu_pieces_clear(&w->base);
	free(w->buffer);
}

static int start_worker(struct npu_shards *shards)
{
	struct worker *w = &shards->workers[shards->worker_count];
	int ret;

	w->shards = shards;
	w->base.next = next_piece;
	w->buffer = aligned_alloc(ALIGN, (size_t)PIECES_AHEAD * PIECE_BYTES);
	if (!w->buffer)
		return npu_fail_memory();
	w->has_ring = !io_uring_queue_init(PIECES_AHEAD, &w->ring, 0);
	w->direct = w->has_ring && shards->direct_fd >= 0;
	ret = pthread_create(&w->thread, NULL, worker_main, w);
	if (ret) {
		clear_worker(w);
		return npu_fail(-ret, "cannot start a thread: %s",
				strerror(ret));
	}
	shards->worker_count++;
	return 0;
}

/* The program's signals are for its own threads. */
static int start_workers(struct npu_shards *shards)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint32_t want = cpus < 2 ? 2 : cpus < MAX_WORKERS ? (uint32_t)cpus :
							    MAX_WORKERS;
	sigset_t all, before;
	int ret = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (shards->worker_count < want && !ret)
		ret = start_worker(shards);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return shards->worker_count ? 0 : ret;
}

/* The file that is open, whatever has its name by now. */
static int open_direct(const struct npu_file *file)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", npu_file_fd(file));
	return open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
}

int npu_shards_create(const struct npu_file *file, struct npu_shards **out)
{
	struct npu_shards *shards = calloc(1, sizeof(*shards));
	int ret;

	if (!shards)
		return npu_fail_memory();
	shards->file = file;
	shards->direct_fd = open_direct(file);
	TAILQ_INIT(&shards->urgent);
	TAILQ_INIT(&shards->later);
	TAILQ_INIT(&shards->done);
	pthread_mutex_init(&shards->lock, NULL);
	pthread_cond_init(&shards->work, NULL);
	pthread_cond_init(&shards->arrival, NULL);
	shards->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (shards->eventfd < 0)
		ret = npu_fail(-errno, "cannot create an eventfd: %s",
			       strerror(errno));
	else
		ret = start_workers(shards);
	if (ret) {
		npu_shards_destroy(shards);
		return ret;
	}
	*out = shards;
	return 0;
}

void npu_shards_destroy(struct npu_shards *shards)
{
	struct npu_shard *shard;
	uint32_t i;

	if (!shards)
		return;
	pthread_mutex_lock(&shards->lock);
	shards->ending = true;
	pthread_cond_broadcast(&shards->work);
	pthread_mutex_unlock(&shards->lock);
	for (i = 0; i < shards->worker_count; i++) {
		pthread_join(shards->workers[i].thread, NULL);
		clear_worker(&shards->workers[i]);
	}
	TAILQ_FOREACH(shard, &shards->done, link)
		npu_shard_clear(shard);
	pthread_cond_destroy(&shards->arrival);
	pthread_cond_destroy(&shards->work);
	pthread_mutex_destroy(&shards->lock);
	if (shards->direct_fd >= 0)
		close(shards->direct_fd);
	if (shards->eventfd >= 0)
		close(shards->eventfd);
	free(shards);
}

/* ---- For the thread that wants them ---- */

int npu_shards_fd(const struct npu_shards *shards)
{
	return shards->eventfd;
}

void npu_shards_ask(struct npu_shards *shards, struct npu_shard *shard,
		    bool urgent)
{
	shard->error = 0;
	shard->message = NULL;
	shard->urgent = urgent;
	pthread_mutex_lock(&shards->lock);
	put(shards, shard, NPU_SHARD_WAITING);
	pthread_cond_signal(&shards->work);
	pthread_mutex_unlock(&shards->lock);
}

struct npu_shard *npu_shards_next(struct npu_shards *shards)
{
	struct npu_shard *shard;
	uint64_t count;

	pthread_mutex_lock(&shards->lock);
	shard = TAILQ_FIRST(&shards->done);
	if (shard)
		take(shards, shard, NPU_SHARD_IDLE);
	else if (read(shards->eventfd, &count, sizeof(count)) < 0)
		/* EAGAIN: nothing had been told. */
		errno = 0;
	pthread_mutex_unlock(&shards->lock);
	return shard;
}

static void hurry(struct npu_shards *shards, struct npu_shard *shard)
{
	if (shard->state != NPU_SHARD_WAITING || shard->urgent)
		return;
	take(shards, shard, NPU_SHARD_IDLE);
	shard->urgent = true;
	put(shards, shard, NPU_SHARD_WAITING);
}

void npu_shards_await(struct npu_shards *shards, struct npu_shard *shard)
{
	pthread_mutex_lock(&shards->lock);
	hurry(shards, shard);
	while (shard->state != NPU_SHARD_DONE)
		pthread_cond_wait(&shards->arrival, &shards->lock);
	take(shards, shard, NPU_SHARD_IDLE);
	pthread_mutex_unlock(&shards->lock);
}

bool npu_shards_drop(struct npu_shards *shards, struct npu_shard *shard)
{
	bool waiting;

	pthread_mutex_lock(&shards->lock);
	waiting = shard->state == NPU_SHARD_WAITING;
	if (waiting)
		take(shards, shard, NPU_SHARD_IDLE);
	pthread_mutex_unlock(&shards->lock);
	return waiting;
}

/* ---- Lists ---- */

int npu_shards_read(struct npu_shards *shards, struct npu_shard *list,
		    uint32_t count,
		    int (*each)(void *user, struct npu_shard *shard),
		    void *user)
{
	uint32_t i, rest;
	int ret = 0;

	for (i = 0; i < count; i++)
		npu_shards_ask(shards, &list[i], true);
	for (i = 0; i < count && !ret; i++) {
		npu_shards_await(shards, &list[i]);
		ret = each(user, &list[i]);
	}
	/* The last first: so those before it are not begun meanwhile. */
	for (rest = count; rest > i; rest--)
		if (!npu_shards_drop(shards, &list[rest - 1]))
			npu_shards_await(shards, &list[rest - 1]);
	for (i = 0; i < count; i++)
		npu_shard_clear(&list[i]);
	return ret;
}

int npu_shard_fail(const struct npu_shard *shard)
{
	if (!shard->message)
		return npu_fail(shard->error, "cannot read section %u: %s",
				shard->section, strerror(-shard->error));
	return npu_fail(shard->error, "%s", shard->message);
}

void npu_shard_clear(struct npu_shard *shard)
{
	free(shard->message);
	shard->message = NULL;
}
