/* SPDX-License-Identifier: GPL-2.0-only */
/* What drm_mm.h expects to come with the kernel's, and drm_mm.c with others. */
#ifndef SHIM_LINUX_MM_TYPES_H
#define SHIM_LINUX_MM_TYPES_H

#include <errno.h>

#include <linux/bitops.h>
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/types.h>

#define clear_bit_unlock(bit, words)	__clear_bit(bit, words)

static inline u64 div64_u64_rem(u64 dividend, u64 divisor, u64 *remainder)
{
	*remainder = dividend % divisor;
	return dividend / divisor;
}

#endif
