// SPDX-License-Identifier: MIT
/* Registers and configuration space. */
#include <errno.h>
#include <linux/pci_regs.h>
#include <string.h>

#include "../tap.h"
#include "guest.h"

static void test_access(struct guest *guest)
{
	uint64_t value = ~0ull;
	uint8_t byte = 0xff;

	ok(guest_read(guest, M6NPU_REG_ID) == M6NPU_ID_VALUE, "ID");
	ok(guest_read(guest, M6NPU_REG_STATUS) == M6NPU_STATUS_READY, "ready");
	ok(guest_read(guest, M6NPU_REG_ROUTER_QUOTA) == 128, "no quota");
	ok(guest_read(guest, M6NPU_REG_SRAM_SIZE) == 4u << 20, "SRAM size");
	ok(guest_read(guest, M6NPU_REG_FW_VERSION) == 0x02030100, "version");
	guest_write(guest, M6NPU_REG_ID, 0);
	ok(guest_read(guest, M6NPU_REG_ID) == M6NPU_ID_VALUE, "ID is RO");
	guest_write(guest, M6NPU_REG_SCRATCH, 0x12345678);
	ok(guest_read(guest, M6NPU_REG_SCRATCH) == 0x12345678, "scratch");
	ok(!m6_device_mmio_read(guest->dev, 0, M6NPU_REG_SCRATCH, &value, 8) &&
	   !value, "64-bit reads read 0");
	value = ~0ull;
	m6_device_mmio_write(guest->dev, 0, M6NPU_REG_SCRATCH, &value, 8);
	m6_device_mmio_write(guest->dev, 0, M6NPU_REG_SCRATCH + 1, &byte, 1);
	m6_device_mmio_write(guest->dev, 0, M6NPU_REG_SCRATCH + 2, &value, 4);
	ok(guest_read(guest, M6NPU_REG_SCRATCH) == 0x12345678,
	   "writes of other sizes and alignments do nothing");
	ok(m6_device_mmio_read(guest->dev, 0, 0xfffe, &value, 4) == -EINVAL &&
	   m6_device_mmio_read(guest->dev, 0, ~0ull, &value, 4) == -EINVAL &&
	   m6_device_mmio_read(guest->dev, 1, 0, &value, 4) == -EINVAL &&
	   m6_device_mmio_read(guest->dev, 77, 0, &value, 4) == -EINVAL,
	   "outside the BARs");
}

/* Nothing but what is listed answers, and nothing breaks. */
static void test_sweep(struct guest *guest)
{
	unsigned int answers = 0;

	for (uint32_t at = 0; at < M6NPU_BAR_REGS_SIZE; at += 4) {
		bool listed = at < 0x500 || (at >= 0x1000 && at < 0x1500);

		if (at != M6NPU_REG_CTRL)
			guest_write(guest, at, 0xffffffff);
		answers += !listed && guest_read(guest, at);
	}
	ok(!answers, "unlisted registers read 0");
	m6_device_reset(guest->dev);
	ok(guest_wait_ready(guest) &&
	   !guest_read(guest, M6NPU_REG_AS_INVALIDATE) &&
	   !guest_read(guest, M6NPU_REG_VEC_MASK) &&
	   !guest_read(guest, M6NPU_REG_EXC_SIZE) &&
	   guest_read(guest, M6NPU_REG_ROUTER_THRESHOLD) == 950 &&
	   guest_read(guest, M6NPU_REG_ROUTER_POLICY) == M6NPU_ROUTER_LRU &&
	   guest_read(guest, M6NPU_REG_ROUTER_QUOTA) == 128 &&
	   !guest_read(guest, M6NPU_REG_ROUTER_INVALIDATE) &&
	   guest_read(guest, M6NPU_REG_FREQ_REQUEST_MHZ) == 1200,
	   "a reset restores them");
}

