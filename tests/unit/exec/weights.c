// SPDX-License-Identifier: MIT
/*
 * Formats of weights, decoded one by one as their definition reads, so that
 * the tests have something to compare ggml's kernels with. Encoding is by
 * ggml: any rows of a format would do.
 */
#include <assert.h>
#include <ggml.h>
#include <string.h>

#include "fake.h"

const uint8_t weight_types[] = {
	M6NPU_TYPE_F32, M6NPU_TYPE_F16, M6NPU_TYPE_BF16, M6NPU_TYPE_Q4_0,
	M6NPU_TYPE_Q4_1, M6NPU_TYPE_Q8_0, M6NPU_TYPE_Q4_K, M6NPU_TYPE_Q6_K,
};
const unsigned int weight_type_count = sizeof(weight_types);

/* Elements and bytes of a block. */
static const struct {
	const char *name;
	enum ggml_type ggml;
	uint32_t elements, bytes;
} formats[M6NPU_TYPE_COUNT] = {
	[M6NPU_TYPE_F32] = { "F32", GGML_TYPE_F32, 1, 4 },
	[M6NPU_TYPE_F16] = { "F16", GGML_TYPE_F16, 1, 2 },
	[M6NPU_TYPE_BF16] = { "BF16", GGML_TYPE_BF16, 1, 2 },
	[M6NPU_TYPE_Q4_0] = { "Q4_0", GGML_TYPE_Q4_0, 32, 18 },
	[M6NPU_TYPE_Q4_1] = { "Q4_1", GGML_TYPE_Q4_1, 32, 20 },
	[M6NPU_TYPE_Q8_0] = { "Q8_0", GGML_TYPE_Q8_0, 32, 34 },
	[M6NPU_TYPE_Q4_K] = { "Q4_K", GGML_TYPE_Q4_K, 256, 144 },
	[M6NPU_TYPE_Q6_K] = { "Q6_K", GGML_TYPE_Q6_K, 256, 210 },
};

const char *weight_name(uint8_t type)
{
	return formats[type].name;
}

uint32_t weight_block(uint8_t type)
{
	return formats[type].elements;
}

uint64_t weight_bytes(uint8_t type, uint64_t count)
{
	assert(count % formats[type].elements == 0);
	return count / formats[type].elements * formats[type].bytes;
}

void weight_encode(uint8_t type, const float *src, void *dst, uint64_t rows,
		   uint64_t width)
{
	if (type == M6NPU_TYPE_F32)
		memcpy(dst, src, rows * width * sizeof(*src));
	else
		ggml_quantize_chunk(formats[type].ggml, src, dst, 0,
				    (int64_t)rows, (int64_t)width, NULL);
}

static double half_at(const uint8_t *at)
{
	ggml_fp16_t half;

	memcpy(&half, at, sizeof(half));
	return ggml_fp16_to_fp32(half);
}

static unsigned int nibble(const uint8_t *quants, unsigned int i)
{
	return i < 16 ? quants[i] & 15 : quants[i - 16] >> 4;
}

/* Eight 6-bit scales, then eight 6-bit minima, in 12 bytes. */
static double q4_k_at(const uint8_t *block, unsigned int i)
{
	const uint8_t *packed = block + 4, *quants = block + 16;
	unsigned int group = i / 32, scale, min, quant;

	if (group < 4) {
		scale = packed[group] & 63;
		min = packed[group + 4] & 63;
	} else {
		scale = (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
		min = packed[group + 4] >> 4 | packed[group] >> 6 << 4;
	}
	quant = quants[i / 64 * 32 + i % 32];
	quant = i % 64 < 32 ? quant & 15 : quant >> 4;
	return half_at(block) * scale * quant - half_at(block + 2) * min;
}

/* Two halves of 128: low nibbles in 64 bytes, upper two bits in 32. */
static double q6_k_at(const uint8_t *block, unsigned int i)
{
	const uint8_t *low = block + i / 128 * 64;
	const uint8_t *high = block + 128 + i / 128 * 32;
	const int8_t *scales = (const int8_t *)block + 192;
	unsigned int in_half = i % 128, quant;

	quant = low[in_half % 64];
	quant = in_half < 64 ? quant & 15 : quant >> 4;
	quant |= (high[in_half % 32] >> in_half / 32 * 2 & 3) << 4;
	return half_at(block + 208) * scales[i / 16] * ((int)quant - 32);
}

double weight_at(uint8_t type, const void *row, uint64_t index)
{
	const uint8_t *block = (const uint8_t *)row +
			       index / formats[type].elements *
			       formats[type].bytes;
	unsigned int i = index % formats[type].elements;
	float value;

	switch (type) {
	case M6NPU_TYPE_F16:
		return half_at(block);
	case M6NPU_TYPE_BF16:
		value = 0;
		memcpy((char *)&value + 2, block, 2);
		return value;
	case M6NPU_TYPE_Q4_0:
		return half_at(block) * ((int)nibble(block + 2, i) - 8);
	case M6NPU_TYPE_Q4_1:
		return half_at(block) * nibble(block + 4, i) +
		       half_at(block + 2);
	case M6NPU_TYPE_Q8_0:
		return half_at(block) * ((const int8_t *)block)[2 + i];
	case M6NPU_TYPE_Q4_K:
		return q4_k_at(block, i);
	case M6NPU_TYPE_Q6_K:
		return q6_k_at(block, i);
	default:
		memcpy(&value, block, sizeof(value));
		return value;
	}
}
