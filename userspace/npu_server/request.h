/* SPDX-License-Identifier: MIT */
/*
 * One completion request, shared by the connection's thread, which made it and
 * sends what comes out, and the engine's thread, which fills it.
 */
#ifndef NPU_SERVER_REQUEST_H
#define NPU_SERVER_REQUEST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sampler.h"
#include "text.h"

#define REQUEST_MAX_STOPS	16
#define REQUEST_MAX_STOP_BYTES	256
#define REQUEST_MAX_TOP_LOGPROBS 20

enum request_finish {
	FINISH_NONE,
	FINISH_STOP,		/* end-of-sequence token or a stop string */
	FINISH_LENGTH,		/* max_tokens or the end of the context */
	FINISH_CANCELLED,
	FINISH_ERROR,
};

struct token_logprob {
	int32_t token;
	float logprob;
};

/* Log probabilities of one generated token and its rivals. */
struct logprob_entry {
	struct token_logprob chosen;
	struct token_logprob top[REQUEST_MAX_TOP_LOGPROBS];
	uint32_t top_count;
	uint32_t offset;	/* characters of the answer before it */
};

struct request_timing {
	uint64_t arrived_ns;	/* CLOCK_MONOTONIC, as the following */
	uint64_t started_ns;	/* got a slot */
	uint64_t first_token_ns;
	uint64_t ended_ns;
	uint64_t prompt_device_ns;	/* modelled device time up to the first token */
	uint64_t decode_device_ns;	/* and after it */
};

struct request {
	/* Set before the engine sees it, constant then. */
	char id[40];
	int64_t created;	/* seconds since the epoch */
	bool chat;
	bool stream;
	bool include_usage;
	bool logprobs;
	uint32_t top_logprobs;
	uint32_t max_tokens;
	struct sampling sampling;
	char *stops[REQUEST_MAX_STOPS];
	uint32_t stop_count;
	int32_t *prompt;
	uint32_t prompt_count;
	int client_fd;

	atomic_bool cancelled;
	atomic_int references;

	pthread_mutex_t lock;	/* guards the following, @changed tells */
	pthread_cond_t changed;
	char *text;		/* all that may be shown so far, valid UTF-8 */
	size_t text_bytes;
	size_t text_room;
	struct logprob_entry *logprob_entries;
	uint32_t logprob_count;
	uint32_t logprob_room;
	uint32_t generated;
	enum request_finish finish;
	int error;		/* negative errno with FINISH_ERROR */
	char error_text[512];	/* of npu_error(), path and all */
	struct request_timing timing;

	/* The engine's own. */
	struct sampler *sampler;
	struct text_filter filter;
	uint32_t slot;
	uint32_t position;	/* tokens that are in the KV cache */
	uint32_t characters;	/* in the answer's tokens so far */
	int32_t next_token;	/* last sampled one, not yet in the cache */
	struct request *next;	/* in the queue */
};

/* NULL: out of memory. The caller holds one reference. */
struct request *request_create(void);
struct request *request_get(struct request *request);
void request_put(struct request *request);

/* By the engine. Out of memory ends the request with FINISH_ERROR. */
void request_append_text(void *request, const char *text, size_t bytes);
void request_append_logprob(struct request *request,
			    const struct logprob_entry *entry);
void request_end(struct request *request, enum request_finish finish,
		 int error, const char *error_text);

/*
 * Waits until there is text beyond @seen bytes or the request ended, at most
 * @timeout_ms. Returns with the lock held, so that the caller can look.
 */
void request_wait(struct request *request, size_t seen, int timeout_ms);

uint64_t monotonic_ns(void);

#endif
