// SPDX-License-Identifier: MIT
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* moe_loader/max_chunk_size_kb's default, and the most LZ4 takes at once. */
#define DEFAULT_CHUNK_KB	1843200
#define MIN_CHUNK_KB		4
#define MAX_CHUNK_KB		2064384
/* An expert that 1 % of them choose is counted to some 15 %. */
#define DEFAULT_CALIBRATE	4096
/* Experts that the device routes to at most. */
#define MAX_GUESSES		64

static const struct {
	const char *name;
	enum quantization quant;
} quantizations[] = {
	{ "fp16", QUANT_FP16 },
	{ "int8", QUANT_INT8 },
	{ "int4", QUANT_INT4 },
};

static const struct {
	const char *name;
	enum expert_order order;
} orders[] = {
	{ "grouped", ORDER_GROUPED },
	{ "per-expert", ORDER_EXPERT },
	{ "token", ORDER_TOKEN },
};

static const struct {
	const char *name;
	enum npu_encoding encoding;
} encodings[] = {
	{ "raw", NPU_ENCODING_RAW },
	{ "lz4", NPU_ENCODING_LZ4 },
	{ "zstd", NPU_ENCODING_ZSTD },
};

enum {
	OPT_INPUT = 256,
	OPT_OUTPUT,
	OPT_TARGET,
	OPT_QUANTIZE,
	OPT_EXPERT_CACHE,
	OPT_COMPRESSION,
	OPT_MAX_CHUNK,
	OPT_TILES,
	OPT_CONTEXT,
	OPT_NAME,
	OPT_MOE,
	OPT_GUESS,
	OPT_FALLBACK,
	OPT_CALIBRATE,
	OPT_CALIBRATE_TOKENS,
	OPT_CALIBRATION,
	OPT_THREADS,
	OPT_PROGRESS,
	OPT_INSPECT,
	OPT_VERIFY,
	OPT_JSON,
};

static const struct option long_options[] = {
	{ "input", required_argument, NULL, OPT_INPUT },
	{ "output", required_argument, NULL, OPT_OUTPUT },
	{ "target", required_argument, NULL, OPT_TARGET },
	{ "quantize", required_argument, NULL, OPT_QUANTIZE },
	{ "expert-cache-size", required_argument, NULL, OPT_EXPERT_CACHE },
	{ "compression", required_argument, NULL, OPT_COMPRESSION },
	{ "max-chunk-kb", required_argument, NULL, OPT_MAX_CHUNK },
	{ "tiles", required_argument, NULL, OPT_TILES },
	{ "context", required_argument, NULL, OPT_CONTEXT },
	{ "name", required_argument, NULL, OPT_NAME },
	{ "moe", required_argument, NULL, OPT_MOE },
	{ "guess", required_argument, NULL, OPT_GUESS },
	{ "expert-fallback", required_argument, NULL, OPT_FALLBACK },
	{ "calibrate", required_argument, NULL, OPT_CALIBRATE },
	{ "calibrate-tokens", required_argument, NULL, OPT_CALIBRATE_TOKENS },
	{ "calibration", required_argument, NULL, OPT_CALIBRATION },
	{ "threads", required_argument, NULL, OPT_THREADS },
	{ "progress", no_argument, NULL, OPT_PROGRESS },
	{ "inspect", required_argument, NULL, OPT_INSPECT },
	{ "verify", required_argument, NULL, OPT_VERIFY },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ 0 },
};

