// SPDX-License-Identifier: MIT
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <yyjson.h>

#include "moe.h"

static void *take(size_t count, size_t bytes)
{
	void *memory = calloc(count ? count : 1, bytes);

	if (memory)
		return memory;
	fprintf(stderr, "bench_moe: out of memory\n");
	exit(1);
}

static uint32_t *read_tokens(yyjson_val *array, uint32_t *tokens_count)
{
	uint32_t *tokens = take(yyjson_arr_size(array), sizeof(*tokens));
	yyjson_val *value;
	size_t i, count;

	yyjson_arr_foreach(array, i, count, value)
		tokens[i] = (uint32_t)yyjson_get_uint(value);
	*tokens_count = (uint32_t)yyjson_arr_size(array);
	return tokens;
}

void feed_read(struct feed *feed, const char *path)
{
	yyjson_doc *doc = yyjson_read_file(path, 0, NULL, NULL);
	yyjson_val *entries = yyjson_obj_get(yyjson_doc_get_root(doc),
					     "entries");
	struct feed_sequence *sequence;
	size_t i, count;
	yyjson_val *entry;

	if (!yyjson_arr_size(entries)) {
		fprintf(stderr, "bench_moe: %s holds no golden prompts\n",
			path);
		exit(1);
	}
	feed->count = (uint32_t)yyjson_arr_size(entries);
	feed->sequences = take(feed->count, sizeof(*feed->sequences));
	yyjson_arr_foreach(entries, i, count, entry) {
		sequence = &feed->sequences[i];
		sequence->prompt =
			read_tokens(yyjson_obj_get(entry, "prompt_ids"),
				    &sequence->prompt_count);
		sequence->tokens = read_tokens(yyjson_obj_get(entry, "tokens"),
					       &sequence->token_count);
	}
	yyjson_doc_free(doc);
}

void feed_make(struct feed *feed, uint32_t prompt, uint32_t tokens)
{
	feed->count = 1;
	feed->sequences = take(1, sizeof(*feed->sequences));
	*feed->sequences = (struct feed_sequence){
		.prompt = take(prompt, sizeof(uint32_t)),
		.tokens = take(tokens, sizeof(uint32_t)),
		.prompt_count = prompt,
		.token_count = tokens,
	};
}

uint32_t feed_tokens(const struct feed *feed)
{
	uint32_t i, tokens = 0;

	for (i = 0; i < feed->count; i++)
		tokens += feed->sequences[i].prompt_count +
			  feed->sequences[i].token_count;
	return tokens;
}

void feed_free(struct feed *feed)
{
	while (feed->count) {
		free(feed->sequences[--feed->count].prompt);
		free(feed->sequences[feed->count].tokens);
	}
	free(feed->sequences);
}

void moments_add(struct moments *moments, double value)
{
	moments->sum += value;
	moments->squares += value * value;
	moments->count++;
}

double moments_mean(const struct moments *moments)
{
	return moments->count ? moments->sum / moments->count : 0;
}

double moments_deviation(const struct moments *moments)
{
	double mean = moments_mean(moments), square;

	if (!moments->count)
		return 0;
	square = moments->squares / moments->count - mean * mean;
	return square > 0 ? sqrt(square) : 0;
}
