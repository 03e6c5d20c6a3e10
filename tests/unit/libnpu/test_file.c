// SPDX-License-Identifier: MIT
/*
 * .npu files: a valid one is read back byte by byte; altered, truncated and
 * hostile ones are refused by name.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include <npu/npu.h>
#include "../tap.h"
#include "builder.h"
#include "layout.h"
#include "npu_file.h"

static char path[64];

/* Opens and, if that works, reads all of it. */
static int open_and_verify(void)
{
	struct npu_file *file;
	int ret = npu_file_open(path, &file);

	if (ret)
		return ret;
	ret = npu_file_verify(file, NULL, NULL);
	npu_file_close(file);
	return ret;
}

static int write_and_verify(const uint8_t *image, size_t size)
{
	write_file(path, image, size);
	return open_and_verify();
}

static void build(struct builder *b)
{
	builder_init(b);
	builder_add_low(b);
	builder_place(b);
	builder_seal(b);
}

static void test_valid(void)
{
	uint8_t buf[8192];
	struct npu_file *file;
	struct builder b;
	bool same = true;
	uint32_t i;
	int ret;

	build(&b);
	builder_write(&b, path);
	ret = npu_file_open(path, &file);
	if (!ok(ret == 0, "a valid file opens: %s", npu_error()))
		return;
	ok(npu_file_section_count(file) == b.count, "it has all sections");
	for (i = 0; i < b.count; i++) {
		uint64_t n = b.sections[i].loaded_bytes;

		ret = npu_file_read_section(file, i, buf, n);
		same &= ret == 0 && !memcmp(buf, b.contents[i].loaded, n);
	}
	ok(same, "sections of all encodings decode to what went in");
	ok(npu_file_read_section(file, 0, buf, 10) == -ENOSPC,
	   "a buffer that is too small is refused");
	ok(npu_file_verify(file, NULL, NULL) == 0, "it verifies: %s",
	   npu_error());
	ok(npu_file_expert(file, 1, 2) == 12 &&
	   npu_file_expert_low(file, 1, 2) == 19,
	   "experts are found, and their low copies");
	ok(npu_file_find(file, NPU_SECTION_CALIBRATION, 0) == 13 &&
	   npu_file_find(file, NPU_SECTION_CALIBRATION, 14) == -1,
	   "sections are found by type");
	npu_file_close(file);
	builder_clear(&b);
}

static void test_names(void)
{
	char buf[NPU_FILE_NAME_BYTES];
	struct npu_file *file;
	struct builder b;

	build(&b);
	builder_write(&b, path);
	if (npu_file_open(path, &file))
		return;
	ok(!strcmp(npu_file_section_name(file, 2, buf), "commands tile 4"),
	   "name of commands");
	ok(!strcmp(npu_file_section_name(file, 12, buf), "expert 1.2"),
	   "name of an expert");
	ok(!strcmp(npu_file_section_name(file, 19, buf), "low expert 1.2"),
	   "name of an expert's low copy");
	ok(!strcmp(npu_file_section_name(file, 5, buf), "static at 0x1000"),
	   "name of static weights");
	npu_file_close(file);
	builder_clear(&b);
}

static int stop_at_three(void *user, uint32_t section)
{
	return ++*(int *)user == 3;
}

static void test_cancel(void)
{
	struct npu_file *file;
	struct builder b;
	int n = 0;

	build(&b);
	builder_write(&b, path);
	if (npu_file_open(path, &file))
		return;
	ok(npu_file_verify(file, stop_at_three, &n) == -ECANCELED && n == 3,
	   "verifying can be stopped");
	npu_file_close(file);
	builder_clear(&b);
}

/* Without right hashes: what a bad disk or copy does. */
static void test_every_byte(void)
{
	struct builder b;
	uint8_t *image;
	uint64_t i;
	unsigned int accepted = 0, unnamed = 0, other = 0;

	build(&b);
	image = builder_image(&b);
	for (i = 0; i < b.bytes; i++) {
		int ret;

		/* Of the zeros between sections a sample will do. */
		if (!image[i] && i % 61)
			continue;
		image[i] ^= 0x10;
		ret = write_and_verify(image, b.bytes);
		image[i] ^= 0x10;
		accepted += ret == 0;
		other += ret && ret != -EBADMSG;
		if (i >= 8192 && image[i] && !strstr(npu_error(), "section"))
			unnamed++;
	}
	ok(!accepted, "no byte of a file may change (%u could)", accepted);
	ok(!other, "a changed byte gives -EBADMSG");
	ok(!unnamed, "the message names the section");
	free(image);
	builder_clear(&b);
}

