// SPDX-License-Identifier: MIT
/*
 * Pre-tokenizers of tokenizer.json: Split, Digits, ByteLevel and sequences of
 * them. Each is a regular expression and what to do with its matches.
 *
 * ByteLevel also turns bytes into printable characters; here text stays bytes,
 * so it must come last.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "split.h"
#include "text.h"

#define GPT2_PATTERN \
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Work that one match may take: far above real patterns, well below a hang. */
#define MATCH_LIMIT	10000000
#define HEAP_LIMIT_KIB	65536
#define MAX_RULES	32

enum behavior {
	ISOLATED,
	REMOVED,
	MERGED_WITH_PREVIOUS,
	MERGED_WITH_NEXT,
	CONTIGUOUS,
};

struct npu_split_rule {
	pcre2_code *code;
	enum behavior behavior;
	bool invert;
	bool prefix_space;
};

static int add_range(struct npu_ranges *list, size_t start, size_t end)
{
	if (start == end)
		return 0;
	if (list->count == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		struct npu_range *p;

		p = realloc(list->ranges, room * sizeof(*p));
		if (!p)
			return npu_fail_memory();
		list->ranges = p;
		list->room = room;
	}
	list->ranges[list->count++] = (struct npu_range){ start, end };
	return 0;
}

/* ---- Parsing ---- */

/*
 * Oniguruma, for which these patterns are written, takes \s as Unicode's
 * White_Space; PCRE2's \s is that and U+180E.
 */
static int translate(struct npu_text *out, const char *pattern, size_t size)
{
	size_t i;
	int ret = 0;

	for (i = 0; i < size && !ret; i++) {
		if (pattern[i] != '\\' || i + 1 == size) {
			ret = npu_text_append(out, pattern + i, 1);
			continue;
		}
		i++;
		if (pattern[i] == 's')
			ret = npu_text_append(out, "\\p{White_Space}", 15);
		else if (pattern[i] == 'S')
			ret = npu_text_append(out, "\\P{White_Space}", 15);
		else
			ret = npu_text_append(out, pattern + i - 1, 2);
	}
	return ret;
}

static int compile(struct npu_split_rule *rule, const char *pattern,
		   size_t size, uint32_t options)
{
	PCRE2_UCHAR message[128];
	PCRE2_SIZE at;
	int error;

	rule->code = pcre2_compile((PCRE2_SPTR)pattern, size,
				   PCRE2_UTF | options, &error, &at, NULL);
	if (!rule->code) {
		pcre2_get_error_message(error, message, sizeof(message));
		return npu_fail(-EBADMSG,
				"tokenizer: pre_tokenizer pattern, at %zu: %s",
				(size_t)at, (char *)message);
	}
	/* Only speed: without it the interpreter matches. */
	pcre2_jit_compile(rule->code, PCRE2_JIT_COMPLETE);
	return 0;
}

static int compile_regex(struct npu_split_rule *rule, const char *pattern,
			 size_t size)
{
	struct npu_text text = { 0 };
	int ret;

	ret = translate(&text, pattern, size);
	if (!ret)
		ret = compile(rule, text.bytes ? text.bytes : "", text.size,
			      PCRE2_UCP);
	npu_text_clear(&text);
	return ret;
}

static bool get_bool(yyjson_val *json, const char *key, bool fallback)
{
	yyjson_val *v = yyjson_obj_get(json, key);

	return yyjson_is_bool(v) ? yyjson_get_bool(v) : fallback;
}

static int parse_behavior(struct npu_split_rule *rule, yyjson_val *json)
{
	static const char *const names[] = {
		[ISOLATED] = "Isolated",
		[REMOVED] = "Removed",
		[MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
		[MERGED_WITH_NEXT] = "MergedWithNext",
		[CONTIGUOUS] = "Contiguous",
	};
	yyjson_val *v = yyjson_obj_get(json, "behavior");
	unsigned int i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (yyjson_equals_str(v, names[i])) {
			rule->behavior = i;
			return 0;
		}
	}
	return npu_fail(-EBADMSG, "tokenizer: Split without a known behavior");
}

