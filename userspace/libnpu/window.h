/* SPDX-License-Identifier: MIT */
/*
 * Windows: the device reaches memory behind one without its page tables.
 */
#ifndef NPU_WINDOW_H
#define NPU_WINDOW_H

#include "span.h"

/*
 * Puts windows over the populated buffers of @spans that are aligned for it, the
 * largest first, as long as the context has some. They go with the buffers.
 * Returns how many; none is no error, since results are the same without.
 */
uint32_t npu_windows_map(const struct npu_span *const *spans, size_t count);

#endif
