/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_FDINFO_H
#define M6NPU_FDINFO_H

struct drm_file;
struct drm_printer;

void m6npu_fdinfo_show(struct drm_printer *p, struct drm_file *file);

#endif
