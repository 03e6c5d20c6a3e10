// SPDX-License-Identifier: MIT
/*
 * Each turn of the loop: drop requests whose client went away, give free
 * slots to waiting requests, then run one step. A step carries one token of
 * every slot that generates, and fills the tile with prompt tokens of slots
 * that don't yet. Slots don't see each other, so who else is in a step changes
 * nothing in anybody's result.
 */
#include "engine.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"

/*
 * While others generate, a prompt enters in pieces of this size, so that
 * they wait for no more than that.
 */
#define PREFILL_BESIDE_DECODE 64

struct engine {
	struct npu_device *device;
	struct npu_model *model;
	const struct npu_tokenizer *tokenizer;
	struct npu_model_info info;
	struct engine_options options;
	struct metrics *metrics;
	pthread_t thread;

	pthread_mutex_t lock;	/* guards the following */
	pthread_cond_t work;	/* for the thread: there is something to do */
	pthread_cond_t idle;	/* from the thread: one request less */
	struct request *head, *tail;
	uint32_t queued;
	uint32_t busy;
	bool stopping;
	atomic_bool cancel_all;	/* read without the lock */

	/* The thread's own. */
	uint32_t turn;			/* slot that comes first in a step */
	struct request **slots;
	struct npu_step_token *tokens;
	struct request **owners;	/* whose the out rows are */
	struct pollfd *fds;
	struct request **polled;
};

static uint32_t active(const struct engine *engine)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < engine->info.slots; i++)
		count += engine->slots[i] != NULL;
	return count;
}

static void publish_busy(struct engine *engine)
{
	pthread_mutex_lock(&engine->lock);
	engine->busy = active(engine);
	pthread_cond_signal(&engine->idle);
	pthread_mutex_unlock(&engine->lock);
}

static void finish(struct engine *engine, struct request *request,
		   enum request_finish reason, int error, const char *text)
{
	if (reason == FINISH_STOP || reason == FINISH_LENGTH)
		text_filter_flush(&request->filter);
	if (engine->slots[request->slot] == request)
		engine->slots[request->slot] = NULL;
	publish_busy(engine);
	/* Counted before the client can see the end and ask for the figures. */
	request->timing.ended_ns = monotonic_ns();
	metrics_request_ended(engine->metrics, request, reason);
	request_end(request, reason, error, text);
	log_debug("%s: ended, %u prompt tokens, %u generated", request->id,
		  request->prompt_count, request->generated);
	request_put(request);
}

static bool hung_up(const struct pollfd *fd)
{
	return fd->revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL);
}

/*
 * Marks requests whose client closed the connection. The connection's thread
 * can't: it sleeps until there is something to send.
 */
static void find_disconnected(struct engine *engine)
{
	uint32_t count = 0;

	pthread_mutex_lock(&engine->lock);
	for (struct request *r = engine->head; r; r = r->next)
		engine->polled[count++] = r;
	pthread_mutex_unlock(&engine->lock);
	for (uint32_t i = 0; i < engine->info.slots; i++)
		if (engine->slots[i])
			engine->polled[count++] = engine->slots[i];
	for (uint32_t i = 0; i < count; i++)
		engine->fds[i] = (struct pollfd){
			.fd = engine->polled[i]->client_fd,
			.events = POLLRDHUP,
		};
	if (poll(engine->fds, count, 0) <= 0)
		return;
	for (uint32_t i = 0; i < count; i++)
		if (hung_up(&engine->fds[i]))
			atomic_store(&engine->polled[i]->cancelled, true);
}

static bool unwanted(const struct engine *engine, const struct request *r)
{
	return engine->cancel_all || atomic_load(&r->cancelled);
}

/* Takes the first request off the queue that fits @want. Lock held. */
static struct request *dequeue_locked(struct engine *engine, bool cancelled)
{
	struct request **link = &engine->head, *before = NULL;

	while (*link && cancelled && !unwanted(engine, *link)) {
		before = *link;
		link = &(*link)->next;
	}
	if (!*link)
		return NULL;

