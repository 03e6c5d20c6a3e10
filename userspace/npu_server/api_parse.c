// SPDX-License-Identifier: MIT
/* The way in: bodies of completion requests. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <yyjson.h>

#include "openai.h"

#define MAX_MESSAGES	4096

void api_error_set(struct api_error *error, unsigned int status,
		   const char *code, const char *param, const char *format, ...)
{
	va_list args;

	error->status = status;
	error->type = status == 401 ? "authentication_error" :
		      status == 429 ? "rate_limit_error" :
		      status >= 500 ? "server_error" :
				      "invalid_request_error";
	error->code = code;
	snprintf(error->param, sizeof(error->param), "%s", param ? param : "");
	va_start(args, format);
	vsnprintf(error->message, sizeof(error->message), format, args);
	va_end(args);
}

#define refuse(error, param, ...) \
	(api_error_set(error, 400, NULL, param, __VA_ARGS__), -1)

/* A number of @key within [low, high]; absent or null leaves *@value. */
static int get_number(yyjson_val *root, const char *key, double low,
		      double high, double *value, struct api_error *error)
{
	yyjson_val *item = yyjson_obj_get(root, key);
	double number;

	if (!item || yyjson_is_null(item))
		return 0;
	if (!yyjson_is_num(item))
		return refuse(error, key, "'%s' must be a number", key);
	number = yyjson_get_num(item);
	if (!(number >= low && number <= high))
		return refuse(error, key, "'%s' must be from %g to %g", key,
			      low, high);
	*value = number;
	return 0;
}

static int get_integer(yyjson_val *root, const char *key, uint64_t low,
		       uint64_t high, uint64_t *value, struct api_error *error)
{
	yyjson_val *item = yyjson_obj_get(root, key);

	if (!item || yyjson_is_null(item))
		return 0;
	if (!yyjson_is_uint(item) || yyjson_get_uint(item) < low ||
	    yyjson_get_uint(item) > high)
		return refuse(error, key,
			      "'%s' must be an integer from %llu to %llu", key,
			      (unsigned long long)low,
			      (unsigned long long)high);
	*value = yyjson_get_uint(item);
	return 0;
}

static int get_bool(yyjson_val *root, const char *key, bool *value,
		    struct api_error *error)
{
	yyjson_val *item = yyjson_obj_get(root, key);

	if (!item || yyjson_is_null(item))
		return 0;
	if (!yyjson_is_bool(item))
		return refuse(error, key, "'%s' must be true or false", key);
	*value = yyjson_get_bool(item);
	return 0;
}

static int parse_sampling(yyjson_val *root, const struct api_defaults *defaults,
			  struct sampling *sampling, struct api_error *error)
{
	double temperature = (double)defaults->temperature;
	double top_p = 1, min_p = 0, presence = 0, frequency = 0;
	yyjson_val *seed = yyjson_obj_get(root, "seed");
	uint64_t top_k = 0;

	if (get_number(root, "temperature", 0, 2, &temperature, error) ||
	    get_number(root, "top_p", 0, 1, &top_p, error) ||
	    get_number(root, "min_p", 0, 1, &min_p, error) ||
	    get_integer(root, "top_k", 0, UINT32_MAX, &top_k, error) ||
	    get_number(root, "presence_penalty", -2, 2, &presence, error) ||
	    get_number(root, "frequency_penalty", -2, 2, &frequency, error))
		return -1;
	*sampling = (struct sampling){
		.temperature = (float)temperature,
		.top_p = (float)top_p,
		.min_p = (float)min_p,
		.top_k = (uint32_t)top_k,
		.presence_penalty = (float)presence,
		.frequency_penalty = (float)frequency,
	};
	if (seed && !yyjson_is_null(seed)) {
		if (!yyjson_is_int(seed))
			return refuse(error, "seed", "'seed' must be an integer");
		sampling->seed = yyjson_is_uint(seed) ?
					 yyjson_get_uint(seed) :
					 (uint64_t)yyjson_get_sint(seed);
	} else if (getrandom(&sampling->seed, sizeof(sampling->seed), 0) < 0) {
		return refuse(error, "seed", "no random seed to be had: %s",
			      strerror(errno));
	}
	return 0;
}

