// SPDX-License-Identifier: MIT
/*
 * Number formats, by ggml.
 *
 * ggml's matrix product picks its kernel by the shape of the whole product,
 * so a token's result would depend on what else is in its tile. Its row
 * kernels (one row of weights by one row of activations) don't: they are used
 * here directly, one by one.
 *
 * They live in a CPU backend that ggml chooses and loads for this very
 * machine, so their table is looked up in whatever it has loaded.
 */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include "exec_priv.h"

/* Smaller than this, a number packs as 0; ggml would divide by it. */
#define PACK_TINY		0x1p-100f

struct m6_type {
	enum ggml_type ggml;
	bool valid;
	uint8_t half_macs;	/* price in half INT8 multiply-accumulates */
	/* From here on filled in when ggml is there. */
	bool quantized;		/* has blocks; can't hold a NaN */
	uint32_t block;
	uint32_t block_bytes;
	ggml_to_float_t decode;		/* NULL: is F32 */
	ggml_from_float_t encode;	/* NULL: is F32, or a weights' format */
	enum ggml_type packing;
	bool packing_quantized;
	uint32_t packing_block;
	uint32_t packing_block_bytes;
	ggml_from_float_t pack;		/* NULL: packs as F32 */
	ggml_vec_dot_t dot;
};

#define TYPE(name, price)						\
	{ .ggml = GGML_TYPE_##name, .valid = true, .half_macs = price }

static struct m6_type types[M6NPU_TYPE_COUNT] = {
	[M6NPU_TYPE_F32] = TYPE(F32, 8),
	[M6NPU_TYPE_F16] = TYPE(F16, 4),
	[M6NPU_TYPE_BF16] = TYPE(BF16, 4),
	[M6NPU_TYPE_Q4_0] = TYPE(Q4_0, 1),
	[M6NPU_TYPE_Q4_1] = TYPE(Q4_1, 1),
	[M6NPU_TYPE_Q8_0] = TYPE(Q8_0, 2),
	[M6NPU_TYPE_Q4_K] = TYPE(Q4_K, 1),
	[M6NPU_TYPE_Q6_K] = TYPE(Q6_K, 2),
};

typedef const struct ggml_type_traits_cpu *(*traits_fn)(enum ggml_type type);

static bool types_ready;

static void log_errors(enum ggml_log_level level, const char *text, void *data)
{
	(void)data;
	if (level == GGML_LOG_LEVEL_ERROR)
		fputs(text, stderr);
}

/* A symbol of the library that @address, a function of ggml's, lies in. */
static void *backend_symbol(void *address, const char *name)
{
	Dl_info info;
	void *library, *symbol;

	if (!address || !dladdr(address, &info))
		return NULL;
	library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (!library)
		return NULL;
	symbol = dlsym(library, name);
	dlclose(library);	/* ggml holds it, too, and for good */
	return symbol;
}

static ggml_backend_reg_t load_backend(void)
{
	ggml_backend_reg_t cpu;

	ggml_log_set(log_errors, NULL);
	ggml_backend_load_all();
	cpu = ggml_backend_reg_by_name("CPU");
	ggml_log_set(NULL, NULL);
	return cpu;
}

static void fill_packing(struct m6_type *type,
			 const struct ggml_type_traits_cpu *cpu, traits_fn get)
{
	const struct ggml_type_traits *base;

	type->dot = cpu->vec_dot;
	type->packing = cpu->vec_dot_type;
	base = ggml_get_type_traits(type->packing);
	type->packing_quantized = base->is_quantized;
	type->packing_block = base->blck_size;
	type->packing_block_bytes = base->type_size;
	if (type->packing != GGML_TYPE_F32)
		type->pack = get(type->packing)->from_float;
}

static bool fill_type(struct m6_type *type, traits_fn get)
{
	const struct ggml_type_traits *base = ggml_get_type_traits(type->ggml);
	const struct ggml_type_traits_cpu *cpu = get(type->ggml);

	type->quantized = base->is_quantized;
	type->block = base->blck_size;
	type->block_bytes = base->type_size;
	if (type->ggml != GGML_TYPE_F32) {
		type->decode = base->to_float;
		type->encode = cpu->from_float;
	}
	fill_packing(type, cpu, get);
	return type->dot && (type->decode || type->ggml == GGML_TYPE_F32) &&
	       (type->pack || type->packing == GGML_TYPE_F32);
}

/* F16 is decoded all the time, and the CPU's own way is the fast one. */
static void prefer_cpu_decode(void *address)
{
	void *symbol = backend_symbol(address, "ggml_cpu_fp16_to_fp32");

	if (symbol)
		memcpy(&types[M6NPU_TYPE_F16].decode, &symbol, sizeof(symbol));
}

static void init_once(void)
{
	ggml_backend_reg_t cpu = load_backend();
	traits_fn get;
	void *address, *symbol;

	if (!cpu)
		return;
	address = ggml_backend_reg_get_proc_address(
		cpu, "ggml_backend_set_n_threads");
	symbol = backend_symbol(address, "ggml_get_type_traits_cpu");
	if (!symbol)
		return;
	memcpy(&get, &symbol, sizeof(get));
	for (unsigned int i = 0; i < M6_ARRAY_SIZE(types); i++) {
		if (types[i].valid && !fill_type(&types[i], get))
			return;
	}
	prefer_cpu_decode(address);
	types_ready = true;
}

bool m6_types_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, init_once);
	return types_ready;
}

