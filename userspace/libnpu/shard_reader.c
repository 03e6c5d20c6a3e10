// SPDX-License-Identifier: MIT
/*
 * Reading of a section, a few pieces ahead of the one that is hashed and decoded.
 *
 * Reads go past the page cache where the file system can do that, into pages of
 * ours: not straight into place, because device memory is mapped without pages
 * that direct I/O could hold, and because bytes are to be hashed where the
 * file's owner cannot change them any more.
 *
 * What the ring cannot do, or could do only in part, is done by pread(2): file
 * systems without direct I/O, systems without io_uring, and the error messages.
 */
#include <errno.h>
#include <stdlib.h>

#include "error.h"
#include "shard_reader.h"

#define BYTES	(512u << 10)	/* of a piece */
/* What direct I/O wants everywhere; sections begin at multiples of it. */
#define ALIGN	NPU_FILE_ALIGN

static uint64_t piece_begin(const struct npu_shard_reader *r, uint32_t k)
{
	return r->begin + (uint64_t)k * BYTES;
}

static size_t piece_bytes(const struct npu_shard_reader *r, uint32_t k)
{
	uint64_t left = r->end - piece_begin(r, k);

	return left < BYTES ? left : BYTES;
}

static char *piece_buffer(const struct npu_shard_reader *r, uint32_t k)
{
	return r->buffer + (size_t)(k % NPU_SHARD_PIECES) * BYTES;
}

static void ask(struct npu_shard_reader *r, uint32_t k)
{
	struct npu_shard_piece *piece = &r->pieces[k % NPU_SHARD_PIECES];
	size_t n = piece_bytes(r, k);
	struct io_uring_sqe *sqe;
	int fd = r->direct ? r->direct_fd : npu_file_fd(r->file);

	/* Nothing done yet: pread(2) it is, unless the ring takes it. */
	*piece = (struct npu_shard_piece){ .state = NPU_SHARD_PIECE_READ };
	sqe = r->has_ring ? io_uring_get_sqe(&r->ring) : NULL;
	if (!sqe)
		return;
	if (r->direct)
		n = (n + ALIGN - 1) / ALIGN * ALIGN;
	io_uring_prep_read(sqe, fd, piece_buffer(r, k), (unsigned int)n,
			   piece_begin(r, k));
	io_uring_sqe_set_data64(sqe, k % NPU_SHARD_PIECES);
	piece->state = NPU_SHARD_PIECE_ASKED;
}

static void ask_ahead(struct npu_shard_reader *r)
{
	uint32_t first = r->asked;

	while (r->asked < r->taken + NPU_SHARD_PIECES &&
	       piece_begin(r, r->asked) < r->end)
		ask(r, r->asked++);
	if (r->has_ring && r->asked != first)
		io_uring_submit(&r->ring);
}

/*
 * Errors here are of the moment (EINTR, EAGAIN, EBUSY), and what is under way
 * is to be waited for in any case: it writes to our buffer.
 */
static void reap(struct npu_shard_reader *r)
{
	struct io_uring_cqe *cqe;

	io_uring_submit_and_wait(&r->ring, 1);
	while (!io_uring_peek_cqe(&r->ring, &cqe)) {
		struct npu_shard_piece *piece = &r->pieces[io_uring_cqe_get_data64(cqe)];

		piece->state = NPU_SHARD_PIECE_READ;
		piece->result = cqe->res;
		io_uring_cqe_seen(&r->ring, cqe);
	}
}

static void await(struct npu_shard_reader *r, const struct npu_shard_piece *piece)
{
	while (piece->state == NPU_SHARD_PIECE_ASKED)
		reap(r);
}

/* Not an error of this read alone: it can't be done past the page cache. */
static bool cannot(int result)
{
	return result == -EINVAL || result == -EOPNOTSUPP;
}

static int next_piece(struct npu_pieces *base, const void **data, size_t *size)
{
	struct npu_shard_reader *r = (struct npu_shard_reader *)base;
	uint32_t k = r->taken;
	struct npu_shard_piece *piece = &r->pieces[k % NPU_SHARD_PIECES];
	size_t n = piece_bytes(r, k), have;
	int ret = 0;

	if (r->pause)
		r->pause(r);
	ask_ahead(r);
	await(r, piece);
	/* This buffer is asked for again once the next piece is taken. */
	r->taken = k + 1;
	have = piece->result > 0 ? (size_t)piece->result : 0;
	if (cannot(piece->result))
		r->direct = false;
	if (have < n)
		ret = npu_file_pread(r->file, piece_buffer(r, k) + have,
				     n - have, piece_begin(r, k) + have);
	piece->state = NPU_SHARD_PIECE_IDLE;
	*data = piece_buffer(r, k);
	*size = n;
	return ret;
}

int npu_shard_reader_read(struct npu_shard_reader *r, uint32_t section,
			  void *dst, size_t cap)
{
	const struct npu_section *s = npu_file_section(r->file, section);
	uint32_t k;
	int ret;

	r->begin = s->offset;
	r->end = s->offset + s->stored_bytes;
	r->asked = r->taken = 0;
	ret = npu_file_decode_section(r->file, section, &r->base, dst, cap);
	/* After an error some are still on their way to the buffer. */
	for (k = 0; k < NPU_SHARD_PIECES; k++)
		await(r, &r->pieces[k]);
	return ret;
}

int npu_shard_reader_init(struct npu_shard_reader *r,
			  const struct npu_file *file, int direct_fd)
{
	*r = (struct npu_shard_reader){
		.base.next = next_piece,
		.file = file,
		.direct_fd = direct_fd,
		.buffer = aligned_alloc(ALIGN,
					(size_t)NPU_SHARD_PIECES * BYTES),
	};
	if (!r->buffer)
		return npu_fail_memory();
	r->has_ring = !io_uring_queue_init(NPU_SHARD_PIECES, &r->ring, 0);
	r->direct = r->has_ring && direct_fd >= 0;
	return 0;
}

void npu_shard_reader_clear(struct npu_shard_reader *r)
{
	if (r->has_ring)
		io_uring_queue_exit(&r->ring);
	npu_pieces_clear(&r->base);
	free(r->buffer);
}