static int add_stop(struct request *request, yyjson_val *item,
		    struct api_error *error)
{
	size_t bytes;

	if (!yyjson_is_str(item))
		return refuse(error, "stop",
			      "'stop' must be a string or a list of strings");
	bytes = yyjson_get_len(item);
	if (!bytes || bytes > REQUEST_MAX_STOP_BYTES ||
	    memchr(yyjson_get_str(item), 0, bytes))
		return refuse(error, "stop",
			      "a stop string must have 1 to %d bytes, none NUL",
			      REQUEST_MAX_STOP_BYTES);
	if (request->stop_count == REQUEST_MAX_STOPS)
		return refuse(error, "stop", "at most %d stop strings",
			      REQUEST_MAX_STOPS);
	request->stops[request->stop_count] = strdup(yyjson_get_str(item));
	if (!request->stops[request->stop_count]) {
		api_error_set(error, 500, NULL, NULL, "out of memory");
		return -1;
	}
	request->stop_count++;
	return 0;
}

static int parse_stops(yyjson_val *root, struct request *request,
		       struct api_error *error)
{
	yyjson_val *stop = yyjson_obj_get(root, "stop"), *item;
	yyjson_arr_iter iter;

	if (!stop || yyjson_is_null(stop))
		return 0;
	if (!yyjson_is_arr(stop))
		return add_stop(request, stop, error);
	yyjson_arr_iter_init(stop, &iter);
	while ((item = yyjson_arr_iter_next(&iter)))
		if (add_stop(request, item, error))
			return -1;
	return 0;
}

static int parse_stream(yyjson_val *root, struct request *request,
			struct api_error *error)
{
	yyjson_val *options = yyjson_obj_get(root, "stream_options");

	if (get_bool(root, "stream", &request->stream, error))
		return -1;
	if (!options || yyjson_is_null(options))
		return 0;
	if (!yyjson_is_obj(options))
		return refuse(error, "stream_options",
			      "'stream_options' must be an object");
	return get_bool(options, "include_usage", &request->include_usage,
			error);
}

/* Chat has a switch and a count, completions only a count. */
static int parse_logprobs(yyjson_val *root, struct request *request,
			  struct api_error *error)
{
	uint64_t top = UINT64_MAX;
	const char *key = request->chat ? "top_logprobs" : "logprobs";

	if (request->chat &&
	    get_bool(root, "logprobs", &request->logprobs, error))
		return -1;
	if (get_integer(root, key, 0, REQUEST_MAX_TOP_LOGPROBS, &top, error))
		return -1;
	if (top == UINT64_MAX)
		return 0;
	if (request->chat && !request->logprobs)
		return refuse(error, key,
			      "'top_logprobs' needs 'logprobs': true");
	request->logprobs = true;
	request->top_logprobs = (uint32_t)top;
	return 0;
}

/* What can't be honoured is refused rather than passed over. */
static int refuse_unsupported(yyjson_val *root, struct api_error *error)
{
	static const char *const keys[] = {
		"tools", "functions", "logit_bias", "suffix", "audio",
	};
	yyjson_val *format = yyjson_obj_get(root, "response_format");
	uint64_t one = 1;
	bool echo = false;

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		yyjson_val *item = yyjson_obj_get(root, keys[i]);

		if (!item || yyjson_is_null(item) || yyjson_get_len(item) == 0)
			continue;
		return refuse(error, keys[i],
			      "'%s' is not supported by this server", keys[i]);
	}
	if (format && !yyjson_is_null(format) &&
	    !yyjson_equals_str(yyjson_obj_get(format, "type"), "text"))
		return refuse(error, "response_format",
			      "only {\"type\": \"text\"} is supported");
	if (get_integer(root, "n", 1, 1, &one, error) ||
	    get_integer(root, "best_of", 1, 1, &one, error) ||
	    get_bool(root, "echo", &echo, error))
		return -1;
	if (echo)
		return refuse(error, "echo",
			      "'echo' is not supported by this server");
	return 0;
}

