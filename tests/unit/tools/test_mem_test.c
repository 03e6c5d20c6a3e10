// SPDX-License-Identifier: MIT
/* npu_mem_test's parts: what they take, what they find, what they say. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "fake_npu.h"
#include "mem_test.h"
#include "mem_words.h"

#define MIB	(1ull << 20)

static struct npu_device *device;
static volatile sig_atomic_t stop;

/* A whole test, as main() sets one up. */
struct trial {
	struct mem_area area;
	struct mem_device md;
	struct mem_report report;
	struct mem_progress progress;
	struct mem_test test;
	FILE *lines;
	char *text;
	size_t text_size;
};

static void no_progress(void *user, uint64_t done)
{
}

static void begin(struct trial *t, uint64_t bytes, size_t limit)
{
	memset(t, 0, sizeof(*t));
	t->lines = open_memstream(&t->text, &t->text_size);
	t->test = (struct mem_test){
		.area = &t->area, .device = &t->md, .report = &t->report,
		.progress = &t->progress, .stop = &stop, .iteration = 1,
	};
	if (mem_report_init(&t->report, t->lines, limit) ||
	    mem_area_reserve(&t->area, device, bytes + mem_device_bytes()) ||
	    mem_device_init(&t->md, &t->area, 0xaaaaaaaa) ||
	    mem_area_fill(&t->area, bytes, no_progress, NULL, &stop))
		abort();
}

static void end(struct trial *t)
{
	fclose(t->lines);
	free(t->text);
	mem_report_free(&t->report);
	mem_area_free(&t->area);
	fake = (struct fake){ .area = fake.area, .taken = fake.taken,
			      .buffers = fake.buffers, .pools = fake.pools };
}

static unsigned int count_lines(const char *text)
{
	unsigned int count = 0;

	for (; *text; text++)
		count += *text == '\n';
	return count;
}

/* ---- Words ---- */

static void test_words(void)
{
	static uint32_t words[2 * MEM_WORDS_MIN];
	const size_t count = 2 * MEM_WORDS_MIN;
	const uint64_t addr = 0x3fffffe000;	/* 8 KiB before 2^38 */
	unsigned int missed = 0;

	mem_words_fill(words, count, 0x12345678);
	ok(!mem_words_differ(words, count, 0x12345678) &&
	   mem_words_differ(words, count, 0x12345679), "a pattern");
	for (size_t i = 0; i < count; i++) {
		words[i] ^= 1u << i % 32;
		missed += !mem_words_differ(words, count, 0x12345678);
		words[i] ^= 1u << i % 32;
	}
	ok(!missed, "any wrong bit shows");
	mem_words_fill_address(words, count, addr);
	ok(words[0] == (0xffffe000 ^ 0x3f) && words[1] == (0xffffe004 ^ 0x3f) &&
	   words[count - 1] == mem_address_word(addr + 4 * (count - 1)),
	   "addresses, folded");
	ok(!mem_words_differ_address(words, count, addr) &&
	   mem_words_differ_address(words, count, addr + 4), "are compared");
	words[count - 1] ^= 1u << 31;
	ok(mem_words_differ_address(words, count, addr), "all of them");
}

/* ---- Memory ---- */

/* Pieces are what mem_area.h says, and are all of the buffers but ours. */
static bool pieces_good(const struct mem_area *area, uint64_t bytes)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < area->piece_count; i++) {
		const struct mem_piece *p = &area->pieces[i];

		if (p->size & (p->size - 1) || p->size < MEM_PIECE_MIN ||
		    p->size > MEM_PIECE || p->addr % p->size)
			return false;
		if (p->addr != npu_buffer_addr(p->buffer) + p->offset ||
		    (char *)p->cpu !=
		    (char *)npu_buffer_map(p->buffer) + p->offset)
			return false;
		if (i && p[-1].buffer == p->buffer &&
		    p->offset != p[-1].offset + p[-1].size)
			return false;
		sum += p->size;
	}
	return sum == bytes && area->bytes == bytes;
}

static void test_area(void)
{
	struct trial t;

	fake.area = 128 * MIB;
	begin(&t, 100 * MIB + 12288, 16);
	ok(t.area.pool_count == 1 && pieces_good(&t.area, 100 * MIB + 12288),
	   "what was asked for, in pieces");
	end(&t);
	begin(&t, 1ull << 38, 16);
	ok(pieces_good(&t.area, fake.area - mem_device_bytes()) &&
	   fake.taken == fake.area, "all there is");
	end(&t);
	fake.piece = 50 * MIB;
	begin(&t, 1ull << 38, 16);
	ok(t.area.pool_count > 2 && fake.taken > fake.area - 64 * 1024,
	   "in several pools, if there is none as large");
	end(&t);
	ok(!fake.taken && !fake.buffers && !fake.pools, "and it goes back");
	fake.area_unknown = true;
	begin(&t, UINT64_MAX - mem_device_bytes(), 16);
	ok(fake.taken > fake.area - 64 * 1024,
	   "all there is when nobody knows how much");
	end(&t);
	fake.area = 0;
	ok(mem_area_reserve(&t.area, device, MIB) == -ENOMEM, "none at all");
	mem_area_free(&t.area);
	fake.persistent = 20 * MIB;
	begin(&t, 5 * MIB, 16);
	ok(t.area.pool_count == 1 && pieces_good(&t.area, 5 * MIB),
	   "the free space of a persistent pool");
	end(&t);
	ok(!fake.taken && !fake.buffers && !fake.pools,
	   "of which nothing is kept");
	fake.area = 128 * MIB;
}

