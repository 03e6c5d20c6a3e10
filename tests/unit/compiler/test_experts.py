#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""npu_compiler and experts, from outside: orders, guesses, copies, tiers.

Usage: test_experts.py NPU_COMPILER TREE
"""

import json
import os

import numpy as np

from harness import Folder, finish, inspect, ok, run


def sections(path, kind):
    """Contents of all sections of a type that have a place in a table."""
    with open(path, "rb") as stream:
        data = stream.read()
    return {(s["layer"], s["expert"]):
            data[s["offset"]:s["offset"] + s["stored_bytes"]]
            for s in inspect(path)["sections"] if s["type"] == kind}


def narrow(folder):
    """Experts whose rows are no multiple of 32."""
    def cut(name, tensor):
        if ".experts." not in name:
            return tensor
        return tensor[:, :16] if "down_proj" in name else tensor[:16]

    folder.save({name: np.ascontiguousarray(cut(name, tensor))
                 for name, tensor in folder.tensors().items()})
    folder.edit("config.json", lambda c: c.update(moe_intermediate_size=16))


def test_refusals():
    """What makes no sense."""
    cases = [
        ("an unknown order", "--moe rowwise is not known; there are grouped",
         "--moe", "rowwise"),
        ("more guesses than experts", "--guess 5: the model has 4 experts",
         "--guess", 5),
        ("more guesses than can be routed", "from 0 to 64", "--guess", 65),
        ("copies in fp16", "there are int8 and int4",
         "--expert-fallback", "fp16"),
        ("copies that are no smaller", "no smaller than with --quantize int8",
         "--quantize", "int8", "--expert-fallback", "int8"),
        ("larger copies", "no smaller than with --quantize int4: leave it out",
         "--quantize", "int4", "--expert-fallback", "int8"),
    ]
    with Folder() as folder:
        for name, pattern, *options in cases:
            folder.refused(name, pattern, *options)
        narrow(folder)
        folder.refused("copies of odd rows",
                       "rows of 64 and 16 elements are no multiples of 32",
                       "--expert-fallback", "int4")
    with Folder("llama") as folder:
        folder.refused("copies without experts", "has no experts",
                       "--expert-fallback", "int4")
        folder.refused("guesses without experts", "has 0 experts",
                       "--guess", 2)


def test_copies():
    """They are what the experts would be in that format."""
    with Folder("qwen2moe") as folder:
        folder.compile("--quantize", "int4")
        expected = sections(folder.output, "expert")
        folder.compile("--quantize", "int8")
        experts = sections(folder.output, "expert")
        ok(not inspect(folder.output)["runtime"]["low_expert_bytes"] and
           "low_copies" not in inspect(folder.output)["experts"],
           "no copies unless asked for")
        folder.compile("--quantize", "int8", "--expert-fallback", "int4")
        ok(sections(folder.output, "expert_low") == expected,
           "copies are the experts in fewer bits")
        ok(sections(folder.output, "expert") == experts,
           "and the experts stay as they are")
        described = inspect(folder.output)
        ok(described["experts"]["low_copies"]["type"] == "Q4_0" and
           described["runtime"]["low_expert_bytes"] ==
           max(map(len, expected.values())), "--inspect tells of them")
        ok(not run("--verify", folder.output).returncode, "a good file")
        with open(folder.output, "r+b") as stream:
            stream.seek(described["sections"][-1]["offset"])
            stream.write(b"\xff\xff")
        result = run("--verify", folder.output)
        ok(result.returncode == 1 and "low expert 1.3" in result.stderr,
           "a bad copy is found", result.stderr)


def groups(path, tile):
    """Of a tile, by layer: (experts, capacity, commands)."""
    for entry in inspect(path)["experts"]["tiles"]:
        if entry["tile"] == tile:
            return [[(g["experts"], g["capacity"], g["commands"])
                     for g in layer] for layer in entry["layers"]]
    return None


def test_orders():
    """What --inspect says of each."""
    with Folder("qwen2moe") as folder:
        for order, expected in (("token", [[], []]),
                                ("grouped", [[(4, 16, 1)]] * 2),
                                ("per-expert", [[(1, 16, 4)]] * 2)):
            folder.compile("--moe", order)
            ok(groups(folder.output, 16) == expected, f"--moe {order}",
               groups(folder.output, 16))
            ok(groups(folder.output, 1) == [[], []],
               f"--moe {order}: one token is one token",
               groups(folder.output, 1))
            ok(not run("--verify", folder.output).returncode,
               f"--moe {order}: good")
        result = run("--inspect", folder.output)
        ok("tile 16, layers 0-1: 4 times 1 expert, 16 rows at a time" in
           result.stdout, "as text", result.stdout)


def test_guesses():
    """How many, and what for."""
    with Folder("qwen2moe") as folder:
        for guess, expected in ((None, 4), (0, 0), (1, 1)):
            folder.compile(*(["--guess", guess] if guess is not None else []))
            described = inspect(folder.output)
            operations = [s["operations"] for s in described["sections"]
                          if s["type"] == "commands"]
            ok(described["runtime"]["guesses"] == expected and
               all(o.get("EXPERT_PREFETCH", 0) == bool(expected)
                   for o in operations), f"--guess {guess}", operations)
            ok(not run("--verify", folder.output).returncode,
               f"--guess {guess}: good")


def test_tiers():
    """Favourites get room of their own, and the file tells why."""
    report = {"tokens": 1000, "layers": [
        {"use": [950, 20, 950, 80]},
        {"use": [500, 500, 500, 500], "spread": 0.5,
         "together": [[1, 3, 400]]}]}
    with Folder("qwen2moe") as folder:
        path = os.path.join(folder.path, "use.json")
        with open(path, "w", encoding="utf-8") as stream:
            json.dump(report, stream)
        # So large that launching another command is worth it.
        folder.compile("--calibration", path, "--tiles", "1,1024")
        described = inspect(folder.output)
        ok(not run("--verify", folder.output).returncode, "a good file")
        first, second = groups(folder.output, 1024)
        ok(sum(g[0] for g in first) == 4 and len(second) == 1,
           "all experts are in a tier", (first, second))
        with open(folder.output, "rb") as stream:
            data = stream.read()
        section = next(s for s in described["sections"]
                       if s["type"] == "calibration")
        kept = json.loads(data[section["offset"]:][:section["stored_bytes"]])
        ok(kept["version"] == 1 and kept["tokens"] == 1000 and
           [layer["use"] for layer in kept["layers"]] ==
           [layer["use"] for layer in report["layers"]] and
           [layer["spread"] for layer in kept["layers"]] == [1, 0.5] and
           kept["layers"][1]["together"] == [[1, 3, 400]],
           "the calibration is kept", kept)
        weights = next(s for s in described["sections"]
                       if s["type"] == "static")
        order = np.array([0, 2, 3, 1], np.int32).tobytes()
        region = data[weights["offset"]:][:weights["stored_bytes"]]
        ok(order in region, "favourites come first")


for test in (test_refusals, test_copies, test_orders, test_guesses,
             test_tiers):
    test()
finish()