/* The text of a message: a string, or a list of {"type": "text"} parts. */
static char *message_text(yyjson_val *content)
{
	yyjson_val *part;
	yyjson_arr_iter iter;
	size_t bytes = 0;
	char *text, *at;

	if (yyjson_is_str(content)) {
		bytes = yyjson_get_len(content);
		text = malloc(bytes + 1);
		if (text)
			memcpy(text, yyjson_get_str(content), bytes + 1);
		return text;
	}
	text = calloc(1, 1);
	if (yyjson_is_null(content))
		return text;
	yyjson_arr_iter_init(content, &iter);
	while (text && (part = yyjson_arr_iter_next(&iter))) {
		yyjson_val *piece = yyjson_obj_get(part, "text");
		size_t more = yyjson_get_len(piece);

		at = realloc(text, bytes + more + 1);
		if (!at) {
			free(text);
			return NULL;
		}
		text = at;
		memcpy(text + bytes, yyjson_get_str(piece), more + 1);
		bytes += more;
	}
	return text;
}

/* A conversation goes on as C strings, which would end there. */
static bool has_nul(yyjson_val *string)
{
	return yyjson_is_str(string) &&
	       memchr(yyjson_get_str(string), 0, yyjson_get_len(string));
}

static int check_content(yyjson_val *message, size_t index,
			 struct api_error *error)
{
	yyjson_val *content = yyjson_obj_get(message, "content"), *part;
	yyjson_arr_iter iter;
	char where[64];

	snprintf(where, sizeof(where), "messages[%zu].content", index);
	if (has_nul(content))
		return refuse(error, where, "'%s' has a NUL", where);
	if (yyjson_is_str(content))
		return 0;
	if (!yyjson_is_arr(content))
		return refuse(error, where,
			      "'%s' must be a string or a list of parts",
			      where);
	yyjson_arr_iter_init(content, &iter);
	while ((part = yyjson_arr_iter_next(&iter))) {
		if (!yyjson_equals_str(yyjson_obj_get(part, "type"), "text") ||
		    !yyjson_is_str(yyjson_obj_get(part, "text")))
			return refuse(error, where,
				      "'%s': only text parts are supported",
				      where);
		if (has_nul(yyjson_obj_get(part, "text")))
			return refuse(error, where, "'%s' has a NUL", where);
	}
	return 0;
}

static int check_messages(yyjson_val *messages, struct api_error *error)
{
	yyjson_val *message;
	yyjson_arr_iter iter;
	size_t index = 0;

	if (!yyjson_is_arr(messages) || !yyjson_arr_size(messages))
		return refuse(error, "messages",
			      "'messages' must be a list with at least one message");
	if (yyjson_arr_size(messages) > MAX_MESSAGES)
		return refuse(error, "messages", "more than %d messages",
			      MAX_MESSAGES);
	yyjson_arr_iter_init(messages, &iter);
	while ((message = yyjson_arr_iter_next(&iter))) {
		yyjson_val *role = yyjson_obj_get(message, "role");

		if (!yyjson_is_str(role) || has_nul(role))
			return refuse(error, "messages",
				      "'messages[%zu]' needs a 'role'", index);
		if (check_content(message, index, error))
			return -1;
		index++;
	}
	return 0;
}

