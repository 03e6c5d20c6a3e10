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
#include "npu_file.h"

struct npu_shard {
	uint32_t section;
	void *dst;
	size_t cap;
	/* Out */
	bool done;
	int error;
	char *message;		/* of the error; NULL: no memory for one */
};

struct npu_shards;

/* Threads that wait for work. @file is only read, and lives as long. */
int npu_shards_create(const struct npu_file *file, struct npu_shards **shards);
/* Takes NULL. */
void npu_shards_destroy(struct npu_shards *shards);

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
int npu_shard_fail(struct npu_shard *shard);

#endif
