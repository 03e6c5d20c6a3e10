# SPDX-License-Identifier: MIT
"""Experts on a disk that is slow, cannot be read, or tells lies.

Each token takes 24 experts, four in each layer. Where there is room for fewer,
none is still there when it is needed again.
"""

import contextlib
import http.client
import json
import os
import subprocess
import time
import urllib.error

from conftest import TREE, Served, at_once
from test_demo import chat, golden, wait_for
from test_experts import COPY, ON_DISK

# 18, and steps of four tokens.
SMALL = "--expert-budget 432K --npu-expert-preload-threshold off"
COMPILER = os.path.join(TREE, "build", "host", "firmware_tools",
                        "npu_compiler", "npu_compiler")
RESULTS = os.path.join(TREE, "build", "results", "arm64")
BLOCK = 1024			# of a file system that is so small
PATIENCE = 60


def briefly(count):
    """The shortest of the golden answers."""
    return sorted(golden(), key=lambda entry: len(entry["tokens"]))[:count]


def figure(served, name):
    """One of an expert's."""
    return served.metrics()[f"npu_expert_{name}"]


def section_of(layer, expert):
    """The first block of an expert in the demo model's file."""
    model = os.path.join(TREE, "build", "models", "demo.npu")
    told = subprocess.run([COMPILER, "--inspect", model, "--json"],
                          check=True, capture_output=True, text=True)
    for section in json.loads(told.stdout)["sections"]:
        if (section["type"], section.get("layer"),
                section.get("expert")) == ("expert", layer, expert):
            with open(model, "rb") as stream:
                stream.seek(section["offset"])
                return stream.read(BLOCK)
    raise AssertionError(f"no section of expert {layer}/{expert}")


def until(condition):
    """Waits for what another program does; its value."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("it did not come to that")


class Report:
    """What --npu-expert-report of a server on the board writes."""

    OPTION = "--npu-expert-report /results/use.json"

    def __init__(self, served):
        self.served = served
        self.path = os.path.join(RESULTS, "use.json")

    def _read(self):
        tokens = self.served.metrics()["npu_step_tokens_total"]
        with contextlib.suppress(FileNotFoundError, ValueError), \
                open(self.path) as stream:
            report = json.load(stream)
            if report["tokens"] == tokens:
                return report["layers"]
        return None

    def uses(self):
        """Tokens so far, by (layer, expert)."""
        self.served.board.signal("USR1")
        layers = until(self._read)
        return {(i, k): count for i, layer in enumerate(layers)
                for k, count in enumerate(layer["use"])}

    def experts_of(self, entry):
        """Those that an answer takes, which is as it should be."""
        before = self.uses()
        assert chat(self.served, entry) == entry["text"]
        after = self.uses()
        return {which for which in after if after[which] > before[which]}


def divide(used):
    """An expert, who needs it, and who doesn't: some of each."""
    def needing(which):
        return [i for i, experts in enumerate(used) if which in experts]

    which = max(set.union(*used),
                key=lambda w: min(len(needing(w)), len(used) - len(needing(w))))
    need = needing(which)
    others = [i for i in range(len(used)) if i not in need]
    assert need and others
    return which, need, others


def error_of(served, entry):
    """Status and message of a request that fails."""
    try:
        return 200, chat(served, entry)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["message"]


def check_broken(served, entries, which, need, others):
    """Who needs the expert fails and is told why; alone and beside others."""
    name = "(expert {}.{})".format(*which)
    advice = "check the disk" if served.board.disk.errors else "copy the file"

    for i in others[:2]:
        assert chat(served, entries[i]) == entries[i]["text"]
    for i in need[:2]:
        status, message = error_of(served, entries[i])
        assert status == 500
        assert name in message and advice in message, message
    mixed = (need[:2] + others[:2])[:4]
    got = at_once([lambda i=i: error_of(served, entries[i]) for i in mixed])
    for i, (status, text) in zip(mixed, got):
        if i in need:
            assert status == 500, text
        else:
            assert (status, text) == (200, entries[i]["text"])
    assert json.loads(served.get("/health"))["slots_busy"] == 0


def test_broken(server_log):
    """An expert that cannot be read, or is not what it was, is missed by those
    only who need it, and by nobody once it is good again."""
    entries = briefly(6)
    # Nothing of the copy stays in memory, to be read instead of the disk.
    forget = " && echo 3 >/proc/sys/vm/drop_caches"
    with Served(f"--max-concurrent 4 {SMALL} {Report.OPTION}", server_log,
                model=ON_DISK, before=COPY + forget, disk="64M") as served:
        disk = served.board.disk
        report = Report(served)
        used = [report.experts_of(entry) for entry in entries]
        which, need, others = divide(used)
        print(f"\nexpert {which}: needed by {len(need)} of {len(entries)}")
        where = disk.find(section_of(*which))
        for bad in (disk.wrong, disk.errors):
            bad.append(where)
            check_broken(served, entries, which, need, others)
            bad.clear()
            texts = [chat(served, entry) for entry in entries]
            assert texts == [entry["text"] for entry in entries]
        figures = served.metrics()
        # Alone and beside others, in both ways of being bad.
        failed = 2 * (min(len(need), 2) * 2)
        assert figures['npu_requests_total{reason="error"}'] == failed
    assert served.status == 0
    assert not served.board.kernel_complaints()


