// SPDX-License-Identifier: MIT
#include "mem_test.h"

#include <errno.h>
#include <stdbool.h>

#include "mem_words.h"

struct pass {
	const char *what;	/* for the progress line */
	int (*run)(struct mem_test *test, const struct pass *pass,
		   const struct mem_piece *piece);
	unsigned int pattern;
	unsigned int touched;	/* how often each byte is */
	/* Names of the tests that the pass completes: who wrote, who read. */
	const char *by_device, *by_cpu;
};

static size_t words(const struct mem_piece *piece)
{
	return piece->size / sizeof(uint32_t);
}

static void report(struct mem_test *test, const char *name, uint64_t addr,
		   uint32_t expected, uint32_t found)
{
	const struct mem_error error = {
		.addr = addr,
		.expected = expected,
		.found = found,
		.test = name,
		.iteration = test->iteration,
	};

	mem_progress_clear(test->progress);
	mem_report_add(test->report, &error);
}

static int sync_to_device(const struct mem_piece *piece)
{
	return npu_buffer_sync_to_device(piece->buffer, piece->offset,
					 piece->size);
}

static int sync_from_device(const struct mem_piece *piece)
{
	return npu_buffer_sync_from_device(piece->buffer, piece->offset,
					   piece->size);
}

/* ---- One pattern ---- */

static int device_fill(struct mem_test *test, const struct pass *pass,
		       const struct mem_piece *piece)
{
	return mem_device_fill(test->device, piece, pass->pattern);
}

static int cpu_fill(struct mem_test *test, const struct pass *pass,
		    const struct mem_piece *piece)
{
	mem_words_fill(piece->cpu, words(piece),
		       test->device->pattern[pass->pattern]);
	return sync_to_device(piece);
}

/* Every wrong word that the CPU finds; false if there is none. */
static bool report_words(struct mem_test *test, const char *name,
			 const struct mem_piece *piece, uint32_t pattern)
{
	bool any = false;
	size_t i;

	for (i = 0; i < words(piece); i++) {
		uint32_t found = ((const volatile uint32_t *)piece->cpu)[i];

		if (found == pattern)
			continue;
		report(test, name, piece->addr + i * sizeof(found), pattern,
		       found);
		any = true;
	}
	return any;
}

/* Of what the device found the CPU knows more, unless it reads it right. */
static void report_finding(struct mem_test *test, const char *name,
			   const struct mem_piece *piece, uint32_t pattern,
			   const struct mem_finding *finding)
{
	if (!report_words(test, name, piece, pattern))
		report(test, name, finding->addr, pattern, finding->found);
}

static int check(struct mem_test *test, const struct pass *pass,
		 const struct mem_piece *piece)
{
	uint32_t pattern = test->device->pattern[pass->pattern];
	struct mem_finding finding;
	int ret;

	ret = mem_device_compare(test->device, piece, pass->pattern, &finding);
	if (!ret)
		ret = sync_from_device(piece);
	if (ret)
		return ret;
	if (finding.mismatches)
		report_finding(test, pass->by_device, piece, pattern, &finding);
	else if (mem_words_differ(piece->cpu, words(piece), pattern))
		report_words(test, pass->by_cpu, piece, pattern);
	return 0;
}

/* ---- Walking bits ---- */

/* Again, as the patterns after it are in memory now. */
static int repeat(struct mem_test *test, const struct pass *pass,
		  const struct mem_piece *piece, unsigned int pattern,
		  const struct mem_finding *finding)
{
	int ret = mem_device_fill(test->device, piece, pattern);

	if (!ret)
		ret = sync_from_device(piece);
	if (!ret)
		report_finding(test, pass->by_device, piece,
			       test->device->pattern[pattern], finding);
	return ret;
}

