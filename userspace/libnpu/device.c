// SPDX-License-Identifier: MIT
/*
 * An open NPU. The three reasons why one cannot be opened (no device, no
 * driver, no permission) have different remedies, so they are told apart.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xf86drm.h>
#include <drm/m6npu_accel.h>

#include "device.h"
#include "error.h"

#define DRIVER		"m6npu"
#define PCI_DEVICES	"/sys/bus/pci/devices"
#define PCI_VENDOR_ID	0x6d36

int npu_device_ioctl(const struct npu_device *device, unsigned long request,
		     void *arg)
{
	return drmIoctl(device->fd, request, arg) ? -errno : 0;
}

int npu_device_fail(const struct npu_device *device, int error,
		    const char *what)
{
	if (error == -ENODEV)
		return npu_fail(error, "%s: the device is gone", device->node);
	return npu_fail(error, "%s: %s: %s", device->node, what,
			strerror(-error));
}

/* ---- Opening ---- */

static bool is_npu(const char *slot)
{
	char path[320];
	unsigned int vendor = 0;
	FILE *f;

	snprintf(path, sizeof(path), PCI_DEVICES "/%s/vendor", slot);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (fscanf(f, "%x", &vendor) != 1)
		vendor = 0;
	fclose(f);
	return vendor == PCI_VENDOR_ID;
}

/* PCI slot of the first NPU, "" if there is none. */
static void find_npu(char *slot, size_t size)
{
	struct dirent *entry;
	DIR *dir = opendir(PCI_DEVICES);

	slot[0] = '\0';
	if (!dir)
		return;
	while (!slot[0] && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && is_npu(entry->d_name))
			snprintf(slot, size, "%.*s", (int)size - 1,
				 entry->d_name);
	closedir(dir);
}

static int fail_missing(const char *node)
{
	char slot[64];

	find_npu(slot, sizeof(slot));
	if (access("/sys/module/" DRIVER, F_OK) == 0)
		return npu_fail(-ENOENT,
				slot[0] ? "%s: no such NPU; ls /dev/accel shows those there are, dmesg why one is missing" :
					  "%s: no device: the driver is loaded but finds no M6 NPU; check the board with lspci -d 6d36:",
				node);
	if (slot[0])
		return npu_fail(-ENOENT,
				"%s: no driver for the NPU at %s; load it: modprobe " DRIVER,
				node, slot);
	return npu_fail(-ENOENT,
			"%s: no device: there is no M6 NPU in this machine, and no driver loaded; check the board with lspci -d 6d36:",
			node);
}

static int fail_open(const char *node, int error)
{
	switch (error) {
	case ENOENT:
	case ENXIO:
		return fail_missing(node);
	case EACCES:
	case EPERM:
		return npu_fail(-EACCES,
				"%s: no permission; join the group that may use it: usermod -aG render $USER, then log in again",
				node);
	case ENODEV:
		return npu_fail(-ENODEV,
				"%s: the device is gone or being reset; see dmesg",
				node);
	default:
		return npu_fail(-error, "%s: cannot open: %s", node,
				strerror(error));
	}
}

static int check_driver(const struct npu_device *device)
{
	drmVersionPtr version = drmGetVersion(device->fd);
	int ret = 0;

	if (!version || !version->name)
		ret = npu_fail(-ENODEV, "%s: not an M6 NPU: no DRM device",
			       device->node);
	else if (strcmp(version->name, DRIVER))
		ret = npu_fail(-ENODEV,
			       "%s: not an M6 NPU: its driver is %s; try another number",
			       device->node, version->name);
	drmFreeVersion(version);
	return ret;
}

int npu_device_param(const struct npu_device *device, uint32_t param,
		     uint64_t *value)
{
	struct drm_m6npu_get_param arg = { .param = param };
	int ret;

	ret = npu_device_ioctl(device, DRM_IOCTL_M6NPU_GET_PARAM, &arg);
	if (ret)
		return npu_device_fail(device, ret, "cannot ask for a figure");
	*value = arg.value;
	return 0;
}

