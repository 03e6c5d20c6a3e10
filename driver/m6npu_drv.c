// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: M6 mini NPU
 *
 * A DRM accel driver for one PCI function. One noun a file:
 *
 * ================= ======================================================
 * m6npu_device.c    registers, bring-up
 * m6npu_irq.c       interrupts
 * m6npu_ring.c      units and DMA engine, the job in flight
 * m6npu_job.c       jobs, schedulers, fences, JOB_INFO
 * m6npu_submit.c    SUBMIT
 * m6npu_reset.c     timeouts, hung units, full reset, loss of the device
 * m6npu_context.c   an open file
 * m6npu_exception.c exception ring and log
 * m6npu_event.c     DRM events
 * m6npu_thermal.c   throttling
 * m6npu_pm.c        system sleep
 * m6npu_pool.c      contiguous memory
 * m6npu_segment.c   where that comes from
 * m6npu_block.c     a buffer's part of it
 * m6npu_arena.c     where that lies; m6npu_plan.c where it should
 * m6npu_flush.c     giving back what nothing needs
 * m6npu_defrag.c    moving it; m6npu_copy.c by the device
 * m6npu_gem.c       buffers
 * m6npu_ready.c     their first use
 * m6npu_prime.c     dma-bufs
 * m6npu_mmu.c       address spaces
 * m6npu_window.c    their windows
 * m6npu_cmdlist.c   sealed command lists
 * m6npu_expert.c    expert tables
 * m6npu_router.c    the cache in front of them; m6npu_router_show.c to look at
 * ================= ======================================================
 *
 * What userspace can hold lives as long as the DRM device (drmm), what
 * touches the hardware as long as the driver is bound (devm). Unbinding with
 * files open is like pulling the device out: jobs end with -ENODEV, buffers
 * stay until they are closed.
 */
#include <linux/module.h>
#include <linux/pci.h>

#include <drm/drm_accel.h>
#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_gem.h>
#include <drm/drm_ioctl.h>
#include <drm/drm_print.h>
#include <drm/m6npu_accel.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_drv.h"
#include "m6npu_expert.h"
#include "m6npu_fdinfo.h"
#include "m6npu_gem.h"
#include "m6npu_job.h"
#include "m6npu_pool.h"
#include "m6npu_reset.h"
#include "m6npu_router.h"

/*
 * No command takes seconds on a board. Emulated, on a busy host, one may, and
 * to end a sound job is worse than to notice late that one hangs.
 */
unsigned int m6npu_job_timeout_ms = 30000;
module_param_named(job_timeout_ms, m6npu_job_timeout_ms, uint, 0444);
MODULE_PARM_DESC(job_timeout_ms,
		 "A unit that completes no command for this long is reset, 0 = never (default 30000)");

unsigned int m6npu_expert_timeout_ms = 30000;
module_param_named(expert_timeout_ms, m6npu_expert_timeout_ms, uint, 0644);
MODULE_PARM_DESC(expert_timeout_ms,
		 "A job whose command waits this long for an expert is ended (default 30000)");

static int m6npu_open(struct drm_device *drm, struct drm_file *file)
{
	struct m6npu_device *m6npu = to_m6npu_device(drm);
	struct m6npu_context *ctx;

	if (m6npu_device_is_lost(m6npu))
		return -ENODEV;
	ctx = m6npu_context_create(m6npu, file);
	if (IS_ERR(ctx))
		return PTR_ERR(ctx);
	file->driver_priv = ctx;
	return 0;
}

static void m6npu_postclose(struct drm_device *drm, struct drm_file *file)
{
	m6npu_context_close(to_m6npu_context(file));
}

/* Jobs end before the DRM core releases the buffers they use. */
static int m6npu_release(struct inode *inode, struct file *filp)
{
	struct drm_file *file = filp->private_data;

	m6npu_context_stop(to_m6npu_context(file));
	return drm_release(inode, filp);
}

/*
 * Files of accel nodes have no master, and the DRM core, which knows that of
 * render nodes, does not check: GET_UNIQUE and GET_MAGIC would follow a NULL
 * pointer. So of the core's ioctls we have what render nodes have.
 */
static bool m6npu_ioctl_is_permitted(unsigned int cmd)
{
	unsigned int flags;

	return !drm_ioctl_flags(DRM_IOCTL_NR(cmd), &flags) ||
	       flags & DRM_RENDER_ALLOW;
}

static long m6npu_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	if (!m6npu_ioctl_is_permitted(cmd))
		return -EACCES;
	return drm_ioctl(filp, cmd, arg);
}

#ifdef CONFIG_COMPAT
static long m6npu_compat_ioctl(struct file *filp, unsigned int cmd,
			       unsigned long arg)
{
	if (!m6npu_ioctl_is_permitted(cmd))
		return -EACCES;
	return drm_compat_ioctl(filp, cmd, arg);
}
#else
#define m6npu_compat_ioctl NULL
#endif