static void test_truncated(void)
{
	struct builder b;
	uint8_t *image;
	uint64_t size;
	unsigned int accepted = 0;

	build(&b);
	image = builder_image(&b);
	for (size = 0; size < b.bytes; size += size < 300 ? 1 : 509)
		accepted += write_and_verify(image, size) != -EBADMSG;
	ok(!accepted, "a truncated file is refused (%u were not)", accepted);
	ok(strstr(npu_error(), "truncated"), "and said to be: %s",
	   npu_error());
	image = realloc(image, b.bytes + 1);
	image[b.bytes] = 0;
	ok(write_and_verify(image, b.bytes + 1) == -EBADMSG,
	   "so is one with bytes behind its end");
	free(image);
	builder_clear(&b);
}

static void test_shrinks(void)
{
	uint8_t buf[8192];
	struct npu_file *file;
	struct builder b;

	build(&b);
	builder_write(&b, path);
	if (npu_file_open(path, &file))
		return;
	ok(truncate(path, 9000) == 0 &&
	   npu_file_read_section(file, 7, buf, sizeof(buf)) == -EBADMSG,
	   "a file that shrinks while open gives an error: %s", npu_error());
	ok(strstr(npu_error(), "expert 0.0"), "that names the section");
	npu_file_close(file);
	builder_clear(&b);
}

/* With right hashes: what an attacker does. */
static void test_hostile_header(void)
{
	size_t i, sane = 0, total = sizeof(struct npu_file_header);
	static const uint8_t masks[] = { 0x01, 0x80, 0xff };
	unsigned int m, other = 0;
	struct builder b;
	int ret;

	for (i = 0; i < total; i++) {
		for (m = 0; m < 3; m++) {
			build(&b);
			((uint8_t *)&b.header)[i] ^= masks[m];
			builder_seal(&b);
			builder_write(&b, path);
			ret = open_and_verify();
			sane += ret == 0;
			other += ret && ret != -EBADMSG;
			builder_clear(&b);
		}
	}
	ok(!other, "headers with hostile bytes are refused or harmless");
	ok(sane < total, "most are refused (%zu of %zu were not)", sane,
	   3 * total);
}

static void test_hostile_table(void)
{
	size_t i, sane = 0;
	static const uint8_t masks[] = { 0x01, 0x80, 0xff };
	unsigned int m, other = 0;
	struct builder b;
	size_t total;
	int ret;

	build(&b);
	total = b.count * sizeof(struct npu_section);
	builder_clear(&b);
	for (i = 0; i < total; i++) {
		for (m = 0; m < 3; m++) {
			build(&b);
			((uint8_t *)b.sections)[i] ^= masks[m];
			builder_seal(&b);
			builder_write(&b, path);
			ret = open_and_verify();
			sane += ret == 0;
			other += ret && ret != -EBADMSG;
			builder_clear(&b);
		}
	}
	ok(!other, "section tables with hostile bytes are refused or harmless");
	/* What may change: which tile, which expert, where static parts go. */
	ok(sane <= 16, "nearly all are refused (%zu of %zu were not)", sane,
	   3 * total);
}

#define FIELD(name, field, value, text)					\
	static void set_##name(struct builder *b) { b->field = value; }
#include "fields.h"
#undef FIELD

static const struct {
	void (*set)(struct builder *b);
	const char *name, *text;
} fields[] = {
#define FIELD(name, field, value, text) { set_##name, #name, text },
#include "fields.h"
#undef FIELD
};

static void test_fields(void)
{
	struct builder b;
	size_t i;
	int ret;

	for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		build(&b);
		fields[i].set(&b);
		builder_seal(&b);
		builder_write(&b, path);
		ret = open_and_verify();
		ok(ret == -EBADMSG && strstr(npu_error(), fields[i].text),
		   "%s is refused: %s", fields[i].name, npu_error());
		builder_clear(&b);
	}
}

static void expect_content(struct builder *b, const char *what,
			   const char *text)
{
	int ret;

	builder_place(b);
	builder_seal(b);
	builder_write(b, path);
	ret = open_and_verify();
	ok(ret == -EBADMSG && strstr(npu_error(), text), "%s is refused: %s",
	   what, npu_error());
	builder_clear(b);
}

/* Right hashes of stored bytes that do not decode to what is promised. */
static void test_contents(void)
{
	uint8_t stored[8192], data[8192] = { 0 };
	struct builder b;
	size_t n;

	builder_init(&b);
	n = ZSTD_compress(stored, sizeof(stored), data, 7000, 3);
	builder_store(&b, 5, stored, n);
	expect_content(&b, "zstd data that decodes to more", "more than 6000");

	builder_init(&b);
	n = ZSTD_compress(stored, sizeof(stored), data, 5999, 3);
	builder_store(&b, 5, stored, n);
	expect_content(&b, "zstd data that decodes to less", "incomplete");

	builder_init(&b);
	n = b.sections[5].stored_bytes;
	memcpy(stored, b.contents[5].stored, n);
	memset(stored + n, 0, 8);
	builder_store(&b, 5, stored, n + 8);
	expect_content(&b, "data behind a zstd frame", "behind");

	builder_init(&b);
	builder_store(&b, 5, stored, n - 3);
	expect_content(&b, "a cut zstd frame", "incomplete");

	builder_init(&b);
	memset(stored, 0xff, sizeof(stored));
	builder_store(&b, 6, stored, 90);
	expect_content(&b, "LZ4 data that is none", "static at 0x2770");

	builder_init(&b);
	b.sections[5].loaded_xxh3++;
	expect_content(&b, "a wrong hash of the decoded bytes", "decoded");

	builder_init(&b);
	b.header.runtime.chunk_bytes = 1ull << 37;
	b.sections[6].loaded_bytes = 1ull << 36;
	b.header.runtime.weights_bytes = 4096 + 6000 + (1ull << 36);
	expect_content(&b, "an impossible ratio", "cannot decode");
}

