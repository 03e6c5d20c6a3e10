/* SPDX-License-Identifier: MIT */
#ifndef M6_VFIO_USER_PRIV_H
#define M6_VFIO_USER_PRIV_H

#include <pthread.h>

#include "vfio_user.h"

struct m6_vfio_user {
	struct m6_device *dev;
	pthread_mutex_t lock;	/* leaf; guards eventfd[] against the workers */
	int eventfd[M6NPU_VECTORS];
	bool negotiated;
	uint8_t in[M6_VFIO_USER_MAX_BYTES];
	uint8_t out[M6_VFIO_USER_MAX_BYTES];
};

#endif
