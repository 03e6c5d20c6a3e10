// SPDX-License-Identifier: MIT
/*
 * Loading: from a file to a model that is ready to run.
 *
 * Everything that can be refused is looked at before memory is taken; weights
 * are then decoded straight into the memory the device reads.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <xf86drm.h>
#include <drm/m6npu_accel.h>

#include "device.h"
#include "error.h"
#include "model.h"
#include "pool.h"
#include "window.h"

#define TARGET "m6-mini"

struct loader {
	struct npu_model *model;
	struct npu_model_options options;
	struct npu_load_progress progress;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- Progress ---- */

static int report(struct loader *l)
{
	if (l->options.progress &&
	    l->options.progress(l->options.progress_user, &l->progress))
		return npu_fail(-ECANCELED, "loading was cancelled");
	return 0;
}

static int begin_stage(struct loader *l, enum npu_load_stage stage,
		       uint64_t total, uint32_t items)
{
	l->progress = (struct npu_load_progress){
		.stage = stage,
		.total = total,
		.item_count = items,
	};
	return report(l);
}

static int one_done(void *user, uint64_t bytes)
{
	struct loader *l = user;

	l->progress.done += bytes;
	l->progress.items++;
	return report(l);
}

/* ---- What the file says ---- */

static int read_text(struct loader *l, const char *path,
		     enum npu_section_type type,
		     int (*parse)(struct npu_model *model, const char *text,
				  size_t size))
{
	struct npu_file *file = l->model->file;
	int64_t i = npu_file_find(file, type, 0);
	void *text;
	size_t size;
	int ret;

	ret = npu_file_load_section(file, (uint32_t)i, &text, &size);
	if (ret)
		return ret;
	ret = parse(l->model, text, size);
	if (ret)
		npu_error_prefix("%s", path);
	free(text);
	return ret;
}

static int parse_metadata(struct npu_model *model, const char *text,
			  size_t size)
{
	return npu_metadata_parse(&model->metadata, text, size);
}

static int parse_tokenizer(struct npu_model *model, const char *text,
			   size_t size)
{
	return npu_tokenizer_create(text, size, &model->tokenizer);
}

/*
 * Whether a text begins with BOS stands in tokenizer.json or, for other models,
 * beside it, from where the compiler knows it.
 */
static int settle_begin(struct npu_model *m)
{
	struct npu_ids *begin = &m->tokenizer->begin;

	if (m->metadata.add_bos && !begin->count)
		return npu_ids_add(begin, m->metadata.bos);
	return 0;
}

static int check_target(struct loader *l, const char *path)
{
	const struct npu_file_header *h = npu_file_header(l->model->file);

	if (strncmp(h->target, TARGET, sizeof(h->target)))
		return npu_fail(-ENOTSUP,
				"%s: made for target \"%.*s\"; compile it with --target " TARGET,
				path, (int)sizeof(h->target), h->target);
	return 0;
}

/* A user's priorities say more than what was popular elsewhere. */
static bool has_priorities(const struct npu_preload *preload)
{
	uint32_t i;

	for (i = 0; i < preload->layers * preload->experts; i++)
		if (preload->named[i])
			return true;
	return false;
}

static int parse_calibration(struct npu_model *m, const char *text, size_t size)
{
	m->calibrated = true;
	if (!has_priorities(&m->preload))
		m->calibrated = npu_preload_calibrate(&m->preload, text, size);
	return 0;
}

static int read_preload(struct loader *l, const char *path)
{
	struct npu_model *m = l->model;
	int ret;

	ret = npu_preload_init(&m->preload, m->runtime.expert_layers,
			       m->runtime.experts);
	if (!ret && l->options.preload_config)
		ret = npu_preload_read(&m->preload, l->options.preload_config);
	if (ret || npu_file_find(m->file, NPU_SECTION_CALIBRATION, 0) < 0)
		return ret;
	return read_text(l, path, NPU_SECTION_CALIBRATION, parse_calibration);
}

/* ---- Reading ahead ---- */

