// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Device
 *
 * Registers, the address-space table and bring-up.
 *
 * A register read on a virtual machine is a trap of tens of microseconds, on
 * a board a round trip over PCIe. So nothing here is read on the path of a
 * job: what a job needs to tell is in memory (see m6npu_ring.c).
 *
 * Every access is inside drm_dev_enter(). A device that was pulled out
 * answers with all ones and so does, by these functions, one that was
 * unbound: callers handle both as one case, m6npu_device_is_lost().
 *
 * m6npu_device_start() resets the device, so that it makes no difference what
 * ran before us, and tells it where its tables and rings are. It is also the
 * second half of a full reset; settings that users made in registers survive
 * that.
 */
#include <linux/bitfield.h>
#include <linux/dma-mapping.h>
#include <linux/iopoll.h>
#include <linux/pci.h>

#include <drm/drm_drv.h>
#include <drm/drm_managed.h>
#include <drm/drm_print.h>

#include "m6npu_device.h"
#include "m6npu_drv.h"
#include "m6npu_reset.h"

#define ALL_ONES		0xffffffffu
#define READY_TIMEOUT_US	(5 * USEC_PER_SEC)
#define QUIESCE_TIMEOUT_US	USEC_PER_SEC
#define POLL_US			1000

/* What users set there and a reset must not forget. */
static const u32 settings[] = {
	M6NPU_REG_PREFILL_BUFFER,
	M6NPU_REG_TEMP_OFFSET_MC,
	M6NPU_REG_FREQ_REQUEST_MHZ,
};

u32 m6npu_read(struct m6npu_device *m6npu, u32 reg)
{
	u32 value = ALL_ONES;
	int idx;

	if (drm_dev_enter(&m6npu->drm, &idx)) {
		value = readl(m6npu->regs + reg);
		drm_dev_exit(idx);
	}
	return value;
}

void m6npu_write(struct m6npu_device *m6npu, u32 reg, u32 value)
{
	int idx;

	if (drm_dev_enter(&m6npu->drm, &idx)) {
		writel(value, m6npu->regs + reg);
		drm_dev_exit(idx);
	}
}

/* Reading the low half latches the high one, so pairs must not interleave. */
u64 m6npu_read64(struct m6npu_device *m6npu, u32 reg_lo)
{
	u32 lo, hi;

	mutex_lock(&m6npu->read64_lock);
	lo = m6npu_read(m6npu, reg_lo);
	hi = m6npu_read(m6npu, reg_lo + 4);
	mutex_unlock(&m6npu->read64_lock);
	return (u64)hi << 32 | lo;
}

void m6npu_write64(struct m6npu_device *m6npu, u32 reg_lo, u64 value)
{
	m6npu_write(m6npu, reg_lo, lower_32_bits(value));
	m6npu_write(m6npu, reg_lo + 4, upper_32_bits(value));
}

void m6npu_as_invalidate(struct m6npu_device *m6npu, u32 asid)
{
	m6npu_write(m6npu, M6NPU_REG_AS_INVALIDATE, asid);
	m6npu_read(m6npu, M6NPU_REG_AS_INVALIDATE);
}

void m6npu_rings_resume(struct m6npu_device *m6npu, u32 asid)
{
	unsigned int i;

	for (i = 0; i < M6NPU_RINGS; i++)
		m6npu_ring_resume(&m6npu->ring[i], asid);
}

/**
 * m6npu_device_check_lost() - is the device still there?
 * @m6npu: device that answered with all ones
 *
 * The id never reads as all ones, other registers may.
 *
 * Return: true if the device is lost, which it then remains.
 */
bool m6npu_device_check_lost(struct m6npu_device *m6npu)
{
	if (m6npu_device_is_lost(m6npu))
		return true;
	if (m6npu_read(m6npu, M6NPU_REG_ID) != ALL_ONES)
		return false;
	m6npu_reset_lost(m6npu);
	return true;
}

static int m6npu_device_wait_ready(struct m6npu_device *m6npu)
{
	u32 status;
	int ret;

	ret = read_poll_timeout(m6npu_read, status,
				status == ALL_ONES ||
				status & M6NPU_STATUS_READY,
				POLL_US, READY_TIMEOUT_US, false,
				m6npu, M6NPU_REG_STATUS);
	if (ret)
		return ret;
	return status == ALL_ONES ? -ENODEV : 0;
}

/* After bring-up, and when new firmware took over. */
void m6npu_device_identify(struct m6npu_device *m6npu)
{
	WRITE_ONCE(m6npu->features, m6npu_read(m6npu, M6NPU_REG_FEATURES));
	WRITE_ONCE(m6npu->fw_version, m6npu_read(m6npu, M6NPU_REG_FW_VERSION));
	WRITE_ONCE(m6npu->sram_size, m6npu_read(m6npu, M6NPU_REG_SRAM_SIZE));
}

