/* SPDX-License-Identifier: MIT */
/*
 * libnpu: language models on an M6 NPU.
 *
 * Conventions: functions return 0 (or a count) or a negative errno, and
 * npu_error() then has one line, of the calling thread, that says what was
 * wrong and what to do. Objects are created by npu_<noun>_create/open/load and
 * given back by npu_<noun>_destroy/close/free, which take NULL. Strings are
 * UTF-8. Objects are not locked: one thread at a time per device, model or
 * session object, except where said.
 */
#ifndef NPU_H
#define NPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NPU_VERSION_MAJOR 0
#define NPU_VERSION_MINOR 1
#define NPU_VERSION_PATCH 0

/* "0.1.0" of the library at run time. */
const char *npu_version(void);

/* Last error of the calling thread; "" if none. Valid until the next call. */
const char *npu_error(void);

/* ---- Device ---- */

struct npu_device;

struct npu_device_info {
	char node[64];			/* "/dev/accel/accel0" */
	char firmware[32];		/* "2.3.1", "2.1.4-rc3" */
	uint32_t units;
	uint32_t router_entries;
	uint64_t sram_bytes;
	uint64_t max_chunk_bytes;	/* moe_loader/max_chunk_size_kb */
	uint64_t cma_bytes;		/* 0 if unknown */
	int32_t temperature_mc;		/* millidegrees Celsius */
	uint32_t power_mw;
	uint64_t frequency_hz;
	uint64_t device_time_ns;
	/* of this open device: */
	uint64_t busy_ns;
	uint64_t router_hits;
	uint64_t router_misses;
	uint64_t expert_faults;
	uint64_t jobs;
};

/*
 * Opens /dev/accel/accel<id>. -ENOENT no device (or no driver loaded: the
 * message tells which), -EACCES no permission, -ENODEV not an M6 NPU.
 */
int npu_device_open(int id, struct npu_device **device);
void npu_device_close(struct npu_device *device);
/* Fresh figures. Any thread, also while a step runs. */
int npu_device_info(struct npu_device *device, struct npu_device_info *info);
/* The DRM file descriptor, for poll(2) and own ioctls; stays the device's. */
int npu_device_fd(const struct npu_device *device);

enum npu_router_policy {
	NPU_ROUTER_OFF = 0,
	NPU_ROUTER_LRU = 1,
	NPU_ROUTER_PRIORITY_LRU = 2,
};

struct npu_router_stats {
	enum npu_router_policy policy;
	uint32_t threshold_permille;
	uint32_t entries;
	uint32_t pinned;
	uint64_t hits, misses, evictions, faults, full;	/* device-wide */
};

int npu_router_set(struct npu_device *device, enum npu_router_policy policy);
int npu_router_set_threshold(struct npu_device *device, uint32_t permille);
/* Any thread, also while a step runs. */
int npu_router_stats(struct npu_device *device, struct npu_router_stats *stats);

/* Of one layer of the model's experts, and jobs that have ended. */
struct npu_layer_stats {
	uint64_t hits, misses;		/* of the router cache */
	uint64_t evictions, full;
	uint64_t faults;		/* misses of absent experts, each time */
	uint64_t sram_hits, prefetches;	/* experts read from SRAM, copied there */
	uint64_t hints;
};

/*
 * Stores the first @max layers of the expert table of @device, returns how many
 * it has; 0: no model with experts is loaded. Any thread.
 */
int npu_layer_stats(struct npu_device *device, struct npu_layer_stats *stats,
		    size_t max);

/* ---- Pools and buffers ---- */

struct npu_pool;

/* Any user of the device may use it, and it outlives the program. */
#define NPU_POOL_PERSISTENT	(1u << 0)

/* Sizes are bytes. */
struct npu_pool_info {
	uint32_t id;
	uint32_t flags;			/* NPU_POOL_* */
	uint64_t size, used, largest_free;
	uint32_t buffers, segments;
	uint64_t client_used;		/* of used: in this open device's buffers */
	uint64_t client_limit;		/* that an open device may hold, 0: all */
	uint64_t pinned;		/* of used: npu_pool_defrag() won't move it */
};

/*
 * Reserves @size bytes in at most @max_segments contiguous pieces (0 and 1: in
 * one). A pool that is not persistent goes with @device at the latest. Fails
 * with -ENOMEM no contiguous area that large, -EDQUOT more of the contiguous
 * area than one program may hold, -EIO the memory cannot be mapped for the
 * device, -ERANGE the device does not reach it, -ENOSPC too many pools, -EPERM
 * persistent without CAP_SYS_ADMIN, -EINVAL an argument. The message has the
 * figures and says what would help.
 */
int npu_pool_create(struct npu_device *device, uint64_t size, uint32_t flags,
		    uint32_t max_segments, struct npu_pool **pool);
