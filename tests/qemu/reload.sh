#!/bin/sh
# SPDX-License-Identifier: MIT
# The module loads and unloads, and binds and unbinds, any number of times.
. "${0%/*}/tap.inc"

ko=/src/build/$M6_ARCH/modules/m6npu.ko
pci=$(npu_pci) || { echo "1..0 # SKIP no M6 NPU"; exit 77; }
driver=/sys/bus/pci/drivers/m6npu

node_there() { [ -c /dev/accel/accel0 ]; }
node_gone() { [ ! -e /dev/accel/accel0 ]; }

reload()
{
	rmmod m6npu && node_gone && insmod "$ko" && until_true 10 node_there
}

rebind()
{
	echo "$pci" >$driver/unbind && until_true 10 node_gone &&
		echo "$pci" >$driver/bind && until_true 10 node_there
}

work() { param >/tmp/reload-param.log 2>&1; }

i=1
while [ $i -le 10 ]; do
	ok "reload $i" reload
	i=$((i + 1))
done
ok "works after reloading" work
i=1
while [ $i -le 10 ]; do
	ok "rebind $i" rebind
	i=$((i + 1))
done
ok "works after rebinding" work

# An open file and its pool outlive the device: unbind, then close.
unbind_under_file()
{
	exec 8<>/dev/accel/accel0
	echo "$pci" >$driver/unbind && until_true 10 node_gone
	exec 8>&-
	echo "$pci" >$driver/bind && until_true 10 node_there
}
ok "unbind under an open file" unbind_under_file
ok "works after that" work

# Surprise removal: the device goes from the bus and comes back.
remove_and_rescan()
{
	echo 1 >/sys/bus/pci/devices/"$pci"/remove && until_true 10 node_gone &&
		echo 1 >/sys/bus/pci/rescan && until_true 10 node_there
}
ok "remove and rescan" remove_and_rescan
ok "works after that as well" work
ok "the log has no complaint" sh -c \
	"! dmesg | grep -E 'BUG:|WARNING:|Oops|Call trace|refcount_t|leak'"
finish
