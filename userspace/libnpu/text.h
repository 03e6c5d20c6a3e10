/* SPDX-License-Identifier: MIT */
#ifndef NPU_TEXT_H
#define NPU_TEXT_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

/* Bytes that grow in number. */
struct npu_text {
	char *bytes;
	size_t size, room;
};

int npu_text_append(struct npu_text *text, const char *bytes, size_t size);
void npu_text_clear(struct npu_text *text);

/* Length of the valid UTF-8 sequence at @p, or 0. */
size_t npu_utf8_length(const char *p, const char *end);
/* The character at @p, which is valid. */
uint32_t npu_utf8_char(const char *p, size_t length);
/* Appends @bytes with every invalid part as one U+FFFD. */
int npu_text_append_utf8(struct npu_text *text, const char *bytes, size_t size);

enum npu_normal_form {
	NPU_FORM_NONE,
	NPU_FORM_NFC,
	NPU_FORM_NFD,
	NPU_FORM_NFKC,
	NPU_FORM_NFKD,
};

/* Appends valid UTF-8 @bytes in that form. */
int npu_text_append_form(struct npu_text *text, const char *bytes, size_t size,
			 enum npu_normal_form form);

#endif
