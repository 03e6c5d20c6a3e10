// SPDX-License-Identifier: MIT
/*
 * npu_mem_test: is the NPU's memory sound? Takes the contiguous memory it can
 * get and lets device and CPU write and read it in turn.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <npu/npu.h>
#include "mem_area.h"
#include "mem_device.h"
#include "mem_progress.h"
#include "mem_report.h"
#include "mem_test.h"
#include "size.h"

/* Exit status, besides 0 and 128 plus a signal. */
enum { STATUS_WRONG = 1, STATUS_USAGE = 2, STATUS_FAILED = 3 };

static const char usage[] =
	"Usage: npu_mem_test [OPTION...]\n"
	"Tests the memory of an M6 NPU: device and CPU write and read it in turn.\n"
	"\n"
	"  -p, --pattern WORD      32 bits to write, and their inverse (0xAAAAAAAA)\n"
	"  -s, --size BYTES        how much to test, with K, M, G or T; all that can\n"
	"                          be had by default\n"
	"  -i, --iter N            how often (1)\n"
	"  -d, --device N          /dev/accel/accelN (0)\n"
	"  -m, --max-errors N      wrong words to tell of; the rest is counted (16)\n"
	"  -j, --json              print one JSON object; errors to standard error\n"
	"  -q, --quiet             no progress, no summary: errors only\n"
	"  -h, --help              this text\n"
	"  -V, --version           version of libnpu\n"
	"\n"
	"Exit status: 0 memory is sound, 1 a word was wrong, 2 called wrongly,\n"
	"3 could not test, 130 interrupted.\n";

struct options {
	uint32_t pattern, iterations, max_errors;
	uint64_t size;		/* 0: all */
	int device;
	bool json, quiet;
};

/* What came of it. */
struct outcome {
	uint64_t bytes;
	uint32_t iterations;	/* whole ones */
	uint64_t duration_ns;
	bool partial;		/* stopped or failed inside of one */
	int error;
};

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
	stop = signal;
}

static void set_signals(void)
{
	const struct sigaction action = {
		.sa_handler = on_signal,
		.sa_flags = SA_RESTART,
	};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

/* ---- Options ---- */

static _Noreturn void refuse(const char *option, const char *what,
			     const char *text)
{
	fprintf(stderr, "npu_mem_test: --%s is not %s: %s\n", option, what,
		text);
	exit(STATUS_USAGE);
}

/* A number without a sign; @end is what follows it. */
static bool parse_number(const char *text, int base, uint64_t *value,
			 const char **end)
{
	char *rest;

	/* strtoull() would take a sign, and spaces before it. */
	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &rest, base);
	*end = rest;
	return !errno;
}

static uint32_t parse_pattern(const char *text)
{
	const char *end;
	uint64_t value;

	if (!parse_number(text, 0, &value, &end) || *end || value > UINT32_MAX)
		refuse("pattern", "a word of 32 bits, such as 0xAAAAAAAA",
		       text);
	return (uint32_t)value;
}

static uint64_t parse_size(const char *text)
{
	uint64_t bytes;

	if (npu_size_parse(text, &bytes) || !bytes)
		refuse("size", "a number of bytes, such as 512M or 32G", text);
	return bytes;
}

static uint32_t parse_count(const char *text, const char *name, uint32_t min,
			    uint32_t max)
{
	const char *end;
	uint64_t value;
	char what[64];

	if (parse_number(text, 10, &value, &end) && !*end && value >= min &&
	    value <= max)
		return (uint32_t)value;
	snprintf(what, sizeof(what), "a number from %" PRIu32 " to %" PRIu32,
		 min, max);
	refuse(name, what, text);
}

