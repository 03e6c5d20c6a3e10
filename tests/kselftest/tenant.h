/* SPDX-License-Identifier: GPL-2.0-only */
/* Buffers that can be told from each other, for tests that move them. */
#ifndef M6_TEST_TENANT_H
#define M6_TEST_TENANT_H

#include "board.h"
#include "checker.h"

struct tenant {
	struct buffer buffer;
	uint64_t seed;
	bool readonly; /* for the device */
	const void *view; /* of the same, read-only for us */
};

/* A buffer of random size with contents that tell who lives there. */
int tenant_move_in(int fd, uint32_t pool, struct tenant *tenant,
		   struct rng *rng);
void tenant_move_out(int fd, struct tenant *tenant);
/* Contents as they were, by both mappings, and all else as well. */
bool tenant_is_right(int fd, const struct tenant *tenant);

#endif
