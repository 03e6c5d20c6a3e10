# SPDX-License-Identifier: MIT
"""Memory that breaks while tests/qemu/mem_test.sh tests it."""

import os
import re
import socket
import sys

TREE = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
RESULTS = os.path.join(TREE, "build", "results", "qemu")
sys.path.insert(0, os.path.join(TREE, "emulator", "vm"))
from board import Board  # noqa: E402  pylint: disable=wrong-import-position


class Commands:
    """The guest's output; "# emulator COMMAND" in it is done."""

    def __init__(self, control, results):
        self.control = control
        self.results = results
        self.text = b""
        self.line = b""
        self.count = 0

    def write(self, data):
        """Some more output."""
        self.text += data
        *lines, self.line = (self.line + data).split(b"\n")
        for line in lines:
            asked = re.fullmatch(rb"# emulator (.+?)\r?", line)
            if asked:
                self.run(asked[1])

    def flush(self):
        """All is passed on already."""

    def run(self, command):
        """On the emulator; a file then tells the guest that it is done."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            client.connect(self.control)
            client.sendall(command + b"\n")
            answer = client.recv(4096)
        assert answer.startswith(b'{"ok":true'), (command, answer)
        self.count += 1
        path = os.path.join(self.results, f"mem_test.{self.count}")
        with open(path, "wb") as stream:
            stream.write(answer)


def test_mem_test(tmp_path):
    """All of the script's tests."""
    control, results = str(tmp_path / "control"), str(tmp_path / "results")
    os.mkdir(results)
    out = Commands(control, results)
    with Board(arch=os.environ.get("ARCH", "arm64"), mem="512M", timeout=900,
               emu_args=f"--control {control}", results=results,
               stdout=out, stderr=out,
               command="M6_INJECT=1 sh /src/tests/qemu/mem_test.sh") as board:
        status = board.wait()
        text = out.text.decode(errors="replace")
        os.makedirs(RESULTS, exist_ok=True)
        with open(os.path.join(RESULTS, "test_mem_test.log"), "w") as log:
            log.write(text)
        assert status == 0, text
        assert re.search(r"^ok \d+ - a bit stuck at 1 is found", text, re.M)
        assert out.count == 3, text
        assert not board.kernel_complaints(), board.kernel_complaints()
