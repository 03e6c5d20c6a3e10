// SPDX-License-Identifier: MIT
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <npu/npu.h>
#include "buffer.h"
#include "error.h"
#include "experts_trial.h"
#include "fake_drm.h"
#include "pool.h"

struct trial t;

bool says(const char *text)
{
	return strstr(npu_error(), text);
}

uint32_t trial_section(uint32_t k)
{
	return npu_file_expert(t.file, k / t.e.experts, k % t.e.experts);
}

/* ---- The table ---- */

/* The bytes that an entry of the table names are its expert's. */
static bool right(const struct drm_m6npu_expert *x)
{
	uint32_t i = trial_section(x->layer * t.e.experts + x->expert);
	const struct npu_span *span = &t.e.span;

	if (x->state == DRM_M6NPU_EXPERT_ABSENT)
		return !x->addr && !x->size && !x->type;
	/* The copies' CPU view is gone when they are loaded. */
	if (x->type)
		return x->addr >= t.e.low.addr &&
		       x->addr + x->size <= t.e.low.addr + t.e.low.size;
	return x->addr >= span->addr &&
	       x->addr + x->size <= span->addr + span->size &&
	       x->size == t.b.sections[i].loaded_bytes &&
	       !memcmp(span->cpu + (x->addr - span->addr),
		       t.b.contents[i].loaded, x->size);
}

bool trial_table_right(void)
{
	uint32_t k;

	for (k = 0; k < fake.layers * fake.per_layer; k++)
		if (fake.experts[k].state && !right(&fake.experts[k]))
			return false;
	return true;
}

/* Nobody was overwritten while in the table, and who gets into it is there. */
static void check_bind(const struct drm_m6npu_expert *entries, uint32_t count)
{
	uint32_t i;

	t.always_right &= trial_table_right();
	for (i = 0; i < count; i++)
		t.always_right &= right(&entries[i]);
}

uint32_t trial_resident(void)
{
	uint32_t k, n = 0;

	for (k = 0; k < FAKE_EXPERTS; k++)
		n += fake.experts[k].state != DRM_M6NPU_EXPERT_ABSENT;
	return n;
}

unsigned int trial_state(uint32_t layer, uint32_t expert)
{
	return fake.experts[layer * t.e.experts + expert].state;
}

/* ---- Beginning and end ---- */

static void make_file(const struct trial_options *o)
{
	builder_init_experts(&t.b, o->layers ? o->layers : LAYERS,
			     o->experts ? o->experts : EXPERTS,
			     o->bytes ? o->bytes : 4000);
	t.b.header.runtime.guesses =
		t.b.header.runtime.experts < GUESSES ? 1 : GUESSES;
	if (o->silent)
		t.b.header.version_minor = t.b.header.runtime.guesses =
			t.b.header.runtime.routed_offset =
			t.b.header.runtime.guess_ids_offset =
			t.b.header.runtime.guess_chances_offset = 0;
	if (o->fallback)
		builder_add_low(&t.b);
	builder_place(&t.b);
	builder_seal(&t.b);
	snprintf(t.path, sizeof(t.path), "/tmp/npu-test-experts-%d.npu",
		 getpid());
	builder_write(&t.b, t.path);
}

static int make_experts(const struct trial_options *o)
{
	const struct npu_layout_request request = {
		/* Experts that lie in two buffers. */
		.max_chunk = 4096 + t.b.header.runtime.expert_bytes / 2,
		.expert_budget = o->budget,
		.expert_fallback = o->fallback,
		.experts_on_demand = o->on_demand,
	};
	const struct npu_experts_options options = {
		.io = &t.io,
		.prefetch_permille = o->threshold ? o->threshold :
						    NPU_PREFETCH_OFF,
		.prefetch_low = o->low,
		.prefetch_high = o->high,
	};
	int ret;

	ret = npu_layout_plan(&t.layout, t.file, &request);
	if (!ret)
		ret = npu_pool_create(t.device, t.layout.pool, 0, 1, &t.pool);
	if (ret)
		return ret;
	ret = npu_experts_init(&t.e, t.pool, t.file, &t.layout, &t.preload,
			       &options);
	if (!ret)
		ret = npu_span_init(&t.io, t.pool, t.layout.io, t.layout.chunk,
				    0, false);
	return ret ? ret : npu_span_populate(&t.io, 0, t.layout.io);
}

void trial_begin(const struct trial_options *o)
{
	const struct npu_runtime *r;
	int ret;

	memset(&t, 0, sizeof(t));
	fake_reset();
	gates_open();
	t.always_right = true;
	make_file(o);
	t.device = fake_open();
	ret = npu_file_open(t.path, &t.file);
	r = ret ? NULL : &npu_file_header(t.file)->runtime;
	if (!ret)
		ret = npu_preload_init(&t.preload, r->expert_layers,
				       r->experts);
	if (!ret && o->preload)
		ret = npu_preload_parse(&t.preload, o->preload,
					strlen(o->preload));
	if (!ret && o->calibration &&
	    !npu_preload_calibrate(&t.preload, o->calibration,
				   strlen(o->calibration)))
		ret = npu_fail(-EINVAL, "the calibration is not one");
	if (!ret)
		ret = make_experts(o);
	if (ret) {
		printf("Bail out! %s\n", npu_error());
		exit(1);
	}
	fake.on_bind = check_bind;
}

void trial_end(void)
{
	fake.on_bind = NULL;
	npu_experts_clear(&t.e);
	npu_span_clear(&t.io);
	npu_pool_destroy(t.pool);
	npu_preload_clear(&t.preload);
	npu_file_close(t.file);
	fake_close(t.device);
	unlink(t.path);
	builder_clear(&t.b);
}

/* ---- Steps ---- */

