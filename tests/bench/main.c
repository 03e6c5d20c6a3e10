// SPDX-License-Identifier: MIT
/*
 * Times pools, buffers and defragmentation. Prints a line of JSON for each row
 * of a table; tests/bench/run shows them.
 *
 * Usage: bench_pools [TABLE...]
 */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

int bench_fd;
uint64_t bench_area;

static const struct {
	const char *name;
	void (*run)(void);
} tables[] = {
	{ "ioctl", bench_ioctl }, { "pools", bench_pools },
	{ "buffers", bench_buffers }, { "first_use", bench_touch },
	{ "defrag", bench_defrag }, { "growth", bench_growth },
};

static bool is_wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc < 2;
}

static void show_guest(void)
{
	struct utsname name = { 0 };

	uname(&name);
	printf("{\"table\": \"guest\", \"machine\": \"%s\", \"kernel\": \"%s\""
	       ", \"processors\": %ld, \"area\": %" PRIu64 "}\n",
	       name.machine, name.release, sysconf(_SC_NPROCESSORS_ONLN),
	       bench_area);
}

int main(int argc, char **argv)
{
	bench_fd = board_open();
	if (bench_fd < 0) {
		fprintf(stderr, "bench_pools: no M6 NPU; is m6npu.ko loaded?\n");
		return 1;
	}
	bench_area = board_area_size(bench_fd);
	show_guest();
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		if (!is_wanted(tables[i].name, argc, argv))
			continue;
		tables[i].run();
		fflush(stdout);
	}
	return 0;
}
