// SPDX-License-Identifier: MIT
/*
 * libnpu without a device, to test the server's own half: HTTP, batching,
 * cancellation, limits. The model is an echo: tokens are bytes, and an answer
 * repeats the prompt. Some words change that, wherever they stand in the prompt:
 * "!loop" never ends, "!fail" makes every step that it is in fail, "!late" those
 * after some tokens of the answer, and "!gone" takes the device away. The
 * tokenizer has a token for DEL that the model has not. A token's expert is its
 * number's lowest bits.
 * FAKE_STEP_MS in the environment makes a step take so long, at its end,
 * FAKE_LOAD_MS loading.
 */
#include <errno.h>
#include <npu/npu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VOCAB	257
#define EOS	256
#define TILE	64
#define OUTS	16
#define LAYERS	2
#define EXPERTS	4
/* Tokens of the answer to "!late". */
#define LATE	4

struct npu_device {
	int unused;
};

struct npu_tokenizer {
	int unused;
};

struct slot {
	int32_t *tokens;
	uint32_t count;		/* in the cache */
	uint32_t prompt;	/* length of the prompt, once known */
};

struct npu_model {
	struct npu_tokenizer tokenizer;
	uint32_t slots, max_seq;
	uint32_t permille;	/* threshold for reading ahead */
	bool fallback, gone;
	_Atomic uint64_t uses[LAYERS * EXPERTS];
	struct slot *slot;
	float logits[OUTS][VOCAB];
};

static _Thread_local char message[512];

const char *npu_version(void)
{
	return "0.0.0-fake";
}

const char *npu_error(void)
{
	return message;
}

/* Of the file, in messages. */
#define LONG_PATH \
	"/a/folder/with/a/name/that/is/as/long/as/they/come/in/some/stores/of/" \
	"models/where/whoever/made/it/and/what/it/is/and/each/of/its/parts/and/" \
	"its/version/and/the/hash/of/all/that/has/a/folder/of/its/own/until/" \
	"there/is/no/end/to/it/and/one/thinks/that/this/is/the/last/of/them/" \
	"and/then/comes/the/file/echo.npu"

static int fail(int error, const char *text)
{
	snprintf(message, sizeof(message), "%s", text);
	return error;
}

int npu_device_open(int id, struct npu_device **device)
{
	*device = calloc(1, sizeof(**device));
	return *device ? 0 : fail(-ENOMEM, "out of memory");
}

void npu_device_close(struct npu_device *device)
{
	free(device);
}

int npu_device_info(struct npu_device *device, struct npu_device_info *info)
{
	*info = (struct npu_device_info){ .node = "fake",
					  .temperature_mc = 41500 };
	return 0;
}

int npu_router_set(struct npu_device *device, enum npu_router_policy policy)
{
	return 0;
}

int npu_router_stats(struct npu_device *device, struct npu_router_stats *stats)
{
	*stats = (struct npu_router_stats){ .threshold_permille = 950 };
	return 0;
}

int npu_layer_stats(struct npu_device *device, struct npu_layer_stats *stats,
		    size_t max)
{
	for (uint32_t i = 0; i < LAYERS && i < max; i++)
		stats[i] = (struct npu_layer_stats){
			.hits = 30 + i * 10,
			.misses = 10 + i * 10,
			.evictions = 5,
			.faults = i,
			.sram_hits = 4,
			.prefetches = 7,
		};
	return LAYERS;
}

int npu_pool_open(struct npu_device *device, uint32_t id,
		  struct npu_pool **pool)
{
	return fail(-ENOENT, "there is no pool here");
}

void npu_pool_close(struct npu_pool *pool)
{
}

static uint32_t clamp(uint32_t n, uint32_t low, uint32_t high)
{
	return n < low ? low : n > high ? high : n;
}

