// SPDX-License-Identifier: MIT
#include "clock.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

/* How long the power meter averages. */
#define POWER_TAU_S	0.05
#define OFFSET_MAX_MC	10000
#define NS_PER_S	1e9
/* A command can't be billed more than this, whatever its dimensions say. */
#define CHARGE_BYTES_MAX	(1ull << 44)
#define CHARGE_NS_MAX		1000000000000ull

static uint64_t host_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + now.tv_nsec;
}

static uint64_t div_up(uint64_t a, uint64_t b)
{
	return a / b + !!(a % b);
}

/* Rounded up, so that the ledger never sees more than was waited for. */
static uint64_t transfer_ns(uint64_t bytes, uint64_t mb_s)
{
	const uint64_t limit = UINT64_MAX / 1000;

	return div_up((bytes < limit ? bytes : limit) * 1000, mb_s);
}

static uint32_t top_mhz(const struct m6_profile *profile)
{
	return profile->opp[profile->opp_count - 1].mhz;
}

void m6_clock_init(struct m6_clock *clock, const struct m6_profile *profile)
{
	memset(clock, 0, sizeof(*clock));
	pthread_mutex_init(&clock->lock, NULL);
	clock->profile = profile;
	clock->temp = profile->ambient_mc / 1000.0 +
		      profile->idle_mw / 1000.0 *
		      profile->resistance_mc_per_w / 1000.0;
	clock->power = profile->idle_mw / 1000.0;
	clock->request_mhz = top_mhz(profile);
	clock->mhz = clock->request_mhz;
	clock->link_speed = profile->link_speed;
	clock->link_width = profile->link_width;
	clock->idle_since = host_ns();
}

void m6_clock_destroy(struct m6_clock *clock)
{
	pthread_mutex_destroy(&clock->lock);
}

static int32_t clock_sensor(const struct m6_clock *clock)
{
	return (int32_t)lround(clock->temp * 1000.0) +
	       (int32_t)clock->profile->sensor_bias_mc + clock->drift_mc -
	       clock->offset_mc;
}

static void clock_set_mhz(struct m6_clock *clock)
{
	uint32_t cap = clock->profile->throttle_mhz;

	clock->mhz = clock->request_mhz;
	if (clock->throttled && clock->mhz > cap)
		clock->mhz = cap;
}

/* The firmware's trips, on what the sensor says. */
static uint32_t clock_trip(struct m6_clock *clock)
{
	const struct m6_profile *profile = clock->profile;
	int32_t mc = clock_sensor(clock);
	uint32_t events = 0;

	if (!clock->throttled && mc >= (int32_t)profile->throttle_mc) {
		clock->throttled = true;
		events |= M6_CLOCK_THROTTLED;
	}
	if (!clock->halted && mc >= (int32_t)profile->critical_mc) {
		clock->halted = true;
		events |= M6_CLOCK_CRITICAL;
	}
	if (mc < (int32_t)profile->unthrottle_mc) {
		clock->throttled = false;
		clock->halted = false;
	}
	clock_set_mhz(clock);
	return events;
}

/* Moves the device's time on, and with it everything that integrates. */
static uint32_t clock_pass(struct m6_clock *clock, uint64_t ns)
{
	const struct m6_profile *profile = clock->profile;
	double s = ns / NS_PER_S, watts, target, tau;

	if (!ns)
		return 0;
	clock->cycle_rest += ns % 1000 * clock->mhz;
	clock->cycles += ns / 1000 * clock->mhz + clock->cycle_rest / 1000;
	clock->cycle_rest %= 1000;
	clock->now_ns += ns;

	watts = profile->idle_mw / 1000.0 + clock->owed / s;
	clock->owed = 0;
	clock->energy += watts * s;
	clock->power += (watts - clock->power) * -expm1(-s / POWER_TAU_S);
	tau = profile->tau_ms / 1000.0;
	target = profile->ambient_mc / 1000.0 +
		 watts * profile->resistance_mc_per_w / 1000.0;
	clock->temp += (target - clock->temp) * -expm1(-s / tau);
	return clock_trip(clock);
}

