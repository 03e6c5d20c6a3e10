// SPDX-License-Identifier: MIT
/*
 * npu_run: load a model, give it a text, print what it answers and how long
 * that took. The smallest user of libnpu, for bringing a board up and for
 * tests; npu_server is the way to serve a model.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <yyjson.h>

#include <npu/npu.h>
#include "chance.h"
#include "expert_report.h"
#include "size.h"

static const char usage[] =
	"Usage: npu_run [OPTION...] MODEL.npu\n"
	"Runs a model on an M6 NPU: reads a prompt, prints the answer.\n"
	"\n"
	"  -p, --prompt TEXT       the prompt; without it, standard input\n"
	"  -t, --tokens IDS        the prompt as token ids, \"1,2,3\"\n"
	"  -s, --system TEXT       system message of a chat\n"
	"  -r, --raw               continue the text instead of answering it\n"
	"  -n, --max-tokens N      tokens to generate at most (128)\n"
	"  -e, --ignore-eos        do not stop where the model would\n"
	"  -d, --device N          /dev/accel/accelN (0)\n"
	"  -l, --max-seq N         positions of the KV cache\n"
	"  -k, --kv f16|q8_0       its elements (f16)\n"
	"  -b, --batch N           prompt tokens per step (the model's most)\n"
	"  -o, --on-demand         bring experts in when they are needed\n"
	"  -B, --expert-budget S   memory for experts, \"512M\"; they come and go\n"
	"  -c, --preload-config F  preload_config.json\n"
	"  -R, --router POLICY     off, lru or priority-lru\n"
	"  -T, --threshold X       read experts ahead that are this likely, 0 to 1\n"
	"                          (0.85), or \"off\"; \"0.3,0.7\": it moves between\n"
	"  -F, --fallback          use a missing expert's copy of lower precision\n"
	"  -U, --expert-use FILE   write how many tokens each expert worked on\n"
	"  -L, --logits FILE       write logits of all prompt positions as F32\n"
	"  -j, --json              print one JSON object instead\n"
	"  -q, --quiet             no figures\n"
	"  -h, --help              this text\n"
	"  -V, --version           version of libnpu\n";

struct options {
	const char *model, *prompt, *tokens, *system, *logits, *expert_use;
	bool raw, ignore_eos, json, quiet;
	int device, router;
	uint32_t max_tokens, batch;
	struct npu_model_options load;
};

struct tokens {
	int32_t *ids;
	uint32_t count;
};

/* One run, and what is told about it. */
struct run {
	const struct options *options;
	struct npu_device *device;
	struct npu_model *model;
	struct npu_model_info info;
	struct tokens prompt, answer;
	char *text;
	size_t text_size;
	bool stopped;		/* by an end-of-sequence token */
	uint64_t prefill_ns, decode_ns;		/* wall clock */
	uint64_t prefill_device_ns, decode_device_ns;
	uint64_t step_tokens;
	uint64_t hits, misses, faults;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int complain(const char *what)
{
	fprintf(stderr, "npu_run: %s\n", what);
	return -1;
}

/* ---- Options ---- */

static long number(const char *text, const char *name, long max)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (!*text || *end || errno || n < 0 || n > max) {
		fprintf(stderr, "npu_run: --%s is not a number from 0 to %ld: %s\n",
			name, max, text);
		exit(2);
	}
	return n;
}

static int choice(const char *text, const char *name, const char *const *names)
{
	int i;

	for (i = 0; names[i]; i++)
		if (!strcmp(text, names[i]))
			return i;
	fprintf(stderr, "npu_run: --%s does not know \"%s\"; see --help\n",
		name, text);
	exit(2);
}

static void set_threshold(struct npu_model_options *load, const char *text)
{
	load->prefetch_permille = load->prefetch_low = load->prefetch_high = 0;
	if (!strcmp(text, "off"))
		load->prefetch_permille = NPU_PREFETCH_OFF;
	else if (npu_chance_parse(text, &load->prefetch_permille) &&
		 npu_chances_parse(text, &load->prefetch_low,
				   &load->prefetch_high)) {
		fprintf(stderr,
			"npu_run: --threshold is neither a number from 0 to 1, nor two such as 0.3,0.7, nor off: %s\n",
			text);
		exit(2);
	}
}

static uint64_t size(const char *text, const char *name)
{
	uint64_t bytes;

	if (!npu_size_parse(text, &bytes))
		return bytes;
	fprintf(stderr, "npu_run: --%s is not a size such as 512M or 8G: %s\n",
		name, text);
	exit(2);
}

