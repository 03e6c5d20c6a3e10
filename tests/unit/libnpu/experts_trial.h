/* SPDX-License-Identifier: MIT */
/*
 * A small model's experts on the fake driver, for tests: steps whose jobs do
 * what the test says, reading that can be held up or made to fail, and a watch
 * over the expert table.
 */
#ifndef EXPERTS_TRIAL_H
#define EXPERTS_TRIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "builder.h"
#include "experts.h"

#define LAYERS	4
#define EXPERTS	12
#define TOP	2
#define PLACE	4096
#define GUESSES	4

struct trial {
	struct builder b;
	char path[64];
	struct npu_device *device;
	struct npu_pool *pool;
	struct npu_file *file;
	struct npu_preload preload;
	struct npu_layout layout;
	struct npu_span io;
	struct npu_experts e;
	uint64_t job;
	bool always_right;		/* at each bind, the table was */
};

extern struct trial t;

struct trial_options {
	unsigned int layers, experts;	/* 0: LAYERS, EXPERTS */
	size_t bytes;			/* of an expert, 0: 4000 */
	uint64_t budget;
	const char *preload, *calibration;	/* JSON */
	uint32_t threshold, low, high;	/* 0: nobody is read ahead */
	bool fallback, on_demand;
	bool silent;			/* the file does not tell who is used */
};

/* Ends the program if that fails. */
void trial_begin(const struct trial_options *options);
void trial_end(void);

uint32_t trial_section(uint32_t expert);
/* Experts that the table has, and whether what it names are their bytes. */
uint32_t trial_resident(void);
bool trial_table_right(void);
bool says(const char *text);

/* A step of @rows tokens, up to its job. */
void trial_step(uint32_t rows);
/* The job's router chose these for @row in @layer; -1: as before. */
void trial_route(uint32_t layer, uint32_t row, int32_t first, int32_t second);
void trial_guess(uint32_t layer, uint32_t row, uint32_t n, int32_t id,
		 float chance);
int trial_fault(uint32_t layer, uint64_t mask);
void trial_hint(uint32_t layer, uint64_t mask);
/* What the device does with a command: tells what is missing, until none is. */
int trial_command(uint32_t layer, uint64_t needed, unsigned int *turns);
/*
 * Two experts of @layer at random, which are returned; hints that are right,
 * wrong, late or missing; and once in @odds a read that is to fail.
 */
uint64_t trial_random(uint32_t layer, int odds);
/* Waits until something that was read ahead arrives, and binds it. */
void trial_arrive(void);
/* State of an entry of the table. */
unsigned int trial_state(uint32_t layer, uint32_t expert);

/* ---- Reading; the program is linked with --wrap, see meson.build ---- */

/* Reads of sections do not end before the gates open. */
void gates_close(void);
void gates_open(void);
/* They open when somebody begins to wait for one. */
void gates_open_on_await(void);
/* Waits until @count reads have begun since gates_close(). */
void gates_wait(unsigned int count);
/* Sections in the order in which reading began since gates_close(). */
extern uint32_t gates_begun[64];
/* The next @count reads of a section fail. */
void gates_fail(uint32_t section, unsigned int count);

#endif