static int parse_split(struct npu_split_rule *rule, yyjson_val *json)
{
	yyjson_val *pattern = yyjson_obj_get(json, "pattern");
	yyjson_val *regex = yyjson_obj_get(pattern, "Regex");
	yyjson_val *string = yyjson_obj_get(pattern, "String");
	int ret;

	ret = parse_behavior(rule, json);
	if (ret)
		return ret;
	rule->invert = get_bool(json, "invert", false);
	if (yyjson_is_str(regex))
		return compile_regex(rule, yyjson_get_str(regex),
				     yyjson_get_len(regex));
	if (yyjson_is_str(string))
		return compile(rule, yyjson_get_str(string),
			       yyjson_get_len(string), PCRE2_LITERAL);
	return npu_fail(-EBADMSG, "tokenizer: Split without a pattern");
}

static int parse_digits(struct npu_split_rule *rule, yyjson_val *json)
{
	bool one = get_bool(json, "individual_digits", false);

	rule->behavior = one ? ISOLATED : CONTIGUOUS;
	return compile_regex(rule, "\\p{N}", 5);
}

static int parse_byte_level(struct npu_split *split,
			    struct npu_split_rule *rule, yyjson_val *json)
{
	split->byte_level = true;
	rule->prefix_space = get_bool(json, "add_prefix_space", true);
	rule->behavior = ISOLATED;
	if (rule->prefix_space && split->count > 1)
		return npu_fail(-ENOTSUP,
				"tokenizer: ByteLevel's add_prefix_space after other pre_tokenizers is not supported");
	if (!get_bool(json, "use_regex", true))
		return 0;
	return compile_regex(rule, GPT2_PATTERN, strlen(GPT2_PATTERN));
}

static int parse_rule(struct npu_split *split, yyjson_val *json)
{
	const char *type = yyjson_get_str(yyjson_obj_get(json, "type"));
	struct npu_split_rule *rule;

	if (!type)
		return npu_fail(-EBADMSG, "tokenizer: pre_tokenizer without type");
	if (split->byte_level)
		return npu_fail(-ENOTSUP,
				"tokenizer: pre_tokenizer %s after ByteLevel is not supported",
				type);
	if (split->count == MAX_RULES)
		return npu_fail(-EBADMSG, "tokenizer: too many pre_tokenizers");
	rule = &split->rules[split->count++];
	if (!strcmp(type, "Split"))
		return parse_split(rule, json);
	if (!strcmp(type, "Digits"))
		return parse_digits(rule, json);
	if (!strcmp(type, "ByteLevel"))
		return parse_byte_level(split, rule, json);
	return npu_fail(-ENOTSUP,
			"tokenizer: pre_tokenizer %s is not supported; libnpu reads byte-level BPE tokenizers",
			type);
}

static int parse_sequence(struct npu_split *split, yyjson_val *json)
{
	yyjson_val *list = yyjson_obj_get(json, "pretokenizers");
	yyjson_val *item;
	size_t i, n;
	int ret;

	if (!yyjson_is_arr(list))
		return npu_fail(-EBADMSG,
				"tokenizer: Sequence without pretokenizers");
	yyjson_arr_foreach(list, i, n, item) {
		ret = parse_rule(split, item);
		if (ret)
			return ret;
	}
	return 0;
}

int npu_split_parse(struct npu_split *split, yyjson_val *json)
{
	int ret;

	*split = (struct npu_split){ 0 };
	split->rules = calloc(MAX_RULES, sizeof(*split->rules));
	if (!split->rules)
		return npu_fail_memory();
	if (yyjson_equals_str(yyjson_obj_get(json, "type"), "Sequence"))
		ret = parse_sequence(split, json);
	else
		ret = parse_rule(split, json);
	if (!ret && !split->byte_level)
		ret = npu_fail(-ENOTSUP,
			       "tokenizer: no ByteLevel pre_tokenizer; libnpu reads byte-level BPE tokenizers");
	if (ret)
		npu_split_clear(split);
	return ret;
}

void npu_split_clear(struct npu_split *split)
{
	size_t i;

	for (i = 0; i < split->count; i++)
		pcre2_code_free(split->rules[i].code);
	free(split->rules);
	*split = (struct npu_split){ 0 };
}

/* ---- Running ---- */

/* Where a piece goes that is (or, inverted, is not) a match. */
struct cutter {
	const struct npu_split_rule *rule;
	struct npu_ranges *out;
	size_t first;		/* of this text's pieces in @out */
	bool last_match;	/* the last one was a match */
};

