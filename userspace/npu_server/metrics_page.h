/* SPDX-License-Identifier: MIT */
/* The page /metrics, in Prometheus' text format. Any thread. */
#ifndef NPU_SERVER_METRICS_PAGE_H
#define NPU_SERVER_METRICS_PAGE_H

#include <npu/npu.h>

#include "engine.h"
#include "metrics.h"

/* Layers of experts that have series of their own; all are in the sums. */
#define METRICS_MAX_LAYERS	64

/* To be freed by the caller. NULL: npu_error() says why, or memory is out. */
char *metrics_page(struct metrics *metrics, struct npu_device *device,
		   const struct npu_model *model, struct engine *engine);

#endif