/*
 * A persistent one, of which each open device may hold at most @client_limit
 * bytes (0: all). Errors as above.
 */
int npu_pool_create_persistent(struct npu_device *device, uint64_t size,
			       uint32_t max_segments, uint64_t client_limit,
			       struct npu_pool **pool);
/*
 * A pool that is there already: a persistent one, or @device's own. -ENOENT no
 * such pool.
 */
int npu_pool_open(struct npu_device *device, uint32_t id,
		  struct npu_pool **pool);
/* Lets go of the object; the pool stays. Its buffers must be gone before. */
void npu_pool_close(struct npu_pool *pool);
/* The same, and gives the pool's memory back if it was created, not opened. */
void npu_pool_destroy(struct npu_pool *pool);
/*
 * Gives back the memory of the persistent pool @id, whoever made it. -ENOENT no
 * such pool, -EBUSY it still holds buffers, -EPERM without CAP_SYS_ADMIN.
 */
int npu_pool_remove(struct npu_device *device, uint32_t id);

/* Fresh figures. -ENOENT: somebody removed the pool. */
int npu_pool_info(struct npu_pool *pool, struct npu_pool_info *info);
/*
 * All pools that @device may use, by rising id. Returns their number, of which
 * at most @max are stored (so NULL, 0 counts).
 */
int npu_pool_list(struct npu_device *device, struct npu_pool_info *infos,
		  size_t max);

struct npu_flush_report {
	uint64_t freed;			/* bytes of closed buffers waited for */
	uint64_t released;		/* bytes the system has back */
	uint64_t largest_free;		/* afterwards */
};

/*
 * Waits until closed buffers that jobs still use are free, then gives empty
 * segments of the pool back to the system, all but one. -ENOENT no such pool,
 * -EPERM a persistent one without CAP_SYS_ADMIN.
 */
int npu_pool_flush(struct npu_pool *pool, struct npu_flush_report *report);

/* Fail with -EBUSY rather than wait for jobs. */
#define NPU_DEFRAG_NO_DRAIN	(1u << 0)

struct npu_defrag_report {
	uint64_t largest_before, largest_after;	/* bytes, the largest free block */
	uint64_t free;			/* bytes in free blocks */
	uint64_t moved;			/* bytes in buffers that were moved, */
	uint64_t copied;		/* bytes copied for it, */
	uint64_t copied_device;		/* those that the device copied */
	uint64_t time_ns;		/* the whole call */
	uint64_t pause_ns;		/* longest time that jobs were held back */
	uint32_t buffers;		/* moves */
	uint32_t stayed;		/* buffers that could not be moved */
};

/*
 * Moves buffers, of all who use the pool, so that its free memory becomes
 * contiguous. Device addresses, CPU mappings and contents stay as they are, and
 * jobs may run. @report is written upon -EBUSY as well. Other errors: -ENOENT
 * no such pool, -EINVAL flags. Any thread, also while a step runs.
 */
int npu_pool_defrag(struct npu_pool *pool, uint32_t flags,
		    struct npu_defrag_report *report);

struct npu_buffer;

#define NPU_BUFFER_READONLY	(1u << 0)	/* for the device */

/*
 * A zeroed buffer in @pool of @size bytes, rounded up to 4 KiB. @addr: device
 * address, in when not 0 (the caller chooses), and always out. When the pool has
 * room but no block that large, it is defragmented and tried once more. -ENOSPC:
 * fewer bytes are free, -ENOBUFS: enough are, but in blocks that are too small,
 * -EDQUOT: more than the pool's client_limit, -EADDRINUSE: @addr is taken,
 * -ENOENT: the pool was removed. @pool must live longer than the buffer.
 */
int npu_buffer_create(struct npu_pool *pool, uint64_t size, uint32_t flags,
		      uint64_t *addr, struct npu_buffer **buffer);
void npu_buffer_destroy(struct npu_buffer *buffer);
/* CPU view, mapped on first use; NULL with npu_error() set. */
void *npu_buffer_map(struct npu_buffer *buffer);
void npu_buffer_unmap(struct npu_buffer *buffer);
uint64_t npu_buffer_addr(const struct npu_buffer *buffer);
uint64_t npu_buffer_size(const struct npu_buffer *buffer);
/* Make writes visible; no-ops on coherent systems. */
int npu_buffer_sync_to_device(struct npu_buffer *buffer, uint64_t offset, uint64_t size);
int npu_buffer_sync_from_device(struct npu_buffer *buffer, uint64_t offset, uint64_t size);

/* ---- Models ---- */

struct npu_model;

enum npu_load_stage {
	NPU_LOAD_CHECK,		/* file structure */
	NPU_LOAD_STATIC,	/* static weights */
	NPU_LOAD_EXPERTS,
};