const struct m6_type *m6_type(uint8_t type)
{
	if (type >= M6_ARRAY_SIZE(types) || !types[type].valid)
		return NULL;
	return &types[type];
}

uint32_t m6_type_block(const struct m6_type *type)
{
	return type->block;
}

uint64_t m6_type_bytes(const struct m6_type *type, uint64_t n)
{
	return n / type->block * type->block_bytes;
}

void m6_type_charge(struct m6_run *run, const struct m6_type *type,
		    uint64_t macs)
{
	run->cost->macs += macs * type->half_macs / 2;
}

void m6_type_decode(const struct m6_type *type, const void *src, float *dst,
		    uint32_t n)
{
	if (type->decode)
		type->decode(src, dst, n);
	else
		memcpy(dst, src, n * sizeof(*dst));
}

/*
 * Copies a row, small numbers as 0 and non-finite ones, too: what they would
 * do to a block's scale is an accident of the machine. A copy also because
 * the guest may change its memory while ggml looks at it twice.
 */
static bool clean_row(const float *src, float *dst, uint32_t n)
{
	bool finite = true;

	for (uint32_t i = 0; i < n; i++) {
		float x = src[i];
		float size = fabsf(x);
		bool plain = size <= 3.402823466e38f;

		finite &= plain;
		dst[i] = plain && size >= PACK_TINY ? x : 0;
	}
	return finite;
}

/* All ones is a NaN as an F16 scale, and so is every number of such a row. */
void m6_type_encode(const struct m6_type *type, const float *src, void *dst,
		    uint32_t n, float *clean)
{
	if (!type->quantized)
		type->encode(src, dst, n);
	else if (clean_row(src, clean, n))
		type->encode(clean, dst, n);
	else
		memset(dst, 0xff, m6_type_bytes(type, n));
}

uint64_t m6_type_packed_bytes(const struct m6_type *type, uint32_t n)
{
	uint64_t bytes = (uint64_t)n / type->packing_block *
			 type->packing_block_bytes;

	return (bytes + 63) & ~63ull;
}

bool m6_type_pack(const struct m6_type *type, const float *src, void *dst,
		  uint32_t n, float *clean)
{
	bool finite;

	if (!type->pack) {
		memcpy(dst, src, n * sizeof(*src));
		return true;
	}
	if (!type->packing_quantized) {
		type->pack(src, dst, n);
		return true;
	}
	finite = clean_row(src, clean, n);
	type->pack(clean, dst, n);
	return finite;
}

float m6_type_dot(const struct m6_type *type, const void *weights,
		  const void *packed, uint32_t n)
{
	float sum = 0;

	type->dot((int)n, &sum, 0, weights, 0, packed, 0, 1);
	return sum;
}

float m6_dot_f32(const float *a, const float *b, uint32_t n)
{
	return m6_type_dot(&types[M6NPU_TYPE_F32], a, b, n);
}