void trial_step(uint32_t rows)
{
	npu_experts_prepare(&t.e, rows);
	npu_experts_begin(&t.e, ++t.job);
	/* Of the step before: nobody may take it for this one's. */
	if (t.e.routed.ids_offset)
		memset(t.io.cpu + t.e.routed.ids_offset, 0xff,
		       4ul * LAYERS * t.e.routed.max_rows * TOP);
}

static char *choice(uint64_t offset, uint32_t layer, uint32_t row,
		    uint32_t columns, uint32_t n)
{
	return t.io.cpu + offset +
	       4ul * ((layer * t.e.routed.max_rows + row) * columns + n);
}

void trial_route(uint32_t layer, uint32_t row, int32_t first, int32_t second)
{
	const int32_t ids[TOP] = { first, second };

	memcpy(choice(t.e.routed.ids_offset, layer, row, TOP, 0), ids,
	       sizeof(ids));
}

void trial_guess(uint32_t layer, uint32_t row, uint32_t n, int32_t id,
		 float chance)
{
	const struct npu_routed *r = &t.e.routed;

	memcpy(choice(r->guess_ids_offset, layer, row, r->guesses, n), &id,
	       sizeof(id));
	memcpy(choice(r->guess_chances_offset, layer, row, r->guesses, n),
	       &chance, sizeof(chance));
}

static struct drm_m6npu_event_expert_fault event_of(uint32_t layer,
						    uint64_t mask)
{
	return (struct drm_m6npu_event_expert_fault){
		.job = t.job,
		.layer = layer,
		.mask = mask,
	};
}

int trial_fault(uint32_t layer, uint64_t mask)
{
	const struct drm_m6npu_event_expert_fault event = event_of(layer, mask);

	return npu_experts_fault(&t.e, &event);
}

void trial_hint(uint32_t layer, uint64_t mask)
{
	const struct drm_m6npu_event_expert_fault event = event_of(layer, mask);

	npu_experts_hint(&t.e, &event);
}

static uint64_t missing_of(uint32_t layer, uint64_t needed)
{
	uint64_t missing = 0;
	uint32_t i;

	for (i = 0; i < t.e.experts; i++)
		if (needed >> i & 1 && !trial_state(layer, i))
			missing |= 1ull << i;
	return missing;
}

int trial_command(uint32_t layer, uint64_t needed, unsigned int *turns)
{
	uint64_t missing;
	int ret = 0;

	for (*turns = 0; (missing = missing_of(layer, needed)) && !ret;
	     (*turns)++) {
		if (*turns > 64)
			return -ELOOP;
		ret = trial_fault(layer, missing);
	}
	return ret;
}

uint64_t trial_random(uint32_t layer, int odds)
{
	int a = rand() % EXPERTS, b = rand() % EXPERTS;

	trial_route(layer, 0, a, b);
	if (rand() % 2)
		trial_hint(layer, 1ull << a | 1ull << rand() % 16);
	if (rand() % 3 == 0)
		npu_experts_arrived(&t.e);
	if (rand() % odds == 0)
		gates_fail(trial_section(layer * EXPERTS), 1);
	return 1ull << a | 1ull << b;
}

void trial_arrive(void)
{
	struct pollfd fd = { npu_experts_fd(&t.e), POLLIN, 0 };

	if (poll(&fd, 1, 10000) != 1) {
		printf("Bail out! nothing arrives\n");
		exit(1);
	}
	npu_experts_arrived(&t.e);
}

/* ---- Reading ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool closed, open_on_await;
static unsigned int begun;
static uint32_t fail_section;
static unsigned int fail_count;
uint32_t gates_begun[64];

int __real_npu_file_decode_section(const struct npu_file *file, uint32_t i,
				   struct npu_pieces *pieces, void *dst,
				   size_t cap);
int __wrap_npu_file_decode_section(const struct npu_file *file, uint32_t i,
				   struct npu_pieces *pieces, void *dst,
				   size_t cap);
void __real_npu_shards_await(struct npu_shards *shards,
			     struct npu_shard *shard);
void __wrap_npu_shards_await(struct npu_shards *shards,
			     struct npu_shard *shard);

int __wrap_npu_file_decode_section(const struct npu_file *file, uint32_t i,
				   struct npu_pieces *pieces, void *dst,
				   size_t cap)
{
	bool fails;

	pthread_mutex_lock(&lock);
	if (begun < sizeof(gates_begun) / sizeof(gates_begun[0]))
		gates_begun[begun++] = i;
	pthread_cond_broadcast(&changed);
	while (closed)
		pthread_cond_wait(&changed, &lock);
	fails = fail_count && i == fail_section;
	fail_count -= fails;
	pthread_mutex_unlock(&lock);
	if (fails)
		return npu_fail(-EIO, "section %u: made to fail", i);
	return __real_npu_file_decode_section(file, i, pieces, dst, cap);
}

void __wrap_npu_shards_await(struct npu_shards *shards,
			     struct npu_shard *shard)
{
	if (open_on_await)
		gates_open();
	__real_npu_shards_await(shards, shard);
}

void gates_close(void)
{
	pthread_mutex_lock(&lock);
	closed = true;
	begun = 0;
	pthread_mutex_unlock(&lock);
}

void gates_open(void)
{
	pthread_mutex_lock(&lock);
	closed = open_on_await = false;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

void gates_open_on_await(void)
{
	open_on_await = true;
}

void gates_wait(unsigned int count)
{
	pthread_mutex_lock(&lock);
	while (begun < count)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

void gates_fail(uint32_t section, unsigned int count)
{
	pthread_mutex_lock(&lock);
	fail_section = section;
	fail_count = count;
	pthread_mutex_unlock(&lock);
}
