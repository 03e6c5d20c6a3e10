#!/bin/sh
# SPDX-License-Identifier: MIT
# shellcheck shell=busybox
#
# libnpu's shared and fragmented pools, and windows, on the board; a model that
# is moved while it runs.

model=/src/build/models/demo.npu
[ -e "$model" ] || model=
exec "/src/build/$M6_BUILD/tests/vm/libnpu_pool" $model