	struct request *request = *link;

	*link = request->next;
	if (engine->tail == request)
		engine->tail = before;
	request->next = NULL;
	engine->queued--;
	return request;
}

static struct request *dequeue(struct engine *engine, bool cancelled)
{
	struct request *request;

	pthread_mutex_lock(&engine->lock);
	request = dequeue_locked(engine, cancelled);
	/* On its way to a slot: engine_stop() must not find it in neither. */
	if (request && !cancelled)
		engine->busy++;
	pthread_mutex_unlock(&engine->lock);
	return request;
}

static void drop_cancelled(struct engine *engine)
{
	struct request *request;

	find_disconnected(engine);
	while ((request = dequeue(engine, true))) {
		/* It has no slot: make finish() find none of its own. */
		request->slot = 0;
		finish(engine, request, FINISH_CANCELLED, 0, "");
	}
	for (uint32_t i = 0; i < engine->info.slots; i++) {
		request = engine->slots[i];
		if (request && unwanted(engine, request))
			finish(engine, request, FINISH_CANCELLED, 0, "");
	}
}

static void admit(struct engine *engine)
{
	for (uint32_t i = 0; i < engine->info.slots; i++) {
		struct request *request;

		if (engine->slots[i])
			continue;
		request = dequeue(engine, false);
		if (!request)
			break;
		request->slot = i;
		request->timing.started_ns = monotonic_ns();
		engine->slots[i] = request;
		request->sampler = sampler_create(&request->sampling,
						  engine->info.vocab);
		if (!request->sampler)
			finish(engine, request, FINISH_ERROR, -ENOMEM,
			       "out of memory");
	}
	publish_busy(engine);
}

static bool generating(const struct request *request)
{
	return request->position >= request->prompt_count;
}

/* Tokens of a step, and whose the rows of its results are. */
struct batch {
	uint32_t first, count;		/* of the engine's tokens */
	uint32_t first_out, outs;	/* of its owners */
};

static void add_token(struct engine *engine, struct batch *batch,
		      struct request *request, int32_t token, uint32_t position,
		      bool out)
{
	engine->tokens[batch->count++] = (struct npu_step_token){
		.token = token,
		.position = position,
		.slot = request->slot,
		.out = out,
	};
	if (out)
		engine->owners[batch->outs++] = request;
}

/* The slots in the order of this step, which begins at another one each time. */
static struct request *slot_in_turn(const struct engine *engine, uint32_t i)
{
	return engine->slots[(engine->turn + i) % engine->info.slots];
}

static void add_generating(struct engine *engine, struct batch *batch,
			   uint32_t max_outs)
{
	for (uint32_t i = 0; i < engine->info.slots; i++) {
		struct request *r = slot_in_turn(engine, i);

		if (r && generating(r) && batch->outs < max_outs &&
		    batch->count < engine->info.max_tile)
			add_token(engine, batch, r, r->next_token, r->position,
				  true);
	}
}

static void add_prompts(struct engine *engine, struct batch *batch,
			uint32_t room)
{
	for (uint32_t i = 0; i < engine->info.slots && room; i++) {
		struct request *r = slot_in_turn(engine, i);

		if (!r || generating(r) || batch->outs == engine->info.max_out)
			continue;
		for (uint32_t p = r->position; p < r->prompt_count && room;
		     p++, room--)
			add_token(engine, batch, r, r->prompt[p], p,
				  p + 1 == r->prompt_count);
	}
}

static bool any_prompt(const struct engine *engine)
{
	for (uint32_t i = 0; i < engine->info.slots; i++)
		if (engine->slots[i] && !generating(engine->slots[i]))
			return true;
	return false;
}

/*
 * There may be more slots than rows of results, or tokens, in a step. Slots take
 * turns then, and a prompt finds a row free, so that nobody waits for somebody
 * else's answer to end.
 */
