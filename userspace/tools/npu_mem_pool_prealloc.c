// SPDX-License-Identifier: MIT
/*
 * npu_mem_pool_prealloc: makes a memory pool that all users of an NPU share,
 * early, while contiguous memory is easy to find, and looks after such pools.
 * npu-init.service runs it at boot.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include <npu/npu.h>
#include "conf.h"
#include "size.h"

#define PROGRAM		"npu_mem_pool_prealloc"
#define MAX_POOLS	128
#define STATUS_USAGE	2
/* A pool of no size in particular takes what it can in steps of this. */
#define PARTS		16
#define LEAST_PARTS	8
#define LARGE_PAGE	(32ull << 20)

static const char usage[] =
	"Usage: npu_mem_pool_prealloc [OPTION...]\n"
	"Makes a memory pool that all users of an M6 NPU share, unless there is one of\n"
	"at least that size. SIZE is bytes, or with K, M, G or T.\n"
	"\n"
	"      --size SIZE          of the pool (the largest that can be had)\n"
	"      --segments N         contiguous pieces it may come in (1)\n"
	"      --client-limit SIZE  that one program may hold of it (all)\n"
	"\n"
	"Instead of that:\n"
	"      --info               show the pools\n"
	"      --defrag[=ID]        move buffers so that free memory is contiguous\n"
	"      --flush[=ID]         give back what nothing needs\n"
	"      --release[=ID]       give back the pool\n"
	"Without an ID, all shared pools are meant.\n"
	"\n"
	"  -d, --device N           /dev/accel/accelN (0)\n"
	"  -j, --json               print one JSON object instead\n"
	"      --conf FILE          configuration file [" NPU_CONF_DEFAULT ", if there is one];\n"
	"                           size, segments and client-limit are keys of [pool]\n"
	"  -h, --help               this text\n"
	"  -V, --version            version of libnpu\n";

enum action { CREATE, INFO, DEFRAG, FLUSH, RELEASE };

enum key { SIZE, SEGMENTS, CLIENT_LIMIT, KEYS };

struct options {
	enum action action;
	uint32_t id;			/* 0: all persistent pools */
	uint64_t keys[KEYS];
	bool given[KEYS];		/* on the command line, which wins */
	int device;
	bool json;
	const char *conf;
};

/* One run, and what it has to tell. */
struct run {
	const struct options *options;
	struct npu_device *device;
	struct npu_device_info info;
	struct npu_pool_info pools[MAX_POOLS];
	int count;
	yyjson_mut_doc *doc;		/* NULL: text is wanted */
	yyjson_mut_val *list;
};

static int complain(const char *what)
{
	fprintf(stderr, PROGRAM ": %s\n", what);
	return -1;
}

/* ---- Options ---- */

static const struct key_row {
	const char *name;
	bool is_size;
	uint64_t low, high;
} key_rows[KEYS] = {
	[SIZE] = { "size", true, 4096, 1ull << 38 },
	[SEGMENTS] = { "segments", false, 1, 16 },
	[CLIENT_LIMIT] = { "client-limit", true, 0, 1ull << 38 },
};

static int set_number(const struct key_row *row, const char *text,
		      const char *where, uint64_t *value)
{
	if (!npu_size_parse(text, value) && *value >= row->low &&
	    *value <= row->high &&
	    (row->is_size || strspn(text, "0123456789") == strlen(text)))
		return 0;
	if (row->is_size)
		fprintf(stderr,
			PROGRAM ": %s: %s must be from %s to %s, as in 512M or 24G, not '%s'\n",
			where, row->name, npu_size(row->low).text,
			npu_size(row->high).text, text);
	else
		fprintf(stderr,
			PROGRAM ": %s: %s must be a whole number from %" PRIu64 " to %" PRIu64 ", not '%s'\n",
			where, row->name, row->low, row->high, text);
	return -1;
}

static int set_from_conf(void *user, const char *key, const char *text,
			 const char *where)
{
	struct options *o = user;
	uint64_t value;
	int i;

	for (i = 0; i < KEYS && strcmp(key_rows[i].name, key); i++)
		;
	if (i == KEYS) {
		fprintf(stderr,
			PROGRAM ": %s: unknown key '%s' in [pool]; it has size, segments and client-limit\n",
			where, key);
		return -1;
	}
	if (set_number(&key_rows[i], text, where, &value))
		return -1;
	if (!o->given[i])
		o->keys[i] = value;
	return 0;
}

static int set_key(struct options *o, enum key key, const char *text)
{
	o->given[key] = true;
	return set_number(&key_rows[key], text, "command line", &o->keys[key]);
}

