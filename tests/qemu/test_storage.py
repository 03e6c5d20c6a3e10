# SPDX-License-Identifier: MIT
"""The emulated board's disk where it is slow, or cannot be read."""

import os
import sys

TREE = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TREE, "emulator", "vm"))
from board import run_on_board  # noqa: E402  pylint: disable=wrong-import-position

BAD = range(32 << 20, (32 << 20) + 4096)
# What dd ends with, and how long it took, for a block and for much.
COMMANDS = r"""
read_at() { dd if=/dev/nvme0n1 of=/dev/null bs=$1 skip=$2 count=$3 \
	iflag=direct 2>/dev/null; echo "$? $(cut -d' ' -f1 /proc/uptime)"; }
cut -d' ' -f1 /proc/uptime
read_at 4096 8191 1
read_at 4096 8192 1
read_at 4096 8193 1
read_at 1048576 40 8
"""


def test_disk():
    """4 KiB fail and their neighbours don't; 8 MiB take what they should."""
    done = run_on_board(COMMANDS, disk="64M", disk_mb_s=4, disk_errors=[BAD])
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [status for status, _ in lines] == ["0", "1", "0", "0"]
    took = float(lines[3][1]) - float(lines[2][1])
    assert 2 <= took < 10