static int walk(struct mem_test *test, const struct pass *pass,
		const struct mem_piece *piece)
{
	struct mem_finding findings[MEM_WALK_STEPS];
	unsigned int i;
	int ret;

	ret = mem_device_walk(test->device, piece, pass->pattern, findings);
	for (i = 0; i < MEM_WALK_STEPS && !ret; i++)
		if (findings[i].mismatches)
			ret = repeat(test, pass, piece, pass->pattern + i,
				     &findings[i]);
	return ret;
}

/* ---- Addresses ---- */

static int address_fill(struct mem_test *test, const struct pass *pass,
			const struct mem_piece *piece)
{
	mem_words_fill_address(piece->cpu, words(piece), piece->addr);
	return sync_to_device(piece);
}

/*
 * A word that is right in its place and wrong in the copy went wrong in the
 * copy's memory.
 */
static void report_copy(struct mem_test *test, const struct pass *pass,
			const struct mem_piece *piece, const uint32_t *copy,
			uint64_t copy_addr)
{
	size_t i;

	for (i = 0; i < words(piece); i++) {
		uint32_t word = ((const volatile uint32_t *)piece->cpu)[i];
		uint64_t at = i * sizeof(word);
		uint32_t expected = mem_address_word(piece->addr + at);

		if (word != expected)
			report(test, copy[i] != expected ? pass->by_device :
							   pass->by_cpu,
			       piece->addr + at, expected, word);
		else if (copy[i] != expected)
			report(test, pass->by_device, copy_addr + at, expected,
			       copy[i]);
	}
}

static int address_check(struct mem_test *test, const struct pass *pass,
			 const struct mem_piece *piece)
{
	const uint32_t *copy;
	uint64_t copy_addr;
	int ret;

	ret = mem_device_copy(test->device, piece, &copy, &copy_addr);
	if (!ret)
		ret = sync_from_device(piece);
	if (ret)
		return ret;
	if (mem_words_differ_address(copy, words(piece), piece->addr) ||
	    mem_words_differ_address(piece->cpu, words(piece), piece->addr))
		report_copy(test, pass, piece, copy, copy_addr);
	return 0;
}

/* ---- All of them ---- */

#define ONE_PATTERN(name, pattern)					\
	{ "device writes " name, device_fill, pattern, 1 },		\
	{ "checking " name, check, pattern, 2,				\
	  "device-device", "device-cpu" },				\
	{ "CPU writes " name, cpu_fill, pattern, 1 },			\
	{ "checking " name, check, pattern, 2, "cpu-device", "cpu-cpu" }

static const struct pass passes[] = {
	ONE_PATTERN("pattern", MEM_BASE),
	ONE_PATTERN("inverse", MEM_INVERSE),
	{ "walking ones", walk, MEM_WALKING_ONES, 2 * MEM_WALK_STEPS,
	  "walking-ones" },
	{ "walking zeros", walk, MEM_WALKING_ZEROS, 2 * MEM_WALK_STEPS,
	  "walking-zeros" },
	{ "CPU writes addresses", address_fill, 0, 1 },
	{ "checking addresses", address_check, 0, 4,
	  "address-device", "address-cpu" },
};

#define PASSES	(sizeof(passes) / sizeof(passes[0]))

uint64_t mem_test_passes(void)
{
	uint64_t touched = 0;
	size_t i;

	for (i = 0; i < PASSES; i++)
		touched += passes[i].touched;
	return touched;
}

static int run_pass(struct mem_test *test, const struct pass *pass)
{
	size_t i;

	for (i = 0; i < test->area->piece_count; i++) {
		const struct mem_piece *piece = &test->area->pieces[i];
		int ret;

		if (*test->stop)
			return -EINTR;
		ret = pass->run(test, pass, piece);
		if (ret)
			return ret;
		mem_progress_add(test->progress, pass->what, test->iteration,
				 (uint64_t)piece->size * pass->touched);
	}
	return 0;
}

int mem_test_run(struct mem_test *test)
{
	size_t i;
	int ret = 0;

	for (i = 0; i < PASSES && !ret; i++)
		ret = run_pass(test, &passes[i]);
	return ret;
}
