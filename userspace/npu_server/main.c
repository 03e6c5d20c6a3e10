// SPDX-License-Identifier: MIT
/* npu_server: opens the device, loads the model, serves it, ends on SIGTERM. */
#include <errno.h>
#include <inttypes.h>
#include <npu/npu.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"
#include "expert_report.h"
#include "http.h"
#include "log.h"
#include "metrics.h"
#include "options.h"

struct server {
	struct options options;
	struct npu_device *device;
	struct npu_pool *pool;		/* NULL: none was asked for by id */
	struct npu_model *model;
	struct metrics *metrics;
	struct engine *engine;
	struct http_server *http;
	int listen_fd;	/* -1: none, or the HTTP server's */
};

static volatile sig_atomic_t stop_signal;
static volatile sig_atomic_t report_wanted;

static void on_signal(int number)
{
	if (number == SIGUSR1)
		report_wanted = 1;
	else
		stop_signal = number;
}

/*
 * They stay blocked, in all threads, but for where the main thread waits: none
 * is lost, and no call is interrupted half-way.
 */
static void catch_signals(sigset_t *outside)
{
	static const int numbers[] = { SIGTERM, SIGINT, SIGUSR1 };
	const struct sigaction action = { .sa_handler = on_signal };
	sigset_t ours;

	sigemptyset(&ours);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		sigaction(numbers[i], &action, NULL);
		sigaddset(&ours, numbers[i]);
	}
	signal(SIGPIPE, SIG_IGN);
	pthread_sigmask(SIG_BLOCK, &ours, outside);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigdelset(outside, numbers[i]);
}

static bool stop_pending(void)
{
	sigset_t pending;

	sigpending(&pending);
	return sigismember(&pending, SIGTERM) || sigismember(&pending, SIGINT);
}

/* A line for every stage and every tenth of it; SIGTERM cancels. */
static int show_progress(void *opaque, const struct npu_load_progress *p)
{
	static const char *const stages[] = {
		[NPU_LOAD_CHECK] = "checking the file",
		[NPU_LOAD_STATIC] = "static weights",
		[NPU_LOAD_EXPERTS] = "experts",
	};
	int *shown = opaque;
	int now = (int)p->stage * 100 +
		  (p->total ? (int)(p->done * 10 / p->total) : 10);

	if (now != *shown) {
		*shown = now;
		log_info("loading %s: %u of %u shards, %.1f of %.1f MB",
			 stages[p->stage], p->items, p->item_count,
			 (double)p->done * 1e-6, (double)p->total * 1e-6);
	}
	return stop_pending();
}

static int fail(const char *what)
{
	log_error("%s: %s", what, npu_error());
	return -1;
}

static int configure_router(struct server *server)
{
	const struct options *o = &server->options;
	enum npu_router_policy policy = o->disable_expert_cache ?
						NPU_ROUTER_OFF :
						NPU_ROUTER_LRU;

	if (npu_router_set(server->device, policy))
		return fail("expert-router cache");
	return 0;
}

/* Id of the pool that is asked for, 0 if none is; -1 for a bad one. */
static int64_t pool_id(const struct options *o)
{
	unsigned long id;
	char *end;

	if (!strcmp(o->pool, "auto") || !strcmp(o->pool, "private"))
		return 0;
	errno = 0;
	id = strtoul(o->pool, &end, 10);
	return errno || *end || !id || id > UINT32_MAX || *o->pool == '-' ?
		       -1 : (int64_t)id;
}

static int load(struct server *server)
{
	const struct options *o = &server->options;
	struct npu_model_options options = {
		.size = sizeof(options),
		.progress = show_progress,
		.slots = o->max_concurrent,
		.max_seq = o->max_seq_len,
		.experts_on_demand = o->experts_on_demand,
		.expert_budget = o->expert_budget,
		.kv_q8_0 = !strcmp(o->kv_cache_type, "q8_0"),
		.prefetch_permille = o->preload_threshold,
		.prefetch_low = o->dynamic_threshold.low,
		.prefetch_high = o->dynamic_threshold.high,
		.expert_fallback = o->expert_fallback,
		.preload_config = o->config,
		.private_pool = !strcmp(o->pool, "private"),
	};
	uint32_t pool = (uint32_t)pool_id(o);
	struct npu_device_info device;
	struct npu_model_info model;
	int shown = -1;

	options.progress_user = &shown;
	if (npu_device_open((int)o->device_id, &server->device) ||
	    npu_device_info(server->device, &device))
		return fail("device");
	log_info("%s: firmware %s, %u units, %u router-cache entries",
		 device.node, device.firmware, device.units,
		 device.router_entries);
	if (configure_router(server))
		return -1;
	if (pool && npu_pool_open(server->device, pool, &server->pool))
		return fail("pool");
	options.pool = server->pool;
	if (npu_model_load(server->device, o->model, &options, &server->model))
		return fail("cannot load the model");
	npu_model_info(server->model, &model);
	log_info("%s (%s, %s): in pool %u of %.1f MB, %u windows, %u of %u experts resident, %u slots of %u tokens, loaded in %.2f s",
		 model.name, model.architecture, model.quantization,
		 model.pool_id, (double)model.pool_bytes * 1e-6, model.windows,
		 model.experts_resident, model.expert_layers * model.experts,
		 model.slots, model.max_seq, (double)model.load_ns * 1e-9);
	if (model.expert_places < model.expert_layers * model.experts)
		log_info("experts: room for %u at once in %.1f MB, steps of up to %u tokens",
			 model.expert_places,
			 (double)model.expert_span_bytes * 1e-6,
			 model.max_tile);
	return 0;
}

