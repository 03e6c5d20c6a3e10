// SPDX-License-Identifier: MIT
/* Tokenizers: the rules one by one, with small vocabularies made here. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utf8proc.h>

#include <npu/npu.h>
#include "../tap.h"
#include "chat.h"
#include "text.h"
#include "tokenizer.h"

#define SPECIAL	NPU_TOKENIZE_SPECIAL

#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"\xc4\xa0\":3,\"ab\":4,"  \
	"\"abc\":5,\"bc\":6,\"\xc4\xa0" "a\":7,\"\xc3\x83\":8,\"\xc2\xa9\":9,"  \
	"\"\xc3\x83\xc2\xa9\":10,\"1\":11,\"11\":12,\"111\":13,\"e\":14,"       \
	"\"\xc3\x8c\":15,\"\xc4\xa3\":16,\"\xc4\x8a\":17,\"\xc4\x8a\xc4\x8a\":18,\"<\":19," \
	"\"s\":20,\">\":21,\"bb\":22,\"\xc3\xaf\":23,\"\xc2\xbf\":24,\"\xc2\xbd\":25}"
#define MERGES "\"merges\":[\"a b\",[\"ab\",\"c\"],\"b c\",\"\xc4\xa0 a\","    \
	"\"\xc3\x83 \xc2\xa9\",\"1 1\",\"11 1\",\"\xc4\x8a \xc4\x8a\",\"b b\"]"
#define MODEL "\"model\":{\"type\":\"BPE\"," VOCAB "," MERGES "}"
#define BYTES "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define ADDED "\"added_tokens\":[{\"id\":30,\"content\":\"<s>\",\"special\":true}," \
	"{\"id\":31,\"content\":\"<s>>\",\"special\":true},"                   \
	"{\"id\":32,\"content\":\"<b>\",\"special\":false}]"
#define PLAIN "{" ADDED "," BYTES "," MODEL "}"

static struct npu_tokenizer *make(const char *json)
{
	struct npu_tokenizer *t = NULL;

	if (npu_tokenizer_create(json, strlen(json), &t))
		printf("# %s\n", npu_error());
	return t;
}

static bool gives(const struct npu_tokenizer *t, const char *text,
		  uint32_t flags, const char *expected)
{
	char got[512] = "";
	int32_t ids[64];
	int i, n;

	if (!t)
		return false;
	n = npu_tokenize(t, text, strlen(text), flags, ids, 64);
	for (i = 0; i < n && i < 64; i++)
		sprintf(got + strlen(got), i ? " %d" : "%d", ids[i]);
	if (!strcmp(got, expected))
		return true;
	printf("# \"%s\" gives \"%s\", not \"%s\"\n", text, got, expected);
	return false;
}

static void expect(const char *what, const char *json, const char *text,
		   uint32_t flags, const char *expected)
{
	struct npu_tokenizer *t = make(json);

	ok(gives(t, text, flags, expected), "%s", what);
	npu_tokenizer_destroy(t);
}

static void test_merges(void)
{
	struct npu_tokenizer *t = make(PLAIN);

	ok(gives(t, "abc", 0, "5"), "merges in both forms");
	ok(gives(t, "aabc", 0, "0 5"), "lowest rank first");
	ok(gives(t, "bbb", 0, "22 1"), "leftmost among equals");
	ok(gives(t, "bc b", 0, "6 3 1"), "a word and a space");
	ok(gives(t, " a", 0, "7"), "a space belongs to its word");
	ok(gives(t, "\xc3\xa9", 0, "10"), "bytes beyond ASCII");
	ok(gives(t, "", 0, ""), "nothing");
	ok(gives(t, "axc", 0, "0 2"), "a byte without token is left out");
	npu_tokenizer_destroy(t);
}

static void test_special(void)
{
	struct npu_tokenizer *t = make(PLAIN);

	ok(gives(t, "a<s>b", SPECIAL, "0 30 1"), "special tokens on demand");
	ok(gives(t, "a<s>b", 0, "0 19 20 21 1"), "and only then");
	ok(gives(t, "<s>>", SPECIAL, "31"), "the longest is taken");
	ok(gives(t, "<b><s>", 0, "32 19 20 21"),
	   "tokens that are merely added are always found");
	npu_tokenizer_destroy(t);
	expect("white space is taken along", "{\"added_tokens\":["
	       "{\"id\":30,\"content\":\"<s>\",\"lstrip\":true,"
	       "\"rstrip\":true}]," BYTES "," MODEL "}",
	       "a  <s> \nb", 0, "0 30 1");
	expect("single words", "{\"added_tokens\":["
	       "{\"id\":30,\"content\":\"ab\",\"single_word\":true}],"
	       BYTES "," MODEL "}", "abb ab", 0, "4 1 3 30");
}

static void test_forms(void)
{
	expect("NFC", "{\"normalizer\":{\"type\":\"NFC\"}," BYTES "," MODEL "}",
	       "e\xcc\x81", 0, "10");
	expect("no normalizer", PLAIN, "e\xcc\x81", 0, "14 15 16");
	expect("normalized added tokens",
	       "{\"normalizer\":{\"type\":\"NFC\"},\"added_tokens\":[{\"id\":40,"
	       "\"content\":\"\xc3\xa9" "a\",\"normalized\":true}]," BYTES ","
	       MODEL "}", "e\xcc\x81" "ab", 0, "40 1");
	expect("invalid UTF-8 is U+FFFD", PLAIN, "a\xff" "b", 0, "0 23 24 25 1");
	expect("a cut sequence is one U+FFFD", PLAIN, "a\xf0\x9f\x98", 0,
	       "0 23 24 25");
}

#define SPLIT(regex, behavior, invert)                                         \
	"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["        \
	"{\"type\":\"Split\",\"pattern\":" regex ",\"behavior\":\"" behavior   \
	"\",\"invert\":" invert "},"                                           \
	"{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"                  \
	"\"use_regex\":false}]}," MODEL "}"
#define LETTER_B "{\"Regex\":\"b\"}"

static void test_splits(void)
{
	expect("Isolated", SPLIT(LETTER_B, "Isolated", "false"), "abbc", 0,
	       "0 1 1 2");
	expect("Removed", SPLIT(LETTER_B, "Removed", "false"), "abbc", 0,
	       "0 2");
	expect("Removed, inverted", SPLIT(LETTER_B, "Removed", "true"),
	       "abbc", 0, "1 1");
	expect("MergedWithPrevious",
	       SPLIT(LETTER_B, "MergedWithPrevious", "false"), "abbc", 0,
	       "4 1 2");
	expect("MergedWithNext", SPLIT(LETTER_B, "MergedWithNext", "false"),
	       "abbc", 0, "0 1 6");
	expect("Contiguous", SPLIT(LETTER_B, "Contiguous", "false"), "abbc",
	       0, "0 22 2");
	expect("a string as pattern",
	       SPLIT("{\"String\":\"b\"}", "Isolated", "false"), "ab", 0,
	       "0 1");
	expect("three digits at most",
	       SPLIT("{\"Regex\":\"\\\\p{N}{1,3}\"}", "Isolated", "false"),
	       "1111", 0, "13 11");
	expect("an empty match", SPLIT("{\"Regex\":\"x*\"}", "Isolated",
				       "false"), "ab", 0, "4");
	expect("single digits", "{\"pre_tokenizer\":{\"type\":\"Sequence\","
	       "\"pretokenizers\":[{\"type\":\"Digits\","
	       "\"individual_digits\":true},{\"type\":\"ByteLevel\","
	       "\"add_prefix_space\":false}]}," MODEL "}", "111", 0,
	       "11 11 11");
	expect("U+180E is no white space",
	       SPLIT("{\"Regex\":\"\\\\s\"}", "Removed", "false"),
	       "a\xe1\xa0\x8e" "b c", 0, "4 2");
	expect("a space in front", "{\"pre_tokenizer\":{\"type\":\"ByteLevel\","
	       "\"add_prefix_space\":true}," MODEL "}", "a a", 0, "7 7");
}

static void test_words(void)
{
	expect("ignore_merges", "{" BYTES ",\"model\":{\"type\":\"BPE\","
	       "\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
	       "\"merges\":[]}}", "ab", 0, "2");
	expect("what begins a text", "{" ADDED "," BYTES "," MODEL ","
	       "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":"
	       "[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
	       "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
	       "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[30]}}}}",
	       "a", NPU_TOKENIZE_BEGIN, "30 0");
	expect("no such thing", PLAIN, "a", NPU_TOKENIZE_BEGIN, "0");
}

static void test_back(void)
{
	struct npu_tokenizer *t = make(PLAIN);
	char text[8];

	ok(npu_detokenize(t, 10, 0, text, 8) == 2 &&
	   !memcmp(text, "\xc3\xa9", 2), "bytes of a token");
	ok(npu_detokenize(t, 5, 0, text, 2) == 3 && !memcmp(text, "ab", 2),
	   "as many as there is room for");
	ok(npu_detokenize(t, 8, 0, text, 8) == 1 && text[0] == '\xc3',
	   "half a character");
	ok(npu_detokenize(t, 30, 0, text, 8) == 0 &&
	   npu_detokenize(t, 30, SPECIAL, text, 8) == 3,
	   "special tokens on demand");
	ok(npu_detokenize(t, 32, 0, text, 8) == 3, "added ones always");
	ok(npu_detokenize(t, 29, 0, text, 8) == 0 &&
	   npu_detokenize(t, 1 << 30, 0, text, 8) == 0,
	   "padding of the vocabulary has no text");
	ok(npu_detokenize(t, -1, 0, text, 8) == -EINVAL, "negative: %s",
	   npu_error());
	ok(npu_tokenize(t, "abc a", 5, 0, NULL, 0) == 2, "counting");
	ok(npu_tokenize(t, "a", 1, 8, NULL, 0) == -EINVAL, "flags: %s",
	   npu_error());
	npu_tokenizer_destroy(t);
}

static void test_refused(void)
{
	static const struct {
		const char *json;
		int error;
		const char *text;
	} cases[] = {
		{ "", -EBADMSG, "not JSON" },
		{ "{}", -EBADMSG, "not a tokenizer.json" },
		{ "{\"model\":{\"type\":\"Unigram\"}}", -ENOTSUP, "Unigram" },
		{ "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true}}",
		  -ENOTSUP, "byte_fallback" },
		{ "{\"model\":{\"type\":\"BPE\"}}", -EBADMSG, "vocab" },
		{ "{" MODEL "}", -EBADMSG, "pre_tokenizer" },
		{ "{\"pre_tokenizer\":{\"type\":\"Metaspace\"}," MODEL "}",
		  -ENOTSUP, "Metaspace" },
		{ "{\"pre_tokenizer\":{\"type\":\"Digits\"}," MODEL "}",
		  -ENOTSUP, "ByteLevel" },
		{ "{\"normalizer\":{\"type\":\"Prepend\"}," BYTES "," MODEL "}",
		  -ENOTSUP, "Prepend" },
		{ SPLIT("{\"Regex\":\"(\"}", "Isolated", "false"), -EBADMSG,
		  "pattern" },
		{ SPLIT("{}", "Isolated", "false"), -EBADMSG, "pattern" },
		{ SPLIT(LETTER_B, "Joined", "false"), -EBADMSG, "behavior" },
		{ "{" BYTES ",\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}",
		  -EBADMSG, "id -1" },
		{ "{" BYTES ",\"model\":{\"vocab\":{\"a\":1,\"b\":1},"
		  "\"merges\":[]}}", -EBADMSG, "id 1" },
		{ "{" BYTES ",\"model\":{\"vocab\":{\"a\":2147483647},"
		  "\"merges\":[]}}", -EBADMSG, "id 2147483647" },
		{ "{" BYTES ",\"model\":{\"vocab\":{\"a\":1},"
		  "\"merges\":[\"ab\"]}}", -EBADMSG, "merge 0" },
		{ "{" BYTES ",\"model\":{\"vocab\":{\"a\":1},"
		  "\"merges\":[\"a a\"]}}", -EBADMSG, "not in the vocabulary" },
		{ "{\"added_tokens\":[{\"id\":1}]," BYTES "," MODEL "}",
		  -EBADMSG, "added token" },
	};
	struct npu_tokenizer *t;
	size_t i;
	int ret;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ret = npu_tokenizer_create(cases[i].json,
					   strlen(cases[i].json), &t);
		ok(ret == cases[i].error && strstr(npu_error(), cases[i].text),
		   "refused (%d): %s", ret, npu_error());
	}
}

/* Texts that make careless tokenizers quadratic. */
static void test_long(void)
{
	static const struct {
		const char *unit, *name;
	} cases[] = {
		{ "a", "letters" }, { " ", "spaces" }, { "ab", "merges" },
		{ "<", "beginnings of tokens" }, { "\n", "lines" },
		{ "\xff", "invalid bytes" }, { " \n", "spaces and lines" },
		{ "'", "quotes" }, { "e\xcc\x81", "accents" },
	};
	const size_t size = 4 << 20;
	struct npu_tokenizer *t = make(PLAIN);
	char *text = malloc(size);
	clock_t start;
	size_t i, k, n;
	int ret;

	for (i = 0; text && i < sizeof(cases) / sizeof(cases[0]); i++) {
		n = strlen(cases[i].unit);
		for (k = 0; k < size; k++)
			text[k] = cases[i].unit[k % n];
		start = clock();
		ret = npu_tokenize(t, text, size / n * n, SPECIAL, NULL, 0);
		ok(ret >= 0 && clock() - start < 20 * CLOCKS_PER_SEC,
		   "4 MiB of %s in %.1f s", cases[i].name,
		   (double)(clock() - start) / CLOCKS_PER_SEC);
	}
	free(text);
	npu_tokenizer_destroy(t);
}

