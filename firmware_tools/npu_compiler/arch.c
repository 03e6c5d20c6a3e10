// SPDX-License-Identifier: MIT
#include "arch.h"

#include <stdio.h>
#include <string.h>

static const struct arch *const tables[] = { arch_dense, arch_moe };

static void list_known(char *text, size_t room)
{
	const struct arch *arch;
	size_t i, at = 0;

	text[0] = 0;
	for (i = 0; i < ARRAY_SIZE(tables); i++)
		for (arch = tables[i]; arch->model_type && at < room; arch++)
			at += snprintf(text + at, room - at, "%s%s",
				       at ? ", " : "", arch->model_type);
}

const struct arch *arch_find(const struct hf_config *config)
{
	const struct arch *arch;
	char known[256];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(tables); i++)
		for (arch = tables[i]; arch->model_type; arch++) {
			if (strcmp(arch->model_type, config->model_type))
				continue;
			if (!strcmp(arch->class_name, config->class_name) ||
			    !config->class_name[0])
				return arch;
			fail("the model is a %s; of %s only %s can be compiled",
			     config->class_name, arch->model_type,
			     arch->class_name);
			return NULL;
		}
	list_known(known, sizeof(known));
	fail("architecture %s is not supported; supported: %s",
	     config->model_type, known);
	return NULL;
}