static void build_batch(struct engine *engine, struct batch *batch)
{
	const struct npu_model_info *info = &engine->info;
	uint32_t most = info->max_out < info->max_tile ? info->max_out :
							 info->max_tile;
	uint32_t spare = any_prompt(engine), room;

	*batch = (struct batch){ 0 };
	add_generating(engine, batch, most - spare);
	room = info->max_tile - batch->count;
	if (batch->count && room > PREFILL_BESIDE_DECODE)
		room = PREFILL_BESIDE_DECODE;
	add_prompts(engine, batch, room);
	engine->turn = (engine->turn + 1) % info->slots;
}

static bool is_eos(const struct engine *engine, int32_t token)
{
	for (uint32_t i = 0; i < engine->info.eos_count; i++)
		if (engine->info.eos_tokens[i] == token)
			return true;
	return false;
}

/* The @count best of @logits, best first, equals by their ids. */
static void rank_rivals(struct engine *engine, const float *logits,
			struct logprob_entry *entry, uint32_t count)
{
	const struct token_logprob chosen = entry->chosen;
	struct token_logprob *top = entry->top;

	for (uint32_t i = 0; count && i < engine->info.vocab; i++) {
		uint32_t k = entry->top_count;

		if (k < count)
			entry->top_count++;
		else if (logits[i] > logits[top[k - 1].token])
			k--;
		else
			continue;
		for (; k && logits[i] > logits[top[k - 1].token]; k--)
			top[k] = top[k - 1];
		top[k].token = (int32_t)i;
	}
	for (uint32_t k = 0; k < entry->top_count; k++)
		top[k].logprob = chosen.logprob + (logits[top[k].token] -
						   logits[chosen.token]);
}

static void record_logprob(struct engine *engine, struct request *request,
			   const float *logits, int32_t token)
{
	struct logprob_entry entry = {
		.chosen = {
			.token = token,
			.logprob = logits_logprob(logits, engine->info.vocab,
						  token),
		},
		.offset = request->characters,
	};

	rank_rivals(engine, logits, &entry, request->top_logprobs);
	request_append_logprob(request, &entry);
}

/* A sampled token: to the client, and on, or the end. */
static void take_token(struct engine *engine, struct request *request,
		       const float *logits)
{
	int32_t token = sampler_next(request->sampler, logits);
	char bytes[512];
	int count, stopped;

	if (!request->generated)
		request->timing.first_token_ns = monotonic_ns();
	if (is_eos(engine, token)) {
		finish(engine, request, FINISH_STOP, 0, "");
		return;
	}
	if (request->logprobs)
		record_logprob(engine, request, logits, token);
	request->generated++;
	metrics_token(engine->metrics);
	request->next_token = token;
	count = npu_detokenize(engine->tokenizer, token, 0, bytes,
			       sizeof(bytes));
	if (count < 0 || (size_t)count > sizeof(bytes))
		count = 0;
	for (int i = 0; i < count; i++)
		request->characters += (bytes[i] & 0xc0) != 0x80;
	stopped = text_filter_push(&request->filter, bytes, (size_t)count);
	if (stopped < 0)
		finish(engine, request, FINISH_ERROR, stopped, "out of memory");
	else if (stopped)
		finish(engine, request, FINISH_STOP, 0, "");
	else if (request->generated >= request->max_tokens ||
		 request->position >= engine->info.max_seq)
		finish(engine, request, FINISH_LENGTH, 0, "");
}

/* Books a step that went well. */
static void advance(struct engine *engine, const struct batch *batch,
		    const struct npu_step_result *result)
{
	const struct npu_step_token *tokens = engine->tokens + batch->first;

	for (uint32_t i = 0; i < batch->count; i++)
		engine->slots[tokens[i].slot]->position =
			tokens[i].position + 1;
	for (uint32_t i = 0; i < engine->info.slots; i++) {
		struct request *r = engine->slots[i];

		if (!r)
			continue;
		if (r->generated)
			r->timing.decode_device_ns += result->device_ns;
		else
			r->timing.prompt_device_ns += result->device_ns;
	}
	for (uint32_t i = 0; i < batch->outs; i++)
		take_token(engine, engine->owners[batch->first_out + i],
			   result->logits + (size_t)i * engine->info.vocab);
}

