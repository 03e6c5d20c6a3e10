// SPDX-License-Identifier: MIT
/*
 * Contents of .npu sections: read, decoded and hashed in one pass, straight
 * into the caller's memory, which may be a mapping of device memory.
 */
#include <errno.h>
#include <fcntl.h>
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

static int grow_buffer(struct npu_file *file, size_t size)
{
	void *p;

	if (size <= file->buffer_bytes)
		return 0;
	/* Contents are not kept: no realloc(), which would copy them. */
	free(file->buffer);
	file->buffer_bytes = 0;
	p = file->buffer = malloc(size);
	if (!p)
		return npu_fail_memory();
	file->buffer_bytes = size;
	return 0;
}

static int read_error(const struct npu_file *file, uint32_t i, int ret)
{
	char name[NPU_FILE_NAME_BYTES];

	npu_error_prefix("section %" PRIu32 " (%s)", i,
			 npu_file_section_name(file, i, name));
	return ret;
}

static int check_hash(struct npu_file *file, uint32_t i, const char *which,
		      uint64_t hash, uint64_t expected)
{
	if (hash == expected)
		return 0;
	return npu_file_refuse_section(file, i,
				       "altered: hash of the %s bytes does not match",
				       which);
}

/*
 * Reads the stored bytes into the file's buffer: all of them at once, or, with
 * @dst, piece by piece with a copy there. The hash is of what arrived in the
 * buffer, which nobody else writes; and read(2) need not be able to write to
 * @dst, which some file systems cannot if it is a device's memory.
 */
static int read_stored(struct npu_file *file, uint32_t i, char *dst)
{
	const struct npu_section *s = &file->sections[i];
	XXH3_state_t *state = XXH3_createState();
	uint64_t done = 0, hash;
	int ret;

	if (!state)
		return npu_fail_memory();
	XXH3_64bits_reset(state);
	ret = grow_buffer(file, dst ? PIECE_BYTES : s->stored_bytes);
	while (!ret && done < s->stored_bytes) {
		uint64_t left = s->stored_bytes - done;
		size_t n = left < PIECE_BYTES ? left : PIECE_BYTES;
		char *piece = (char *)file->buffer + (dst ? 0 : done);

		ret = npu_file_pread(file, piece, n, s->offset + done);
		if (ret)
			break;
		XXH3_64bits_update(state, piece, n);
		if (dst)
			memcpy(dst + done, piece, n);
		done += n;
	}
	hash = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	if (ret)
		return read_error(file, i, ret);
	return check_hash(file, i, "stored", hash, s->stored_xxh3);
}

static int read_lz4(struct npu_file *file, uint32_t i, void *dst)
{
	const struct npu_section *s = &file->sections[i];
	int ret;

	if (s->stored_bytes > INT_MAX || s->loaded_bytes > INT_MAX)
		return npu_file_refuse_section(file, i,
					       "too large for an LZ4 block");
	ret = read_stored(file, i, NULL);
	if (ret)
		return ret;
	ret = LZ4_decompress_safe(file->buffer, dst, (int)s->stored_bytes,
				  (int)s->loaded_bytes);
	if (ret < 0 || (uint64_t)ret != s->loaded_bytes)
		return npu_file_refuse_section(file, i,
					       "LZ4 data is damaged or of another size");
	return 0;
}

struct zstd_reader {
	ZSTD_DStream *stream;
	XXH3_state_t *hash;
	ZSTD_outBuffer out;
	size_t left_in_frame;	/* 0: the frame is complete */
};

static int feed_zstd(struct npu_file *file, uint32_t i, struct zstd_reader *z,
		     ZSTD_inBuffer *in)
{
	while (in->pos < in->size) {
		size_t before = in->pos, written = z->out.pos;

		if (!z->left_in_frame)
			return npu_file_refuse_section(file, i,
						       "data behind the zstd frame");
		z->left_in_frame = ZSTD_decompressStream(z->stream, &z->out,
							 in);
		if (ZSTD_isError(z->left_in_frame))
			return npu_file_refuse_section(file, i,
						       "zstd data is damaged: %s",
						       ZSTD_getErrorName(z->left_in_frame));
		if (in->pos == before && z->out.pos == written)
			return npu_file_refuse_section(file, i,
						       "zstd data decodes to more than %zu bytes",
						       z->out.size);
	}
	return 0;
}

static int run_zstd(struct npu_file *file, uint32_t i, struct zstd_reader *z)
{
	const struct npu_section *s = &file->sections[i];
	uint64_t done = 0;
	int ret;

	while (done < s->stored_bytes) {
		uint64_t left = s->stored_bytes - done;
		size_t n = left < PIECE_BYTES ? left : PIECE_BYTES;
		ZSTD_inBuffer in = { file->buffer, n, 0 };

		ret = npu_file_pread(file, file->buffer, n, s->offset + done);
		if (ret)
			return read_error(file, i, ret);
		XXH3_64bits_update(z->hash, file->buffer, n);
		ret = feed_zstd(file, i, z, &in);
		if (ret)
			return ret;
		done += n;
	}
	ret = check_hash(file, i, "stored", XXH3_64bits_digest(z->hash),
			 s->stored_xxh3);
	if (ret)
		return ret;
	if (z->left_in_frame || z->out.pos != z->out.size)
		return npu_file_refuse_section(file, i,
					       "zstd data is incomplete");
	return 0;
}

static int read_zstd(struct npu_file *file, uint32_t i, void *dst)
{
	struct zstd_reader z = {
		.stream = ZSTD_createDStream(),
		.hash = XXH3_createState(),
		.out = { dst, file->sections[i].loaded_bytes, 0 },
		.left_in_frame = 1,
	};
	int ret;

	if (!z.stream || !z.hash) {
		ret = npu_fail_memory();
		goto out;
	}
	XXH3_64bits_reset(z.hash);
	ret = grow_buffer(file, PIECE_BYTES);
	if (!ret)
		ret = run_zstd(file, i, &z);
out:
	ZSTD_freeDStream(z.stream);
	XXH3_freeState(z.hash);
	return ret;
}

int npu_file_read_section(struct npu_file *file, uint32_t i, void *dst,
			  size_t cap)
{
	const struct npu_section *s = &file->sections[i];
	int ret;

	if (cap < s->loaded_bytes)
		return npu_fail(-ENOSPC,
				"section %" PRIu32 " has %" PRIu64 " bytes, the buffer %zu",
				i, s->loaded_bytes, cap);
	switch (s->encoding) {
	case NPU_ENCODING_RAW:
		/* Both hashes are of the same bytes, and equal. */
		return read_stored(file, i, dst);
	case NPU_ENCODING_LZ4:
		ret = read_lz4(file, i, dst);
		break;
	default:
		ret = read_zstd(file, i, dst);
		break;
	}
	if (ret)
		return ret;
	return check_hash(file, i, "decoded", XXH3_64bits(dst, s->loaded_bytes),
			  s->loaded_xxh3);
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

void npu_file_prefetch(struct npu_file *file, uint32_t i)
{
	const struct npu_section *s = &file->sections[i];

	posix_fadvise(file->fd, (off_t)s->offset, (off_t)s->stored_bytes,
		      POSIX_FADV_WILLNEED);
}

static int check_gap(struct npu_file *file, uint64_t from, uint64_t to)
{
	uint8_t *bytes;
	size_t n, k;
	int ret;

	ret = grow_buffer(file, PIECE_BYTES);
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