static void set_option(struct options *o, int c)
{
	static const char *const kv[] = { "f16", "q8_0", NULL };
	static const char *const policies[] = { "off", "lru", "priority-lru",
						NULL };

	switch (c) {
	case 'p': o->prompt = optarg; break;
	case 't': o->tokens = optarg; break;
	case 's': o->system = optarg; break;
	case 'r': o->raw = true; break;
	case 'n': o->max_tokens = number(optarg, "max-tokens", 1 << 24); break;
	case 'e': o->ignore_eos = true; break;
	case 'd': o->device = number(optarg, "device", 255); break;
	case 'l': o->load.max_seq = number(optarg, "max-seq", 1 << 24); break;
	case 'k': o->load.kv_q8_0 = choice(optarg, "kv", kv); break;
	case 'b': o->batch = number(optarg, "batch", 1024); break;
	case 'o': o->load.experts_on_demand = true; break;
	case 'B': o->load.expert_budget = size(optarg, "expert-budget"); break;
	case 'c': o->load.preload_config = optarg; break;
	case 'R': o->router = choice(optarg, "router", policies); break;
	case 'T': set_threshold(&o->load, optarg); break;
	case 'F': o->load.expert_fallback = true; break;
	case 'U': o->expert_use = optarg; break;
	case 'L': o->logits = optarg; break;
	case 'j': o->json = true; break;
	case 'q': o->quiet = true; break;
	case 'h':
		fputs(usage, stdout);
		exit(0);
	case 'V':
		printf("npu_run (libnpu %s)\n", npu_version());
		exit(0);
	default:
		fprintf(stderr, "Try npu_run --help\n");
		exit(2);
	}
}