struct npu_load_progress {
	enum npu_load_stage stage;
	uint64_t done, total;	/* bytes of this stage */
	uint32_t items, item_count;	/* shards of this stage */
};

struct npu_model_options {
	size_t size;		/* sizeof(struct npu_model_options) */
	/* Called from the loading thread; non-zero cancels with -ECANCELED. */
	int (*progress)(void *user, const struct npu_load_progress *progress);
	void *progress_user;
	/*
	 * Existing pool, which must live longer than the model. NULL: a
	 * persistent one with enough room, or else one of the model's own.
	 */
	struct npu_pool *pool;
	/* KV cache to reserve: slots * max_seq positions. 0: 1 slot, context_length. */
	uint32_t slots;
	uint32_t max_seq;
	/* Bring experts in when they first fault instead of at load. */
	bool experts_on_demand;
	/* KV cache elements as Q8_0 instead of F16. */
	bool kv_q8_0;
	/* preload_config.json, or NULL: per-expert priorities; pins and order. */
	const char *preload_config;
	/* Without @pool: no persistent one, always one of the model's own. */
	bool private_pool;
	/*
	 * Bytes of memory for experts, which then come and go. At least those
	 * of one token; with fewer than a layer has, steps are smaller: see
	 * max_tile of struct npu_model_info. 0: room for all.
	 */
	uint64_t expert_budget;
	/*
	 * With a budget or on demand: experts that are likely to be needed
	 * soon, in permille, are read ahead. 0: the default,
	 * NPU_PREFETCH_DEFAULT; NPU_PREFETCH_OFF: none. With all experts there
	 * it is for copies to SRAM only, and 0 is the device's own. Costs time
	 * when wrong, never a result. Ignored if the model has no guesses.
	 */
	uint32_t prefetch_permille;
	/*
	 * Both, if not 0: the threshold moves between them, as it does good.
	 * Not with NPU_PREFETCH_OFF.
	 */
	uint32_t prefetch_low, prefetch_high;
	/*
	 * An expert that is not there is replaced by its copy of lower precision
	 * until it is: no waiting, but results depend on what was there.
	 * -ENOTSUP: the model has no such copies.
	 */
	bool expert_fallback;
};

#define NPU_PREFETCH_DEFAULT	850
#define NPU_PREFETCH_OFF	1001

struct npu_model_info {
	const char *name;
	const char *architecture;
	const char *quantization;	/* "fp16", "int8", "int4" */
	uint32_t vocab, hidden, context_length;
	uint32_t slots, max_seq, max_tile, max_out;
	uint32_t expert_layers, experts, experts_per_token;
	uint32_t experts_resident;	/* of expert_layers * experts */
	uint64_t static_bytes, expert_bytes_total, kv_bytes, pool_bytes;
	int32_t eos_tokens[8];
	uint32_t eos_count;
	uint64_t load_ns;		/* wall clock, of npu_model_load */
	uint32_t pool_id;		/* that it is in; pool_bytes is its size */
	uint32_t windows;		/* of the device, over its weights */
	/* Experts that have room at once, and the memory that takes. */
	uint32_t expert_places;
	uint64_t expert_span_bytes;
	/* Since loading began; loads and bytes as stored count that, too. */
	uint64_t expert_faults;		/* experts that a job had to wait for, */
	uint64_t expert_waits;		/* in so many waits */
	uint64_t expert_loads, expert_evictions, expert_bytes_read;
	uint64_t expert_stall_ns;	/* wall clock, from hearing of a fault to binding */
	uint64_t expert_uses;		/* experts that commands worked with, */
	uint64_t expert_hits;		/* those that were there at once */
	uint64_t expert_hints;		/* experts that the device asked for ahead, */
	uint64_t expert_prefetches;	/* those that were read for it, */
	uint64_t expert_prefetches_used;	/* and those of them that came to use */
	uint64_t expert_fallbacks;	/* times that a copy of lower precision stood in */
	/* Threshold in force; 0: the device's own, NPU_PREFETCH_OFF: none. */
	uint32_t prefetch_permille;
	bool has_guesses, has_low_experts, has_calibration;
};

/*
 * Loads @path into pools of @device and makes it ready to run. @options may be
 * NULL. -ENOENT/-EACCES the file, -EBADMSG not a valid .npu file (the message
 * names the section), -ENOMEM/-ENOSPC/-ENOBUFS/-EDQUOT no room, as pools and
 * buffers say, -ENOTSUP needs another target, -EINVAL options that do not suit
 * the model.
 */
int npu_model_load(struct npu_device *device, const char *path,
		   const struct npu_model_options *options,
		   struct npu_model **model);
