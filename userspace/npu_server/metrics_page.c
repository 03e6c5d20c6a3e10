// SPDX-License-Identifier: MIT
#include "metrics_page.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* All that the page tells of. */
struct figures {
	struct metrics_figures own;
	struct npu_device_info device;
	struct npu_router_stats router;
	struct npu_model_info model;
	struct engine_state engine;
	struct npu_layer_stats *layers;	/* of layer_count */
	uint32_t layer_count;
	struct npu_layer_stats sum;
};

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
	if (isinf(value))
		fprintf(out, "%s +Inf\n", name);
	else
		fprintf(out, "%s %.9g\n", name, value);
}

struct counter {
	const char *name;
	uint64_t value;
	const char *help;
};

static void counters(FILE *out, const struct counter *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		counter(out, list[i].name, list[i].value, list[i].help);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void render_requests(FILE *out, const struct metrics_figures *m)
{
	static const char *const reasons[METRICS_REASONS] = {
		[FINISH_STOP] = "stop",
		[FINISH_LENGTH] = "length",
		[FINISH_CANCELLED] = "cancelled",
		[FINISH_ERROR] = "error",
	};

	head(out, "npu_http_responses_total", "counter",
	     "HTTP responses by status class.");
	for (int i = 1; i < METRICS_STATUS_CLASSES; i++)
		fprintf(out,
			"npu_http_responses_total{class=\"%dxx\"} %" PRIu64
			"\n", i, m->responses[i]);
	head(out, "npu_requests_total", "counter",
	     "Completion requests that ended, by reason.");
	for (int i = FINISH_STOP; i < METRICS_REASONS; i++)
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
		"Times that jobs found an expert absent; one that comes late counts again.");
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

static double ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static void render_router(FILE *out, const struct figures *f)
{
	const struct counter list[] = {
		{ "npu_router_cache_hits_total", f->sum.hits,
		  "Hits of this server's jobs." },
		{ "npu_router_cache_misses_total", f->sum.misses,
		  "Misses of this server's jobs." },
		{ "npu_router_cache_evictions_total", f->sum.evictions,
		  "Entries that this server's misses took from others." },
		{ "npu_router_cache_full_total", f->sum.full,
		  "Misses of this server that found every entry pinned." },
	};

	gauge(out, "npu_router_cache_hit_ratio",
	      ratio(f->sum.hits, f->sum.hits + f->sum.misses),
	      "Hits of this server's jobs in the expert-router cache.");
	counters(out, list, COUNT(list));
	gauge(out, "npu_router_cache_entries", f->router.entries,
	      "Entries in use, of all users of the device.");
}

/* A chance; infinite: none is enough. */
static double threshold(const struct figures *f)
{
	uint32_t permille = f->model.prefetch_permille;

	if (!permille)
		permille = f->router.threshold_permille;
	return permille >= NPU_PREFETCH_OFF ? INFINITY : permille * 1e-3;
}

static void render_experts(FILE *out, const struct figures *f)
{
	const struct npu_model_info *model = &f->model;
	const struct counter list[] = {
		{ "npu_expert_uses_total", model->expert_uses,
		  "Experts that a layer of a job worked with." },
		{ "npu_expert_hits_total", model->expert_hits,
		  "Those of them that were in memory." },
		{ "npu_expert_missed_total", model->expert_faults,
		  "Experts that a job had to wait for." },
		{ "npu_expert_waits_total", model->expert_waits,
		  "Times that a job waited for experts." },
		{ "npu_expert_loads_total", model->expert_loads,
		  "Experts read into memory." },
		{ "npu_expert_evictions_total", model->expert_evictions,
		  "Experts that lost their place to another." },
		{ "npu_expert_read_bytes_total", model->expert_bytes_read,
		  "Bytes of experts read from storage." },
		{ "npu_expert_hints_total", model->expert_hints,
		  "Experts that the device asked for ahead of use." },
		{ "npu_expert_prefetches_total", model->expert_prefetches,
		  "Experts that were read for that." },
		{ "npu_expert_prefetches_used_total",
		  model->expert_prefetches_used,
		  "Those of them that came to use." },
		{ "npu_expert_fallbacks_total", model->expert_fallbacks,
		  "Times that an expert's copy of lower precision stood in." },
	};

	gauge(out, "npu_experts_resident", model->experts_resident,
	      "Experts in memory.");
	gauge(out, "npu_experts",
	      (double)model->expert_layers * model->experts,
	      "Experts of the model.");
	gauge(out, "npu_expert_places", model->expert_places,
	      "Experts that memory has room for.");
	gauge(out, "npu_expert_places_bytes", (double)model->expert_span_bytes,
	      "Memory for experts.");
	gauge(out, "npu_expert_hit_ratio",
	      ratio(model->expert_hits, model->expert_uses),
	      "Uses of experts that found them in memory.");
	gauge(out, "npu_expert_prefetch_threshold", threshold(f),
	      "Chance from which experts are read ahead; +Inf: never.");
	counters(out, list, COUNT(list));
	head(out, "npu_expert_stall_seconds_total", "counter",
	     "Time that jobs waited for experts, from hearing of it on.");
	fprintf(out, "npu_expert_stall_seconds_total %.9f\n",
		(double)model->expert_stall_ns * 1e-9);
}

static void render_layers(FILE *out, const struct figures *f)
{
	uint32_t count = f->layer_count < METRICS_MAX_LAYERS ?
				 f->layer_count :
				 METRICS_MAX_LAYERS;

	counter(out, "npu_expert_sram_hits_total", f->sum.sram_hits,
		"Experts that jobs found in the device's SRAM.");
	counter(out, "npu_expert_sram_prefetches_total", f->sum.prefetches,
		"Experts copied there ahead of use.");
	head(out, "npu_expert_layer_faults_total", "counter",
	     "Times that jobs found an expert absent, by layer of experts.");
	for (uint32_t i = 0; i < count; i++)
		fprintf(out,
			"npu_expert_layer_faults_total{layer=\"%u\"} %" PRIu64
			"\n", i, f->layers[i].faults);
	head(out, "npu_router_cache_layer_misses_total", "counter",
	     "Misses of this server's jobs, by layer of experts.");
	for (uint32_t i = 0; i < count; i++)
		fprintf(out,
			"npu_router_cache_layer_misses_total{layer=\"%u\"} %"
			PRIu64 "\n", i, f->layers[i].misses);
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

static void add_up(struct figures *f)
{
	for (uint32_t i = 0; i < f->layer_count; i++) {
		const struct npu_layer_stats *layer = &f->layers[i];

		f->sum.hits += layer->hits;
		f->sum.misses += layer->misses;
		f->sum.evictions += layer->evictions;
		f->sum.full += layer->full;
		f->sum.sram_hits += layer->sram_hits;
		f->sum.prefetches += layer->prefetches;
	}
}

static int gather_layers(struct figures *f, struct npu_device *device)
{
	uint32_t max = f->model.expert_layers;
	int count;

	f->layers = calloc((size_t)max + 1, sizeof(*f->layers));
	if (!f->layers)
		return -1;
	count = npu_layer_stats(device, f->layers, max);
	if (count < 0)
		return count;
	f->layer_count = (uint32_t)count < max ? (uint32_t)count : max;
	add_up(f);
	return 0;
}

static char *render(const struct figures *f)
{
	char *page = NULL;
	size_t bytes;
	FILE *out = open_memstream(&page, &bytes);

	if (!out)
		return NULL;
	render_requests(out, &f->own);
	render_router(out, f);
	render_experts(out, f);
	render_layers(out, f);
	render_device(out, &f->device, &f->model, &f->engine);
	if (fclose(out)) {
		free(page);
		return NULL;
	}
	return page;
}

char *metrics_page(struct metrics *metrics, struct npu_device *device,
		   const struct npu_model *model, struct engine *engine)
{
	struct figures f = { 0 };
	char *page = NULL;

	metrics_read(metrics, &f.own);
	npu_model_info(model, &f.model);
	engine_state(engine, &f.engine);
	if (!npu_device_info(device, &f.device) &&
	    !npu_router_stats(device, &f.router) && !gather_layers(&f, device))
		page = render(&f);
	free(f.layers);
	return page;
}
