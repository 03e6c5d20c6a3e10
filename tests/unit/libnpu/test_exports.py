#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""libnpu.so exports what npu.h declares: no more, no less."""
import pathlib
import re
import subprocess
import sys

library, source = sys.argv[1], pathlib.Path(sys.argv[2])
header = (source / "include/npu/npu.h").read_text()
header = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
declared = set(re.findall(r"\b(npu_\w+)\s*\(", header))
mapped = set(re.findall(r"^\t(npu_\w+);$", (source / "libnpu.map").read_text(),
                        flags=re.M))
symbols = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                         capture_output=True, text=True).stdout.split("\n")
exported = {line.split()[-1].split("@")[0] for line in symbols
            if line and line.split()[1] != "A"}
print("1..2")
for number, (what, names) in enumerate([("libnpu.map", mapped),
                                        ("the library", exported)], 1):
    missing, extra = declared - names, names - declared
    print("not ok" if missing or extra else "ok", number, "-", what,
          "names what npu.h declares")
    for name in sorted(missing):
        print("# missing:", name)
    for name in sorted(extra):
        print("# not declared:", name)