static bool chat_gives(const struct npu_metadata *m,
		       const struct npu_tokenizer *t,
		       const struct npu_chat_message *messages, size_t count,
		       const char *expected)
{
	struct npu_ids ids = { 0 };
	char got[512] = "";
	size_t i;
	int ret = npu_chat_render(m, t, messages, count, &ids);

	for (i = 0; !ret && i < ids.count && i < 64; i++)
		sprintf(got + strlen(got), i ? " %d" : "%d", ids.ids[i]);
	free(ids.ids);
	if (!ret && !strcmp(got, expected))
		return true;
	printf("# gives %d \"%s\", not \"%s\"\n", ret, got, expected);
	return false;
}

static void test_chat(void)
{
	static char user[] = "<s>a", user_line[] = "<s>a\n";
	static char assistant[] = "<s>b", system[] = "<s>c", one_one[] = "1";
	static char end[] = "<s>\n";
	struct npu_tokenizer *t = make(PLAIN);
	struct npu_metadata m = {
		.bos = 32,
		.chat = {
			.present = true,
			.roles = {
				[NPU_ROLE_USER] = { user, end },
				[NPU_ROLE_ASSISTANT] = { assistant, end },
				[NPU_ROLE_SYSTEM] = { system, end },
			},
			.generation = assistant,
		},
	};
	struct npu_chat_message talk[] = {
		{ "user", "b" }, { "assistant", "c" }, { "user", "<s>" },
	};
	struct npu_chat_message one = { "user", "\n" };
	struct npu_chat_message odd = { "tool", "b" };
	struct npu_ids ids = { 0 };

	ok(chat_gives(&m, t, talk, 3,
		      "30 4 30 17 30 6 30 17 30 0 19 20 21 30 17 30 1"),
	   "frame tokens are special, content is plain");
	m.chat.roles[NPU_ROLE_USER].prefix = user_line;
	ok(chat_gives(&m, t, &one, 1, "30 0 18 30 17 30 1"),
	   "no boundary between frame and content");
	m.chat.roles[NPU_ROLE_USER].prefix = user;
	m.chat.default_system = one_one;
	m.chat.bos = true;
	ok(chat_gives(&m, t, talk, 1, "32 30 2 11 30 17 30 4 30 17 30 1"),
	   "default system message and BOS");
	ok(npu_chat_render(&m, t, &odd, 1, &ids) == -EINVAL, "role: %s",
	   npu_error());
	ok(npu_chat_render(&m, t, talk, 0, &ids) == -EINVAL, "none: %s",
	   npu_error());
	m.chat.present = false;
	ok(npu_chat_render(&m, t, talk, 1, &ids) == -ENOTSUP, "no chat: %s",
	   npu_error());
	free(ids.ids);
	npu_tokenizer_destroy(t);
}

