/* SPDX-License-Identifier: MIT */
/*
 * The control socket: one command a line, one line of JSON in return. A
 * thread of its own serves it; a client that does not read its answers is
 * disconnected.
 */
#ifndef M6_CONTROL_H
#define M6_CONTROL_H

#include <stddef.h>

#include "device.h"

struct m6_control;

/* Listens at @path. NULL with errno set. */
struct m6_control *m6_control_create(struct m6_device *dev, const char *path);
void m6_control_destroy(struct m6_control *control);

/* What one line (without its end, modified) is answered with. */
void m6_control_command(struct m6_device *dev, char *line, char *answer,
			size_t bytes);

#endif