static const struct file_operations m6npu_fops = {
	.owner = THIS_MODULE,
	.open = accel_open,
	.release = m6npu_release,
	.unlocked_ioctl = m6npu_ioctl,
	.compat_ioctl = m6npu_compat_ioctl,
	.poll = drm_poll,
	.read = drm_read,
	.llseek = noop_llseek,
	.mmap = drm_gem_mmap,
	.show_fdinfo = drm_show_fdinfo,
	.fop_flags = FOP_UNSIGNED_OFFSET,
};

#define M6NPU_IOCTL(name, func) DRM_IOCTL_DEF_DRV(M6NPU_##name, func, 0)

static const struct drm_ioctl_desc m6npu_ioctls[] = {
	M6NPU_IOCTL(GET_PARAM, m6npu_get_param_ioctl),
	M6NPU_IOCTL(POOL_CREATE, m6npu_pool_create_ioctl),
	M6NPU_IOCTL(POOL_DESTROY, m6npu_pool_destroy_ioctl),
	M6NPU_IOCTL(POOL_INFO, m6npu_pool_info_ioctl),
	M6NPU_IOCTL(BO_CREATE, m6npu_bo_create_ioctl),
	M6NPU_IOCTL(BO_INFO, m6npu_bo_info_ioctl),
	M6NPU_IOCTL(BO_SYNC, m6npu_bo_sync_ioctl),
	M6NPU_IOCTL(CMDLIST_SEAL, m6npu_cmdlist_seal_ioctl),
	M6NPU_IOCTL(SUBMIT, m6npu_submit_ioctl),
	M6NPU_IOCTL(JOB_INFO, m6npu_job_info_ioctl),
	M6NPU_IOCTL(EXPERT_TABLE, m6npu_expert_table_ioctl),
	M6NPU_IOCTL(EXPERT_BIND, m6npu_expert_bind_ioctl),
	M6NPU_IOCTL(ROUTER_CTL, m6npu_router_ctl_ioctl),
	M6NPU_IOCTL(RESET, m6npu_reset_ioctl),
	M6NPU_IOCTL(POOL_FLUSH, m6npu_pool_flush_ioctl),
	M6NPU_IOCTL(POOL_DEFRAG, m6npu_pool_defrag_ioctl),
	M6NPU_IOCTL(REGION_MAP, m6npu_region_map_ioctl),
	M6NPU_IOCTL(REGION_UNMAP, m6npu_region_unmap_ioctl),
	M6NPU_IOCTL(JOB_ABORT, m6npu_job_abort_ioctl),
	M6NPU_IOCTL(LAYER_STATS, m6npu_layer_stats_ioctl),
};

static const struct drm_driver m6npu_drm_driver = {
	.driver_features = DRIVER_COMPUTE_ACCEL | DRIVER_GEM | DRIVER_SYNCOBJ |
			   DRIVER_SYNCOBJ_TIMELINE,
	.open = m6npu_open,
	.postclose = m6npu_postclose,
	.show_fdinfo = m6npu_fdinfo_show,
	.prime_handle_to_fd = m6npu_prime_handle_to_fd,
	.gem_prime_import = m6npu_prime_import,
	.ioctls = m6npu_ioctls,
	.num_ioctls = ARRAY_SIZE(m6npu_ioctls),
	.fops = &m6npu_fops,
	.name = M6NPU_DRIVER_NAME,
	.desc = M6NPU_DRIVER_DESC,
	.major = M6NPU_DRIVER_MAJOR,
	.minor = M6NPU_DRIVER_MINOR,
};

/* Memory and software; the device is not told of it yet. */
static int m6npu_setup(struct m6npu_device *m6npu)
{
	int ret;

	ret = m6npu_device_init(m6npu);
	if (ret)
		return ret;
	m6npu_faults_init(m6npu);
	ret = m6npu_imports_init(m6npu);
	if (ret)
		return ret;
	ret = m6npu_router_init(m6npu);
	if (ret)
		return ret;
	m6npu_coredump_init(m6npu);
	m6npu_thermal_init(m6npu);
	ret = m6npu_exceptions_init(m6npu);
	if (ret)
		return ret;
	ret = m6npu_rings_init(m6npu);
	if (ret)
		return ret;
	ret = m6npu_reset_init(m6npu);
	if (ret)
		return ret;
	ret = m6npu_scheds_init(m6npu);
	if (ret)
		return ret;
	return m6npu_irq_init(m6npu);
}

