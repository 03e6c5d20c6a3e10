// SPDX-License-Identifier: MIT
/*
 * Every row goes through F32: it is exact for F16 and BF16, and one path is
 * easier to trust than nine.
 */
#include "weight.h"

#include <ggml.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "m6npu_regs.h"

/* What a thread should at least have to do, and the most held at a time. */
#define ELEMENTS_PER_THREAD	(1u << 16)
#define BLOCK_ELEMENTS		(1u << 23)
#define MAX_THREADS		64

static const struct {
	enum ggml_type type;
	const char *name;
} types[M6NPU_TYPE_COUNT] = {
	[M6NPU_TYPE_F32] = { GGML_TYPE_F32, "F32" },
	[M6NPU_TYPE_F16] = { GGML_TYPE_F16, "F16" },
	[M6NPU_TYPE_I32] = { GGML_TYPE_I32, "I32" },
	[M6NPU_TYPE_BF16] = { GGML_TYPE_BF16, "BF16" },
	[M6NPU_TYPE_Q4_0] = { GGML_TYPE_Q4_0, "Q4_0" },
	[M6NPU_TYPE_Q4_1] = { GGML_TYPE_Q4_1, "Q4_1" },
	[M6NPU_TYPE_Q8_0] = { GGML_TYPE_Q8_0, "Q8_0" },
	[M6NPU_TYPE_Q4_K] = { GGML_TYPE_Q4_K, "Q4_K" },
	[M6NPU_TYPE_Q6_K] = { GGML_TYPE_Q6_K, "Q6_K" },
};

const char *weight_type_name(uint8_t type)
{
	return type < M6NPU_TYPE_COUNT ? types[type].name : "?";
}

uint64_t weight_row_bytes(uint8_t type, uint64_t cols)
{
	return ggml_row_size(types[type].type, cols);
}

bool weight_row_is_whole(uint8_t type, uint64_t cols)
{
	return type < M6NPU_TYPE_COUNT && type != M6NPU_TYPE_I32 && cols &&
	       cols % ggml_blck_size(types[type].type) == 0;
}

uint8_t weight_type(enum quantization quant, enum weight_role role,
		    uint64_t cols)
{
	uint8_t type = M6NPU_TYPE_F16;

	if (role == ROLE_EXACT)
		return M6NPU_TYPE_F32;
	if (quant == QUANT_INT8 ||
	    (quant == QUANT_INT4 && role == ROLE_EMBEDDING))
		type = M6NPU_TYPE_Q8_0;
	else if (quant == QUANT_INT4)
		type = M6NPU_TYPE_Q4_0;
	return weight_row_is_whole(type, cols) ? type : M6NPU_TYPE_F16;
}

/* Rows [first, first + count) of @weight, by one thread. */
struct job {
	const struct weight *weight;
	uint64_t first, count;
	uint8_t *out;
	pthread_t thread;
	const struct tensor *bad;	/* holds a value that cannot be kept */
};

static const struct tensor *find_row(const struct weight *weight,
				     uint64_t *row)
{
	unsigned int i;
	uint64_t rows;

	for (i = 0; i + 1 < weight->parts; i++) {
		rows = weight->part[i]->dims == 1 ? 1 :
						    weight->part[i]->shape[0];
		/* Vectors are joined end to end: see load_row(). */
		if (*row < rows)
			break;
		*row -= rows;
	}
	return weight->part[i];
}

static void load_elements(const struct tensor *tensor, uint64_t first,
			  uint64_t count, float *out, uint16_t *half)
{
	const uint8_t *data = tensor->data;

	if (tensor->type == M6NPU_TYPE_F32) {
		memcpy(out, data + first * 4, count * 4);
		return;
	}
	/* Files promise no alignment. */
	memcpy(half, data + first * 2, count * 2);
	if (tensor->type == M6NPU_TYPE_F16)
		ggml_fp16_to_fp32_row(half, out, count);
	else
		ggml_bf16_to_fp32_row((const ggml_bf16_t *)half, out, count);
}

