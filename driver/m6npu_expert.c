// SPDX-License-Identifier: GPL-2.0-only
/**
 * DOC: Experts
 *
 * A context may have one table that says, for each expert of each layer, where
 * its weights are. The device looks experts up there while a job runs, caches
 * what it found, and lets the job wait when an expert is absent. Userspace then
 * hears of it, brings the weights in and binds the expert, and the job looks
 * again. The device never writes the table.
 *
 * An entry is two words of 64 bits: the address, and size, state, number format
 * and priority. The device reads the second word first and the other only if that
 * says that the expert is there. So an absent expert is bound by writing the
 * address, then the second word; nothing needs to be invalidated, since absence
 * is not cached. An expert that is there and gets another place or format is
 * first made absent, what the device cached of it is dropped, and running jobs,
 * which may still use the old place, are waited for. Those that wait for an
 * expert themselves are not: they hold no expert, and look all of theirs up
 * again.
 *
 * All entries of a call are checked before the first is touched. If the wait
 * is interrupted the entries become what they were.
 */

#include <linux/dma-resv.h>
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_print.h>
#include <drm/m6npu_accel.h>

#include "m6npu_context.h"
#include "m6npu_device.h"
#include "m6npu_expert.h"
#include "m6npu_gem.h"
#include "m6npu_mmu.h"
#include "m6npu_pt.h"
#include "m6npu_router.h"

#define EXPERT_ALIGN		M6NPU_EXPERT_ALIGN
#define EXPERT_PRIORITY_MAX	1000
/* Of programs from before experts had a type. */
#define EXPERT_STRIDE_MIN	offsetof(struct drm_m6npu_expert, type)

/* Second word of an entry. */
#define EXPERT_STATE_SHIFT	32
#define EXPERT_TYPE_SHIFT	40
#define EXPERT_PRIORITY_SHIFT	48
/* What says, with the address, what the weights are. */
#define EXPERT_WEIGHTS_MASK	(GENMASK_ULL(31, 0) | GENMASK_ULL(47, 40))

/* Experts that are dropped from the device's caches one by one. */
#define EXPERT_DROP_MAX		32

/**
 * struct expert_entry - struct m6npu_expert, as it is written
 */
struct expert_entry {
	/** @addr: device address of the weights */
	__le64 addr;
	/** @info: size, state, type, priority; what makes the entry valid */
	__le64 info;
};

/**
 * struct expert_bind - what is done to an entry
 */
struct expert_bind {
	/** @entry: to change */
	struct expert_entry *entry;
	/** @addr: as it shall be */
	u64 addr;
	/** @info: as it shall be */
	u64 info;
	/** @old_info: as it was */
	u64 old_info;
	/** @key: M6NPU_ROUTER_KEY() */
	u32 key;
};

/**
 * struct expert_drop - what the device has to drop from its caches
 */
struct expert_drop {
	/** @count: experts, of which @key has the first ones */
	u32 count;
	/** @key: M6NPU_ROUTER_KEY() of each */
	u32 key[EXPERT_DROP_MAX];
};

static_assert(sizeof(struct expert_entry) == sizeof(struct m6npu_expert));
static_assert(M6NPU_MAX_EXPERT_LAYERS == DRM_M6NPU_MAX_EXPERT_LAYERS);
static_assert(M6NPU_MAX_EXPERTS_PER_LAYER == DRM_M6NPU_MAX_EXPERTS);
static_assert(M6NPU_EXPERT_ABSENT == DRM_M6NPU_EXPERT_ABSENT);
static_assert(M6NPU_EXPERT_RESIDENT == DRM_M6NPU_EXPERT_RESIDENT);
static_assert(M6NPU_EXPERT_PINNED == DRM_M6NPU_EXPERT_PINNED);

/* ---- The table ---- */

static int expert_set_table(struct m6npu_context *ctx, u32 layers, u32 experts)
{
	struct m6npu_vm *vm = ctx->vm;
	int err;

	err = dma_resv_lock_interruptible(&vm->resv, NULL);
	if (err)
		return err;
	if (m6npu_vm_is_idle(vm))
		err = m6npu_vm_set_experts(vm, layers, experts);
	else
		err = -EBUSY;
	dma_resv_unlock(&vm->resv);
	if (err)
		return err;

	m6npu_router_count_tables(ctx->m6npu, !!layers - !!ctx->experts.layers);
	ctx->experts.layers = layers;
	ctx->experts.per_layer = experts;
	return 0;
}

int m6npu_expert_table_ioctl(struct drm_device *drm, void *data,
			     struct drm_file *file)
{
	struct m6npu_context *ctx = to_m6npu_context(file);
	const struct drm_m6npu_expert_table *args = data;
	int err, idx;

	if (args->layers > M6NPU_MAX_EXPERT_LAYERS ||
	    args->experts > M6NPU_MAX_EXPERTS_PER_LAYER ||
	    !args->layers != !args->experts)
		return -EINVAL;