static int check_prefetch(const struct npu_model_options *o)
{
	if (o->prefetch_permille > NPU_PREFETCH_OFF)
		return npu_fail(-EINVAL,
				"prefetch threshold %" PRIu32 " is above 1000 (1.0)",
				o->prefetch_permille);
	if (!o->prefetch_low != !o->prefetch_high ||
	    o->prefetch_low > o->prefetch_high || o->prefetch_high > 1000)
		return npu_fail(-EINVAL,
				"the prefetch threshold cannot move between %" PRIu32 " and %" PRIu32 "; give two numbers of 1 to 1000, the lower one first",
				o->prefetch_low, o->prefetch_high);
	if (o->prefetch_permille == NPU_PREFETCH_OFF && o->prefetch_low)
		return npu_fail(-EINVAL,
				"with prefetching off there is no threshold that could move between %" PRIu32 " and %" PRIu32 "; give one or the other",
				o->prefetch_low, o->prefetch_high);
	return 0;
}

static int init_experts(struct loader *l)
{
	struct npu_model *m = l->model;
	struct npu_experts_options options = {
		.io = &m->io,
		.prefetch_permille = l->options.prefetch_permille,
		.prefetch_low = l->options.prefetch_low,
		.prefetch_high = l->options.prefetch_high,
	};

	/* Else copying to SRAM is all there is, as the device is set. */
	if (!options.prefetch_permille &&
	    (m->layout.experts_come || options.prefetch_low))
		options.prefetch_permille = NPU_PREFETCH_DEFAULT;
	return npu_experts_init(&m->experts, m->pool, m->file, &m->layout,
				&m->preload, &options);
}

/* No more tokens, and so rows of results, than have room for their experts. */
static void limit_step(struct npu_model *m)
{
	struct npu_runtime *r = &m->runtime;

	if (r->max_tile > m->layout.step_tokens)
		r->max_tile = m->layout.step_tokens;
	if (r->max_out > r->max_tile)
		r->max_out = r->max_tile;
}

static int plan(struct loader *l)
{
	struct npu_model *m = l->model;
	struct npu_layout_request request = {
		.slots = l->options.slots,
		.max_seq = l->options.max_seq,
		.kv_q8_0 = l->options.kv_q8_0,
		.experts_on_demand = l->options.experts_on_demand,
		.expert_budget = l->options.expert_budget,
		.expert_fallback = l->options.expert_fallback,
	};
	int ret;

	ret = npu_device_param(m->device, DRM_M6NPU_PARAM_MAX_CHUNK,
			       &request.max_chunk);
	if (!ret)
		ret = npu_layout_plan(&m->layout, m->file, &request);
	if (ret)
		return ret;
	limit_step(m);
	m->kv_shape = (struct npu_kv_shape){
		.capacity = m->layout.max_seq,
		.q8_0 = l->options.kv_q8_0,
		.slot_stride = m->layout.kv_slot_stride,
	};
	m->filled = calloc(m->layout.slots, sizeof(*m->filled));
	return m->filled ? 0 : npu_fail_memory();
}

static int read_file(struct loader *l, const char *path)
{
	struct npu_model *m = l->model;
	int ret;

	ret = npu_file_open(path, &m->file);
	if (ret)
		return ret;
	m->runtime = npu_file_header(m->file)->runtime;
	ret = check_target(l, path);
	if (!ret)
		ret = begin_stage(l, NPU_LOAD_CHECK,
				  npu_file_header(m->file)->file_bytes,
				  npu_file_section_count(m->file));
	if (!ret)
		ret = read_text(l, path, NPU_SECTION_METADATA, parse_metadata);
	if (!ret)
		ret = read_text(l, path, NPU_SECTION_TOKENIZER,
				parse_tokenizer);
	if (!ret)
		ret = settle_begin(m);
	if (!ret)
		ret = read_preload(l, path);
	return ret ? ret : plan(l);
}

/* ---- Memory ---- */

