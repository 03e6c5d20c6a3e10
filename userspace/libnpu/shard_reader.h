/* SPDX-License-Identifier: MIT */
/* Reads a section of a file by an io_uring of its own. For one thread. */
#ifndef NPU_SHARD_READER_H
#define NPU_SHARD_READER_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <npu/npu.h>
#include "npu_file_priv.h"

#define NPU_SHARD_PIECES	4	/* that are asked for at once */

enum npu_shard_piece_state {
	NPU_SHARD_PIECE_IDLE,
	NPU_SHARD_PIECE_ASKED,
	NPU_SHARD_PIECE_READ,
};

struct npu_shard_piece {
	enum npu_shard_piece_state state;
	int result;
};

struct npu_shard_reader {
	struct npu_pieces base;
	const struct npu_file *file;
	int direct_fd;
	/* If set, called before each piece; what it does holds up the reading. */
	void (*pause)(struct npu_shard_reader *reader);
	struct io_uring ring;
	bool has_ring, direct;
	char *buffer;			/* NPU_SHARD_PIECES pieces */
	struct npu_shard_piece pieces[NPU_SHARD_PIECES];
	/* Of the section that is read. */
	uint64_t begin, end;
	uint32_t asked, taken;		/* pieces */
};

/* @direct_fd: the file, to be read past the page cache; -1: cannot. -ENOMEM */
int npu_shard_reader_init(struct npu_shard_reader *reader,
			  const struct npu_file *file, int direct_fd);
/* Takes zeroed ones, too. */
void npu_shard_reader_clear(struct npu_shard_reader *reader);
/* Nothing is written to @dst after the return. Errors as npu_file_decode_section() */
int npu_shard_reader_read(struct npu_shard_reader *reader, uint32_t section,
			  void *dst, size_t cap);

#endif