static uint32_t threshold(const struct npu_model_options *options)
{
	uint32_t permille = options->prefetch_permille;

	if (!permille && (options->experts_on_demand || options->prefetch_low))
		permille = NPU_PREFETCH_DEFAULT;
	if (options->prefetch_high)
		permille = clamp(permille, options->prefetch_low,
				 options->prefetch_high);
	return permille;
}

static int pass_time(const struct npu_model_options *options)
{
	const char *ms = getenv("FAKE_LOAD_MS");
	struct npu_load_progress progress = { .total = ms ? atol(ms) : 0 };

	for (; progress.done < progress.total; progress.done++) {
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
		if (options->progress(options->progress_user, &progress))
			return fail(-ECANCELED, "loading was cancelled");
	}
	return 0;
}

int npu_model_load(struct npu_device *device, const char *path,
		   const struct npu_model_options *options,
		   struct npu_model **out)
{
	struct npu_model *model;
	int err = pass_time(options);

	if (err)
		return err;
	model = calloc(1, sizeof(*model));
	if (!model)
		return fail(-ENOMEM, "out of memory");
	model->slots = options->slots;
	model->permille = threshold(options);
	model->fallback = options->expert_fallback;
	model->max_seq = options->max_seq ? options->max_seq : 2048;
	model->slot = calloc(model->slots, sizeof(*model->slot));
	for (uint32_t i = 0; i < model->slots; i++)
		model->slot[i].tokens =
			calloc(model->max_seq, sizeof(*model->slot->tokens));
	*out = model;
	return 0;
}

void npu_model_free(struct npu_model *model)
{
	if (!model)
		return;
	for (uint32_t i = 0; i < model->slots; i++)
		free(model->slot[i].tokens);
	free(model->slot);
	free(model);
}

void npu_model_info(const struct npu_model *model, struct npu_model_info *info)
{
	*info = (struct npu_model_info){
		.name = "echo",
		.architecture = "echo",
		.quantization = "none",
		.vocab = VOCAB,
		.context_length = model->max_seq,
		.slots = model->slots,
		.max_seq = model->max_seq,
		.max_tile = TILE,
		.max_out = OUTS,
		.eos_tokens = { EOS },
		.eos_count = 1,
		.expert_layers = LAYERS,
		.experts = EXPERTS,
		.expert_uses = 100,
		.expert_hits = 80,
		.expert_faults = 20,
		.expert_waits = 15,
		.expert_hints = 9,
		.expert_prefetches = 8,
		.expert_prefetches_used = 6,
		.expert_fallbacks = model->fallback ? 20 : 0,
		.expert_stall_ns = 2500000000,
		.prefetch_permille = model->permille,
	};
}

size_t npu_model_expert_use(const struct npu_model *model, uint64_t *uses,
			    size_t max)
{
	for (size_t i = 0; i < LAYERS * EXPERTS && i < max; i++)
		uses[i] = model->uses[i];
	return LAYERS * EXPERTS;
}

const struct npu_tokenizer *npu_model_tokenizer(const struct npu_model *model)
{
	return &model->tokenizer;
}

int npu_tokenize(const struct npu_tokenizer *tokenizer, const char *text,
		 size_t length, uint32_t flags, int32_t *tokens, size_t max)
{
	for (size_t i = 0; i < length && i < max; i++)
		tokens[i] = text[i] == 0x7f ? VOCAB : (unsigned char)text[i];
	return (int)length;
}

int npu_detokenize(const struct npu_tokenizer *tokenizer, int32_t token,
		   uint32_t flags, char *text, size_t max)
{
	if (token < 0 || token >= EOS)
		return 0;
	if (max)
		text[0] = (char)token;
	return 1;
}

int npu_chat_tokenize(const struct npu_model *model,
		      const struct npu_chat_message *messages, size_t count,
		      int32_t *tokens, size_t max)
{
	const struct npu_chat_message *last = &messages[count - 1];

	for (size_t i = 0; i < count; i++)
		if (strcmp(messages[i].role, "system") &&
		    strcmp(messages[i].role, "user") &&
		    strcmp(messages[i].role, "assistant"))
			return fail(-EINVAL, "unknown role");
	return npu_tokenize(&model->tokenizer, last->content,
			    strlen(last->content), 0, tokens, max);
}

