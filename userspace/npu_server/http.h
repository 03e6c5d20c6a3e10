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
	const char *host;
	int listen_fd;			/* of http_bind() */
	const char *api_key;		/* NULL: none asked for */
	struct api_defaults defaults;
};

/*
 * A socket for @host, which is "addr:port", "[v6]:port" or ":port". Nobody can
 * connect yet, but it is known that it will work. Negative: told in the log.
 */
int http_bind(const char *host);
/*
 * Messages go to the log. Everything passed is used until http_stop(); when all
 * goes well the socket is the server's.
 */
int http_start(const struct http_options *options, struct npu_device *device,
	       struct npu_model *model, struct engine *engine,
	       struct metrics *metrics, struct http_server **server);
/* No new connections from here on; those at hand go on. */
void http_quiesce(struct http_server *server);
/* Once no request is left with the engine: sends the last answers, ends. */
void http_stop(struct http_server *server);

#endif
