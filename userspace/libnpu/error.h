/* SPDX-License-Identifier: MIT */
#ifndef NPU_ERROR_H
#define NPU_ERROR_H

/*
 * Sets the calling thread's message and returns @error, a negative errno, so
 * that a check is `return npu_fail(-EINVAL, "...")`. The message is one line
 * that says what was wrong and what to do.
 */
int npu_fail(int error, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The same for a failed allocation. */
int npu_fail_memory(void);
/* Puts "<text>: " before the message that is already set. */
void npu_error_prefix(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

#endif
