#!/bin/sh
# SPDX-License-Identifier: MIT
# shellcheck shell=busybox
#
# libnpu on the board, with the demo model.

model=/src/build/models/demo.npu
[ -e "$model" ] || { echo "1..0 # SKIP no demo model"; exit 77; }
exec "/src/build/$M6_BUILD/tests/vm/libnpu_model" "$model"