/* Idle time becomes device time when somebody looks. */
static uint32_t clock_sync(struct m6_clock *clock)
{
	uint64_t host, ns;

	if (clock->running || !clock->profile->idle_permille)
		return 0;
	host = host_ns();
	ns = (host - clock->idle_since) / 1000 * clock->profile->idle_permille;
	if (!ns)
		return 0;
	clock->idle_since = host;
	return clock_pass(clock, ns);
}

void m6_clock_reset(struct m6_clock *clock)
{
	pthread_mutex_lock(&clock->lock);
	clock_sync(clock);
	clock->request_mhz = top_mhz(clock->profile);
	clock->offset_mc = 0;
	clock->dram_bytes = 0;
	memset(clock->busy_ns, 0, sizeof(clock->busy_ns));
	clock_trip(clock);
	pthread_mutex_unlock(&clock->lock);
}

void m6_clock_read(struct m6_clock *clock, struct m6_clock_state *state)
{
	pthread_mutex_lock(&clock->lock);
	clock_sync(clock);
	*state = (struct m6_clock_state) {
		.now_ns = clock->now_ns,
		.cycles = clock->cycles,
		.dram_bytes = clock->dram_bytes,
		.energy_uj = (uint64_t)(clock->energy * 1e6),
		.power_mw = (uint32_t)lround(clock->power * 1000),
		.mhz = clock->mhz,
		.request_mhz = clock->request_mhz,
		.sensor_mc = clock_sensor(clock),
		.offset_mc = clock->offset_mc,
		.throttled = clock->throttled,
		.halted = clock->halted,
		.link_speed = clock->link_speed,
		.link_width = clock->link_width,
	};
	memcpy(state->busy_ns, clock->busy_ns, sizeof(state->busy_ns));
	pthread_mutex_unlock(&clock->lock);
}

uint64_t m6_clock_now(struct m6_clock *clock)
{
	uint64_t now;

	pthread_mutex_lock(&clock->lock);
	clock_sync(clock);
	now = clock->now_ns;
	pthread_mutex_unlock(&clock->lock);
	return now;
}

int m6_clock_request(struct m6_clock *clock, uint32_t mhz)
{
	if (!m6_profile_opp(clock->profile, mhz))
		return -EINVAL;
	pthread_mutex_lock(&clock->lock);
	clock_sync(clock);
	clock->request_mhz = mhz;
	clock_set_mhz(clock);
	pthread_mutex_unlock(&clock->lock);
	return 0;
}

/* Bounded: the offset corrects a sensor, it does not switch the trips off. */
uint32_t m6_clock_set_offset(struct m6_clock *clock, int32_t offset_mc)
{
	uint32_t events;

	if (offset_mc > OFFSET_MAX_MC)
		offset_mc = OFFSET_MAX_MC;
	if (offset_mc < -OFFSET_MAX_MC)
		offset_mc = -OFFSET_MAX_MC;
	pthread_mutex_lock(&clock->lock);
	clock_sync(clock);
	clock->offset_mc = offset_mc;
	events = clock_trip(clock);
	pthread_mutex_unlock(&clock->lock);
	return events;
}

void m6_clock_set_link(struct m6_clock *clock, uint32_t speed, uint32_t width)
{
	pthread_mutex_lock(&clock->lock);
	clock->link_speed = speed;
	clock->link_width = width;
	pthread_mutex_unlock(&clock->lock);
}

uint32_t m6_clock_advance(struct m6_clock *clock, uint64_t ns)
{
	uint32_t events;

	pthread_mutex_lock(&clock->lock);
	events = clock_sync(clock);
	events |= clock_pass(clock, ns);
	pthread_mutex_unlock(&clock->lock);
	return events;
}

uint32_t m6_clock_set_temp(struct m6_clock *clock, int32_t mc)
{
	uint32_t events;

	pthread_mutex_lock(&clock->lock);
	clock_sync(clock);
	clock->temp = mc / 1000.0;
	events = clock_trip(clock);
	pthread_mutex_unlock(&clock->lock);
	return events;
}

