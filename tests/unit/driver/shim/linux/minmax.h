/* SPDX-License-Identifier: GPL-2.0-only */
/* min() and max() are elsewhere in tools/include. */
#include <linux/kernel.h>
