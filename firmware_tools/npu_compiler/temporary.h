/* SPDX-License-Identifier: MIT */
/* Files that must not outlive the program. */
#ifndef NPU_COMPILER_TEMPORARY_H
#define NPU_COMPILER_TEMPORARY_H

#include "util.h"

/*
 * An empty file beside @path with permissions by umask. Returns what to write
 * to, or -1. Its name is in @temporary; whatever ends the program removes it,
 * until temporary_remove() or temporary_keep().
 */
int temporary_open(const char *path, char **temporary);
/* Removes the file if it is there, and frees its name. Takes NULL. */
void temporary_remove(char *temporary);
/* The file goes on under the name @path. */
int temporary_keep(char *temporary, const char *path);

#endif
