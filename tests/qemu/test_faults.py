# SPDX-License-Identifier: MIT
"""Faults of the board, injected while tests/kselftest/faults runs on it."""

import os
import re
import socket
import sys

TREE = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
RESULTS = os.path.join(TREE, "build", "results", "qemu")
sys.path.insert(0, os.path.join(TREE, "emulator", "vm"))
from board import Board  # noqa: E402  pylint: disable=wrong-import-position


class Injector:
    """The guest's output; does what its lines "# inject COMMAND" ask for."""

    def __init__(self, control):
        self.control = control
        self.text = b""
        self.done = 0

    def write(self, data):
        """Some more output."""
        self.text += data
        *lines, rest = self.text[self.done:].split(b"\n")
        self.done = len(self.text) - len(rest)
        for line in lines:
            asked = re.fullmatch(rb"# inject (.+?)\r?", line)
            if asked:
                self.inject(asked[1].decode())

    def flush(self):
        """All is passed on already."""

    def inject(self, what):
        """To the emulator; the second tells the guest that it is done."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            client.connect(self.control)
            for command in (what, "spurious-irq 7"):
                client.sendall(f"inject {command}\n".encode())
                answer = client.recv(4096)
                assert b'"ok":true' in answer.replace(b" ", b""), answer


def test_faults(tmp_path):
    """All of the program's tests, none skipped but those that say why."""
    control = str(tmp_path / "control")
    out = Injector(control)
    with Board(arch=os.environ.get("ARCH", "arm64"), timeout=500,
               emu_args=f"--control {control}",
               modparams="job_timeout_ms=1000", stdout=out, stderr=out,
               command="exec env M6_INJECT=1 "
               "/src/build/$M6_BUILD/tests/kselftest/faults") as board:
        status = board.wait()
        text = out.text.decode(errors="replace")
        os.makedirs(RESULTS, exist_ok=True)
        with open(os.path.join(RESULTS, "test_faults.log"), "w") as log:
            log.write(text)
        assert status == 0, text
        assert "nobody injects" not in text
        assert re.search(r"^ok \d+ faults", text, re.M), text
        assert not board.kernel_complaints(), board.kernel_complaints()
