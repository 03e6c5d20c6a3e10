/* SPDX-License-Identifier: MIT */
/* /etc/npu.conf: an INI file, in which each program has a section. */
#ifndef NPU_CONF_H
#define NPU_CONF_H

#include <stdbool.h>

#define NPU_CONF_DEFAULT "/etc/npu.conf"

/* @where, "/etc/npu.conf:3", is for messages. Other than 0 ends the reading. */
typedef int npu_conf_set(void *user, const char *key, const char *value,
			 const char *where);

/*
 * Hands the keys of "[@section]" to @set; other sections are other programs'.
 * @path NULL: the default file, if there is one. 0, what @set returned, or -1
 * when a message of @program was printed.
 */
int npu_conf_read(const char *program, const char *path, const char *section,
		  npu_conf_set *set, void *user);

#endif