static void parse_options(struct options *o, int argc, char **argv)
{
	static const struct option names[] = {
		{ "prompt", required_argument, NULL, 'p' },
		{ "tokens", required_argument, NULL, 't' },
		{ "system", required_argument, NULL, 's' },
		{ "raw", no_argument, NULL, 'r' },
		{ "max-tokens", required_argument, NULL, 'n' },
		{ "ignore-eos", no_argument, NULL, 'e' },
		{ "device", required_argument, NULL, 'd' },
		{ "max-seq", required_argument, NULL, 'l' },
		{ "kv", required_argument, NULL, 'k' },
		{ "batch", required_argument, NULL, 'b' },
		{ "on-demand", no_argument, NULL, 'o' },
		{ "expert-budget", required_argument, NULL, 'B' },
		{ "preload-config", required_argument, NULL, 'c' },
		{ "router", required_argument, NULL, 'R' },
		{ "threshold", required_argument, NULL, 'T' },
		{ "fallback", no_argument, NULL, 'F' },
		{ "expert-use", required_argument, NULL, 'U' },
		{ "logits", required_argument, NULL, 'L' },
		{ "json", no_argument, NULL, 'j' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	*o = (struct options){
		.router = -1,
		.max_tokens = 128,
		.load.size = sizeof(o->load),
	};
	while ((c = getopt_long(argc, argv,
				"p:t:s:rn:ed:l:k:b:oB:c:R:T:FU:L:jqhV", names,
				NULL)) != -1)
		set_option(o, c);
	if (optind + 1 != argc) {
		complain(optind == argc ? "which model? Try npu_run --help" :
					  "one model at a time");
		exit(2);
	}
	o->model = argv[optind];
}

/* ---- The prompt ---- */

static char *read_stdin(void)
{
	size_t size = 0, room = 4096, n;
	char *text = malloc(room);

	while (text && (n = fread(text + size, 1, room - size - 1, stdin))) {
		size += n;
		if (room - size < 2)
			text = realloc(text, room *= 2);
	}
	if (text) {
		if (size && text[size - 1] == '\n')
			size--;
		text[size] = '\0';
	}
	return text;
}

static int parse_ids(struct tokens *t, const char *text)
{
	char *end;

	t->ids = calloc(strlen(text) / 2 + 1, sizeof(*t->ids));
	if (!t->ids)
		return complain("out of memory");
	for (; *text; text = *end == ',' ? end + 1 : end) {
		long id = strtol(text, &end, 10);

		if (end == text || (*end && *end != ',') || id < 0 ||
		    id > INT32_MAX)
			return complain("--tokens wants ids, \"1,2,3\"");
		t->ids[t->count++] = (int32_t)id;
	}
	return 0;
}

static int encode(struct run *r, const char *text, int32_t *ids, size_t max)
{
	const struct npu_chat_message messages[] = {
		{ "system", r->options->system },
		{ "user", text },
	};
	bool system = r->options->system;
	int n = -ENOTSUP;

	if (!r->options->raw)
		n = npu_chat_tokenize(r->model, messages + !system,
				      1 + system, ids, max);
	/* A model without a chat format continues the text. */
	if (n != -ENOTSUP)
		return n;
	return npu_tokenize(npu_model_tokenizer(r->model), text, strlen(text),
			    NPU_TOKENIZE_BEGIN, ids, max);
}

static int make_prompt(struct run *r)
{
	char *input = NULL;
	const char *text;
	int n;

	if (r->options->tokens)
		return parse_ids(&r->prompt, r->options->tokens);
	text = r->options->prompt;
	if (!text)
		text = input = read_stdin();
	if (!text)
		return complain("out of memory");
	n = encode(r, text, NULL, 0);
	if (n >= 0) {
		r->prompt.ids = calloc((size_t)n + 1, sizeof(int32_t));
		r->prompt.count = (uint32_t)n;
	}
	if (n >= 0 && r->prompt.ids)
		n = encode(r, text, r->prompt.ids, (size_t)n);
	free(input);
	return n < 0 ? complain(npu_error()) : 0;
}

/* ---- Running ---- */

static int run_step(struct run *r, const struct npu_step_token *tokens,
		    uint32_t count, struct npu_step_result *result)
{
	if (npu_model_step(r->model, tokens, count, result))
		return complain(npu_error());
	r->step_tokens += count;
	r->hits += result->router_hits;
	r->misses += result->router_misses;
	r->faults += result->expert_faults;
	return 0;
}

static int32_t best(const struct npu_step_result *result, uint32_t row)
{
	return result->topk_ids[row * result->topk];
}

/*
 * By way of a copy: results are in the device's memory, which some file
 * systems cannot write from.
 */
static int save_logits(struct run *r, FILE *f,
		       const struct npu_step_result *result)
{
	size_t n = (size_t)result->out_count * r->info.vocab;
	float *copy = malloc(n * sizeof(*copy));
	size_t written;

	if (!copy)
		return complain("out of memory");
	memcpy(copy, result->logits, n * sizeof(*copy));
	written = fwrite(copy, sizeof(*copy), n, f);
	free(copy);
	return written == n ? 0 : complain("cannot write logits");
}

static uint32_t batch_size(const struct run *r)
{
	uint32_t batch = r->info.max_tile;

	if (r->options->logits && r->info.max_out < batch)
		batch = r->info.max_out;
	if (r->options->batch && r->options->batch < batch)
		batch = r->options->batch;
	return batch;
}

/* Sets @next to the token that follows the prompt. */
static int prefill(struct run *r, FILE *logits, int32_t *next)
{
	uint32_t at, i, n, batch = batch_size(r);
	struct npu_step_result result;
	struct npu_step_token *tokens;
	int ret = 0;

	tokens = calloc(batch, sizeof(*tokens));
	if (!tokens)
		return complain("out of memory");
	for (at = 0; at < r->prompt.count && !ret; at += n) {
		n = r->prompt.count - at < batch ? r->prompt.count - at : batch;
		for (i = 0; i < n; i++)
			tokens[i] = (struct npu_step_token){
				.token = r->prompt.ids[at + i],
				.position = at + i,
				.out = logits || at + i + 1 == r->prompt.count,
			};
		ret = run_step(r, tokens, n, &result);
		if (ret)
			break;
		r->prefill_device_ns += result.device_ns;
		if (logits)
			ret = save_logits(r, logits, &result);
		if (result.out_count)
			*next = best(&result, result.out_count - 1);
	}
	free(tokens);
	return ret;
}

static bool is_eos(const struct run *r, int32_t token)
{
	uint32_t i;

	for (i = 0; i < r->info.eos_count; i++)
		if (r->info.eos_tokens[i] == token)
			return true;
	return false;
}

static int add_text(struct run *r, int32_t token)
{
	const struct npu_tokenizer *t = npu_model_tokenizer(r->model);
	int n = npu_detokenize(t, token, 0, NULL, 0);
	char *p;

	if (n < 0)
		return complain(npu_error());
	p = realloc(r->text, r->text_size + (size_t)n + 1);
	if (!p)
		return complain("out of memory");
	r->text = p;
	npu_detokenize(t, token, 0, p + r->text_size, (size_t)n);
	if (!r->options->json) {
		fwrite(p + r->text_size, 1, (size_t)n, stdout);
		fflush(stdout);
	}
	r->text_size += (size_t)n;
	p[r->text_size] = '\0';
	return 0;
}

static int decode(struct run *r, int32_t next)
{
	uint32_t most = r->info.max_seq - r->prompt.count;
	struct npu_step_result result;
	int ret;

	if (most > r->options->max_tokens)
		most = r->options->max_tokens;
	r->answer.ids = calloc(most + 1, sizeof(int32_t));
	if (!r->answer.ids)
		return complain("out of memory");
	while (r->answer.count < most) {
		struct npu_step_token token = { .token = next, .out = true };

		r->stopped = !r->options->ignore_eos && is_eos(r, next);
		if (r->stopped)
			break;
		token.position = r->prompt.count + r->answer.count;
		r->answer.ids[r->answer.count++] = next;
		ret = add_text(r, next);
		if (!ret && r->answer.count == most)
			break;
		if (!ret)
			ret = run_step(r, &token, 1, &result);
		if (ret)
			return ret;
		r->decode_device_ns += result.device_ns;
		next = best(&result, 0);
	}
	return 0;
}

static int generate(struct run *r)
{
	FILE *logits = NULL;
	int32_t next = 0;
	uint64_t start;
	int ret;

	if (!r->prompt.count || r->prompt.count > r->info.max_seq)
		return complain("the prompt is empty or longer than the KV cache");
	if (r->options->logits) {
		logits = fopen(r->options->logits, "wb");
		if (!logits)
			return complain("cannot write the file of --logits");
	}
	start = now_ns();
	ret = prefill(r, logits, &next);
	r->prefill_ns = now_ns() - start;
	if (logits && fclose(logits) && !ret)
		ret = complain("cannot write logits");
	if (ret)
		return ret;
	start = now_ns();
	ret = decode(r, next);
	r->decode_ns = now_ns() - start;
	return ret;
}

/* ---- Figures ---- */

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

/* The first token comes from the prefill, and no step follows the last. */
static uint32_t decode_steps(const struct run *r)
{
	uint32_t n = r->answer.count;

	return r->stopped || !n ? n : n - 1;
}

static double per_step(const struct run *r, uint64_t ns)
{
	uint32_t n = decode_steps(r);

	return n ? ms(ns) / n : 0;
}

static void print_figures(const struct run *r)
{
	fprintf(stderr,
		"\n%s, %s: loaded in %.0f ms (pool %.1f MiB, experts resident %" PRIu32 " of %" PRIu32 ")\n"
		"prompt %" PRIu32 " tokens: %.1f ms, device %.3f ms\n"
		"answer %" PRIu32 " tokens: %.1f ms each, device %.3f ms each\n"
		"router hits %" PRIu64 ", misses %" PRIu64 ", expert faults %" PRIu64 "\n"
		"experts used %" PRIu64 ", there at once %" PRIu64 "; loaded %" PRIu64 " (%.1f MiB), evicted %" PRIu64 ", waited for %.1f ms\n"
		"experts asked for ahead %" PRIu64 ", read for it %" PRIu64 ", of them used %" PRIu64 "; copies stood in %" PRIu64 " times\n",
		r->info.name, r->info.quantization, ms(r->info.load_ns),
		(double)r->info.pool_bytes / (1 << 20),
		r->info.experts_resident,
		r->info.expert_layers * r->info.experts, r->prompt.count,
		ms(r->prefill_ns), ms(r->prefill_device_ns), r->answer.count,
		per_step(r, r->decode_ns), per_step(r, r->decode_device_ns),
		r->hits, r->misses, r->faults, r->info.expert_uses,
		r->info.expert_hits, r->info.expert_loads,
		(double)r->info.expert_bytes_read / (1 << 20),
		r->info.expert_evictions, ms(r->info.expert_stall_ns),
		r->info.expert_hints, r->info.expert_prefetches,
		r->info.expert_prefetches_used, r->info.expert_fallbacks);
}

static void add_ids(yyjson_mut_doc *doc, yyjson_mut_val *root, const char *key,
		    const struct tokens *t)
{
	yyjson_mut_val *list = yyjson_mut_arr(doc);
	uint32_t i;

	for (i = 0; i < t->count; i++)
		yyjson_mut_arr_add_int(doc, list, t->ids[i]);
	yyjson_mut_obj_add_val(doc, root, key, list);
}

static void add_times(yyjson_mut_doc *doc, yyjson_mut_val *root,
		      const struct run *r)
{
	yyjson_mut_obj_add_real(doc, root, "load_ms", ms(r->info.load_ns));
	yyjson_mut_obj_add_real(doc, root, "prefill_ms", ms(r->prefill_ns));
	yyjson_mut_obj_add_real(doc, root, "prefill_device_ms",
				ms(r->prefill_device_ns));
	yyjson_mut_obj_add_real(doc, root, "decode_ms",
				per_step(r, r->decode_ns));
	yyjson_mut_obj_add_real(doc, root, "decode_device_ms",
				per_step(r, r->decode_device_ns));
	yyjson_mut_obj_add_real(doc, root, "expert_stall_ms",
				ms(r->info.expert_stall_ns));
}

static void add_counts(yyjson_mut_doc *doc, yyjson_mut_val *root,
		       const struct run *r)
{
	const struct npu_model_info *info = &r->info;
	const struct {
		const char *name;
		uint64_t value;
	} counts[] = {
		{ "pool_bytes", info->pool_bytes },
		{ "experts_resident", info->experts_resident },
		{ "router_hits", r->hits },
		{ "router_misses", r->misses },
		{ "expert_faults", r->faults },
		{ "expert_loads", info->expert_loads },
		{ "expert_evictions", info->expert_evictions },
		{ "expert_bytes_read", info->expert_bytes_read },
		{ "expert_uses", info->expert_uses },
		{ "expert_hits", info->expert_hits },
		{ "expert_hints", info->expert_hints },
		{ "expert_prefetches", info->expert_prefetches },
		{ "expert_prefetches_used", info->expert_prefetches_used },
		{ "expert_fallbacks", info->expert_fallbacks },
	};

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		yyjson_mut_obj_add_uint(doc, root, counts[i].name,
					counts[i].value);
}

static int print_json(const struct run *r)
{
	yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
	yyjson_mut_val *root = yyjson_mut_obj(doc);
	char *json;

	yyjson_mut_doc_set_root(doc, root);
	yyjson_mut_obj_add_str(doc, root, "model", r->info.name);
	yyjson_mut_obj_add_str(doc, root, "quantization",
			       r->info.quantization);
	yyjson_mut_obj_add_strn(doc, root, "text", r->text ? r->text : "",
				r->text_size);
	yyjson_mut_obj_add_str(doc, root, "finish_reason",
			       r->stopped ? "stop" : "length");
	add_ids(doc, root, "prompt_tokens", &r->prompt);
	add_ids(doc, root, "tokens", &r->answer);
	add_times(doc, root, r);
	add_counts(doc, root, r);
	/* The last token may have cut a character. */
	json = yyjson_mut_write(doc, YYJSON_WRITE_PRETTY |
				YYJSON_WRITE_ALLOW_INVALID_UNICODE, NULL);
	if (json)
		puts(json);
	free(json);
	yyjson_mut_doc_free(doc);
	return json ? 0 : complain("cannot write JSON");
}

static int set_router(struct run *r)
{
	const struct options *o = r->options;

	if (o->router >= 0 &&
	    npu_router_set(r->device, (enum npu_router_policy)o->router))
		return complain(npu_error());
	return 0;
}

static int write_expert_use(const struct run *r)
{
	const char *path = r->options->expert_use;
	int err;

	if (!path)
		return 0;
	err = npu_expert_report_write(r->model, r->step_tokens, path);
	if (!err)
		return 0;
	fprintf(stderr, "npu_run: cannot write %s: %s\n", path,
		strerror(-err));
	return err;
}

static int run(struct run *r)
{
	const struct options *o = r->options;
	int ret;

	if (npu_device_open(o->device, &r->device))
		return complain(npu_error());
	ret = set_router(r);
	if (!ret && npu_model_load(r->device, o->model, &o->load, &r->model))
		ret = complain(npu_error());
	if (ret)
		return ret;
	npu_model_info(r->model, &r->info);
	ret = make_prompt(r);
	if (!ret)
		ret = generate(r);
	if (!ret)
		ret = write_expert_use(r);
	npu_model_info(r->model, &r->info);
	if (!o->json)
		printf("\n");
	if (!ret && o->json)
		ret = print_json(r);
	else if (!ret && !o->quiet)
		print_figures(r);
	return ret;
}

int main(int argc, char **argv)
{
	struct options options;
	struct run r = { .options = &options };
	int ret;

	parse_options(&options, argc, argv);
	ret = run(&r);
	npu_model_free(r.model);
	npu_device_close(r.device);
	free(r.prompt.ids);
	free(r.answer.ids);
	free(r.text);
	return ret ? 1 : 0;
}
