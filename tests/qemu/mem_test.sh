#!/bin/sh
# SPDX-License-Identifier: MIT
# shellcheck shell=busybox
#
# npu_mem_test on sound memory, and, with M6_INJECT=1, on memory that
# tests/qemu/test_mem_test.py breaks: it passes our lines "# emulator COMMAND"
# on to the emulator, and says so in /results.
. "${0%/*}/tap.inc"

npu_pci >/dev/null || { echo "1..0 # SKIP no M6 NPU"; exit 77; }
out=/tmp/mem_test.out
err=/tmp/mem_test.err
pools=/sys/kernel/debug/npu/mem_pool_info

# status WANTED ARGUMENT...: what the test ends with.
status()
{
	local wanted=$1

	shift
	npu_mem_test "$@" >$out 2>$err
	[ $? = "$wanted" ] && return
	sed 's/^/# /' $out $err
	return 1
}

says() { grep -qEe "$2" "$1" || { sed 's/^/# /' "$1"; return 1; }; }
lines() { [ "$(wc -l <"$1")" = "$2" ]; }

sound()
{
	status 0 --pattern=0xAAAAAAAA --size=24M --iter=2 && lines $out 1 &&
		lines $err 0 && says $out '^npu_mem_test: 24 MiB tested 2 times in .* no errors$'
}
ok "sound memory" sound

# Pieces of every size, the last one a single page.
odd() { status 0 --size=16380K && says $out '^npu_mem_test: 16.00 MiB tested 1 time'; }
ok "a size that is no power of two" odd

json()
{
	status 0 --json --size=1M && lines $out 1 &&
		says $out '"bytes":1048576,"iterations":1,"complete":true' &&
		says $out '"mismatches":0,"more_words":false,"words":\[\]'
}
ok "as JSON" json
quiet() { status 0 --quiet --size=1M && lines $out 0 && lines $err 0; }
ok "quietly" quiet

wrong_call() { status 2 "$@" && lines $out 0 && says $err "${1%%=*}"; }
for arg in --size=0 --size=1X --size=-1 --size= --pattern=0x1AAAAAAAA \
	   --pattern=AAAA --iter=0 --device=256 --max-errors=x extra; do
	ok "refuses $arg" wrong_call $arg
done
no_device() { status 3 --device=200 && lines $err 1 && says $err 'no such NPU'; }
ok "no such device" no_device

started() { grep -q npu_mem_test $pools; }
interrupted()
{
	npu_mem_test --size=64M --iter=1000000 >$out 2>$err &
	until_true 30 started && kill -INT $! || return 1
	wait $!
	[ $? = 130 ] && says $out 'and once in part in .* no errors$'
}
ok "an interrupt ends it with a summary" interrupted
nothing_left() { ! started; }
ok "no pool is left" nothing_left

[ -n "$M6_INJECT" ] || finish

# From here on all memory that can be had is tested, lest it be beside the bit.
asked=0
emulator()
{
	asked=$((asked + 1))
	echo
	echo "# emulator $*"
	until_true 30 test -e /results/mem_test.$asked
}

base=$(dmesg | sed -n \
	-e 's/.*created CMA memory pool at \(0x[0-9a-f]*\),.*/\1/p' \
	-e 's/.*cma: Reserved .* at \(0x[0-9a-f]*\).*/\1/p' | head -n 1)
ok "where the contiguous area is: $base" test -n "$base"
bad=$((base + 0x6400125))

# Large buffers lie at multiples of 32 MiB, in memory and for the device.
right_address()
{
	local addr

	addr=$(sed -n 's/.*device address \(0x[0-9a-f]*\),.*/\1/p' $out)
	[ $((addr % 0x2000000)) = $((bad / 4 * 4 % 0x2000000)) ]
}

stuck_at_1()
{
	emulator inject stuck-bit $bad 5 1 && status 1 && lines $out 3 &&
		says $out '^MEM_CORRUPTION_ERR: device address 0x[0-9a-f]+, expected 0x55555555, found 0x55557555, bits 0x00002000 \(test device-device, iteration 1\)$' &&
		says $out ' 1 word wrong, [0-9]+ times in all$' &&
		says $out 'only bit 13 is ever wrong, and always 1: it seems stuck at 1$'
}
ok "a bit stuck at 1 is found" stuck_at_1
ok "at its address" right_address

stuck_at_0()
{
	emulator inject stuck-bit $bad 5 0 &&
		status 1 --pattern=0x00002000 --max-errors=0 --json &&
		lines $err 0 && says $out '"stuck_bit":{"bit":13,"value":0}'
}
ok "a bit stuck at 0 is found" stuck_at_0

healed() { emulator heal stuck-bit $bad 5 && status 0; }
ok "and nothing once it is healed" healed
finish