static void test_latch(struct guest *guest)
{
	uint64_t ns;
	uint32_t low;

	m6_device_advance(guest->dev, 0x1fffffff0ull);
	low = guest_read(guest, M6NPU_REG_TIME_NS_LO);
	m6_device_advance(guest->dev, 0x100000000ull);
	ns = low | (uint64_t)guest_read(guest, M6NPU_REG_TIME_NS_HI) << 32;
	ok(ns == 0x1fffffff0ull, "HI is of the time of LO: %#llx",
	   (unsigned long long)ns);
	ns = guest_read64(guest, M6NPU_REG_TIME_NS_LO);
	ok(ns == 0x2fffffff0ull, "then of the next: %#llx",
	   (unsigned long long)ns);
}

static void test_refused(struct guest *guest)
{
	guest_write(guest, M6NPU_REG_ROUTER_POLICY, 2);
	guest_write(guest, M6NPU_REG_ROUTER_POLICY, 3);
	ok(guest_read(guest, M6NPU_REG_ROUTER_POLICY) == 2, "policy");
	guest_write(guest, M6NPU_REG_ROUTER_THRESHOLD, 850);
	guest_write(guest, M6NPU_REG_ROUTER_THRESHOLD, 1001);
	ok(guest_read(guest, M6NPU_REG_ROUTER_THRESHOLD) == 850, "threshold");
	guest_write(guest, M6NPU_REG_ROUTER_QUOTA, 40);
	guest_write(guest, M6NPU_REG_ROUTER_QUOTA, 0);
	guest_write(guest, M6NPU_REG_ROUTER_QUOTA, 129);
	ok(guest_read(guest, M6NPU_REG_ROUTER_QUOTA) == 40, "quota");
	guest_write(guest, M6NPU_REG_FREQ_REQUEST_MHZ, 500);
	guest_write(guest, M6NPU_REG_FREQ_REQUEST_MHZ, 501);
	ok(guest_read(guest, M6NPU_REG_FREQ_REQUEST_MHZ) == 500 &&
	   guest_read(guest, M6NPU_REG_FREQ_MHZ) == 500, "frequency");
	guest_write(guest, M6NPU_REG_PREFILL_BUFFER, 4096);
	guest_write(guest, M6NPU_REG_PREFILL_BUFFER, (4u << 20) + 1);
	ok(guest_read(guest, M6NPU_REG_PREFILL_BUFFER) == 4096, "prefill");
	guest_write(guest, M6NPU_REG_TEMP_OFFSET_MC, (uint32_t)-500);
	ok((int32_t)guest_read(guest, M6NPU_REG_TEMP_OFFSET_MC) == -500,
	   "signed offset");
	guest_write(guest, M6NPU_REG_TEMP_OFFSET_MC, 1800);
}

static void test_vectors(struct guest *guest)
{
	unsigned int before = guest_irqs(guest, M6NPU_VEC_EVENT);

	guest_write(guest, M6NPU_REG_VEC_MASK, 1u << M6NPU_VEC_EVENT);
	m6_device_inject_link(guest->dev, 3, 2);
	ok(guest_irqs(guest, M6NPU_VEC_EVENT) == before &&
	   guest_read(guest, M6NPU_REG_VEC_PENDING) == 1, "masked: pending");
	guest_write(guest, M6NPU_REG_VEC_MASK, 0);
	ok(guest_irqs(guest, M6NPU_VEC_EVENT) == before + 1 &&
	   !guest_read(guest, M6NPU_REG_VEC_PENDING), "delivered at unmask");
	guest_write(guest, M6NPU_REG_VEC_MASK, 1);
	m6_device_inject_link(guest->dev, 3, 2);
	guest_write(guest, M6NPU_REG_VEC_PENDING, 1);
	guest_write(guest, M6NPU_REG_VEC_MASK, 0);
	ok(guest_irqs(guest, M6NPU_VEC_EVENT) == before + 1, "write 1 clears");
	m6_device_inject_lost_irq(guest->dev, 0);
	m6_device_inject_link(guest->dev, 3, 2);
	ok(guest_irqs(guest, 0) == before + 1, "a lost interrupt");
	m6_device_inject_link(guest->dev, 4, 4);
	ok(guest_irqs(guest, 0) == before + 1, "a full link is no event");
	m6_device_inject_spurious_irq(guest->dev, 5);
	ok(guest_irqs(guest, 5) == 1, "a spurious interrupt");
	ok(m6_device_inject_lost_irq(guest->dev, 8) == -EINVAL &&
	   m6_device_inject_hang(guest->dev, 5) == -EINVAL &&
	   m6_device_inject_link(guest->dev, 5, 4) == -EINVAL, "no such");
}

