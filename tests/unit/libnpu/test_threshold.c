// SPDX-License-Identifier: MIT
/* The threshold for reading ahead. */
#include <errno.h>

#include <npu/npu.h>
#include "../tap.h"
#include "threshold.h"

static void test_fixed(void)
{
	struct npu_threshold t;

	npu_threshold_init(&t, 850, 0, 0);
	npu_threshold_step(&t, 100, 0);
	npu_threshold_step(&t, 0, 1000);
	ok(npu_threshold_permille(&t) == 850, "without limits it stays");
}

static void test_limits(void)
{
	struct npu_threshold t;
	unsigned int i;

	npu_threshold_init(&t, 850, 300, 700);
	ok(npu_threshold_permille(&t) == 700, "begins within its limits");
	for (i = 0; i < 100; i++)
		npu_threshold_step(&t, 0, 2000000000);
	ok(npu_threshold_permille(&t) == 300, "falls to the lower one, no further");
	for (i = 0; i < 100; i++)
		npu_threshold_step(&t, 2000000000, 0);
	ok(npu_threshold_permille(&t) == 700, "rises to the upper one, no further");
}

static void test_moves(void)
{
	struct npu_threshold t;
	uint32_t before;

	npu_threshold_init(&t, 500, 300, 700);
	npu_threshold_step(&t, 1, 0);
	ok(npu_threshold_permille(&t) > 500, "rises after a read in vain");
	before = npu_threshold_permille(&t);
	npu_threshold_step(&t, 0, 1);
	ok(npu_threshold_permille(&t) < before, "falls after a wait");
	before = npu_threshold_permille(&t);
	npu_threshold_step(&t, 1, 1);
	ok(npu_threshold_permille(&t) > before, "a read in vain weighs more");
	before = npu_threshold_permille(&t);
	npu_threshold_step(&t, 0, 0);
	ok(npu_threshold_permille(&t) == before, "stays when nothing went wrong");
	npu_threshold_step(&t, 0, 1000);
	ok(before - npu_threshold_permille(&t) <= 50, "never far at once");
}

static void test_options(void)
{
	static const struct {
		uint32_t permille, low, high;
		const char *what;
	} bad[] = {
		{ 1002, 0, 0, "above 1" },
		{ 0, 700, 300, "limits the wrong way round" },
		{ 0, 300, 0, "one limit" },
		{ 0, 0, 700, "the other" },
		{ 0, 300, 1001, "a limit above 1" },
		{ NPU_PREFETCH_OFF, 300, 700, "limits of none" },
	};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct npu_model_options options = {
			.size = sizeof(options),
			.prefetch_permille = bad[i].permille,
			.prefetch_low = bad[i].low,
			.prefetch_high = bad[i].high,
		};
		struct npu_model *model;

		ok(npu_model_load(NULL, "/none", &options, &model) == -EINVAL,
		   "%s: %s", bad[i].what, npu_error());
	}
}

int main(void)
{
	test_fixed();
	test_limits();
	test_moves();
	test_options();
	return done();
}
