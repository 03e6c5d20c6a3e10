/* SPDX-License-Identifier: MIT */
/* Figures for /metrics, in Prometheus' text format. Any thread. */
#ifndef NPU_SERVER_METRICS_H
#define NPU_SERVER_METRICS_H

#include <npu/npu.h>

#include "request.h"

struct metrics;
struct engine_state;

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

/* The page, to be freed by the caller; NULL: out of memory. */
char *metrics_render(struct metrics *metrics,
		     const struct npu_device_info *device,
		     const struct npu_router_stats *router,
		     const struct npu_model_info *model,
		     const struct engine_state *engine);

#endif
