# SPDX-License-Identifier: MIT
"""A booted board with npu_server in it, for the tests of this folder."""

import json
import os
import socket
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

TREE = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TREE, "emulator", "vm"))
from board import Board  # noqa: E402  pylint: disable=wrong-import-position

MODEL = "/src/build/models/demo.npu"


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Served:
    """npu_server on a board of its own: with some options, or one after the
    other with several, from each to the next by next().

    If it is run by another program, that is @under, with its arguments.
    @before and @after are shell commands of the guest. Signals are for the
    server or that program, so nothing is left of the shell if nothing comes
    after it. With @shell, run() runs commands beside the server.
    """

    def __init__(self, options="", log=None, model=MODEL, under="",
                 before=":", after=None, shell=False, **board):
        self.port, self.shell_port = free_port(), free_port()
        self.log = log
        forwards = [(self.port, 8080)]
        if shell:
            before += "\nsetsid nc -ll -p 9000 -e sh &"
            forwards.append((self.shell_port, 9000))
        servers = [f"{under} npu_server --model {model} "
                   f"--host 0.0.0.0:8080 {some}"
                   for some in ([options] if isinstance(options, str)
                                else options)]
        self.left = len(servers) - 1
        command = f"{before}\nexec {servers[0]}"
        if after or self.left:
            command = (f"{before}\ntrap : TERM INT USR1\n"
                       + " &&\n".join(servers)
                       + f"\nstatus=$?\n{after or ':'}\nexit $status")
        self.board = Board(command=command, forwards=forwards, timeout=900,
                           stdout=log, stderr=log, **board)
        self.status = None

    def __enter__(self):
        self.board.start()
        self.board.background()
        self._wait_healthy()
        return self

    def _wait_healthy(self):
        end = time.monotonic() + 240
        while time.monotonic() < end and self.board.status is None:
            try:
                self.get("/health")
                return
            except (OSError, urllib.error.URLError):
                time.sleep(0.2)
        self.board.stop()
        raise AssertionError("the server did not become healthy; see "
                             + self.log.name)

    def next(self):
        """End the server that runs; the next one is there upon return."""
        self.left -= 1
        self.board.signal("TERM")
        try:
            while True:
                self.get("/health")
        except OSError:
            # It has begun to end, or has, and the next one takes a while.
            self._wait_healthy()

    def run(self, command):
        """What a shell command in the guest prints."""
        with socket.create_connection(("127.0.0.1", self.shell_port),
                                      300) as connection:
            connection.sendall(command.encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as stream:
                return stream.read().decode()

    def __exit__(self, error, *_):
        # After an error nobody asks for the others, which would each have
        # to be ended.
        if not error or not self.left:
            self.status = self.board.finish()
        self.board.stop()

    def get(self, path):
        """A page's body."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}",
                                    timeout=30) as got:
            return got.read().decode()

    def post(self, path, body):
        """A JSON answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as got:
            return json.load(got)

    def metrics(self):
        """Figures by name, labels and all."""
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
                for line in self.get("/metrics").splitlines()
                if line and line[0] != "#"}

    def complete(self, ids, count, logprobs=None):
        """Greedy text after a prompt of token ids."""
        body = {"prompt": ids, "max_tokens": count, "temperature": 0}
        if logprobs is not None:
            body["logprobs"] = logprobs
        return self.post("/v1/completions", body)["choices"][0]

    def ids(self, text):
        """Token ids of a text."""
        return self.post("/tokenize", {"content": text})["tokens"]


def at_once(calls):
    """Results of functions that run in threads of their own."""
    results = [None] * len(calls)

    def run(i):
        results[i] = calls[i]()

    threads = [threading.Thread(target=run, args=(i,))
               for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.fixture(name="server_log")
def server_log_fixture(request):
    """A file for what the guest prints."""
    path = os.path.join(TREE, "build", "results", "server",
                        request.node.name + ".log")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as log:
        yield log
