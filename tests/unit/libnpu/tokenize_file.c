// SPDX-License-Identifier: MIT
/*
 * tokenize_file TOKENIZER.json TEXTS: for each text of TEXTS, its token ids in
 * a line. Texts are separated as llama.cpp's tests do it. With -s special
 * tokens are honoured. Also checks that tokens give the text back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <npu/npu.h>

#define SEPARATOR "\n__ggml_vocab_test__\n"

static char *read_all(const char *path, size_t *size)
{
	FILE *f = fopen(path, "rb");
	char *data;
	long n;

	if (!f || fseek(f, 0, SEEK_END) || (n = ftell(f)) < 0) {
		perror(path);
		exit(2);
	}
	rewind(f);
	data = calloc(1, (size_t)n + 1);
	if (!data || fread(data, 1, (size_t)n, f) != (size_t)n)
		exit(2);
	fclose(f);
	*size = (size_t)n;
	return data;
}

static int check_back(const struct npu_tokenizer *t, const int32_t *ids, int n,
		      const char *text, size_t size)
{
	size_t at = 0;
	char bytes[1024];
	int i, k;

	for (i = 0; i < n; i++) {
		k = npu_detokenize(t, ids[i], NPU_TOKENIZE_SPECIAL, bytes,
				   sizeof(bytes));
		if (k < 0 || at + (size_t)k > size ||
		    memcmp(text + at, bytes, (size_t)k))
			return -1;
		at += (size_t)k;
	}
	return at == size ? 0 : -1;
}

static int print(const struct npu_tokenizer *t, uint32_t flags,
		 const char *text, size_t size)
{
	int i, n = npu_tokenize(t, text, size, flags, NULL, 0);
	int32_t *ids;

	if (n < 0) {
		fprintf(stderr, "%s\n", npu_error());
		return 1;
	}
	ids = calloc((size_t)n + 1, sizeof(*ids));
	npu_tokenize(t, text, size, flags, ids, (size_t)n);
	for (i = 0; i < n; i++)
		printf(i ? " %d" : "%d", ids[i]);
	printf("\n");
	/* Not an error: a normalizer may have changed the text. */
	if (check_back(t, ids, n, text, size))
		fprintf(stderr, "tokens give back another form of \"%.*s\"\n",
			(int)size, text);
	free(ids);
	return 0;
}

int main(int argc, char **argv)
{
	bool special = argc > 1 && !strcmp(argv[1], "-s");
	struct npu_tokenizer *t;
	char *json, *texts, *p, *next, *end;
	size_t size;
	int ret = 0;

	argv += special;
	if (argc - special != 3)
		return 2;
	json = read_all(argv[1], &size);
	if (npu_tokenizer_create(json, size, &t)) {
		fprintf(stderr, "%s\n", npu_error());
		return 1;
	}
	texts = read_all(argv[2], &size);
	end = texts + size;
	for (p = texts; p < end && !ret; p = next + strlen(SEPARATOR)) {
		next = memmem(p, (size_t)(end - p), SEPARATOR,
			      strlen(SEPARATOR));
		if (!next)
			next = end;
		ret = print(t, special ? NPU_TOKENIZE_SPECIAL : 0, p,
			    (size_t)(next - p));
	}
	npu_tokenizer_destroy(t);
	free(texts);
	free(json);
	return ret;
}
