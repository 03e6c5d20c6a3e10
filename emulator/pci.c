// SPDX-License-Identifier: MIT
/* Configuration space: identity, BARs, power management, PCIe, MSI-X. */
#include <errno.h>
#include <linux/pci_regs.h>
#include <string.h>

#include "core.h"
#include "log.h"

#define CAP_PM		0x40
#define CAP_EXP		0x50
#define CAP_MSIX	0x90
#define SUBSYSTEM_ID	0x0001

static void set8(struct m6_pci *pci, unsigned int at, uint8_t value)
{
	pci->config[at] = value;
}

static void set16(struct m6_pci *pci, unsigned int at, uint16_t value)
{
	memcpy(pci->config + at, &value, sizeof(value));
}

static void set32(struct m6_pci *pci, unsigned int at, uint32_t value)
{
	memcpy(pci->config + at, &value, sizeof(value));
}

static uint16_t get16(const struct m6_pci *pci, unsigned int at)
{
	uint16_t value;

	memcpy(&value, pci->config + at, sizeof(value));
	return value;
}

static void writable(struct m6_pci *pci, unsigned int at, uint32_t mask,
		     unsigned int bytes)
{
	memcpy(pci->writable + at, &mask, bytes);
}

/* Sizing works by what can't be written. */
static void set_bar(struct m6_pci *pci, unsigned int bar, uint32_t type)
{
	unsigned int at = PCI_BASE_ADDRESS_0 + bar * 4;

	set32(pci, at, type);
	writable(pci, at, ~(uint32_t)(m6_device_bar_size(bar) - 1), 4);
	if (type & PCI_BASE_ADDRESS_MEM_TYPE_64)
		writable(pci, at + 4, ~0u, 4);
}

static void set_header(struct m6_pci *pci)
{
	set16(pci, PCI_VENDOR_ID, M6NPU_PCI_VENDOR_ID);
	set16(pci, PCI_DEVICE_ID, M6NPU_PCI_DEVICE_ID);
	set16(pci, PCI_STATUS, PCI_STATUS_CAP_LIST);
	set32(pci, PCI_CLASS_REVISION, M6NPU_PCI_CLASS << 8 | 0x01);
	set16(pci, PCI_SUBSYSTEM_VENDOR_ID, M6NPU_PCI_VENDOR_ID);
	set16(pci, PCI_SUBSYSTEM_ID, SUBSYSTEM_ID);
	set8(pci, PCI_CAPABILITY_LIST, CAP_PM);
	writable(pci, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER |
		 PCI_COMMAND_PARITY | PCI_COMMAND_SERR |
		 PCI_COMMAND_INTX_DISABLE, 2);
	writable(pci, PCI_CACHE_LINE_SIZE, 0xff, 1);
	writable(pci, PCI_INTERRUPT_LINE, 0xff, 1);
	set_bar(pci, M6NPU_BAR_REGS, PCI_BASE_ADDRESS_MEM_TYPE_32);
	set_bar(pci, M6NPU_BAR_SRAM, PCI_BASE_ADDRESS_MEM_TYPE_64 |
		PCI_BASE_ADDRESS_MEM_PREFETCH);
	set_bar(pci, M6NPU_BAR_MSIX, PCI_BASE_ADDRESS_MEM_TYPE_32);
}

/* D3hot and back changes nothing: No_Soft_Reset. */
static void set_pm(struct m6_pci *pci)
{
	set8(pci, CAP_PM, PCI_CAP_ID_PM);
	set8(pci, CAP_PM + 1, CAP_EXP);
	set16(pci, CAP_PM + PCI_PM_PMC, 3);
	set16(pci, CAP_PM + PCI_PM_CTRL, PCI_PM_CTRL_NO_SOFT_RESET);
	writable(pci, CAP_PM + PCI_PM_CTRL, PCI_PM_CTRL_STATE_MASK, 2);
}