static int make_span(struct npu_model *m, struct npu_span *span, uint64_t size,
		     uint32_t flags, bool windows)
{
	int ret;

	ret = npu_span_init(span, m->pool, size, m->layout.chunk, flags,
			    windows);
	return ret ? ret : npu_span_populate(span, 0, size);
}

/*
 * Takes all of it before anything is read. Large parts first: they are the ones
 * that a fragmented pool fails.
 */
static int take_buffers(struct loader *l)
{
	struct npu_model *m = l->model;
	const struct npu_layout *lay = &m->layout;
	struct npu_pool_info info = { 0 };
	uint64_t addr = 0;
	int ret;

	ret = npu_pool_info(m->pool, &info);
	m->pool_bytes = info.size;
	if (!ret)
		ret = make_span(m, &m->weights, lay->weights,
				NPU_BUFFER_READONLY, lay->weights_windows);
	if (!ret)
		ret = init_experts(l);
	if (!ret)
		ret = make_span(m, &m->kv, lay->kv, 0, false);
	if (!ret)
		ret = make_span(m, &m->scratch, lay->scratch, 0, false);
	if (!ret)
		ret = make_span(m, &m->io, lay->io, 0, false);
	if (!ret)
		ret = npu_buffer_create(m->pool, lay->commands, 0, &addr,
					&m->commands);
	if (ret)
		return ret;
	npu_span_unmap(&m->kv);
	npu_span_unmap(&m->scratch);
	return 0;
}

/* Somebody else took it, or it came in pieces that do not suit. */
static bool lacks_room(int error)
{
	return error == -ENOSPC || error == -ENOBUFS || error == -EDQUOT ||
	       error == -ENOENT;
}

/* 0 with no pool in the model: there is none that does. */
static int take_shared(struct loader *l)
{
	struct npu_model *m = l->model;
	int ret;

	ret = npu_pool_find(m->device, m->layout.pool, &m->pool);
	if (ret || !m->pool)
		return ret;
	m->own_pool = true;
	ret = take_buffers(l);
	if (!lacks_room(ret))
		return ret;
	npu_model_release_memory(m);
	return 0;
}

/* Room for aligned buffers if it can be had, else without. */
static int take_private(struct loader *l)
{
	struct npu_model *m = l->model;
	const struct npu_layout *lay = &m->layout;
	int ret = -ENOMEM;

	if (lay->window_slack)
		ret = npu_pool_create(m->device, lay->pool + lay->window_slack,
				      0, 1, &m->pool);
	if (ret == -ENOMEM || ret == -EDQUOT)
		ret = npu_pool_create(m->device, lay->pool, 0, 1, &m->pool);
	if (ret)
		return ret;
	m->own_pool = true;
	return take_buffers(l);
}

static int take_memory(struct loader *l)
{
	struct npu_model *m = l->model;
	int ret = 0;

	m->pool = l->options.pool;
	if (m->pool)
		return take_buffers(l);
	if (!l->options.private_pool)
		ret = take_shared(l);
	if (ret || m->pool)
		return ret;
	return take_private(l);
}

static int make_sync(struct npu_model *m)
{
	int ret;

	ret = drmSyncobjCreate(npu_device_fd(m->device), 0, &m->syncobj);
	if (ret)
		return npu_device_fail(m->device, ret < -1 ? ret : -errno,
				       "cannot create a syncobj");
	m->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (m->eventfd < 0)
		return npu_fail(-errno, "cannot create an eventfd: %s",
				strerror(errno));
	return 0;
}

/* ---- Contents ---- */

static int load_commands(struct npu_model *m)
{
	uint64_t bytes;
	uint32_t k;
	char *cpu;
	int ret;

	m->tiles = npu_layout_tiles(m->file, &m->tile_count, &bytes);
	if (!m->tiles)
		return npu_fail_memory();
	cpu = npu_buffer_map(m->commands);
	if (!cpu)
		return -ENOMEM;
	for (k = 0; k < m->tile_count; k++) {
		const struct npu_tile *t = &m->tiles[k];

		ret = npu_file_read_section(m->file, t->section,
					    cpu + t->offset, bytes - t->offset);
		if (ret)
			return ret;
	}
	ret = npu_buffer_sync_to_device(m->commands, 0, bytes);
	return ret ? ret : npu_buffer_seal(m->commands);
}

