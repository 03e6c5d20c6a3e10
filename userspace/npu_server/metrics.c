// SPDX-License-Identifier: MIT
#include "metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine.h"

#define STATUS_CLASSES 6	/* 0: other, 1xx..5xx */
#define REASONS 5		/* enum request_finish */

struct metrics {
	pthread_mutex_t lock;	/* guards all of the following */
	uint64_t responses[STATUS_CLASSES];
	uint64_t ended[REASONS];
	uint64_t tokens_prompt;
	uint64_t tokens_generated;
	uint64_t steps;
	uint64_t steps_failed;
	uint64_t step_tokens;
	uint64_t device_ns;
	uint64_t router_hits;
	uint64_t router_misses;
	uint64_t expert_faults;
	uint64_t first_token_count;
	double first_token_sum;	/* seconds */
	/* Of the last request that got to its end. */
	double last_first_token;	/* seconds */
	double last_rate;	/* tokens a second */
	double last_device_first_token;	/* seconds of device time */
	double last_device_rate;
};

struct metrics *metrics_create(void)
{
	struct metrics *metrics = calloc(1, sizeof(*metrics));

	if (metrics)
		pthread_mutex_init(&metrics->lock, NULL);
	return metrics;
}

void metrics_destroy(struct metrics *metrics)
{
	if (!metrics)
		return;
	pthread_mutex_destroy(&metrics->lock);
	free(metrics);
}

void metrics_http_response(struct metrics *metrics, unsigned int status)
{
	unsigned int class = status / 100;

	pthread_mutex_lock(&metrics->lock);
	metrics->responses[class < STATUS_CLASSES ? class : 0]++;
	pthread_mutex_unlock(&metrics->lock);
}

void metrics_token(struct metrics *metrics)
{
	pthread_mutex_lock(&metrics->lock);
	metrics->tokens_generated++;
	pthread_mutex_unlock(&metrics->lock);
}

void metrics_step(struct metrics *metrics, uint32_t tokens,
		  const struct npu_step_result *result)
{
	pthread_mutex_lock(&metrics->lock);
	metrics->steps++;
	metrics->step_tokens += tokens;
	metrics->device_ns += result->device_ns;
	metrics->router_hits += result->router_hits;
	metrics->router_misses += result->router_misses;
	metrics->expert_faults += result->expert_faults;
	pthread_mutex_unlock(&metrics->lock);
}

void metrics_step_failed(struct metrics *metrics)
{
	pthread_mutex_lock(&metrics->lock);
	metrics->steps_failed++;
	pthread_mutex_unlock(&metrics->lock);
}

static double seconds(uint64_t from, uint64_t to)
{
	return to > from ? (double)(to - from) * 1e-9 : 0;
}

/* Tokens a second after the first one; 0 when there was no second one. */
static double rate(uint32_t tokens, double duration)
{
	return tokens > 1 && duration > 0 ? (tokens - 1) / duration : 0;
}

void metrics_request_ended(struct metrics *metrics,
			   const struct request *request,
			   enum request_finish reason)
{
	const struct request_timing *t = &request->timing;

	pthread_mutex_lock(&metrics->lock);
	metrics->ended[reason]++;
	metrics->tokens_prompt += request->position < request->prompt_count ?
					  request->position :
					  request->prompt_count;
	if (request->generated) {
		double first = seconds(t->arrived_ns, t->first_token_ns);

		metrics->first_token_count++;
		metrics->first_token_sum += first;
		metrics->last_first_token = first;
		metrics->last_rate =
			rate(request->generated,
			     seconds(t->first_token_ns, t->ended_ns));
		metrics->last_device_first_token =
			(double)t->prompt_device_ns * 1e-9;
		metrics->last_device_rate =
			rate(request->generated,
			     (double)t->decode_device_ns * 1e-9);
	}
	pthread_mutex_unlock(&metrics->lock);
}

