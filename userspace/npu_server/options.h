/* SPDX-License-Identifier: MIT */
/* Flags of the command line and keys of /etc/npu.conf: one table for both. */
#ifndef NPU_SERVER_OPTIONS_H
#define NPU_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct chance_range {
	uint32_t low, high;		/* permille */
};

struct options {
	char *model;
	char *config;			/* preload_config.json */
	char *host;			/* "0.0.0.0:8080" */
	char *api_key;
	char *log_level;
	char *kv_cache_type;		/* "f16", "q8_0" */
	char *pool;			/* "auto", "private", or an id */
	uint32_t device_id;
	uint32_t max_concurrent;
	uint32_t max_seq_len;		/* 0: the model's */
	uint32_t queue_limit;
	uint32_t max_tokens;		/* default of requests, 0: what fits */
	uint32_t grace_seconds;
	double temperature;		/* default of requests */
	uint32_t preload_threshold;	/* permille, 0: libnpu's own */
	struct chance_range dynamic_threshold;	/* 0: it does not move */
	char *expert_report;
	bool disable_expert_cache;
	bool experts_on_demand;
	bool expert_fallback;
	uint64_t expert_budget;		/* bytes, 0: room for all */
};

/*
 * Reads the configuration file, then the command line, which wins. 0; 1 when
 * --help or --version was answered; -1 when a message was printed.
 */
int options_parse(struct options *options, int argc, char **argv);
void options_release(struct options *options);

#endif