/* Nothing of a step that failed counts: its tokens may run once more. */
static int try_batch(struct engine *engine, const struct batch *batch)
{
	struct npu_step_result result;
	int err = npu_model_step(engine->model, engine->tokens + batch->first,
				 batch->count, &result);

	if (err) {
		log_error("step of %u tokens failed: %s", batch->count,
			  npu_error());
		metrics_step_failed(engine->metrics);
		return err;
	}
	metrics_step(engine->metrics, batch->count, &result);
	advance(engine, batch, &result);
	return 0;
}

/* Right after npu_error() was set. */
static void fail_batch(struct engine *engine, const struct batch *batch,
		       int error)
{
	char text[sizeof(((struct request *)0)->error_text)];

	snprintf(text, sizeof(text), "%s", npu_error());
	for (uint32_t i = 0; i < batch->count; i++) {
		uint32_t slot = engine->tokens[batch->first + i].slot;

		if (engine->slots[slot])
			finish(engine, engine->slots[slot], FINISH_ERROR,
			       error, text);
	}
}

/* Makes @one the tokens of @batch that follow it and are of one slot. */
static bool next_alone(const struct engine *engine, const struct batch *batch,
		       struct batch *one)
{
	const struct npu_step_token *tokens = engine->tokens;
	uint32_t end = batch->first + batch->count;

	*one = (struct batch){
		.first = one->first + one->count,
		.first_out = one->first_out + one->outs,
	};
	for (uint32_t i = one->first; i < end; i++) {
		if (tokens[i].slot != tokens[one->first].slot)
			break;
		one->count++;
		one->outs += tokens[i].out;
	}
	return one->count;
}

/*
 * The step that they shared failed, perhaps for what one of them needed: an
 * expert that cannot be read, say. Who fails alone as well ends; each is tried
 * once. When the device is gone the rest need not try.
 */
static void run_alone(struct engine *engine, const struct batch *batch)
{
	struct batch one = { .first = batch->first };
	int err = 0;

	while (next_alone(engine, batch, &one)) {
		if (err == -ENODEV) {
			fail_batch(engine, &one, err);
			continue;
		}
		/* The step may have taken long. */
		drop_cancelled(engine);
		if (!engine->slots[engine->tokens[one.first].slot])
			continue;
		err = try_batch(engine, &one);
		if (err)
			fail_batch(engine, &one, err);
	}
}

static bool of_one_slot(const struct engine *engine, const struct batch *batch)
{
	struct batch one = { .first = batch->first };

	return next_alone(engine, batch, &one) && one.count == batch->count;
}

static void run_step(struct engine *engine)
{
	struct batch batch;
	int err;

	build_batch(engine, &batch);
	if (!batch.count)
		return;
	err = try_batch(engine, &batch);
	if (!err)
		return;
	if (err == -ENODEV || of_one_slot(engine, &batch))
		fail_batch(engine, &batch, err);
	else
		run_alone(engine, &batch);
}

/* False: time to end. */
static bool wait_for_work(struct engine *engine)
{
	bool go_on;

	pthread_mutex_lock(&engine->lock);
	while (!engine->head && !engine->busy && !engine->stopping)
		pthread_cond_wait(&engine->work, &engine->lock);
	go_on = engine->head || engine->busy || !engine->stopping;
	pthread_mutex_unlock(&engine->lock);
	return go_on;
}

static void *engine_main(void *opaque)
{
	struct engine *engine = opaque;

	while (wait_for_work(engine)) {
		drop_cancelled(engine);
		admit(engine);
		run_step(engine);
	}
	return NULL;
}