static uint32_t config(struct guest *guest, uint32_t at, size_t bytes)
{
	uint32_t value = 0;

	m6_device_config_read(guest->dev, at, &value, bytes);
	return value;
}

static uint32_t find_cap(struct guest *guest, uint32_t id)
{
	uint32_t at = config(guest, PCI_CAPABILITY_LIST, 1);

	while (at && config(guest, at, 1) != id)
		at = config(guest, at + 1, 1);
	return at;
}

static void test_config(struct guest *guest)
{
	uint32_t exp = find_cap(guest, PCI_CAP_ID_EXP);
	uint32_t msix = find_cap(guest, PCI_CAP_ID_MSIX);
	uint32_t ones = ~0u, flr = PCI_EXP_DEVCTL_BCR_FLR;

	ok(config(guest, 0, 4) == 0x00326d36 &&
	   config(guest, PCI_CLASS_REVISION, 4) >> 8 == 0x120000, "identity");
	ok(find_cap(guest, PCI_CAP_ID_PM) && exp && msix, "capabilities");
	ok(config(guest, exp + PCI_EXP_LNKSTA, 2) == 0x44, "16 GT/s x4");
	ok(config(guest, msix + PCI_MSIX_FLAGS, 2) == 7, "8 vectors");
	m6_device_config_write(guest->dev, PCI_BASE_ADDRESS_0, &ones, 4);
	m6_device_config_write(guest->dev, PCI_BASE_ADDRESS_2, &ones, 4);
	m6_device_config_write(guest->dev, PCI_BASE_ADDRESS_3, &ones, 4);
	ok(config(guest, PCI_BASE_ADDRESS_0, 4) == 0xffff0000 &&
	   config(guest, PCI_BASE_ADDRESS_2, 4) == 0xffc0000c &&
	   config(guest, PCI_BASE_ADDRESS_3, 4) == 0xffffffff, "BAR sizes");
	m6_device_config_write(guest->dev, 0, &ones, 4);
	ok(config(guest, 0, 4) == 0x00326d36, "identity is RO");
	guest_write(guest, M6NPU_REG_SCRATCH, 77);
	m6_device_config_write(guest->dev, exp + PCI_EXP_DEVCTL, &flr, 2);
	ok(guest_wait_ready(guest) && !guest_read(guest, M6NPU_REG_SCRATCH) &&
	   config(guest, PCI_BASE_ADDRESS_0, 4) == 0 &&
	   config(guest, PCI_BASE_ADDRESS_2, 4) == 0xc &&
	   !(config(guest, exp + PCI_EXP_DEVCTL, 2) & flr), "FLR");
	ok(m6_device_config_read(guest->dev, 4094, &ones, 4) == -EINVAL &&
	   m6_device_config_write(guest->dev, 4096, &ones, 4) == -EINVAL &&
	   m6_device_config_read(guest->dev, ~0ull, &ones, 4) == -EINVAL,
	   "outside");
}

static void test_sram(struct guest *guest)
{
	const char text[] = "not registers";
	char back[sizeof(text)];

	m6_device_mmio_write(guest->dev, 2, 4093, text, sizeof(text));
	m6_device_mmio_read(guest->dev, 2, 4093, back, sizeof(back));
	ok(!memcmp(text, back, sizeof(text)), "SRAM takes any size");
	ok(m6_device_mmio_write(guest->dev, 2, (4u << 20) - 1, text, 2) ==
	   -EINVAL, "and ends");
}

int main(void)
{
	struct guest guest;

	guest_init(&guest);
	test_access(&guest);
	test_latch(&guest);
	test_refused(&guest);
	test_vectors(&guest);
	test_config(&guest);
	test_sram(&guest);
	test_sweep(&guest);
	guest_exit(&guest);
	return done();
}
