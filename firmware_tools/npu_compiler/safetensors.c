// SPDX-License-Identifier: MIT
/*
 * A safetensors file is eight bytes of header length, a JSON header that gives
 * each tensor a type, a shape and a byte range, and the data. Nothing of the
 * header is believed before it is checked against the file.
 */
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json.h"
#include "m6npu_regs.h"

#define MAX_HEADER_BYTES	(100u << 20)	/* the format's own limit */
#define MAX_INDEX_BYTES		(256u << 20)
#define MAX_NAME_BYTES		512

static const struct dtype {
	const char *name;
	uint8_t type;
	uint8_t bytes;
} dtypes[] = {
	{ "F32", M6NPU_TYPE_F32, 4 },
	{ "F16", M6NPU_TYPE_F16, 2 },
	{ "BF16", M6NPU_TYPE_BF16, 2 },
	/* Known, so that their sizes can be checked; not readable. */
	{ "F64", M6NPU_TYPE_COUNT, 8 },
	{ "I64", M6NPU_TYPE_COUNT, 8 },
	{ "U64", M6NPU_TYPE_COUNT, 8 },
	{ "I32", M6NPU_TYPE_COUNT, 4 },
	{ "U32", M6NPU_TYPE_COUNT, 4 },
	{ "I16", M6NPU_TYPE_COUNT, 2 },
	{ "U16", M6NPU_TYPE_COUNT, 2 },
	{ "I8", M6NPU_TYPE_COUNT, 1 },
	{ "U8", M6NPU_TYPE_COUNT, 1 },
	{ "BOOL", M6NPU_TYPE_COUNT, 1 },
	{ "F8_E4M3", M6NPU_TYPE_COUNT, 1 },
	{ "F8_E5M2", M6NPU_TYPE_COUNT, 1 },
};

static const struct dtype *find_dtype(yyjson_val *value)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(dtypes); i++)
		if (yyjson_equals_str(value, dtypes[i].name))
			return &dtypes[i];
	return NULL;
}

static int read_shape(const char *path, yyjson_val *shape,
		      struct tensor *tensor, uint64_t *elements)
{
	yyjson_val *dim;
	size_t i, count;

	if (!yyjson_is_arr(shape) ||
	    yyjson_arr_size(shape) > TENSOR_MAX_DIMS)
		return fail("%s: tensor %s has no shape of at most %d dimensions",
			    path, tensor->name, TENSOR_MAX_DIMS);
	*elements = 1;
	yyjson_arr_foreach(shape, i, count, dim) {
		if (!yyjson_is_uint(dim) ||
		    __builtin_mul_overflow(*elements, yyjson_get_uint(dim),
					   elements))
			return fail("%s: tensor %s has an impossible shape",
				    path, tensor->name);
		tensor->shape[i] = yyjson_get_uint(dim);
	}
	tensor->dims = count;
	return 0;
}

static int read_range(const char *path, yyjson_val *offsets,
		      uint64_t data_bytes, struct tensor *tensor,
		      uint64_t *begin)
{
	yyjson_val *first = yyjson_arr_get(offsets, 0);
	yyjson_val *last = yyjson_arr_get(offsets, 1);
	uint64_t end;

	if (yyjson_arr_size(offsets) != 2 || !yyjson_is_uint(first) ||
	    !yyjson_is_uint(last))
		return fail("%s: tensor %s has no data_offsets", path,
			    tensor->name);
	*begin = yyjson_get_uint(first);
	end = yyjson_get_uint(last);
	if (*begin > end || end > data_bytes)
		return fail("%s: tensor %s lies outside the file: it is truncated or damaged, fetch it again",
			    path, tensor->name);
	tensor->bytes = end - *begin;
	return 0;
}

static int read_tensor(const char *path, yyjson_val *entry,
		       const uint8_t *data, uint64_t data_bytes,
		       struct tensor *tensor)
{
	const struct dtype *dtype = find_dtype(yyjson_obj_get(entry, "dtype"));
	uint64_t elements = 0, expected, begin = 0;

	if (!dtype)
		return fail("%s: tensor %s has an unknown dtype", path,
			    tensor->name);
	if (read_shape(path, yyjson_obj_get(entry, "shape"), tensor,
		       &elements) ||
	    read_range(path, yyjson_obj_get(entry, "data_offsets"),
		       data_bytes, tensor, &begin))
		return -1;
	if (__builtin_mul_overflow(elements, (uint64_t)dtype->bytes,
				   &expected) ||
	    expected != tensor->bytes)
		return fail("%s: tensor %s has %llu bytes, which is not what its shape and %s take",
			    path, tensor->name,
			    (unsigned long long)tensor->bytes, dtype->name);
	tensor->dtype = dtype->name;
	tensor->type = dtype->type;
	tensor->data = data + begin;
	return 0;
}

static int read_header(const char *path, const uint8_t *file, uint64_t bytes,
		       struct tensor_set *set)
{
	struct tensor tensor;
	yyjson_val *key, *entry;
	yyjson_read_err error;
	uint64_t header_bytes;
	yyjson_doc *doc;
	size_t i, count;
	int ret = 0;

