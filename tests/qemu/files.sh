#!/bin/sh
# SPDX-License-Identifier: MIT
# The files that users of the board read are there and say something.
. "${0%/*}/tap.inc"

npu_pci >/dev/null || { echo "1..0 # SKIP no M6 NPU"; exit 77; }
npu=/sys/kernel/debug/npu
dev=/sys/class/accel/accel0/device

says() { grep -qE "$2" "$1"; }
hwmon() { cat $dev/hwmon/hwmon*/"$1"; }
within() { [ "$1" -ge "$2" ] && [ "$1" -le "$3" ]; }

ok "largest_free_block in mem_pool_info" says $npu/mem_pool_info \
	'largest_free_block'
ok "max_chunk_size_kb is 1843200" says $npu/moe_loader/max_chunk_size_kb \
	'^1843200$'

chunk()
{
	echo 4096 >$npu/moe_loader/max_chunk_size_kb &&
		says $npu/moe_loader/max_chunk_size_kb '^4096$' &&
		echo 1843200 >$npu/moe_loader/max_chunk_size_kb
}
ok "max_chunk_size_kb can be set" chunk

bad_chunk() { ! echo 0 2>/dev/null >$npu/moe_loader/max_chunk_size_kb; }
ok "but not to nothing" bad_chunk
ok "contexts" test -r $npu/contexts
ok "router_cache" says $npu/router_cache .

# A job that fails shows up by the field's name for what went wrong.
exceptions()
{
	echo 1 >$npu/enable_exception_log &&
		submit -r submit.any.page_fault >/tmp/files-submit.log 2>&1
	says $npu/exception_log 'EXCEPTION_CODE: 0x1A \(MMU_PAGE_FAULT\)'
}
ok "exception_log names MMU_PAGE_FAULT" exceptions

ok "temperature by hwmon" within "$(hwmon temp1_input)" 20000 105000
ok "power by hwmon" within "$(hwmon power1_input)" 1 60000000
ok "energy by hwmon" within "$(hwmon energy1_input)" 0 9000000000000
ok "PCI class is processing accelerator" says $dev/class '^0x1200'
ok "link speed" says $dev/current_link_speed '16.0 GT/s'
ok "link width" says $dev/current_link_width '^4$'

fdinfo()
{
	exec 8<>/dev/accel/accel0
	cat /proc/self/fdinfo/8 >/tmp/files-fdinfo
	exec 8>&-
	says /tmp/files-fdinfo 'drm-driver:.*m6npu' &&
		says /tmp/files-fdinfo 'drm-engine-'
}
ok "fdinfo" fdinfo
ok "tracepoints" test -d /sys/kernel/tracing/events/m6npu
mode() { [ "$(stat -c %a /dev/accel/accel0)" = 660 ]; }
ok "the node is not world-writable" mode
finish