/* Tokens of whatever @count and @fill produce; sets the request's prompt. */
static int store_prompt(struct request *request, int count,
			const struct npu_model_info *info,
			struct api_error *error)
{
	if (count == -EINVAL || count == -ENOTSUP || count == -E2BIG)
		return refuse(error, request->chat ? "messages" : "prompt",
			      "%s", npu_error());
	if (count < 0) {
		api_error_set(error, 500, NULL, NULL, "%s", npu_error());
		return -1;
	}
	if (!count)
		return refuse(error, request->chat ? "messages" : "prompt",
			      "the prompt is empty");
	if ((uint32_t)count >= info->max_seq) {
		api_error_set(error, 400, "context_length_exceeded",
			      request->chat ? "messages" : "prompt",
			      "the prompt has %d tokens, but a request can hold %u with the answer; shorten it, or start the server with a larger --max-seq-len",
			      count, info->max_seq);
		return -1;
	}
	request->prompt = calloc((size_t)count, sizeof(*request->prompt));
	if (!request->prompt) {
		api_error_set(error, 500, NULL, NULL, "out of memory");
		return -1;
	}
	request->prompt_count = (uint32_t)count;
	return 0;
}

/*
 * A tokenizer may know more than the model, and a step that such a token is in
 * fails for all who share it.
 */
static int check_prompt(const struct request *request,
			const struct npu_model_info *info,
			struct api_error *error)
{
	for (uint32_t i = 0; i < request->prompt_count; i++)
		if ((uint32_t)request->prompt[i] >= info->vocab)
			return refuse(error,
				      request->chat ? "messages" : "prompt",
				      "the text has the token %d, which the model, with a vocabulary of %u, does not know",
				      request->prompt[i], info->vocab);
	return 0;
}

static void free_messages(struct npu_chat_message *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free((char *)list[i].content);
	free(list);
}

static int parse_messages(yyjson_val *root, const struct npu_model *model,
			  const struct npu_model_info *info,
			  struct request *request, struct api_error *error)
{
	yyjson_val *messages = yyjson_obj_get(root, "messages"), *message;
	struct npu_chat_message *list;
	yyjson_arr_iter iter;
	size_t count = 0;
	int tokens, ret;

	if (check_messages(messages, error))
		return -1;
	list = calloc(yyjson_arr_size(messages), sizeof(*list));
	yyjson_arr_iter_init(messages, &iter);
	while (list && (message = yyjson_arr_iter_next(&iter))) {
		const char *role =
			yyjson_get_str(yyjson_obj_get(message, "role"));

		/* OpenAI's newer name for the same thing. */
		list[count].role = strcmp(role, "developer") ? role : "system";
		list[count].content =
			message_text(yyjson_obj_get(message, "content"));
		if (!list[count++].content) {
			free_messages(list, count);
			list = NULL;
		}
	}
	if (!list) {
		api_error_set(error, 500, NULL, NULL, "out of memory");
		return -1;
	}
	tokens = npu_chat_tokenize(model, list, count, NULL, 0);
	ret = store_prompt(request, tokens, info, error);
	if (!ret)
		npu_chat_tokenize(model, list, count, request->prompt,
				  request->prompt_count);
	free_messages(list, count);
	return ret ? ret : check_prompt(request, info, error);
}

/* A prompt given as token ids. */
static int parse_ids(yyjson_val *prompt, const struct npu_model_info *info,
		     struct request *request, struct api_error *error)
{
	yyjson_val *item;
	yyjson_arr_iter iter;
	uint32_t i = 0;

	yyjson_arr_iter_init(prompt, &iter);
	while ((item = yyjson_arr_iter_next(&iter)))
		if (!yyjson_is_uint(item) ||
		    yyjson_get_uint(item) >= info->vocab)
			return refuse(error, "prompt",
				      "'prompt' must be one string or a list of token ids below %u",
				      info->vocab);
	if (yyjson_arr_size(prompt) > INT32_MAX)
		return refuse(error, "prompt", "the prompt is too long");
	if (store_prompt(request, (int)yyjson_arr_size(prompt), info, error))
		return -1;
	yyjson_arr_iter_init(prompt, &iter);
	while ((item = yyjson_arr_iter_next(&iter)))
		request->prompt[i++] = (int32_t)yyjson_get_uint(item);
	return 0;
}

