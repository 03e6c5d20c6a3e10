/* SPDX-License-Identifier: MIT */
/* Figures for /metrics. Any thread. */
#ifndef NPU_SERVER_METRICS_H
#define NPU_SERVER_METRICS_H

#include <npu/npu.h>

#include "request.h"

#define METRICS_STATUS_CLASSES	6	/* 0: other, 1xx..5xx */
#define METRICS_REASONS		5	/* enum request_finish */

/* What the server itself counts. */
struct metrics_figures {
	uint64_t responses[METRICS_STATUS_CLASSES];
	uint64_t ended[METRICS_REASONS];
	uint64_t tokens_prompt;
	uint64_t tokens_generated;
	uint64_t steps;
	uint64_t steps_failed;
	uint64_t step_tokens;
	uint64_t device_ns;
	uint64_t expert_faults;
	uint64_t first_token_count;
	double first_token_sum;	/* seconds */
	/* Of the last request that got to its end. */
	double last_first_token;	/* seconds */
	double last_rate;	/* tokens a second */
	double last_device_first_token;	/* seconds of device time */
	double last_device_rate;
};

struct metrics;

struct metrics *metrics_create(void);
void metrics_destroy(struct metrics *metrics);

void metrics_http_response(struct metrics *metrics, unsigned int status);
void metrics_token(struct metrics *metrics);
void metrics_step(struct metrics *metrics, uint32_t tokens,
		  const struct npu_step_result *result);
void metrics_step_failed(struct metrics *metrics);
void metrics_request_ended(struct metrics *metrics,
			   const struct request *request,
			   enum request_finish reason);

void metrics_read(struct metrics *metrics, struct metrics_figures *figures);

#endif
