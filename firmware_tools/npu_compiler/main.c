// SPDX-License-Identifier: MIT
#include <stdio.h>

#include "calibrate.h"
#include "inspect.h"
#include "verify.h"
#include "version.h"

static int run(const struct options *options)
{
	switch (options->action) {
	case ACTION_COMPILE:
		return calibrate_and_compile(options);
	case ACTION_INSPECT:
		return inspect(options->input, options->json);
	case ACTION_VERIFY:
		return verify(options->input, options->progress);
	case ACTION_HELP:
		options_help();
		return 0;
	case ACTION_VERSION:
		printf("npu_compiler %s\n", NPU_COMPILER_VERSION);
		return 0;
	}
	return fail("internal error: no such action");
}

int main(int argc, char **argv)
{
	struct options options;
	int ret;

	ret = options_parse(argc, argv, &options);
	if (!ret)
		ret = run(&options);
	if (!ret && fflush(stdout))
		ret = fail("cannot write the output");
	if (ret)
		fprintf(stderr, "npu_compiler: %s\n", fail_message());
	return ret ? 1 : 0;
}
