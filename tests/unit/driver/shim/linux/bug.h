/* SPDX-License-Identifier: GPL-2.0-only */
/* A warning of the kernel's ends the test. */
#ifndef SHIM_LINUX_BUG_H
#define SHIM_LINUX_BUG_H

#include <stdio.h>
#include <stdlib.h>

#include <linux/build_bug.h>
#include <linux/compiler.h>

#define WARN(condition, ...) ({						\
	bool warn = !!(condition);					\
									\
	if (warn) {							\
		printf("Bail out! warning at %s:%d: %s\n", __FILE__,	\
		       __LINE__, #condition);				\
		abort();						\
	}								\
	warn;								\
})
#define WARN_ON(condition)	WARN(condition, "")

#endif
