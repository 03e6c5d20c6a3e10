// SPDX-License-Identifier: MIT
/*
 * UTF-8 text: made valid, brought into a Unicode normal form.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "error.h"
#include "text.h"

int npu_text_append(struct npu_text *text, const char *bytes, size_t size)
{
	if (size > text->room - text->size) {
		size_t room = 2 * (text->size + size) + 64;
		char *p = realloc(text->bytes, room);

		if (!p)
			return npu_fail_memory();
		text->bytes = p;
		text->room = room;
	}
	if (size)
		memcpy(text->bytes + text->size, bytes, size);
	text->size += size;
	return 0;
}

void npu_text_clear(struct npu_text *text)
{
	free(text->bytes);
	*text = (struct npu_text){ 0 };
}

static bool continues(const char *p, const char *end, unsigned char low,
		      unsigned char high)
{
	unsigned char c = p < end ? (unsigned char)*p : 0;

	return c >= low && c <= high;
}

/*
 * Bytes at @p that are a sequence or the longest beginning of one; at least 1.
 * Table 3-7 of the Unicode standard.
 */
static size_t subpart(const char *p, const char *end, bool *complete)
{
	unsigned char c = (unsigned char)*p;
	unsigned char low = 0x80, high = 0xbf;
	size_t i, length;

	*complete = c < 0x80;
	if (c < 0xc2 || c > 0xf4)
		return 1;
	length = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
	if (c == 0xe0)
		low = 0xa0;
	else if (c == 0xed)
		high = 0x9f;
	else if (c == 0xf0)
		low = 0x90;
	else if (c == 0xf4)
		high = 0x8f;
	if (!continues(p + 1, end, low, high))
		return 1;
	for (i = 2; i < length; i++)
		if (!continues(p + i, end, 0x80, 0xbf))
			return i;
	*complete = true;
	return length;
}

size_t npu_utf8_length(const char *p, const char *end)
{
	bool complete;
	size_t n = subpart(p, end, &complete);

	return complete ? n : 0;
}

uint32_t npu_utf8_char(const char *p, size_t length)
{
	static const unsigned char lead_bits[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
	uint32_t c = (unsigned char)p[0] & lead_bits[length];
	size_t i;

	for (i = 1; i < length; i++)
		c = c << 6 | ((unsigned char)p[i] & 0x3f);
	return c;
}

int npu_text_append_utf8(struct npu_text *text, const char *bytes, size_t size)
{
	const char *p = bytes, *end = bytes + size, *good = bytes;
	bool complete;
	int ret = 0;

	while (p < end && !ret) {
		size_t n = subpart(p, end, &complete);

		if (!complete) {
			ret = npu_text_append(text, good, (size_t)(p - good));
			if (!ret)
				ret = npu_text_append(text, "\xef\xbf\xbd", 3);
			good = p + n;
		}
		p += n;
	}
	return ret ? ret : npu_text_append(text, good, (size_t)(end - good));
}

static bool is_ascii(const char *bytes, size_t size)
{
	while (size--)
		if (*bytes++ & 0x80)
			return false;
	return true;
}

int npu_text_append_form(struct npu_text *text, const char *bytes, size_t size,
			 enum npu_normal_form form)
{
	static const utf8proc_option_t options[] = {
		[NPU_FORM_NFC] = UTF8PROC_COMPOSE,
		[NPU_FORM_NFD] = UTF8PROC_DECOMPOSE,
		[NPU_FORM_NFKC] = UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
		[NPU_FORM_NFKD] = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
	};
	utf8proc_uint8_t *mapped = NULL;
	utf8proc_ssize_t n;
	int ret;

	if (form == NPU_FORM_NONE || is_ascii(bytes, size))
		return npu_text_append(text, bytes, size);
	n = utf8proc_map((const utf8proc_uint8_t *)bytes,
			 (utf8proc_ssize_t)size, &mapped,
			 UTF8PROC_STABLE | options[form]);
	if (n < 0)
		return npu_fail(n == UTF8PROC_ERROR_NOMEM ? -ENOMEM : -EINVAL,
				"cannot normalize text: %s",
				utf8proc_errmsg(n));
	ret = npu_text_append(text, (const char *)mapped, (size_t)n);
	free(mapped);
	return ret;
}