static void make_old(struct builder *b)
{
	struct npu_runtime *r = &b->header.runtime;

	builder_init(b);
	b->header.version_minor = 0;
	r->guesses = 0;
	r->routed_offset = 0;
	r->guess_ids_offset = 0;
	r->guess_chances_offset = 0;
}

/* Files of version 1.0, which know of nothing that came later. */
static void test_old(void)
{
	struct npu_file *file;
	struct builder b;

	make_old(&b);
	builder_place(&b);
	builder_seal(&b);
	builder_write(&b, path);
	builder_clear(&b);
	ok(open_and_verify() == 0, "a file of version 1.0 opens: %s",
	   npu_error());
	if (!npu_file_open(path, &file))
		ok(npu_file_expert(file, 1, 2) == 12, "and has its experts");
	npu_file_close(file);

	make_old(&b);
	builder_add_low(&b);
	b.header.runtime.low_expert_bytes = 0;
	expect_content(&b, "one with low copies", "unknown type");

	make_old(&b);
	b.header.runtime.routed_offset = 4608;
	expect_content(&b, "one with routed ids", "reserved in version 1.0");
}

/* All low copies or none. */
static void test_low_missing(void)
{
	struct builder b;

	builder_init(&b);
	b.header.runtime.low_expert_bytes = 500;
	expect_content(&b, "a file without its low copies",
		       "6 of 6 low copies of experts are missing");
}

static void test_dense(void)
{
	struct builder b;

	builder_init_experts(&b, 0, 0, 0);
	b.header.runtime.experts_per_token = 0;
	b.header.runtime.router_entries = 0;
	b.header.runtime.guesses = 0;
	expect_content(&b, "a dense file with routed ids",
		       "routed ids at 0x1200, and there are none");
}

static void test_not_files(void)
{
	struct npu_file *file;
	char dir[] = "/tmp/npu-test-dir-XXXXXX", fifo[80];

	ok(npu_file_open("/nonexistent/x.npu", &file) == -ENOENT,
	   "no such file: %s", npu_error());
	if (!mkdtemp(dir))
		return;
	ok(npu_file_open(dir, &file) == -EBADMSG, "a directory: %s",
	   npu_error());
	snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
	ok(mkfifo(fifo, 0600) == 0 &&
	   npu_file_open(fifo, &file) == -EBADMSG,
	   "a FIFO does not hang: %s", npu_error());
	unlink(fifo);
	rmdir(dir);
}

/* What is refused before the device is needed, by a message with one path. */
static void expect_load(struct builder *b, int error, const char *text)
{
	struct npu_model *model;
	const char *at;

	builder_write(b, path);
	builder_clear(b);
	ok(npu_model_load(NULL, path, NULL, &model) == error &&
	   strstr(npu_error(), text), "not loaded: %s", npu_error());
	at = strstr(npu_error(), path);
	ok(at == npu_error() && !strstr(at + 1, path),
	   "the path is there once");
}

static void test_load(void)
{
	struct builder b;

	builder_init(&b);
	builder_place(&b);
	memset(b.header.target, 0, sizeof(b.header.target));
	memcpy(b.header.target, "m7", 2);
	builder_seal(&b);
	expect_load(&b, -ENOTSUP, "made for target \"m7\"");

	build(&b);
	b.contents[0].stored[0] ^= 1;
	expect_load(&b, -EBADMSG, "section 0 (metadata): altered");

	builder_init(&b);
	builder_store(&b, 0, "[", 1);
	b.sections[0].loaded_bytes = 1;
	b.sections[0].loaded_xxh3 = b.sections[0].stored_xxh3;
	builder_place(&b);
	builder_seal(&b);
	expect_load(&b, -EBADMSG, "metadata: not JSON");
}

int main(void)
{
	/* In memory: it is written some ten thousand times. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d",
		 memfd_create("test.npu", 0));
	test_valid();
	test_names();
	test_cancel();
	test_every_byte();
	test_truncated();
	test_shrinks();
	test_hostile_header();
	test_hostile_table();
	test_fields();
	test_contents();
	test_old();
	test_low_missing();
	test_dense();
	test_not_files();
	test_load();
	return done();
}
