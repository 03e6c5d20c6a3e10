/* SPDX-License-Identifier: MIT */
/* Takes a fuzzer's input apart; past the end everything is 0. */
#ifndef M6_FUZZ_INPUT_H
#define M6_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct input {
	const uint8_t *data;
	size_t bytes;
};

static inline void input_take(struct input *input, void *to, size_t bytes)
{
	size_t part = bytes < input->bytes ? bytes : input->bytes;

	memset(to, 0, bytes);
	if (part)
		memcpy(to, input->data, part);
	input->data += part;
	input->bytes -= part;
}

static inline uint8_t input_u8(struct input *input)
{
	uint8_t value;

	input_take(input, &value, sizeof(value));
	return value;
}

static inline uint16_t input_u16(struct input *input)
{
	uint16_t value;

	input_take(input, &value, sizeof(value));
	return value;
}

static inline uint32_t input_u32(struct input *input)
{
	uint32_t value;

	input_take(input, &value, sizeof(value));
	return value;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#endif
