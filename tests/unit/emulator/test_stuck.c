// SPDX-License-Identifier: MIT
/* Stuck memory bits: what jobs read and write shows them. */
#include <errno.h>
#include <string.h>

#include "../tap.h"
#include "guest.h"

#define CMDS	0x100000u	/* where command lists go in the data area */
#define BAD	0x4321u		/* the byte with the stuck bit, there */

static uint64_t fence = 1;	/* of the next job */

static uint8_t *byte(struct guest *guest, uint64_t offset)
{
	return guest_data(guest, offset);
}

static uint32_t run(struct guest *guest, struct m6npu_cmd cmd)
{
	uint64_t mine = fence++;

	guest_job(guest, 0, CMDS, &cmd, 1, mine);
	guest_submit(guest, 0);
	return guest_wait(guest, mine) ? guest_status(guest, mine)->code :
					 0xffff;
}

static uint32_t fill(struct guest *guest, uint64_t dst, uint64_t bytes,
		     uint32_t pattern)
{
	return run(guest, (struct m6npu_cmd) {
		.opcode = M6NPU_OP_FILL, .operand = { dst },
		.args.mem = { bytes, pattern },
	});
}

static uint32_t copy(struct guest *guest, uint64_t dst, uint64_t src,
		     uint64_t bytes)
{
	return run(guest, (struct m6npu_cmd) {
		.opcode = M6NPU_OP_COPY, .operand = { dst, src },
		.args.mem.bytes = bytes,
	});
}

static int stick(struct guest *guest, uint64_t addr, unsigned int bit,
		 unsigned int value)
{
	return m6_device_inject_stuck_bit(guest->dev, &(struct m6_stuck_bit) {
		addr, bit, value,
	});
}

static void test_parse(void)
{
	static const char *const bad[] = {
		"", ":", "1", "1:2", "1:2:", ":1:1", "1:8:0", "1:7:2",
		"1:-1:0", "-1:1:0", " 1:1:0", "1:1:0 ", "1:1:1:1", "x:1:1",
		"0x:1:1", "0x10000000000000000:1:1", "1:4294967297:1",
	};
	struct m6_stuck_bit bit;
	unsigned int taken = 0;

	ok(!m6_stuck_parse("0x123456789:7:1", &bit) &&
	   bit.addr == 0x123456789 && bit.bit == 7 && bit.value == 1,
	   "ADDRESS:BIT:VALUE");
	ok(!m6_stuck_parse("4096:0:0", &bit) && bit.addr == 4096 &&
	   bit.bit == 0 && bit.value == 0, "in decimal");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		taken += !m6_stuck_parse(bad[i], &bit);
	ok(!taken, "nothing else");
}

static void test_device_writes(struct guest *guest)
{
	memset(byte(guest, 0x4000), 0x55, 0x1000);
	ok(!stick(guest, GUEST_DATA + BAD, 3, 1), "a bit stuck at 1");
	ok(!fill(guest, 0x4000, 0x1000, 0) && *byte(guest, BAD) == 8,
	   "what the device fills shows it");
	ok(!*byte(guest, BAD - 1) && !*byte(guest, BAD + 1),
	   "and nothing beside it");
	ok(!fill(guest, 0x4000, 0x1000, ~0u) && *byte(guest, BAD) == 0xff,
	   "unless it is to be 1");
	ok(!stick(guest, GUEST_DATA + BAD, 3, 0), "now it is stuck at 0");
	ok(!fill(guest, 0x4000, 0x1000, ~0u) && *byte(guest, BAD) == 0xf7,
	   "which shows as well");
}

static void test_device_reads(struct guest *guest)
{
	memset(byte(guest, 0x4000), 0xff, 0x1000);
	memset(byte(guest, 0x8000), 0, 0x1000);
	ok(!copy(guest, 0x8000, 0x4000, 0x1000) &&
	   *byte(guest, 0x8000 + BAD - 0x4000) == 0xf7,
	   "what the CPU wrote is read wrong");
	ok(*byte(guest, 0x8000 + BAD - 0x4000 + 1) == 0xff,
	   "and nothing beside it");
	ok(*byte(guest, BAD) == 0xf7, "and by the CPU from then on");
}

/* Pages in reverse: through a bounce buffer, both ways. */
static void test_scattered(struct guest *guest)
{
	uint64_t *pte = guest_pte(guest, GUEST_VA + 0x4000);
	uint64_t keep = pte[0];

	pte[0] = pte[1];
	pte[1] = keep;
	guest_invalidate(guest);
	memset(byte(guest, 0x4000), 0xff, 0x2000);
	ok(!copy(guest, 0x8000, 0x4000, 0x2000) &&
	   *byte(guest, 0x9000 + BAD - 0x4000) == 0xf7,
	   "scattered pages are read wrong");
	ok(!fill(guest, 0x4000, 0x2000, ~0u) && *byte(guest, BAD) == 0xf7,
	   "and written wrong");
	pte[1] = pte[0];
	pte[0] = keep;
	guest_invalidate(guest);
}

/* Bit 7 of the opcode, as the device fetches it. */
static void test_command(struct guest *guest)
{
	stick(guest, GUEST_DATA + CMDS, 7, 1);
	ok(fill(guest, 0x4000, 4, 0) == M6NPU_EXC_ILLEGAL_COMMAND,
	   "a command is read wrong");
	ok(!m6_device_heal_stuck_bit(guest->dev, GUEST_DATA + CMDS, 7) &&
	   !fill(guest, 0x4000, 4, 0), "until that is healed");
}

static void test_limits(struct guest *guest)
{
	unsigned int i;

	ok(stick(guest, 0, 8, 0) == -EINVAL && stick(guest, 0, 0, 2) == -EINVAL,
	   "no such bit or value");
	ok(m6_device_heal_stuck_bit(guest->dev, GUEST_DATA + BAD, 4) == -ENOENT,
	   "the one beside it is sound");
	m6_device_reset(guest->dev);
	ok(guest_wait_ready(guest), "a reset");
	guest_setup_tables(guest);
	guest_setup_ring(guest, 0);
	ok(!fill(guest, 0x4000, 0x1000, ~0u) && *byte(guest, BAD) == 0xf7,
	   "mends nothing");
	ok(!m6_device_heal_stuck_bit(guest->dev, GUEST_DATA + BAD, 3) &&
	   !fill(guest, 0x4000, 0x1000, ~0u) && *byte(guest, BAD) == 0xff,
	   "healing does");
	/* Where nothing is mapped, that is no harm. */
	for (i = 0; i < M6_STUCK_MAX; i++)
		if (stick(guest, UINT64_MAX - i, 0, 1))
			break;
	ok(i == M6_STUCK_MAX && stick(guest, 0, 0, 1) == -ENOSPC,
	   "16 at a time");
	ok(!stick(guest, UINT64_MAX, 0, 0), "one of them changes");
	ok(!fill(guest, 0x4000, 0x1000, 0), "jobs run");
}

int main(void)
{
	struct guest guest;

	test_parse();
	guest_init(&guest);
	test_device_writes(&guest);
	test_device_reads(&guest);
	test_scattered(&guest);
	test_command(&guest);
	test_limits(&guest);
	guest_exit(&guest);
	return done();
}