/* How the experts' memory did, once it is known. */
static void log_experts(const struct npu_model *model)
{
	struct npu_model_info info;

	npu_model_info(model, &info);
	if (!info.expert_uses && !info.expert_faults)
		return;
	log_info("experts: %" PRIu64 " faults in %" PRIu64 " uses, %" PRIu64 " loaded (%.1f MB read), %" PRIu64 " evicted, jobs waited %.3f s",
		 info.expert_faults, info.expert_uses, info.expert_loads,
		 (double)info.expert_bytes_read * 1e-6, info.expert_evictions,
		 (double)info.expert_stall_ns * 1e-9);
	if (info.expert_hints)
		log_info("experts: %" PRIu64 " asked for ahead, %" PRIu64 " read for it, %" PRIu64 " of them used",
			 info.expert_hints, info.expert_prefetches,
			 info.expert_prefetches_used);
	if (info.expert_fallbacks)
		log_info("experts: %" PRIu64 " times a copy of lower precision stood in",
			 info.expert_fallbacks);
}

static void report_experts(const struct server *server)
{
	const char *path = server->options.expert_report;
	struct metrics_figures figures;
	int err;

	if (!path)
		return;
	metrics_read(server->metrics, &figures);
	err = npu_expert_report_write(server->model, figures.step_tokens, path);
	if (err)
		log_error("cannot write the expert report %s: %s", path,
			  strerror(-err));
	else
		log_info("expert report written to %s", path);
}

/* Until a signal says that it is enough. */
static void serve(const struct server *server, const sigset_t *outside)
{
	while (!stop_signal) {
		sigsuspend(outside);
		if (report_wanted)
			report_experts(server);
		report_wanted = 0;
	}
	log_info("ending on signal %d", (int)stop_signal);
}

static int start(struct server *server)
{
	const struct options *o = &server->options;
	const struct engine_options engine = { .queue_limit = o->queue_limit };
	const struct http_options http = {
		.host = o->host,
		.listen_fd = server->listen_fd,
		.api_key = o->api_key,
		.defaults = {
			.temperature = (float)o->temperature,
			.max_tokens = o->max_tokens,
		},
	};
	int err;

	server->metrics = metrics_create();
	if (!server->metrics)
		return -1;
	err = engine_create(server->device, server->model, &engine,
			    server->metrics, &server->engine);
	if (err) {
		log_error("the engine does not start: %s", strerror(-err));
		return -1;
	}
	err = http_start(&http, server->device, server->model, server->engine,
			 server->metrics, &server->http);
	if (!err)
		server->listen_fd = -1;
	return err;
}

static void stop(struct server *server)
{
	if (server->listen_fd >= 0)
		close(server->listen_fd);
	if (server->http)
		http_quiesce(server->http);
	if (server->engine)
		engine_stop(server->engine,
			    (int)server->options.grace_seconds * 1000);
	if (server->http)
		http_stop(server->http);
	if (server->engine) {
		log_experts(server->model);
		report_experts(server);
	}
	engine_destroy(server->engine);
	metrics_destroy(server->metrics);
	npu_model_free(server->model);
	npu_pool_close(server->pool);
	npu_device_close(server->device);
}

/* What the table of options can't say. */
static int check_options(const struct options *o)
{
	int level = log_level_parse(o->log_level);

	if (level < 0) {
		fprintf(stderr,
			"npu_server: log-level must be error, warn, info or debug, not '%s'\n",
			o->log_level);
		return -1;
	}
	if (strcmp(o->kv_cache_type, "f16") &&
	    strcmp(o->kv_cache_type, "q8_0")) {
		fprintf(stderr,
			"npu_server: kv-cache-type must be f16 or q8_0, not '%s'\n",
			o->kv_cache_type);
		return -1;
	}
	if (pool_id(o) < 0) {
		fprintf(stderr,
			"npu_server: pool must be auto, private or an id of npu_mem_pool_prealloc --info, not '%s'\n",
			o->pool);
		return -1;
	}
	if (o->preload_threshold == NPU_PREFETCH_OFF &&
	    o->dynamic_threshold.low) {
		fprintf(stderr,
			"npu_server: with npu-expert-preload-threshold off there is nothing for dynamic-expert-threshold to move; leave one of them out\n");
		return -1;
	}
	log_set_level((enum log_level)level);
	return 0;
}

int main(int argc, char **argv)
{
	struct server server = { 0 };
	sigset_t outside;
	int ret = options_parse(&server.options, argc, argv);

	if (!ret)
		ret = check_options(&server.options);
	if (ret) {
		options_release(&server.options);
		return ret > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
	}
	catch_signals(&outside);
	/* Before a model is loaded for minutes. */
	server.listen_fd = http_bind(server.options.host);
	ret = server.listen_fd < 0 ? -1 : load(&server);
	if (!ret)
		ret = start(&server);
	if (!ret) {
		serve(&server, &outside);
	} else if (stop_pending()) {
		log_info("ending on a signal");
		ret = 0;
	}
	stop(&server);
	options_release(&server.options);
	return ret ? EXIT_FAILURE : EXIT_SUCCESS;
}
