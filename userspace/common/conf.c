// SPDX-License-Identifier: MIT
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "conf.h"

static char *trim(char *text)
{
	char *end;

	while (isspace((unsigned char)*text))
		text++;
	end = text + strlen(text);
	while (end > text && isspace((unsigned char)end[-1]))
		*--end = 0;
	return text;
}

static int complain(const char *program, const char *where, const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program, where, what);
	return -1;
}

static bool is_section(const char *text, const char *name)
{
	size_t length = strlen(name);

	return !strncmp(text + 1, name, length) &&
	       !strcmp(text + 1 + length, "]");
}

int npu_conf_read(const char *program, const char *path, const char *section,
		  npu_conf_set *set, void *user)
{
	FILE *file = fopen(path ? path : NPU_CONF_DEFAULT, "re");
	char line[1024], where[300];
	bool ours = false;
	int number = 0, ret = 0;

	if (!file && !path && errno == ENOENT)
		return 0;
	if (!path)
		path = NPU_CONF_DEFAULT;
	if (!file)
		return complain(program, path, strerror(errno));
	while (!ret && fgets(line, sizeof(line), file)) {
		char *text = trim(line), *equals = strchr(text, '=');

		snprintf(where, sizeof(where), "%s:%d", path, ++number);
		if (!*text || *text == '#' || *text == ';')
			continue;
		if (*text == '[') {
			ours = is_section(text, section);
		} else if (ours && !equals) {
			ret = complain(program, where, "no 'key=value'");
		} else if (ours) {
			*equals = 0;
			ret = set(user, trim(text), trim(equals + 1), where);
		}
	}
	if (!ret && ferror(file))
		ret = complain(program, path, strerror(errno));
	fclose(file);
	return ret;
}
