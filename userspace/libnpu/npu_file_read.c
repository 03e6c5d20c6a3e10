// SPDX-License-Identifier: MIT
/*
 * Contents of .npu sections: read, decoded and hashed in one pass, straight
 * into the caller's memory, which may be a mapping of device memory.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zstd.h>

#include "error.h"
#include "npu_file_priv.h"

/* Long enough for the disk, short enough to stay in the CPU's caches. */
#define PIECE_BYTES	(256u << 10)

static int grow(void **buffer, size_t *bytes, size_t size)
{
	if (size <= *bytes)
		return 0;
	/* Contents are not kept: no realloc(), which would copy them. */
	free(*buffer);
	*bytes = 0;
	*buffer = malloc(size);
	if (!*buffer)
		return npu_fail_memory();
	*bytes = size;
	return 0;
}

static int check_hash(const struct npu_file *file, uint32_t i,
		      const char *which, uint64_t hash, uint64_t expected)
{
	if (hash == expected)
		return 0;
	return npu_file_refuse_section(file, i,
				       "altered: hash of the %s bytes does not match; copy the file again",
				       which);
}

/* ---- Decoders: from pieces to @dst ---- */

struct decoder {
	const struct npu_file *file;
	uint32_t i;
	struct npu_pieces *pieces;
	XXH3_state_t *hash;		/* of the stored bytes */
	uint64_t left;			/* stored bytes to come */
};

static int next_piece(struct decoder *d, const void **data, size_t *size)
{
	char name[NPU_FILE_NAME_BYTES];
	int ret;

	ret = d->pieces->next(d->pieces, data, size);
	if (ret) {
		npu_error_prefix("section %" PRIu32 " (%s)", d->i,
				 npu_file_section_name(d->file, d->i, name));
		return ret;
	}
	XXH3_64bits_update(d->hash, *data, *size);
	d->left -= *size;
	return 0;
}

static int check_stored(const struct decoder *d)
{
	return check_hash(d->file, d->i, "stored",
			  XXH3_64bits_digest(d->hash),
			  d->file->sections[d->i].stored_xxh3);
}

/*
 * The hash is of what arrived in the piece, which nobody else writes; and
 * reading need not be able to write to @dst, which it cannot if that is a
 * device's memory, for some file systems and for direct I/O.
 */
static int copy_pieces(struct decoder *d, char *dst)
{
	const void *data;
	size_t size;
	int ret;

	while (d->left) {
		ret = next_piece(d, &data, &size);
		if (ret)
			return ret;
		memcpy(dst, data, size);
		dst += size;
	}
	return check_stored(d);
}

static int decode_lz4(struct decoder *d, void *dst)
{
	const struct npu_section *s = &d->file->sections[d->i];
	struct npu_pieces *p = d->pieces;
	int ret;

	if (s->stored_bytes > INT_MAX || s->loaded_bytes > INT_MAX)
		return npu_file_refuse_section(d->file, d->i,
					       "too large for an LZ4 block");
	ret = grow(&p->whole, &p->whole_bytes, s->stored_bytes);
	if (!ret)
		ret = copy_pieces(d, p->whole);
	if (ret)
		return ret;
	ret = LZ4_decompress_safe(p->whole, dst, (int)s->stored_bytes,
				  (int)s->loaded_bytes);
	if (ret < 0 || (uint64_t)ret != s->loaded_bytes)
		return npu_file_refuse_section(d->file, d->i,
					       "LZ4 data is damaged or of another size");
	return 0;
}

struct zstd_reader {
	ZSTD_DStream *stream;
	ZSTD_outBuffer out;
	size_t left_in_frame;	/* 0: the frame is complete */
};

