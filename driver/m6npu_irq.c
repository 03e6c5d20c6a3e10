// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Interrupts
 *
 * Eight MSI-X vectors. Those of the rings end jobs, in the hard handler, with
 * nothing but reads of memory. Those of events and expert faults drain the
 * exception ring in a thread, since they allocate and send events. A vector
 * without anything to do for it is harmless, and one that gets lost is made
 * up for by the job's timeout (m6npu_reset.c).
 */
#include <linux/interrupt.h>
#include <linux/pci.h>

#include <drm/drm_print.h>

#include "m6npu_device.h"
#include "m6npu_drv.h"

static irqreturn_t m6npu_irq_ring(int irq, void *data)
{
	m6npu_ring_complete(data);
	return IRQ_HANDLED;
}

static irqreturn_t m6npu_irq_exception(int irq, void *data)
{
	m6npu_exceptions_drain(data);
	return IRQ_HANDLED;
}

static irqreturn_t m6npu_irq_firmware(int irq, void *data)
{
	struct m6npu_device *m6npu = data;

	m6npu_device_identify(m6npu);
	drm_dbg(&m6npu->drm, "firmware %08x, features %#x\n",
		m6npu->fw_version, m6npu->features);
	return IRQ_HANDLED;
}

static int m6npu_irq_thread(struct m6npu_device *m6npu, unsigned int vector,
			    irq_handler_t handler, const char *name)
{
	int irq = pci_irq_vector(m6npu->pdev, vector);

	if (irq < 0)
		return irq;
	return devm_request_threaded_irq(&m6npu->pdev->dev, irq, NULL, handler,
					 IRQF_ONESHOT, name, m6npu);
}

static int m6npu_irq_rings(struct m6npu_device *m6npu)
{
	struct m6npu_ring *ring;
	unsigned int i, vector;
	int ret, irq;

	for (i = 0; i < M6NPU_RINGS; i++) {
		ring = &m6npu->ring[i];
		vector = i < M6NPU_UNITS ? M6NPU_VEC_UNIT(i) : M6NPU_VEC_DMA;
		irq = pci_irq_vector(m6npu->pdev, vector);
		if (irq < 0)
			return irq;
		ret = devm_request_irq(&m6npu->pdev->dev, irq, m6npu_irq_ring,
				       0, m6npu_ring_name(ring), ring);
		if (ret)
			return ret;
	}
	return 0;
}

int m6npu_irq_init(struct m6npu_device *m6npu)
{
	int ret;

	ret = pci_alloc_irq_vectors(m6npu->pdev, M6NPU_VECTORS, M6NPU_VECTORS,
				    PCI_IRQ_MSIX);
	if (ret < 0) {
		drm_err(&m6npu->drm, "no MSI-X vectors: %pe\n", ERR_PTR(ret));
		return ret;
	}
	ret = m6npu_irq_rings(m6npu);
	if (ret)
		return ret;
	ret = m6npu_irq_thread(m6npu, M6NPU_VEC_EVENT, m6npu_irq_exception,
			       "m6npu-event");
	if (ret)
		return ret;
	ret = m6npu_irq_thread(m6npu, M6NPU_VEC_EXPERT, m6npu_irq_exception,
			       "m6npu-expert");
	if (ret)
		return ret;
	return m6npu_irq_thread(m6npu, M6NPU_VEC_FIRMWARE, m6npu_irq_firmware,
				"m6npu-firmware");
}
