/* SPDX-License-Identifier: MIT */
/*
 * Reading of sections by several threads, each of which has several reads
 * under way.
 */
#ifndef NPU_SHARDS_H
#define NPU_SHARDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include "npu_file.h"

enum npu_shard_state {
	NPU_SHARD_IDLE,
	NPU_SHARD_WAITING,
	NPU_SHARD_BEGUN,
	NPU_SHARD_DONE,
};

struct npu_shard {
	uint32_t section;
	void *dst;
	size_t cap;
	/* Out */
	int error;
	char *message;		/* of the error; NULL: no memory for one */
	/* Of shards.c */
	enum npu_shard_state state;
	bool urgent;
	TAILQ_ENTRY(npu_shard) link;
};

TAILQ_HEAD(npu_shard_list, npu_shard);

struct npu_shards;

/* Threads that wait for work. @file is only read, and lives as long. */
int npu_shards_create(const struct npu_file *file, struct npu_shards **shards);
/* Takes NULL. Nothing is written to any dst after the return. */
void npu_shards_destroy(struct npu_shards *shards);

/*
 * Has @shard read and decoded: before all that are not urgent, or after them.
 * It is idle before, and again when one of the next three has given it back.
 */
void npu_shards_ask(struct npu_shards *shards, struct npu_shard *shard,
		    bool urgent);
/* One that is done, good or failed, or NULL. */
struct npu_shard *npu_shards_next(struct npu_shards *shards);
/* Makes @shard urgent, and waits until it is done. */
void npu_shards_await(struct npu_shards *shards, struct npu_shard *shard);
/* True: it was not begun, and will not be. */
bool npu_shards_drop(struct npu_shards *shards, struct npu_shard *shard);
/* Has input to poll for until npu_shards_next() has given all that are done. */
int npu_shards_fd(const struct npu_shards *shards);

/*
 * Reads and decodes @list. @each is called in this thread and in the list's
 * order, whatever the order they come in, for good and failed ones alike; what
 * it returns other than 0 ends the rest and is returned. Nothing is written to
 * any dst after the return.
 */
int npu_shards_read(struct npu_shards *shards, struct npu_shard *list,
		    uint32_t count,
		    int (*each)(void *user, struct npu_shard *shard),
		    void *user);
/* Sets npu_error() to what went wrong with @shard, and returns its error. */
int npu_shard_fail(const struct npu_shard *shard);
/* Forgets it. */
void npu_shard_clear(struct npu_shard *shard);

#endif
