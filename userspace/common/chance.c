// SPDX-License-Identifier: MIT
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

#include "chance.h"

static int parse(const char *text, char last, uint32_t *permille, char **end)
{
	double chance;

	/* strtod() would take a sign, blanks and words. */
	if (!isdigit((unsigned char)*text) && *text != '.')
		return -EINVAL;
	chance = strtod(text, end);
	if (*end == text || **end != last || !(chance <= 1))
		return -EINVAL;
	*permille = (uint32_t)(chance * 1000 + 0.5);
	if (!*permille)
		*permille = 1;
	return 0;
}

int npu_chance_parse(const char *text, uint32_t *permille)
{
	char *end;

	return parse(text, '\0', permille, &end);
}

int npu_chances_parse(const char *text, uint32_t *low, uint32_t *high)
{
	char *end;

	if (parse(text, ',', low, &end) ||
	    parse(end + 1, '\0', high, &end) || *low > *high)
		return -EINVAL;
	return 0;
}
