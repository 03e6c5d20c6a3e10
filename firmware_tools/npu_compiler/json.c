// SPDX-License-Identifier: MIT
#include "json.h"

#include <stdlib.h>
#include <string.h>

int json_open(const char *path, size_t max, struct json_file *file)
{
	yyjson_read_err error;

	memset(file, 0, sizeof(*file));
	if (read_file(path, max, &file->text, &file->bytes))
		return -1;
	file->doc = yyjson_read_opts(file->text, file->bytes, 0, NULL, &error);
	file->path = xstrdup(path);
	if (!file->doc) {
		fail("%s is not valid JSON: %s at byte %zu", path, error.msg,
		     error.pos);
		json_close(file);
		return -1;
	}
	file->root = yyjson_doc_get_root(file->doc);
	if (!yyjson_is_obj(file->root)) {
		fail("%s is not a JSON object", path);
		json_close(file);
		return -1;
	}
	return 0;
}

void json_close(struct json_file *file)
{
	yyjson_doc_free(file->doc);
	free(file->path);
	free(file->text);
	memset(file, 0, sizeof(*file));
}

yyjson_val *json_value(yyjson_val *object, const char *key)
{
	yyjson_val *value = yyjson_obj_get(object, key);

	return yyjson_is_null(value) ? NULL : value;
}

bool json_string_is(yyjson_val *object, const char *key, const char *text)
{
	return yyjson_equals_str(yyjson_obj_get(object, key), text);
}

int json_u32(const struct json_file *file, yyjson_val *object, const char *key,
	     uint32_t min, uint32_t max, uint32_t *value)
{
	yyjson_val *found = json_value(object, key);

	if (!found)
		return 0;
	if (!yyjson_is_uint(found) || yyjson_get_uint(found) < min ||
	    yyjson_get_uint(found) > max)
		return fail("%s: %s is not an integer from %u to %u",
			    file->path, key, min, max);
	*value = yyjson_get_uint(found);
	return 0;
}

int json_f64(const struct json_file *file, yyjson_val *object, const char *key,
	     double min, double max, double *value)
{
	yyjson_val *found = json_value(object, key);
	double number;

	if (!found)
		return 0;
	number = yyjson_get_num(found);
	if (!yyjson_is_num(found) || !(number >= min && number <= max))
		return fail("%s: %s is not a number from %g to %g",
			    file->path, key, min, max);
	*value = number;
	return 0;
}

int json_bool(const struct json_file *file, yyjson_val *object,
	      const char *key, bool *value)
{
	yyjson_val *found = json_value(object, key);

	if (!found)
		return 0;
	if (!yyjson_is_bool(found))
		return fail("%s: %s is neither true nor false", file->path,
			    key);
	*value = yyjson_get_bool(found);
	return 0;
}
