// SPDX-License-Identifier: MIT
#include "metrics.h"

#include <pthread.h>
#include <stdlib.h>

struct metrics {
	pthread_mutex_t lock;	/* guards the following */
	struct metrics_figures figures;
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
	metrics->figures.responses[class < METRICS_STATUS_CLASSES ? class : 0]++;
	pthread_mutex_unlock(&metrics->lock);
}

void metrics_token(struct metrics *metrics)
{
	pthread_mutex_lock(&metrics->lock);
	metrics->figures.tokens_generated++;
	pthread_mutex_unlock(&metrics->lock);
}

void metrics_step(struct metrics *metrics, uint32_t tokens,
		  const struct npu_step_result *result)
{
	pthread_mutex_lock(&metrics->lock);
	metrics->figures.steps++;
	metrics->figures.step_tokens += tokens;
	metrics->figures.device_ns += result->device_ns;
	metrics->figures.expert_faults += result->expert_faults;
	pthread_mutex_unlock(&metrics->lock);
}

void metrics_step_failed(struct metrics *metrics)
{
	pthread_mutex_lock(&metrics->lock);
	metrics->figures.steps_failed++;
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
	struct metrics_figures *f = &metrics->figures;

	pthread_mutex_lock(&metrics->lock);
	f->ended[reason]++;
	f->tokens_prompt += request->position < request->prompt_count ?
					  request->position :
					  request->prompt_count;
	if (request->generated) {
		double first = seconds(t->arrived_ns, t->first_token_ns);

		f->first_token_count++;
		f->first_token_sum += first;
		f->last_first_token = first;
		f->last_rate =
			rate(request->generated,
			     seconds(t->first_token_ns, t->ended_ns));
		f->last_device_first_token =
			(double)t->prompt_device_ns * 1e-9;
		f->last_device_rate =
			rate(request->generated,
			     (double)t->decode_device_ns * 1e-9);
	}
	pthread_mutex_unlock(&metrics->lock);
}

void metrics_read(struct metrics *metrics, struct metrics_figures *figures)
{
	pthread_mutex_lock(&metrics->lock);
	*figures = metrics->figures;
	pthread_mutex_unlock(&metrics->lock);
}
