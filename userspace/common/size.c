// SPDX-License-Identifier: MIT
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "size.h"

struct npu_size npu_size(uint64_t bytes)
{
	static const char *const units[] = { "bytes", "KiB", "MiB", "GiB" };
	double value = (double)bytes;
	struct npu_size size;
	unsigned int i = 0;

	while (value >= 1024 && i + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1024;
		i++;
	}
	snprintf(size.text, sizeof(size.text), "%.*f %s",
		 value == (double)(uint64_t)value ? 0 : 2, value, units[i]);
	return size;
}

int npu_size_parse(const char *text, uint64_t *bytes)
{
	static const char letters[] = "KMGT";
	unsigned int shift = 0;
	const char *letter;
	char *end;

	/* strtoull() would take a sign. */
	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	*bytes = strtoull(text, &end, 10);
	letter = *end ? strchr(letters, toupper((unsigned char)*end)) : NULL;
	if (letter) {
		shift = 10 * (unsigned int)(letter - letters + 1);
		end++;
	}
	if (errno || *end || *bytes > UINT64_MAX >> shift)
		return -EINVAL;
	*bytes <<= shift;
	return 0;
}