/* A vector made of several parts is one row that all of them fill. */
static const struct tensor *load_row(const struct weight *weight, uint64_t row,
				     float *out, uint16_t *half)
{
	const struct tensor *tensor = NULL;
	uint64_t at = 0, count;
	unsigned int i;

	if (weight->rows > 1 || weight->parts == 1) {
		tensor = find_row(weight, &row);
		load_elements(tensor, row * weight->cols, weight->cols, out,
			      half);
		return tensor;
	}
	for (i = 0; i < weight->parts; i++) {
		tensor = weight->part[i];
		/* [n], or [1, n]: see tensor_take() */
		count = tensor->shape[tensor->dims - 1];
		load_elements(tensor, 0, count, out + at, half);
		at += count;
	}
	return tensor;
}

/* Block scales are F16 too, so its range bounds every type but F32. */
static bool can_keep(const float *row, uint64_t count, float limit)
{
	uint64_t i;

	for (i = 0; i < count; i++)
		if (!(fabsf(row[i]) <= limit))
			return false;
	return true;
}

static void store_row(uint8_t type, const float *row, uint64_t cols, void *out)
{
	if (type == M6NPU_TYPE_F32)
		memcpy(out, row, cols * sizeof(*row));
	else if (type == M6NPU_TYPE_F16)
		ggml_fp32_to_fp16_row(row, out, cols);
	else
		ggml_quantize_chunk(types[type].type, row, out, 0, 1, cols,
				    NULL);
}

static void *run_job(void *argument)
{
	struct job *job = argument;
	const struct weight *weight = job->weight;
	uint64_t row_bytes = weight_row_bytes(weight->type, weight->cols), i;
	float limit = weight->type == M6NPU_TYPE_F32 ? 3.4e38f : 65504.0f;
	float *row = xcalloc(weight->cols, sizeof(*row));
	uint16_t *half = xcalloc(weight->cols, sizeof(*half));
	const struct tensor *tensor;

	for (i = 0; i < job->count; i++) {
		tensor = load_row(weight, job->first + i, row, half);
		if (!can_keep(row, weight->cols, limit)) {
			job->bad = tensor;
			break;
		}
		store_row(weight->type, row, weight->cols,
			  job->out + i * row_bytes);
	}
	free(half);
	free(row);
	return NULL;
}

static int run_jobs(const struct weight *weight, uint64_t first,
		    uint64_t count, uint8_t *out, unsigned int threads)
{
	uint64_t row_bytes = weight_row_bytes(weight->type, weight->cols);
	struct job jobs[MAX_THREADS] = { 0 };
	uint64_t begin, end;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < threads; i++) {
		begin = count * i / threads;
		end = count * (i + 1) / threads;
		jobs[i].weight = weight;
		jobs[i].first = first + begin;
		jobs[i].count = end - begin;
		jobs[i].out = out + begin * row_bytes;
		/* The last share, or one no thread could be had for. */
		if (i + 1 == threads ||
		    pthread_create(&jobs[i].thread, NULL, run_job, &jobs[i])) {
			run_job(&jobs[i]);
			jobs[i].thread = 0;
		}
	}
	for (i = 0; i < threads; i++) {
		if (jobs[i].thread)
			pthread_join(jobs[i].thread, NULL);
		if (jobs[i].bad && !ret)
			ret = fail("tensor %s holds a value that is no number or too large for %s: the model is damaged, or was never meant for 16 bits",
				   jobs[i].bad->name,
				   weight_type_name(weight->type));
	}
	return ret;
}

static unsigned int useful_threads(uint64_t elements, unsigned int threads)
{
	uint64_t useful = elements / ELEMENTS_PER_THREAD;

	if (threads > MAX_THREADS)
		threads = MAX_THREADS;
	if (useful < threads)
		threads = useful;
	return threads ? threads : 1;
}

int weight_write(const struct weight *weight, unsigned int threads,
		 const struct weight_sink *sink)
{
	uint64_t row_bytes = weight_row_bytes(weight->type, weight->cols);
	uint64_t block = BLOCK_ELEMENTS / weight->cols, first, count;
	uint8_t *out;
	int ret = 0;

	if (weight->values)
		return sink->put(sink->context, weight->values, weight->bytes);
	if (!block)
		block = 1;
	if (block > weight->rows)
		block = weight->rows;
	out = xcalloc(block, row_bytes);
	for (first = 0; !ret && first < weight->rows; first += count) {
		count = weight->rows - first < block ? weight->rows - first :
						       block;
		ret = run_jobs(weight, first, count, out,
			       useful_threads(count * weight->cols, threads));
		if (!ret)
			ret = sink->put(sink->context, out, count * row_bytes);
	}
	free(out);
	return ret;
}
