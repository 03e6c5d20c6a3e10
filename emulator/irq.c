// SPDX-License-Identifier: MIT
/* MSI-X vectors: the device's own mask, and losing them on request. */
#include <string.h>

#include "core.h"

#define ALL_VECTORS	((1u << M6NPU_VECTORS) - 1)

void m6_irqs_init(struct m6_irqs *irqs)
{
	memset(irqs, 0, sizeof(*irqs));
	pthread_mutex_init(&irqs->lock, NULL);
}

void m6_irqs_destroy(struct m6_irqs *irqs)
{
	pthread_mutex_destroy(&irqs->lock);
}

void m6_irqs_reset(struct m6_irqs *irqs)
{
	pthread_mutex_lock(&irqs->lock);
	irqs->mask = 0;
	irqs->pending = 0;
	memset(irqs->lose, 0, sizeof(irqs->lose));
	memset(irqs->raised, 0, sizeof(irqs->raised));
	pthread_mutex_unlock(&irqs->lock);
}

/*
 * The callback runs under the lock: whoever replaced it under the lock can be
 * sure that the old one is not running any more.
 */
static void irqs_deliver(struct m6_irqs *irqs, unsigned int vector)
{
	irqs->raised[vector]++;
	if (irqs->lose[vector])
		irqs->lose[vector]--;
	else if (irqs->raise)
		irqs->raise(irqs->opaque, vector);
}

void m6_irq_raise(struct m6_irqs *irqs, unsigned int vector)
{
	pthread_mutex_lock(&irqs->lock);
	if (irqs->mask >> vector & 1)
		irqs->pending |= 1u << vector;
	else
		irqs_deliver(irqs, vector);
	pthread_mutex_unlock(&irqs->lock);
}

void m6_irq_force(struct m6_irqs *irqs, unsigned int vector)
{
	pthread_mutex_lock(&irqs->lock);
	if (irqs->raise)
		irqs->raise(irqs->opaque, vector);
	pthread_mutex_unlock(&irqs->lock);
}

uint32_t m6_irqs_mask(struct m6_irqs *irqs)
{
	uint32_t mask;

	pthread_mutex_lock(&irqs->lock);
	mask = irqs->mask;
	pthread_mutex_unlock(&irqs->lock);
	return mask;
}

uint32_t m6_irqs_pending(struct m6_irqs *irqs)
{
	uint32_t pending;

	pthread_mutex_lock(&irqs->lock);
	pending = irqs->pending;
	pthread_mutex_unlock(&irqs->lock);
	return pending;
}

/* What was raised while masked is delivered when the mask goes. */
void m6_irqs_set_mask(struct m6_irqs *irqs, uint32_t mask)
{
	uint32_t ready;

	pthread_mutex_lock(&irqs->lock);
	irqs->mask = mask & ALL_VECTORS;
	ready = irqs->pending & ~irqs->mask;
	irqs->pending &= irqs->mask;
	for (unsigned int i = 0; i < M6NPU_VECTORS; i++)
		if (ready >> i & 1)
			irqs_deliver(irqs, i);
	pthread_mutex_unlock(&irqs->lock);
}

void m6_irqs_clear_pending(struct m6_irqs *irqs, uint32_t bits)
{
	pthread_mutex_lock(&irqs->lock);
	irqs->pending &= ~bits;
	pthread_mutex_unlock(&irqs->lock);
}
