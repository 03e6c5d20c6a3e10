// SPDX-License-Identifier: MIT
#include "http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"
#include "metrics_page.h"

#define BODY_LIMIT		(8u << 20)
#define CONNECTION_LIMIT	512
#define IDLE_TIMEOUT_S		60
/* How long the last answers may take to leave before connections are cut. */
#define FLUSH_MS		2000
/* A stream that is silent for so long gets a comment, which keeps proxies. */
#define KEEPALIVE_MS		15000

struct http_server {
	struct MHD_Daemon *daemon;
	int64_t started;
	struct http_options options;
	struct npu_device *device;
	struct npu_model *model;
	struct engine *engine;
	struct metrics *metrics;

	pthread_mutex_t lock;	/* guards @exchanges */
	pthread_cond_t quiet;	/* there are none left */
	unsigned int exchanges;	/* begun and not yet answered to the end */
};

/* One HTTP request on its way in. */
struct exchange {
	bool wanted;	/* its body is worth keeping */
	char *body;
	size_t bytes, room;
	bool too_large;
};

struct route {
	const char *method;
	const char *path;
	bool open;	/* without the API key */
	enum MHD_Result (*handle)(struct http_server *server,
				  struct MHD_Connection *connection,
				  struct exchange *exchange);
};

static enum MHD_Result reply(struct http_server *server,
			     struct MHD_Connection *connection,
			     unsigned int status, const char *type, char *text)
{
	struct MHD_Response *response;
	enum MHD_Result ret;

	if (!text)
		return MHD_NO;
	response = MHD_create_response_from_buffer(strlen(text), text,
						   MHD_RESPMEM_MUST_FREE);
	if (!response) {
		free(text);
		return MHD_NO;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	if (status == MHD_HTTP_SERVICE_UNAVAILABLE)
		MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER,
					"1");
	if (status == MHD_HTTP_UNAUTHORIZED)
		MHD_add_response_header(response,
					MHD_HTTP_HEADER_WWW_AUTHENTICATE,
					"Bearer");
	ret = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	metrics_http_response(server->metrics, status);
	return ret;
}

static enum MHD_Result reply_json(struct http_server *server,
				  struct MHD_Connection *connection,
				  unsigned int status, char *text)
{
	return reply(server, connection, status, "application/json", text);
}

static enum MHD_Result reply_error(struct http_server *server,
				   struct MHD_Connection *connection,
				   const struct api_error *error)
{
	return reply_json(server, connection, error->status,
			  api_render_error(error));
}

/* ---- Streaming ---- */

struct stream {
	struct http_server *server;
	struct request *request;
	size_t taken;		/* bytes of the request's text rendered */
	uint32_t logprobs_taken;
	bool first;
	bool ended;
	char *out;		/* rendered and not yet sent */
	size_t out_bytes, out_sent;
};

/* Wraps a JSON text as an event. Frees @json; false: out of memory. */
static bool stream_event(struct stream *stream, char *json)
{
	char *grown;
	int more;

	if (!json)
		return false;
	more = snprintf(NULL, 0, "data: %s\n\n", json);
	grown = realloc(stream->out, stream->out_bytes + (size_t)more + 1);
	if (grown) {
		stream->out = grown;
		sprintf(grown + stream->out_bytes, "data: %s\n\n", json);
		stream->out_bytes += (size_t)more;
	}
	free(json);
	return grown;
}

/* Nobody else is there to read it, so it is the server that ends. */
static void cancelled_error(struct api_error *error)
{
	api_error_set(error, 503, NULL, NULL,
		      "the request was cancelled: the server is stopping");
}

static bool stream_end(struct stream *stream)
{
	struct request *request = stream->request;
	const struct npu_model *model = stream->server->model;
	struct api_error error;

	stream->ended = true;
	if (request->finish == FINISH_ERROR) {
		api_error_set(&error, 500, NULL, NULL, "%s",
			      request->error_text);
		return stream_event(stream, api_render_error(&error));
	}
	if (request->finish == FINISH_CANCELLED) {
		cancelled_error(&error);
		return stream_event(stream, api_render_error(&error));
	}
	if (!stream_event(stream, api_render_chunk(request, model, "", 0,
						   stream->logprobs_taken,
						   stream->first, true)))
		return false;
	if (request->include_usage &&
	    !stream_event(stream, api_render_usage_chunk(request, model)))
		return false;
	return stream_event(stream, strdup("[DONE]"));
}