static int feed_zstd(const struct decoder *d, struct zstd_reader *z,
		     ZSTD_inBuffer *in)
{
	while (in->pos < in->size) {
		size_t before = in->pos, written = z->out.pos;

		if (!z->left_in_frame)
			return npu_file_refuse_section(d->file, d->i,
						       "data behind the zstd frame");
		z->left_in_frame = ZSTD_decompressStream(z->stream, &z->out,
							 in);
		if (ZSTD_isError(z->left_in_frame))
			return npu_file_refuse_section(d->file, d->i,
						       "zstd data is damaged: %s",
						       ZSTD_getErrorName(z->left_in_frame));
		if (in->pos == before && z->out.pos == written)
			return npu_file_refuse_section(d->file, d->i,
						       "zstd data decodes to more than %zu bytes",
						       z->out.size);
	}
	return 0;
}

static int run_zstd(struct decoder *d, struct zstd_reader *z)
{
	ZSTD_inBuffer in;
	int ret;

	while (d->left) {
		in.pos = 0;
		ret = next_piece(d, &in.src, &in.size);
		if (!ret)
			ret = feed_zstd(d, z, &in);
		if (ret)
			return ret;
	}
	ret = check_stored(d);
	if (ret)
		return ret;
	if (z->left_in_frame || z->out.pos != z->out.size)
		return npu_file_refuse_section(d->file, d->i,
					       "zstd data is incomplete");
	return 0;
}

static int decode_zstd(struct decoder *d, void *dst)
{
	struct zstd_reader z = {
		.stream = ZSTD_createDStream(),
		.out = { dst, d->file->sections[d->i].loaded_bytes, 0 },
		.left_in_frame = 1,
	};
	int ret;

	if (!z.stream)
		return npu_fail_memory();
	ret = run_zstd(d, &z);
	ZSTD_freeDStream(z.stream);
	return ret;
}

static int decode(struct decoder *d, void *dst)
{
	const struct npu_section *s = &d->file->sections[d->i];
	int ret;

	switch (s->encoding) {
	case NPU_ENCODING_RAW:
		/* Both hashes are of the same bytes, and equal. */
		return copy_pieces(d, dst);
	case NPU_ENCODING_LZ4:
		ret = decode_lz4(d, dst);
		break;
	default:
		ret = decode_zstd(d, dst);
		break;
	}
	if (ret)
		return ret;
	return check_hash(d->file, d->i, "decoded",
			  XXH3_64bits(dst, s->loaded_bytes), s->loaded_xxh3);
}

int npu_file_decode_section(const struct npu_file *file, uint32_t i,
			    struct npu_pieces *pieces, void *dst, size_t cap)
{
	const struct npu_section *s = &file->sections[i];
	struct decoder d = {
		.file = file,
		.i = i,
		.pieces = pieces,
		.left = s->stored_bytes,
	};
	int ret;

	if (cap < s->loaded_bytes)
		return npu_fail(-ENOSPC,
				"section %" PRIu32 " has %" PRIu64 " bytes, the buffer %zu",
				i, s->loaded_bytes, cap);
	d.hash = XXH3_createState();
	if (!d.hash)
		return npu_fail_memory();
	XXH3_64bits_reset(d.hash);
	ret = decode(&d, dst);
	XXH3_freeState(d.hash);
	return ret;
}

void npu_pieces_clear(struct npu_pieces *pieces)
{
	free(pieces->whole);
	pieces->whole = NULL;
	pieces->whole_bytes = 0;
}

/* ---- Pieces by pread(2) ---- */

struct plain_pieces {
	struct npu_pieces base;
	struct npu_file *file;
	uint64_t at, end;
};

static int plain_next(struct npu_pieces *base, const void **data, size_t *size)
{
	struct plain_pieces *p = (struct plain_pieces *)base;
	uint64_t left = p->end - p->at;
	size_t n = left < PIECE_BYTES ? left : PIECE_BYTES;
	int ret;

	ret = npu_file_pread(p->file, p->file->buffer, n, p->at);
	p->at += n;
	*data = p->file->buffer;
	*size = n;
	return ret;
}

