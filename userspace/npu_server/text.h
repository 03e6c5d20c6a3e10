/* SPDX-License-Identifier: MIT */
/*
 * From token bytes to text that may be shown: whole UTF-8 sequences only, and
 * nothing that may still turn out to be a part of a stop string.
 */
#ifndef NPU_SERVER_TEXT_H
#define NPU_SERVER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*text_emit_fn)(void *user, const char *text, size_t bytes);

struct text_filter {
	char *const *stops;	/* the caller's, not empty strings */
	uint32_t stop_count;
	char *held;
	size_t held_bytes;
	size_t held_room;
	text_emit_fn emit;
	void *user;
};

void text_filter_init(struct text_filter *filter, char *const *stops,
		      uint32_t stop_count, text_emit_fn emit, void *user);
void text_filter_release(struct text_filter *filter);

/*
 * Takes bytes, emits what is safe. 1: a stop string was found, it and what
 * follows is dropped. 0: go on. -ENOMEM.
 */
int text_filter_push(struct text_filter *filter, const char *bytes,
		     size_t count);
/* The end: what is held comes out, a sequence cut short as U+FFFD. */
void text_filter_flush(struct text_filter *filter);

#endif
