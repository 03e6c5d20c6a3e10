// SPDX-License-Identifier: MIT
/*
 * Runs a fuzz target without a fuzzer: on the files it is given, then on a
 * number of inputs from a fixed random sequence. Usage: replay COUNT FILE...
 */
#include <stdio.h>
#include <stdlib.h>

#include "input.h"

#define INPUT_BYTES	4096

static uint32_t state = 1;

/* Its own, so that the sequence is the same with every C library. */
static uint32_t next(void)
{
	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state;
}

static void run_file(const char *path)
{
	static uint8_t data[1 << 20];
	FILE *file = fopen(path, "rb");
	size_t bytes;

	if (!file) {
		perror(path);
		exit(1);
	}
	bytes = fread(data, 1, sizeof(data), file);
	fclose(file);
	LLVMFuzzerTestOneInput(data, bytes);
}

int main(int argc, char **argv)
{
	static uint8_t data[INPUT_BYTES];
	int count = argc > 1 ? atoi(argv[1]) : 0;

	for (int i = 2; i < argc; i++)
		run_file(argv[i]);
	for (int i = 0; i < count; i++) {
		size_t bytes = next() % sizeof(data);

		/* Small numbers get further than large ones. */
		for (size_t j = 0; j < bytes; j++)
			data[j] = next() & 1 ? next() % 16 : next();
		LLVMFuzzerTestOneInput(data, bytes);
	}
	printf("%d inputs, %d files\n", count, argc > 2 ? argc - 2 : 0);
	return 0;
}
