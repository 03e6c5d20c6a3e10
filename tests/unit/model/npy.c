// SPDX-License-Identifier: MIT
#include "npy.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HEADER	1024
#define PREFIX		"\x93NUMPY\x01\x00"

static bool parse_header(const char *header, struct npy *npy)
{
	const char *descr = strstr(header, "'descr': '<");
	const char *shape = strstr(header, "'shape': (");
	char *end;

	if (!descr || !shape || !strstr(header, "'fortran_order': False"))
		return false;
	descr += strlen("'descr': '<");
	npy->kind = descr[0];
	if ((npy->kind != 'f' && npy->kind != 'i') || descr[1] != '4')
		return false;
	npy->count = 1;
	for (shape += strlen("'shape': ("); *shape && *shape != ')';
	     shape = end + strspn(end, ", ")) {
		if (npy->dims == NPY_MAX_DIMS)
			return false;
		npy->shape[npy->dims] = strtoul(shape, &end, 10);
		if (end == shape)
			return false;
		npy->count *= npy->shape[npy->dims++];
	}
	return true;
}

static bool read_stream(FILE *stream, struct npy *npy)
{
	char prefix[10], header[MAX_HEADER + 1];
	size_t bytes;

	if (fread(prefix, 1, sizeof(prefix), stream) != sizeof(prefix) ||
	    memcmp(prefix, PREFIX, 8))
		return false;
	bytes = (uint8_t)prefix[8] | (uint8_t)prefix[9] << 8;
	if (bytes > MAX_HEADER || fread(header, 1, bytes, stream) != bytes)
		return false;
	header[bytes] = 0;
	if (!parse_header(header, npy))
		return false;
	npy->data = calloc(npy->count, 4);
	return npy->data && fread(npy->data, 4, npy->count, stream) ==
	       npy->count;
}

bool npy_read(const char *path, struct npy *npy)
{
	FILE *stream = fopen(path, "rb");
	bool good;

	memset(npy, 0, sizeof(*npy));
	if (!stream)
		return false;
	good = read_stream(stream, npy);
	fclose(stream);
	if (!good)
		free(npy->data);
	return good;
}

double npy_deviation(const struct npy *npy)
{
	const float *values = npy->data;
	double sum = 0, squares = 0;
	size_t i;

	for (i = 0; i < npy->count; i++) {
		sum += values[i];
		squares += values[i] * values[i];
	}
	sum /= npy->count;
	return sqrt(squares / npy->count - sum * sum);
}