/* ---- Faults ---- */

static void test_sound(void)
{
	struct trial t;
	unsigned int value;

	begin(&t, 9 * MIB, 16);
	ok(!mem_test_run(&t.test) && !t.report.mismatches && !t.text_size,
	   "sound memory");
	ok(mem_report_stuck(&t.report, &value) < 0, "nothing is stuck");
	ok(t.progress.done == t.area.bytes * mem_test_passes(),
	   "progress comes to its end");
	end(&t);
}

static void test_stuck(void)
{
	unsigned int value = 2;
	struct trial t;
	char line[256];

	begin(&t, 3 * MIB, 16);
	fake.stuck_addr = t.area.pieces[1].addr + 4092;
	fake.stuck_mask = 0x400;
	fake.stuck_value = 0x400;
	ok(!mem_test_run(&t.test) && t.report.count == 1 &&
	   t.report.errors[0].addr == fake.stuck_addr, "a bit stuck at 1");
	snprintf(line, sizeof(line), "MEM_CORRUPTION_ERR: device address %#llx, expected 0xaaaaaaaa, found 0xaaaaaeaa, bits 0x00000400 (test device-device, iteration 1)\n",
		 (unsigned long long)fake.stuck_addr);
	/* The bit is clear in the pattern, so the first test shows it. */
	ok(!strcmp(t.text, line), "is told once: %.*s", (int)strlen(t.text) - 1,
	   t.text);
	ok(t.report.mismatches > 30 && mem_report_stuck(&t.report, &value) ==
	   10 && value == 1, "and known for what it is");
	end(&t);
	begin(&t, 3 * MIB, 16);
	fake.stuck_addr = t.area.pieces[0].addr;
	fake.stuck_mask = 0x80000001;
	ok(!mem_test_run(&t.test) && t.report.count == 1 &&
	   t.report.bits == 0x80000001 &&
	   mem_report_stuck(&t.report, &value) < 0, "two bits of a word");
	end(&t);
}

static void test_limit(void)
{
	struct trial t;

	begin(&t, MIB, 2);
	for (uint32_t i = 0; i < 5; i++)
		for (uint32_t j = 0; j < 3; j++)
			mem_report_add(&t.report, &(struct mem_error){
				.addr = 4 * i, .found = 1u << j, .test = "some",
			});
	ok(count_lines(t.text) == 2 && t.report.more &&
	   t.report.mismatches == 15 && t.report.bits == 7,
	   "no more lines than asked for, but all counted");
	end(&t);
	begin(&t, MIB, 0);
	mem_report_add(&t.report, &(struct mem_error){ .found = 1 });
	ok(!t.text_size && t.report.more && t.report.mismatches == 1, "or none");
	end(&t);
}

/* What only the device reads wrong, or only the copy of it. */
static void test_device_only(void)
{
	struct trial t;

	begin(&t, MIB, 16);
	fake.misread = t.area.pieces[0].addr + 64;
	ok(!mem_test_run(&t.test) && t.report.count == 1 &&
	   t.report.errors[0].addr == fake.misread &&
	   t.report.errors[0].found == 0xaaaaaaab, "read wrong by the device");
	end(&t);
	begin(&t, MIB, 16);
	fake.stuck_addr = npu_buffer_addr(t.md.copy) + 128;
	fake.stuck_mask = ~0u;
	ok(!mem_test_run(&t.test) && t.report.count == 1 &&
	   t.report.errors[0].addr == fake.stuck_addr &&
	   !strcmp(t.report.errors[0].test, "address-device"),
	   "gone wrong in the copy");
	end(&t);
}

static void test_ends(void)
{
	struct trial t;
	unsigned int jobs;

	begin(&t, 3 * MIB, 16);
	fake.job_error = -ENODEV;
	ok(mem_test_run(&t.test) == -ENODEV, "a device that goes");
	fake.job_error = 0;
	stop = 2;
	jobs = fake.jobs;
	ok(mem_test_run(&t.test) == -EINTR && fake.jobs == jobs, "an interrupt");
	stop = 0;
	end(&t);
}

int main(void)
{
	test_words();
	test_area();
	test_sound();
	test_stuck();
	test_limit();
	test_device_only();
	test_ends();
	return done();
}
