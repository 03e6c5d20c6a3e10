# SPDX-License-Identifier: MIT
"""A booted board with npu_server in it, for the tests of this folder."""

import json
import os
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
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Served:
    """npu_server with some options on a board of its own.

    If it is run by another program, that is @under, with its arguments.
    @before and @after are shell commands of the guest. Signals are for the
    server or that program, so nothing is left of the shell if nothing comes
    after it.
    """

    def __init__(self, options="", log=None, model=MODEL, under="",
                 before=":", after=None, **board):
        self.port = free_port()
        self.log = log
        server = (f"{under} npu_server --model {model} "
                  f"--host 0.0.0.0:8080 {options}")
        command = f"{before}\nexec {server}"
        if after:
            command = (f"{before}\ntrap : TERM INT\n{server}\n"
                       f"status=$?\n{after}\nexit $status")
        self.board = Board(command=command, forwards=[(self.port, 8080)],
                           timeout=900, stdout=log, stderr=log, **board)
        self.status = None

    def __enter__(self):
        self.board.start()
        self.board.background()
        end = time.monotonic() + 240
        while time.monotonic() < end and self.board.status is None:
            try:
                self.get("/health")
                return self
            except (OSError, urllib.error.URLError):
                time.sleep(0.2)
        self.board.stop()
        raise AssertionError("the server did not become healthy; see "
                             + self.log.name)

    def __exit__(self, *_):
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
