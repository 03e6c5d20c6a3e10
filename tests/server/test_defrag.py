# SPDX-License-Identifier: MIT
"""Defragmenting the pool that a busy server's memory is in."""

import itertools
import re
import threading

from conftest import Served, at_once
from test_demo import golden

ROUNDS = 1000
CLIENTS = 4
PATIENCE = 400
CHURN = f"/src/build/$M6_BUILD/tests/vm/churn {ROUNDS}"


class Log:
    """The guest's output, in a file too; knows when a TAP plan came by."""

    def __init__(self, stream):
        self.stream = stream
        self.name = stream.name
        self.text = b""
        self.planned = threading.Event()

    def write(self, data):
        """Some more output."""
        self.stream.write(data)
        self.text += data
        if re.search(rb"^1\.\.\d+$", self.text, re.M):
            self.planned.set()

    def flush(self):
        """To the file."""
        self.stream.flush()


def ask(served, entry):
    """All that there is in an answer: text, length, and why it ended."""
    answer = served.post("/v1/chat/completions", {
        "messages": entry["messages"], "temperature": 0, "max_tokens": 48})
    choice = answer["choices"][0]
    return (choice["message"]["content"], choice["finish_reason"],
            answer["usage"]["completion_tokens"])


def ask_all(served, entries, wanted, numbers):
    """Asks one after the other: how often, and which answers were others."""
    asked, wrong = 0, []
    for i in numbers:
        i %= len(entries)
        asked += 1
        try:
            got = ask(served, entries[i])
        except OSError as error:
            # The next one would fare no better.
            return asked, wrong + [(wanted[i], error)]
        if got != wanted[i]:
            wrong.append((wanted[i], got))
    return asked, wrong


def churned(served, log, entries, wanted):
    """What the clients came to while churn went through its rounds."""
    def client(number):
        first = number * len(entries) // CLIENTS
        numbers = itertools.takewhile(lambda _: not log.planned.is_set(),
                                      itertools.count(first))
        return lambda: ask_all(served, entries, wanted, numbers)

    def churn():
        served.board.signal("USR1")
        ended = log.planned.wait(PATIENCE)
        # Whatever became of it, the clients are to end.
        log.planned.set()
        return ended

    *clients, ended = at_once([client(i) for i in range(CLIENTS)] + [churn])
    assert ended, log.text.decode(errors="replace")
    return clients


def test_defrag(server_log, capsys):
    """A thousand times while four clients ask: the same tokens, no reset."""
    entries = golden()
    log = Log(server_log)
    with Served(f"--max-concurrent {CLIENTS}", log, under=CHURN) as served:
        wanted = [ask(served, entry) for entry in entries]
        assert [text for text, *_ in wanted] == [e["text"] for e in entries]
        clients = churned(served, log, entries, wanted)
        # And once more, at rest.
        after = ask_all(served, entries, wanted, range(len(entries)))
    text = log.text.decode(errors="replace")
    figures = re.findall(r"^# (?:\d+ defrags|pause|moved).*", text, re.M)
    with capsys.disabled():
        print("", *figures, sep="\n")
        print(f"# {sum(asked for asked, _ in clients)} answers meanwhile")
    wrong = [w for _, wrong in [*clients, after] for w in wrong]
    assert not wrong, (len(wrong), wrong[:4])
    # None of them was kept from being served.
    assert min(asked for asked, _ in clients) > 1
    assert served.status == 0, text
    assert "not ok" not in text
    assert f"# {ROUNDS} defrags," in text
    assert b"reset" not in served.board.dmesg
    assert not served.board.kernel_complaints()
