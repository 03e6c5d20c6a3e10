#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Token ids of real tokenizers against what others make of the same texts.

Usage: test_goldens.py TOKENIZE_FILE

Vocabularies are not in the repository: $M6_DATA/tokenizers has GPT-2's (as
GGUF, from llama.cpp's tests), $M6_DATA/demo-moe the demo model's; a folder
$M6_TOKENIZERS may hold llama3_1.json and qwen3.json. What is not there is
skipped. Expectations: llama.cpp's own (.out) and, for texts.inp, those that
make_goldens.mjs wrote with Hugging Face's JavaScript implementation.
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DATA = pathlib.Path(os.environ.get("M6_DATA", "/nonexistent"))
MORE = pathlib.Path(os.environ.get("M6_TOKENIZERS", "/nonexistent"))

SCALARS = {0: "B", 1: "b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f",
           7: "?", 10: "<Q", 11: "<q", 12: "<d"}


class Gguf:
    """The metadata of a GGUF file."""

    def __init__(self, path):
        self.data = path.read_bytes()
        self.at = 8
        self.scalar("<Q")
        self.values = dict(self.pair() for _ in range(self.scalar("<Q")))

    def scalar(self, code):
        value, = struct.unpack_from(code, self.data, self.at)
        self.at += struct.calcsize(code)
        return value

    def text(self):
        size = self.scalar("<Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            kind, count = self.scalar("<I"), self.scalar("<Q")
            return [self.value(kind) for _ in range(count)]
        return self.scalar(SCALARS[kind])

    def pair(self):
        key = self.text()
        return key, self.value(self.scalar("<I"))


def tokenizer_from_gguf(path):
    values = Gguf(path).values
    tokens = values["tokenizer.ggml.tokens"]
    kinds = values["tokenizer.ggml.token_type"]
    return {
        "added_tokens": [{"id": i, "content": tokens[i], "special": True}
                         for i, kind in enumerate(kinds) if kind == 3],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "post_processor": None,
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE",
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": values["tokenizer.ggml.merges"]},
    }


class Tests:
    def __init__(self, program):
        self.program = program
        self.count = 0
        self.failed = False

    def result(self, good, name):
        self.count += 1
        self.failed |= not good
        print("ok" if good else "not ok", self.count, "-", name, flush=True)

    def skip(self, name, what):
        self.count += 1
        print(f"ok {self.count} - {name} # SKIP no {what}", flush=True)

    def compare(self, name, tokenizer, texts, expected, options=()):
        for path in (tokenizer, texts, expected):
            if not path.exists():
                self.skip(name, path)
                return
        run = subprocess.run([self.program, *options, tokenizer, texts],
                             capture_output=True, text=True, check=False)
        got = [line.split() for line in run.stdout.split("\n")[:-1]]
        want = [line.split() for line in
                expected.read_text().removesuffix("\n").split("\n")]
        for i, (a, b) in enumerate(zip(got, want)):
            if a != b:
                print(f"# text {i}: {' '.join(a)}\n#   not {' '.join(b)}")
        for line in run.stderr.split("\n")[:-1]:
            print("#", line)
        self.result(run.returncode == 0 and got == want, name)


def main():
    tests = Tests(sys.argv[1])
    gpt2 = DATA / "tokenizers/ggml-vocab-gpt-2.gguf"
    with tempfile.TemporaryDirectory() as folder:
        converted = pathlib.Path(folder) / "gpt-2.json"
        if gpt2.exists():
            converted.write_text(json.dumps(tokenizer_from_gguf(gpt2)))
        for name, tokenizer, theirs in (
                ("gpt-2", converted, "gpt-2"),
                ("llama3_1", MORE / "llama3_1.json", "llama-bpe"),
                ("qwen3", MORE / "qwen3.json", "qwen2"),
                ("demo-moe", DATA / "demo-moe/tokenizer.json", None)):
            if theirs:
                base = f"tokenizers/ggml-vocab-{theirs}.gguf"
                tests.compare(f"{name}: llama.cpp's texts", tokenizer,
                              DATA / f"{base}.inp", DATA / f"{base}.out")
            tests.compare(f"{name}: our texts", tokenizer,
                          HERE / "goldens/texts.inp",
                          HERE / f"goldens/{name}.out", ["-s"])
    print(f"1..{tests.count}")
    return tests.failed


if __name__ == "__main__":
    sys.exit(main())