/* Renders what came since, waiting for it. The request's lock is taken. */
static bool stream_fill(struct stream *stream)
{
	struct request *request = stream->request;
	size_t fresh;
	bool good = true;

	stream->out_bytes = 0;
	stream->out_sent = 0;
	request_wait(request, stream->taken, KEEPALIVE_MS);
	fresh = request->text_bytes - stream->taken;
	if (fresh) {
		good = stream_event(
			stream, api_render_chunk(request, stream->server->model,
						 request->text + stream->taken,
						 fresh, stream->logprobs_taken,
						 stream->first, false));
		stream->taken += fresh;
		stream->logprobs_taken = request->logprob_count;
		stream->first = false;
	}
	if (good && request->finish != FINISH_NONE)
		good = stream_end(stream);
	pthread_mutex_unlock(&request->lock);
	if (good && !stream->out_bytes) {
		static const char comment[] = ": still at it\n\n";

		free(stream->out);
		stream->out = strdup(comment);
		stream->out_bytes = sizeof(comment) - 1;
	}
	return good && stream->out;
}

static ssize_t stream_read(void *opaque, uint64_t position, char *buffer,
			   size_t max)
{
	struct stream *stream = opaque;
	size_t count;

	(void)position;
	if (stream->out_sent == stream->out_bytes) {
		if (stream->ended)
			return MHD_CONTENT_READER_END_OF_STREAM;
		if (!stream_fill(stream))
			return MHD_CONTENT_READER_END_WITH_ERROR;
	}
	count = stream->out_bytes - stream->out_sent;
	if (count > max)
		count = max;
	memcpy(buffer, stream->out + stream->out_sent, count);
	stream->out_sent += count;
	return (ssize_t)count;
}

static void stream_free(void *opaque)
{
	struct stream *stream = opaque;

	/* Sent to its end or not: nobody reads any more. */
	atomic_store(&stream->request->cancelled, true);
	request_put(stream->request);
	free(stream->out);
	free(stream);
}

static enum MHD_Result reply_stream(struct http_server *server,
				    struct MHD_Connection *connection,
				    struct request *request)
{
	struct stream *stream = calloc(1, sizeof(*stream));
	struct MHD_Response *response;
	enum MHD_Result ret;

	if (!stream)
		return MHD_NO;
	stream->server = server;
	stream->request = request_get(request);
	stream->first = true;
	response = MHD_create_response_from_callback(
		MHD_SIZE_UNKNOWN, 16384, stream_read, stream, stream_free);
	if (!response) {
		stream_free(stream);
		return MHD_NO;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
				"text/event-stream");
	MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL,
				"no-cache");
	ret = MHD_queue_response(connection, MHD_HTTP_OK, response);
	MHD_destroy_response(response);
	metrics_http_response(server->metrics, MHD_HTTP_OK);
	return ret;
}

/* ---- Completions ---- */

static enum MHD_Result reply_whole(struct http_server *server,
				   struct MHD_Connection *connection,
				   struct request *request)
{
	struct api_error error;
	char *text = NULL;

	do {
		request_wait(request, SIZE_MAX, KEEPALIVE_MS);
		if (request->finish == FINISH_NONE)
			pthread_mutex_unlock(&request->lock);
	} while (request->finish == FINISH_NONE);
	if (request->finish == FINISH_ERROR)
		api_error_set(&error, 500, NULL, NULL, "%s",
			      request->error_text);
	else if (request->finish == FINISH_CANCELLED)
		cancelled_error(&error);
	else
		text = api_render_completion(request, server->model);
	pthread_mutex_unlock(&request->lock);
	if (text)
		return reply_json(server, connection, MHD_HTTP_OK, text);
	return reply_error(server, connection, &error);
}

static int submit(struct http_server *server, struct request *request,
		  struct api_error *error)
{
	int err = engine_submit(server->engine, request);

	if (err == -EAGAIN)
		api_error_set(error, 503, "queue_full", NULL,
			      "too many requests wait already; try again later");
	else if (err)
		api_error_set(error, 503, NULL, NULL, "the server is stopping");
	return err;
}