	err = mutex_lock_interruptible(&ctx->experts.lock);
	if (err)
		return err;
	if (args->layers && ctx->experts.layers) {
		err = -EEXIST;
	} else if (drm_dev_enter(drm, &idx)) {
		err = expert_set_table(ctx, args->layers, args->experts);
		drm_dev_exit(idx);
	} else {
		err = -ENODEV;
	}
	mutex_unlock(&ctx->experts.lock);
	return err;
}

/* ---- Binding ---- */

static u64 expert_info(const struct drm_m6npu_expert *expert)
{
	return expert->size | (u64)expert->state << EXPERT_STATE_SHIFT |
	       (u64)expert->type << EXPERT_TYPE_SHIFT |
	       (u64)expert->priority << EXPERT_PRIORITY_SHIFT;
}

static u32 expert_state(u64 info)
{
	return (info >> EXPERT_STATE_SHIFT) & M6NPU_EXPERT_STATE_MASK;
}

/* F32, which is 0, stands for what the commands say. */
static bool expert_type_is_good(u32 type)
{
	return type < M6NPU_TYPE_COUNT && type != M6NPU_TYPE_I32;
}

static int expert_check(const struct m6npu_experts *experts,
			const struct drm_m6npu_expert *expert)
{
	if (expert->layer >= experts->layers ||
	    expert->expert >= experts->per_layer)
		return -EINVAL;
	if (expert->state > DRM_M6NPU_EXPERT_PINNED ||
	    expert->priority > EXPERT_PRIORITY_MAX ||
	    !expert_type_is_good(expert->type) || expert->pad)
		return -EINVAL;
	if (expert->state == DRM_M6NPU_EXPERT_ABSENT)
		return expert->addr || expert->size || expert->type ?
		       -EINVAL : 0;
	if (!expert->addr || !expert->size ||
	    !IS_ALIGNED(expert->addr, EXPERT_ALIGN))
		return -EINVAL;
	if (expert->addr >= M6NPU_VA_SIZE ||
	    expert->size > M6NPU_VA_SIZE - expert->addr)
		return -EINVAL;
	return 0;
}

/* *@failed: index of the entry that is wrong. */
static struct expert_bind *
expert_prepare(struct m6npu_context *ctx,
	       const struct drm_m6npu_expert_bind *args, u32 *failed)
{
	const struct m6npu_experts *experts = &ctx->experts;
	struct expert_entry *table = ctx->vm->experts.cpu;
	struct drm_m6npu_expert expert;
	struct expert_bind *binds;
	int err = 0;
	u32 i;

	if (m6npu_fault_due(ctx->m6npu))
		return ERR_PTR(-ENOMEM);
	binds = kvmalloc_array(args->count, sizeof(*binds), GFP_KERNEL);
	if (!binds)
		return ERR_PTR(-ENOMEM);
	for (i = 0; i < args->count && !err; i++) {
		err = copy_struct_from_user(&expert, sizeof(expert),
					    u64_to_user_ptr(args->entries +
							    (u64)i * args->stride),
					    args->stride);
		if (!err)
			err = expert_check(experts, &expert);
		/* Fields that we don't have are not zero. */
		if (err == -E2BIG)
			err = -EINVAL;
		if (err) {
			*failed = i;
			break;
		}
		binds[i] = (struct expert_bind) {
			.entry = &table[expert.layer * experts->per_layer +
					expert.expert],
			.addr = expert.addr,
			.info = expert_info(&expert),
			.key = M6NPU_ROUTER_KEY(ctx->vm->asid, expert.layer,
						expert.expert),
		};
	}
	if (!err)
		return binds;
	kvfree(binds);
	return ERR_PTR(err);
}

static void expert_sync(struct m6npu_context *ctx,
			const struct expert_entry *entry)
{
	const struct m6npu_table *table = &ctx->vm->experts;

	m6npu_table_sync(ctx->m6npu, table, (const void *)entry - table->cpu,
			 sizeof(*entry));
}

static void expert_write_info(struct m6npu_context *ctx,
			      struct expert_entry *entry, u64 info)
{
	WRITE_ONCE(entry->info, cpu_to_le64(info));
	expert_sync(ctx, entry);
}

static void expert_drop_add(struct expert_drop *drop, u32 key)
{
	if (drop->count < EXPERT_DROP_MAX)
		drop->key[drop->count] = key;
	drop->count++;
}

/* All of the context's if they are many. */
static void expert_drop(struct m6npu_context *ctx,
			const struct expert_drop *drop)
{
	if (drop->count > EXPERT_DROP_MAX)
		m6npu_as_invalidate(ctx->m6npu, ctx->vm->asid);
	else if (drop->count)
		m6npu_router_invalidate(ctx->m6npu, drop->key, drop->count);
}

/* The expert must not be found where, or as what, it is any more. */
static bool expert_moves(const struct expert_bind *bind)
{
	u64 info = le64_to_cpu(bind->entry->info);

	if (expert_state(info) == M6NPU_EXPERT_ABSENT)
		return false;
	return expert_state(bind->info) == M6NPU_EXPERT_ABSENT ||
	       bind->addr != le64_to_cpu(bind->entry->addr) ||
	       (bind->info ^ info) & EXPERT_WEIGHTS_MASK;
}

