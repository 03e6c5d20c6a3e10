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

/* ---- Normal forms ---- */

struct codepoints {
	utf8proc_int32_t *list;
	size_t count, room;
};

static int make_room(struct codepoints *c, size_t room)
{
	utf8proc_int32_t *p = realloc(c->list, room * sizeof(*p));

	if (!p)
		return npu_fail_memory();
	c->list = p;
	c->room = room;
	return 0;
}

static int fail_normalize(utf8proc_ssize_t error)
{
	return npu_fail(error == UTF8PROC_ERROR_NOMEM ? -ENOMEM : -EINVAL,
			"cannot normalize text: %s", utf8proc_errmsg(error));
}

static int decompose(struct codepoints *c, const char *bytes, size_t size,
		     utf8proc_option_t options)
{
	const char *end = bytes + size;
	utf8proc_ssize_t n;
	size_t length;
	int ret;

	/* The one more is for utf8proc_reencode(). */
	ret = make_room(c, size + 1);
	for (; !ret && bytes < end; bytes += length) {
		size_t left = c->room - c->count - 1;
		int unused = 0;

		length = npu_utf8_length(bytes, end);
		if (!length)
			return fail_normalize(UTF8PROC_ERROR_INVALIDUTF8);
		n = utf8proc_decompose_char(
			(utf8proc_int32_t)npu_utf8_char(bytes, length),
			c->list + c->count, (utf8proc_ssize_t)left, options,
			&unused);
		if (n < 0)
			return fail_normalize(n);
		if ((size_t)n > left) {
			ret = make_room(c, 2 * c->room + (size_t)n);
			length = 0;
		} else {
			c->count += (size_t)n;
		}
	}
	return ret;
}

static unsigned int combining_class(utf8proc_int32_t c)
{
	return (unsigned int)utf8proc_get_property(c)->combining_class & 0xff;
}

/* By combining class, equals in their order. */
static int order_run(utf8proc_int32_t *run, size_t count)
{
	utf8proc_int32_t *copy = malloc(count * sizeof(*copy));
	size_t at[257] = { 0 }, i;

	if (!copy)
		return npu_fail_memory();
	memcpy(copy, run, count * sizeof(*copy));
	for (i = 0; i < count; i++)
		at[combining_class(copy[i]) + 1]++;
	for (i = 1; i < 257; i++)
		at[i] += at[i - 1];
	for (i = 0; i < count; i++)
		run[at[combining_class(copy[i])]++] = copy[i];
	free(copy);
	return 0;
}

/*
 * utf8proc_map() would do it by exchanging neighbours, and take hours over a
 * megabyte of marks in the wrong order.
 */
static int order_marks(struct codepoints *c)
{
	size_t i, end;
	int ret = 0;

	for (i = 0; i < c->count && !ret; i = end + 1) {
		bool sorted = true;

		for (end = i; end < c->count && combining_class(c->list[end]);
		     end++)
			if (end > i && combining_class(c->list[end - 1]) >
					       combining_class(c->list[end]))
				sorted = false;
		if (!sorted)
			ret = order_run(c->list + i, end - i);
	}
	return ret;
}

int npu_text_append_form(struct npu_text *text, const char *bytes, size_t size,
			 enum npu_normal_form form)
{
	static const utf8proc_option_t forms[] = {
		[NPU_FORM_NFC] = UTF8PROC_COMPOSE,
		[NPU_FORM_NFD] = UTF8PROC_DECOMPOSE,
		[NPU_FORM_NFKC] = UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
		[NPU_FORM_NFKD] = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
	};
	utf8proc_option_t options;
	struct codepoints c = { 0 };
	utf8proc_ssize_t n;
	int ret;

	if (form == NPU_FORM_NONE || is_ascii(bytes, size))
		return npu_text_append(text, bytes, size);
	options = UTF8PROC_STABLE | forms[form];
	ret = decompose(&c, bytes, size, options);
	if (!ret)
		ret = order_marks(&c);
	if (!ret) {
		n = utf8proc_reencode(c.list, (utf8proc_ssize_t)c.count,
				      options);
		ret = n < 0 ? fail_normalize(n) :
			      npu_text_append(text, (const char *)c.list,
					      (size_t)n);
	}
	free(c.list);
	return ret;
}