void options_help(void)
{
	fputs("Usage: npu_compiler --input FOLDER --output FILE.npu [OPTION...]\n"
	      "       npu_compiler --inspect FILE.npu [--json]\n"
	      "       npu_compiler --verify FILE.npu\n"
	      "\n"
	      "Makes a .npu model file out of a Hugging Face model folder (config.json,\n"
	      "safetensors, tokenizer.json).\n"
	      "\n"
	      "  --input FOLDER           the model\n"
	      "  --output FILE            where to write; replaced when complete\n"
	      "  --target NAME            m6-mini (default)\n"
	      "  --quantize TYPE          fp16 (default), int8 or int4\n"
	      "  --expert-cache-size N    entries of the expert-router cache to count on\n"
	      "                           (default and most: what the target has, 128)\n"
	      "  --compression KIND       raw (default), lz4 or zstd, of the weights\n"
	      "  --max-chunk-kb N         most that one section of weights may take\n"
	      "                           (default 1843200)\n"
	      "  --tiles LIST             tokens a step may take (default 1,4,16,64,256)\n"
	      "  --context N              positions to compile for, if less than the\n"
	      "                           model's own\n"
	      "  --name TEXT              the model's name (default: the folder's)\n"
	      "  --moe ORDER              how steps of several tokens go through experts:\n"
	      "                           grouped (default), per-expert or token\n"
	      "  --guess N                experts that each layer names ahead for the next\n"
	      "                           (default twice those of a token; 0: none)\n"
	      "  --expert-fallback TYPE   add copies of the experts in fewer bits, int8 or\n"
	      "                           int4, that can stand in for them\n"
	      "  --calibrate FILE         run these prompts, one a line, and compile for\n"
	      "                           the experts that they use\n"
	      "  --calibrate-tokens N     most tokens to run (default 4096)\n"
	      "  --calibration FILE       compile for the experts that a report of\n"
	      "                           npu_server or npu_run counted\n"
	      "  --threads N              default: one a processor\n"
	      "  --progress               show progress although stderr is no terminal\n"
	      "  --inspect FILE           print what a .npu file holds\n"
	      "  --verify FILE            check all of a .npu file\n"
	      "  --json                   with --inspect: as JSON\n"
	      "  --help, --version\n",
	      stdout);
}

static int parse_number(const char *option, const char *text, uint32_t min,
			uint32_t max, uint32_t *number)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || *end || text[0] == '-' || value < min ||
	    value > max)
		return fail("--%s %s: a number from %u to %u is wanted", option,
			    text, min, max);
	*number = value;
	return 0;
}

static int parse_tiles(const char *text, struct options *options)
{
	char *copy = xstrdup(text), *rest = copy, *item;
	uint32_t tile;
	int ret = 0;

	options->tile_count = 0;
	while (!ret && (item = strsep(&rest, ","))) {
		ret = parse_number("tiles", item, 1, M6NPU_STEP_MAX_TOKENS,
				   &tile);
		if (ret)
			break;
		if (options->tile_count == MODEL_MAX_TILES)
			ret = fail("--tiles: at most %d sizes",
				   MODEL_MAX_TILES);
		else if (options->tile_count &&
			 tile <= options->tiles[options->tile_count - 1])
			ret = fail("--tiles %s: the sizes must rise", text);
		else
			options->tiles[options->tile_count++] = tile;
	}
	free(copy);
	return ret;
}

static int parse_target(const char *text, struct options *options)
{
	options->target = target_find(text);
	return options->target ? 0 : -1;
}

static int parse_moe(const char *text, struct options *options)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(orders); i++)
		if (!strcmp(text, orders[i].name)) {
			options->order = orders[i].order;
			return 0;
		}
	return fail("--moe %s is not known; there are grouped, per-expert and token",
		    text);
}

static int parse_fallback(const char *text, struct options *options)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(quantizations); i++)
		if (quantizations[i].quant != QUANT_FP16 &&
		    !strcmp(text, quantizations[i].name)) {
			options->fallback = quantizations[i].quant;
			return 0;
		}
	return fail("--expert-fallback %s is not known; there are int8 and int4",
		    text);
}

static int parse_quantize(const char *text, struct options *options)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(quantizations); i++)
		if (!strcmp(text, quantizations[i].name)) {
			options->quant = quantizations[i].quant;
			options->quant_name = quantizations[i].name;
			return 0;
		}
	return fail("--quantize %s is not known; there are fp16, int8 and int4",
		    text);
}

static int parse_compression(const char *text, struct options *options)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(encodings); i++)
		if (!strcmp(text, encodings[i].name)) {
			options->encoding = encodings[i].encoding;
			return 0;
		}
	return fail("--compression %s is not known; there are raw, lz4 and zstd",
		    text);
}

static int parse_chunk(const char *text, struct options *options)
{
	uint32_t kb;

	if (parse_number("max-chunk-kb", text, MIN_CHUNK_KB, MAX_CHUNK_KB,
			 &kb))
		return -1;
	/* Sections of the weights region begin and end at pages. */
	options->chunk_bytes = kb * 1024ull / NPU_FILE_ALIGN * NPU_FILE_ALIGN;
	return 0;
}

static int set_action(struct options *options, enum action action,
		      const char *input)
{
	if (options->action != ACTION_COMPILE)
		return fail("one action at a time, please: see npu_compiler --help");
	options->action = action;
	options->input = input;
	return 0;
}

