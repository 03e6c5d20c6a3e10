/* SPDX-License-Identifier: MIT */
/*
 * Device time, and what follows from it: frequency, power, heat.
 *
 * The host computes results as fast as it can; independently of that every
 * command is charged modelled time on its ring's timeline. The device's time
 * is the furthest any timeline has come, so that nothing the host can have
 * seen lies in the future. A job starts no earlier than its doorbell was rung
 * and its ring's previous job ended. While no ring runs a job, time passes
 * with the host's, scaled by the profile's idle_permille.
 */
#ifndef M6_CLOCK_H
#define M6_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "m6npu_regs.h"
#include "profile.h"

/*
 * DRAM bandwidth is a ledger of device time in buckets: what one ring took of
 * a bucket another can't have. Older buckets than the ledger holds are free.
 */
#define M6_LEDGER_BUCKETS	131072
#define M6_LEDGER_BUCKET_NS	4096

/* What happened while time passed; the caller posts exceptions for it. */
#define M6_CLOCK_THROTTLED	(1u << 0)
#define M6_CLOCK_CRITICAL	(1u << 1)

/* One command's bill. */
struct m6_charge {
	uint64_t macs;
	uint64_t dram_bytes;
	uint64_t sram_bytes;
	uint64_t lz4_bytes;
	uint64_t link_bytes;
	uint64_t tlb_walks;
	uint64_t router_walks;
	uint64_t ready_ns;	/* it can't start before */
};

/* What goes on beside a ring's commands. */
struct m6_transfer {
	uint64_t begin_ns;
	uint64_t end_ns;
};

struct m6_clock {
	pthread_mutex_t lock;	/* leaf; guards all below */
	const struct m6_profile *profile;
	uint64_t now_ns;
	uint64_t cycles;
	uint64_t cycle_rest;	/* thousandths */
	uint64_t idle_since;	/* host ns, while running is 0 */
	unsigned int running;	/* rings with a job that makes progress */
	uint64_t ring_ns[M6NPU_RINGS];
	uint64_t busy_ns[M6NPU_RINGS];
	uint64_t dram_bytes;
	uint32_t request_mhz;
	uint32_t mhz;
	bool throttled;
	bool halted;
	int32_t offset_mc;
	int32_t drift_mc;	/* injected sensor error */
	double temp;		/* of the die, degrees C */
	double power;		/* W, smoothed */
	double energy;		/* J */
	double owed;		/* J spent on timelines, not yet in energy */
	uint32_t link_speed;
	uint32_t link_width;
	struct {
		uint64_t number;
		uint64_t bytes;
	} ledger[M6_LEDGER_BUCKETS];
};

struct m6_clock_state {
	uint64_t now_ns;
	uint64_t cycles;
	uint64_t dram_bytes;
	uint64_t energy_uj;
	uint32_t power_mw;
	uint32_t mhz;
	uint32_t request_mhz;
	int32_t sensor_mc;	/* corrected by the offset */
	int32_t offset_mc;
	bool throttled;
	bool halted;
	uint32_t link_speed;
	uint32_t link_width;
	uint64_t busy_ns[M6NPU_RINGS];
};

void m6_clock_init(struct m6_clock *clock, const struct m6_profile *profile);
void m6_clock_destroy(struct m6_clock *clock);
/* Registers and counters; time, energy and temperature are kept. */
void m6_clock_reset(struct m6_clock *clock);

void m6_clock_read(struct m6_clock *clock, struct m6_clock_state *state);
uint64_t m6_clock_now(struct m6_clock *clock);
/* -EINVAL: not an operating point. */
int m6_clock_request(struct m6_clock *clock, uint32_t mhz);
/* M6_CLOCK_*: the firmware trips on the corrected temperature. */
uint32_t m6_clock_set_offset(struct m6_clock *clock, int32_t offset_mc);
void m6_clock_set_link(struct m6_clock *clock, uint32_t speed, uint32_t width);

/* Lets @ns pass with nothing running. M6_CLOCK_*. */
uint32_t m6_clock_advance(struct m6_clock *clock, uint64_t ns);
/* Sets the die's temperature or the sensor's error. M6_CLOCK_*. */
uint32_t m6_clock_set_temp(struct m6_clock *clock, int32_t mc);
uint32_t m6_clock_set_drift(struct m6_clock *clock, int32_t mc);

/*
 * A ring starts or goes on with a job that was submitted at @submit_ns, and
 * stops or waits. Start returns the time on the ring's timeline.
 */
uint64_t m6_clock_start(struct m6_clock *clock, unsigned int ring,
			uint64_t submit_ns);
void m6_clock_stop(struct m6_clock *clock, unsigned int ring);
/* Plain waiting, such as the launch of a job. M6_CLOCK_*. */
uint32_t m6_clock_charge_ns(struct m6_clock *clock, unsigned int ring,
			    uint64_t ns, uint64_t *cycles);
uint32_t m6_clock_charge(struct m6_clock *clock, unsigned int ring,
			 const struct m6_charge *charge, uint64_t *cycles);
/*
 * Takes DRAM bandwidth for a transfer that starts when the command under way on
 * @ring has been launched; the ring's timeline does not wait for it.
 */
struct m6_transfer m6_clock_transfer(struct m6_clock *clock, unsigned int ring,
				     uint64_t bytes);
/* Time of one ring's timeline, and the device's cycle counter then. */
void m6_clock_ring(struct m6_clock *clock, unsigned int ring, uint64_t *ns,
		   uint64_t *cycles);
bool m6_clock_halted(struct m6_clock *clock);
uint64_t m6_clock_ns_to_cycles(struct m6_clock *clock, uint64_t ns);

#endif
