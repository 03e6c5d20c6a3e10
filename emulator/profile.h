/* SPDX-License-Identifier: MIT */
/*
 * What distinguishes one board from another: speeds, power, heat, firmware.
 * The built-in defaults are the M6 mini; a profile file changes some of them.
 */
#ifndef M6_PROFILE_H
#define M6_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#define M6_OPPS_MAX	16

struct m6_opp {
	uint32_t mhz;
	uint32_t millivolt;
};

/* How experts would be chosen, where nobody computes it: --dry. */
struct m6_dry_routing {
	uint32_t seed;
	uint32_t zipf_permille;		/* exponent of the popularity */
	uint32_t repeat_permille;	/* chance of a choice to be of the topic */
	uint32_t topic_length;		/* positions */
	uint32_t predict_permille;	/* chance of a guess to be right */
};

struct m6_profile {
	/* [device] */
	uint32_t firmware_version;	/* as in M6NPU_REG_FW_VERSION */
	uint32_t features;		/* M6NPU_FEAT_* */
	/* [timing] */
	uint32_t dram_mb_s;
	uint32_t sram_mb_s;
	uint32_t lz4_mb_s;
	uint32_t macs_per_cycle;	/* INT8, of one unit */
	uint32_t command_launch_ns;
	uint32_t job_launch_ns;
	uint32_t tlb_walk_ns;
	uint32_t router_walk_ns;
	uint32_t idle_permille;		/* device time per host time when idle */
	/* [link] */
	uint32_t link_speed;		/* PCIe generation */
	uint32_t link_width;
	uint32_t link_mb_s;		/* at that speed and width */
	/* [power] */
	uint32_t idle_mw;
	uint32_t unit_mw;		/* one unit busy at the highest OPP */
	uint32_t dram_pj_per_byte;
	/* [thermal] */
	uint32_t ambient_mc;
	uint32_t resistance_mc_per_w;	/* millikelvin a watt */
	uint32_t tau_ms;
	uint32_t throttle_mc;
	uint32_t unthrottle_mc;
	uint32_t critical_mc;
	uint32_t throttle_mhz;
	uint32_t sensor_bias_mc;
	/* [storage] of benchmarks that have no disk */
	uint32_t nvme_mb_s;
	struct m6_dry_routing dry;
	/* [opp] MHz = millivolt, ascending */
	struct m6_opp opp[M6_OPPS_MAX];
	uint32_t opp_count;
};

void m6_profile_default(struct m6_profile *profile);

/*
 * Reads @path over what @profile holds. On failure -errno, and @error says in
 * one line which line is wrong and why.
 */
int m6_profile_load(struct m6_profile *profile, const char *path,
		    char *error, unsigned int error_bytes);

/* "section.key=value" over what @profile holds. -EINVAL, -ENOENT. */
int m6_profile_set(struct m6_profile *profile, const char *setting);

/* The OPP with exactly @mhz, or NULL. */
const struct m6_opp *m6_profile_opp(const struct m6_profile *profile,
				    uint32_t mhz);

/* "2.1.4-rc3" as in M6NPU_REG_FW_VERSION; -EINVAL. */
int m6_version_parse(const char *text, uint32_t *version);

#endif