static int set_id(const char *text, const char *name, uint32_t *id)
{
	static const struct key_row row = { "ID", false, 1, UINT32_MAX };
	uint64_t value;

	if (set_number(&row, text, name, &value))
		return -1;
	*id = (uint32_t)value;
	return 0;
}

static int set_action(struct options *o, enum action action, const char *name,
		      const char *id)
{
	if (o->action != CREATE)
		return complain("one of --info, --defrag, --flush and --release at a time");
	o->action = action;
	return id ? set_id(id, name, &o->id) : 0;
}

static int set_device(struct options *o, const char *text)
{
	static const struct key_row row = { "device", false, 0, 255 };
	uint64_t value;

	if (set_number(&row, text, "command line", &value))
		return -1;
	o->device = (int)value;
	return 0;
}

enum { OPT_KEYS = 1000, OPT_ACTIONS = 1100, OPT_CONF = 1200 };

static const struct option names[] = {
	{ "size", required_argument, NULL, OPT_KEYS + SIZE },
	{ "segments", required_argument, NULL, OPT_KEYS + SEGMENTS },
	{ "client-limit", required_argument, NULL, OPT_KEYS + CLIENT_LIMIT },
	{ "info", no_argument, NULL, OPT_ACTIONS + INFO },
	{ "defrag", optional_argument, NULL, OPT_ACTIONS + DEFRAG },
	{ "flush", optional_argument, NULL, OPT_ACTIONS + FLUSH },
	{ "release", optional_argument, NULL, OPT_ACTIONS + RELEASE },
	{ "conf", required_argument, NULL, OPT_CONF },
	{ "device", required_argument, NULL, 'd' },
	{ "json", no_argument, NULL, 'j' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ NULL, 0, NULL, 0 },
};

/* 0, -1 with a message, or 1 when all that was asked for is done. */
static int set_option(struct options *o, int c, int index)
{
	if (c >= OPT_KEYS && c < OPT_KEYS + KEYS)
		return set_key(o, (enum key)(c - OPT_KEYS), optarg);
	if (c >= OPT_ACTIONS && c < OPT_CONF)
		return set_action(o, (enum action)(c - OPT_ACTIONS),
				  names[index].name, optarg);
	switch (c) {
	case OPT_CONF:
		o->conf = optarg;
		return 0;
	case 'd':
		return set_device(o, optarg);
	case 'j':
		o->json = true;
		return 0;
	case 'h':
		fputs(usage, stdout);
		return 1;
	case 'V':
		printf(PROGRAM " (libnpu %s)\n", npu_version());
		return 1;
	default:
		return complain("see --help");
	}
}

static int check_options(const struct options *o)
{
	int i;

	for (i = 0; i < KEYS && o->action != CREATE; i++) {
		if (!o->given[i])
			continue;
		fprintf(stderr,
			PROGRAM ": --%s is for making a pool; give it without another action\n",
			key_rows[i].name);
		return -1;
	}
	return 0;
}

static int parse_options(struct options *o, int argc, char **argv)
{
	int c, index = 0, ret = 0;

	*o = (struct options){ .keys[SEGMENTS] = 1 };
	optind = 0;
	while (!ret && (c = getopt_long(argc, argv, "d:jhV", names,
					&index)) != -1)
		ret = set_option(o, c, index);
	if (!ret && optind < argc) {
		fprintf(stderr, PROGRAM ": unexpected '%s'; see --help\n",
			argv[optind]);
		ret = -1;
	}
	if (!ret)
		ret = check_options(o);
	if (!ret && o->action == CREATE)
		ret = npu_conf_read(PROGRAM, o->conf, "pool", set_from_conf, o);
	return ret;
}

/* ---- JSON ---- */

struct field {
	const char *name;
	size_t offset, bytes;
};

