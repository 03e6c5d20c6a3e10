// SPDX-License-Identifier: MIT
#include <npu/npu.h>

#define STRING_(x)	#x
#define STRING(x)	STRING_(x)

const char *npu_version(void)
{
	return STRING(NPU_VERSION_MAJOR) "." STRING(NPU_VERSION_MINOR) "."
	       STRING(NPU_VERSION_PATCH);
}