static void m6npu_device_program(struct m6npu_device *m6npu)
{
	unsigned int i;

	m6npu_write64(m6npu, M6NPU_REG_AS_TABLE_LO, m6npu->as_table_dma);
	m6npu_as_invalidate(m6npu, M6NPU_AS_INVALIDATE_ALL);
	m6npu_exceptions_program(m6npu);
	m6npu_router_program(m6npu);
	for (i = 0; i < M6NPU_RINGS; i++)
		m6npu_ring_start(&m6npu->ring[i]);
	m6npu_write(m6npu, M6NPU_REG_VEC_MASK, 0);
}

/**
 * m6npu_device_start() - bring the device up, or up again
 * @m6npu: device; no job is in flight
 *
 * Return: 0, -ENODEV if the device does not answer, -ETIMEDOUT if it does not
 * become ready.
 */
int m6npu_device_start(struct m6npu_device *m6npu)
{
	int ret;

	m6npu_write(m6npu, M6NPU_REG_CTRL, M6NPU_CTRL_RESET);
	ret = m6npu_device_wait_ready(m6npu);
	if (ret)
		return ret;
	if (m6npu_read(m6npu, M6NPU_REG_ID) != M6NPU_ID_VALUE)
		return -ENODEV;
	m6npu_device_identify(m6npu);
	/* Not before: what ran before us may have left rings enabled. */
	pci_set_master(m6npu->pdev);
	m6npu_device_program(m6npu);
	return 0;
}

/* Remembers what users set, for m6npu_device_restart(). */
void m6npu_device_save(struct m6npu_device *m6npu)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(settings); i++)
		m6npu->settings[i] = m6npu_read(m6npu, settings[i]);
}

/**
 * m6npu_device_restart() - reset the device, with what was saved
 * @m6npu: device; no job is in flight
 *
 * Return: like m6npu_device_start().
 */
int m6npu_device_restart(struct m6npu_device *m6npu)
{
	unsigned int i;
	int ret;

	BUILD_BUG_ON(ARRAY_SIZE(settings) != ARRAY_SIZE(m6npu->settings));
	ret = m6npu_device_start(m6npu);
	if (ret)
		return ret;
	for (i = 0; i < ARRAY_SIZE(settings); i++)
		m6npu_write(m6npu, settings[i], m6npu->settings[i]);
	return 0;
}

/**
 * m6npu_device_quiesce() - make the device forget all memory it was given
 * @m6npu: device, unplugged, lost or never registered
 *
 * The last touch before memory may be freed, perhaps past drm_dev_unplug(), so
 * it goes to the registers directly.
 */
void m6npu_device_quiesce(struct m6npu_device *m6npu)
{
	u32 status;

	writel(M6NPU_CTRL_RESET, m6npu->regs + M6NPU_REG_CTRL);
	readl_poll_timeout(m6npu->regs + M6NPU_REG_STATUS, status,
			   status & M6NPU_STATUS_READY, POLL_US,
			   QUIESCE_TIMEOUT_US);
	pci_clear_master(m6npu->pdev);
}

static int m6npu_device_map(struct m6npu_device *m6npu)
{
	struct pci_dev *pdev = m6npu->pdev;
	int ret;

	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	if (pci_resource_len(pdev, M6NPU_BAR_REGS) < M6NPU_BAR_REGS_SIZE)
		return -ENODEV;
	m6npu->regs = pcim_iomap_region(pdev, M6NPU_BAR_REGS,
					M6NPU_DRIVER_NAME);
	if (IS_ERR(m6npu->regs))
		return PTR_ERR(m6npu->regs);
	if (readl(m6npu->regs + M6NPU_REG_ID) != M6NPU_ID_VALUE)
		return -ENODEV;
	ret = dma_set_mask_and_coherent(&pdev->dev,
					DMA_BIT_MASK(M6NPU_DMA_BITS));
	if (ret)
		return ret;
	dma_set_max_seg_size(&pdev->dev, UINT_MAX);
	return 0;
}

int m6npu_device_init(struct m6npu_device *m6npu)
{
	int ret;

	INIT_LIST_HEAD(&m6npu->contexts);
	m6npu->max_chunk_kb = M6NPU_MAX_CHUNK_KB_DEFAULT;
	ret = drmm_mutex_init(&m6npu->drm, &m6npu->contexts_lock);
	if (ret)
		return ret;
	ret = drmm_mutex_init(&m6npu->drm, &m6npu->read64_lock);
	if (ret)
		return ret;
	ret = m6npu_device_map(m6npu);
	if (ret)
		return ret;
	BUILD_BUG_ON(sizeof(struct m6npu_as) != 1024);
	m6npu->as_table = dmam_alloc_coherent(&m6npu->pdev->dev,
					      M6NPU_ADDRESS_SPACES *
					      sizeof(*m6npu->as_table),
					      &m6npu->as_table_dma,
					      GFP_KERNEL);
	return m6npu->as_table ? 0 : -ENOMEM;
}
