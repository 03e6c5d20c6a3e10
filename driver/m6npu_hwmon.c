// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Sensors
 *
 * Temperature, power and energy for hwmon. The correction of the sensor's
 * bias, which the device subtracts, is hwmon's temp1_offset, which it adds.
 */
#include <linux/hwmon.h>
#include <linux/pci.h>

#include <drm/drm_device.h>

#include "m6npu_device.h"
#include "m6npu_drv.h"

#define TEMP_MAX_MC		87000
#define TEMP_CRIT_MC		105000
#define POWER_MAX_UW		35000000
#define TEMP_OFFSET_LIMIT_MC	50000

static umode_t m6npu_hwmon_is_visible(const void *data,
				      enum hwmon_sensor_types type, u32 attr,
				      int channel)
{
	return type == hwmon_temp && attr == hwmon_temp_offset ? 0644 : 0444;
}

static int hwmon_read_temp(struct m6npu_device *m6npu, u32 attr, long *value)
{
	switch (attr) {
	case hwmon_temp_input:
		*value = (s32)m6npu_read(m6npu, M6NPU_REG_TEMP_MC);
		return 0;
	case hwmon_temp_offset:
		*value = -(s32)m6npu_read(m6npu, M6NPU_REG_TEMP_OFFSET_MC);
		return 0;
	case hwmon_temp_max:
		*value = TEMP_MAX_MC;
		return 0;
	case hwmon_temp_crit:
		*value = TEMP_CRIT_MC;
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

static int hwmon_read_power(struct m6npu_device *m6npu, u32 attr, long *value)
{
	switch (attr) {
	case hwmon_power_input:
		*value = (long)m6npu_read(m6npu, M6NPU_REG_POWER_MW) * 1000;
		return 0;
	case hwmon_power_max:
		*value = POWER_MAX_UW;
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

static int m6npu_hwmon_read(struct device *dev, enum hwmon_sensor_types type,
			    u32 attr, int channel, long *value)
{
	struct m6npu_device *m6npu = dev_get_drvdata(dev);

	if (m6npu_device_is_lost(m6npu))
		return -ENODEV;
	switch (type) {
	case hwmon_temp:
		return hwmon_read_temp(m6npu, attr, value);
	case hwmon_power:
		return hwmon_read_power(m6npu, attr, value);
	case hwmon_energy:
		*value = m6npu_read64(m6npu, M6NPU_REG_ENERGY_UJ_LO);
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

static int m6npu_hwmon_write(struct device *dev, enum hwmon_sensor_types type,
			     u32 attr, int channel, long value)
{
	struct m6npu_device *m6npu = dev_get_drvdata(dev);

	if (type != hwmon_temp || attr != hwmon_temp_offset)
		return -EOPNOTSUPP;
	if (value < -TEMP_OFFSET_LIMIT_MC || value > TEMP_OFFSET_LIMIT_MC)
		return -EINVAL;
	m6npu_write(m6npu, M6NPU_REG_TEMP_OFFSET_MC, -value);
	return 0;
}

static const struct hwmon_ops m6npu_hwmon_ops = {
	.is_visible = m6npu_hwmon_is_visible,
	.read = m6npu_hwmon_read,
	.write = m6npu_hwmon_write,
};

static const struct hwmon_channel_info * const m6npu_hwmon_channels[] = {
	HWMON_CHANNEL_INFO(temp, HWMON_T_INPUT | HWMON_T_OFFSET |
				 HWMON_T_MAX | HWMON_T_CRIT),
	HWMON_CHANNEL_INFO(power, HWMON_P_INPUT | HWMON_P_MAX),
	HWMON_CHANNEL_INFO(energy, HWMON_E_INPUT),
	NULL
};

static const struct hwmon_chip_info m6npu_hwmon_chip = {
	.ops = &m6npu_hwmon_ops,
	.info = m6npu_hwmon_channels,
};

int m6npu_hwmon_init(struct m6npu_device *m6npu)
{
	struct device *hwmon;

	hwmon = devm_hwmon_device_register_with_info(&m6npu->pdev->dev,
						     M6NPU_DRIVER_NAME, m6npu,
						     &m6npu_hwmon_chip, NULL);
	return PTR_ERR_OR_ZERO(hwmon);
}