	if (bytes < sizeof(header_bytes))
		return fail("%s is too short for a safetensors file", path);
	memcpy(&header_bytes, file, sizeof(header_bytes));
	if (header_bytes > bytes - sizeof(header_bytes) ||
	    header_bytes > MAX_HEADER_BYTES)
		return fail("%s: the header's length does not fit the file: it is truncated or no safetensors file",
			    path);
	doc = yyjson_read_opts((char *)file + sizeof(header_bytes),
			       header_bytes, 0, NULL, &error);
	if (!doc)
		return fail("%s: the header is not valid JSON: %s", path,
			    error.msg);
	if (!yyjson_is_obj(yyjson_doc_get_root(doc)))
		ret = fail("%s: the header is not a JSON object", path);
	yyjson_obj_foreach(yyjson_doc_get_root(doc), i, count, key, entry) {
		if (ret || yyjson_equals_str(key, "__metadata__"))
			continue;
		if (yyjson_get_len(key) > MAX_NAME_BYTES ||
		    strlen(yyjson_get_str(key)) != yyjson_get_len(key)) {
			ret = fail("%s: a tensor has an impossible name", path);
			break;
		}
		memset(&tensor, 0, sizeof(tensor));
		tensor.name = xstrdup(yyjson_get_str(key));
		ret = read_tensor(path, entry, file + 8 + header_bytes,
				  bytes - 8 - header_bytes, &tensor);
		if (ret)
			free(tensor.name);
		else
			tensor_set_add(set, &tensor);
	}
	yyjson_doc_free(doc);
	return ret;
}

static int open_file(const char *path, struct tensor_set *set)
{
	struct stat st;
	void *map = MAP_FAILED;
	int fd;

	/* O_NONBLOCK: a FIFO must not hang us before fstat() says so. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return fail("cannot read %s: %s", path, strerror(errno));
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size)
		map = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return fail("%s is no file that can be mapped", path);
	tensor_set_keep(set, map, st.st_size);
	return read_header(path, map, st.st_size, set);
}

/* A plain name in the same folder, nothing that leads elsewhere. */
static bool good_file_name(const char *name)
{
	const char *suffix = ".safetensors";
	size_t bytes = name ? strlen(name) : 0;

	return bytes > strlen(suffix) && !strchr(name, '/') &&
	       !strcmp(name + bytes - strlen(suffix), suffix);
}

static int open_shards(const char *folder, const struct json_file *index,
		       struct tensor_set *set)
{
	yyjson_val *map = json_value(index->root, "weight_map"), *key, *file;
	const char **names, *name;
	size_t i, j, count, opened = 0;
	char *path;
	int ret = 0;

	if (!yyjson_is_obj(map))
		return fail("%s has no weight_map", index->path);
	names = xcalloc(yyjson_obj_size(map) + 1, sizeof(*names));
	yyjson_obj_foreach(map, i, count, key, file) {
		name = yyjson_get_str(file);
		if (!good_file_name(name)) {
			ret = fail("%s names a file that is not NAME.safetensors in the same folder",
				   index->path);
			break;
		}
		for (j = 0; j < opened && strcmp(names[j], name); j++)
			;
		if (j < opened)
			continue;
		names[opened++] = name;
		path = xasprintf("%s/%s", folder, name);
		ret = open_file(path, set);
		free(path);
		if (ret)
			break;
	}
	free(names);
	return ret;
}

static int check_index(const struct json_file *index,
		       const struct tensor_set *set)
{
	yyjson_val *map = json_value(index->root, "weight_map"), *key, *file;
	size_t i, count;

	yyjson_obj_foreach(map, i, count, key, file)
		if (!tensor_find(set, yyjson_get_str(key)))
			return fail("%s promises tensor %s in %s, which lacks it: fetch that file again",
				    index->path, yyjson_get_str(key),
				    yyjson_get_str(file));
	return 0;
}

static int open_indexed(const char *folder, const char *index_path,
			struct tensor_set *set)
{
	struct json_file index;
	int ret;

	if (json_open(index_path, MAX_INDEX_BYTES, &index))
		return -1;
	ret = open_shards(folder, &index, set);
	if (!ret)
		ret = tensor_set_complete(set);
	if (!ret)
		ret = check_index(&index, set);
	json_close(&index);
	return ret;
}

int safetensors_open_folder(const char *folder, struct tensor_set *set)
{
	char *single = xasprintf("%s/model.safetensors", folder);
	char *index = xasprintf("%s/model.safetensors.index.json", folder);
	int ret;

	/* Where both are, transformers takes the single file. */
	if (file_exists(single)) {
		ret = open_file(single, set);
		if (!ret)
			ret = tensor_set_complete(set);
	} else if (file_exists(index)) {
		ret = open_indexed(folder, index, set);
	} else {
		ret = fail("%s has neither model.safetensors nor model.safetensors.index.json: --input wants a Hugging Face model folder",
			   folder);
	}
	free(single);
	free(index);
	return ret;
}