static int parse_prompt(yyjson_val *root, const struct npu_model *model,
			const struct npu_model_info *info,
			struct request *request, struct api_error *error)
{
	const struct npu_tokenizer *tokenizer = npu_model_tokenizer(model);
	const uint32_t flags = NPU_TOKENIZE_SPECIAL | NPU_TOKENIZE_BEGIN;
	yyjson_val *prompt = yyjson_obj_get(root, "prompt");
	int tokens;

	if (yyjson_is_arr(prompt) && yyjson_arr_size(prompt) == 1 &&
	    yyjson_is_str(yyjson_arr_get_first(prompt)))
		prompt = yyjson_arr_get_first(prompt);
	if (yyjson_is_arr(prompt))
		return parse_ids(prompt, info, request, error);
	if (!yyjson_is_str(prompt))
		return refuse(error, "prompt",
			      "'prompt' must be a string or a list of token ids");
	tokens = npu_tokenize(tokenizer, yyjson_get_str(prompt),
			      yyjson_get_len(prompt), flags, NULL, 0);
	if (store_prompt(request, tokens, info, error))
		return -1;
	npu_tokenize(tokenizer, yyjson_get_str(prompt), yyjson_get_len(prompt),
		     flags, request->prompt, request->prompt_count);
	return check_prompt(request, info, error);
}

static int parse_limits(yyjson_val *root, const struct npu_model_info *info,
			const struct api_defaults *defaults,
			struct request *request, struct api_error *error)
{
	uint64_t room = info->max_seq - request->prompt_count;
	uint64_t limit = defaults->max_tokens ? defaults->max_tokens : room;

	if (get_integer(root, "max_tokens", 1, UINT32_MAX, &limit, error) ||
	    get_integer(root, "max_completion_tokens", 1, UINT32_MAX, &limit,
			error))
		return -1;
	request->max_tokens = (uint32_t)(limit < room ? limit : room);
	return 0;
}

static void name_request(struct request *request)
{
	uint64_t number = 0;

	/* Only has to differ; without randomness the time does. */
	if (getrandom(&number, sizeof(number), 0) < 0)
		number = request->timing.arrived_ns;
	snprintf(request->id, sizeof(request->id), "%s-%016llx",
		 request->chat ? "chatcmpl" : "cmpl",
		 (unsigned long long)number);
}

int api_parse_completion(const char *body, size_t bytes, bool chat,
			 const struct npu_model *model,
			 const struct api_defaults *defaults,
			 struct request *request, struct api_error *error)
{
	struct npu_model_info info;
	yyjson_read_err why;
	yyjson_doc *doc = yyjson_read_opts((char *)body, bytes, 0, NULL, &why);
	yyjson_val *root = yyjson_doc_get_root(doc);
	int ret;

	if (!doc)
		return refuse(error, NULL, "the body is not JSON: %s at byte %zu",
			      why.msg, why.pos);
	npu_model_info(model, &info);
	request->chat = chat;
	name_request(request);
	if (!yyjson_is_obj(root))
		ret = refuse(error, NULL, "the body must be a JSON object");
	else
		ret = refuse_unsupported(root, error) ||
		      parse_sampling(root, defaults, &request->sampling,
				     error) ||
		      parse_stops(root, request, error) ||
		      parse_stream(root, request, error) ||
		      parse_logprobs(root, request, error) ||
		      (chat ? parse_messages(root, model, &info, request,
					     error) :
			      parse_prompt(root, model, &info, request,
					   error)) ||
		      parse_limits(root, &info, defaults, request, error);
	yyjson_doc_free(doc);
	return ret ? -1 : 0;
}
