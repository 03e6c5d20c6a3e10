#!/bin/sh
# SPDX-License-Identifier: MIT
# shellcheck shell=busybox
#
# libnpu's devices, pools, buffers and router on the board.

exec "/src/build/$M6_BUILD/tests/vm/libnpu_device"
