// SPDX-License-Identifier: MIT
/* Device time, power and heat; also that the same work costs the same. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../tap.h"
#include "clock.h"
#include "guest.h"

static struct m6_profile profile;
static struct m6_clock clk;

static void setup(void)
{
	m6_profile_default(&profile);
	profile.idle_permille = 0;
	m6_clock_init(&clk, &profile);
}

static struct m6_clock_state state(void)
{
	struct m6_clock_state now;

	m6_clock_read(&clk, &now);
	return now;
}

static uint64_t cost(unsigned int ring, struct m6_charge charge)
{
	uint64_t before = clk.ring_ns[ring], cycles = 0;

	m6_clock_charge(&clk, ring, &charge, &cycles);
	return clk.ring_ns[ring] - before;
}

static bool near(double value, double wanted, double percent)
{
	return fabs(value - wanted) <= wanted * percent / 100;
}

static void test_prices(void)
{
	uint64_t ns;

	setup();
	m6_clock_start(&clk, 0, 0);
	ok(cost(0, (struct m6_charge) { 0 }) == 1000, "launch");
	ns = cost(0, (struct m6_charge) { .dram_bytes = 27000000000ull });
	ok(near(ns, 117.4e6, 0.1), "27 GB of weights: %.2f ms", ns / 1e6);
	ns = cost(0, (struct m6_charge) { .macs = 4096ull * 1200000 });
	ok(near(ns, 1e6, 0.2), "a millisecond of arithmetic: %llu ns",
	   (unsigned long long)ns);
	m6_clock_request(&clk, 300);
	ns = cost(0, (struct m6_charge) { .macs = 4096ull * 1200000 });
	ok(near(ns, 4e6, 0.2), "at a quarter of the clock: %llu ns",
	   (unsigned long long)ns);
	ok(cost(0, (struct m6_charge) { .lz4_bytes = 1200000 }) == 1001000,
	   "decompression");
	ok(cost(0, (struct m6_charge) { .tlb_walks = 10000 }) == 2001000,
	   "walks overlap with the rest");
	ns = cost(0, (struct m6_charge) { .link_bytes = 15800000 });
	ok(ns == 1001000, "the link");
	m6_clock_set_link(&clk, 1, 1);
	ns = cost(0, (struct m6_charge) { .link_bytes = 15800000 });
	ok(ns > 31000000, "a bad link: %llu ns", (unsigned long long)ns);
	ns = cost(0, (struct m6_charge) { .macs = ~0ull,
					  .dram_bytes = ~0ull });
	ok(ns < 2000000000000ull, "no bill is endless");
	m6_clock_destroy(&clk);
}

static void test_timelines(void)
{
	const struct m6_charge gb = { .dram_bytes = 1000000000 };
	uint64_t alone, both;

	setup();
	m6_clock_start(&clk, 0, 0);
	alone = cost(0, gb);
	ok(state().now_ns == alone, "time follows the furthest ring");
	m6_clock_start(&clk, 1, 0);
	both = cost(1, gb);
	ok(near(both, 2 * alone, 1), "two rings share the bandwidth");
	ok(state().now_ns == both && state().busy_ns[1] == both, "so");
	ok(m6_clock_start(&clk, 2, both) == both,
	   "a job starts when it was submitted");
	ok(cost(2, (struct m6_charge) { .macs = 4096 * 1200 }) == 2000,
	   "arithmetic is not shared");
	m6_clock_destroy(&clk);
}

/* Runs a unit (or all of them) at full power until @event, or @limit s. */
static double heat(unsigned int units, uint32_t event, double limit)
{
	const uint64_t ns = 10000000;
	uint32_t events = 0;
	struct m6_charge charge = {
		.macs = 4096ull * clk.mhz * (ns / 1000),
		.dram_bytes = 230 * ns / units,
	};

	for (unsigned int i = 0; i < units; i++)
		m6_clock_start(&clk, i, state().now_ns);
	while (!(events & event) && state().now_ns < limit * 1e9)
		for (unsigned int i = 0; i < units; i++) {
			uint64_t cycles = 0;

			events |= m6_clock_charge(&clk, i, &charge, &cycles);
		}
	for (unsigned int i = 0; i < units; i++)
		m6_clock_stop(&clk, i);
	return state().now_ns / 1e9;
}