int engine_submit(struct engine *engine, struct request *request)
{
	int err = 0;

	text_filter_init(&request->filter, request->stops, request->stop_count,
			 request_append_text, request);
	pthread_mutex_lock(&engine->lock);
	if (engine->stopping)
		err = -ESHUTDOWN;
	else if (engine->queued >= engine->options.queue_limit &&
		 engine->busy + engine->queued >= engine->info.slots)
		err = -EAGAIN;
	if (!err) {
		request_get(request);
		if (engine->tail)
			engine->tail->next = request;
		else
			engine->head = request;
		engine->tail = request;
		engine->queued++;
		pthread_cond_signal(&engine->work);
	}
	pthread_mutex_unlock(&engine->lock);
	return err;
}

void engine_state(struct engine *engine, struct engine_state *state)
{
	pthread_mutex_lock(&engine->lock);
	*state = (struct engine_state){
		.slots = engine->info.slots,
		.busy = engine->busy,
		.queued = engine->queued,
		.stopping = engine->stopping,
	};
	pthread_mutex_unlock(&engine->lock);
}

static void release(struct engine *engine)
{
	pthread_cond_destroy(&engine->idle);
	pthread_cond_destroy(&engine->work);
	pthread_mutex_destroy(&engine->lock);
	free(engine->slots);
	free(engine->tokens);
	free(engine->owners);
	free(engine->fds);
	free(engine->polled);
	free(engine);
}

int engine_create(struct npu_device *device, struct npu_model *model,
		  const struct engine_options *options, struct metrics *metrics,
		  struct engine **out)
{
	struct engine *engine = calloc(1, sizeof(*engine));
	pthread_condattr_t attr;
	size_t most;
	int err;

	if (!engine)
		return -ENOMEM;
	engine->device = device;
	engine->model = model;
	engine->tokenizer = npu_model_tokenizer(model);
	engine->options = *options;
	engine->metrics = metrics;
	npu_model_info(model, &engine->info);
	pthread_mutex_init(&engine->lock, NULL);
	pthread_cond_init(&engine->work, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&engine->idle, &attr);
	pthread_condattr_destroy(&attr);
	/* A free slot may take one beyond the queue before it is admitted. */
	most = (size_t)engine->info.slots * 2 + options->queue_limit;
	engine->slots = calloc(engine->info.slots, sizeof(*engine->slots));
	engine->tokens = calloc(engine->info.max_tile, sizeof(*engine->tokens));
	engine->owners = calloc(engine->info.max_tile, sizeof(*engine->owners));
	engine->fds = calloc(most, sizeof(*engine->fds));
	engine->polled = calloc(most, sizeof(*engine->polled));
	if (!engine->slots || !engine->tokens || !engine->owners ||
	    !engine->fds || !engine->polled) {
		release(engine);
		return -ENOMEM;
	}
	err = -pthread_create(&engine->thread, NULL, engine_main, engine);
	if (err) {
		release(engine);
		return err;
	}
	*out = engine;
	return 0;
}

/* Waits until nothing is left to do, or for @grace_ms. Lock held. */
static void drain_locked(struct engine *engine, int grace_ms)
{
	uint64_t until = monotonic_ns() + (uint64_t)grace_ms * 1000000u;
	struct timespec deadline = {
		.tv_sec = (time_t)(until / 1000000000u),
		.tv_nsec = (long)(until % 1000000000u),
	};
	int err = 0;

	while (!err && (engine->busy || engine->queued))
		err = pthread_cond_timedwait(&engine->idle, &engine->lock,
					     &deadline);
}

void engine_stop(struct engine *engine, int grace_ms)
{
	pthread_mutex_lock(&engine->lock);
	engine->stopping = true;
	pthread_cond_signal(&engine->work);
	drain_locked(engine, grace_ms);
	engine->cancel_all = true;
	pthread_cond_signal(&engine->work);
	pthread_mutex_unlock(&engine->lock);
	pthread_join(engine->thread, NULL);
}

void engine_destroy(struct engine *engine)
{
	if (engine)
		release(engine);
}
