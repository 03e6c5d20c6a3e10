// SPDX-License-Identifier: MIT
#include "request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct request *request_create(void)
{
	struct request *request = calloc(1, sizeof(*request));
	pthread_condattr_t attr;

	if (!request)
		return NULL;
	atomic_init(&request->references, 1);
	request->client_fd = -1;
	request->created = (int64_t)time(NULL);
	request->timing.arrived_ns = monotonic_ns();
	pthread_mutex_init(&request->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&request->changed, &attr);
	pthread_condattr_destroy(&attr);
	return request;
}

struct request *request_get(struct request *request)
{
	atomic_fetch_add(&request->references, 1);
	return request;
}

void request_put(struct request *request)
{
	if (!request || atomic_fetch_sub(&request->references, 1) != 1)
		return;
	for (uint32_t i = 0; i < request->stop_count; i++)
		free(request->stops[i]);
	text_filter_release(&request->filter);
	sampler_destroy(request->sampler);
	pthread_cond_destroy(&request->changed);
	pthread_mutex_destroy(&request->lock);
	free(request->logprob_entries);
	free(request->text);
	free(request->prompt);
	free(request);
}

/* Doubles *@room until @need elements fit. Returns the new array or NULL. */
static void *grow(void *array, size_t *room, size_t need, size_t element)
{
	size_t wanted = *room ? *room : 256;

	while (wanted < need)
		wanted *= 2;
	if (wanted == *room)
		return array;
	array = realloc(array, wanted * element);
	if (array)
		*room = wanted;
	return array;
}

static void fail_locked(struct request *request, int error, const char *text)
{
	if (request->finish != FINISH_NONE)
		return;
	request->finish = FINISH_ERROR;
	request->error = error;
	snprintf(request->error_text, sizeof(request->error_text), "%s", text);
}

void request_append_text(void *opaque, const char *text, size_t bytes)
{
	struct request *request = opaque;
	char *grown;

	pthread_mutex_lock(&request->lock);
	grown = grow(request->text, &request->text_room,
		     request->text_bytes + bytes, 1);
	if (grown) {
		request->text = grown;
		memcpy(request->text + request->text_bytes, text, bytes);
		request->text_bytes += bytes;
	} else {
		fail_locked(request, -ENOMEM, "out of memory");
	}
	pthread_cond_signal(&request->changed);
	pthread_mutex_unlock(&request->lock);
}

void request_append_logprob(struct request *request,
			    const struct logprob_entry *entry)
{
	struct logprob_entry *grown;
	size_t room;

	pthread_mutex_lock(&request->lock);
	room = request->logprob_room;
	grown = grow(request->logprob_entries, &room,
		     (size_t)request->logprob_count + 1, sizeof(*entry));
	if (grown) {
		request->logprob_entries = grown;
		request->logprob_room = (uint32_t)room;
		request->logprob_entries[request->logprob_count++] = *entry;
	} else {
		fail_locked(request, -ENOMEM, "out of memory");
	}
	pthread_mutex_unlock(&request->lock);
}

void request_end(struct request *request, enum request_finish finish,
		 int error, const char *error_text)
{
	pthread_mutex_lock(&request->lock);
	if (finish == FINISH_ERROR)
		fail_locked(request, error, error_text);
	else if (request->finish == FINISH_NONE)
		request->finish = finish;
	pthread_cond_signal(&request->changed);
	pthread_mutex_unlock(&request->lock);
}

void request_wait(struct request *request, size_t seen, int timeout_ms)
{
	uint64_t until = monotonic_ns() + (uint64_t)timeout_ms * 1000000u;
	struct timespec deadline = {
		.tv_sec = (time_t)(until / 1000000000u),
		.tv_nsec = (long)(until % 1000000000u),
	};
	int err = 0;

	pthread_mutex_lock(&request->lock);
	while (!err && request->finish == FINISH_NONE &&
	       request->text_bytes <= seen)
		err = pthread_cond_timedwait(&request->changed, &request->lock,
					     &deadline);
}