uint32_t m6_clock_set_drift(struct m6_clock *clock, int32_t mc)
{
	uint32_t events;

	pthread_mutex_lock(&clock->lock);
	clock_sync(clock);
	clock->drift_mc = mc;
	events = clock_trip(clock);
	pthread_mutex_unlock(&clock->lock);
	return events;
}

uint64_t m6_clock_start(struct m6_clock *clock, unsigned int ring,
			uint64_t submit_ns)
{
	uint64_t *ns = &clock->ring_ns[ring];

	pthread_mutex_lock(&clock->lock);
	clock_sync(clock);
	clock->running++;
	if (*ns < submit_ns)
		*ns = submit_ns;
	submit_ns = *ns;
	pthread_mutex_unlock(&clock->lock);
	return submit_ns;
}

void m6_clock_stop(struct m6_clock *clock, unsigned int ring)
{
	(void)ring;
	pthread_mutex_lock(&clock->lock);
	if (!--clock->running)
		clock->idle_since = host_ns();
	pthread_mutex_unlock(&clock->lock);
}

/* Moves one timeline on; the device's time follows if it was the furthest. */
static uint32_t clock_spend(struct m6_clock *clock, unsigned int ring,
			    uint64_t ns, uint64_t *cycles)
{
	uint32_t events = 0;

	*cycles += ns * clock->mhz / 1000;
	clock->ring_ns[ring] += ns;
	clock->busy_ns[ring] += ns;
	if (clock->ring_ns[ring] > clock->now_ns)
		events = clock_pass(clock, clock->ring_ns[ring] -
					   clock->now_ns);
	return events;
}

uint32_t m6_clock_charge_ns(struct m6_clock *clock, unsigned int ring,
			    uint64_t ns, uint64_t *cycles)
{
	uint32_t events;

	pthread_mutex_lock(&clock->lock);
	events = clock_spend(clock, ring, ns, cycles);
	pthread_mutex_unlock(&clock->lock);
	return events;
}

/* When @bytes of DRAM traffic that start at @ns are through. */
static uint64_t clock_dram(struct m6_clock *clock, uint64_t ns, uint64_t bytes)
{
	const uint64_t mb_s = clock->profile->dram_mb_s;
	const uint64_t whole = M6_LEDGER_BUCKET_NS * mb_s / 1000;

	while (bytes) {
		uint64_t number = ns / M6_LEDGER_BUCKET_NS;
		uint64_t left = M6_LEDGER_BUCKET_NS - ns % M6_LEDGER_BUCKET_NS;
		uint64_t room = left * mb_s / 1000, take = bytes;
		size_t slot = number % M6_LEDGER_BUCKETS;

		if (clock->ledger[slot].number < number) {
			clock->ledger[slot].number = number;
			clock->ledger[slot].bytes = 0;
		}
		if (clock->ledger[slot].number == number) {
			uint64_t free = whole - clock->ledger[slot].bytes;

			if (room > free)
				room = free;
		}
		if (take > room)
			take = room;
		if (clock->ledger[slot].number == number)
			clock->ledger[slot].bytes += take;
		bytes -= take;
		ns += bytes ? left : transfer_ns(take, mb_s);
	}
	return ns;
}

/* The same, counted and paid for. */
static uint64_t clock_move(struct m6_clock *clock, uint64_t ns, uint64_t bytes)
{
	if (bytes > CHARGE_BYTES_MAX)
		bytes = CHARGE_BYTES_MAX;
	clock->dram_bytes += bytes;
	clock->owed += bytes * clock->profile->dram_pj_per_byte * 1e-12;
	return clock_dram(clock, ns, bytes);
}

struct m6_transfer m6_clock_transfer(struct m6_clock *clock, unsigned int ring,
				     uint64_t bytes)
{
	struct m6_transfer transfer;

	pthread_mutex_lock(&clock->lock);
	transfer.begin_ns = clock->ring_ns[ring] +
			    clock->profile->command_launch_ns;
	transfer.end_ns = clock_move(clock, transfer.begin_ns, bytes);
	pthread_mutex_unlock(&clock->lock);
	return transfer;
}

