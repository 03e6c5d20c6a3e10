// SPDX-License-Identifier: MIT
/* The way out: answers, chunks, errors. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include "openai.h"

/* Writes @doc, frees it. Token bytes that are no UTF-8 don't get this far. */
static char *finish_document(yyjson_mut_doc *doc)
{
	char *text = yyjson_mut_write(doc, 0, NULL);

	yyjson_mut_doc_free(doc);
	return text;
}

static yyjson_mut_val *new_object(yyjson_mut_doc **doc)
{
	yyjson_mut_val *root;

	*doc = yyjson_mut_doc_new(NULL);
	root = yyjson_mut_obj(*doc);
	yyjson_mut_doc_set_root(*doc, root);
	return root;
}

static const char *reason_name(enum request_finish finish)
{
	return finish == FINISH_LENGTH ? "length" : "stop";
}

static void add_head(yyjson_mut_doc *doc, yyjson_mut_val *root,
		     const struct request *request,
		     const struct npu_model *model, const char *object)
{
	struct npu_model_info info;

	npu_model_info(model, &info);
	yyjson_mut_obj_add_str(doc, root, "id", request->id);
	yyjson_mut_obj_add_str(doc, root, "object", object);
	yyjson_mut_obj_add_sint(doc, root, "created", request->created);
	yyjson_mut_obj_add_str(doc, root, "model", info.name);
}

static void add_usage(yyjson_mut_doc *doc, yyjson_mut_val *root,
		      const struct request *request)
{
	yyjson_mut_val *usage = yyjson_mut_obj_add_obj(doc, root, "usage");

	yyjson_mut_obj_add_uint(doc, usage, "prompt_tokens",
				request->prompt_count);
	yyjson_mut_obj_add_uint(doc, usage, "completion_tokens",
				request->generated);
	yyjson_mut_obj_add_uint(doc, usage, "total_tokens",
				(uint64_t)request->prompt_count +
					request->generated);
}

static double ms(uint64_t from, uint64_t to)
{
	return to > from ? (double)(to - from) * 1e-6 : 0;
}

static double per_second(uint32_t count, double milliseconds)
{
	return milliseconds > 0 ? count * 1e3 / milliseconds : 0;
}

static void add_timings(yyjson_mut_doc *doc, yyjson_mut_val *root,
			const struct request *request)
{
	const struct request_timing *t = &request->timing;
	double prompt = ms(t->started_ns, t->first_token_ns);
	double predicted = ms(t->first_token_ns, t->ended_ns);
	double device_prompt = (double)t->prompt_device_ns * 1e-6;
	double device_predicted = (double)t->decode_device_ns * 1e-6;
	uint32_t after = request->generated ? request->generated - 1 : 0;
	yyjson_mut_val *o = yyjson_mut_obj_add_obj(doc, root, "timings");

	yyjson_mut_obj_add_real(doc, o, "queue_ms",
				ms(t->arrived_ns, t->started_ns));
	yyjson_mut_obj_add_uint(doc, o, "prompt_n", request->prompt_count);
	yyjson_mut_obj_add_real(doc, o, "prompt_ms", prompt);
	yyjson_mut_obj_add_uint(doc, o, "predicted_n", request->generated);
	yyjson_mut_obj_add_real(doc, o, "predicted_ms", predicted);
	yyjson_mut_obj_add_real(doc, o, "predicted_per_second",
				per_second(after, predicted));
	yyjson_mut_obj_add_real(doc, o, "device_prompt_ms", device_prompt);
	yyjson_mut_obj_add_real(doc, o, "device_predicted_ms",
				device_predicted);
	yyjson_mut_obj_add_real(doc, o, "device_predicted_per_second",
				per_second(after, device_predicted));
}

static void add_text(yyjson_mut_doc *doc, yyjson_mut_val *object,
		     const char *key, const char *text, size_t bytes)
{
	yyjson_mut_obj_add_strncpy(doc, object, key, bytes ? text : "", bytes);
}

/* Any bytes as valid UTF-8, piece by piece. */
struct shown {
	struct text_filter filter;
	FILE *out;
	char *text;
	size_t bytes;
};

static void shown_emit(void *out, const char *text, size_t bytes)
{
	fwrite(text, 1, bytes, out);
}

static bool shown_begin(struct shown *shown)
{
	shown->text = NULL;
	shown->out = open_memstream(&shown->text, &shown->bytes);
	text_filter_init(&shown->filter, NULL, 0, shown_emit, shown->out);
	return shown->out;
}