static int parse_one(int option, const char *value, struct options *options)
{
	uint32_t threads;

	switch (option) {
	case OPT_INPUT:
		options->input = value;
		return 0;
	case OPT_OUTPUT:
		options->output = value;
		return 0;
	case OPT_TARGET:
		return parse_target(value, options);
	case OPT_QUANTIZE:
		return parse_quantize(value, options);
	case OPT_EXPERT_CACHE:
		return parse_number("expert-cache-size", value, 1, 65536,
				    &options->expert_cache);
	case OPT_COMPRESSION:
		return parse_compression(value, options);
	case OPT_MAX_CHUNK:
		return parse_chunk(value, options);
	case OPT_TILES:
		return parse_tiles(value, options);
	case OPT_CONTEXT:
		return parse_number("context", value, 1, 1u << 24,
				    &options->context);
	case OPT_NAME:
		options->name = value;
		return 0;
	case OPT_MOE:
		return parse_moe(value, options);
	case OPT_GUESS:
		return parse_number("guess", value, 0, MAX_GUESSES,
				    &options->guesses);
	case OPT_FALLBACK:
		return parse_fallback(value, options);
	case OPT_CALIBRATE:
		options->calibrate = value;
		return 0;
	case OPT_CALIBRATE_TOKENS:
		return parse_number("calibrate-tokens", value, 1, 1u << 24,
				    &options->calibrate_tokens);
	case OPT_CALIBRATION:
		options->calibration = value;
		return 0;
	case OPT_THREADS:
		if (parse_number("threads", value, 1, 64, &threads))
			return -1;
		options->threads = threads;
		return 0;
	case OPT_PROGRESS:
		options->progress = true;
		return 0;
	case OPT_JSON:
		options->json = true;
		return 0;
	case OPT_INSPECT:
		return set_action(options, ACTION_INSPECT, value);
	case OPT_VERIFY:
		return set_action(options, ACTION_VERIFY, value);
	case 'h':
		return set_action(options, ACTION_HELP, NULL);
	case 'V':
		return set_action(options, ACTION_VERSION, NULL);
	default:
		return fail("unknown option or missing value: see npu_compiler --help");
	}
}

static int check_together(struct options *options)
{
	uint32_t most = options->target->router_entries;

	if (options->action != ACTION_COMPILE)
		return 0;
	if (options->json)
		return fail("--json goes with --inspect");
	if (!options->input || !options->output)
		return fail("%s is missing: see npu_compiler --help",
			    options->input ? "--output" : "--input");
	if (options->fallback && options->fallback <= options->quant)
		return fail("--expert-fallback: copies would be no smaller than with --quantize %s: leave it out%s",
			    options->quant_name,
			    options->quant < QUANT_INT4 ? ", or use int4" : "");
	if (options->calibrate && options->calibration)
		return fail("--calibrate and --calibration are two ways to the same: use one");
	if (options->calibrate_tokens && !options->calibrate)
		return fail("--calibrate-tokens goes with --calibrate");
	if (!options->calibrate_tokens)
		options->calibrate_tokens = DEFAULT_CALIBRATE;
	if (options->expert_cache > most)
		return fail("--expert-cache-size %u: the expert-router cache of %s has %u entries; leave the option out, or give at most %u",
			    options->expert_cache, options->target->name, most,
			    most);
	if (!options->expert_cache)
		options->expert_cache = most;
	return 0;
}

int options_parse(int argc, char **argv, struct options *options)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	int option;

	*options = (struct options){
		.target = target_find("m6-mini"),
		.quant_name = "fp16",
		.chunk_bytes = DEFAULT_CHUNK_KB * 1024ull,
		.order = ORDER_GROUPED,
		.guesses = MODEL_DEFAULT_GUESSES,
		.tiles = { 1, 4, 16, 64, 256 },
		.tile_count = 5,
		.threads = processors > 0 ? processors : 1,
	};
	opterr = 0;
	while ((option = getopt_long(argc, argv, "hV", long_options, NULL)) !=
	       -1) {
		if (option == '?')
			return fail("%s: unknown option, or its value is missing; see npu_compiler --help",
				    argv[optind - 1]);
		if (parse_one(option, optarg, options))
			return -1;
	}
	if (optind < argc)
		return fail("%s is not an option: see npu_compiler --help",
			    argv[optind]);
	return check_together(options);
}
