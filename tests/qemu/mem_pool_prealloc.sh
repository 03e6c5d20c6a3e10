#!/bin/sh
# SPDX-License-Identifier: MIT
# shellcheck shell=busybox
#
# A pool made as at boot: it is used by what comes, stays, and goes when told.
. "${0%/*}/tap.inc"

npu_pci >/dev/null || { echo "1..0 # SKIP no M6 NPU"; exit 77; }
model=/src/build/models/demo.npu
info=/sys/kernel/debug/npu/mem_pool_info
log=/tmp/mem-pool-prealloc.log

tool() { npu_mem_pool_prealloc "$@" >$log 2>&1; }
says() { grep -qE "$1" $log; }
total() { sed -n 's/^total: //p' $info; }
before=$(total)

make_pool() { tool --size=64M --client-limit=48M && says '64 MiB .* made'; }
ok "a pool" make_pool
again() { tool --size=64M && says 'is there already'; }
ok "is made once" again
larger() { ! tool --size=64G && says 'no pool of 64 GiB.*cma='; }
ok "one that does not fit is refused with what helps" larger
shown() { tool --info && says '64 MiB.*0 bytes.*48 MiB'; }
ok "it is shown" shown

# What mem_pool_info counts stays the same, so the model is in there.
run_model()
{
	local made

	made=$(total)
	npu_run -q -n 4 -p Hello $model >/dev/null 2>&1 &
	while kill -0 $! 2>/dev/null; do
		[ "$(total)" = "$made" ] || return 1
	done
	wait $!
}
[ ! -e $model ] || ok "a model takes it" run_model

upkeep()
{
	tool --defrag && says 'largest free block 64 MiB -> 64 MiB' &&
		tool --flush && says 'given back'
}
ok "it is looked after" upkeep
missing() { ! tool --defrag=7 && says 'no pool 7'; }
ok "only what there is" missing
ok "it is released" tool --release
unchanged() { [ "$(total)" = "$before" ]; }
ok "and gone" unchanged
finish
