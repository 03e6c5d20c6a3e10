# SPDX-License-Identifier: MIT
"""What the tests of npu_compiler share: TAP, and folders with a model.

They are called with NPU_COMPILER TREE.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

COMPILER, TREE = map(os.path.abspath, sys.argv[1:3])
GOLDEN = os.path.join(TREE, "tests", "golden")
sys.path.insert(0, GOLDEN)
import reference  # noqa: E402 pylint: disable=wrong-import-position

count = failed = 0


def ok(condition, name, detail=""):
    """One line of TAP."""
    global count, failed
    count += 1
    print(f"{'' if condition else 'not '}ok {count} - {name}", flush=True)
    if not condition:
        failed += 1
        print("# " + str(detail).replace("\n", "\n# "))
    return bool(condition)


def finish():
    """The plan; ends the program."""
    print(f"1..{count}")
    sys.exit(1 if failed else 0)


def run(*arguments, **options):
    """The compiler, with its output."""
    return subprocess.run([COMPILER, *map(str, arguments)], text=True,
                          capture_output=True, check=False, **options)


def inspect(path):
    """--inspect --json."""
    result = run("--inspect", path, "--json")
    return json.loads(result.stdout) if not result.returncode else None


class Folder:
    """A copy of a golden or made model to spoil, and where its .npu goes."""

    def __init__(self, model="qwen3moe"):
        self.path = tempfile.mkdtemp(prefix="m6-compiler-")
        self.source = os.path.join(self.path, "model")
        self.output = os.path.join(self.path, "out.npu")
        golden = os.path.join(GOLDEN, model)
        if os.path.isdir(golden):
            shutil.copytree(golden, self.source)
        else:
            subprocess.run([sys.executable, os.path.join(GOLDEN, "make.py"),
                            "--into", self.source, model], check=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)

    def name(self, name):
        """Path of one of its files."""
        return os.path.join(self.source, name)

    def read(self, name):
        """Bytes of one."""
        with open(self.name(name), "rb") as stream:
            return stream.read()

    def write(self, name, data):
        """Replaces one."""
        with open(self.name(name), "wb") as stream:
            stream.write(data)

    def edit(self, name, change):
        """Changes one that is JSON."""
        value = json.loads(self.read(name))
        change(value)
        self.write(name, json.dumps(value).encode())

    def tensors(self):
        """Of model.safetensors."""
        return reference.read_safetensors(self.name("model.safetensors"))

    def save(self, tensors, name="model.safetensors"):
        """As model.safetensors."""
        reference.write_safetensors(self.name(name), tensors)

    def compile(self, *options, **kwargs):
        """Into self.output."""
        return run("--input", self.source, "--output", self.output, *options,
                   **kwargs)

    def refused(self, name, pattern, *options, **kwargs):
        """One line that matches, exit status 1, and nothing left behind."""
        before = set(os.listdir(self.path))
        result = self.compile(*options, **kwargs)
        lines = result.stderr.strip().split("\n")
        good = (result.returncode == 1 and not result.stdout and
                lines[-1].startswith("npu_compiler: ") and
                re.search(pattern, lines[-1]) and
                set(os.listdir(self.path)) == before)
        ok(good, f"refused: {name}",
           f"status {result.returncode}: {result.stderr.strip()}; "
           f"{sorted(os.listdir(self.path))}")