/* Makes absent what moves, and waits until no job uses it. */
static int expert_unbind(struct m6npu_context *ctx, struct expert_bind *binds,
			 u32 count)
{
	struct expert_drop drop = {};
	u32 i;
	int err;

	for (i = 0; i < count; i++) {
		binds[i].old_info = le64_to_cpu(binds[i].entry->info);
		if (!expert_moves(&binds[i]))
			continue;
		expert_write_info(ctx, binds[i].entry, 0);
		expert_drop_add(&drop, binds[i].key);
	}
	if (!drop.count)
		return 0;

	expert_drop(ctx, &drop);
	err = m6npu_context_wait_running(ctx);
	if (!err)
		return 0;
	/* Backwards: an expert may be named twice. */
	while (i--)
		expert_write_info(ctx, binds[i].entry, binds[i].old_info);
	return err;
}

/* True if the device may have cached what the entry was. */
static bool expert_bind_one(struct m6npu_context *ctx,
			    const struct expert_bind *bind)
{
	struct expert_entry *entry = bind->entry;
	u64 info = le64_to_cpu(entry->info);
	bool present = expert_state(info) != M6NPU_EXPERT_ABSENT;
	bool moves = bind->addr != le64_to_cpu(entry->addr);
	bool changes = moves || bind->info != info;

	if (moves) {
		/* Only if it is named twice, see expert_unbind(). */
		if (present)
			expert_write_info(ctx, entry, 0);
		WRITE_ONCE(entry->addr, cpu_to_le64(bind->addr));
		expert_sync(ctx, entry);
		info = 0;
	}
	if (bind->info != info)
		expert_write_info(ctx, entry, bind->info);
	return present && changes;
}

static void expert_bind(struct m6npu_context *ctx,
			const struct expert_bind *binds, u32 count)
{
	struct expert_drop drop = {};
	u32 i;

	for (i = 0; i < count; i++) {
		if (expert_bind_one(ctx, &binds[i]))
			expert_drop_add(&drop, binds[i].key);
	}
	/* So that the cache hears of pins and priorities. */
	expert_drop(ctx, &drop);
}

/* Else no job that waits has anything to look for. */
static bool expert_some_come(const struct expert_bind *binds, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++) {
		if (expert_state(binds[i].info) != M6NPU_EXPERT_ABSENT)
			return true;
	}
	return false;
}

/* Weights that nobody wrote yet are zero, not what was there before. */
static int expert_use(struct m6npu_context *ctx,
		      const struct expert_bind *binds, u32 count)
{
	u32 i;
	int err;

	for (i = 0; i < count; i++) {
		if (expert_state(binds[i].info) == M6NPU_EXPERT_ABSENT)
			continue;
		err = m6npu_vm_use(ctx->vm, binds[i].addr,
				   lower_32_bits(binds[i].info));
		if (err)
			return err;
	}
	return 0;
}

static int expert_apply(struct m6npu_context *ctx,
			struct drm_m6npu_expert_bind *args)
{
	struct expert_bind *binds;
	u32 failed = args->count;
	int err;

	if (!ctx->experts.layers)
		return -ENXIO;
	binds = expert_prepare(ctx, args, &failed);
	if (IS_ERR(binds)) {
		drm_dbg(&ctx->m6npu->drm, "expert %u of %u not bound: %ld\n",
			failed, args->count, PTR_ERR(binds));
		args->count = failed;
		return PTR_ERR(binds);
	}

	err = expert_use(ctx, binds, args->count);
	if (!err)
		err = expert_unbind(ctx, binds, args->count);
	if (!err)
		expert_bind(ctx, binds, args->count);
	/* Also after a failure: experts were absent for a while. */
	if (err || expert_some_come(binds, args->count))
		m6npu_rings_resume(ctx->m6npu, ctx->vm->asid);
	kvfree(binds);
	return err;
}

int m6npu_expert_bind_ioctl(struct drm_device *drm, void *data,
			    struct drm_file *file)
{
	struct m6npu_context *ctx = to_m6npu_context(file);
	struct drm_m6npu_expert_bind *args = data;
	int err;

	if (args->count > DRM_M6NPU_MAX_BINDS)
		return -E2BIG;
	if (args->stride < EXPERT_STRIDE_MIN || args->stride > PAGE_SIZE)
		return -EINVAL;

	err = mutex_lock_interruptible(&ctx->experts.lock);
	if (err)
		return err;
	err = expert_apply(ctx, args);
	mutex_unlock(&ctx->experts.lock);
	return err;
}

void m6npu_experts_init(struct m6npu_context *ctx)
{
	mutex_init(&ctx->experts.lock);
}

/*
 * The table stays with the address space, which an exported buffer may keep; its
 * share of the router cache does not.
 */
void m6npu_experts_fini(struct m6npu_context *ctx)
{
	if (ctx->experts.layers)
		m6npu_router_count_tables(ctx->m6npu, -1);
	mutex_destroy(&ctx->experts.lock);
}
