// SPDX-License-Identifier: MIT
/*
 * Reading of sections by several threads. They take what is urgent first, also
 * in the middle of what is not; what is done waits on a list, of which an eventfd
 * tells, until it is asked for.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <npu/npu.h>
#include "error.h"
#include "shard_reader.h"
#include "shards.h"

#define MAX_WORKERS	4

struct worker {
	struct npu_shard_reader reader;	/* first, so that it leads here */
	struct npu_shard_reader between;	/* for what is urgent meanwhile */
	struct npu_shard *shard;	/* what the first one reads */
	struct npu_shards *shards;
	pthread_t thread;
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
	uint32_t pressing;		/* urgent ones that are not done */
	bool ending;
};

/* ---- Threads ---- */

/* Which list it is on; lock held, as for all that follow. */
static struct npu_shard_list *list_of(struct npu_shards *shards,
				      const struct npu_shard *shard)
{
	if (shard->state == NPU_SHARD_DONE)
		return &shards->done;
	return shard->urgent ? &shards->urgent : &shards->later;
}

/* Urgent ones are pressing until they are done, or given up. */
static void press(struct npu_shards *shards, int by)
{
	shards->pressing += by;
	pthread_cond_broadcast(&shards->work);
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

static void work_off(struct npu_shards *shards, struct npu_shard_reader *reader,
		     struct npu_shard *shard)
{
	int ret;

	take(shards, shard, NPU_SHARD_BEGUN);
	pthread_mutex_unlock(&shards->lock);
	ret = npu_shard_reader_read(reader, shard->section, shard->dst,
				    shard->cap);
	shard->message = ret ? strdup(npu_error()) : NULL;
	shard->error = ret;
	pthread_mutex_lock(&shards->lock);
	if (shard->urgent)
		press(shards, -1);
	put(shards, shard, NPU_SHARD_DONE);
	tell(shards);
	pthread_cond_broadcast(&shards->arrival);
}

/* What is not urgent waits for all that is, or helps. */
static void give_way(struct npu_shard_reader *reader)
{
	struct worker *w = (struct worker *)reader;
	struct npu_shards *shards = w->shards;
	struct npu_shard *first;

	pthread_mutex_lock(&shards->lock);
	while (!w->shard->urgent && shards->pressing && !shards->ending) {
		first = TAILQ_FIRST(&shards->urgent);
		if (first)
			work_off(shards, &w->between, first);
		else
			pthread_cond_wait(&shards->work, &shards->lock);
	}
	pthread_mutex_unlock(&shards->lock);
}

static void *worker_main(void *opaque)
{
	struct worker *w = opaque;
	struct npu_shards *shards = w->shards;

	pthread_mutex_lock(&shards->lock);
	while (!shards->ending) {
		w->shard = first_waiting(shards);
		if (w->shard)
			work_off(shards, &w->reader, w->shard);
		else
			pthread_cond_wait(&shards->work, &shards->lock);
	}
	pthread_mutex_unlock(&shards->lock);
	return NULL;
}

static void clear_worker(struct worker *w)
{
	npu_shard_reader_clear(&w->reader);
	npu_shard_reader_clear(&w->between);
}

static int init_worker(struct npu_shards *shards, struct worker *w)
{
	int ret;

	w->shards = shards;
	ret = npu_shard_reader_init(&w->reader, shards->file,
				    shards->direct_fd);
	if (!ret)
		ret = npu_shard_reader_init(&w->between, shards->file,
					    shards->direct_fd);
	w->reader.pause = give_way;
	return ret;
}

static int start_worker(struct npu_shards *shards)
{
	struct worker *w = &shards->workers[shards->worker_count];
	int ret, error;

	ret = init_worker(shards, w);
	if (!ret) {
		error = pthread_create(&w->thread, NULL, worker_main, w);
		if (error)
			ret = npu_fail(-error, "cannot start a thread: %s",
				       strerror(error));
	}
	if (ret)
		clear_worker(w);
	else
		shards->worker_count++;
	return ret;
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
	/* All: one that stands still has no use for what is not urgent. */
	press(shards, urgent);
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
	if (shard->state == NPU_SHARD_DONE || shard->urgent)
		return;
	if (shard->state == NPU_SHARD_WAITING)
		TAILQ_REMOVE(&shards->later, shard, link);
	shard->urgent = true;
	if (shard->state == NPU_SHARD_WAITING)
		TAILQ_INSERT_TAIL(&shards->urgent, shard, link);
	press(shards, 1);
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
	if (waiting && shard->urgent)
		press(shards, -1);
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