/* The text as a value, which lets go of it. NULL: out of memory. */
static yyjson_mut_val *shown_end(struct shown *shown, yyjson_mut_doc *doc)
{
	yyjson_mut_val *value = NULL;

	text_filter_flush(&shown->filter);
	text_filter_release(&shown->filter);
	if (!fclose(shown->out))
		value = yyjson_mut_strncpy(doc, shown->bytes ? shown->text : "",
					   shown->bytes);
	free(shown->text);
	return value;
}

static yyjson_mut_val *shown_value(yyjson_mut_doc *doc, const char *bytes,
				   size_t count)
{
	struct shown shown;

	if (!shown_begin(&shown))
		return NULL;
	text_filter_push(&shown.filter, bytes, count);
	return shown_end(&shown, doc);
}

char *api_render_error(const struct api_error *error)
{
	yyjson_mut_doc *doc;
	yyjson_mut_val *root = new_object(&doc), *object;

	object = yyjson_mut_obj_add_obj(doc, root, "error");
	/* It may quote a path or a name, and be cut off inside a character. */
	yyjson_mut_obj_add_val(doc, object, "message",
			       shown_value(doc, error->message,
					   strlen(error->message)));
	yyjson_mut_obj_add_str(doc, object, "type", error->type);
	if (error->param[0])
		yyjson_mut_obj_add_str(doc, object, "param", error->param);
	else
		yyjson_mut_obj_add_null(doc, object, "param");
	if (error->code)
		yyjson_mut_obj_add_str(doc, object, "code", error->code);
	else
		yyjson_mut_obj_add_null(doc, object, "code");
	return finish_document(doc);
}

/* Stores at most @max bytes of the token; their number. */
static size_t token_bytes(const struct npu_model *model, int32_t token,
			  char *bytes, size_t max)
{
	int count = npu_detokenize(npu_model_tokenizer(model), token,
				   NPU_TOKENIZE_SPECIAL, bytes, max);

	return count > 0 && (size_t)count <= max ? (size_t)count : 0;
}

/* JSON has no infinity; OpenAI's word for "as good as never". */
static double json_number(float logprob)
{
	return isfinite(logprob) ? (double)logprob : -9999.0;
}

/* The token as OpenAI shows it: text (with U+FFFD) and its exact bytes. */
static void add_token(yyjson_mut_doc *doc, yyjson_mut_val *object,
		      const struct npu_model *model,
		      const struct token_logprob *entry)
{
	char bytes[512];
	size_t count = token_bytes(model, entry->token, bytes, sizeof(bytes));
	yyjson_mut_val *array;

	yyjson_mut_obj_add_val(doc, object, "token",
			       shown_value(doc, bytes, count));
	yyjson_mut_obj_add_real(doc, object, "logprob",
				json_number(entry->logprob));
	array = yyjson_mut_obj_add_arr(doc, object, "bytes");
	for (size_t i = 0; i < count; i++)
		yyjson_mut_arr_add_uint(doc, array, (unsigned char)bytes[i]);
}

/* Entries from @from on, as chat has them: an object a token. */
static void add_chat_logprobs(yyjson_mut_doc *doc, yyjson_mut_val *object,
			      const struct npu_model *model,
			      const struct request *request, uint32_t from)
{
	yyjson_mut_val *list, *item, *tops;

	list = yyjson_mut_obj_add_arr(doc, object, "content");
	for (uint32_t i = from; i < request->logprob_count; i++) {
		const struct logprob_entry *e = &request->logprob_entries[i];

		item = yyjson_mut_arr_add_obj(doc, list);
		add_token(doc, item, model, &e->chosen);
		tops = yyjson_mut_obj_add_arr(doc, item, "top_logprobs");
		for (uint32_t k = 0; k < e->top_count; k++)
			add_token(doc, yyjson_mut_arr_add_obj(doc, tops),
				  model, &e->top[k]);
	}
}

static yyjson_mut_val *token_text(yyjson_mut_doc *doc,
				  const struct npu_model *model, int32_t token)
{
	char bytes[512];
	size_t count = token_bytes(model, token, bytes, sizeof(bytes));

	return shown_value(doc, bytes, count);
}

