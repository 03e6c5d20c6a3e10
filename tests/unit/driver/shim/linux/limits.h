/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SHIM_LINUX_LIMITS_H
#define SHIM_LINUX_LIMITS_H

#define U64_MAX		((u64)~0ull)

#endif
