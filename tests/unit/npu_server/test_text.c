// SPDX-License-Identifier: MIT
/* Whole UTF-8 sequences only, and nothing of a stop string. */
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "text.h"

struct sink {
	char text[4096];
	size_t bytes;
	bool broken;	/* a piece that was no valid UTF-8 by itself */
};

static bool boundary(char byte)
{
	return ((unsigned char)byte & 0xc0) != 0x80;
}

static void emit(void *user, const char *text, size_t bytes)
{
	struct sink *sink = user;

	if (bytes && !boundary(text[0]))
		sink->broken = true;
	memcpy(sink->text + sink->bytes, text, bytes);
	sink->bytes += bytes;
	sink->text[sink->bytes] = 0;
}

/* Pushes @in in pieces of @step bytes; whether a stop was met. */
static bool run(struct sink *sink, const char *in, size_t count, size_t step,
		char *const *stops, uint32_t stop_count)
{
	struct text_filter filter;
	int stopped = 0;

	*sink = (struct sink){ 0 };
	text_filter_init(&filter, stops, stop_count, emit, sink);
	for (size_t at = 0; at < count && !stopped; at += step) {
		size_t n = count - at < step ? count - at : step;

		stopped = text_filter_push(&filter, in + at, n);
	}
	if (!stopped)
		text_filter_flush(&filter);
	text_filter_release(&filter);
	return stopped == 1;
}

static void test_utf8(void)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "plain", "plain" },
		{ "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\xb1!",
		  "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\xb1!" },
		{ "a\x80" "b", "a\xef\xbf\xbd" "b" },
		{ "cut \xe2\x82", "cut \xef\xbf\xbd" },
		{ "over \xc0\xaf", "over \xef\xbf\xbd\xef\xbf\xbd" },
		{ "half \xed\xa0\x80 pair",
		  "half \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd pair" },
		{ "\xe2\xe2\x82\xac", "\xef\xbf\xbd\xe2\x82\xac" },
		{ "\xf5 high", "\xef\xbf\xbd high" },
		/* A sequence that another one cuts short is one error. */
		{ "\xe2\x82\xc3\xa9", "\xef\xbf\xbd\xc3\xa9" },
	};
	struct sink sink;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool same = true;

		for (size_t step = 1; step < 6; step++) {
			run(&sink, cases[i].in, strlen(cases[i].in), step, NULL,
			    0);
			same = same && !strcmp(sink.text, cases[i].out) &&
			       !sink.broken;
		}
		ok(same, "UTF-8 case %zu in pieces of 1 to 5 bytes", i);
	}
}

static void test_stops(void)
{
	static const struct {
		const char *in, *stop, *other, *out;
		bool stopped;
	} cases[] = {
		{ "one two three", "two", NULL, "one ", true },
		{ "one tw", "two", NULL, "one tw", false },
		{ "aaab", "aab", NULL, "a", true },
		{ "xyz", "longer than it all", NULL, "xyz", false },
		{ "a\n\nb", "\n\n", "b", "a", true },
		{ "abcdef", "cd", "bcdefg", "ab", true },
		{ "\xc3\xa9nd", "\xc3\xa9", NULL, "", true },
		{ "say \xc3\xa8", "\xc3\xa9", NULL, "say \xc3\xa8", false },
		{ "tail", "l", NULL, "tai", true },
	};
	struct sink sink;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *stops[] = { (char *)cases[i].stop,
				  (char *)cases[i].other };
		bool same = true;

		for (size_t step = 1; step < 8; step++) {
			bool stopped = run(&sink, cases[i].in,
					   strlen(cases[i].in), step, stops,
					   cases[i].other ? 2 : 1);

			/* Two stops at once may differ by what came first. */
			same = same && stopped == cases[i].stopped &&
			       !strcmp(sink.text, cases[i].out);
		}
		ok(same, "stop case %zu in pieces of 1 to 7 bytes", i);
	}
}

/* Against the plain way: find the stop in the whole, then validate. */
static void test_random(void)
{
	static const char alphabet[] = "ab\xc3\xa9\xe2\x82\xac";
	char first[] = "ab", second[] = "b\xc3\xa9";
	char third[] = "\xe2\x82\xac" "a";
	char *stops[] = { first, second, third };
	unsigned int seed = 1, wrong = 0;

	for (int round = 0; round < 20000; round++) {
		struct sink whole, pieces;
		char in[24];

		for (size_t i = 0; i < sizeof(in); i++) {
			seed = seed * 1103515245u + 12345u;
			in[i] = alphabet[(seed >> 16) % (sizeof(alphabet) - 1)];
		}
		run(&whole, in, sizeof(in), sizeof(in), stops, 3);
		run(&pieces, in, sizeof(in), 1 + (seed >> 20) % 5, stops, 3);
		wrong += strcmp(whole.text, pieces.text) || pieces.broken;
	}
	ok(!wrong, "20000 random texts: pieces give what the whole gives");
}

int main(void)
{
	test_utf8();
	test_stops();
	test_random();
	return done();
}