/* The same as completions have them: parallel lists, rivals as a map. */
static void add_text_logprobs(yyjson_mut_doc *doc, yyjson_mut_val *object,
			      const struct npu_model *model,
			      const struct request *request, uint32_t from)
{
	yyjson_mut_val *tokens = yyjson_mut_obj_add_arr(doc, object, "tokens");
	yyjson_mut_val *values =
		yyjson_mut_obj_add_arr(doc, object, "token_logprobs");
	yyjson_mut_val *tops =
		yyjson_mut_obj_add_arr(doc, object, "top_logprobs");
	yyjson_mut_val *offsets =
		yyjson_mut_obj_add_arr(doc, object, "text_offset");

	for (uint32_t i = from; i < request->logprob_count; i++) {
		const struct logprob_entry *e = &request->logprob_entries[i];
		yyjson_mut_val *map = yyjson_mut_arr_add_obj(doc, tops);

		yyjson_mut_arr_append(tokens, token_text(doc, model,
							 e->chosen.token));
		yyjson_mut_arr_add_real(doc, values,
					json_number(e->chosen.logprob));
		yyjson_mut_arr_add_uint(doc, offsets, e->offset);
		for (uint32_t k = 0; k < e->top_count; k++) {
			const struct token_logprob *top = &e->top[k];

			yyjson_mut_obj_add(
				map, token_text(doc, model, top->token),
				yyjson_mut_real(doc,
						json_number(top->logprob)));
		}
	}
}

static void add_logprobs(yyjson_mut_doc *doc, yyjson_mut_val *choice,
			 const struct npu_model *model,
			 const struct request *request, uint32_t from)
{
	yyjson_mut_val *object;

	if (!request->logprobs) {
		yyjson_mut_obj_add_null(doc, choice, "logprobs");
		return;
	}
	object = yyjson_mut_obj_add_obj(doc, choice, "logprobs");
	if (request->chat)
		add_chat_logprobs(doc, object, model, request, from);
	else
		add_text_logprobs(doc, object, model, request, from);
}

char *api_render_completion(struct request *request,
			    const struct npu_model *model)
{
	yyjson_mut_doc *doc;
	yyjson_mut_val *root = new_object(&doc), *choice, *message;

	add_head(doc, root, request, model,
		 request->chat ? "chat.completion" : "text_completion");
	choice = yyjson_mut_arr_add_obj(
		doc, yyjson_mut_obj_add_arr(doc, root, "choices"));
	yyjson_mut_obj_add_uint(doc, choice, "index", 0);
	if (request->chat) {
		message = yyjson_mut_obj_add_obj(doc, choice, "message");
		yyjson_mut_obj_add_str(doc, message, "role", "assistant");
		add_text(doc, message, "content", request->text,
			 request->text_bytes);
	} else {
		add_text(doc, choice, "text", request->text,
			 request->text_bytes);
	}
	add_logprobs(doc, choice, model, request, 0);
	yyjson_mut_obj_add_str(doc, choice, "finish_reason",
			       reason_name(request->finish));
	add_usage(doc, root, request);
	add_timings(doc, root, request);
	return finish_document(doc);
}

char *api_render_chunk(struct request *request, const struct npu_model *model,
		       const char *text, size_t bytes, uint32_t logprobs_from,
		       bool first, bool last)
{
	yyjson_mut_doc *doc;
	yyjson_mut_val *root = new_object(&doc), *choice, *delta;

	add_head(doc, root, request, model,
		 request->chat ? "chat.completion.chunk" : "text_completion");
	choice = yyjson_mut_arr_add_obj(
		doc, yyjson_mut_obj_add_arr(doc, root, "choices"));
	yyjson_mut_obj_add_uint(doc, choice, "index", 0);
	if (request->chat) {
		delta = yyjson_mut_obj_add_obj(doc, choice, "delta");
		if (first)
			yyjson_mut_obj_add_str(doc, delta, "role",
					       "assistant");
		if (first || bytes)
			add_text(doc, delta, "content", text, bytes);
	} else {
		add_text(doc, choice, "text", text, bytes);
	}
	add_logprobs(doc, choice, model, request, logprobs_from);
	if (last) {
		yyjson_mut_obj_add_str(doc, choice, "finish_reason",
				       reason_name(request->finish));
		add_timings(doc, root, request);
	} else {
		yyjson_mut_obj_add_null(doc, choice, "finish_reason");
	}
	return finish_document(doc);
}

char *api_render_usage_chunk(struct request *request,
			     const struct npu_model *model)
{
	yyjson_mut_doc *doc;
	yyjson_mut_val *root = new_object(&doc);

	add_head(doc, root, request, model,
		 request->chat ? "chat.completion.chunk" : "text_completion");
	yyjson_mut_obj_add_arr(doc, root, "choices");
	add_usage(doc, root, request);
	return finish_document(doc);
}

