/* SPDX-License-Identifier: MIT */
/*
 * HTTP by libmicrohttpd, a thread a connection: a handler may wait for its
 * request, and /health answers meanwhile.
 */
#ifndef NPU_SERVER_HTTP_H
#define NPU_SERVER_HTTP_H

#include <npu/npu.h>

#include "engine.h"
#include "metrics.h"
#include "openai.h"

struct http_server;

struct http_options {
	const char *host;		/* "addr:port", "[v6]:port", ":port" */
	const char *api_key;		/* NULL: none asked for */
	struct api_defaults defaults;
};

/* Messages go to the log. Everything passed is used until http_stop(). */
int http_start(const struct http_options *options, struct npu_device *device,
	       struct npu_model *model, struct engine *engine,
	       struct metrics *metrics, struct http_server **server);
/* No new connections from here on; those at hand go on. */
void http_quiesce(struct http_server *server);
/* Once no request is left with the engine: sends the last answers, ends. */
void http_stop(struct http_server *server);

#endif
