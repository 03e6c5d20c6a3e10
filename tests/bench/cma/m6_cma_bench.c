// SPDX-License-Identifier: GPL-2.0-only
/*
 * The peer of the driver's pools in `make bench`: the kernel's allocator for
 * contiguous memory, on the NPU's own area, by the same sequences.
 *
 * Write "BYTES COUNT FRAGMENTED" to m6_cma_bench/sequence in debugfs, and read
 * there what it took: nanoseconds of a cma_alloc() and of a cma_release(), mean
 * of the sequence. That takes COUNT pieces of BYTES and gives all of them back;
 * or, if FRAGMENTED is 1, it takes them, gives every other one back, and
 * measures how the holes are filled and opened again.
 *
 * m6npu.ko must be loaded: it is the one that gives the device its area.
 */
#include <linux/cma.h>
#include <linux/debugfs.h>
#include <linux/dma-map-ops.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "m6npu_regs.h"

#define BENCH_MAX_COUNT		1000000u

/**
 * struct bench - one sequence
 */
struct bench {
	/** @area: what is allocated from */
	struct cma *area;
	/** @piece: those that are taken, NULL where none is */
	struct page **piece;
	/** @count: pieces at most */
	unsigned int count;
	/** @pages: of each */
	unsigned long pages;
};

static DEFINE_MUTEX(bench_lock);
static char bench_result[64];
static struct dentry *bench_dir;

/* Aligned as dma_alloc_contiguous() does it. */
static struct page *bench_alloc(const struct bench *bench)
{
	unsigned int order = get_order(bench->pages << PAGE_SHIFT);

	return cma_alloc(bench->area, bench->pages,
			 min_t(unsigned int, order, CONFIG_CMA_ALIGNMENT), true);
}

static int bench_take(struct bench *bench, unsigned int first,
		      unsigned int step)
{
	unsigned int i;

	for (i = first; i < bench->count; i += step) {
		if (fatal_signal_pending(current))
			return -EINTR;
		bench->piece[i] = bench_alloc(bench);
		if (!bench->piece[i])
			return -ENOMEM;
		cond_resched();
	}
	return 0;
}

static void bench_give_back(struct bench *bench, unsigned int first,
			    unsigned int step)
{
	unsigned int i;

	for (i = first; i < bench->count; i += step) {
		if (!bench->piece[i])
			continue;
		cma_release(bench->area, bench->piece[i], bench->pages);
		bench->piece[i] = NULL;
		cond_resched();
	}
}

static int bench_measure(struct bench *bench, unsigned int first,
			 unsigned int step)
{
	unsigned int count = DIV_ROUND_UP(bench->count - first, step);
	ktime_t begin, taken, end;
	int err;

	begin = ktime_get();
	err = bench_take(bench, first, step);
	if (err)
		return err;
	taken = ktime_get();
	bench_give_back(bench, first, step);
	end = ktime_get();
	snprintf(bench_result, sizeof(bench_result), "%lld %lld\n",
		 div_s64(ktime_to_ns(ktime_sub(taken, begin)), count),
		 div_s64(ktime_to_ns(ktime_sub(end, taken)), count));
	return 0;
}

static int bench_sequence(struct bench *bench, bool fragmented)
{
	int err;

	bench->piece = kvcalloc(bench->count, sizeof(*bench->piece),
				GFP_KERNEL);
	if (!bench->piece)
		return -ENOMEM;
	err = fragmented ? bench_take(bench, 0, 1) : 0;
	if (!err && fragmented)
		bench_give_back(bench, 1, 2);
	if (!err)
		err = bench_measure(bench, fragmented, 1 + fragmented);
	bench_give_back(bench, 0, 1);
	kvfree(bench->piece);
	return err;
}

static int bench_run(u64 bytes, unsigned int count, unsigned int fragmented)
{
	struct bench bench = {
		.count = count, .pages = bytes >> PAGE_SHIFT,
	};
	struct pci_dev *pdev;
	int err = -ENODEV;

	if (!bench.pages || fragmented > 1 || count <= fragmented ||
	    count > BENCH_MAX_COUNT)
		return -EINVAL;
	pdev = pci_get_device(M6NPU_PCI_VENDOR_ID, M6NPU_PCI_DEVICE_ID,
			      NULL);
	if (!pdev)
		return -ENODEV;
	bench.area = dev_get_cma_area(&pdev->dev);
	if (bench.area)
		err = bench_sequence(&bench, fragmented);
	pci_dev_put(pdev);
	return err;
}

static ssize_t bench_write(struct file *file, const char __user *from,
			   size_t size, loff_t *at)
{
	unsigned int count, fragmented;
	char line[64] = "";
	u64 bytes;
	int err;

	if (size >= sizeof(line))
		return -EINVAL;
	if (copy_from_user(line, from, size))
		return -EFAULT;
	if (sscanf(line, "%llu %u %u", &bytes, &count, &fragmented) != 3)
		return -EINVAL;
	guard(mutex)(&bench_lock);
	bench_result[0] = '\0';
	err = bench_run(bytes, count, fragmented);
	return err ?: size;
}

static ssize_t bench_read(struct file *file, char __user *to, size_t size,
			  loff_t *at)
{
	guard(mutex)(&bench_lock);
	return simple_read_from_buffer(to, size, at, bench_result,
				       strlen(bench_result));
}

static const struct file_operations bench_fops = {
	.owner = THIS_MODULE,
	.read = bench_read,
	.write = bench_write,
};

static int __init bench_init(void)
{
	bench_dir = debugfs_create_dir("m6_cma_bench", NULL);
	debugfs_create_file("sequence", 0600, bench_dir, NULL, &bench_fops);
	return 0;
}
module_init(bench_init);

static void __exit bench_exit(void)
{
	debugfs_remove(bench_dir);
}
module_exit(bench_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Times CMA on the M6 NPU's contiguous area");