static uint64_t max64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* PCIe generations 1 and 2 code 8 bits in 10, later ones 128 in 130. */
static uint64_t link_rate(uint32_t speed, uint32_t width)
{
	static const uint32_t lane_mb_s[] = { 0, 250, 500, 985, 1969, 3938 };

	return (uint64_t)lane_mb_s[speed] * width;
}

static uint64_t link_mb_s(const struct m6_clock *clock)
{
	const struct m6_profile *profile = clock->profile;
	uint64_t full = link_rate(profile->link_speed, profile->link_width);
	uint64_t now = link_rate(clock->link_speed, clock->link_width);
	uint64_t rate = profile->link_mb_s * now / full;

	return rate ? rate : 1;
}

/* Dynamic energy goes with f * V^2, so per time at one frequency with both. */
static double unit_watts(const struct m6_clock *clock)
{
	const struct m6_profile *profile = clock->profile;
	const struct m6_opp *top = &profile->opp[profile->opp_count - 1];
	const struct m6_opp *opp = m6_profile_opp(profile, clock->mhz);
	double volt = (double)opp->millivolt / top->millivolt;

	return profile->unit_mw / 1000.0 * opp->mhz / top->mhz * volt * volt;
}

static uint64_t unit_ns(const struct m6_clock *clock, uint64_t macs)
{
	uint64_t cycles = div_up(macs, clock->profile->macs_per_cycle);
	const uint64_t limit = UINT64_MAX / 1000;

	return div_up((cycles < limit ? cycles : limit) * 1000, clock->mhz);
}

uint32_t m6_clock_charge(struct m6_clock *clock, unsigned int ring,
			 const struct m6_charge *charge, uint64_t *cycles)
{
	const struct m6_profile *profile = clock->profile;
	uint64_t start, ns;
	uint32_t events;

	pthread_mutex_lock(&clock->lock);
	start = clock->ring_ns[ring] + profile->command_launch_ns +
		charge->router_walks * profile->router_walk_ns;
	start = max64(start, charge->ready_ns);
	ns = clock_move(clock, start, charge->dram_bytes) - start;
	ns = max64(ns, unit_ns(clock, charge->macs));
	ns = max64(ns, transfer_ns(charge->sram_bytes, profile->sram_mb_s));
	ns = max64(ns, transfer_ns(charge->lz4_bytes, profile->lz4_mb_s));
	ns = max64(ns, transfer_ns(charge->link_bytes, link_mb_s(clock)));
	ns = max64(ns, charge->tlb_walks * profile->tlb_walk_ns);
	if (ns > CHARGE_NS_MAX)
		ns = CHARGE_NS_MAX;
	if (ring != M6NPU_RING_DMA)
		clock->owed += unit_watts(clock) * ns / NS_PER_S;
	events = clock_spend(clock, ring, start - clock->ring_ns[ring] + ns,
			     cycles);
	pthread_mutex_unlock(&clock->lock);
	return events;
}

void m6_clock_ring(struct m6_clock *clock, unsigned int ring, uint64_t *ns,
		   uint64_t *cycles)
{
	int64_t behind;

	pthread_mutex_lock(&clock->lock);
	*ns = clock->ring_ns[ring];
	behind = (int64_t)(clock->now_ns - *ns);
	*cycles = clock->cycles - behind / 1000 * clock->mhz;
	pthread_mutex_unlock(&clock->lock);
}

bool m6_clock_halted(struct m6_clock *clock)
{
	bool halted;

	pthread_mutex_lock(&clock->lock);
	if (clock->halted)
		clock_sync(clock);
	halted = clock->halted;
	pthread_mutex_unlock(&clock->lock);
	return halted;
}

uint64_t m6_clock_ns_to_cycles(struct m6_clock *clock, uint64_t ns)
{
	uint64_t cycles;

	pthread_mutex_lock(&clock->lock);
	cycles = ns * clock->mhz / 1000;
	pthread_mutex_unlock(&clock->lock);
	return cycles;
}
