// SPDX-License-Identifier: MIT
/* npu_mem_pool_prealloc, from its arguments to what it says and does. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <drm/m6npu_accel.h>
#include <npu/npu.h>
#include <yyjson.h>
#include "../tap.h"
#include "fake_drm.h"

#define MIB	(1ull << 20)
#define GIB	(1ull << 30)

int prealloc_main(int argc, char **argv);
int __wrap_npu_device_open(int id, struct npu_device **device);

static char output[8192], conf_path[64];
static const char *conf = "";

/* The tool's device is the fake one. */
int __wrap_npu_device_open(int id, struct npu_device **device)
{
	*device = fake_open();
	return 0;
}

/* What was written to @file, as one line. */
static void take_output(FILE *file)
{
	char *p;
	size_t n;

	fflush(stdout);
	fflush(stderr);
	rewind(file);
	n = fread(output, 1, sizeof(output) - 1, file);
	output[n] = '\0';
	while ((p = strchr(output, '\n')))
		*p = ' ';
}

static int call(char **argv, int argc)
{
	FILE *file = tmpfile();
	int out = dup(1), err = dup(2), status;

	fflush(stdout);
	if (!file || out < 0 || err < 0)
		exit(2);
	dup2(fileno(file), 1);
	dup2(fileno(file), 2);
	status = prealloc_main(argc, argv);
	take_output(file);
	dup2(out, 1);
	dup2(err, 2);
	close(out);
	close(err);
	fclose(file);
	return status;
}

static void write_conf(void)
{
	FILE *file = fopen(conf_path, "w");

	if (!file || fputs(conf, file) < 0 || fclose(file))
		exit(2);
}

