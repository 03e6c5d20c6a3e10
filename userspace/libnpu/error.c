// SPDX-License-Identifier: MIT
/*
 * The calling thread's last error message.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <npu/npu.h>
#include "error.h"

#define NPU_ERROR_BYTES 512

static _Thread_local char message[NPU_ERROR_BYTES];

const char *npu_error(void)
{
	return message;
}

/* Arguments may come from a file: keep the message one printable line. */
static void clean(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
}

int npu_fail(int error, const char *format, ...)
{
	char text[NPU_ERROR_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	clean(text);
	memcpy(message, text, sizeof(message));
	return error;
}

int npu_fail_memory(void)
{
	return npu_fail(-ENOMEM, "out of memory");
}

void npu_error_prefix(const char *format, ...)
{
	char text[NPU_ERROR_BYTES];
	va_list args;
	size_t n, room;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	clean(text);
	n = strlen(text);
	room = sizeof(text) - 1 - n;
	strncat(text, ": ", room);
	n = strlen(text);
	room = sizeof(text) - 1 - n;
	strncat(text, message, room);
	memcpy(message, text, sizeof(message));
}