char *api_render_models(const struct npu_model *model, int64_t created)
{
	struct npu_model_info info;
	yyjson_mut_doc *doc;
	yyjson_mut_val *root = new_object(&doc), *item, *meta;

	npu_model_info(model, &info);
	yyjson_mut_obj_add_str(doc, root, "object", "list");
	item = yyjson_mut_arr_add_obj(
		doc, yyjson_mut_obj_add_arr(doc, root, "data"));
	yyjson_mut_obj_add_str(doc, item, "id", info.name);
	yyjson_mut_obj_add_str(doc, item, "object", "model");
	yyjson_mut_obj_add_sint(doc, item, "created", created);
	yyjson_mut_obj_add_str(doc, item, "owned_by", "m6npu");
	meta = yyjson_mut_obj_add_obj(doc, item, "meta");
	yyjson_mut_obj_add_str(doc, meta, "architecture", info.architecture);
	yyjson_mut_obj_add_str(doc, meta, "quantization", info.quantization);
	yyjson_mut_obj_add_uint(doc, meta, "vocab", info.vocab);
	yyjson_mut_obj_add_uint(doc, meta, "context_length",
				info.context_length);
	yyjson_mut_obj_add_uint(doc, meta, "max_seq_len", info.max_seq);
	yyjson_mut_obj_add_uint(doc, meta, "expert_layers",
				info.expert_layers);
	yyjson_mut_obj_add_uint(doc, meta, "experts", info.experts);
	yyjson_mut_obj_add_uint(doc, meta, "experts_per_token",
				info.experts_per_token);
	return finish_document(doc);
}

char *api_tokenize(const char *body, size_t bytes,
		   const struct npu_model *model, struct api_error *error)
{
	const struct npu_tokenizer *tokenizer = npu_model_tokenizer(model);
	yyjson_doc *in = yyjson_read(body, bytes, 0);
	yyjson_val *content =
		yyjson_obj_get(yyjson_doc_get_root(in), "content");
	yyjson_mut_doc *doc;
	yyjson_mut_val *root, *list;
	int32_t *tokens = NULL;
	int count;

	if (!yyjson_is_str(content)) {
		api_error_set(error, 400, NULL, "content",
			      "the body must be {\"content\": \"text\"}");
		yyjson_doc_free(in);
		return NULL;
	}
	count = npu_tokenize(tokenizer, yyjson_get_str(content),
			     yyjson_get_len(content), NPU_TOKENIZE_SPECIAL,
			     NULL, 0);
	if (count >= 0)
		tokens = calloc((size_t)count + 1, sizeof(*tokens));
	if (!tokens) {
		api_error_set(error, count == -E2BIG ? 400 : 500, NULL, NULL,
			      "%s", count < 0 ? npu_error() : "out of memory");
		yyjson_doc_free(in);
		return NULL;
	}
	npu_tokenize(tokenizer, yyjson_get_str(content),
		     yyjson_get_len(content), NPU_TOKENIZE_SPECIAL, tokens,
		     (size_t)count);
	yyjson_doc_free(in);
	root = new_object(&doc);
	list = yyjson_mut_obj_add_arr(doc, root, "tokens");
	for (int i = 0; i < count; i++)
		yyjson_mut_arr_add_sint(doc, list, tokens[i]);
	free(tokens);
	return finish_document(doc);
}

/* Pushes each id of @list; false at the first that is no token. */
static bool push_tokens(yyjson_val *list, const struct npu_model *model,
			struct text_filter *filter, uint32_t vocab)
{
	yyjson_val *item;
	yyjson_arr_iter iter;

	yyjson_arr_iter_init(list, &iter);
	while ((item = yyjson_arr_iter_next(&iter))) {
		char bytes[512];
		size_t count;

		if (!yyjson_is_uint(item) || yyjson_get_uint(item) >= vocab)
			return false;
		count = token_bytes(model, (int32_t)yyjson_get_uint(item),
				    bytes, sizeof(bytes));
		if (text_filter_push(filter, bytes, count))
			return false;
	}
	return true;
}

char *api_detokenize(const char *body, size_t bytes,
		     const struct npu_model *model, struct api_error *error)
{
	yyjson_doc *in = yyjson_read(body, bytes, 0);
	yyjson_val *list = yyjson_obj_get(yyjson_doc_get_root(in), "tokens");
	yyjson_mut_doc *doc;
	yyjson_mut_val *root = new_object(&doc);
	struct npu_model_info info;
	struct shown shown;
	bool good = false;

	npu_model_info(model, &info);
	if (yyjson_is_arr(list) && shown_begin(&shown)) {
		good = push_tokens(list, model, &shown.filter, info.vocab);
		yyjson_mut_obj_add_val(doc, root, "content",
				       shown_end(&shown, doc));
	}
	yyjson_doc_free(in);
	if (good)
		return finish_document(doc);
	api_error_set(error, 400, NULL, "tokens",
		      "the body must be {\"tokens\": [ids below %u]}",
		      info.vocab);
	yyjson_mut_doc_free(doc);
	return NULL;
}