int npu_file_read_section(struct npu_file *file, uint32_t i, void *dst,
			  size_t cap)
{
	const struct npu_section *s = &file->sections[i];
	struct plain_pieces p = {
		.base.next = plain_next,
		.file = file,
		.at = s->offset,
		.end = s->offset + s->stored_bytes,
	};
	int ret;

	ret = grow(&file->buffer, &file->buffer_bytes, PIECE_BYTES);
	if (!ret)
		ret = npu_file_decode_section(file, i, &p.base, dst, cap);
	npu_pieces_clear(&p.base);
	return ret;
}

/*
 * What a section claims to decode to is believed only as far as its encoding
 * can give: memory for a hostile claim is not allocated.
 */
static bool plausible(const struct npu_section *s)
{
	uint64_t ratio = 1;

	if (s->encoding == NPU_ENCODING_LZ4)
		ratio = 256;
	else if (s->encoding == NPU_ENCODING_ZSTD)
		ratio = 1u << 17;
	return s->loaded_bytes / ratio <= s->stored_bytes;
}

int npu_file_load_section(struct npu_file *file, uint32_t i, void **data,
			  size_t *size)
{
	const struct npu_section *s = &file->sections[i];
	char *p;
	int ret;

	if (!plausible(s))
		return npu_file_refuse_section(file, i,
					       "%" PRIu64 " stored bytes cannot decode to %" PRIu64,
					       s->stored_bytes,
					       s->loaded_bytes);
	p = malloc(s->loaded_bytes + 1);
	if (!p)
		return npu_fail_memory();
	ret = npu_file_read_section(file, i, p, s->loaded_bytes);
	if (ret) {
		free(p);
		return ret;
	}
	p[s->loaded_bytes] = '\0';
	*data = p;
	*size = s->loaded_bytes;
	return 0;
}

static int check_gap(struct npu_file *file, uint64_t from, uint64_t to)
{
	uint8_t *bytes;
	size_t n, k;
	int ret;

	ret = grow(&file->buffer, &file->buffer_bytes, PIECE_BYTES);
	for (; !ret && from < to; from += n) {
		bytes = file->buffer;
		n = to - from < PIECE_BYTES ? to - from : PIECE_BYTES;
		ret = npu_file_pread(file, bytes, n, from);
		for (k = 0; !ret && k < n; k++)
			if (bytes[k])
				ret = npu_file_refuse(file,
						      "byte %#" PRIx64 ", between sections, is not zero",
						      from + k);
	}
	return ret;
}

/* The table counts as one more part of the file. */
static int check_gaps(struct npu_file *file, const uint32_t *order)
{
	const struct npu_file_header *h = &file->header;
	uint64_t at = NPU_FILE_ALIGN, table_end;
	bool table_done = false;
	uint32_t k;
	int ret = 0;

	table_end = h->table_offset +
		    (uint64_t)h->section_count * h->section_bytes;
	for (k = 0; k < h->section_count && !ret; k++) {
		const struct npu_section *s = &file->sections[order[k]];

		if (!table_done && h->table_offset < s->offset) {
			ret = check_gap(file, at, h->table_offset);
			at = table_end;
			table_done = true;
		}
		if (!ret)
			ret = check_gap(file, at, s->offset);
		at = s->offset + s->stored_bytes;
	}
	if (!ret && !table_done) {
		ret = check_gap(file, at, h->table_offset);
		at = table_end;
	}
	return ret ? ret : check_gap(file, at, h->file_bytes);
}

int npu_file_verify(struct npu_file *file,
		    int (*progress)(void *user, uint32_t section), void *user)
{
	uint32_t *order = npu_file_by_offset(file);
	uint32_t k;
	int ret;

	if (!order)
		return npu_fail_memory();
	ret = check_gaps(file, order);
	for (k = 0; k < file->header.section_count && !ret; k++) {
		size_t size;
		void *data;

		ret = npu_file_load_section(file, order[k], &data, &size);
		if (!ret)
			free(data);
		if (!ret && progress && progress(user, order[k]))
			ret = npu_fail(-ECANCELED, "stopped");
	}
	free(order);
	return ret;
}
