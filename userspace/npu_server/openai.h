/* SPDX-License-Identifier: MIT */
/*
 * OpenAI's JSON, both ways: requests in, with every parameter checked, and
 * completions, chunks and errors out. Figures beyond OpenAI's ("timings") are
 * named as llama.cpp's server names them.
 */
#ifndef NPU_SERVER_OPENAI_H
#define NPU_SERVER_OPENAI_H

#include <npu/npu.h>

#include "request.h"

/* Why a request was refused; becomes the error object. */
struct api_error {
	unsigned int status;	/* HTTP */
	const char *type;	/* "invalid_request_error", ... */
	const char *code;	/* "context_length_exceeded", ...; NULL: none */
	char param[64];		/* parameter at fault, "" : none */
	char message[512];
};

void api_error_set(struct api_error *error, unsigned int status,
		   const char *code, const char *param, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

struct api_defaults {
	float temperature;
	uint32_t max_tokens;	/* 0: what the context holds */
};

/*
 * Fills @request from the body of a (chat) completion request. 0, or -1 with
 * @error set.
 */
int api_parse_completion(const char *body, size_t bytes, bool chat,
			 const struct npu_model *model,
			 const struct api_defaults *defaults,
			 struct request *request, struct api_error *error);

/* Strings to be freed by the caller; NULL: out of memory. */
char *api_render_error(const struct api_error *error);
char *api_render_completion(struct request *request,
			    const struct npu_model *model);
/*
 * One SSE chunk with @text and the log probabilities from @logprobs_from on;
 * the first one of a chat carries the role.
 */
char *api_render_chunk(struct request *request, const struct npu_model *model,
		       const char *text, size_t bytes, uint32_t logprobs_from,
		       bool first, bool last);
char *api_render_usage_chunk(struct request *request,
			     const struct npu_model *model);
char *api_render_models(const struct npu_model *model, int64_t created);
/* Bodies {"content": text} and {"tokens": [ids]}, and the answers. */
char *api_tokenize(const char *body, size_t bytes,
		   const struct npu_model *model, struct api_error *error);
char *api_detokenize(const char *body, size_t bytes,
		     const struct npu_model *model, struct api_error *error);

#endif