static int cut(struct cutter *c, size_t start, size_t end, bool match)
{
	struct npu_ranges *out = c->out;
	bool any = out->count > c->first;
	bool join = false;

	if (start == end)
		return 0;
	match ^= c->rule->invert;
	switch (c->rule->behavior) {
	case ISOLATED:
		break;
	case REMOVED:
		if (match)
			return 0;
		break;
	case MERGED_WITH_PREVIOUS:
		join = any && match && !c->last_match;
		break;
	case MERGED_WITH_NEXT:
		join = any && !match && c->last_match;
		break;
	case CONTIGUOUS:
		join = any && match == c->last_match;
		break;
	}
	c->last_match = match;
	if (join) {
		out->ranges[out->count - 1].end = end;
		return 0;
	}
	return add_range(out, start, end);
}

static int match_error(int rc)
{
	PCRE2_UCHAR message[128];

	pcre2_get_error_message(rc, message, sizeof(message));
	return npu_fail(rc == PCRE2_ERROR_NOMEMORY ? -ENOMEM : -E2BIG,
			"tokenizer: cannot split the text: %s",
			(char *)message);
}

struct matcher {
	pcre2_match_data *data;
	pcre2_match_context *context;
};

static int next_match(const struct matcher *m, const struct npu_split_rule *rule,
		      const char *text, size_t size, size_t at)
{
	int rc;

	rc = pcre2_match(rule->code, (PCRE2_SPTR)text, size, at,
			 PCRE2_NO_UTF_CHECK, m->data, m->context);
	/* The JIT's stack is small; the interpreter's is the heap. */
	if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
		rc = pcre2_match(rule->code, (PCRE2_SPTR)text, size, at,
				 PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data,
				 m->context);
	return rc;
}

/* @text is one piece: look-around does not see beyond it. */
static int cut_piece(const struct matcher *m, struct cutter *c,
		     const char *text, size_t base, size_t size)
{
	size_t at = 0, done = 0;
	int rc, ret;

	while (at < size) {
		PCRE2_SIZE *v = pcre2_get_ovector_pointer(m->data);

		rc = next_match(m, c->rule, text + base, size, at);
		if (rc == PCRE2_ERROR_NOMATCH)
			break;
		if (rc < 0)
			return match_error(rc);
		if (v[1] <= v[0]) {
			/* Nothing matched: go on behind the next character. */
			at = v[0] < size ? v[0] + npu_utf8_length(
				text + base + v[0], text + base + size) : size;
			continue;
		}
		ret = cut(c, base + done, base + v[0], false);
		if (!ret)
			ret = cut(c, base + v[0], base + v[1], true);
		if (ret)
			return ret;
		at = done = v[1];
	}
	return cut(c, base + done, base + size, false);
}

static int run_rule(const struct matcher *m, const struct npu_split_rule *rule,
		    const char *text, const struct npu_ranges *in,
		    struct npu_ranges *out)
{
	struct cutter c = { .rule = rule, .out = out };
	size_t i;
	int ret;

	out->count = 0;
	for (i = 0; i < in->count; i++) {
		c.first = out->count;
		c.last_match = false;
		ret = cut_piece(m, &c, text, in->ranges[i].start,
				in->ranges[i].end - in->ranges[i].start);
		if (ret)
			return ret;
	}
	return 0;
}

static int matcher_init(struct matcher *m)
{
	m->data = pcre2_match_data_create(1, NULL);
	m->context = pcre2_match_context_create(NULL);
	if (!m->data || !m->context) {
		pcre2_match_data_free(m->data);
		pcre2_match_context_free(m->context);
		return npu_fail_memory();
	}
	pcre2_set_match_limit(m->context, MATCH_LIMIT);
	pcre2_set_heap_limit(m->context, HEAP_LIMIT_KIB);
	return 0;
}

bool npu_split_wants_space(const struct npu_split *split)
{
	return split->count && split->rules[0].prefix_space;
}

int npu_split_run(const struct npu_split *split, const char *text, size_t size,
		  struct npu_ranges ranges[2], unsigned int *which)
{
	struct matcher m;
	unsigned int in = 0;
	size_t i;
	int ret;

	ranges[0].count = 0;
	ret = add_range(&ranges[0], 0, size);
	if (!ret)
		ret = matcher_init(&m);
	if (ret)
		return ret;
	for (i = 0; i < split->count && !ret; i++) {
		if (!split->rules[i].code)
			continue;
		ret = run_rule(&m, &split->rules[i], text, &ranges[in],
			       &ranges[!in]);
		in = !in;
	}
	pcre2_match_data_free(m.data);
	pcre2_match_context_free(m.context);
	*which = in;
	return ret;
}
