// SPDX-License-Identifier: MIT
#include "mem_report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

int mem_report_init(struct mem_report *report, FILE *lines, size_t limit)
{
	*report = (struct mem_report){ .lines = lines, .limit = limit };
	report->errors = calloc(limit + 1, sizeof(report->errors[0]));
	return report->errors ? 0 : -ENOMEM;
}

void mem_report_free(struct mem_report *report)
{
	free(report->errors);
}

static bool known(const struct mem_report *report, uint64_t addr)
{
	size_t i;

	for (i = 0; i < report->count; i++)
		if (report->errors[i].addr == addr)
			return true;
	return false;
}

static void tell(const struct mem_report *report, const struct mem_error *e)
{
	fprintf(report->lines,
		"MEM_CORRUPTION_ERR: device address %#" PRIx64 ", expected 0x%08" PRIx32 ", found 0x%08" PRIx32 ", bits 0x%08" PRIx32 " (test %s, iteration %" PRIu32 ")\n",
		e->addr, e->expected, e->found, e->expected ^ e->found, e->test,
		e->iteration);
	fflush(report->lines);
}

void mem_report_add(struct mem_report *report, const struct mem_error *error)
{
	uint32_t bits = error->expected ^ error->found;

	report->mismatches++;
	report->bits |= bits;
	report->high |= bits & error->found;
	report->low |= bits & ~error->found;
	if (known(report, error->addr))
		return;
	if (report->count == report->limit) {
		report->more = true;
		return;
	}
	report->errors[report->count++] = *error;
	tell(report, error);
}

int mem_report_stuck(const struct mem_report *report, unsigned int *value)
{
	if (__builtin_popcount(report->bits) != 1 ||
	    (report->high && report->low))
		return -1;
	*value = report->high != 0;
	return __builtin_ctz(report->bits);
}
