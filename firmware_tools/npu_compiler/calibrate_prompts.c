// SPDX-License-Identifier: MIT
#include "calibrate_prompts.h"

#include <stdlib.h>
#include <string.h>

#include "text.h"

#define MAX_PROMPTS_BYTES	(64u << 20)
#define BYTE_ORDER_MARK		"\xef\xbb\xbf"

static int check_line(const char *path, unsigned int number, const char *text,
		      const char *end)
{
	const char *p = text;
	size_t length;

	while (p < end) {
		length = npu_utf8_length(p, end);
		if (!length)
			return fail("%s, line %u: byte %zu is not valid UTF-8: save the file as UTF-8",
				    path, number, p - text + 1);
		if (!*p)
			return fail("%s, line %u: byte %zu is NUL: prompts are text, one a line",
				    path, number, p - text + 1);
		p += length;
	}
	return 0;
}

static void add_prompt(struct prompts *prompts, const char *text,
		       unsigned int number)
{
	if (!text[strspn(text, " \t\v\f\r")])
		return;
	prompts->list = xrealloc(prompts->list, prompts->count + 1,
				 sizeof(*prompts->list));
	prompts->list[prompts->count++] = (struct prompt){ text, number };
}

static int split_lines(const char *path, struct prompts *prompts, char *text,
		       char *end)
{
	unsigned int number = 0;
	char *line_end, *next;

	for (; text < end; text = next) {
		number++;
		line_end = memchr(text, '\n', end - text);
		if (!line_end)
			line_end = end;
		next = line_end + 1;
		if (check_line(path, number, text, line_end))
			return -1;
		*line_end = 0;
		if (line_end > text && line_end[-1] == '\r')
			line_end[-1] = 0;
		add_prompt(prompts, text, number);
	}
	if (!prompts->count)
		return fail("%s holds no prompt: write one a line", path);
	return 0;
}

int prompts_read(const char *path, struct prompts *prompts)
{
	size_t bytes, mark = strlen(BYTE_ORDER_MARK);
	char *text;

	*prompts = (struct prompts){ 0 };
	if (read_file(path, MAX_PROMPTS_BYTES, &prompts->data, &bytes))
		return -1;
	text = prompts->data;
	if (bytes >= mark && !memcmp(text, BYTE_ORDER_MARK, mark))
		text += mark;
	if (!split_lines(path, prompts, text, prompts->data + bytes))
		return 0;
	prompts_free(prompts);
	return -1;
}

void prompts_free(struct prompts *prompts)
{
	free(prompts->data);
	free(prompts->list);
	*prompts = (struct prompts){ 0 };
}
