/* SPDX-License-Identifier: MIT */
/*
 * Reading .npu files: opened, validated, decoded section by section.
 *
 * Nothing in the file is trusted and nothing of it is mapped: the header and
 * the section table are copied before they are checked, sections are read with
 * pread(2), and what was read is what is hashed. So a file that changes or
 * shrinks meanwhile gives an error, never a crash or unchecked bytes.
 *
 * Functions return 0 or a negative errno and set npu_error(). -EBADMSG is a
 * file that is not what the format says; the message names the section. One
 * thread at a time per file.
 *
 * No device code: also a static library of its own (npufile_dep), for
 * npu_compiler. Programs that link libnpu must not link it as well.
 */
#ifndef NPU_FILE_H
#define NPU_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <npu/npu_format.h>

struct npu_file;

/* Opens @path and checks everything but the sections' contents. */
int npu_file_open(const char *path, struct npu_file **file);
/* Takes NULL. */
void npu_file_close(struct npu_file *file);

/* The checked copies; they live as long as @file. */
const struct npu_file_header *npu_file_header(const struct npu_file *file);
uint32_t npu_file_section_count(const struct npu_file *file);
/* @i below npu_file_section_count(). */
const struct npu_section *npu_file_section(const struct npu_file *file,
					   uint32_t i);

/*
 * Index of the first section of @type from @start on, or -1. METADATA and
 * TOKENIZER are always there, once.
 */
int64_t npu_file_find(const struct npu_file *file, enum npu_section_type type,
		      uint32_t start);
/* Index of an expert's section; @layer and @expert within header.runtime's. */
uint32_t npu_file_expert(const struct npu_file *file, uint32_t layer,
			 uint32_t expert);
/* The same of its low copy, if runtime.low_expert_bytes says there are some. */
uint32_t npu_file_expert_low(const struct npu_file *file, uint32_t layer,
			     uint32_t expert);

/* "metadata", "commands tile 16", "static at 0x1000", "expert 3.17", ... */
#define NPU_FILE_NAME_BYTES	40
const char *npu_file_section_name(const struct npu_file *file, uint32_t i,
				  char buf[NPU_FILE_NAME_BYTES]);
/* "raw", "lz4", "zstd" */
const char *npu_file_encoding_name(unsigned int encoding);

/*
 * Reads and decodes section @i into @dst, of @cap bytes, and checks both
 * hashes. -ENOSPC: @cap is below the section's loaded_bytes. After an error
 * @dst holds no particular bytes.
 */
int npu_file_read_section(struct npu_file *file, uint32_t i, void *dst,
			  size_t cap);
/*
 * The same, into memory of its own with a NUL behind it (not counted in
 * @size), for free(3).
 */
int npu_file_load_section(struct npu_file *file, uint32_t i, void **data,
			  size_t *size);
/*
 * Where the stored bytes of a section come from: @next gives them piece by
 * piece, in order and no more than there are. A piece stays until the next
 * call. Embed this to read in another way than by pread(2).
 */
struct npu_pieces {
	int (*next)(struct npu_pieces *pieces, const void **data, size_t *size);
	/* Pieces put together, for what cannot be decoded one by one. */
	void *whole;
	size_t whole_bytes;
};

/* npu_file_read_section() from @pieces, in any number of threads. */
int npu_file_decode_section(const struct npu_file *file, uint32_t i,
			    struct npu_pieces *pieces, void *dst, size_t cap);
/* Gives back what decoding kept. */
void npu_pieces_clear(struct npu_pieces *pieces);

/* For reading in other ways; both as long as @file. */
int npu_file_fd(const struct npu_file *file);
const char *npu_file_path(const struct npu_file *file);

/*
 * Reads all sections and the gaps between them. @progress may be NULL; what it
 * returns other than 0 stops with -ECANCELED.
 */
int npu_file_verify(struct npu_file *file,
		    int (*progress)(void *user, uint32_t section), void *user);

#endif