static enum MHD_Result complete(struct http_server *server,
				struct MHD_Connection *connection,
				struct exchange *exchange, bool chat)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct request *request = request_create();
	struct api_error error;
	enum MHD_Result ret;

	if (!request)
		return MHD_NO;
	request->client_fd = info ? info->connect_fd : -1;
	if (api_parse_completion(exchange->body ? exchange->body : "",
				 exchange->bytes, chat, server->model,
				 &server->options.defaults, request, &error) ||
	    submit(server, request, &error))
		ret = reply_error(server, connection, &error);
	else if (request->stream)
		ret = reply_stream(server, connection, request);
	else
		ret = reply_whole(server, connection, request);
	request_put(request);
	return ret;
}

static enum MHD_Result handle_chat(struct http_server *server,
				   struct MHD_Connection *connection,
				   struct exchange *exchange)
{
	return complete(server, connection, exchange, true);
}

static enum MHD_Result handle_completion(struct http_server *server,
					 struct MHD_Connection *connection,
					 struct exchange *exchange)
{
	return complete(server, connection, exchange, false);
}

/* ---- The rest ---- */

static enum MHD_Result handle_models(struct http_server *server,
				     struct MHD_Connection *connection,
				     struct exchange *exchange)
{
	(void)exchange;
	return reply_json(server, connection, MHD_HTTP_OK,
			  api_render_models(server->model, server->started));
}

static enum MHD_Result handle_health(struct http_server *server,
				     struct MHD_Connection *connection,
				     struct exchange *exchange)
{
	struct engine_state state;
	char *text;

	(void)exchange;
	engine_state(server->engine, &state);
	if (asprintf(&text,
		     "{\"status\":\"%s\",\"slots\":%u,\"slots_busy\":%u,\"queued\":%u}",
		     state.stopping ? "stopping" : "ok", state.slots,
		     state.busy, state.queued) < 0)
		return MHD_NO;
	return reply_json(server, connection,
			  state.stopping ? MHD_HTTP_SERVICE_UNAVAILABLE :
					   MHD_HTTP_OK,
			  text);
}

static enum MHD_Result handle_metrics(struct http_server *server,
				      struct MHD_Connection *connection,
				      struct exchange *exchange)
{
	struct api_error error;
	char *page;

	(void)exchange;
	page = metrics_page(server->metrics, server->device, server->model,
			    server->engine);
	if (page)
		return reply(server, connection, MHD_HTTP_OK,
			     "text/plain; version=0.0.4; charset=utf-8", page);
	api_error_set(&error, 500, NULL, NULL, "no figures: %s", npu_error());
	return reply_error(server, connection, &error);
}

typedef char *(*text_fn)(const char *body, size_t bytes,
			 const struct npu_model *model,
			 struct api_error *error);

static enum MHD_Result convert(struct http_server *server,
			       struct MHD_Connection *connection,
			       struct exchange *exchange, text_fn fn)
{
	struct api_error error = { .status = 500, .type = "server_error",
				   .message = "out of memory" };
	char *text = fn(exchange->body ? exchange->body : "", exchange->bytes,
			server->model, &error);

	if (text)
		return reply_json(server, connection, MHD_HTTP_OK, text);
	return reply_error(server, connection, &error);
}

static enum MHD_Result handle_tokenize(struct http_server *server,
				       struct MHD_Connection *connection,
				       struct exchange *exchange)
{
	return convert(server, connection, exchange, api_tokenize);
}

static enum MHD_Result handle_detokenize(struct http_server *server,
					 struct MHD_Connection *connection,
					 struct exchange *exchange)
{
	return convert(server, connection, exchange, api_detokenize);
}

static const struct route routes[] = {
	{ "POST", "/v1/chat/completions", false, handle_chat },
	{ "POST", "/v1/completions", false, handle_completion },
	{ "GET", "/v1/models", false, handle_models },
	{ "POST", "/tokenize", false, handle_tokenize },
	{ "POST", "/detokenize", false, handle_detokenize },
	{ "GET", "/health", true, handle_health },
	{ "GET", "/metrics", true, handle_metrics },
};

#define ROUTES (sizeof(routes) / sizeof(routes[0]))

static bool method_fits(const struct route *route, const char *method)
{
	return !strcmp(route->method, method) ||
	       (!strcmp(route->method, "GET") && !strcmp(method, "HEAD"));
}

