// SPDX-License-Identifier: MIT
/* The METADATA and CALIBRATION sections, and preload_config.json. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <npu/npu.h>
#include "../tap.h"
#include "metadata.h"
#include "preload.h"

#define HEAD "{\"name\":\"n\",\"architecture\":\"a\",\"quantization\":\"int4\""
#define CHAT ",\"chat\":{\"name\":\"chatml\",\"roles\":{" \
	"\"system\":{\"prefix\":\"S\",\"suffix\":\"s\"}," \
	"\"user\":{\"prefix\":\"U\",\"suffix\":\"u\"}," \
	"\"assistant\":{\"prefix\":\"A\",\"suffix\":\"a\"}}," \
	"\"generation\":\"G\",\"bos\":false,\"default_system\":\"D\"}}"

static int parse(struct npu_metadata *m, const char *json)
{
	return npu_metadata_parse(m, json, strlen(json));
}

static void test_full(void)
{
	struct npu_metadata m;

	ok(parse(&m, HEAD ",\"context_length\":4096,\"tokens\":{\"bos\":1,"
		 "\"eos\":[2,3],\"pad\":null,\"add_bos\":true}" CHAT) == 0,
	   "full metadata: %s", npu_error());
	ok(!strcmp(m.name, "n") && !strcmp(m.architecture, "a") &&
	   !strcmp(m.quantization, "int4") && m.context_length == 4096,
	   "names and context length");
	ok(m.bos == 1 && m.pad == -1 && m.eos_count == 2 && m.eos[1] == 3 &&
	   m.add_bos,
	   "tokens");
	ok(m.chat.present && !m.chat.bos &&
	   !strcmp(m.chat.roles[NPU_ROLE_ASSISTANT].suffix, "a") &&
	   !strcmp(m.chat.default_system, "D"), "chat format");
	npu_metadata_clear(&m);
}

static void test_least(void)
{
	struct npu_metadata m;

	ok(parse(&m, HEAD ",\"new\":{\"x\":[1]}}") == 0 && !m.chat.present &&
	   m.bos == -1 && !m.eos_count && !m.add_bos, "least metadata, unknown keys");
	npu_metadata_clear(&m);
	ok(parse(&m, HEAD ",\"chat\":null,\"tokens\":{\"bos\":null}}") == 0 &&
	   !m.chat.present, "nulls");
	npu_metadata_clear(&m);
}

static void test_bad_metadata(void)
{
	static const struct {
		const char *json, *text;
	} cases[] = {
		{ "", "not JSON" },
		{ "{\"name\":\"n\"", "not JSON" },
		{ "[]", "not an object" },
		{ "{}", "\"name\" is not there" },
		{ "{\"name\":7}", "\"name\" is not a string" },
		{ "{\"name\":\"a\\u0000b\"}", "\"name\" is not a string" },
		{ HEAD ",\"context_length\":-1}", "context_length" },
		{ HEAD ",\"context_length\":\"1\"}", "context_length" },
		{ HEAD ",\"tokens\":[]}", "tokens" },
		{ HEAD ",\"tokens\":{\"bos\":-3}}", "bos" },
		{ HEAD ",\"tokens\":{\"pad\":4294967296}}", "pad" },
		{ HEAD ",\"tokens\":{\"eos\":5}}", "eos" },
		{ HEAD ",\"tokens\":{\"eos\":[1,2,3,4,5,6,7,8,9]}}", "eos" },
		{ HEAD ",\"chat\":{}}", "chat" },
		{ HEAD ",\"chat\":{\"roles\":{}}}", "roles" },
		{ HEAD ",\"chat\":{\"roles\":{\"user\":{\"prefix\":\"\"}}}}",
		  "suffix" },
		{ HEAD ",\"chat\":{\"roles\":{\"user\":{\"prefix\":\"\","
		  "\"suffix\":\"\"}}}}", "generation" },
		{ HEAD ",\"chat\":{\"roles\":{\"user\":{\"prefix\":\"\","
		  "\"suffix\":\"\"}},\"generation\":\"\",\"bos\":true}}",
		  "bos" },
		{ HEAD ",\"chat\":{\"roles\":{\"user\":{\"prefix\":\"\","
		  "\"suffix\":\"\"}},\"generation\":\"\","
		  "\"default_system\":\"x\"}}", "default_system" },
	};
	struct npu_metadata m;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		ok(parse(&m, cases[i].json) == -EBADMSG &&
		   strstr(npu_error(), cases[i].text), "refused: %s",
		   npu_error());
}

static void test_preload(void)
{
	static const char json[] =
		"{\"expert_preload\":[{\"expert_id\":2,\"layer\":1,"
		"\"priority\":0.95},{\"expert_id\":2,\"priority\":0.92},"
		"{\"expert_id\":0,\"priority\":0}],"
		"\"prefill_buffer_size\":4096}";
	struct npu_preload p;
	uint32_t *order;

	npu_preload_init(&p, 2, 4);
	ok(npu_preload_parse(&p, json, strlen(json)) == 0, "preload: %s",
	   npu_error());
	ok(p.prefill_buffer_bytes == 4096, "prefill buffer");
	ok(p.permille[2] == 920 && p.permille[4 + 2] == 950,
	   "an entry for one layer wins");
	ok(p.permille[1] == NPU_PRELOAD_DEFAULT_PERMILLE && !p.named[1] &&
	   p.named[2] && p.named[4], "the others stay");
	order = npu_preload_order(&p);
	ok(order && order[0] == 6 && order[1] == 2 && order[2] == 1 &&
	   order[6] == 0 && order[7] == 4, "order is by priority, stable");
	free(order);
	npu_preload_clear(&p);
}

static bool calibrate(struct npu_preload *p, const char *json)
{
	return npu_preload_calibrate(p, json, strlen(json));
}

static void test_calibration(void)
{
	static const char *const others[] = {
		"", "{}", "[]", "{\"tokens\":10}", "{\"tokens\":10,\"layers\":[]}",
		"{\"tokens\":0,\"layers\":[{\"use\":[0,0]},{\"use\":[0,0]}]}",
		"{\"tokens\":10,\"layers\":[{\"use\":[1,2]},{\"use\":[1]}]}",
		"{\"tokens\":10,\"layers\":[{\"use\":[1,2]},{\"use\":[1,11]}]}",
		"{\"tokens\":10,\"layers\":[{\"use\":[1,2]},{\"use\":[1,-1]}]}",
	};
	struct npu_preload p;
	uint32_t *order;
	bool taken = false;
	size_t i;

	npu_preload_init(&p, 2, 2);
	for (i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		taken |= calibrate(&p, others[i]);
	ok(!taken && !p.chances, "calibration of other shapes is passed over");
	ok(calibrate(&p, "{\"version\":1,\"tokens\":10,\"layers\":["
			 "{\"use\":[1,9],\"spread\":1.5,\"together\":[]},"
			 "{\"use\":[10,0]}]}") &&
	   p.chances[0] < 0.2 && p.chances[1] > 0.8 && p.chances[2] < 1 &&
	   p.chances[3] > 0, "how popular experts are");
	order = npu_preload_order(&p);
	ok(order && order[0] == 2 && order[1] == 1 && order[2] == 0,
	   "order is by that");
	free(order);
	npu_preload_clear(&p);
}

static void test_bad_preload(void)
{
	static const struct {
		const char *json, *text;
	} cases[] = {
		{ "x", "not JSON" },
		{ "[]", "not an object" },
		{ "{\"expert_preload\":{}}", "not a list" },
		{ "{\"expert_preload\":[3]}", "entry 0" },
		{ "{\"expert_preload\":[{\"expert_id\":0,\"priority\":1},"
		  "{\"expert_id\":4,\"priority\":1}]}", "entry 1: the model has no expert 4" },
		{ "{\"expert_preload\":[{\"expert_id\":0,\"layer\":2,"
		  "\"priority\":1}]}", "no expert layer 2" },
		{ "{\"expert_preload\":[{\"expert_id\":0,\"layer\":-1,"
		  "\"priority\":1}]}", "layer" },
		{ "{\"expert_preload\":[{\"expert_id\":0}]}", "priority" },
		{ "{\"expert_preload\":[{\"expert_id\":0,\"priority\":1.01}]}",
		  "priority" },
		{ "{\"expert_preload\":[{\"expert_id\":0,\"priority\":-1}]}",
		  "priority" },
		{ "{\"prefill_buffer_size\":-4}", "prefill_buffer_size" },
	};
	struct npu_preload p;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		npu_preload_init(&p, 2, 4);
		ok(npu_preload_parse(&p, cases[i].json,
				     strlen(cases[i].json)) == -EINVAL &&
		   strstr(npu_error(), cases[i].text), "refused: %s",
		   npu_error());
		npu_preload_clear(&p);
	}
	npu_preload_init(&p, 0, 0);
	ok(npu_preload_parse(&p, "{\"expert_preload\":[]}", 21) == 0,
	   "an empty list suits a dense model");
	ok(npu_preload_read(&p, "/dev/null") == -EINVAL &&
	   strstr(npu_error(), "/dev/null: preload config"),
	   "a bad file is named: %s", npu_error());
	ok(npu_preload_read(&p, "/") == -EISDIR &&
	   strstr(npu_error(), "directory"), "a directory: %s", npu_error());
	ok(npu_preload_read(&p, "/nonexistent/p.json") == -ENOENT,
	   "no such file: %s", npu_error());
	npu_preload_clear(&p);
}

int main(void)
{
	test_full();
	test_least();
	test_bad_metadata();
	test_preload();
	test_calibration();
	test_bad_preload();
	return done();
}
