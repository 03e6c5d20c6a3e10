# SPDX-License-Identifier: MIT
"""The tables of models with experts, in the device's time.

Two models: the demo, whose routing is real, and one of the shape of
Qwen1.5-MoE-A2.7B, which nobody computes: routing is made up, as the device does
it dry. What is compiled is kept, in build/bench/experts.
"""

import json
import os
import shutil
import subprocess

import moe_shape

TREE = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
HOST = os.path.join(TREE, "build", "host")
COMPILER = os.path.join(HOST, "firmware_tools/npu_compiler/npu_compiler")
BENCH = os.path.join(HOST, "tests/bench/bench_moe")
FOLDER = os.path.join(TREE, "build", "bench", "experts")
DEMO = os.path.join(TREE, "models", "demo")
PROMPTS = os.path.join(TREE, "models", "calibration-prompts.txt")
GOLDEN = os.path.join(TREE, "tests", "golden", "demo-tokens.json")
# Ways through a tile of many tokens are compared on so many of 24 layers.
FEW_LAYERS = 6

# Ways through a layer, and how to ask for them. The first is what others are
# compared with.
WAYS = [("token", ["--moe", "token"]),
        ("per expert", ["--moe", "per-expert"]),
        ("grouped", []),
        ("calibrated", None)]


def run(*arguments):
    """Its standard output."""
    done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments[0]}: status {done.returncode}")
    return done.stdout


def rows(*arguments):
    """Of one run of bench_moe."""
    return [json.loads(line) for line in run(BENCH, *arguments).splitlines()]


def is_new(path):
    """Made since what makes it was."""
    makers = [COMPILER, moe_shape.__file__, __file__]
    return os.path.exists(path) and all(
        os.path.getmtime(path) > os.path.getmtime(maker) for maker in makers)


def compile_model(name, folder, options):
    """A .npu file; weights of zeros take next to no room as zstd."""
    path = os.path.join(FOLDER, name + ".npu")
    run(COMPILER, "--input", folder, "--output", path, "--quantize", "fp16",
        "--compression", "zstd", "--max-chunk-kb", "32768",
        "--tiles", "1,128,512", *options)
    return path


def compile_ways(name, folder, ways):
    """A model in several ways, by way."""
    paths = {way: os.path.join(FOLDER, f"{name}-{way.replace(' ', '-')}.npu")
             for way, _ in ways}
    for way, options in ways:
        if not is_new(paths[way]):
            compile_model(os.path.basename(paths[way])[:-len(".npu")],
                          folder, options)
    return paths


def demo():
    """The demo model's files."""
    ways = [(way, ["--calibrate", PROMPTS] if options is None else options)
            for way, options in WAYS]
    return compile_ways("demo", DEMO, ways)


def made(name, layers, ways):
    """Files of the made-up model; its folder is there only if it has to."""
    folder = os.path.join(FOLDER, name)
    wanted = [os.path.join(FOLDER, f"{name}-{way.replace(' ', '-')}.npu")
              for way, _ in ways]
    if not all(map(is_new, wanted)):
        print(f"Compiling {name}: a minute or two", flush=True)
        moe_shape.make(folder, layers)
    paths = compile_ways(name, folder, ways)
    shutil.rmtree(folder, ignore_errors=True)
    return paths


def shape():
    """All layers, and few layers in all ways."""
    plain = [(way, options) for way, options in WAYS if options is not None]
    few = made("7b-few", FEW_LAYERS, plain)
    use = os.path.join(FOLDER, "use.json")
    with open(use, "w", encoding="utf-8") as stream:
        stream.write(run(BENCH, "use", "7b-few", few["grouped"]))
    few.update(made("7b-few", FEW_LAYERS,
                    [("calibrated", ["--calibration", use])]))
    return made("7b", moe_shape.CONFIG["num_hidden_layers"],
                [("grouped", [])])["grouped"], few


def add_ratios(table, key, same):
    """To the first row that agrees in @same."""
    first = {}
    for row in table:
        peer = first.setdefault(tuple(row[name] for name in same), row[key])
        row["ratio"] = round(row[key] / peer, 4)


def tables():
    """Both."""
    os.makedirs(FOLDER, exist_ok=True)
    result = {"experts": [], "prefill": []}
    files = demo()
    result["experts"] += rows("experts", "demo", files["grouped"], GOLDEN)
    for way, path in files.items():
        result["prefill"] += rows("prefill", "demo", path, way, GOLDEN)
    whole, files = shape()
    result["experts"] += rows("experts", "7B", whole)
    for way, path in files.items():
        result["prefill"] += rows("prefill", "7B, 6 layers", path, way)
    for table in result.values():
        for row in table:
            row.pop("table")
    add_ratios(result["experts"], "mean_ms", ("model", "budget"))
    add_ratios(result["prefill"], "ms", ("model", "tokens"))
    return result
