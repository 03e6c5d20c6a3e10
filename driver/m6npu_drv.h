/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef M6NPU_DRV_H
#define M6NPU_DRV_H

#define M6NPU_DRIVER_NAME	"m6npu"
#define M6NPU_DRIVER_DESC	"M6 mini NPU"
/*
 * Interface versions:
 * 1.0 - initial
 */
#define M6NPU_DRIVER_MAJOR	1
#define M6NPU_DRIVER_MINOR	0

/* Module parameters, see m6npu_drv.c. */
extern unsigned int m6npu_job_timeout_ms;
extern unsigned int m6npu_expert_timeout_ms;

#endif