static void m6npu_greet(struct m6npu_device *m6npu)
{
	u32 version = m6npu->fw_version;
	char rc[8] = "";

	if (version & 0xff)
		snprintf(rc, sizeof(rc), "-rc%u", version & 0xff);
	drm_info(&m6npu->drm,
		 "firmware %u.%u.%u%s, %u units, %u KiB SRAM\n",
		 version >> 24, version >> 16 & 0xff, version >> 8 & 0xff, rc,
		 M6NPU_UNITS, m6npu->sram_size / SZ_1K);
}

static int m6npu_bring_up(struct m6npu_device *m6npu)
{
	int ret;

	ret = m6npu_device_start(m6npu);
	if (ret)
		return ret;
	m6npu_greet(m6npu);
	ret = m6npu_hwmon_init(m6npu);
	if (ret)
		drm_warn(&m6npu->drm, "no hwmon: %pe\n", ERR_PTR(ret));
	return drm_dev_register(&m6npu->drm, 0);
}

static int m6npu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct m6npu_device *m6npu;
	int ret;

	m6npu = devm_drm_dev_alloc(&pdev->dev, &m6npu_drm_driver,
				   struct m6npu_device, drm);
	if (IS_ERR(m6npu))
		return PTR_ERR(m6npu);
	m6npu->pdev = pdev;
	pci_set_drvdata(pdev, m6npu);

	ret = m6npu_setup(m6npu);
	if (ret)
		return dev_err_probe(&pdev->dev, ret, "cannot set up\n");
	ret = m6npu_mmu_init(m6npu);
	if (ret)
		return ret;
	ret = m6npu_pools_init(m6npu);
	if (ret)
		goto err_mmu;
	ret = m6npu_bring_up(m6npu);
	if (ret)
		goto err_quiesce;
	m6npu_pools_prealloc(m6npu);
	m6npu_debugfs_init(m6npu);
	return 0;

err_quiesce:
	m6npu_reset_fini(m6npu);
	m6npu_rings_fini(m6npu);
	m6npu_thermal_fini(m6npu);
	m6npu_pools_fini(m6npu);
err_mmu:
	m6npu_mmu_fini(m6npu);
	return dev_err_probe(&pdev->dev, ret, "cannot bring the device up\n");
}

/* Nothing runs, and the device touches no memory, when this returns. */
static void m6npu_halt(struct m6npu_device *m6npu)
{
	drm_dev_unplug(&m6npu->drm);
	m6npu_reset_fini(m6npu);
}

/* Reboot or kexec: the next kernel must not be written to. */
static void m6npu_shutdown(struct pci_dev *pdev)
{
	m6npu_halt(pci_get_drvdata(pdev));
}

static void m6npu_remove(struct pci_dev *pdev)
{
	struct m6npu_device *m6npu = pci_get_drvdata(pdev);

	m6npu_debugfs_fini(m6npu);
	m6npu_halt(m6npu);
	m6npu_rings_fini(m6npu);
	m6npu_thermal_fini(m6npu);
	m6npu_coredump_fini(m6npu);
	m6npu_imports_fini(m6npu);
	m6npu_pools_fini(m6npu);
	m6npu_mmu_fini(m6npu);
}

/* Somebody reset the function behind our back. */
static void m6npu_reset_done(struct pci_dev *pdev)
{
	m6npu_reset_request(pci_get_drvdata(pdev));
}

static const struct pci_error_handlers m6npu_error_handlers = {
	.reset_done = m6npu_reset_done,
};

static const struct pci_device_id m6npu_ids[] = {
	{ PCI_DEVICE(M6NPU_PCI_VENDOR_ID, M6NPU_PCI_DEVICE_ID) },
	{ }
};
MODULE_DEVICE_TABLE(pci, m6npu_ids);

static const struct attribute_group *m6npu_groups[] = {
	&m6npu_router_group,
	NULL
};

static struct pci_driver m6npu_pci_driver = {
	.name = M6NPU_DRIVER_NAME,
	.id_table = m6npu_ids,
	.probe = m6npu_probe,
	.remove = m6npu_remove,
	.shutdown = m6npu_shutdown,
	.err_handler = &m6npu_error_handlers,
	.dev_groups = m6npu_groups,
	.driver.pm = pm_sleep_ptr(&m6npu_pm_ops),
};

static int __init m6npu_init(void)
{
	int ret;

	ret = m6npu_contexts_init();
	if (ret)
		return ret;
	m6npu_debugfs_create();
	ret = pci_register_driver(&m6npu_pci_driver);
	if (ret) {
		m6npu_debugfs_destroy();
		m6npu_contexts_exit();
	}
	return ret;
}
module_init(m6npu_init);

static void __exit m6npu_exit(void)
{
	pci_unregister_driver(&m6npu_pci_driver);
	m6npu_debugfs_destroy();
	m6npu_contexts_exit();
}
module_exit(m6npu_exit);

MODULE_DESCRIPTION(M6NPU_DRIVER_DESC);
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("DMA_BUF");