/* What decomposes, composes, combines, and Hangul. */
static const uint32_t odd_chars[] = {
	'a', 'e', 0xe9, 0x300, 0x301, 0x316, 0x323, 0x327, 0x344, 0x345,
	0xf71, 0xf73, 0xf81, 0x1100, 0x1161, 0x11a8, 0x1e69, 0x1fb7, 0x2126,
	0xac00, 0xac01, 0xfb01, 0xfdfa, 0x1d15e, 0x1d165, 0x1f600,
};

static bool same_form(const char *text, size_t size, enum npu_normal_form form,
		      utf8proc_option_t options)
{
	utf8proc_uint8_t *expected = NULL;
	utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text,
					  (utf8proc_ssize_t)size, &expected,
					  UTF8PROC_STABLE | options);
	struct npu_text got = { 0 };
	bool same = n >= 0 && !npu_text_append_form(&got, text, size, form) &&
		    got.size == (size_t)n &&
		    !memcmp(got.bytes, expected, got.size);

	free(expected);
	npu_text_clear(&got);
	return same;
}

static void test_normalize(void)
{
	const unsigned int total = sizeof(odd_chars) / sizeof(odd_chars[0]);
	unsigned int round, i, state = 1, wrong = 0;

	for (round = 0; round < 5000; round++) {
		utf8proc_uint8_t text[40 * 4];
		utf8proc_ssize_t size = 0;

		for (i = 0; i <= round % 40; i++) {
			uint32_t c = odd_chars[(state >> 16) % total];

			state = state * 1103515245 + 12345;
			size += utf8proc_encode_char((utf8proc_int32_t)c,
						     text + size);
		}
		wrong += !same_form((char *)text, (size_t)size, NPU_FORM_NFC,
				    UTF8PROC_COMPOSE);
		wrong += !same_form((char *)text, (size_t)size, NPU_FORM_NFD,
				    UTF8PROC_DECOMPOSE);
		wrong += !same_form((char *)text, (size_t)size, NPU_FORM_NFKC,
				    UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
		wrong += !same_form((char *)text, (size_t)size, NPU_FORM_NFKD,
				    UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
	}
	ok(!wrong, "normal forms are utf8proc's (%u are not)", wrong);
}

/* Sorted by exchanging neighbours these would take hours. */
static void test_many_marks(void)
{
	const size_t pairs = 1 << 20;
	char *text = malloc(1 + 4 * pairs);
	struct npu_text got = { 0 };
	size_t i;

	if (!text)
		return;
	text[0] = 'e';
	for (i = 0; i < pairs; i++)
		memcpy(text + 1 + 4 * i, "\xcc\x81\xcc\x96", 4);
	ok(npu_text_append_form(&got, text, 1 + 4 * pairs, NPU_FORM_NFC) == 0 &&
	   got.size == 4 * pairs &&
	   !memcmp(got.bytes, "\xc3\xa9\xcc\x96\xcc\x96", 6) &&
	   !memcmp(got.bytes + got.size - 2, "\xcc\x81", 2),
	   "a million marks in the wrong order");
	npu_text_clear(&got);
	free(text);
}

int main(void)
{
	test_merges();
	test_special();
	test_forms();
	test_normalize();
	test_many_marks();
	test_splits();
	test_words();
	test_back();
	test_refused();
	test_long();
	test_chat();
	return done();
}
