# SPDX-License-Identifier: MIT
"""A pool as large as a whole board's, 24 of 32 GiB: tests/vm/full_size. And
what of the ioctl tests needs more memory than the usual guest has.

The guest's memory is sparse, so that the host gives what is touched only.
"""

import os
import re
import sys

import pytest

TREE = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
RESULTS = os.path.join(TREE, "build", "results", "qemu")
sys.path.insert(0, os.path.join(TREE, "emulator", "vm"))
from board import Board  # noqa: E402  pylint: disable=wrong-import-position

# What QEMU takes for all this, and as much again for others.
HOST_NEEDS = 4 << 30


def memory_figure(path, key):
    """Bytes of a line "key: N kB"."""
    with open(path) as stream:
        return int(re.search(rf"^{key}:\s*(\d+) kB", stream.read(),
                             re.M)[1]) << 10


class Output:
    """The guest's output; looks how large QEMU has become."""

    def __init__(self):
        self.text = b""
        self.board = None
        self.peak = 0

    def write(self, data):
        """Some more output."""
        self.text += data
        self.peak = memory_figure(f"/proc/{self.board.qemu.pid}/status",
                                  "VmHWM")

    def flush(self):
        """All is passed on already."""


def check_tap(text):
    """All points that were planned, and none failed."""
    plan = re.search(r"^1\.\.(\d+)$", text, re.M)
    assert plan, text
    assert len(re.findall(r"^ok ", text, re.M)) == int(plan[1]), text
    assert not re.search(r"^not ok ", text, re.M), text


@pytest.mark.parametrize("arch", ("arm64", "x86_64"))
def test_full_size(arch):
    """Fragmented until 23.6 GB do not fit, defragmented until they do."""
    available = memory_figure("/proc/meminfo", "MemAvailable")
    if available < HOST_NEEDS:
        pytest.skip(f"{available >> 20} MiB are available here, 4096 needed")
    out = Output()
    out.board = Board(arch=arch, mem="32G", timeout=500, stdout=out, stderr=out,
                      command="exec /src/build/$M6_BUILD/tests/vm/full_size")
    with out.board as board:
        status = board.wait()
        complaints = board.kernel_complaints()
    text = out.text.decode(errors="replace")
    text += f"# QEMU had {out.peak >> 20} MiB at most\n"
    os.makedirs(RESULTS, exist_ok=True)
    with open(os.path.join(RESULTS, f"full_size-{arch}.log"), "w") as log:
        log.write(text)
    print(text)
    assert status == 0, text
    check_tap(text)
    assert not complaints, complaints
    assert out.peak < HOST_NEEDS


@pytest.mark.parametrize("arch", ("arm64", "x86_64"))
def test_all_windows(arch):
    """tests/kselftest/window where sixteen windows fit: nothing skips."""
    out = Output()
    out.board = Board(arch=arch, mem="8G", timeout=300, stdout=out, stderr=out,
                      command="exec /src/build/$M6_BUILD/tests/kselftest/window")
    with out.board as board:
        status = board.wait()
        complaints = board.kernel_complaints()
    text = out.text.decode(errors="replace")
    assert status == 0, text
    check_tap(text)
    assert "# SKIP" not in text, text
    assert not complaints, complaints