static uint32_t count_static(const struct npu_file *file)
{
	uint32_t n = 0;
	int64_t i = -1;

	while ((i = npu_file_find(file, NPU_SECTION_STATIC,
				  (uint32_t)(i + 1))) >= 0)
		n++;
	return n;
}

static int load_static(struct loader *l)
{
	struct npu_model *m = l->model;
	int64_t i = -1;
	int ret;

	ret = begin_stage(l, NPU_LOAD_STATIC, m->layout.weights,
			  count_static(m->file));
	while (!ret && (i = npu_file_find(m->file, NPU_SECTION_STATIC,
					  (uint32_t)(i + 1))) >= 0) {
		const struct npu_section *s =
			npu_file_section(m->file, (uint32_t)i);

		ret = npu_file_read_section(m->file, (uint32_t)i,
					    m->weights.cpu + s->dest,
					    m->weights.size - s->dest);
		if (!ret)
			ret = npu_span_sync_to_device(&m->weights, s->dest,
						      s->loaded_bytes);
		if (!ret)
			ret = one_done(l, s->loaded_bytes);
	}
	npu_span_unmap(&m->weights);
	return ret;
}

static int load_experts(struct loader *l)
{
	struct npu_model *m = l->model;
	bool named_only = l->options.experts_on_demand;
	uint64_t bytes;
	uint32_t count;
	int ret;

	if (!m->runtime.expert_layers)
		return 0;
	m->expert_bytes = npu_experts_bytes(&m->experts);
	npu_experts_chosen(&m->experts, named_only, &count, &bytes);
	ret = begin_stage(l, NPU_LOAD_EXPERTS, bytes, count);
	if (!ret)
		ret = npu_experts_load(&m->experts, named_only, one_done, l);
	return ret;
}

/* Over weights only: windows are few, and what they map cannot be moved. */
static void map_windows(struct npu_model *m)
{
	const struct npu_span *spans[2];
	size_t count = 0;

	if (m->layout.weights_windows)
		spans[count++] = &m->weights;
	if (m->layout.experts_windows)
		spans[count++] = &m->experts.span;
	m->windows = npu_windows_map(spans, count);
}

static int load(struct loader *l, const char *path)
{
	struct npu_model *m = l->model;
	int ret;

	ret = read_file(l, path);
	if (!ret)
		ret = take_memory(l);
	if (!ret)
		ret = make_sync(m);
	if (!ret)
		ret = load_commands(m);
	if (!ret)
		ret = load_static(l);
	if (!ret)
		ret = load_experts(l);
	if (ret)
		return ret;
	map_windows(m);
	/* With everything in, and to stay, nothing is read again. */
	if (!m->layout.experts_come) {
		npu_experts_close_file(&m->experts);
		npu_file_close(m->file);
		m->file = NULL;
	}
	return 0;
}

int npu_model_load(struct npu_device *device, const char *path,
		   const struct npu_model_options *options,
		   struct npu_model **out)
{
	struct loader l = { 0 };
	uint64_t start = now_ns();
	int ret;

	if (options && (options->size < sizeof(options->size) ||
			options->size > sizeof(l.options)))
		return npu_fail(-EINVAL,
				"options of %zu bytes, not %zu; set options.size to sizeof(options)",
				options->size, sizeof(l.options));
	/* A caller built with an older header has fewer of them. */
	if (options)
		memcpy(&l.options, options, options->size);
	ret = check_prefetch(&l.options);
	if (ret)
		return ret;
	l.model = calloc(1, sizeof(*l.model));
	if (!l.model)
		return npu_fail_memory();
	l.model->device = device;
	l.model->eventfd = -1;
	ret = load(&l, path);
	if (ret) {
		npu_model_free(l.model);
		return ret;
	}
	l.model->load_ns = now_ns() - start;
	*out = l.model;
	return 0;
}