/* Runs the tool with the words of @line; its output is in @output then. */
static int run(const char *line)
{
	char words[512], *argv[32] = { NULL };
	char *save, *word;
	int argc = 0;

	snprintf(words, sizeof(words), "npu_mem_pool_prealloc --conf %s %s",
		 conf_path, line);
	write_conf();
	for (word = strtok_r(words, " ", &save); word && argc < 31;
	     word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	return call(argv, argc);
}

static bool says(const char *text)
{
	if (strstr(output, text))
		return true;
	printf("# not \"%s\" but: %s\n", text, output);
	return false;
}

static const struct fake_pool *pool(unsigned int i)
{
	return &fake.pools[i];
}

static void test_arguments(void)
{
	static const struct {
		const char *line, *answer;
	} rows[] = {
		{ "--size=24X", "size must be from 4 KiB to 256 GiB" },
		{ "--size=-1", "not '-1'" },
		{ "--size=100", "not '100'" },
		{ "--size=99999999999999999999", "size must be" },
		{ "--size=1T", "size must be" },
		{ "--segments=0", "segments must be a whole number from 1 to 16" },
		{ "--segments=1K", "not '1K'" },
		{ "--client-limit=many", "client-limit must be" },
		{ "--defrag=one", "defrag: ID must be a whole number" },
		{ "--info --flush", "at a time" },
		{ "--info --size=1G", "--size is for making a pool" },
		{ "--device=900", "device must be a whole number from 0 to 255" },
		{ "24G", "unexpected '24G'" },
		{ "--prealloc", "see --help" },
	};
	unsigned int i;

	fake_reset();
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		ok(run(rows[i].line) == 2 && says(rows[i].answer) &&
		   !fake.pools_created, "refused: %s", rows[i].line);
	ok(run("--help") == 0 && says("Usage:") && run("--version") == 0 &&
	   says("libnpu 0."), "help and version");
}

static void test_create(void)
{
	fake_reset();
	ok(run("--size=24G --segments 4 --client-limit=16G") == 0 &&
	   says("of 24 GiB in 1 segment made") && pool(0)->persistent &&
	   pool(0)->size == 24 * GIB && pool(0)->client_limit == 16 * GIB,
	   "a pool, which stays");
	ok(run("--size=20g") == 0 && says("of 24 GiB") &&
	   says("is there already") && fake.pools_created == 1,
	   "one that is large enough is left alone");
	ok(run("") == 0 && says("is there already") && fake.pools_created == 1,
	   "without a size any is");
	ok(run("--size=25G") == 1 && says("no pool of 25 GiB") &&
	   says("area 8 GiB") && says("cma="), "no room: %s", output);
	fake.fail_request = DRM_IOCTL_M6NPU_POOL_CREATE;
	fake.fail_error = -1;
	fake.fail_after = 0;
	ok(run("--size=25G") == 1 && says("root"), "no permission: %s", output);
}

static void test_create_largest(void)
{
	fake_reset();
	fake.cma_bytes = 1000 * MIB;
	ok(run("") == 0 && pool(0)->size == 992 * MIB,
	   "all of the area, in whole large pages");
	fake_reset();
	/* The first size does not fit, the second does. */
	fake.fail_request = DRM_IOCTL_M6NPU_POOL_CREATE;
	fake.fail_error = -12;
	ok(run("") == 0 && pool(0)->size == 30 * GIB, "as much as there is");
	fake_reset();
	fake.cma_bytes = 0;
	ok(run("") == 1 && says("give --size"), "an unknown area: %s", output);
}

static void test_conf(void)
{
	fake_reset();
	conf = "[npu_server]\nsize = 1\n[pool]\n# so\n size = 2G\n"
	       "client-limit=1G\n";
	ok(run("") == 0 && pool(0)->size == 2 * GIB &&
	   pool(0)->client_limit == GIB, "size and limit from the file");
	ok(run("--size=3G") == 0 && pool(1)->size == 3 * GIB,
	   "the command line wins");
	conf = "[pool]\nsise = 2G\n";
	ok(run("") == 2 && says(":2: unknown key 'sise'"), "%s", output);
	conf = "[pool]\nsize = 2X\n";
	ok(run("") == 2 && says(":2: size must be"), "%s", output);
	conf = "[pool]\nsize\n";
	ok(run("") == 2 && says(":2: no 'key=value'"), "%s", output);
	ok(run("--info") == 0, "other actions do not read it");
	conf = "";
	ok(run("--conf=/nowhere/npu.conf") == 2 && says("/nowhere/npu.conf"),
	   "%s", output);
}

static uint64_t number(yyjson_val *json, const char *key)
{
	return yyjson_get_uint(yyjson_obj_get(json, key));
}

static void test_json(void)
{
	yyjson_val *root, *first;
	yyjson_doc *doc;

	fake_reset();
	ok(run("--size=2G --client-limit=1G --json") == 0 &&
	   run("--size=4G --json") == 0, "made");
	doc = yyjson_read(output, strlen(output), 0);
	root = yyjson_doc_get_root(doc);
	first = yyjson_arr_get_first(yyjson_obj_get(root, "pools"));
	ok(yyjson_is_true(yyjson_obj_get(root, "created")) &&
	   number(first, "size") == 4 * GIB, "with what was made");
	yyjson_doc_free(doc);
	ok(run("--info -j") == 0, "info");
	doc = yyjson_read(output, strlen(output), 0);
	root = yyjson_doc_get_root(doc);
	first = yyjson_arr_get_first(yyjson_obj_get(root, "pools"));
	ok(yyjson_arr_size(yyjson_obj_get(root, "pools")) == 2 &&
	   number(root, "cma_bytes") == 26 * GIB &&
	   number(first, "id") == pool(0)->id &&
	   number(first, "size") == 2 * GIB &&
	   number(first, "client_limit") == GIB &&
	   number(first, "segments") == 1, "of all pools");
	yyjson_doc_free(doc);
	ok(run("--defrag -j") == 0, "defrag");
	doc = yyjson_read(output, strlen(output), 0);
	root = yyjson_doc_get_root(doc);
	ok(yyjson_arr_size(yyjson_obj_get(root, "pools")) == 2 &&
	   number(yyjson_arr_get_first(yyjson_obj_get(root, "pools")),
		  "largest_after") == 2 * GIB, "of all pools");
	yyjson_doc_free(doc);
}

static void test_upkeep(void)
{
	fake_reset();
	ok(run("--info") == 0 && says("contiguous area 32 GiB") &&
	   says("no shared pool"), "nothing to show");
	ok(run("--defrag") == 0 && run("--flush") == 0 &&
	   run("--release") == 0 && says("no shared pool"), "nothing to do");
	run("--size=2G");
	run("--size=4G");
	ok(run("--info") == 0 && says("2 GiB") && says("4 GiB") &&
	   says("LARGEST FREE"), "two to show");
	ok(run("--defrag") == 0 && fake.defrags == 2 &&
	   says("largest free block 4 GiB -> 4 GiB"), "both put in order");
	ok(run("--defrag=4098") == 0 && fake.defrags == 3 &&
	   says("pool 4098"), "or one");
	ok(run("--flush=4097") == 0 && says("8 KiB given back"), "flush");
	ok(run("--flush=9") == 1 && says("no pool 9"), "none such: %s", output);
	fake.fail_request = DRM_IOCTL_M6NPU_POOL_DESTROY;
	fake.fail_error = -16;
	fake.fail_after = 0;
	ok(run("--release") == 1 && says("4097 still holds") &&
	   says("4098 released") && pool(0)->id && !pool(1)->id,
	   "one that is in use stays: %s", output);
	ok(run("--release=4097") == 0 && !pool(0)->id, "released");
}

static char *read_source(const char *name)
{
	static char text[16384];
	char path[512];
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "%s/%s", SOURCE_ROOT, name);
	file = fopen(path, "r");
	if (!file) {
		perror(path);
		exit(2);
	}
	n = fread(text, 1, sizeof(text) - 1, file);
	text[n] = '\0';
	fclose(file);
	return text;
}

/* Each option of --help is in @file, as @prefix and its name. */
static bool told(const char *file, const char *prefix)
{
	const char *text = read_source(file), *p = output;
	char name[32], wanted[48];
	unsigned int count = 0;

	while ((p = strstr(p, " --"))) {
		if (sscanf(p += 3, "%31[a-z-]", name) != 1)
			continue;
		snprintf(wanted, sizeof(wanted), "%s%s", prefix, name);
		count++;
		if (!strstr(text, wanted)) {
			printf("# %s has no %s\n", file, wanted);
			return false;
		}
	}
	return count >= 12;
}

static void test_told_everywhere(void)
{
	run("--help");
	ok(told("Documentation/npu_mem_pool_prealloc.8", " -"),
	   "the man page has all options");
	ok(told("userspace/tools/npu_mem_pool_prealloc.bash", "--"),
	   "and so has the completion");
}

int main(void)
{
	snprintf(conf_path, sizeof(conf_path), "/tmp/npu-test-conf-%d",
		 getpid());
	test_arguments();
	test_create();
	test_create_largest();
	test_conf();
	test_json();
	test_upkeep();
	test_told_everywhere();
	unlink(conf_path);
	return done();
}