def test_slow(server_log):
    """2 MB a second: the same answers, later; guesses are read ahead."""
    entries = briefly(2)
    with Served("--expert-budget 1728K", server_log, model=ON_DISK,
                before=COPY, disk="64M") as served:
        def ask():
            before = figure(served, "stall_seconds_total")
            for entry in entries:
                assert chat(served, entry) == entry["text"]
            return figure(served, "stall_seconds_total") - before

        fast = ask()
        served.board.disk.mb_s = 2
        slow = ask()
        print(f"\nstalled {fast:.2f} s, with 2 MB/s {slow:.2f} s")
        assert slow > fast
        assert figure(served, "hints_total") > 0
        assert figure(served, "prefetches_total") > 0
        assert figure(served, "prefetches_used_total") > 0
    assert served.status == 0
    assert not served.board.kernel_complaints()


def stream(served, entry):
    """A connection on which an answer begins to come."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port,
                                            timeout=PATIENCE)
    connection.request("POST", "/v1/chat/completions", json.dumps({
        "messages": entry["messages"], "temperature": 0, "max_tokens": 48,
        "stream": True}))
    return connection


def stream_text(response):
    """All that comes, in one piece."""
    events = [line[6:] for line in response.read().decode().splitlines()
              if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    return "".join(json.loads(e)["choices"][0]["delta"].get("content", "")
                   for e in events[:-1])


def check_leaver(served):
    """A client leaves in the middle of a fault; another one stays."""
    leaver, stayer = golden()[:2]
    gone, staying = stream(served, leaver), stream(served, stayer)
    assert wait_for(served, lambda h: h["slots_busy"] == 2)
    served.board.disk.hold()
    assert served.board.disk.wait_held(PATIENCE)
    # The server answers others while the job waits.
    assert json.loads(served.get("/health"))["slots_busy"] == 2
    gone.close()
    served.board.disk.release()
    assert stream_text(staying.getresponse()) == stayer["text"]
    assert wait_for(served, lambda h: h["slots_busy"] == 0)
    figures = served.metrics()
    assert figures['npu_requests_total{reason="cancelled"}'] == 1


def check_killed(served):
    """Another program dies in the middle of a fault."""
    out = os.path.join(RESULTS, "killed.out")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(out)
    pid = served.run(f"npu_run -o -B 96K -e -n 900 -l 1000 -p hello {ON_DISK} "
                     ">/results/killed.out 2>&1 & echo $!").strip()
    until(lambda: os.path.exists(out) and os.path.getsize(out) > 20)
    served.board.disk.hold()
    assert served.board.disk.wait_held(PATIENCE)
    entry = golden()[2]

    def kill():
        assert wait_for(served, lambda h: h["slots_busy"] == 1)
        served.run(f"kill -9 {pid}")
        served.board.disk.release()

    assert at_once([lambda: chat(served, entry), kill])[0] == entry["text"]
    until(lambda: "gone" in served.run(f"kill -0 {pid} || echo gone"))


def compile_small():
    """A random Qwen2-MoE in the tree of the guest."""
    model = os.path.join(TREE, "build", "models", "qwen2moe.npu")
    subprocess.run([COMPILER, "--input",
                    os.path.join(TREE, "tests", "golden", "qwen2moe"),
                    "--output", model, "--target", "m6-mini"],
                   check=True, capture_output=True)
    return "/src/build/models/qwen2moe.npu"


def check_two_models(served, model):
    """The other program's answers with a budget and beside the server are
    those that it gets with room for all."""
    run = f"npu_run -q -j -e -n 40 -t 5,9,2,77,31,4 -L /tmp/logits {{}} {model}"
    sums = "; sha256sum </tmp/logits"

    def tokens(text):
        answer, _, digest = text.rpartition("}")
        return json.loads(answer + "}")["tokens"], digest.strip()

    want = tokens(served.run(run.format("") + sums))
    assert len(want[0]) == 40
    entries = golden()[3:5]
    texts = at_once([
        lambda: [chat(served, entry) for entry in entries],
        lambda: tokens(served.run(run.format("-o -B 48K") + sums))])
    assert texts == [[entry["text"] for entry in entries], want]


def test_beside(server_log):
    """Clients that leave, programs that die, and a second model."""
    with Served(f"--max-concurrent 2 {SMALL}", server_log, model=ON_DISK,
                before=COPY, disk="64M", shell=True) as served:
        check_leaver(served)
        check_killed(served)
        check_two_models(served, compile_small())
    assert served.status == 0
    assert not served.board.kernel_complaints()


def compile_low():
    """The demo with its experts in four bits besides."""
    model = os.path.join(TREE, "build", "models", "demo-low.npu")
    subprocess.run([COMPILER, "--input", os.path.join(TREE, "models", "demo"),
                    "--output", model, "--target", "m6-mini", "--quantize",
                    "fp16", "--expert-fallback", "int4"],
                   check=True, capture_output=True)
    return "/src/build/models/demo-low.npu"


def test_fallback(server_log):
    """Copies of lower precision stand in where they are asked for, only."""
    entries = briefly(4)
    with Served([SMALL, f"{SMALL} --npu-expert-fallback"], server_log,
                model=ON_DISK, before=f"cp {compile_low()} {ON_DISK} && sync",
                disk="64M") as served:
        for entry in entries:
            assert chat(served, entry) == entry["text"]
        assert figure(served, "fallbacks_total") == 0
        waited = figure(served, "stall_seconds_total")
        served.next()
        served.board.disk.mb_s = 2
        texts = [chat(served, entry) for entry in entries]
        same = sum(text == entry["text"]
                   for text, entry in zip(texts, entries))
        fallbacks = figure(served, "fallbacks_total")
        print(f"\n{fallbacks:g} fallbacks, {same} of {len(texts)} the same; "
              f"waited {waited:.2f} s, then "
              f"{figure(served, 'stall_seconds_total'):.2f} s")
        assert all(texts)
        assert fallbacks > 0
    assert served.status == 0
    assert not served.board.kernel_complaints()
