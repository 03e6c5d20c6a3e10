// SPDX-License-Identifier: MIT
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <npu/npu.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chance.h"
#include "conf.h"
#include "size.h"

enum kind {
	KIND_STRING,
	KIND_COUNT,
	KIND_FRACTION,
	KIND_SIZE,
	KIND_CHANCE,
	KIND_CHANCES,
	KIND_FLAG,
};

struct option_row {
	const char *name;
	enum kind kind;
	size_t offset;
	double low, high;
	const char *argument;
	const char *help;
};

#define ROW(name, kind, field, low, high, argument, help) \
	{ name, kind, offsetof(struct options, field), low, high, argument, \
	  help }

static const struct option_row rows[] = {
	ROW("model", KIND_STRING, model, 0, 0, "FILE", "model file (.npu)"),
	ROW("config", KIND_STRING, config, 0, 0, "FILE",
	    "preload_config.json: priorities of experts"),
	ROW("host", KIND_STRING, host, 0, 0, "ADDR:PORT",
	    "where to listen [127.0.0.1:8080]"),
	ROW("npu-device-id", KIND_COUNT, device_id, 0, 63, "N",
	    "N of /dev/accel/accelN [0]"),
	ROW("max-concurrent", KIND_COUNT, max_concurrent, 1, 256, "N",
	    "requests that run at once [4]"),
	ROW("max-seq-len", KIND_COUNT, max_seq_len, 2, 1 << 24, "N",
	    "tokens a request can hold, prompt and answer [the model's]"),
	ROW("queue", KIND_COUNT, queue_limit, 0, 65536, "N",
	    "requests that may wait; 503 beyond [64]"),
	ROW("max-tokens", KIND_COUNT, max_tokens, 0, 1 << 24, "N",
	    "answer's limit where a request gives none; 0: what fits [0]"),
	ROW("temperature", KIND_FRACTION, temperature, 0, 2, "T",
	    "temperature where a request gives none [0, which is greedy]"),
	ROW("kv-cache-type", KIND_STRING, kv_cache_type, 0, 0, "f16|q8_0",
	    "elements of the KV cache [f16]"),
	ROW("pool", KIND_STRING, pool, 0, 0, "auto|private|ID",
	    "memory: a preallocated pool if one has room, its own, or that [auto]"),
	ROW("npu-disable-expert-cache", KIND_FLAG, disable_expert_cache, 0, 0,
	    NULL, "run with the expert-router cache off"),
	ROW("npu-expert-preload-threshold", KIND_CHANCE, preload_threshold,
	    0, 0, "P|off", "read experts ahead that are this likely [0.85]"),
	ROW("dynamic-expert-threshold", KIND_CHANCES, dynamic_threshold, 0, 0,
	    "LOW,HIGH", "let that move between these, as it does good"),
	ROW("npu-experts-on-demand", KIND_FLAG, experts_on_demand, 0, 0, NULL,
	    "load an expert when it is first needed"),
	ROW("expert-budget", KIND_SIZE, expert_budget, 0, 0, "SIZE",
	    "memory for experts, which then come and go [room for all]"),
	ROW("npu-expert-fallback", KIND_FLAG, expert_fallback, 0, 0, NULL,
	    "use a missing expert's copy of lower precision; answers may vary"),
	ROW("npu-expert-report", KIND_STRING, expert_report, 0, 0, "FILE",
	    "write how much experts were used, at the end and upon SIGUSR1"),
	ROW("api-key", KIND_STRING, api_key, 0, 0, "KEY",
	    "ask for this bearer token"),
	ROW("grace", KIND_COUNT, grace_seconds, 0, 3600, "SECONDS",
	    "upon SIGTERM let requests end for so long [10]"),
	ROW("log-level", KIND_STRING, log_level, 0, 0,
	    "error|warn|info|debug", "[info]"),
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

static void usage(void)
{
	printf("Usage: npu_server --model FILE [OPTION]...\n"
	       "Serves a model on an M6 NPU over an OpenAI-compatible HTTP API.\n\n");
	for (size_t i = 0; i < ROWS; i++) {
		char left[64];

		snprintf(left, sizeof(left), "--%s%s%s", rows[i].name,
			 rows[i].argument ? " " : "",
			 rows[i].argument ? rows[i].argument : "");
		printf("  %-36s %s\n", left, rows[i].help);
	}
	printf("  %-36s %s\n", "--conf FILE",
	       "configuration file [" NPU_CONF_DEFAULT ", if there is one]");
	printf("  %-36s %s\n", "--help, --version", "");
	printf("\nEvery option is also a key of the configuration file's section [npu_server].\n"
	       "Endpoints: /v1/chat/completions /v1/completions /v1/models /tokenize\n"
	       "/detokenize /health /metrics\n");
}

static int set_number(struct options *options, const struct option_row *row,
		      const char *value, const char *where)
{
	void *field = (char *)options + row->offset;
	char *end;
	double number;

	errno = 0;
	number = strtod(value, &end);
	if (errno || end == value || *end || !(number >= row->low) ||
	    !(number <= row->high) ||
	    (row->kind == KIND_COUNT &&
	     number != (double)(uint32_t)number)) {
		fprintf(stderr,
			"npu_server: %s: %s must be %s from %.10g to %.10g, not '%s'\n",
			where, row->name,
			row->kind == KIND_COUNT ? "a whole number" : "a number",
			row->low, row->high, value);
		return -1;
	}
	if (row->kind == KIND_COUNT)
		*(uint32_t *)field = (uint32_t)number;
	else
		*(double *)field = number;
	return 0;
}

static int set_size(struct options *options, const struct option_row *row,
		    const char *value, const char *where)
{
	uint64_t *field = (uint64_t *)((char *)options + row->offset);

	if (!npu_size_parse(value, field))
		return 0;
	fprintf(stderr,
		"npu_server: %s: %s must be a size such as 512M or 8G, not '%s'\n",
		where, row->name, value);
	return -1;
}

static int set_chance(struct options *options, const struct option_row *row,
		      const char *value, const char *where)
{
	uint32_t *field = (uint32_t *)((char *)options + row->offset);

	if (!strcmp(value, "off")) {
		*field = NPU_PREFETCH_OFF;
		return 0;
	}
	if (!npu_chance_parse(value, field))
		return 0;
	fprintf(stderr,
		"npu_server: %s: %s must be a number from 0 to 1, or off, not '%s'\n",
		where, row->name, value);
	return -1;
}

static int set_chances(struct options *options, const struct option_row *row,
		       const char *value, const char *where)
{
	struct chance_range *field =
		(struct chance_range *)((char *)options + row->offset);

	if (!npu_chances_parse(value, &field->low, &field->high))
		return 0;
	fprintf(stderr,
		"npu_server: %s: %s must be two numbers from 0 to 1, the lower one first, such as 0.3,0.7, not '%s'\n",
		where, row->name, value);
	return -1;
}

static int set_string(struct options *options, const struct option_row *row,
		      const char *value, const char *where)
{
	char **field = (char **)((char *)options + row->offset);

	free(*field);
	*field = strdup(value);
	return *field ? 0 : -1;
}

static int set_flag(struct options *options, const struct option_row *row,
		    const char *value, const char *where)
{
	bool *field = (bool *)((char *)options + row->offset);

	*field = !value || (strcmp(value, "0") && strcmp(value, "no") &&
			    strcmp(value, "false"));
	return 0;
}

static int set_row(struct options *options, const struct option_row *row,
		   const char *value, const char *where)
{
	static int (*const set[])(struct options *options,
				  const struct option_row *row,
				  const char *value, const char *where) = {
		[KIND_STRING] = set_string,
		[KIND_COUNT] = set_number,
		[KIND_FRACTION] = set_number,
		[KIND_SIZE] = set_size,
		[KIND_CHANCE] = set_chance,
		[KIND_CHANCES] = set_chances,
		[KIND_FLAG] = set_flag,
	};

	return set[row->kind](options, row, value, where);
}

static int set_key(void *options, const char *key, const char *value,
		   const char *where)
{
	for (size_t i = 0; i < ROWS; i++)
		if (!strcmp(rows[i].name, key))
			return set_row(options, &rows[i], value, where);
	fprintf(stderr, "npu_server: %s: unknown key '%s' in [npu_server]\n",
		where, key);
	return -1;
}

static int set_defaults(struct options *options)
{
	*options = (struct options){
		.max_concurrent = 4,
		.queue_limit = 64,
		.grace_seconds = 10,
		.host = strdup("127.0.0.1:8080"),
		.log_level = strdup("info"),
		.kv_cache_type = strdup("f16"),
		.pool = strdup("auto"),
	};
	return options->host && options->log_level && options->kv_cache_type &&
			       options->pool ?
		       0 :
		       -1;
}

enum { OPT_CONF = 1000, OPT_HELP, OPT_VERSION };

static void make_long_options(struct option *longs)
{
	for (size_t i = 0; i < ROWS; i++)
		longs[i] = (struct option){
			.name = rows[i].name,
			.has_arg = rows[i].kind == KIND_FLAG ?
					   no_argument :
					   required_argument,
			.val = (int)i,
		};
	longs[ROWS] = (struct option){ "conf", required_argument, 0, OPT_CONF };
	longs[ROWS + 1] = (struct option){ "help", no_argument, 0, OPT_HELP };
	longs[ROWS + 2] =
		(struct option){ "version", no_argument, 0, OPT_VERSION };
	longs[ROWS + 3] = (struct option){ 0 };
}

/* One pass: looks for --conf and friends, or sets the rows. */
static int walk(struct options *options, int argc, char **argv,
		const struct option *longs, const char **conf, bool set)
{
	int value;

	optind = 0;
	opterr = !set;
	while ((value = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (value == '?')
			return -1;
		if (value == OPT_CONF) {
			*conf = optarg;
		} else if (value == OPT_HELP) {
			usage();
			return 1;
		} else if (value == OPT_VERSION) {
			printf("npu_server %s\n", npu_version());
			return 1;
		} else if (set && set_row(options, &rows[value], optarg,
					  "command line")) {
			return -1;
		}
	}
	if (optind == argc)
		return 0;
	fprintf(stderr, "npu_server: unexpected '%s'; see --help\n",
		argv[optind]);
	return -1;
}

int options_parse(struct options *options, int argc, char **argv)
{
	struct option longs[ROWS + 4];
	const char *conf = NULL;
	int ret;

	make_long_options(longs);
	if (set_defaults(options))
		return -1;
	ret = walk(options, argc, argv, longs, &conf, false);
	if (!ret)
		ret = npu_conf_read("npu_server", conf, "npu_server", set_key,
				    options);
	if (!ret)
		ret = walk(options, argc, argv, longs, &conf, true);
	if (!ret && !options->model) {
		fprintf(stderr, "npu_server: no model; give --model FILE\n");
		ret = -1;
	}
	return ret;
}

void options_release(struct options *options)
{
	free(options->model);
	free(options->config);
	free(options->host);
	free(options->api_key);
	free(options->log_level);
	free(options->kv_cache_type);
	free(options->pool);
	free(options->expert_report);
}