static const struct route *find_route(const char *path, const char *method,
				      bool *path_known)
{
	*path_known = false;
	for (size_t i = 0; i < ROUTES; i++) {
		if (strcmp(routes[i].path, path))
			continue;
		*path_known = true;
		if (method_fits(&routes[i], method))
			return &routes[i];
	}
	return NULL;
}

/* Takes the same time wherever the first difference is. */
static bool key_matches(const char *key, const char *header)
{
	static const char scheme[] = "Bearer ";
	size_t bytes = strlen(key);
	unsigned char difference = 0;

	if (!header || strncasecmp(header, scheme, sizeof(scheme) - 1))
		return false;
	header += sizeof(scheme) - 1;
	if (strlen(header) != bytes)
		return false;
	for (size_t i = 0; i < bytes; i++)
		difference |= (unsigned char)(key[i] ^ header[i]);
	return !difference;
}

static bool authorized(struct http_server *server,
		       struct MHD_Connection *connection,
		       const struct route *route)
{
	if (!server->options.api_key || route->open)
		return true;
	return key_matches(server->options.api_key,
			   MHD_lookup_connection_value(
				   connection, MHD_HEADER_KIND,
				   MHD_HTTP_HEADER_AUTHORIZATION));
}

/* False: the body goes on being read, but is not kept. */
static bool collect(struct exchange *exchange, const char *data, size_t count)
{
	char *grown;

	if (exchange->bytes + count > BODY_LIMIT)
		return false;
	if (exchange->bytes + count + 1 > exchange->room) {
		size_t room = (exchange->bytes + count + 1) * 2;

		grown = realloc(exchange->body, room);
		if (!grown)
			return false;
		exchange->body = grown;
		exchange->room = room;
	}
	memcpy(exchange->body + exchange->bytes, data, count);
	exchange->bytes += count;
	exchange->body[exchange->bytes] = 0;
	return true;
}

static enum MHD_Result answer(struct http_server *server,
			      struct MHD_Connection *connection,
			      const char *url, const char *method,
			      struct exchange *exchange)
{
	struct api_error error;
	bool path_known;
	const struct route *route = find_route(url, method, &path_known);

	if (!route)
		api_error_set(&error, path_known ? 405 : 404, NULL, NULL,
			      path_known ? "%s does not go with %s" :
					   "%s %s: no such endpoint",
			      method, url);
	else if (!authorized(server, connection, route))
		api_error_set(&error, 401, "invalid_api_key", NULL,
			      "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'");
	else if (exchange->too_large)
		api_error_set(&error, 413, NULL, NULL,
			      "the body is larger than %u bytes", BODY_LIMIT);
	else
		return route->handle(server, connection, exchange);
	return reply_error(server, connection, &error);
}

static struct exchange *exchange_begin(struct http_server *server)
{
	struct exchange *exchange = calloc(1, sizeof(*exchange));

	if (!exchange)
		return NULL;
	pthread_mutex_lock(&server->lock);
	server->exchanges++;
	pthread_mutex_unlock(&server->lock);
	return exchange;
}

static void exchange_end(struct http_server *server, struct exchange *exchange)
{
	free(exchange->body);
	free(exchange);
	pthread_mutex_lock(&server->lock);
	if (!--server->exchanges)
		pthread_cond_signal(&server->quiet);
	pthread_mutex_unlock(&server->lock);
}

static enum MHD_Result on_access(void *opaque,
				 struct MHD_Connection *connection,
				 const char *url, const char *method,
				 const char *version, const char *data,
				 size_t *count, void **state)
{
	struct exchange *exchange = *state;
	const struct route *route;
	bool path_known;

	(void)version;
	if (!exchange) {
		*state = exchange = exchange_begin(opaque);
		if (!exchange)
			return MHD_NO;
		route = find_route(url, method, &path_known);
		exchange->wanted = route &&
				   authorized(opaque, connection, route);
		return MHD_YES;
	}
	if (*count) {
		if (exchange->wanted && !exchange->too_large)
			exchange->too_large = !collect(exchange, data, *count);
		*count = 0;
		return MHD_YES;
	}
	return answer(opaque, connection, url, method, exchange);
}

static void on_completed(void *opaque, struct MHD_Connection *connection,
			 void **state, enum MHD_RequestTerminationCode code)
{
	struct exchange *exchange = *state;

	(void)connection;
	(void)code;
	if (exchange)
		exchange_end(opaque, exchange);
	*state = NULL;
}

