#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""npu_compiler --calibrate and --calibration from outside.

Usage: test_calibrate.py NPU_COMPILER TREE LOGITS
"""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np

from harness import COMPILER, Folder, finish, inspect, ok, run

LOGITS = os.path.abspath(sys.argv[3])
# A chat format, so that prompts are framed; and two layers with experts.
MODEL = "qwen2moe"
PROMPTS = "Who are you?\n\nIs 91 C too hot?\r\n  \nlist the tools"
TOKENS = [str(7 * i % 120) for i in range(40)]


def prompts(folder, text=PROMPTS, name="prompts.txt"):
    """A file of prompts beside the model."""
    path = os.path.join(folder.path, name)
    with open(path, "wb") as stream:
        stream.write(text if isinstance(text, bytes) else text.encode())
    return path


def contents(path):
    """Bytes of a file."""
    with open(path, "rb") as stream:
        return stream.read()


def calibration_of(path):
    """The section as it is stored, or None."""
    for section in inspect(path)["sections"]:
        if section["type"] == "calibration":
            data = contents(path)[section["offset"]:]
            return json.loads(data[:section["stored_bytes"]])
    return None


def room_of(path, rows):
    """For how many rows the favourites of layer 0 have room in a tile."""
    tile, = (tile for tile in inspect(path)["experts"]["tiles"]
             if tile["tile"] == rows)
    return tile["layers"][0][0]["capacity"]


def logits(path, tile):
    """Of TOKENS, as bytes."""
    return subprocess.run([LOGITS, path, str(tile), *TOKENS], check=True,
                          capture_output=True).stdout


def test_calibrate():
    """What comes out, and that nothing else does."""
    with Folder(MODEL) as folder:
        folder.compile()
        plain = {tile: logits(folder.output, tile) for tile in (1, 4, 16, 64)}
        ok(calibration_of(folder.output) is None, "none unless asked for")
        file = prompts(folder)
        before = set(os.listdir(folder.path))
        result = folder.compile("--calibrate", file)
        ok(not result.returncode and not result.stdout, "--calibrate",
           result.stderr)
        ok(set(os.listdir(folder.path)) == before, "nothing is left behind",
           os.listdir(folder.path))
        result = run("--verify", folder.output)
        ok(not result.returncode, "the file is good", result.stderr)
        got = calibration_of(folder.output)
        ok(got and got["version"] == 1 and len(got["layers"]) == 2 and
           all(sum(layer["use"]) == 2 * got["tokens"]
               for layer in got["layers"]), "each token chose two experts",
           got)
        ok(got["tokens"] > 60, "prompts and answers", got["tokens"])
        for layer in got["layers"]:
            pairs = [count for _, _, count in layer["together"]]
            ok(sum(pairs) == got["tokens"] and
               pairs == sorted(pairs, reverse=True),
               "and so one pair, the most frequent first", pairs)
        for tile, expected in plain.items():
            ok(expected and logits(folder.output, tile) == expected,
               f"the same logits, bit by bit, in steps of {tile}")


def test_repeatable():
    """The same bytes, however it is run; and what it says."""
    with Folder(MODEL) as folder:
        file = prompts(folder)
        files = []
        for threads in 1, 3:
            result = folder.compile("--calibrate", file, "--threads", threads,
                                    "--progress")
            files.append(contents(folder.output))
        ok(files[0] == files[1], "the same bytes again", result.stderr)
        ok("calibrating: 100%" in result.stderr, "--progress", result.stderr)
        tokens = calibration_of(folder.output)["tokens"]
        ok(f"calibrated by {tokens} tokens" in result.stderr,
           "tells how many tokens", result.stderr)
        for chance in "0.85", "0.95":
            ok(re.search(chance + " or more: ([0-9.]+ % right|none)",
                         result.stderr), f"and of guesses with {chance}",
               result.stderr)


def rule_routers(folder):
    """All router logits become 0: the first experts win, as everywhere."""
    tensors = folder.tensors()
    for name, tensor in tensors.items():
        if name.endswith(".mlp.gate.weight"):
            tensors[name] = np.zeros_like(tensor)
    folder.save(tensors)


def test_known_routing():
    """Every token goes to experts 0 and 1."""
    with Folder(MODEL) as folder:
        rule_routers(folder)
        folder.compile()
        plain = logits(folder.output, 64)
        result = folder.compile("--calibrate", prompts(folder),
                                "--calibrate-tokens", 23)
        got = calibration_of(folder.output)
        ok(got["tokens"] == 23, "no more tokens than allowed", got)
        ok("of 3 prompts make the 23 tokens" in result.stderr,
           "and prompts that were left out are told of", result.stderr)
        ok(all(layer["use"] == [23, 23, 0, 0] and
               layer["together"] == [[0, 1, 23]]
               for layer in got["layers"]), "counts of a known routing", got)
        ok(logits(folder.output, 64) == plain, "and logits stay the same")


def test_room():
    """A few experts of many do all: they get room for all rows of a tile."""
    with Folder("top8of128") as folder:
        rule_routers(folder)
        folder.compile()
        plain, before = logits(folder.output, 64), room_of(folder.output, 64)
        folder.compile("--calibrate", prompts(folder))
        after = room_of(folder.output, 64)
        ok(before < after,
           "experts that everybody chooses get more room", (before, after))
        ok(logits(folder.output, 64) == plain,
           "and logits stay the same, with tiers other than before")


def test_gaps():
    """No layer changes what routers look at: who asks the right one is right."""
    with Folder("gaps") as folder:
        result = folder.compile("--calibrate", prompts(folder))
        ok("0.85 or more: 100.0 % right" in result.stderr,
           "guesses skip layers without experts", result.stderr)
        described = inspect(folder.output)["runtime"]
        ok(described["expert_layers"] == 2 and described["guesses"] == 4 and
           not run("--verify", folder.output).returncode,
           "a good file", described)


def test_prompts():
    """Files of prompts that are none."""
    long_line = "x" * 200
    with Folder(MODEL) as folder:
        for name, pattern, text in [
                ("a line that is no UTF-8", "line 2: byte 3 is not valid",
                 b"good\nba\xff\n"),
                ("a NUL in a line", "line 1: byte 2 is NUL", b"a\0b\n"),
                ("an empty file", "holds no prompt", ""),
                ("blank lines", "holds no prompt", "\n\n \r\n"),
                ("a prompt beyond the context",
                 "line 3: [0-9]+ tokens, and the model is compiled for 64",
                 f"a\n\n{long_line}\n")]:
            folder.refused(name, pattern, "--calibrate",
                           prompts(folder, text))
        folder.refused("no such file", "cannot read .*nothing.txt",
                       "--calibrate", os.path.join(folder.path,
                                                   "nothing.txt"))
        os.mkfifo(os.path.join(folder.path, "fifo"))
        for option in "--calibrate", "--calibration":
            folder.refused(f"{option} of a FIFO", "is not a file", option,
                           os.path.join(folder.path, "fifo"), timeout=60)
        folder.refused("no tokens", "from 1 to", "--calibrate",
                       prompts(folder), "--calibrate-tokens", 0)
        folder.refused("a limit of what is not run", "goes with --calibrate",
                       "--calibrate-tokens", 5)
        folder.refused("both ways", "use one", "--calibrate",
                       prompts(folder), "--calibration", "use.json")
    with Folder("llama") as folder:
        folder.refused("a model without experts", "no experts",
                       "--calibrate", prompts(folder))


def test_interrupted():
    """Ctrl-C in the middle of a long run leaves nothing."""
    with Folder(MODEL) as folder:
        file = prompts(folder, "Who are you?\n" * 3000)
        before = set(os.listdir(folder.path))
        with subprocess.Popen(
                [COMPILER, "--input", folder.source, "--output",
                 folder.output, "--progress", "--calibrate", file,
                 "--calibrate-tokens", str(1 << 24)],
                stderr=subprocess.PIPE, text=True) as process:
            for line in process.stderr:
                if "calibrating: 0%" in line:
                    break
            during = set(os.listdir(folder.path)) - before
            process.send_signal(signal.SIGINT)
            status = process.wait()
        ok(status == 128 + signal.SIGINT, "SIGINT ends it", status)
        ok(during and set(os.listdir(folder.path)) == before,
           "the temporary file was there, and goes", during)


def test_unheard():
    """Ended while both temporary files are there: nobody reads progress."""
    with Folder(MODEL) as folder:
        file = prompts(folder)
        before = set(os.listdir(folder.path))
        reader, writer = os.pipe()
        os.close(reader)
        result = subprocess.run(
            [COMPILER, "--input", folder.source, "--output", folder.output,
             "--progress", "--calibrate", file], stderr=writer, check=False)
        os.close(writer)
        ok(result.returncode == 128 + signal.SIGPIPE and
           set(os.listdir(folder.path)) == before,
           "ended while it compiles for the trial", os.listdir(folder.path))


def report(folder, **values):
    """What npu_server writes, with some values replaced."""
    text = {"model": "m", "tokens": 10,
            "layers": [{"use": [10, 5, 5, 0]}, {"use": [4, 4, 6, 6]}]}
    text.update(values)
    return prompts(folder, json.dumps(text), "use.json")


def test_report():
    """--calibration."""
    with Folder(MODEL) as folder:
        folder.compile()
        plain = logits(folder.output, 16)
        result = folder.compile("--calibration", report(folder))
        got = calibration_of(folder.output)
        ok(not result.returncode and got["tokens"] == 10 and
           [layer["use"] for layer in got["layers"]] ==
           [[10, 5, 5, 0], [4, 4, 6, 6]], "counts of a report",
           result.stderr)
        ok(all(layer["spread"] == 1 for layer in got["layers"]),
           "with the default spread", got)
        ok(logits(folder.output, 16) == plain and
           not run("--verify", folder.output).returncode,
           "the same logits, in a file that is good")
        os.unlink(folder.output)
        three = [{"use": [1, 1, 0, 0]}] * 3
        for name, pattern, values in [
                ("of another number of layers", "3", {"layers": three}),
                ("of another number of experts", "5",
                 {"layers": [{"use": [2, 0, 0, 0, 0]}] * 2}),
                ("that contradicts itself", "more tokens", {"tokens": 9}),
                ("of nothing", "counts no tokens",
                 {"tokens": 0, "layers": [{"use": [0] * 4}] * 2}),
                ("without layers", "no layers", {"layers": None})]:
            folder.refused(f"a report {name}", pattern, "--calibration",
                           report(folder, **values))
        folder.refused("a report that is no JSON", "not a JSON object",
                       "--calibration", prompts(folder))
    with Folder("llama") as folder:
        folder.refused("a report for a model without experts", "expert",
                       "--calibration", report(folder))


def test_inspect():
    """The report of a model's experts."""
    with Folder(MODEL) as folder:
        rule_routers(folder)
        folder.compile("--calibrate", prompts(folder))
        described = inspect(folder.output)["calibration"]
        layer = described["layers"][1]
        ok(layer["effective_experts"] == 2 and layer["used_often"] == 2 and
           layer["never_used"] == [2, 3] and
           layer["most_used"][0] == {"expert": 0, "share": 1.0} and
           layer["together"][0]["experts"] == [0, 1], "as JSON", layer)
        text = run("--inspect", folder.output).stdout
        ok("2 of 4 experts by over 1 %" in text and
           "never used 2 3" in text and "0 by 100.0 %" in text, "as text",
           text)


for test in (test_calibrate, test_repeatable, test_known_routing, test_room,
             test_gaps, test_prompts, test_interrupted, test_unheard,
             test_report, test_inspect):
    test()
finish()