static bool says(const struct slot *slot, const char *word)
{
	size_t bytes = strlen(word);

	for (uint32_t i = 0; i + bytes <= slot->count; i++) {
		size_t k = 0;

		while (k < bytes &&
		       slot->tokens[i + k] == (unsigned char)word[k])
			k++;
		if (k == bytes)
			return true;
	}
	return false;
}

/* Which token the echo says after what is in the cache. */
static int32_t next(struct slot *slot)
{
	uint32_t said;

	if (!slot->prompt)
		slot->prompt = slot->count;
	said = slot->count - slot->prompt;
	if (says(slot, "!loop"))
		said %= slot->prompt;
	return said < slot->prompt ? slot->tokens[said] : EOS;
}

static int check(const struct npu_model *model,
		 const struct npu_step_token *token)
{
	if (token->slot >= model->slots || token->position >= model->max_seq ||
	    token->token < 0 || token->token >= VOCAB)
		return fail(-EINVAL, "the server sent a bad token");
	if (token->position && token->position != model->slot[token->slot].count)
		return fail(-EINVAL, "the server left a gap");
	return 0;
}

/* Puts one more into the cache. */
static void push(struct slot *slot, const struct npu_step_token *token)
{
	if (!token->position)
		slot->count = slot->prompt = 0;
	slot->tokens[slot->count++] = token->token;
}

static bool failing(const struct slot *slot)
{
	return says(slot, "!fail") ||
	       (says(slot, "!late") && slot->prompt &&
		slot->count >= slot->prompt + LATE);
}

static int run(struct npu_model *model, const struct npu_step_token *tokens,
	       uint32_t count, uint32_t *outs)
{
	bool fails = false;

	for (uint32_t i = 0; i < count; i++) {
		struct slot *slot = &model->slot[tokens[i].slot];
		int err = check(model, &tokens[i]);

		if (err)
			return err;
		push(slot, &tokens[i]);
		fails |= failing(slot);
		model->gone |= says(slot, "!gone");
		if (!tokens[i].out)
			continue;
		if (*outs == OUTS)
			return fail(-EINVAL, "too many rows asked for");
		memset(model->logits[*outs], 0, sizeof(model->logits[*outs]));
		model->logits[(*outs)++][next(slot)] = 30;
	}
	if (model->gone)
		return fail(-ENODEV, "the device is gone");
	return fails ? fail(-EIO, LONG_PATH ": section 12 (expert 1.3): read error: none; check the disk") :
		       0;
}

/* Nothing of a step that failed counts. */
static void undo(struct npu_model *model, const struct npu_step_token *tokens,
		 uint32_t count)
{
	while (count--)
		model->slot[tokens[count].slot].count = tokens[count].position;
}

static void count_uses(struct npu_model *model,
		       const struct npu_step_token *tokens, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t layer = 0; layer < LAYERS; layer++)
			model->uses[layer * EXPERTS +
				    (uint32_t)tokens[i].token % EXPERTS]++;
}

int npu_model_step(struct npu_model *model, const struct npu_step_token *tokens,
		   uint32_t count, struct npu_step_result *result)
{
	const char *ms = getenv("FAKE_STEP_MS");
	uint32_t outs = 0;
	int err;

	err = run(model, tokens, count, &outs);
	if (err)
		undo(model, tokens, count);
	else
		count_uses(model, tokens, count);
	if (ms)
		nanosleep(&(struct timespec){ .tv_nsec = atol(ms) * 1000000 },
			  NULL);
	if (err)
		return err;
	*result = (struct npu_step_result){
		.logits = model->logits[0],
		.out_count = outs,
		.device_ns = 1000000,
	};
	return 0;
}