static void set_exp(struct m6_pci *pci, const struct m6_profile *profile)
{
	uint32_t speeds = ((1u << profile->link_speed) - 1) << 1;
	uint32_t link = profile->link_speed | profile->link_width << 4;

	set8(pci, CAP_EXP, PCI_CAP_ID_EXP);
	set8(pci, CAP_EXP + 1, CAP_MSIX);
	set16(pci, CAP_EXP + PCI_EXP_FLAGS, 2 | PCI_EXP_TYPE_ENDPOINT << 4);
	set32(pci, CAP_EXP + PCI_EXP_DEVCAP, PCI_EXP_DEVCAP_FLR |
	      PCI_EXP_DEVCAP_RBER | 1);
	set16(pci, CAP_EXP + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_RELAX_EN |
	      PCI_EXP_DEVCTL_NOSNOOP_EN | 2 << 12);
	set32(pci, CAP_EXP + PCI_EXP_LNKCAP, link);
	set16(pci, CAP_EXP + PCI_EXP_LNKSTA, link);
	set32(pci, CAP_EXP + PCI_EXP_LNKCAP2, speeds);
	set16(pci, CAP_EXP + PCI_EXP_LNKCTL2, profile->link_speed);
	writable(pci, CAP_EXP + PCI_EXP_DEVCTL,
		 0xffff & ~PCI_EXP_DEVCTL_BCR_FLR, 2);
	writable(pci, CAP_EXP + PCI_EXP_LNKCTL, PCI_EXP_LNKCTL_RCB |
		 PCI_EXP_LNKCTL_CCC | PCI_EXP_LNKCTL_ES, 2);
	writable(pci, CAP_EXP + PCI_EXP_LNKCTL2, PCI_EXP_LNKCTL2_TLS, 2);
}

static void set_msix(struct m6_pci *pci)
{
	set8(pci, CAP_MSIX, PCI_CAP_ID_MSIX);
	set16(pci, CAP_MSIX + PCI_MSIX_FLAGS, M6NPU_VECTORS - 1);
	set32(pci, CAP_MSIX + PCI_MSIX_TABLE, M6NPU_BAR_MSIX);
	set32(pci, CAP_MSIX + PCI_MSIX_PBA, M6NPU_BAR_MSIX |
	      M6NPU_MSIX_PBA_OFFSET);
	writable(pci, CAP_MSIX + PCI_MSIX_FLAGS, PCI_MSIX_FLAGS_ENABLE |
		 PCI_MSIX_FLAGS_MASKALL, 2);
}

void m6_pci_init(struct m6_pci *pci, const struct m6_profile *profile)
{
	memset(pci, 0, sizeof(*pci));
	pthread_mutex_init(&pci->lock, NULL);
	set_header(pci);
	set_pm(pci);
	set_exp(pci, profile);
	set_msix(pci);
	memcpy(pci->initial, pci->config, sizeof(pci->initial));
}

void m6_pci_destroy(struct m6_pci *pci)
{
	pthread_mutex_destroy(&pci->lock);
}

/* What software wrote goes; the link's state stays. */
void m6_pci_reset(struct m6_pci *pci)
{
	pthread_mutex_lock(&pci->lock);
	for (unsigned int i = 0; i < M6_CONFIG_SIZE; i++)
		pci->config[i] = (pci->config[i] & ~pci->writable[i]) |
				 (pci->initial[i] & pci->writable[i]);
	pthread_mutex_unlock(&pci->lock);
}

void m6_pci_set_link(struct m6_pci *pci, uint32_t speed, uint32_t width)
{
	pthread_mutex_lock(&pci->lock);
	set16(pci, CAP_EXP + PCI_EXP_LNKSTA, speed | width << 4);
	pthread_mutex_unlock(&pci->lock);
}

int m6_device_config_read(struct m6_device *dev, uint64_t offset, void *data,
			  size_t bytes)
{
	struct m6_pci *pci = &dev->pci;

	if (offset >= M6_CONFIG_SIZE || bytes > M6_CONFIG_SIZE - offset)
		return -EINVAL;
	pthread_mutex_lock(&pci->lock);
	memcpy(data, pci->config + offset, bytes);
	pthread_mutex_unlock(&pci->lock);
	return 0;
}

/* Initiate FLR is the one bit that acts instead of being stored. */
static bool starts_flr(uint64_t offset, const uint8_t *data, size_t bytes)
{
	const uint64_t at = CAP_EXP + PCI_EXP_DEVCTL + 1;

	return at >= offset && at < offset + bytes &&
	       data[at - offset] & PCI_EXP_DEVCTL_BCR_FLR >> 8;
}

int m6_device_config_write(struct m6_device *dev, uint64_t offset,
			   const void *data, size_t bytes)
{
	struct m6_pci *pci = &dev->pci;
	const uint8_t *from = data;

	if (offset >= M6_CONFIG_SIZE || bytes > M6_CONFIG_SIZE - offset)
		return -EINVAL;
	pthread_mutex_lock(&pci->lock);
	for (size_t i = 0; i < bytes; i++) {
		uint8_t mask = pci->writable[offset + i];
		uint8_t *to = &pci->config[offset + i];

		*to = (*to & ~mask) | (from[i] & mask);
	}
	m6_debug("config write at %#llx, %zu bytes, command %#x",
		 (unsigned long long)offset, bytes, get16(pci, PCI_COMMAND));
	pthread_mutex_unlock(&pci->lock);
	if (starts_flr(offset, from, bytes))
		m6_device_reset(dev);
	return 0;
}
