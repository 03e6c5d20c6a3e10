/* SPDX-License-Identifier: MIT */
/* What running a model told: where its tokens go, how well guesses do. */
#ifndef NPU_COMPILER_CALIBRATION_H
#define NPU_COMPILER_CALIBRATION_H

#include "npu_file.h"
#include "util.h"

/* Of guesses that nobody has measured, in logits. */
#define CALIBRATION_SPREAD	1.0
#define CALIBRATION_MAX_PAIRS	64

/* Two experts that the same tokens chose, the lower one first. */
struct calibration_pair {
	uint16_t expert[2];
	uint64_t tokens;
};

struct calibration_layer {
	uint64_t *use;		/* tokens that chose each expert */
	double spread;		/* of guesses about this layer */
	struct calibration_pair together[CALIBRATION_MAX_PAIRS];
	size_t pairs;		/* most frequent first */
};

struct calibration {
	uint64_t tokens;	/* that went through each layer */
	uint32_t layers;	/* rows of the expert table */
	uint32_t experts;
	struct calibration_layer *layer;
};

/* All zero, and the default spread. */
void calibration_init(struct calibration *calibration, uint32_t layers,
		      uint32_t experts);
void calibration_free(struct calibration *calibration);

/* As in Documentation/npu-format.rst, for free(3). */
char *calibration_write(const struct calibration *calibration, size_t *bytes);
/*
 * Reads it back, and reports of use: spreads and pairs may be absent. @what
 * names it in errors. For calibration_free() if it succeeded.
 */
int calibration_read(const char *text, size_t bytes, const char *what,
		     struct calibration *calibration);
/* A file's own; 0 layers if it has none. For calibration_free(). */
int calibration_load(struct npu_file *file, struct calibration *calibration);

#endif