static void test_heat(void)
{
	double s;

	setup();
	clk.temp = 25;
	m6_clock_set_offset(&clk, 1800);
	s = heat(4, M6_CLOCK_THROTTLED, 1000);
	ok(near(s, 90, 5), "32 W reach 87 C after %.1f s", s);
	ok(near(clk.energy / s, 32, 2), "at %.1f W", clk.energy / s);
	ok(state().throttled && state().mhz == 750, "throttled to 750 MHz");
	m6_clock_advance(&clk, 2000000000);
	ok(state().throttled, "still, at %d", state().sensor_mc);
	m6_clock_advance(&clk, 10000000000);
	ok(!state().throttled && state().mhz == 1200 &&
	   state().sensor_mc < 82000, "until it is below 82 C");
	ok(m6_clock_set_temp(&clk, 106000) ==
	   (M6_CLOCK_THROTTLED | M6_CLOCK_CRITICAL) && state().halted,
	   "105 C halts");
	m6_clock_advance(&clk, 100000000000);
	ok(!state().halted, "and cold units go on");
	m6_clock_destroy(&clk);

	setup();
	m6_clock_set_offset(&clk, 1800);
	heat(1, M6_CLOCK_THROTTLED, 600);
	ok(!state().throttled && state().sensor_mc < 80000,
	   "one unit stays below 80 C: %d", state().sensor_mc);
	m6_clock_set_offset(&clk, 0);
	s = state().sensor_mc;
	m6_clock_set_offset(&clk, 1800);
	ok(s - state().sensor_mc == 1800, "the offset is subtracted");
	m6_clock_set_offset(&clk, -1000000);
	ok(state().offset_mc == -10000, "and bounded");
	m6_clock_set_offset(&clk, 0);
	ok(m6_clock_set_drift(&clk, 30000) & M6_CLOCK_THROTTLED,
	   "a drifting sensor throttles");
	m6_clock_destroy(&clk);
}

static void test_idle(void)
{
	uint64_t before;

	setup();
	before = state().now_ns;
	ok(state().now_ns == before, "idle time stands still");
	profile.idle_permille = 1000;
	before = state().now_ns;
	while (state().now_ns == before)
		;
	ok(state().now_ns > before, "or passes with the host's");
	m6_clock_destroy(&clk);
}

/* The same jobs on a fresh device, with everything that could vary. */
static void record(uint64_t out[8])
{
	struct m6npu_cmd cmds[32];
	struct guest guest;

	guest_init(&guest);
	memset(cmds, 0, sizeof(cmds));
	for (int i = 0; i < 32; i++) {
		cmds[i].opcode = i % 4 ? M6NPU_OP_BARRIER : M6NPU_OP_COPY;
		cmds[i].args.word[0] = (i + 1) * 12345 & ~3;
		if (i % 4)
			cmds[i].args.word[1] = i * 77;
		else
			cmds[i].operand[1] = 0x200000;
	}
	for (int i = 0; i < 20; i++) {
		guest_job(&guest, i % 5, 0x100000, cmds, 32, 1);
		guest_submit(&guest, i % 5);
		guest_wait(&guest, 1);
		m6_device_wait_idle(guest.dev, 5000);
	}
	out[0] = guest_status(&guest, 1)->begin_ns;
	out[1] = guest_status(&guest, 1)->end_ns;
	out[2] = guest_status(&guest, 1)->cycles;
	out[3] = guest_read64(&guest, M6NPU_REG_TIME_NS_LO);
	out[4] = guest_read64(&guest, M6NPU_REG_CYCLES_LO);
	out[5] = guest_read64(&guest, M6NPU_REG_ENERGY_UJ_LO);
	out[6] = guest_read(&guest, M6NPU_REG_TEMP_MC);
	out[7] = guest_read64(&guest, M6NPU_REG_TLB_MISSES_LO);
	guest_exit(&guest);
}

static void test_deterministic(void)
{
	uint64_t first[8], again[8];

	record(first);
	record(again);
	ok(!memcmp(first, again, sizeof(first)) && first[3] && first[7],
	   "twice the same: %llu ns, %llu uJ", (unsigned long long)first[3],
	   (unsigned long long)first[5]);
}

int main(void)
{
	test_prices();
	test_timelines();
	test_heat();
	test_idle();
	test_deterministic();
	return done();
}
