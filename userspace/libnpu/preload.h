/* SPDX-License-Identifier: MIT */
/*
 * preload_config.json:
 *   {"expert_preload": [{"expert_id": 0, "layer": 3, "priority": 0.92}, ...],
 *    "prefill_buffer_size": 4096}
 * Without "layer" an entry is for all layers; one with it wins over that.
 */
#ifndef NPU_PRELOAD_H
#define NPU_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Experts the file does not name. */
#define NPU_PRELOAD_DEFAULT_PERMILLE	500
/* From here on an expert is pinned, while there is room. */
#define NPU_PRELOAD_PIN_PERMILLE	900

struct npu_preload {
	uint32_t layers, experts;
	uint16_t *permille;	/* [layers * experts], 0..1000 */
	bool *named;		/* the same: was in the file */
	double *chances;	/* the same: of use by a token; NULL: not known */
	uint64_t prefill_buffer_bytes;	/* 0: not given */
};

/* All experts at the default. */
int npu_preload_init(struct npu_preload *preload, uint32_t layers,
		     uint32_t experts);
void npu_preload_clear(struct npu_preload *preload);
/* -EINVAL with a message that names the entry. */
int npu_preload_parse(struct npu_preload *preload, const char *json,
		      size_t length);
int npu_preload_read(struct npu_preload *preload, const char *path);

/*
 * How popular experts are, from the CALIBRATION section of a model. False, and
 * nothing is changed: it does not say so of this model's experts.
 */
bool npu_preload_calibrate(struct npu_preload *preload, const char *json,
			   size_t length);

/*
 * Indices (layer * experts + expert) by falling chance of use if that is known,
 * else by falling priority, for free(3); equal ones keep their order.
 */
uint32_t *npu_preload_order(const struct npu_preload *preload);

#endif