static int get_constants(struct npu_device *device)
{
	uint64_t entries = 0;
	int ret;

	ret = npu_device_param(device, DRM_M6NPU_PARAM_ROUTER_ENTRIES,
			       &entries);
	device->router_entries = (uint32_t)entries;
	return ret;
}

int npu_device_open(int id, struct npu_device **out)
{
	struct npu_device *device;
	int ret;

	if (id < 0)
		return npu_fail(-ENOENT, "no device has the number %d", id);
	device = calloc(1, sizeof(*device));
	if (!device)
		return npu_fail_memory();
	pthread_mutex_init(&device->lock, NULL);
	snprintf(device->node, sizeof(device->node), "/dev/accel/accel%d", id);
	/* Non-blocking: events are read until there are none. */
	device->fd = open(device->node, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (device->fd < 0)
		ret = fail_open(device->node, errno);
	else
		ret = check_driver(device);
	if (!ret)
		ret = get_constants(device);
	if (ret) {
		npu_device_close(device);
		return ret;
	}
	*out = device;
	return 0;
}

void npu_device_close(struct npu_device *device)
{
	if (!device)
		return;
	if (device->fd >= 0)
		close(device->fd);
	npu_va_clear(&device->va);
	pthread_mutex_destroy(&device->lock);
	free(device);
}

int npu_device_fd(const struct npu_device *device)
{
	return device->fd;
}

/* ---- Figures ---- */

static void print_firmware(char *text, size_t size, uint64_t version)
{
	unsigned int major = version >> 24 & 0xff, minor = version >> 16 & 0xff;
	unsigned int patch = version >> 8 & 0xff, rc = version & 0xff;

	if (rc)
		snprintf(text, size, "%u.%u.%u-rc%u", major, minor, patch, rc);
	else
		snprintf(text, size, "%u.%u.%u", major, minor, patch);
}

int npu_device_info(struct npu_device *device, struct npu_device_info *info)
{
	uint64_t firmware = 0, units = 0, entries = 0, temperature = 0;
	uint64_t power = 0;
	const struct {
		uint32_t param;
		uint64_t *value;
	} figures[] = {
		{ DRM_M6NPU_PARAM_FW_VERSION, &firmware },
		{ DRM_M6NPU_PARAM_UNITS, &units },
		{ DRM_M6NPU_PARAM_ROUTER_ENTRIES, &entries },
		{ DRM_M6NPU_PARAM_SRAM_SIZE, &info->sram_bytes },
		{ DRM_M6NPU_PARAM_MAX_CHUNK, &info->max_chunk_bytes },
		{ DRM_M6NPU_PARAM_CMA_SIZE, &info->cma_bytes },
		{ DRM_M6NPU_PARAM_TEMPERATURE, &temperature },
		{ DRM_M6NPU_PARAM_POWER, &power },
		{ DRM_M6NPU_PARAM_FREQUENCY, &info->frequency_hz },
		{ DRM_M6NPU_PARAM_DEVICE_TIME, &info->device_time_ns },
		{ DRM_M6NPU_PARAM_CTX_BUSY, &info->busy_ns },
		{ DRM_M6NPU_PARAM_CTX_ROUTER_HITS, &info->router_hits },
		{ DRM_M6NPU_PARAM_CTX_ROUTER_MISSES, &info->router_misses },
		{ DRM_M6NPU_PARAM_CTX_EXPERT_FAULTS, &info->expert_faults },
		{ DRM_M6NPU_PARAM_CTX_JOBS, &info->jobs },
	};
	size_t i;
	int ret = 0;

	memset(info, 0, sizeof(*info));
	for (i = 0; i < sizeof(figures) / sizeof(figures[0]) && !ret; i++)
		ret = npu_device_param(device, figures[i].param,
				       figures[i].value);
	if (ret)
		return ret;
	memcpy(info->node, device->node, sizeof(info->node));
	print_firmware(info->firmware, sizeof(info->firmware), firmware);
	info->units = (uint32_t)units;
	info->router_entries = (uint32_t)entries;
	info->temperature_mc = (int32_t)(int64_t)temperature;
	info->power_mw = (uint32_t)power;
	return 0;
}