void npu_model_free(struct npu_model *model);
/* Strings live as long as the model. Any thread. */
void npu_model_info(const struct npu_model *model, struct npu_model_info *info);
/*
 * How many tokens each expert worked on since the model was loaded: stores the
 * first @max of [expert_layers, experts], returns how many there are. Any thread.
 */
size_t npu_model_expert_use(const struct npu_model *model, uint64_t *uses,
			    size_t max);

/* ---- Tokens (any thread) ---- */

struct npu_tokenizer;

/* Of a loaded model; lives as long as it. */
const struct npu_tokenizer *npu_model_tokenizer(const struct npu_model *model);
/* From a tokenizer.json text. -EBADMSG with a message that says what. */
int npu_tokenizer_create(const char *json, size_t length, struct npu_tokenizer **tokenizer);
void npu_tokenizer_destroy(struct npu_tokenizer *tokenizer);

#define NPU_TOKENIZE_SPECIAL	(1u << 0)	/* "<|im_start|>" is one token */
#define NPU_TOKENIZE_BEGIN	(1u << 1)	/* with what begins a text (BOS), if the model wants it */

/*
 * Returns the number of tokens, of which at most @max are stored (so NULL, 0
 * counts). Invalid UTF-8 is taken as U+FFFD.
 */
int npu_tokenize(const struct npu_tokenizer *tokenizer, const char *text,
		 size_t length, uint32_t flags, int32_t *tokens, size_t max);
/*
 * The bytes of one token: returns their number, stores at most @max. A token
 * may hold a part of a UTF-8 sequence. Special tokens give nothing unless
 * NPU_TOKENIZE_SPECIAL.
 */
int npu_detokenize(const struct npu_tokenizer *tokenizer, int32_t token,
		   uint32_t flags, char *text, size_t max);

struct npu_chat_message {
	const char *role;	/* "system", "user", "assistant" */
	const char *content;
};

/*
 * Renders messages by the model's chat format and tokenizes: content is plain
 * text (special tokens in it are not honoured), the frame is not. Returns the
 * number of tokens. -ENOTSUP the model has no chat format, -EINVAL a role.
 */
int npu_chat_tokenize(const struct npu_model *model,
		      const struct npu_chat_message *messages, size_t count,
		      int32_t *tokens, size_t max);

/* ---- Running ---- */

/* One token of a step. Tokens of one slot have rising, gapless positions. */
struct npu_step_token {
	int32_t token;
	uint32_t position;	/* 0-based, below max_seq */
	uint32_t slot;
	bool out;		/* its logits are wanted; at most max_out a step */
};

struct npu_step_result {
	/* Row i belongs to the i-th token with out. Valid until the next step. */
	const float *logits;	/* [out_count, vocab] */
	const float *hidden;	/* [out_count, hidden] */
	const int32_t *topk_ids;	/* [out_count, topk], best first */
	const float *topk_values;
	uint32_t out_count, topk;
	uint64_t device_ns;	/* modelled device time of the step */
	uint32_t router_hits, router_misses, expert_faults;
};

/*
 * Runs @count tokens (1..max_tile), of any slots, in one job, and waits. Experts
 * that fault are brought in meanwhile; when one cannot be, the job is aborted and
 * the error is the expert's. -EINVAL bad token, slot or position;
 * -ETIME, -EIO, ... when the job failed: nothing of the step counts then. Its
 * tokens, or fewer of them, may be tried again at the same positions.
 */
int npu_model_step(struct npu_model *model, const struct npu_step_token *tokens,
		   uint32_t count, struct npu_step_result *result);

/* ---- Jobs of one's own ---- */

/*
 * Makes @buffer an immutable list of commands, encoded as the device reads
 * them. The CPU's view of it is gone, for good.
 */
int npu_buffer_seal(struct npu_buffer *buffer);

/* Device addresses that the commands' operands may name by its number. */
struct npu_job_region {
	uint64_t addr;		/* multiple of 64 */
	uint64_t size;
};

/* Not by a compute unit: COPY, FILL, COMPARE and LZ4_DECOMPRESS only. */
#define NPU_JOB_DMA_ENGINE	(1u << 0)

struct npu_job {
	const struct npu_buffer *commands;	/* sealed */
	uint64_t offset;	/* bytes into it, multiple of 64 */
	uint32_t count;		/* commands, of 64 bytes */
	uint32_t flags;		/* NPU_JOB_* */
	const struct npu_job_region *regions;
	uint32_t region_count;	/* at most 8 */
};

/*
 * Runs @job and waits for its end. @device_ns, if not NULL: the device's time
 * for it. -EINVAL the job or one of its commands, -EFAULT a device address that
 * is not there, -ETIME it hung, -EIO other failures; the message says which
 * command it was.
 */
int npu_job_run(struct npu_device *device, const struct npu_job *job,
		uint64_t *device_ns);

#ifdef __cplusplus
}
#endif

#endif
