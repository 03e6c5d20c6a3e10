/* SPDX-License-Identifier: MIT */
/* Typed, checked access to the values of a JSON file. */
#ifndef NPU_COMPILER_JSON_H
#define NPU_COMPILER_JSON_H

#include <yyjson.h>

#include "util.h"

struct json_file {
	char *path;
	yyjson_doc *doc;
	yyjson_val *root;	/* an object */
	char *text;		/* as read */
	size_t bytes;
};

int json_open(const char *path, size_t max, struct json_file *file);
void json_close(struct json_file *file);

/* The value, or NULL when it is absent or null. */
yyjson_val *json_value(yyjson_val *object, const char *key);
bool json_string_is(yyjson_val *object, const char *key, const char *text);

/*
 * Each leaves *@value alone when the key is absent or null, and fails when it
 * has another type or is out of range.
 */
int json_u32(const struct json_file *file, yyjson_val *object, const char *key,
	     uint32_t min, uint32_t max, uint32_t *value);
int json_f64(const struct json_file *file, yyjson_val *object, const char *key,
	     double min, double max, double *value);
int json_bool(const struct json_file *file, yyjson_val *object,
	      const char *key, bool *value);

#endif