/* ---- Listening ---- */

/* Splits "addr:port" in place. NULL address: any. */
static int split_host(char *host, char **address, char **port)
{
	char *colon = strrchr(host, ':');

	/* getaddrinfo() takes the lower 16 bits of any number. */
	if (!colon || !colon[1] || strspn(colon + 1, "0123456789") > 5 ||
	    atoi(colon + 1) > UINT16_MAX)
		return -EINVAL;
	*colon = 0;
	*port = colon + 1;
	*address = *host ? host : NULL;
	if (*host == '[') {
		char *end = strchr(host, ']');

		if (!end || end[1])
			return -EINVAL;
		*end = 0;
		*address = host + 1;
	}
	return 0;
}

static int bind_to(const struct addrinfo *at)
{
	int one = 1, err;
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, at->ai_addr, at->ai_addrlen)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

int http_bind(const char *host)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
	};
	struct addrinfo *found;
	char *copy = strdup(host), *address, *port;
	int fd = -1, code;

	if (!copy)
		return -ENOMEM;
	if (split_host(copy, &address, &port)) {
		log_error("--host %s: must be ADDRESS:PORT, such as 0.0.0.0:8080",
			  host);
		free(copy);
		return -EINVAL;
	}
	code = getaddrinfo(address, port, &hints, &found);
	if (code) {
		log_error("--host %s: %s", host, gai_strerror(code));
		free(copy);
		return -EINVAL;
	}
	/* A name may have addresses that this machine has not. */
	for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next)
		fd = bind_to(at);
	if (fd < 0)
		log_error("cannot listen on %s: %s", host, strerror(-fd));
	freeaddrinfo(found);
	free(copy);
	return fd;
}

static void release(struct http_server *server)
{
	pthread_cond_destroy(&server->quiet);
	pthread_mutex_destroy(&server->lock);
	free(server);
}

int http_start(const struct http_options *options, struct npu_device *device,
	       struct npu_model *model, struct engine *engine,
	       struct metrics *metrics, struct http_server **out)
{
	struct http_server *server = calloc(1, sizeof(*server));
	pthread_condattr_t attr;

	if (!server)
		return -ENOMEM;
	*server = (struct http_server){
		.options = *options, .device = device,	 .model = model,
		.engine = engine,    .metrics = metrics, .started = time(NULL),
	};
	if (listen(options->listen_fd, 128)) {
		log_error("cannot listen on %s: %s", options->host,
			  strerror(errno));
		free(server);
		return -EIO;
	}
	pthread_mutex_init(&server->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&server->quiet, &attr);
	pthread_condattr_destroy(&attr);
	server->daemon = MHD_start_daemon(
		MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
			MHD_USE_POLL | MHD_USE_ITC,
		0, NULL, NULL, on_access, server, MHD_OPTION_LISTEN_SOCKET,
		options->listen_fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
		server, MHD_OPTION_CONNECTION_LIMIT, CONNECTION_LIMIT,
		MHD_OPTION_CONNECTION_TIMEOUT, IDLE_TIMEOUT_S, MHD_OPTION_END);
	if (!server->daemon) {
		log_error("the HTTP server does not start: %s",
			  strerror(errno));
		release(server);
		return -EIO;
	}
	log_info("listening on %s", options->host);
	*out = server;
	return 0;
}

void http_quiesce(struct http_server *server)
{
	MHD_socket fd = MHD_quiesce_daemon(server->daemon);

	if (fd != MHD_INVALID_SOCKET)
		close(fd);
}

/* The engine is done with all requests: what is left is to send answers. */
static void wait_quiet(struct http_server *server)
{
	uint64_t until = monotonic_ns() + FLUSH_MS * 1000000ull;
	struct timespec deadline = {
		.tv_sec = (time_t)(until / 1000000000u),
		.tv_nsec = (long)(until % 1000000000u),
	};
	int err = 0;

	pthread_mutex_lock(&server->lock);
	while (!err && server->exchanges)
		err = pthread_cond_timedwait(&server->quiet, &server->lock,
					     &deadline);
	pthread_mutex_unlock(&server->lock);
}

void http_stop(struct http_server *server)
{
	wait_quiet(server);
	MHD_stop_daemon(server->daemon);
	release(server);
}
