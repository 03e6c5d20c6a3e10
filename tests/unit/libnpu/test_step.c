// SPDX-License-Identifier: MIT
/* Step blocks, what a step refuses, and events of the driver. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <m6npu_regs.h>
#include <npu/npu.h>
#include "../tap.h"
#include "event.h"
#include "job_format.h"
#include "model.h"

static void test_block(void)
{
	const struct npu_kv_shape kv = {
		.capacity = 512,
		.q8_0 = true,
		.slot_stride = 1ull << 33,
	};
	const struct npu_step_token tokens[] = {
		{ .token = 7, .position = 3, .slot = 1 },
		{ .token = 9, .position = 4, .slot = 1, .out = true },
	};
	struct npu_step_ahead ahead = { 0 };
	union {
		struct m6npu_step step;
		char bytes[128];
	} u;

	memset(&u, 0xaa, sizeof(u));
	ok(npu_step_block_write(&u, &kv, &ahead, tokens, 2) == 64 &&
	   npu_step_block_bytes(2) == 64, "size of a step block");
	ok(u.step.token_count == 2 && u.step.out_count == 1 &&
	   u.step.kv_capacity == 512 &&
	   u.step.kv_type == M6NPU_TYPE_Q8_0 &&
	   u.step.kv_slot_stride == 1ull << 33 &&
	   !u.step.prefetch_permille && !u.step.flags, "its head");
	ok(u.step.tokens[0].token == 7 && u.step.tokens[0].position == 3 &&
	   u.step.tokens[0].slot == 1 && u.step.tokens[0].flags == 0 &&
	   u.step.tokens[1].flags == M6NPU_TOKEN_OUT, "its tokens");
	ok((unsigned char)u.bytes[64] == 0xaa, "and nothing behind them");
	ahead = (struct npu_step_ahead){ .permille = 850, .hints = true };
	npu_step_block_write(&u, &kv, &ahead, tokens, 2);
	ok(u.step.prefetch_permille == 850 && u.step.flags == M6NPU_STEP_HINTS,
	   "and what it says of experts");
}

static struct npu_model model = {
	.runtime = { .vocab = 10, .max_tile = 4, .max_out = 2 },
	.layout = { .slots = 2, .max_seq = 8 },
};

static int check(const struct npu_step_token *tokens, uint32_t count)
{
	return npu_model_check_step(&model, tokens, count);
}

static void test_checks(void)
{
	uint32_t filled[2] = { 3, 0 };
	struct npu_step_token t[5] = {
		{ .token = 1, .position = 3, .slot = 0 },
		{ .token = 1, .position = 0, .slot = 1 },
		{ .token = 1, .position = 4, .slot = 0, .out = true },
		{ .token = 1, .position = 1, .slot = 1, .out = true },
	};

	model.filled = filled;
	ok(check(t, 4) == 0, "tokens of two slots: %s", npu_error());
	ok(check(t, 0) == -EINVAL, "none: %s", npu_error());
	ok(check(t, 5) == -EINVAL, "too many: %s", npu_error());
	t[1].out = true;
	ok(check(t, 4) == -EINVAL, "logits: %s", npu_error());
	t[1].out = false;
	t[0].token = 10;
	ok(check(t, 4) == -EINVAL, "vocabulary: %s", npu_error());
	t[0].token = -1;
	ok(check(t, 4) == -EINVAL, "negative: %s", npu_error());
	t[0].token = 0;
	t[1].slot = 2;
	ok(check(t, 4) == -EINVAL, "slot: %s", npu_error());
	t[1].slot = 1;
	t[0].position = 8;
	ok(check(t, 4) == -EINVAL, "beyond the end: %s", npu_error());
	t[0].position = 4;
	ok(check(t, 1) == -EINVAL, "beyond what was run: %s", npu_error());
	t[0].position = 2;
	ok(check(t, 1) == 0, "going back is fine");
	t[2].position = 4;
	ok(check(t, 4) == -EINVAL, "gap in a step: %s", npu_error());
	t[2].position = 2;
	ok(check(t, 4) == -EINVAL, "twice in a step: %s", npu_error());
}

static void test_filled(void)
{
	uint32_t filled[2] = { 3, 6 };
	const struct npu_step_token t[] = {
		{ .position = 3, .slot = 0 },
		{ .position = 4, .slot = 1 },
		{ .position = 4, .slot = 0 },
	};

	model.filled = filled;
	npu_model_note_step(&model, t, 3, false);
	ok(filled[0] == 3 && filled[1] == 4 && check(t, 3) == 0 &&
	   check(t, 2) == 0, "after one that failed, the same again, or less");
	npu_model_note_step(&model, t, 3, true);
	ok(filled[0] == 5 && filled[1] == 5, "after a good one, what follows");
}

static int count_faults(void *user,
			const struct drm_m6npu_event_expert_fault *event)
{
	uint64_t *mask = user;

	*mask |= event->mask;
	return event->layer == 9 ? -EIO : 0;
}

static void count_hints(void *user,
			const struct drm_m6npu_event_expert_fault *event)
{
	uint64_t *mask = user;

	*mask |= event->mask << 32;
}

static void test_events(void)
{
	struct {
		struct drm_m6npu_event_expert_fault fault;
		struct drm_m6npu_event_thermal thermal;
		struct drm_m6npu_event_exception exception;
		struct drm_m6npu_event_expert_fault again;
	} e = {
		.fault = { .base = { DRM_M6NPU_EVENT_EXPERT_FAULT,
				     sizeof(e.fault) }, .mask = 5 },
		.thermal = { .base = { DRM_M6NPU_EVENT_THERMAL,
				       sizeof(e.thermal) },
			     .temperature = 87000, .throttled = 1 },
		.exception = { .base = { DRM_M6NPU_EVENT_EXCEPTION,
					 sizeof(e.exception) } },
		.again = { .base = { DRM_M6NPU_EVENT_EXPERT_FAULT,
				     sizeof(e.again) },
			   .layer = 9, .mask = 16 },
	};
	uint64_t mask = 0;
	const struct npu_event_handler handler = {
		.expert_fault = count_faults,
		.expert_hint = count_hints,
		.user = &mask,
	};

	ok(npu_events_parse(&e, sizeof(e), &handler) == -EIO &&
	   mask == 21, "expert faults are handled, errors passed on");
	mask = 0;
	ok(npu_events_parse(&e, sizeof(e) - 1, &handler) == 0 &&
	   mask == 5, "half an event is left alone");
	e.fault.base.length = 0;
	ok(npu_events_parse(&e, sizeof(e), &handler) == 0,
	   "an event without length does not hang");
	ok(npu_events_parse(&e.again, sizeof(e.again), NULL) == 0,
	   "faults of nobody are dropped");
	mask = 0;
	e.again.base.type = DRM_M6NPU_EVENT_EXPERT_HINT;
	ok(npu_events_parse(&e.again, sizeof(e.again), &handler) == 0 &&
	   mask == 16ull << 32 &&
	   npu_events_parse(&e.again, sizeof(e.again), NULL) == 0,
	   "hints are told apart");
}

static void test_exceptions(void)
{
	ok(!strcmp(npu_exception_name(0x1a), "MMU_PAGE_FAULT"), "a name");
	ok(!strcmp(npu_exception_name(0x7777), "unknown exception"), "none");
	ok(strstr(npu_exception_remedy(M6NPU_EXC_ECC_UNCORRECTED),
		  "npu_mem_test"), "a remedy");
}

int main(void)
{
	test_block();
	test_checks();
	test_filled();
	test_events();
	test_exceptions();
	return done();
}
