// SPDX-License-Identifier: MIT
/*
 * Threads and scratch memory of one struct m6_exec.
 *
 * A parallel section hands out item numbers from one counter. The thread that
 * runs the command works too, and at the end waits only for helpers that took
 * part: one that wakes late finds the section closed and sleeps on. So a busy
 * machine loses the help, not time.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "exec_priv.h"

/* Below this a section ends before a helper is awake. */
#define PARALLEL_MIN_MACS	(1u << 19)
#define MAX_THREADS		64u
/* What a scratch buffer may keep after the command that wanted more. */
#define SCRATCH_KEEP		(32ull << 20)

struct m6_pool {
	unsigned int threads;		/* helpers and the caller */
	unsigned int helpers;		/* started */
	pthread_t *helper;
	pthread_mutex_t lock;		/* of all up to the atomics */
	pthread_cond_t opened;
	pthread_cond_t left;
	uint64_t section;		/* counts sections */
	unsigned int inside;		/* helpers in the current one */
	unsigned int joined;		/* gives threads their numbers */
	bool open;
	bool quit;
	m6_item_fn fn;
	void *arg;
	uint32_t items;
	atomic_uint next;
	atomic_bool stop;
};

static void work(struct m6_pool *pool, unsigned int thread)
{
	while (!atomic_load_explicit(&pool->stop, memory_order_relaxed)) {
		uint32_t item = atomic_fetch_add(&pool->next, 1);

		if (item >= pool->items)
			return;
		pool->fn(pool->arg, item, thread);
	}
}

static void *helper_main(void *arg)
{
	struct m6_pool *pool = arg;
	uint64_t seen = 0;

	pthread_mutex_lock(&pool->lock);
	while (!pool->quit) {
		unsigned int thread;

		if (!pool->open || pool->section == seen) {
			pthread_cond_wait(&pool->opened, &pool->lock);
			continue;
		}
		seen = pool->section;
		pool->inside++;
		thread = ++pool->joined;
		pthread_mutex_unlock(&pool->lock);
		work(pool, thread);
		pthread_mutex_lock(&pool->lock);
		if (!--pool->inside)
			pthread_cond_signal(&pool->left);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

struct m6_pool *m6_pool_create(unsigned int threads)
{
	struct m6_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	threads = threads ? threads : 1;
	pool->threads = threads < MAX_THREADS ? threads : MAX_THREADS;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->opened, NULL);
	pthread_cond_init(&pool->left, NULL);
	pool->helper = calloc(pool->threads, sizeof(*pool->helper));
	while (pool->helper && pool->helpers + 1 < pool->threads) {
		if (pthread_create(&pool->helper[pool->helpers], NULL,
				   helper_main, pool))
			break;
		pool->helpers++;
	}
	if (!pool->helper || pool->helpers + 1 < pool->threads) {
		m6_pool_destroy(pool);
		return NULL;
	}
	return pool;
}

void m6_pool_destroy(struct m6_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->quit = true;
	pthread_cond_broadcast(&pool->opened);
	pthread_mutex_unlock(&pool->lock);
	while (pool->helpers)
		pthread_join(pool->helper[--pool->helpers], NULL);
	pthread_cond_destroy(&pool->left);
	pthread_cond_destroy(&pool->opened);
	pthread_mutex_destroy(&pool->lock);
	free(pool->helper);
	free(pool);
}

unsigned int m6_pool_threads(const struct m6_pool *pool)
{
	return pool->threads;
}

static void open_section(struct m6_pool *pool, uint32_t items, m6_item_fn fn,
			 void *arg)
{
	pthread_mutex_lock(&pool->lock);
	pool->fn = fn;
	pool->arg = arg;
	pool->items = items;
	pool->joined = 0;
	pool->section++;
	pool->open = true;
	atomic_store(&pool->next, 0);
	atomic_store(&pool->stop, false);
	pthread_cond_broadcast(&pool->opened);
	pthread_mutex_unlock(&pool->lock);
}

static void close_section(struct m6_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->open = false;
	while (pool->inside)
		pthread_cond_wait(&pool->left, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}

static uint32_t run_alone(struct m6_run *run, uint32_t items, m6_item_fn fn,
			  void *arg)
{
	for (uint32_t item = 0; item < items; item++) {
		if (m6_job_cancelled(run->job))
			return M6NPU_EXC_ABORTED;
		fn(arg, item, 0);
	}
	return 0;
}

/* Only the command's own thread asks the job; the others see @stop. */
uint32_t m6_parallel(struct m6_run *run, uint32_t items, uint64_t macs,
		     m6_item_fn fn, void *arg)
{
	struct m6_pool *pool = run->exec->pool;
	uint32_t code = 0;

	if (!pool->helpers || items < 2 || macs < PARALLEL_MIN_MACS)
		return run_alone(run, items, fn, arg);
	open_section(pool, items, fn, arg);
	for (;;) {
		uint32_t item;

		if (m6_job_cancelled(run->job)) {
			atomic_store(&pool->stop, true);
			code = M6NPU_EXC_ABORTED;
			break;
		}
		item = atomic_fetch_add(&pool->next, 1);
		if (item >= items)
			break;
		fn(arg, item, 0);
	}
	close_section(pool);
	return code;
}

void *m6_scratch(struct m6_exec *exec, enum m6_scratch which, uint64_t bytes)
{
	uint64_t rounded = (bytes + 4096) & ~(uint64_t)4095;

	if (exec->scratch[which].bytes < bytes || !exec->scratch[which].data) {
		free(exec->scratch[which].data);
		exec->scratch[which].data = aligned_alloc(64, rounded);
		exec->scratch[which].bytes =
			exec->scratch[which].data ? rounded : 0;
	}
	return exec->scratch[which].data;
}

void m6_scratch_trim(struct m6_exec *exec, enum m6_scratch which)
{
	if (exec->scratch[which].bytes <= SCRATCH_KEEP)
		return;
	free(exec->scratch[which].data);
	exec->scratch[which].data = NULL;
	exec->scratch[which].bytes = 0;
}