static void head(FILE *out, const char *name, const char *type,
		 const char *help)
{
	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void counter(FILE *out, const char *name, uint64_t value,
		    const char *help)
{
	head(out, name, "counter", help);
	fprintf(out, "%s %" PRIu64 "\n", name, value);
}

static void gauge(FILE *out, const char *name, double value, const char *help)
{
	head(out, name, "gauge", help);
	fprintf(out, "%s %.9g\n", name, value);
}

static void render_requests(FILE *out, const struct metrics *m)
{
	static const char *const reasons[REASONS] = {
		[FINISH_STOP] = "stop",
		[FINISH_LENGTH] = "length",
		[FINISH_CANCELLED] = "cancelled",
		[FINISH_ERROR] = "error",
	};

	head(out, "npu_http_responses_total", "counter",
	     "HTTP responses by status class.");
	for (int i = 1; i < STATUS_CLASSES; i++)
		fprintf(out,
			"npu_http_responses_total{class=\"%dxx\"} %" PRIu64
			"\n", i, m->responses[i]);
	head(out, "npu_requests_total", "counter",
	     "Completion requests that ended, by reason.");
	for (int i = FINISH_STOP; i < REASONS; i++)
		fprintf(out, "npu_requests_total{reason=\"%s\"} %" PRIu64 "\n",
			reasons[i], m->ended[i]);
	counter(out, "npu_prompt_tokens_total", m->tokens_prompt,
		"Prompt tokens processed.");
	counter(out, "npu_generated_tokens_total", m->tokens_generated,
		"Tokens generated.");
	counter(out, "npu_steps_total", m->steps, "Jobs run on the device.");
	counter(out, "npu_steps_failed_total", m->steps_failed,
		"Jobs that ended with an error.");
	counter(out, "npu_step_tokens_total", m->step_tokens,
		"Tokens in those jobs.");
	head(out, "npu_device_seconds_total", "counter",
	     "Device time spent in jobs.");
	fprintf(out, "npu_device_seconds_total %.9f\n",
		(double)m->device_ns * 1e-9);
	counter(out, "npu_expert_faults_total", m->expert_faults,
		"Waits of a job for experts that were not resident.");
	head(out, "npu_first_token_seconds", "summary",
	     "From arrival to first token.");
	fprintf(out,
		"npu_first_token_seconds_sum %.9f\n"
		"npu_first_token_seconds_count %" PRIu64 "\n",
		m->first_token_sum, m->first_token_count);
	gauge(out, "npu_time_to_first_token_seconds", m->last_first_token,
	      "Of the last request, from its arrival.");
	gauge(out, "npu_tokens_per_second", m->last_rate,
	      "Of the last request, after its first token.");
	gauge(out, "npu_device_time_to_first_token_seconds",
	      m->last_device_first_token,
	      "Of the last request, in device time.");
	gauge(out, "npu_device_tokens_per_second", m->last_device_rate,
	      "Of the last request, in device time.");
}

static void render_router(FILE *out, const struct metrics *m,
			  const struct npu_router_stats *router)
{
	uint64_t lookups = m->router_hits + m->router_misses;

	gauge(out, "npu_router_cache_hit_ratio",
	      lookups ? (double)m->router_hits / (double)lookups : 0,
	      "Hits of this server's jobs in the expert-router cache.");
	counter(out, "npu_router_cache_hits_total", m->router_hits,
		"Hits of this server's jobs.");
	counter(out, "npu_router_cache_misses_total", m->router_misses,
		"Misses of this server's jobs.");
	counter(out, "npu_router_cache_evictions_total", router->evictions,
		"Evictions, of all users of the device.");
	counter(out, "npu_router_cache_full_total", router->full,
		"Misses that found every entry pinned.");
	gauge(out, "npu_router_cache_entries", router->entries,
	      "Entries in use.");
}

/*
 * Uses of experts that found them in memory, about: the device counts lookups,
 * and a command that waited looks all of its experts up once more. So there are
 * fewer uses than lookups, as there are fewer commands than tries.
 */
static double expert_hit_ratio(const struct metrics *m,
			       const struct npu_model_info *model)
{
	double lookups = (double)m->router_hits + (double)m->router_misses;
	double commands = (double)m->steps * model->expert_layers;
	double tries = commands + (double)model->expert_waits;
	double uses = tries > 0 ? lookups * commands / tries : 0;

	if (!(uses > (double)model->expert_faults))
		return 0;
	return 1 - (double)model->expert_faults / uses;
}

static void render_experts(FILE *out, const struct metrics *m,
			   const struct npu_model_info *model)
{
	gauge(out, "npu_experts_resident", model->experts_resident,
	      "Experts in memory.");
	gauge(out, "npu_experts",
	      (double)model->expert_layers * model->experts,
	      "Experts of the model.");
	gauge(out, "npu_expert_places", model->expert_places,
	      "Experts that memory has room for.");
	gauge(out, "npu_expert_places_bytes", (double)model->expert_span_bytes,
	      "Memory for experts.");
	gauge(out, "npu_expert_hit_ratio", expert_hit_ratio(m, model),
	      "Uses of experts that found them in memory, estimated.");
	counter(out, "npu_expert_missed_total", model->expert_faults,
		"Experts that a job had to wait for.");
	counter(out, "npu_expert_waits_total", model->expert_waits,
		"Times that a job waited for experts.");
	counter(out, "npu_expert_loads_total", model->expert_loads,
		"Experts read into memory.");
	counter(out, "npu_expert_evictions_total", model->expert_evictions,
		"Experts that lost their place to another.");
	counter(out, "npu_expert_read_bytes_total", model->expert_bytes_read,
		"Bytes of experts read from storage.");
	head(out, "npu_expert_stall_seconds_total", "counter",
	     "Time that jobs waited for experts, from hearing of it on.");
	fprintf(out, "npu_expert_stall_seconds_total %.9f\n",
		(double)model->expert_stall_ns * 1e-9);
}

static void render_device(FILE *out, const struct npu_device_info *device,
			  const struct npu_model_info *model,
			  const struct engine_state *engine)
{
	gauge(out, "npu_temperature_celsius", device->temperature_mc * 1e-3,
	      "Chip temperature.");
	gauge(out, "npu_power_watts", device->power_mw * 1e-3, "Power drawn.");
	gauge(out, "npu_frequency_hertz", (double)device->frequency_hz,
	      "Clock of the units.");
	gauge(out, "npu_slots", engine->slots, "Requests that can run at once.");
	gauge(out, "npu_slots_busy", engine->busy, "Requests that run.");
	gauge(out, "npu_queue_length", engine->queued, "Requests that wait.");
	gauge(out, "npu_pool_bytes", (double)model->pool_bytes,
	      "Size of the model's contiguous pool.");
	gauge(out, "npu_model_load_seconds", (double)model->load_ns * 1e-9,
	      "How long loading took.");
}

char *metrics_render(struct metrics *metrics,
		     const struct npu_device_info *device,
		     const struct npu_router_stats *router,
		     const struct npu_model_info *model,
		     const struct engine_state *engine)
{
	char *page = NULL;
	size_t bytes;
	FILE *out = open_memstream(&page, &bytes);

	if (!out)
		return NULL;
	pthread_mutex_lock(&metrics->lock);
	render_requests(out, metrics);
	render_router(out, metrics, router);
	render_experts(out, metrics, model);
	pthread_mutex_unlock(&metrics->lock);
	render_device(out, device, model, engine);
	if (fclose(out)) {
		free(page);
		return NULL;
	}
	return page;
}