static void set_option(struct options *o, int c)
{
	switch (c) {
	case 'p': o->pattern = parse_pattern(optarg); break;
	case 's': o->size = parse_size(optarg); break;
	case 'i': o->iterations = parse_count(optarg, "iter", 1, 1000000000); break;
	case 'd': o->device = (int)parse_count(optarg, "device", 0, 255); break;
	case 'm': o->max_errors = parse_count(optarg, "max-errors", 0, 65536); break;
	case 'j': o->json = true; break;
	case 'q': o->quiet = true; break;
	case 'h':
		fputs(usage, stdout);
		exit(0);
	case 'V':
		printf("npu_mem_test (libnpu %s)\n", npu_version());
		exit(0);
	default:
		fprintf(stderr, "Try npu_mem_test --help\n");
		exit(STATUS_USAGE);
	}
}

static void parse_options(struct options *o, int argc, char **argv)
{
	static const struct option names[] = {
		{ "pattern", required_argument, NULL, 'p' },
		{ "size", required_argument, NULL, 's' },
		{ "iter", required_argument, NULL, 'i' },
		{ "device", required_argument, NULL, 'd' },
		{ "max-errors", required_argument, NULL, 'm' },
		{ "json", no_argument, NULL, 'j' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	*o = (struct options){
		.pattern = 0xaaaaaaaa,
		.iterations = 1,
		.max_errors = 16,
	};
	while ((c = getopt_long(argc, argv, "p:s:i:d:m:jqhV", names, NULL)) !=
	       -1)
		set_option(o, c);
	if (optind < argc) {
		fprintf(stderr,
			"npu_mem_test: unexpected argument %s; try --help\n",
			argv[optind]);
		exit(STATUS_USAGE);
	}
}

/* ---- What is told ---- */

static int complain(int error)
{
	fprintf(stderr, "npu_mem_test: %s\n",
		*npu_error() ? npu_error() : strerror(-error));
	return error;
}

static double seconds(const struct outcome *out)
{
	return (double)out->duration_ns / 1e9;
}

static void print_errors(const struct mem_report *report)
{
	unsigned int value;
	int bit;

	if (!report->mismatches) {
		puts("no errors");
		return;
	}
	printf("%s%zu word%s wrong, %" PRIu64 " times in all\n",
	       report->more ? "more than " : "", report->count,
	       report->count == 1 ? "" : "s", report->mismatches);
	bit = mem_report_stuck(report, &value);
	if (bit >= 0)
		printf("npu_mem_test: only bit %d is ever wrong, and always %u: it seems stuck at %u\n",
		       bit, value, value);
}

static void print_summary(const struct mem_report *report,
			  const struct outcome *out)
{
	printf("npu_mem_test: %s tested %" PRIu32 " time%s%s in %.1f s: ",
	       npu_size(out->bytes).text, out->iterations,
	       out->iterations == 1 ? "" : "s",
	       out->partial ? " and once in part" : "", seconds(out));
	print_errors(report);
}

static void print_json_error(const struct mem_error *e)
{
	printf("{\"address\":\"%#" PRIx64 "\",\"expected\":\"0x%08" PRIx32 "\",\"found\":\"0x%08" PRIx32 "\",\"bits\":\"0x%08" PRIx32 "\",\"test\":\"%s\",\"iteration\":%" PRIu32 "}",
	       e->addr, e->expected, e->found, e->expected ^ e->found, e->test,
	       e->iteration);
}

static void print_json(const struct options *o,
		       const struct mem_report *report,
		       const struct outcome *out)
{
	unsigned int value;
	int bit = mem_report_stuck(report, &value);
	size_t i;

	printf("{\"pattern\":\"0x%08" PRIx32 "\",\"bytes\":%" PRIu64 ",\"iterations\":%" PRIu32 ",\"complete\":%s,\"seconds\":%.3f,\"mismatches\":%" PRIu64 ",",
	       o->pattern, out->bytes, out->iterations,
	       out->partial ? "false" : "true", seconds(out),
	       report->mismatches);
	if (bit >= 0)
		printf("\"stuck_bit\":{\"bit\":%d,\"value\":%u},", bit, value);
	printf("\"more_words\":%s,\"words\":[", report->more ? "true" : "false");
	for (i = 0; i < report->count; i++) {
		fputs(i ? "," : "", stdout);
		print_json_error(&report->errors[i]);
	}
	puts("]}");
}

/* ---- Testing ---- */

static void tell_filled(void *user, uint64_t done)
{
	struct mem_progress *progress = user;

	mem_progress_add(progress, "clearing", 0, done - progress->done);
}

static void tell_less(const struct options *o, uint64_t bytes)
{
	if (o->size && bytes < o->size && !stop)
		fprintf(stderr,
			"npu_mem_test: testing %s instead of %s: no more contiguous memory is free\n",
			npu_size(bytes).text, npu_size(o->size).text);
}

/* The memory, and what the device needs of it for itself. */
static int set_up(const struct options *o, struct npu_device *device,
		  struct mem_area *area, struct mem_device *md,
		  struct mem_progress *progress, bool shown)
{
	const uint64_t most = UINT64_MAX - mem_device_bytes();
	uint64_t bytes = o->size && o->size < most ? o->size : most;
	int ret;

	ret = mem_area_reserve(area, device, bytes + mem_device_bytes());
	if (!ret)
		ret = mem_device_init(md, area, o->pattern);
	if (ret)
		return ret;
	mem_progress_begin(progress, shown, (double)area->reserved);
	ret = mem_area_fill(area, bytes, tell_filled, progress, &stop);
	mem_progress_clear(progress);
	if (!ret)
		tell_less(o, area->bytes);
	return ret;
}

static void run_iterations(const struct options *o, struct mem_test *test,
			   struct outcome *out)
{
	uint64_t begun = mem_now_ns();
	int ret = stop ? -EINTR : 0;

	out->bytes = test->area->bytes;
	while (out->iterations < o->iterations && !ret) {
		test->iteration = out->iterations + 1;
		ret = mem_test_run(test);
		if (!ret)
			out->iterations++;
	}
	out->partial = ret != 0;
	out->error = ret == -EINTR ? 0 : ret;
	out->duration_ns = mem_now_ns() - begun;
	mem_progress_clear(test->progress);
}

static void tell_outcome(const struct options *o,
			 const struct mem_report *report,
			 const struct outcome *out)
{
	if (out->error)
		complain(out->error);
	if (o->json)
		print_json(o, report, out);
	else if (!o->quiet)
		print_summary(report, out);
}

static int test_memory(const struct options *o, struct npu_device *device,
		       struct mem_report *report)
{
	const bool shown = isatty(STDERR_FILENO) && !o->quiet;
	struct mem_progress progress = { 0 };
	struct outcome out = { 0 };
	struct mem_area area;
	struct mem_device md;
	struct mem_test test = {
		.area = &area, .device = &md, .report = report,
		.progress = &progress, .stop = &stop,
	};
	int ret;

	ret = set_up(o, device, &area, &md, &progress, shown);
	if (!ret) {
		mem_progress_begin(&progress, shown, (double)area.bytes *
				   mem_test_passes() * o->iterations);
		run_iterations(o, &test, &out);
		tell_outcome(o, report, &out);
		ret = out.error;
	} else {
		complain(ret);
	}
	mem_area_free(&area);
	return ret;
}

static int exit_status(const struct mem_report *report, int ret)
{
	if (stop)
		return 128 + stop;
	if (report->mismatches)
		return STATUS_WRONG;
	return ret ? STATUS_FAILED : 0;
}

int main(int argc, char **argv)
{
	struct npu_device *device;
	struct mem_report report;
	struct options options;
	int ret;

	parse_options(&options, argc, argv);
	set_signals();
	ret = mem_report_init(&report, options.json ? stderr : stdout,
			      options.max_errors);
	if (!ret)
		ret = npu_device_open(options.device, &device);
	if (ret) {
		complain(ret);
		return STATUS_FAILED;
	}
	ret = test_memory(&options, device, &report);
	npu_device_close(device);
	ret = exit_status(&report, ret);
	mem_report_free(&report);
	return ret;
}
