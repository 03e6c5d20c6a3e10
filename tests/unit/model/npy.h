/* SPDX-License-Identifier: MIT */
/* NumPy's array files: little-endian F32 and I32, C order. */
#ifndef MODEL_NPY_H
#define MODEL_NPY_H

#include <stdbool.h>
#include <stddef.h>

#define NPY_MAX_DIMS	4

struct npy {
	char kind;		/* 'f' or 'i' */
	size_t shape[NPY_MAX_DIMS];
	unsigned int dims;
	size_t count;
	void *data;		/* for free() */
};

/* False: not there, or not such a file. */
bool npy_read(const char *path, struct npy *npy);
/* Standard deviation of all F32 values. */
double npy_deviation(const struct npy *npy);

#endif
