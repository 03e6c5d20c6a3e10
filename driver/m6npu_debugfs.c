// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: debugfs
 *
 * /sys/kernel/debug/npu/ has the files of the first device, and a directory
 * 1, 2, ... with the same files for each further one. The accel directory of
 * a device has a link "npu" to its files.
 *
 * ====================== ==================================================
 * mem_pool_info          pools and their largest free blocks
 * contexts               open files and what they have used; pid 0 is us
 * rings                  units: what they do, what went wrong
 * router_cache           figures of the expert-router cache
 * router_layers          the same for each layer of each open file
 * enable_exception_log   1 to keep a log of exceptions
 * exception_log          the log; writing to it clears it
 * inject                 "reset", "lost" or "sleep", to see what happens then
 * fail_alloc             which of the writer's next allocations is to fail
 * moe_loader/
 *   max_chunk_size_kb    what a loader should not exceed per buffer
 * ====================== ==================================================
 */
#include <linux/debugfs.h>
#include <linux/idr.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include <drm/drm_device.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_job.h"
#include "m6npu_reset.h"

static struct dentry *debugfs_root;
static DEFINE_IDA(debugfs_ida);

static int pools_show(struct seq_file *m, void *unused)
{
	m6npu_pools_show(m, m->private);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(pools);

static int router_show(struct seq_file *m, void *unused)
{
	return m6npu_router_show(m, m->private);
}
DEFINE_SHOW_ATTRIBUTE(router);

static int router_layers_show(struct seq_file *m, void *unused)
{
	m6npu_router_layers_show(m, m->private);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(router_layers);

static int exceptions_show(struct seq_file *m, void *unused)
{
	m6npu_exceptions_show(m, m->private);
	return 0;
}

static ssize_t exceptions_write(struct file *file, const char __user *buf,
				size_t size, loff_t *pos)
{
	struct seq_file *m = file->private_data;

	m6npu_exceptions_clear(m->private);
	return size;
}
DEFINE_SHOW_STORE_ATTRIBUTE(exceptions);

static void context_show(struct seq_file *m, struct m6npu_context *ctx)
{
	struct m6npu_job_stats stats;
	unsigned int queued;
	int ended;

	spin_lock_irq(&ctx->jobs_lock);
	stats = ctx->stats;
	queued = ctx->job_count;
	ended = ctx->ended;
	spin_unlock_irq(&ctx->jobs_lock);
	seq_printf(m, "%-16s %7d %4u %6u %8llu %6llu %12llu %10llu %10llu %8llu %12llu %6llu %10llu%s\n",
		   ctx->comm, ctx->pid, ctx->vm->asid, queued, stats.jobs,
		   stats.failed, div_u64(stats.busy_ns, NSEC_PER_USEC),
		   stats.router_hits, stats.router_misses,
		   stats.expert_faults,
		   div_u64(atomic64_read(&ctx->stall_ns), NSEC_PER_USEC),
		   READ_ONCE(ctx->events_lost),
		   READ_ONCE(ctx->hints_lost), ended ? " ended" : "");
}

static int contexts_show(struct seq_file *m, void *unused)
{
	struct m6npu_device *m6npu = m->private;
	struct m6npu_context *ctx;

	seq_printf(m, "%-16s %7s %4s %6s %8s %6s %12s %10s %10s %8s %12s %6s %10s\n",
		   "command", "pid", "asid", "queued", "jobs", "failed",
		   "busy_us", "rt_hits", "rt_misses", "faults",
		   "stalled_us", "lost", "hints_lost");
	mutex_lock(&m6npu->contexts_lock);
	list_for_each_entry(ctx, &m6npu->contexts, link)
		context_show(m, ctx);
	mutex_unlock(&m6npu->contexts_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(contexts);

static void ring_show(struct seq_file *m, struct m6npu_ring *ring)
{
	u64 busy = m6npu_read64(ring->m6npu,
				M6NPU_REG_UNIT_BUSY_NS_LO(ring->index));
	bool lost = m6npu_device_is_lost(ring->m6npu);
	char comm[TASK_COMM_LEN] = "-";
	const char *state = lost ? "lost" : "idle";
	u64 job = 0;

	spin_lock_irq(&ring->lock);
	if (ring->job) {
		job = ring->job->id;
		strscpy(comm, ring->job->ctx->comm);
		state = ring->job->stalled ? "stalled" : "busy";
	}
	spin_unlock_irq(&ring->lock);
	seq_printf(m, "%-12s %-8s %-16s %8llu %14llu %9d %6d\n",
		   m6npu_ring_name(ring), state, comm, job,
		   lost ? 0 : div_u64(busy, NSEC_PER_USEC),
		   atomic_read(&ring->lost_irqs), atomic_read(&ring->resets));
}

static int rings_show(struct seq_file *m, void *unused)
{
	struct m6npu_device *m6npu = m->private;
	unsigned int i;

	seq_printf(m, "%-12s %-8s %-16s %8s %14s %9s %6s\n", "ring", "state",
		   "command", "job", "busy_us", "lost_irqs", "resets");
	for (i = 0; i < M6NPU_RINGS; i++)
		ring_show(m, &m6npu->ring[i]);
	seq_printf(m, "device resets: %d%s\n", atomic_read(&m6npu->resets),
		   m6npu_device_is_lost(m6npu) ? ", device lost" : "");
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(rings);

static ssize_t inject_write(struct file *file, const char __user *buf,
			    size_t size, loff_t *pos)
{
	struct m6npu_device *m6npu = file->private_data;
	char word[16];
	int ret = 0;

	if (size >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, buf, size))
		return -EFAULT;
	word[size] = '\0';
	if (sysfs_streq(word, "reset"))
		ret = m6npu_reset_request(m6npu);
	else if (sysfs_streq(word, "lost"))
		m6npu_reset_lost(m6npu);
	else if (sysfs_streq(word, "sleep"))
		ret = m6npu_pm_cycle(m6npu);
	else
		ret = -EINVAL;
	return ret ?: size;
}

static const struct file_operations inject_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = inject_write,
};

static int fail_alloc_get(void *data, u64 *value)
{
	*value = m6npu_faults_left(data);
	return 0;
}

static int fail_alloc_set(void *data, u64 value)
{
	if (value > U32_MAX)
		return -EINVAL;
	m6npu_faults_set(data, value);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(fail_alloc_fops, fail_alloc_get, fail_alloc_set,
			 "%llu\n");

static int max_chunk_get(void *data, u64 *value)
{
	struct m6npu_device *m6npu = data;

	*value = READ_ONCE(m6npu->max_chunk_kb);
	return 0;
}

static int max_chunk_set(void *data, u64 value)
{
	struct m6npu_device *m6npu = data;

	if (!value || value > U32_MAX)
		return -EINVAL;
	WRITE_ONCE(m6npu->max_chunk_kb, value);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(max_chunk_fops, max_chunk_get, max_chunk_set,
			 "%llu\n");

static const struct {
	const char *name;
	umode_t mode;
	const struct file_operations *fops;
} debugfs_files[] = {
	{ "mem_pool_info", 0444, &pools_fops },
	{ "contexts", 0444, &contexts_fops },
	{ "rings", 0444, &rings_fops },
	{ "router_cache", 0444, &router_fops },
	{ "router_layers", 0444, &router_layers_fops },
	{ "exception_log", 0644, &exceptions_fops },
	{ "inject", 0200, &inject_fops },
	{ "fail_alloc", 0600, &fail_alloc_fops },
};

#define LOG_ENABLE	"enable_exception_log"
#define LOADER		"moe_loader"

void m6npu_debugfs_init(struct m6npu_device *m6npu)
{
	struct dentry *dir = debugfs_root;
	struct dentry *loader;
	char name[24];
	unsigned int i;

	m6npu->index = ida_alloc(&debugfs_ida, GFP_KERNEL);
	if (m6npu->index < 0)
		return;
	strscpy(name, "../../npu");
	if (m6npu->index) {
		snprintf(name, sizeof(name), "%d", m6npu->index);
		dir = debugfs_create_dir(name, debugfs_root);
		snprintf(name, sizeof(name), "../../npu/%d", m6npu->index);
	}
	m6npu->debugfs = dir;
	m6npu->debugfs_link = debugfs_create_symlink("npu",
						     m6npu->drm.debugfs_root,
						     name);
	for (i = 0; i < ARRAY_SIZE(debugfs_files); i++)
		debugfs_create_file(debugfs_files[i].name,
				    debugfs_files[i].mode, dir, m6npu,
				    debugfs_files[i].fops);
	debugfs_create_bool(LOG_ENABLE, 0644, dir,
			    &m6npu->exceptions.log_enabled);
	loader = debugfs_create_dir(LOADER, dir);
	debugfs_create_file("max_chunk_size_kb", 0644, loader, m6npu,
			    &max_chunk_fops);
}

void m6npu_debugfs_fini(struct m6npu_device *m6npu)
{
	unsigned int i;

	if (m6npu->index < 0)
		return;
	debugfs_remove(m6npu->debugfs_link);
	if (m6npu->index) {
		debugfs_remove(m6npu->debugfs);
	} else {
		for (i = 0; i < ARRAY_SIZE(debugfs_files); i++)
			debugfs_lookup_and_remove(debugfs_files[i].name,
						  debugfs_root);
		debugfs_lookup_and_remove(LOG_ENABLE, debugfs_root);
		debugfs_lookup_and_remove(LOADER, debugfs_root);
	}
	ida_free(&debugfs_ida, m6npu->index);
}

void m6npu_debugfs_create(void)
{
	debugfs_root = debugfs_create_dir("npu", NULL);
}

void m6npu_debugfs_destroy(void)
{
	debugfs_remove(debugfs_root);
	ida_destroy(&debugfs_ida);
}
