// SPDX-License-Identifier: MIT
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

void text_filter_init(struct text_filter *filter, char *const *stops,
		      uint32_t stop_count, text_emit_fn emit, void *user)
{
	*filter = (struct text_filter){
		.stops = stops,
		.stop_count = stop_count,
		.emit = emit,
		.user = user,
	};
}

void text_filter_release(struct text_filter *filter)
{
	free(filter->held);
	filter->held = NULL;
}

/*
 * Length of the sequence at @s: positive when whole, 0 when it may become one
 * with more bytes, minus the length of the part to replace by one U+FFFD when
 * it can't. Ranges of the second byte from table 3-7 of the Unicode standard,
 * which also says how much to replace ("maximal subpart").
 */
static int sequence(const unsigned char *s, size_t left)
{
	static const struct {
		unsigned char first, last, low, high;
		int bytes;
	} forms[] = {
		{ 0x00, 0x7f, 0x00, 0x00, 1 }, { 0xc2, 0xdf, 0x80, 0xbf, 2 },
		{ 0xe0, 0xe0, 0xa0, 0xbf, 3 }, { 0xe1, 0xec, 0x80, 0xbf, 3 },
		{ 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
		{ 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 },
		{ 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (s[0] < forms[i].first || s[0] > forms[i].last)
			continue;
		for (int k = 1; k < forms[i].bytes; k++) {
			unsigned char low = k == 1 ? forms[i].low : 0x80;
			unsigned char high = k == 1 ? forms[i].high : 0xbf;

			if ((size_t)k >= left)
				return 0;
			if (s[k] < low || s[k] > high)
				return -k;
		}
		return forms[i].bytes;
	}
	return -1;
}

/* Emits @count bytes, with U+FFFD for what is in no sequence. */
static void emit_valid(struct text_filter *filter, const char *text,
		       size_t count)
{
	size_t from = 0, at = 0;

	while (at < count) {
		int bytes = sequence((const unsigned char *)text + at,
				     count - at);

		if (bytes > 0) {
			at += (size_t)bytes;
			continue;
		}
		if (at > from)
			filter->emit(filter->user, text + from, at - from);
		filter->emit(filter->user, REPLACEMENT, strlen(REPLACEMENT));
		at = bytes ? at + (size_t)-bytes : count;
		from = at;
	}
	if (at > from)
		filter->emit(filter->user, text + from, at - from);
}

/* Bytes at the end of @text that an unfinished sequence takes, 0..3. */
static size_t unfinished(const char *text, size_t count)
{
	size_t most = count < 3 ? count : 3;

	for (size_t tail = most; tail > 0; tail--) {
		const unsigned char *s =
			(const unsigned char *)text + count - tail;

		if ((s[0] & 0xc0) != 0x80 && sequence(s, tail) == 0)
			return tail;
	}
	return 0;
}

/* Longest end of @text that is a proper beginning of a stop string. */
static size_t stop_prefix(const struct text_filter *filter)
{
	size_t longest = 0;

	for (uint32_t i = 0; i < filter->stop_count; i++) {
		size_t most = strlen(filter->stops[i]) - 1;

		if (most > filter->held_bytes)
			most = filter->held_bytes;
		for (size_t n = most; n > longest; n--) {
			const char *tail =
				filter->held + filter->held_bytes - n;

			if (!memcmp(tail, filter->stops[i], n)) {
				longest = n;
				break;
			}
		}
	}
	return longest;
}

/* Where the first stop string begins, or held_bytes. */
static size_t find_stop(const struct text_filter *filter)
{
	size_t first = filter->held_bytes;

	for (uint32_t i = 0; i < filter->stop_count; i++) {
		const char *hit = memmem(filter->held, filter->held_bytes,
					 filter->stops[i],
					 strlen(filter->stops[i]));

		if (hit && (size_t)(hit - filter->held) < first)
			first = (size_t)(hit - filter->held);
	}
	return first;
}

static int hold(struct text_filter *filter, const char *bytes, size_t count)
{
	size_t need = filter->held_bytes + count;

	if (need > filter->held_room) {
		size_t room = need * 2 + 64;
		char *grown = realloc(filter->held, room);

		if (!grown)
			return -ENOMEM;
		filter->held = grown;
		filter->held_room = room;
	}
	if (count)
		memcpy(filter->held + filter->held_bytes, bytes, count);
	filter->held_bytes = need;
	return 0;
}

int text_filter_push(struct text_filter *filter, const char *bytes,
		     size_t count)
{
	size_t stop, keep, cut;
	int err = hold(filter, bytes, count);

	if (err)
		return err;
	if (!filter->held_bytes)
		return 0;
	stop = find_stop(filter);
	if (stop < filter->held_bytes) {
		emit_valid(filter, filter->held, stop);
		filter->held_bytes = 0;
		return 1;
	}
	keep = stop_prefix(filter);
	cut = unfinished(filter->held, filter->held_bytes);
	if (cut > keep)
		keep = cut;
	/* What is kept may begin inside a sequence that is whole. */
	keep += unfinished(filter->held, filter->held_bytes - keep);
	emit_valid(filter, filter->held, filter->held_bytes - keep);
	memmove(filter->held, filter->held + filter->held_bytes - keep, keep);
	filter->held_bytes = keep;
	return 0;
}

void text_filter_flush(struct text_filter *filter)
{
	emit_valid(filter, filter->held, filter->held_bytes);
	filter->held_bytes = 0;
}