#define FIELD(type, name) \
	{ #name, offsetof(struct type, name), sizeof(((struct type *)0)->name) }

static const struct field pool_fields[] = {
	FIELD(npu_pool_info, size),
	FIELD(npu_pool_info, used),
	FIELD(npu_pool_info, pinned),
	FIELD(npu_pool_info, largest_free),
	FIELD(npu_pool_info, buffers),
	FIELD(npu_pool_info, segments),
	FIELD(npu_pool_info, client_used),
	FIELD(npu_pool_info, client_limit),
	{ 0 },
};

static const struct field flush_fields[] = {
	FIELD(npu_flush_report, freed),
	FIELD(npu_flush_report, released),
	FIELD(npu_flush_report, largest_free),
	{ 0 },
};

static const struct field defrag_fields[] = {
	FIELD(npu_defrag_report, largest_before),
	FIELD(npu_defrag_report, largest_after),
	FIELD(npu_defrag_report, free),
	FIELD(npu_defrag_report, moved),
	FIELD(npu_defrag_report, copied),
	FIELD(npu_defrag_report, copied_device),
	FIELD(npu_defrag_report, time_ns),
	FIELD(npu_defrag_report, pause_ns),
	FIELD(npu_defrag_report, buffers),
	FIELD(npu_defrag_report, stayed),
	{ 0 },
};

/* One more pool in the answer: its id, and the fields of @data. */
static void add_json(struct run *r, uint32_t id, const struct field *fields,
		     const void *data)
{
	yyjson_mut_val *pool = yyjson_mut_arr_add_obj(r->doc, r->list);

	yyjson_mut_obj_add_uint(r->doc, pool, "id", id);
	for (; fields->name; fields++) {
		const char *p = (const char *)data + fields->offset;
		uint32_t word;
		uint64_t value;

		memcpy(&word, p, sizeof(word));
		value = word;
		if (fields->bytes == sizeof(value))
			memcpy(&value, p, sizeof(value));
		yyjson_mut_obj_add_uint(r->doc, pool, fields->name, value);
	}
}

static int begin_json(struct run *r)
{
	yyjson_mut_val *root;

	r->doc = yyjson_mut_doc_new(NULL);
	root = yyjson_mut_obj(r->doc);
	r->list = yyjson_mut_arr(r->doc);
	if (!r->list)
		return complain("out of memory");
	yyjson_mut_doc_set_root(r->doc, root);
	yyjson_mut_obj_add_uint(r->doc, root, "cma_bytes", r->info.cma_bytes);
	yyjson_mut_obj_add_val(r->doc, root, "pools", r->list);
	return 0;
}

static int print_json(struct run *r)
{
	char *json = yyjson_mut_write(r->doc, YYJSON_WRITE_PRETTY, NULL);

	if (json)
		puts(json);
	free(json);
	return json ? 0 : complain("cannot write JSON");
}

/* ---- Making a pool ---- */

static int tell_pool(struct run *r, const struct npu_pool_info *info,
		     bool created)
{
	if (r->doc) {
		add_json(r, info->id, pool_fields, info);
		yyjson_mut_obj_add_bool(r->doc,
					yyjson_mut_doc_get_root(r->doc),
					"created", created);
		return 0;
	}
	printf("pool %" PRIu32 " of %s in %" PRIu32 " segment%s %s\n", info->id,
	       npu_size(info->size).text, info->segments,
	       info->segments == 1 ? "" : "s",
	       created ? "made" : "is there already");
	return 0;
}

static const struct npu_pool_info *find_pool(const struct run *r,
					     uint64_t size)
{
	int i;

	for (i = 0; i < r->count; i++)
		if (r->pools[i].size >= size)
			return &r->pools[i];
	return NULL;
}

static int try_create(struct run *r, uint64_t size, struct npu_pool **pool)
{
	const uint64_t *keys = r->options->keys;

	return npu_pool_create_persistent(r->device, size,
					  (uint32_t)keys[SEGMENTS],
					  keys[CLIENT_LIMIT], pool);
}

/* All of the contiguous area, or as much of it as nothing else has by now. */
static int create_largest(struct run *r, struct npu_pool **pool)
{
	uint64_t cma = r->info.cma_bytes, size;
	int parts, ret = -ENOMEM;

	if (!cma)
		return complain("the kernel does not tell how large the contiguous area is; give --size, or size in [pool] of " NPU_CONF_DEFAULT);
	for (parts = PARTS; parts >= LEAST_PARTS && ret == -ENOMEM; parts--) {
		size = cma / PARTS * (uint64_t)parts;
		if (size >= LARGE_PAGE)
			size = size / LARGE_PAGE * LARGE_PAGE;
		ret = try_create(r, size, pool);
	}
	return ret ? complain(npu_error()) : 0;
}

static int create(struct run *r)
{
	uint64_t size = r->options->keys[SIZE];
	const struct npu_pool_info *there = find_pool(r, size);
	struct npu_pool_info info;
	struct npu_pool *pool;
	int ret;

	if (there)
		return tell_pool(r, there, false);
	if (!size)
		ret = create_largest(r, &pool);
	else
		ret = try_create(r, size, &pool) ? complain(npu_error()) : 0;
	if (ret)
		return ret;
	ret = npu_pool_info(pool, &info) ? complain(npu_error()) :
					   tell_pool(r, &info, true);
	npu_pool_close(pool);
	return ret;
}

/* ---- Looking after pools ---- */

static int show_all(struct run *r)
{
	int i;

	for (i = 0; i < r->count && r->doc; i++)
		add_json(r, r->pools[i].id, pool_fields, &r->pools[i]);
	if (r->doc)
		return 0;
	printf("%s: contiguous area %s\n", r->info.node, r->info.cma_bytes ?
	       npu_size(r->info.cma_bytes).text : "unknown");
	if (!r->count) {
		printf("no shared pool; " PROGRAM " makes one\n");
		return 0;
	}
	printf("%10s %12s %12s %12s %12s %8s %8s %12s\n", "ID", "SIZE", "USED",
	       "PINNED", "LARGEST FREE", "BUFFERS", "SEGMENTS", "CLIENT LIMIT");
	for (i = 0; i < r->count; i++) {
		const struct npu_pool_info *p = &r->pools[i];

		printf("%10" PRIu32 " %12s %12s %12s %12s %8" PRIu32 " %8" PRIu32 " %12s\n",
		       p->id, npu_size(p->size).text, npu_size(p->used).text,
		       npu_size(p->pinned).text,
		       npu_size(p->largest_free).text, p->buffers, p->segments,
		       p->client_limit ? npu_size(p->client_limit).text : "-");
	}
	return 0;
}

static int defrag(struct run *r, struct npu_pool *pool, uint32_t id)
{
	struct npu_defrag_report d;

	if (npu_pool_defrag(pool, 0, &d))
		return complain(npu_error());
	if (r->doc) {
		add_json(r, id, defrag_fields, &d);
		return 0;
	}
	printf("pool %" PRIu32 ": largest free block %s -> %s of %s free; moved %" PRIu32 " buffers of %s, %" PRIu32 " stayed; copied %s, %s of it by the device; %.1f ms, jobs held back for %.1f ms at most\n",
	       id, npu_size(d.largest_before).text,
	       npu_size(d.largest_after).text, npu_size(d.free).text, d.buffers,
	       npu_size(d.moved).text, d.stayed, npu_size(d.copied).text,
	       npu_size(d.copied_device).text, (double)d.time_ns * 1e-6,
	       (double)d.pause_ns * 1e-6);
	return 0;
}

static int flush(struct run *r, struct npu_pool *pool, uint32_t id)
{
	struct npu_flush_report f;

	if (npu_pool_flush(pool, &f))
		return complain(npu_error());
	if (r->doc)
		add_json(r, id, flush_fields, &f);
	else
		printf("pool %" PRIu32 ": %s of closed buffers freed, %s given back to the system, largest free block %s\n",
		       id, npu_size(f.freed).text, npu_size(f.released).text,
		       npu_size(f.largest_free).text);
	return 0;
}

static int release(struct run *r, struct npu_pool *pool, uint32_t id)
{
	if (npu_pool_remove(r->device, id))
		return complain(npu_error());
	if (r->doc)
		add_json(r, id, &(struct field){ 0 }, NULL);
	else
		printf("pool %" PRIu32 " released\n", id);
	return 0;
}

static int (*const actions[])(struct run *r, struct npu_pool *pool,
			      uint32_t id) = {
	[DEFRAG] = defrag,
	[FLUSH] = flush,
	[RELEASE] = release,
};

static int act_on(struct run *r, uint32_t id)
{
	struct npu_pool *pool;
	int ret;

	if (npu_pool_open(r->device, id, &pool))
		return complain(npu_error());
	ret = actions[r->options->action](r, pool, id);
	npu_pool_close(pool);
	return ret;
}

/* All are tried, whatever becomes of one. */
static int act(struct run *r)
{
	int i, ret = 0;

	if (r->options->id)
		return act_on(r, r->options->id);
	if (!r->count && !r->doc)
		printf("no shared pool\n");
	for (i = 0; i < r->count; i++)
		if (act_on(r, r->pools[i].id))
			ret = -1;
	return ret;
}

static int run(struct run *r)
{
	int ret;

	if (npu_device_open(r->options->device, &r->device) ||
	    npu_device_info(r->device, &r->info))
		return complain(npu_error());
	/* A device just opened has no pools of its own. */
	r->count = npu_pool_list(r->device, r->pools, MAX_POOLS);
	if (r->count < 0)
		return complain(npu_error());
	if (r->options->json && begin_json(r))
		return -1;
	switch (r->options->action) {
	case CREATE:
		ret = create(r);
		break;
	case INFO:
		ret = show_all(r);
		break;
	default:
		ret = act(r);
	}
	if (r->doc && print_json(r))
		ret = -1;
	return ret;
}

int main(int argc, char **argv)
{
	struct options options;
	struct run r = { .options = &options };
	int ret = parse_options(&options, argc, argv);

	if (ret)
		return ret > 0 ? EXIT_SUCCESS : STATUS_USAGE;
	ret = run(&r);
	yyjson_mut_doc_free(r.doc);
	npu_device_close(r.device);
	return ret ? EXIT_FAILURE : EXIT_SUCCESS;
}
